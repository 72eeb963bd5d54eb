"""The few private names of Inspect that we need, each behind a small function with a test of its own."""

from copy import copy
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inspect_ai.model import Model


def with_role(model: "Model", role: str) -> "Model":
    """A copy of `model` whose calls are recorded under `role`.

    `get_model(role=...)` looks the role up in the run's bindings instead, which is not wanted for a
    model that stands in for a role.
    """
    named = copy(model)
    named._set_role(role)  # pyright: ignore[reportPrivateUsage]
    return named


def sample_epoch() -> int:
    """The epoch of the sample that is running, from 1; 1 outside a sample."""
    from inspect_ai.solver._task_state import sample_state

    state = sample_state()
    return 1 if state is None else state.epoch
