"""What Docker samples need of a compose file: pure functions from one file's content to the next."""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from control_tower.errors import ValidationError
from control_tower.sandbox.compose import EXTENSION

Compose = dict[str, Any]

_FILE_KEYS = ("env_file", "label_file")


def for_docker(content: Mapping[str, Any], base: Path, runtime_vars: Mapping[str, str]) -> Compose:
    """The content that Docker runs in place of a setting's compose file.

    Args:
        content: the file as read from YAML, not yet interpolated.
        base: the folder that its relative paths start from.
        runtime_vars: values for the `default` service's environment.

    Raises:
        ValidationError: a service would have a way to the internet or the host.
    """
    steps: list[Callable[[Compose], Compose]] = [
        lambda compose: with_absolute_paths(compose, base),
        with_idle_command,
        with_init,
        with_shared_images,
        without_internet,
        lambda compose: with_environment(compose, runtime_vars),
    ]
    compose = copy.deepcopy(dict(content))
    for step in steps:
        compose = step(compose)
    return compose


def with_absolute_paths(compose: Compose, base: Path) -> Compose:
    """Host paths no longer depend on where the file stands."""

    def absolute(value: Any) -> Any:
        text = str(value)
        return text if "://" in text or text.startswith(("/", "~", "$")) else str((base / text).resolve())

    def service(body: Compose) -> Compose:
        body = dict(body)
        build = body.get("build")
        if isinstance(build, str):
            body["build"] = {"context": absolute(build)}
        elif isinstance(build, dict):
            body["build"] = {**build, "context": absolute(cast(Compose, build).get("context", "."))}
        for key in _FILE_KEYS:
            if isinstance(body.get(key), str):
                body[key] = absolute(body[key])
            elif isinstance(body.get(key), list):
                body[key] = [_env_file(item, absolute) for item in cast(list[Any], body[key])]
        if isinstance(body.get("volumes"), list):
            body["volumes"] = [_volume(item, absolute) for item in cast(list[Any], body["volumes"])]
        if isinstance(body.get("extends"), dict) and "file" in body["extends"]:
            body["extends"] = {**body["extends"], "file": absolute(body["extends"]["file"])}
        return body

    compose = _each_service(compose, service)
    for section in ("secrets", "configs"):
        for item in cast(dict[str, Any], compose.get(section) or {}).values():
            if isinstance(item, dict) and "file" in item:
                item["file"] = absolute(cast(Compose, item)["file"])
    return compose


def _env_file(item: Any, absolute: Callable[[Any], Any]) -> Any:
    if isinstance(item, dict):
        body = cast(Compose, item)
        return {**body, "path": absolute(body["path"])} if "path" in body else body
    return absolute(item)


def _volume(item: Any, absolute: Callable[[Any], Any]) -> Any:
    """Only bind mounts have a host path: short ones start with a dot, long ones say `type: bind`."""
    if isinstance(item, str) and item.startswith("."):
        source, separator, rest = item.partition(":")
        return f"{absolute(source)}{separator}{rest}"
    if isinstance(item, dict):
        body = cast(Compose, item)
        return {**body, "source": absolute(body.get("source", "."))} if body.get("type") == "bind" else body
    return cast(str, item)


def with_idle_command(compose: Compose) -> Compose:
    """A service without a command of a file that runs without Docker too just waits, as it does there."""
    extension: Any = compose.get(EXTENSION)
    if not isinstance(extension, dict) or cast(Compose, extension).get("bwrap") is not True:
        return compose
    return _each_service(
        compose,
        lambda body: (
            body if "command" in body or "entrypoint" in body else {**body, "command": ["sleep", "infinity"]}
        ),
    )


def with_init(compose: Compose) -> Compose:
    """Process 1 reaps orphans and obeys SIGTERM, so that a sample ends at once."""
    return _each_service(compose, lambda body: {"init": True, "stop_grace_period": "1s", **body})


def with_shared_images(compose: Compose) -> Compose:
    """A built image has a name of its own, so that it is built once and not for every sample."""

    def service(body: Compose) -> Compose:
        if "build" not in body or "image" in body:
            return body
        text = json.dumps(body["build"], sort_keys=True, default=str)
        return {**body, "image": f"control-tower-{hashlib.sha256(text.encode()).hexdigest()[:16]}:latest"}

    return _each_service(compose, service)


