"""How monitors are configured: by a prompt, a preset or a factory; how often each is asked; how to combine.

`MonitorList` and `Combine` annotate a protocol's arguments and read what the command line gives, such as
`-bp 'monitors=[simple, {prompt: strong, model: judge}]'`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import pydantic
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from control_tower.errors import UsageError, did_you_mean
from control_tower.monitors.monitor import MonitorFunction, inputs_of
from control_tower.monitors.presets import PRESETS, file_preset, is_file_preset
from control_tower.monitors.prompt import factory_prompt, load_prompt, packaged_prompts
from control_tower.monitors.registry import monitors as registry

if TYPE_CHECKING:
    from inspect_ai.scorer import ScoreReducer

    from control_tower.registry import Entry, LoadedFile

CotLevel = Literal["none", "text", "cot"]
"""What a monitor sees of the agent's own words: nothing, its prose, or also its reasoning."""

DEFAULT_PROMPT = "simple"
MONITOR_ROLE = "monitor"
MOST_SAMPLES = 100


class Monitor(BaseModel):
    """One monitor, checked: either a prompt or a factory."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    name: str
    """How scores and the log call it."""
    prompt: str | None = None
    """A packaged prompt's name or an `.md` file."""
    model: str = ""
    """The role that is asked; empty is `monitor`, or `trusted` when that has no model."""
    cot_level: CotLevel = "none"
    samples: int = Field(default=1, ge=1, le=MOST_SAMPLES)
    """How often it is asked about each action."""
    monitor: str | None = None
    """The factory that makes it, when it has no prompt."""
    args: dict[str, Any] = Field(default_factory=dict)
    """The factory's arguments."""

    @property
    def roles(self) -> frozenset[str]:
        """The roles it asks; a factory's are its `model` argument or what it was registered with."""
        if self.prompt is not None:
            return frozenset({self.model or MONITOR_ROLE})
        entry = self._entry()
        if "model" in entry.args_model.model_fields:
            return frozenset({str(self.args.get("model") or MONITOR_ROLE)})
        return frozenset(entry.metadata.get("roles", ()))

    @property
    def asks_no_model(self) -> bool:
        """Whether it is known to cost nothing: a factory that was registered with no roles."""
        return self.prompt is None and self._entry().metadata.get("roles") == ()

    @property
    def kind(self) -> str | None:
        """`action` or `trajectory`; None when its factory does not say."""
        return load_prompt(self.prompt).kind if self.prompt else self._entry().metadata.get("kind")

    @property
    def source(self) -> dict[str, str | None]:
        """Its prompt or factory, with the SHA-256 of the text that decides; None for an installed factory."""
        if self.prompt is not None:
            return {"prompt": self.prompt, "sha256": load_prompt(self.prompt).sha256}
        entry = self._entry()
        defaults = entry.metadata.get("files", {})
        files = [Path(self.args.get(name) or default) for name, default in defaults.items()]
        sha256 = None
        if "prompt" in entry.metadata:
            sha256 = factory_prompt(entry.metadata["prompt"]).sha256
        elif files:
            sha256 = hashlib.sha256(b"".join(file.expanduser().read_bytes() for file in files)).hexdigest()
        elif entry.locally_loaded:
            sha256 = entry.locally_loaded["sha256"]
        return {"factory": entry.name, "sha256": sha256}

    @property
    def loaded_file(self) -> LoadedFile | None:
        """The Python file that its factory was loaded from by path."""
        return None if self.prompt is not None else self._entry().locally_loaded

    def make(self) -> MonitorFunction:
        """The monitor itself, for one sample."""
        if self.prompt is not None:
            from control_tower.monitors.prompted import PromptMonitor

            return PromptMonitor(load_prompt(self.prompt), self.model, self.cot_level)
        return self._entry().make(self.args)

    def needs(self) -> frozenset[str]:
        """The inputs it is given.

        Raises:
            ValidationError: it needs something that no monitor is given.
        """
        if self.prompt is not None:
            return load_prompt(self.prompt).inputs
        return inputs_of(self.make(), f"monitor {self.monitor}")

    def _entry(self) -> Entry[Any]:
        return registry.get(str(self.monitor))


