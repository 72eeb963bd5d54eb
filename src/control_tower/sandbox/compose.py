"""Compose files as the providers without Docker read them: typed services, or a clear refusal."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, cast

import yaml

from control_tower.errors import ValidationError

EXTENSION = "x-control-tower"
DEFAULT_NETWORK = "default"

_IGNORED = {
    "annotations", "attach", "build", "cap_drop", "container_name", "cpu_count", "cpu_percent", "cpu_period",
    "cpu_quota", "cpu_shares", "cpus", "cpuset", "deploy", "domainname", "expose", "hostname", "image",
    "init", "labels", "logging", "mem_reservation", "mem_swappiness", "memswap_limit", "oom_score_adj",
    "platform", "profiles", "pull_policy", "restart", "security_opt", "shm_size", "stdin_open",
    "stop_grace_period", "stop_signal", "tmpfs", "tty", "ulimits",
}  # fmt: skip
_READ = {
    "command", "depends_on", "entrypoint", "environment", "healthcheck", "mem_limit", "network_mode",
    "networks", "pids_limit", "user", "working_dir",
}  # fmt: skip


@dataclass(frozen=True)
class Healthcheck:
    """A command that passes when the service is ready; times in seconds."""

    test: tuple[str, ...]
    interval: float = 30.0
    timeout: float = 30.0
    retries: int = 3
    start_period: float = 0.0

    @property
    def patience(self) -> float:
        """Seconds until a service that does not get ready counts as failed."""
        return self.start_period + self.retries * (self.interval + self.timeout)


@dataclass(frozen=True)
class Service:
    """One machine. `network` is None for one without any; sizes in bytes; None means no limit of its own."""

    name: str
    working_dir: str = "/"
    environment: Mapping[str, str] | None = None
    command: tuple[str, ...] | None = None
    network: str | None = DEFAULT_NETWORK
    depends_on: tuple[str, ...] = ()
    healthcheck: Healthcheck | None = None
    mem_limit: int | None = None
    pids_limit: int | None = None
    disk_limit: int | None = None
    copies: tuple[tuple[Path, str], ...] = ()


@dataclass(frozen=True)
class ComposeFile:
    """A compose file that runs without Docker; `services` start in this order, `default` is one of them."""

    path: Path
    services: tuple[Service, ...]

    def neighbours(self, service: Service) -> list[str]:
        """The names that a service can reach, its own among them."""
        if service.network is None:
            return [service.name]
        return [other.name for other in self.services if other.network == service.network]


def runs_without_docker(path: Path) -> bool:
    """Whether a compose file declares that its environment also runs under bubblewrap and as processes."""
    extension = _mapping(load_yaml(path).get(EXTENSION), path, EXTENSION)
    return extension.get("bwrap") is True


def read_compose(path: Path, variables: Mapping[str, str] | None = None) -> ComposeFile:
    """Read a compose file.

    Args:
        path: the file.
        variables: what `${NAME}` stands for, beside the process's environment.

    Raises:
        ValidationError: it does not declare that it runs without Docker, or asks for something that only
            Docker can give; the message names the key.
    """
    document = load_yaml(path)
    if _mapping(document.get(EXTENSION), path, EXTENSION).get("bwrap") is not True:
        raise ValidationError(
            f"{path}: runs in Docker only; add `{EXTENSION}: {{bwrap: true}}` if it needs no image of its own"
        )
    content = interpolate(document, {**os.environ, **(variables or {})}, path)
    for key in ("include", "secrets", "configs"):
        if content.get(key):
            raise _unsupported(path, key)
    services = _mapping(content.get("services"), path, "services")
    read = [_service(name, _mapping(body, path, f"services.{name}"), path) for name, body in services.items()]
    if not any(service.name == "default" for service in read):
        raise ValidationError(f"{path}: has no service `default`, the agent's machine")
    return ComposeFile(path, tuple(_in_start_order(read, path)))


def sample_variables(metadata: Mapping[str, Any]) -> dict[str, str]:
    """`SAMPLE_METADATA_<KEY>` for each key of a sample's metadata, as Inspect's Docker provider has them."""
    return {f"SAMPLE_METADATA_{key.replace(' ', '_').upper()}": str(value) for key, value in metadata.items()}


_VARIABLE = re.compile(
    r"\$(?:(?P<escaped>\$)|(?P<bare>[A-Za-z_][A-Za-z0-9_]*)"
    r"|\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?:(?P<operator>:?[-?+])(?P<word>(?:[^{}]|\{[^{}]*\})*))?\})"
)


def interpolate(value: Any, variables: Mapping[str, str], path: Path) -> Any:
    """`value` with its texts' `${NAME}`, `${NAME:-default}`, `${NAME:?message}`, `${NAME:+word}` filled in.

    Raises:
        ValidationError: a variable that must be set is not.
    """
    if isinstance(value, str):
        return _VARIABLE.sub(lambda match: _replacement(match, variables, path), value)
    if isinstance(value, dict):
        items = cast(dict[Any, Any], value).items()
        return {key: interpolate(item, variables, path) for key, item in items}
    if isinstance(value, list):
        return [interpolate(item, variables, path) for item in cast(list[Any], value)]
    return value


def _replacement(match: re.Match[str], variables: Mapping[str, str], path: Path) -> str:
    if match["escaped"]:
        return "$"
    name = match["bare"] or match["name"]
    current = variables.get(name)
    operator, word = match["operator"] or "", match["word"] or ""
    present = current is not None and (current != "" or not operator.startswith(":"))
    if operator.endswith("+"):
        return str(interpolate(word, variables, path)) if present else ""
    if present:
        return current or ""
    if operator.endswith("?"):
        raise ValidationError(f"{path}: variable {name} must be set{': ' + word if word else ''}")
    return str(interpolate(word, variables, path))


def load_yaml(path: Path) -> dict[str, Any]:
    """The content of a compose file, not interpolated.

    Raises:
        ValidationError: it cannot be read or is no mapping.
    """
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as failure:
        raise ValidationError(f"{path}: cannot be read: {failure.strerror}") from failure
    except (yaml.YAMLError, UnicodeDecodeError) as failure:
        raise ValidationError(f"{path}: is not YAML: {' '.join(str(failure).split())}") from failure
    return _mapping(document, path, "the file")


def _service(name: str, body: dict[str, Any], path: Path) -> Service:
    where = f"services.{name}"
    for key in body:
        if key not in _READ and key not in _IGNORED and not key.startswith("x-"):
            raise _unsupported(path, f"{where}.{key}")
    if str(body.get("user", "root")) not in ("root", "0", "0:0", "root:root"):
        raise _unsupported(path, f"{where}.user other than root")
    extension = _mapping(body.get(EXTENSION), path, f"{where}.{EXTENSION}")
    limits = _resource_limits(body, path, where)
    return Service(
        name=name,
        working_dir=_inside(body.get("working_dir", "/"), path, f"{where}.working_dir"),
        environment=_environment(body.get("environment"), path, where),
        command=_command(body, path, where),
        network=_network(body, path, where),
        depends_on=_names(body.get("depends_on"), path, f"{where}.depends_on"),
        healthcheck=_healthcheck(body.get("healthcheck"), path, f"{where}.healthcheck"),
        mem_limit=_size(body.get("mem_limit", limits.get("memory")), path, f"{where}.mem_limit"),
        pids_limit=_count(body.get("pids_limit", limits.get("pids")), path, f"{where}.pids_limit"),
        disk_limit=_size(extension.get("disk"), path, f"{where}.{EXTENSION}.disk"),
        copies=tuple(
            ((path.parent / str(source)).resolve(), _inside(target, path, f"{where}.{EXTENSION}.copy"))
            for source, target in _mapping(extension.get("copy"), path, f"{where}.{EXTENSION}.copy").items()
        ),
    )


def _resource_limits(body: dict[str, Any], path: Path, where: str) -> dict[str, Any]:
    deploy = _mapping(body.get("deploy"), path, f"{where}.deploy")
    resources = _mapping(deploy.get("resources"), path, f"{where}.deploy.resources")
    return _mapping(resources.get("limits"), path, f"{where}.deploy.resources.limits")


def _environment(value: Any, path: Path, where: str) -> dict[str, str]:
    if isinstance(value, list):
        pairs = [str(item).partition("=") for item in cast(list[Any], value)]
        value = {key: text if separator else None for key, separator, text in pairs}
    result: dict[str, str] = {}
    for key, item in _mapping(value, path, f"{where}.environment").items():
        if item is None:
            raise ValidationError(
                f"{path}: {where}.environment.{key} has no value: the host's variables are not passed on;"
                f" write `{key}: ${{{key}}}` where it is meant"
            )
        result[key] = str(item).lower() if isinstance(item, bool) else str(item)
    return result


def _command(body: dict[str, Any], path: Path, where: str) -> tuple[str, ...] | None:
    parts: list[str] = []
    for key in ("entrypoint", "command"):
        value = body.get(key)
        if isinstance(value, str):
            parts += shlex.split(value)
        elif isinstance(value, list):
            parts += [str(item) for item in cast(list[Any], value)]
        elif value is not None:
            raise ValidationError(f"{path}: {where}.{key} must be a text or a list")
    return tuple(parts) or None


def _network(body: dict[str, Any], path: Path, where: str) -> str | None:
    mode = body.get("network_mode")
    if mode is not None and mode != "none":
        raise _unsupported(path, f"{where}.network_mode other than none")
    if mode == "none":
        return None
    networks = _names(body.get("networks"), path, f"{where}.networks")
    if len(networks) > 1:
        raise _unsupported(path, f"{where}.networks with more than one network")
    return networks[0] if networks else DEFAULT_NETWORK


def _healthcheck(value: Any, path: Path, where: str) -> Healthcheck | None:
    body = _mapping(value, path, where)
    test = body.get("test")
    if not body or body.get("disable") is True or test in (None, [], ["NONE"]):
        return None
    if isinstance(test, str):
        command = ("/bin/sh", "-c", test)
    else:
        parts = [str(item) for item in cast(list[Any], test)]
        if parts[0] not in ("CMD", "CMD-SHELL") or len(parts) < 2:
            raise ValidationError(f"{path}: {where}.test must start with CMD or CMD-SHELL")
        command = ("/bin/sh", "-c", parts[1]) if parts[0] == "CMD-SHELL" else tuple(parts[1:])
    return Healthcheck(
        test=command,
        interval=_seconds(body.get("interval", 30), path, f"{where}.interval"),
        timeout=_seconds(body.get("timeout", 30), path, f"{where}.timeout"),
        retries=_count(body.get("retries", 3), path, f"{where}.retries") or 3,
        start_period=_seconds(body.get("start_period", 0), path, f"{where}.start_period"),
    )


def _in_start_order(services: list[Service], path: Path) -> list[Service]:
    """Services after those they depend on."""
    names = {service.name for service in services}
    ordered: list[Service] = []
    while len(ordered) < len(services):
        done = {service.name for service in ordered}
        ready = [s for s in services if s.name not in done and set(s.depends_on) <= done]
        if not ready:
            unknown = sorted({name for s in services for name in s.depends_on} - names)
            what = f"unknown services: {', '.join(unknown)}" if unknown else "each other in a circle"
            raise ValidationError(f"{path}: services depend on {what}")
        ordered += ready
    return ordered


def _mapping(value: Any, path: Path, where: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValidationError(f"{path}: {where} must be a mapping")
    return {str(key): item for key, item in cast(dict[Any, Any], value).items()}


def _names(value: Any, path: Path, where: str) -> tuple[str, ...]:
    if isinstance(value, list):
        return tuple(str(item) for item in cast(list[Any], value))
    return tuple(_mapping(value, path, where))


def _inside(value: Any, path: Path, where: str) -> str:
    text = str(value)
    if not text.startswith("/") or ".." in PurePosixPath(text).parts:
        raise ValidationError(f"{path}: {where} must be an absolute path, not {text}")
    return str(PurePosixPath(text))


_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def _size(value: Any, path: Path, where: str) -> int | None:
    if value is None:
        return None
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([bkmg]?)(?:i?b)?", str(value).strip().lower())
    if not match:
        raise ValidationError(f"{path}: {where} must be a size like 512m, not {value}")
    return int(float(match[1]) * _UNITS[match[2]]) or None


def _count(value: Any, path: Path, where: str) -> int | None:
    if value is None:
        return None
    try:
        number = int(value)
    except (TypeError, ValueError):
        raise ValidationError(f"{path}: {where} must be a whole number, not {value}") from None
    return number if number > 0 else None


def _seconds(value: Any, path: Path, where: str) -> float:
    text = str(value).strip()
    parts = re.findall(r"([0-9]+(?:\.[0-9]+)?)(us|ms|s|m|h)", text)
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
        return float(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValidationError(f"{path}: {where} must be a duration like 1m30s, not {value}")
    scale = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
    return sum(float(number) * scale[unit] for number, unit in parts)


def _unsupported(path: Path, what: str) -> ValidationError:
    return ValidationError(f"{path}: {what} needs Docker: run with `--sandbox docker`, or remove it")
