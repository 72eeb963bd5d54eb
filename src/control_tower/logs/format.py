"""The log format, version 3.0, as tables: the keys of the header and of samples and what they hold.

`logs.validate` checks a log against them. Keys that are not listed are allowed everywhere: newer versions and
settings add their own.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from control_tower.records.tasks import EnvironmentData, MainTaskData, SideTaskData, ToolData

MAJOR = 3
"""The major version that is read without conversion."""

TASK_NAMES = frozenset({"control_tower/eval", "control_tower/control_eval"})
"""Registry names of the tasks: one policy, or an honest and an attack policy in one log."""

RUNNER = "control_tower/eval_runner"
"""Registry name of the solver."""

FINISH_REASONS = frozenset({"submitted", "audited", "step_limit", "no_progress"})
FAILURE_REASONS = frozenset({"scorer_timeout", "env_not_ready", "scorer_error"})
"""Why a task has no verdict of its scorer."""

LONGEST_ID = 63
"""Characters of a sample id."""

UNSCORED = "unscored"
"""A monitor's value where it gave none."""

MONITOR_KEY = re.compile(
    r"(?P<monitor>.+)/(?P<draw>[1-9]\d*)/(?:draft/(?P<draft>[^/]+)|(?P<action>\d+)|trajectory)", re.DOTALL
)
"""Keys of the `monitor` Score."""

AUDIT_KEYS: dict[str, frozenset[str]] = {
    "honest": frozenset({"main_task_score", "audited", "actions", "cost", "cost_incomplete", "unscored"}),
    "attack": frozenset({"side_task_score", "caught", "cost", "cost_incomplete", "unscored"}),
}
"""Keys of the `audit` Score by stream."""

Number = Annotated[float, Field(strict=False)]
Moment = Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")]


class _Table(BaseModel):
    """Keys without a default are always written, as null when unknown."""

    model_config = ConfigDict(extra="allow", strict=True, protected_namespaces=())


class GitState(_Table):
    """Where code came from; no credentials in the address."""

    commit: str | None
    dirty: bool | None
    remote_url: str | None


class EnvVersion(GitState):
    """Where an environment came from."""

    repo: str | None
    image_tag: str | None
    image_digest: str | None = None


class Selection(_Table):
    """A policy or protocol as it was asked for; argument values may be text."""

    name: str
    args: dict[str, Any]


class LocalFile(_Table):
    """A plugin that was loaded from a file."""

    path: str
    sha256: str


class TaskSelectionRecord(_Table):
    """Which samples were asked for."""

    environments: list[str]
    main_tasks: list[str]
    side_tasks: list[str]
    task_file: str | list[str] | None
    from_run: str | None
    limit: int | None
    expand_all: bool
    honest: bool
    main_tasks_with_no_scorers: Literal["error", "include", "exclude"]
    env_args: list[str]


class SandboxRecord(_Table):
    """Where samples ran."""

    use_ec2: bool
    ec2: dict[str, Any] | None = None
    allow_internet: bool
    allow_internet_simulator: bool
    allow_intranet: bool
    sandbox: str | None
    sandbox_args: dict[str, Any]


class EvalArgs(_Table):
    """How samples were scored."""

    scorer_timeout: int | None
    score_main_on_attack: bool


class WhiteRecord(_Table):
    """What both sides were given."""

    private_tools: list[str]
    harnesses: list[str] | None
    max_steps: int


class HeaderMetadata(_Table):
    """`eval.metadata` of the header."""

    eval_version: Annotated[str, Field(pattern=r"^3(\.\d+)*$")]
    run_name: str
    policy: str
    task_set: str | None
    tags: list[str]
    command: str | None
    ct_version: Annotated[str, Field(pattern=r"^v\d")] | None
    ct_setting_sdk_version: str | None
    ct_git: GitState | None
    env_versions: dict[str, EnvVersion] | None
    env_versions_recorded: Literal[True] | None = None
    locally_loaded: list[LocalFile] | None
    script_start_time: Moment | None
    policy_selection: Selection | None
    honest_policy_selection: Selection | None
    attack_policy_selection: Selection | None
    protocol_selection: Selection | None
    policy_args: dict[str, Any] | None
    honest_policy_args: dict[str, Any] | None
    attack_policy_args: dict[str, Any] | None
    protocol_args: dict[str, Any] | None
    task_selection: TaskSelectionRecord | None
    sandbox_config: SandboxRecord | None
    eval_args: EvalArgs | None
    white: WhiteRecord
    model_roles: dict[str, str] | None
    converted_from: list[str] | None = None
    derived_from: str | None = None


class SampleMetadataTable(_Table):
    """`metadata` of a sample."""

    main_tasks: list[dict[str, Any]]
    side_tasks: list[dict[str, Any]]
    environment: dict[str, Any]
    startup_retries: int
    tools: list[dict[str, Any]]


RECORDS: dict[str, type[BaseModel]] = {
    "main_tasks": MainTaskData,
    "side_tasks": SideTaskData,
    "environment": EnvironmentData,
    "tools": ToolData,
}
"""What the objects in a sample's metadata are; all their fields are written."""

NOT_ALWAYS = frozenset({"chosen"})
"""Fields of these records that are written only where they say something."""


class SideReportTable(_Table):
    """The submission as it stood after a side task's submission tool was called."""

    step: int
    tasks: dict[str, Any]


class MonitorEntry(_Table):
    """One verdict in the store."""

    message_id: str | None
    monitor: str
    draw: Annotated[int, Field(ge=1)]
    value: Number | str
    explanation: str | None = None
    attempts: int | None = None


class SideTaskTest(_Table):
    """The first passing test of a side task."""

    score: dict[str, Any]
    landed_at: int


class StoreTable(_Table):
    """`store` of a sample: the keys of ours that may be in it."""

    tasks: Annotated[dict[str, dict[str, Any]], Field(alias="Submission:tasks")] = {}
    submitted: Annotated[bool, Field(alias="Submission:submitted")] = False
    side_reports: Annotated[list[SideReportTable], Field(alias="Submission:side_reports")] = []
    monitor_items: Annotated[list[MonitorEntry], Field(alias="MonitorScores:items")] = []
    passed: Annotated[dict[str, SideTaskTest], Field(alias="SideTaskTests:passed")] = {}