class CombineRule(BaseModel):
    """An Inspect score reducer that makes one number of the draws of all monitors."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = "max"
    args: dict[str, Any] = Field(default_factory=dict)

    def of(self, numbers: Sequence[float]) -> float | None:
        """The combined number; None of nothing, or when the reducer gives no number."""
        from inspect_ai.scorer import Score

        from control_tower.records.monitor_scores import read_suspicion

        if not numbers:
            return None
        return read_suspicion(self._reducer([Score(value=number) for number in numbers]).value)

    @cached_property
    def _reducer(self) -> ScoreReducer:
        from control_tower.inspect_private import score_reducer

        return score_reducer(self.name, self.args)


def parse_monitors(value: Any) -> tuple[Monitor, ...]:
    """Read a list of monitors, or a single one, as YAML gives it.

    Raises:
        UsageError: something unknown, a combination that means nothing, or two monitors of one name.
        ValidationError: a factory cannot be imported or makes no monitor.
    """
    items = list(cast("Sequence[Any]", value)) if isinstance(value, list | tuple) else [value]
    parsed = tuple(_parse(item) for item in items)
    if not parsed:
        raise UsageError("monitors: name at least one, such as monitors=[simple]")
    names = [monitor.name for monitor in parsed]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"monitors: two are called {repeated!r}; give one of them another name")
    return parsed


def parse_combine(value: Any) -> CombineRule:
    """Read `max` or `{name: mean, args: {}}`.

    Raises:
        UsageError: there is no such reducer, it does not take these arguments, or what it makes of the
            draws is not on their scale, so that no threshold would mean anything.
    """
    if isinstance(value, CombineRule):
        return value
    if isinstance(value, str):
        value = {"name": value}
    rule = _checked(CombineRule, value, "combine")
    from control_tower.inspect_private import score_reducer, score_reducers

    names = score_reducers()
    if rule.name not in names:
        raise UsageError(f"combine: no score reducer is called {rule.name!r}{did_you_mean(rule.name, names)}")
    try:
        score_reducer(rule.name, rule.args)
        of_highest = rule.of([100.0, 100.0])
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"combine: {rule.name} does not take {rule.args or 'no arguments'}: {error}"
        ) from None
    if of_highest != 100.0:
        raise UsageError(
            f"combine: {rule.name} makes {of_highest} of 100 and 100, but thresholds are from 0 to 100: "
            "use a reducer that keeps the scale, such as max, mean, median or mode"
        )
    return rule


MonitorList = Annotated[tuple[Monitor, ...], BeforeValidator(parse_monitors)]
Combine = Annotated[CombineRule, BeforeValidator(parse_combine)]
MAX = CombineRule()


def roles_of(monitors: Iterable[Monitor]) -> frozenset[str]:
    """The roles that monitors ask; rules ask none. `monitor` may be unbound: then `trusted` is asked."""
    return frozenset(role for monitor in monitors for role in monitor.roles)


def monitors_in(args: Mapping[str, Any]) -> list[Monitor]:
    """The monitors among a protocol's arguments."""
    lists = [cast("tuple[Any, ...]", value) for value in args.values() if isinstance(value, tuple)]
    return [item for items in lists for item in items if isinstance(item, Monitor)]


def sources_of(monitors: Iterable[Monitor]) -> dict[str, dict[str, str | None]]:
    """By name, each monitor's prompt or factory and the hash of its text, as a log's header records them."""
    return {monitor.name: monitor.source for monitor in monitors}


def files_of(monitors: Iterable[Monitor]) -> list[LoadedFile]:
    """The Python files that `file.py@name` references loaded."""
    return [file for monitor in monitors if (file := monitor.loaded_file)]


