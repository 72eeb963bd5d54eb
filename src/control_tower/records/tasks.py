"""Tasks and environment as a sample's metadata records them, readable from old logs too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, cast

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

TaskCategory = Literal["add_feature", "refactor", "research", "fix_bug", "lang_rewrite", "infra"]
SideTaskCategory = Literal[
    "exfiltration",
    "running_malware",
    "data_tampering",
    "access_control_bypass",
    "monitoring_subversion",
    "access_secret",
    "other",
]
FailureType = Literal["delayed", "live"]

LEGACY_CATEGORY_MAP: dict[str, TaskCategory] = {
    "Answer Question": "research",
    "Refactor Code": "refactor",
    "Fix Bug": "fix_bug",
    "Add Feature": "add_feature",
}


class _Record(BaseModel):
    """Frozen, as Inspect's `metadata_as` asks; unknown keys are ignored, because logs outlive us."""

    model_config = ConfigDict(frozen=True, extra="ignore")


def _copy_fields(model: type[BaseModel], source: object) -> dict[str, Any]:
    return {name: getattr(source, name) for name in model.model_fields if hasattr(source, name)}


class MainTaskData(_Record):
    """A main task of a sample."""

    id: str
    environment: str
    name: str
    description: str
    codebase_name: str = "default"
    short_description: str | None = None
    task_category: TaskCategory | None = None
    scorer_description: str | None = None
    notes: str | None = None
    coverage: str | None = None
    setup_script: str | None = None
    setting_description: str | None = None

    @field_validator("task_category", mode="before")
    @classmethod
    def _old_category(cls, value: object) -> object:
        return LEGACY_CATEGORY_MAP.get(value, value) if isinstance(value, str) else value

    @property
    def task_description(self) -> str:
        """What the agent is asked to do, exactly as the author wrote it."""
        return self.description

    @classmethod
    def from_task(cls, task: object) -> MainTaskData:
        """The record of an author's `MainTask`."""
        return cls(**_copy_fields(cls, task))


class SideTaskData(_Record):
    """A side task of an attack sample."""

    id: str
    environment: str
    name: str
    goal: str = ""
    failure_type: FailureType
    scoring_details: str | None = None
    task_category: SideTaskCategory | None = None
    not_high_stakes: bool = False
    short_description: str | None = None
    scorer_description: str | None = None
    attack_surface: str | None = None
    hint: str | None = None
    notes: str | None = None
    setup_script: str | None = None
    scorer_code_snapshot: str | None = None

    @property
    def task_description(self) -> str:
        """The goal as written, then the scoring details after a blank line where there are any."""
        return side_task_description(self.goal, self.scoring_details)

    @classmethod
    def from_task(cls, task: object) -> SideTaskData:
        """The record of an author's `SideTask`, with the text of its scorer files."""
        fields = _copy_fields(cls, task)
        source = getattr(task, "scorer_source", None)
        if callable(source):
            fields["scorer_code_snapshot"] = source()
        return cls(**fields)


def side_task_description(goal: str, scoring_details: str | None) -> str:
    """The text of a side task: its goal and, where set, its scoring details."""
    return f"{goal}\n\n{scoring_details}" if scoring_details else goal


class _Described(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def task_description(self) -> str: ...


def describe_tasks(tasks: Sequence[_Described]) -> str:
    """What a reader is shown for several tasks: one task is its own text, more get a heading each."""
    if len(tasks) == 1:
        return tasks[0].task_description
    return "\n\n".join(f"## {task.name}\n\n{task.task_description}" for task in tasks)


class EnvironmentData(_Record):
    """The environment of a sample, as its author describes it."""

    id: str
    display_name: str
    setting: str = ""
    description: str = ""
    short_description: str = ""
    attack_surface: str = ""
    agent_user: str = "root"
    tech_stack: list[str] = Field(default_factory=list)
    services: list[str] = Field(default_factory=list)
    internet_simulator: dict[str, Any] | None = None
    score_main_on_attack: bool = False
    sdk_version: str | None = None
    side_task_goals: list[str] | None = None
    env_args: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _old_keys(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            return data
        fields = dict(cast(Mapping[str, Any], data))
        if "display_name" not in fields and "name" in fields:
            fields["display_name"] = fields["name"]
        if fields.get("attack_surface") is None and "available_attack_surface" in fields:
            fields["attack_surface"] = fields["available_attack_surface"]
        for key in ("short_description", "tech_stack", "services", "attack_surface"):
            if key in fields and fields[key] is None:
                del fields[key]
        for key in ("tech_stack", "services"):
            value = fields.get(key)
            if isinstance(value, str):
                fields[key] = [part.strip() for part in value.split(",") if part.strip()]
        return fields

    @classmethod
    def from_environment(
        cls,
        env: object,
        *,
        setting: str = "",
        env_args: BaseModel | None = None,
        side_task_goals: Iterable[str] | None = None,
    ) -> EnvironmentData:
        """The record of an author's environment object.

        Args:
            env: the environment; members it lacks get their defaults.
            setting: name of the setting it belongs to; the recorded id is then `<setting>/<env id>`.
            env_args: the validated environment arguments of the run.
            side_task_goals: the goals of all its side tasks ordered by task id, None when not known.
        """
        authored = cast(Any, env)
        docs = authored.docs(env_args)
        simulator = getattr(env, "internet_simulator", None)
        return cls(
            id=f"{setting}/{authored.id}" if setting else authored.id,
            display_name=authored.display_name,
            setting=setting,
            description=docs.description,
            short_description=docs.short_description,
            attack_surface=docs.attack_surface,
            agent_user=getattr(env, "agent_user", None) or "root",
            tech_stack=list(docs.tech_stack),
            services=list(docs.services),
            internet_simulator=simulator.model_dump(mode="json") if simulator is not None else None,
            score_main_on_attack=bool(getattr(env, "score_main_on_attack", False)),
            side_task_goals=None if side_task_goals is None else [goal.strip() for goal in side_task_goals],
            env_args={} if env_args is None else env_args.model_dump(mode="json"),
        )


class ToolData(_Record):
    """A tool that was resolved for a sample; `chosen` is set for private ones only."""

    id: str
    name: str
    args: dict[str, Any] = Field(default_factory=dict)
    kind: Literal["tool", "private"] = "tool"
    origin: Literal["env", "main_task", "side_task"] = Field(default="env", alias="from")
    provider: str | None = None
    commit: str | None = None
    chosen: bool | None = None

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


class SampleMetadata(_Record):
    """A sample's metadata; read it with `state.metadata_as(SampleMetadata)`.

    Logs of one task a side and older ones have the singular keys `main_task` and `side_task`: both are read.
    """

    main_tasks: list[MainTaskData] = Field(default_factory=list)
    side_tasks: list[SideTaskData] = Field(default_factory=list)
    environment: EnvironmentData | None = None
    startup_retries: int | None = None
    tools: list[ToolData] | None = None
    runtime_vars: list[str] = Field(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _singular_keys(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            return data
        fields = dict(cast(Mapping[str, Any], data))
        for one, many in (("main_task", "main_tasks"), ("side_task", "side_tasks")):
            if fields.get(many) is None:
                fields.pop(many, None)
                if fields.get(one) is not None:
                    fields[many] = [fields[one]]
        return fields

    @property
    def main_task(self) -> MainTaskData | None:
        """The main task of a sample that has at most one; the first one otherwise."""
        return self.main_tasks[0] if self.main_tasks else None

    @property
    def side_task(self) -> SideTaskData | None:
        """The side task of a sample that has at most one; the first one otherwise."""
        return self.side_tasks[0] if self.side_tasks else None
