"""An environment in a folder: compose files, docs and task folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SkipValidation

from control_tower.environments.environment import BaseTool, EnvDocs
from control_tower.environments.internet_simulator import InternetSimulatorConfig
from control_tower.environments.requirements import RequiredEnvAnyOf, RequiredEnvVar
from control_tower.environments.space import TaskSpace, folder_task_space
from control_tower.environments.task_helpers import default_display_name
from control_tower.environments.tools import ToolSpec

if TYPE_CHECKING:
    from inspect_ai.util import SandboxEnvironmentSpec

    ToolSpecs = Sequence[ToolSpec] | None
else:
    ToolSpecs = Any  # pydantic would look into it and find types of Inspect, which is not imported here

SANDBOX_NAME = "lb-docker"
"""The sandbox type that stands for a compose file; `--sandbox` decides what runs it."""

AGENT_DIR = "/app"
"""Where the agent's codebase stands in its machine."""


class DockerEnvironment(BaseModel):
    """An environment whose machines a compose file describes and whose tasks are folders.

    Subclasses may add fields, an `args_model`, a `continuation_prompt`, private caches, and override
    `get_sandbox_spec`, `docs` or `task_space`.
    """

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    path: Path
    """The environment's folder; kept absolute and resolved."""
    id: str
    display_name: str
    compose_paths: dict[str, Path] = Field(default_factory=dict)
    """Compose file by codebase name; `default` is the one of tasks that name none."""
    agent_user: str = "root"
    internet_simulator: InternetSimulatorConfig | None = None
    tools: ToolSpecs = None
    """Interaction tools; None: those of `base_tools` and `custom_tools`."""
    private_tools: ToolSpecs = None
    base_tools: frozenset[BaseTool] | None = None
    custom_tools: SkipValidation[Sequence[Any] | None] = None
    custom_private_tools: SkipValidation[Sequence[Any] | None] = None
    score_main_on_attack: bool = False
    short_description: str = ""
    description: str = ""
    tech_stack: list[str] = Field(default_factory=list)
    services: list[str] = Field(default_factory=list)
    attack_surface: str = ""
    required_env_vars: SkipValidation[Sequence[RequiredEnvVar]] = ()
    required_env_any_of: SkipValidation[Sequence[RequiredEnvAnyOf]] = ()
    codebase_path: Path | None = None
    agent_codebase_path: Path | None = None
    lang_rewrite_tasks_integration_test_filename: str = "test_integration.py"

    _task_space_cache: TaskSpace | None = PrivateAttr(default=None)

    def model_post_init(self, context: Any, /) -> None:
        """Make the folder absolute; registries and logs compare it."""
        self.path = self.path.resolve()

    def docs(self, args: Any = None) -> EnvDocs:
        """The texts given at construction."""
        del args
        return EnvDocs(
            description=self.description,
            attack_surface=self.attack_surface,
            short_description=self.short_description,
            tech_stack=self.tech_stack,
            services=self.services,
            required_env_vars=self.required_env_vars,
            required_env_any_of=self.required_env_any_of,
        )

    def get_compose_path(self, codebase_name: str = "default") -> Path:
        """The compose file of a codebase.

        Raises:
            ValueError: no such codebase.
        """
        try:
            return self.compose_paths[codebase_name]
        except KeyError:
            known = ", ".join(sorted(self.compose_paths)) or "none"
            raise ValueError(f"{self.id}: no codebase '{codebase_name}' (has: {known})") from None

    def get_sandbox_spec(self, codebase_name: str = "default", args: Any = None) -> SandboxEnvironmentSpec:
        """The sandbox of a codebase: its compose file.

        Raises:
            ValueError: no such codebase.
        """
        del args
        from inspect_ai.util import SandboxEnvironmentSpec

        return SandboxEnvironmentSpec(SANDBOX_NAME, str(self.get_compose_path(codebase_name)))

    def task_space(self, args: Any = None) -> TaskSpace:
        """Every main task folder with every side task folder that accepts it; listed once."""
        del args
        if self._task_space_cache is None:
            self._task_space_cache = folder_task_space(self.path, self.id)
        return self._task_space_cache

    def forget_tasks(self) -> None:
        """Read the task folders again on next use."""
        self._task_space_cache = None

    @property
    def _combinations_cache(self) -> TaskSpace | None:
        return self._task_space_cache

    def __setattr__(self, name: str, value: Any) -> None:
        # Older callers clear the cached tasks by assigning None to this name.
        super().__setattr__("_task_space_cache" if name == "_combinations_cache" else name, value)


def make_environment_config_from_path(
    path: str | Path,
    short_description: str = "",
    tech_stack: Sequence[str] | None = None,
    services: Sequence[str] | None = None,
    custom_display_name: str | None = None,
    compose_paths: dict[str, Path] | None = None,
    agent_user: str = "root",
    *,
    tools: Sequence[ToolSpec] | None = None,
    private_tools: Sequence[ToolSpec] | None = None,
    base_tools: frozenset[BaseTool] | None = None,
    custom_tools: Sequence[Any] | None = None,
    custom_private_tools: Sequence[Any] | None = None,
    score_main_on_attack: bool = False,
    internet_simulator: InternetSimulatorConfig | None = None,
    codebase_path: Path | None = None,
    lang_rewrite_tasks_integration_test_filename: str = "test_integration.py",
    required_env_vars: Sequence[RequiredEnvVar] | None = None,
    required_env_any_of: Sequence[RequiredEnvAnyOf] | None = None,
) -> DockerEnvironment:
    """The environment of a folder with `docs/`, `codebase/compose.yml`, `main_tasks/` and `side_tasks/`.

    Its id is the folder's name, its texts are `docs/description.md` and `docs/attack_surface.md`.

    Raises:
        FileNotFoundError: `docs/description.md` is missing.
    """
    folder = Path(path).resolve()
    return DockerEnvironment(
        path=folder,
        id=folder.name,
        display_name=custom_display_name or default_display_name(folder.name),
        compose_paths=compose_paths or {"default": folder / "codebase" / "compose.yml"},
        agent_user=agent_user,
        internet_simulator=internet_simulator,
        tools=None if tools is None else tuple(tools),
        private_tools=None if private_tools is None else tuple(private_tools),
        base_tools=base_tools,
        custom_tools=custom_tools,
        custom_private_tools=custom_private_tools,
        score_main_on_attack=score_main_on_attack,
        short_description=short_description,
        description=_read_doc(folder / "docs" / "description.md"),
        tech_stack=list(tech_stack or ()),
        services=list(services or ()),
        attack_surface=_read_optional_doc(folder / "docs" / "attack_surface.md"),
        required_env_vars=tuple(required_env_vars or ()),
        required_env_any_of=tuple(required_env_any_of or ()),
        codebase_path=codebase_path or folder / "codebase",
        agent_codebase_path=folder / "codebase" / "src",
        lang_rewrite_tasks_integration_test_filename=lang_rewrite_tasks_integration_test_filename,
    )


def _read_doc(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip()


def _read_optional_doc(path: Path) -> str:
    return _read_doc(path) if path.is_file() else ""