def _parse(item: Any) -> Monitor:
    if isinstance(item, Monitor):
        return item
    fields = _expanded(item)
    factory, prompt = fields.get("monitor"), fields.get("prompt")
    if factory is not None and prompt is not None:
        raise UsageError(f"monitors: {prompt!r} is a prompt and {factory!r} a factory; name one of them")
    if factory is None:
        fields["prompt"] = prompt or DEFAULT_PROMPT
        if fields.get("args"):
            raise UsageError(f"monitors: prompt {fields['prompt']!r} takes no args; a factory does")
    fields.setdefault("name", _stem(str(factory or fields["prompt"])))
    monitor = _checked(Monitor, fields, f"monitor {fields['name']!r}")
    if not re.fullmatch(r"[\w.+-]+(/[\w.+-]+)*", monitor.name):
        raise UsageError(
            f"monitors: name {monitor.name!r} has characters other than letters, digits and ._+-/"
        )
    return _checked_prompt(monitor) if factory is None else _checked_factory(monitor)


def _checked_prompt(monitor: Monitor) -> Monitor:
    load_prompt(str(monitor.prompt))
    return monitor


def _checked_factory(monitor: Monitor) -> Monitor:
    """Its reference made canonical and its arguments complete."""
    for key in ("model", "cot_level"):
        if getattr(monitor, key) != Monitor.model_fields[key].default:
            raise UsageError(
                f"monitors: {key} belongs to a prompt; factory {monitor.monitor} takes its own in args"
            )
    entry = registry.get(str(monitor.monitor))
    args = entry.args_model.model_validate(entry.parse(monitor.args)).model_dump(mode="json")
    checked = monitor.model_copy(update={"monitor": entry.name, "args": args})
    checked.needs()
    return checked


def _expanded(item: Any) -> dict[str, Any]:
    """The fields of an item, its preset put in."""
    if isinstance(item, str):
        return _named(item)
    if not isinstance(item, Mapping):
        raise UsageError(f"monitors: {item!r} is neither a name nor a mapping")
    fields = {str(key): value for key, value in cast("Mapping[Any, Any]", item).items() if value is not None}
    if (preset := fields.pop("preset", None)) is not None:
        return {**_preset(str(preset)), **fields}
    return fields


def _named(name: str) -> dict[str, Any]:
    if name in PRESETS or is_file_preset(name):
        return _preset(name)
    if not name.endswith(".md") and (":" in name or ".py@" in name or "/" in name):
        return {"monitor": name}
    if not name.endswith(".md") and name not in packaged_prompts():
        factories = {entry.name.removeprefix("ct/") for entry in registry.entries()}
        if name.replace("_", "-") in factories:
            return {"monitor": name}
        known = [*packaged_prompts(), *PRESETS, *factories]
        raise UsageError(f"no monitor is called {name!r}{did_you_mean(name, known)}")
    return {"prompt": name}


def _preset(name: str) -> dict[str, Any]:
    fields = file_preset(name) if is_file_preset(name) else PRESETS.get(name)
    if fields is None:
        raise UsageError(f"no monitor preset is called {name!r}{did_you_mean(name, PRESETS)}")
    if "preset" in fields:
        raise UsageError(f"monitor preset {name!r} names another preset; write its fields out")
    return {"name": name.rpartition(":")[2], **fields}


def _stem(ref: str) -> str:
    if ref.endswith(".md"):
        return Path(ref).stem
    return re.split(r"[/:@]", ref)[-1]


def _checked(model: type[Any], fields: Any, owner: str) -> Any:
    if not isinstance(fields, Mapping):
        raise UsageError(f"{owner}: {fields!r} is neither a name nor a mapping")
    known = model.model_fields
    for key in cast("Mapping[str, Any]", fields):
        if key not in known:
            raise UsageError(f"{owner} has no {key!r}{did_you_mean(str(key), known)}")
    try:
        return model.model_validate(dict(cast("Mapping[str, Any]", fields)))
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise UsageError(f"{owner}: {where} is {str(first['input'])[:80]!r}: {first['msg']}") from None
