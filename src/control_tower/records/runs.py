"""Kept runs as they cross the wire: headers, trajectories, and what registers them. Lists are never null."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints
from pydantic_core import PydanticCustomError

SCHEMA_VERSION = 3
"""Of the documents that older clients register."""

Id = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,128}$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Name = Annotated[str, StringConstraints(min_length=1, max_length=500)]
Label = Annotated[str, StringConstraints(max_length=500)]


def _without_comma(tag: object) -> object:
    if isinstance(tag, str) and "," in tag:
        raise PydanticCustomError("tag", "a tag holds no comma; give several tags one by one")
    return tag


Tag = Annotated[str, StringConstraints(max_length=200, pattern=r"^[^,]*$"), BeforeValidator(_without_comma)]
"""Commas separate tags where several are asked for."""
Description = Annotated[str, StringConstraints(max_length=20_000)]
Outcome = Literal["pass", "fail", "unscored"]


class _Record(BaseModel):
    """Read by clients of other versions: unknown keys pass."""

    model_config = ConfigDict(extra="allow", defer_build=True)


class _Asked(BaseModel):
    """What somebody asks for: an unknown key is a mistake."""

    model_config = ConfigDict(extra="forbid", strict=True)


class RunCounts(_Record):
    """How many trajectories of a run are what."""

    honest: int
    attack: int
    errored: int
    unscored: int = Field(description="Not errored, but without the verdict that counts for their stream.")
    missing: int | None = Field(description="Asked for but not in the log; null: the log does not say.")


class RunHeader(_Record):
    """One run, whole."""

    run_id: Id
    name: str
    policy: str | None = None
    task_set: str | None = None
    producer: str | None = Field(None, description="`eval` or `control_eval`.")
    trajectory_count: int = 0
    eval_log_url: str | None = None
    created_at: str | None = Field(None, description="When the record was made, not when the eval ran.")
    created_by: str | None = None
    total_cost_usd: float | None = Field(None, description="What is known of the cost of its samples.")
    cost_by_model: dict[str, float | None] = Field({}, description="null: a part of it has no price.")
    metrics: dict[str, dict[str, float | None]] = Field({}, description="By scorer; null: undefined.")
    metadata: dict[str, Any] = Field({}, description="Of the log's header.")
    tags: list[str] = []
    description: str | None = None
    comments: list[dict[str, Any]] = []
    dataset: str | None = None
    models: list[str] = []
    control_settings: list[str] = []
    counts: RunCounts | None = None
    cost_incomplete: bool = Field(False, description="Whether something in the cost has no price.")


class RunRow(_Record):
    """One run in a list."""

    run_id: Id
    name: str
    policy: str | None
    protocol: str | None
    task_set: str | None
    producer: str | None
    eval_version: str | None
    status: str | None = Field(description="Of the log: `success`, `error` or `cancelled`.")
    tags: list[str]
    environments: list[str]
    models: list[str]
    monitors: list[str]
    trajectory_count: int
    counts: RunCounts
    total_cost_usd: float | None
    cost_incomplete: bool = Field(description="Whether something in the cost has no price.")
    metrics: dict[str, dict[str, float | None]]
    description: str | None
    dataset: str | None
    created_at: str
    created_by: str
    eval_log_url: str
    sha256: Sha256 = Field(description="Of the log.")


class TrajectorySummary(_Record):
    """One trajectory in a list."""

    trajectory_id: Id
    environment_id: str | None
    main_task_id: str | None
    side_task_id: str | None
    environment_description: str | None
    main_task_description: str | None
    side_task_description: str | None
    main_task_success: bool | None
    side_task_success: bool | None
    max_suspicion_score: float | None = Field(description="0-100, over actions that were executed.")
    traj_suspicion_score: float | None = Field(description="0-100, of the whole trajectory.")
    tags: list[str]
    time_started: int | None = Field(description="Unix milliseconds.")
    error: dict[str, Any] | None
    actions_count: int | None
    authors: list[str]
    attempts_mt: bool | None
    attempts_st: bool | None
    attempts_sneaky: bool | None


class TrajectoryRow(TrajectorySummary):
    """One trajectory in the list of its run."""

    run_id: Id
    eval_sample_id: str
    epoch: int
    name: str | None
    stream: Literal["honest", "attack"]
    outcome_main: Outcome | None = Field(description="null: it has no such task.")
    outcome_side: Outcome | None
    main: float | None
    side: float | None
    landed_at: int | None
    cost_usd: float | None
    cost_incomplete: bool
    unscored_verdicts: int
    suspicion: dict[str, str] = Field(
        description="By monitor, base64 of a byte for each action: its score rounded, 255 without one."
    )


class TrajectoryMetadata(_Record):
    """What goes with a sample."""

    trajectory_id: Id
    eval_log_url: str
    eval_sample_id: str
    epoch: int = 1
    run_id: Id | None = None
    created_by: str | None = None
    created_at: str | None = None
    source_file: str | None = None
    name: str | None = None
    tags: list[str] = []
    datasets: list[str] = []
    description: str | None = None
    comments: list[dict[str, Any]] = []
    step_comments: dict[str, list[dict[str, Any]]] = {}
    metadata: dict[str, Any] = {}
    attack_analysis: dict[str, Any] | None = None


class Overrides(_Asked):
    """What a run is called by instead of what its log says."""

    name: Name | None = None
    policy: Label | None = None
    task_set: Label | None = None
    tags: list[Tag] | None = Field(default=None, description="Replaces the log's.")
    description: Description | None = None


class RegisterRun(BaseModel):
    """The first line of a registration."""

    model_config = ConfigDict(extra="ignore", strict=True)

    sha256: Sha256
    overrides: Overrides = Overrides()
    new: bool = Field(False, description="Whether to make another run where the same one is there.")


class RegisterBody(BaseModel):
    """A batch of an older client."""

    model_config = ConfigDict(extra="ignore", strict=True)

    schema_version: int
    trajectories: list[dict[str, Any]] = []
    run: dict[str, Any] | None = None
    eval_log_sizes: dict[str, int] = {}


class RunPatch(_Asked):
    """New values; null clears `policy`, `dataset` and `description`."""

    name: Name = ""
    tags: list[Tag] = []
    policy: Label | None = None
    dataset: Label | None = None
    description: Description | None = None
