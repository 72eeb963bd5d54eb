"""Small evals that Inspect itself runs and logs, offline."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from inspect_ai import Epochs, Task, eval
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.log import EvalLog
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer
from inspect_ai.solver import Generate, Solver, TaskState, solver


def outputs(text: str = "done") -> Iterator[ModelOutput]:
    """Endless answers that state their usage, so that no tokenizer is asked."""
    while True:
        output = ModelOutput.from_content("mockllm/model", text)
        output.usage = ModelUsage(input_tokens=3, output_tokens=2, total_tokens=5)
        yield output


@solver
def talk(fail: tuple[str, ...] = ()) -> Solver:
    """One answer, a stored value and a long message; samples named in `fail` raise."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        state = await generate(state)
        if f"{state.sample_id}/{state.epoch}" in fail:
            raise RuntimeError("broken on purpose")
        state.store.set("note", "x" * 300)
        return state

    return solve


@scorer(metrics=[mean()], name="points")
def points(unscored: tuple[str, ...] = ()) -> Scorer:
    """The epoch over eight plus the id's digits; NaN for samples named in `unscored`."""

    async def score(state: TaskState, target: Target) -> Score:
        if f"{state.sample_id}/{state.epoch}" in unscored:
            return Score.unscored(explanation="not today")
        digits = "".join(c for c in str(state.sample_id) if c.isdigit())
        return Score(value=int(digits or 0) + state.epoch / 8, metadata={"epoch": state.epoch})

    return score


def run_eval(
    folder: Path,
    ids: list[Any],
    *,
    epochs: int = 1,
    fail: tuple[str, ...] = (),
    unscored: tuple[str, ...] = (),
    metadata: dict[str, Any] | None = None,
) -> EvalLog:
    """Runs a tiny eval logged to `folder`; `fail` and `unscored` name samples as `<id>/<epoch>`."""
    task = Task(
        name="tiny",
        dataset=MemoryDataset([Sample(id=id, input=f"question {id}", metadata={"n": 1}) for id in ids]),
        solver=talk(fail),
        scorer=points(unscored),
        epochs=Epochs(epochs),
        metadata=metadata,
    )
    return eval(
        task,
        model=get_model("mockllm/model", custom_outputs=outputs()),
        log_dir=str(folder),
        display="none",
        fail_on_error=False,
        log_buffer=1,
    )[0]
