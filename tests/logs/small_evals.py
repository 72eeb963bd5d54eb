"""Small evals that Inspect itself runs and logs, offline."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from inspect_ai import Epochs, Task, eval
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.log import EvalLog
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer
from inspect_ai.solver import Generate, Solver, TaskState, solver

from control_tower.logs.archive import SampleKey


def outputs(text: str = "done") -> Iterator[ModelOutput]:
    """Endless answers that state their usage, so that no tokenizer is asked."""
    while True:
        output = ModelOutput.from_content("mockllm/model", text)
        output.usage = ModelUsage(input_tokens=3, output_tokens=2, total_tokens=5)
        yield output


@solver
def talk(fail: tuple[str, ...] = (), pause: float = 0) -> Solver:
    """One answer, a stored value and a long message; samples named in `fail` raise."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        state = await generate(state)
        await asyncio.sleep(pause)
        if f"{state.sample_id}/{state.epoch}" in fail:
            raise RuntimeError("broken on purpose")
        state.store.set("note", "x" * 300)
        return state

    return solve


@scorer(metrics=[mean()], name="points")
def points(unscored: tuple[str, ...] = (), done: str | None = None) -> Scorer:
    """The epoch over eight plus the id's digits; NaN for samples named in `unscored`.

    Leaves a file in the folder `done` for each sample that it scored.
    """

    async def score(state: TaskState, target: Target) -> Score:
        if f"{state.sample_id}/{state.epoch}" in unscored:
            return Score.unscored(explanation="not today")
        if done:
            Path(done).mkdir(exist_ok=True)
            (Path(done) / str(SampleKey(str(state.sample_id), state.epoch))).touch()
        digits = "".join(c for c in str(state.sample_id) if c.isdigit())
        return Score(value=int(digits or 0) + state.epoch / 8, metadata={"epoch": state.epoch})

    return score


def small_task(
    ids: list[Any],
    *,
    epochs: int = 1,
    fail: tuple[str, ...] = (),
    unscored: tuple[str, ...] = (),
    metadata: dict[str, Any] | None = None,
    pause: float = 0,
    done: Path | None = None,
) -> Task:
    """A task with a model of its own; `fail` and `unscored` name samples as `<id>/<epoch>`."""
    return Task(
        name="tiny",
        dataset=MemoryDataset([Sample(id=id, input=f"question {id}", metadata={"n": 1}) for id in ids]),
        solver=talk(fail, pause),
        scorer=points(unscored, str(done) if done else None),
        epochs=Epochs(epochs),
        metadata=metadata,
        model=get_model("mockllm/model", custom_outputs=outputs()),
    )


def run_eval(folder: Path, ids: list[Any], *, max_samples: int | None = None, **task: Any) -> EvalLog:
    """Runs a small task logged to `folder`."""
    return eval(
        small_task(ids, **task),
        log_dir=str(folder),
        display="none",
        fail_on_error=False,
        log_buffer=1,
        max_samples=max_samples,
    )[0]