def without_internet(compose: Compose) -> Compose:
    """All networks are internal; services without one share an internal one.

    The host gets no address on them either, else its services could be reached through the bridge.

    Raises:
        ValidationError: a service uses the host's network, another container's, or one made elsewhere.
    """
    for name, body in _services(compose).items():
        mode = body.get("network_mode")
        if mode not in (None, "none") and not str(mode).startswith("service:"):
            raise ValidationError(
                f"services.{name}.network_mode: {mode} would give sandboxed code a way out: remove it"
            )
    networks: Compose = {}
    for name, body in cast(dict[str, Any], compose.get("networks") or {}).items():
        network = dict(cast(Compose, body or {}))
        if network.get("external"):
            raise ValidationError(f"networks.{name}: external networks are not isolated: remove `external`")
        networks[name] = _isolated(network)
    networks.setdefault("default", _isolated({}))
    return {**compose, "networks": networks}


def _isolated(network: Compose) -> Compose:
    network = {**network, "internal": True}
    if network.get("driver", "bridge") == "bridge":
        options = cast(Compose, network.get("driver_opts") or {})
        network["driver_opts"] = {"com.docker.network.bridge.inhibit_ipv4": "true", **options}
    return network


def with_environment(compose: Compose, variables: Mapping[str, str]) -> Compose:
    """`variables` in the environment of the service `default`, before its own of the same name.

    A `$` in a value is doubled: compose replaces variables when it reads the file.
    """
    escaped = {key: value.replace("$", "$$") for key, value in variables.items()}

    def service(name: str, body: Compose) -> Compose:
        if name != "default" or not escaped:
            return body
        own: Any = body.get("environment") or {}
        if isinstance(own, list):
            kept = [item for item in cast(list[Any], own) if str(item).partition("=")[0] not in escaped]
            return {**body, "environment": [*kept, *(f"{k}={v}" for k, v in escaped.items())]}
        return {**body, "environment": {**own, **escaped}}

    services = {name: service(name, body) for name, body in _services(compose).items()}
    return {**compose, "services": services}


def images_needed(compose: Mapping[str, Any], base: Path) -> list[str]:
    """The images that must be present before a file's services can start without a registry.

    Args:
        compose: the interpolated content.
        base: the folder that its relative paths start from.
    """
    needed: list[str] = []
    for body in _services(dict(compose)).values():
        build = body.get("build")
        if build is None:
            needed += [str(body["image"])] if "image" in body else []
        else:
            options: Compose = {"context": build} if isinstance(build, str) else dict(cast(Compose, build))
            needed += _base_images(options, base)
    return sorted(set(needed))


def _base_images(build: Compose, base: Path) -> list[str]:
    """The images that a Dockerfile starts from."""
    context = base / str(build.get("context", "."))
    text: str | None = build.get("dockerfile_inline")
    if text is None:
        try:
            text = (context / str(build.get("dockerfile", "Dockerfile"))).read_text(encoding="utf-8")
        except OSError:
            return []
    given: Any = build.get("args") or {}
    if isinstance(given, list):
        given = dict(str(item).split("=", 1) for item in cast(list[Any], given) if "=" in str(item))
    values: dict[str, str] = {}
    stages: set[str] = {"scratch"}
    images: list[str] = []
    for line in text.splitlines():
        words = line.split()
        if len(words) > 1 and words[0].upper() == "ARG" and not images:
            name, _, default = words[1].partition("=")
            values[name] = str(cast(Compose, given).get(name, default.strip("\"'")))
        elif len(words) > 1 and words[0].upper() == "FROM":
            words = [word for word in words[1:] if not word.startswith("--")]
            image = re.sub(r"\$\{?(\w+)\}?", lambda match: values.get(match[1], match[0]), words[0])
            if image not in stages:
                images.append(image)
            if len(words) > 2:
                stages.add(words[2])
    return images


def _services(compose: Compose) -> dict[str, Compose]:
    services = cast(dict[str, Any], compose.get("services") or {})
    return {name: dict(cast(Compose, body or {})) for name, body in services.items()}


def _each_service(compose: Compose, change: Callable[[Compose], Compose]) -> Compose:
    return {**compose, "services": {name: change(body) for name, body in _services(compose).items()}}
