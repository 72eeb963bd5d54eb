from inspect_ai.scorer import CORRECT, INCORRECT, Score
from inspect_ai.util import sandbox


async def scorer(state, target):
    steps = await sandbox().read_file("steps.txt")
    return Score(value=CORRECT if "done" in steps else INCORRECT)
