from inspect_ai.scorer import CORRECT, INCORRECT, Score
from inspect_ai.util import sandbox


async def scorer(state, target):
    lines = (await sandbox().read_file("steps.txt")).splitlines()
    return Score(value=CORRECT if len(lines) == 2 else INCORRECT, explanation=f"{len(lines)} lines")
