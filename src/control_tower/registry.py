"""One registry for policies, protocols and monitors: how a factory is named, found and called.

A *factory* is a function or class that makes one policy, protocol or monitor. It is found by

- a name: `honest` or `ct/honest` (ours), `<plugin>/<name>` (entry points of the group `control_tower`);
- `module:function`, an importable factory;
- `path/to/file.py@name`, a factory of a file, whose hash is kept for the log.
"""

import dataclasses
import hashlib
import importlib
import importlib.metadata
import inspect
import logging
import pkgutil
import re
import sys
import types
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Generic, TypedDict, TypeVar, cast

import pydantic

from control_tower.arguments import (
    Argument,
    arguments_model,
    describe_arguments,
    parse_arguments,
    parse_key_values,
)
from control_tower.errors import UsageError, ValidationError, did_you_mean

__all__ = ["Argument", "Entry", "LoadedFile", "Registry", "parse_key_values"]

F = TypeVar("F", bound=Callable[..., Any])

_PLUGIN_GROUP = "control_tower"
_OWN = "ct"
_LOCAL = "locally_loaded"
_logger = logging.getLogger(__name__)


class LoadedFile(TypedDict):
    """A file that a `file.py@name` reference executed: where it lies and the hash of what was executed."""

    path: str
    sha256: str


@dataclasses.dataclass(frozen=True)
class Entry(Generic[F]):
    """A factory under its canonical name."""

    kind: str
    """`policy`, `protocol` or `monitor`."""
    name: str
    """The canonical name, as logs record it."""
    function: F
    metadata: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    """What the registration said about the factory, such as a policy's flags."""
    locally_loaded: LoadedFile | None = None
    """The file it came from, when it was named as `file.py@name`."""

    @property
    def description(self) -> str:
        """The first sentence of the factory's docstring."""
        text = " ".join((inspect.getdoc(self.function) or "").split("\n\n")[0].split())
        return re.split(r"(?<=[.!?]) ", text, maxsplit=1)[0]

    @cached_property
    def args_model(self) -> type[pydantic.BaseModel]:
        """The factory's arguments; unknown ones are forbidden."""
        return arguments_model(self.function, f"{self.name}_args")

    def arguments(self) -> list[Argument]:
        """The factory's arguments, in the order of its signature."""
        return describe_arguments(self.args_model)

    def parse(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """Check arguments and fill in the defaults.

        Args:
            raw: values by key, as typed (text, hyphens allowed in keys) or already of the right type.

        Returns:
            Keyword arguments for the factory.

        Raises:
            UsageError: an unknown, missing, repeated or unreadable argument.
        """
        model = parse_arguments(self.args_model, raw, f"{self.kind} {self.name}")
        return {name: getattr(model, name) for name in self.args_model.model_fields}

    def make(self, raw: Mapping[str, Any]) -> Any:
        """Call the factory with checked arguments.

        Raises:
            UsageError: as `parse`.
        """
        return self.function(**self.parse(raw))


class Registry(Generic[F]):
    """The factories of one kind."""

    def __init__(self, kind: str, package: str) -> None:
        """Make a registry.

        Args:
            kind: `policy`, `protocol` or `monitor`; messages name it.
            package: the package of our own factories; its modules without a leading underscore are
                imported on the first lookup.
        """
        self.kind = kind
        self.package = package
        self._entries: dict[str, Entry[F]] = {}
        self._loose: dict[str, Entry[F]] = {}
        self._own_loaded = False
        _registries.append(cast("Registry[Callable[..., Any]]", self))

    def register(self, name: str | None = None, **metadata: Any) -> Callable[[F], F]:
        """Decorate a factory to make it findable by name; the factory itself stays as it is.

        Args:
            name: the short name; the default is the function's without `_policy`, `_protocol` or
                `_monitor`. Underscores and hyphens are equal, the canonical name has hyphens.
            metadata: facts about the factory, kept on its entry.

        Raises:
            ValueError: the name is taken.
        """

        def decorate(function: F) -> F:
            short = _short_name(name or re.sub(r"_(policy|protocol|monitor)$", "", function.__name__))
            module = function.__module__
            namespace = _namespace(module)
            canonical = f"{namespace}{short}" if namespace else f"{module}:{function.__qualname__}"
            file = _importing.file if _importing and namespace == _importing.namespace else None
            entry = Entry(self.kind, canonical, function, dict(metadata), file)
            taken = self._entries.get(canonical) or (None if namespace else self._loose.get(short))
            if taken and module != "__main__":
                raise ValueError(f"{self.kind} {short!r} is registered twice, the second time as {canonical}")
            self._entries[canonical] = entry
            if not namespace:
                self._loose[short] = entry
            return function

        return decorate

    def get(self, ref: str) -> Entry[F]:
        """Find a factory by name, `module:function` or `file.py@name`.

        Raises:
            UsageError: nothing has that name; the message has the nearest one.
            ValidationError: the plugin, module or file that was named cannot be imported.
        """
        if match := re.fullmatch(r"(.+\.py)@([\w-]+)", ref):
            return self._entries.get(ref) or self._from_file(Path(match[1]), match[2])
        if ":" in ref:
            return self._entries.get(ref) or self._from_module(ref)
        namespace, _, short = ref.rpartition("/")
        short = _short_name(short)
        self._load_own()
        if namespace not in ("", _OWN):
            _load_plugin(namespace)
        found = self._entries.get(f"{namespace or _OWN}/{short}")
        if not namespace:
            found = found or self._loose.get(short)
        if found is None:
            raise UsageError(f"no {self.kind} is called {ref!r}{did_you_mean(ref, self._typed_names())}")
        return found

    def names(self) -> list[str]:
        """The canonical names: ours first, then others by name."""
        return [entry.name for entry in self.entries()]

    def entries(self) -> list[Entry[F]]:
        """All factories that have a name; a plugin that cannot be imported is warned of and left out."""
        self._load_own()
        for name in _plugins():
            try:
                _load_plugin(name)
            except ValidationError as error:
                _logger.warning("%s", error)
        return sorted(self._entries.values(), key=lambda e: (not e.name.startswith("ct/"), e.name))

    def _typed_names(self) -> list[str]:
        """The names as people type them, for hints."""
        return [*self._loose, *(name.removeprefix("ct/") for name in self.names())]

    def _load_own(self) -> None:
        if self._own_loaded:
            return
        self._own_loaded = True
        try:
            package = importlib.import_module(self.package)
            for module in pkgutil.walk_packages(package.__path__, self.package + "."):
                if not any(part.startswith("_") for part in module.name.split(".")):
                    importlib.import_module(module.name)
        except BaseException:
            self._own_loaded = False
            raise

    def forget(self, namespace: str) -> None:
        """Take back what a failed import registered."""
        self._entries = {k: v for k, v in self._entries.items() if not k.startswith(namespace)}

    def _from_module(self, ref: str) -> Entry[F]:
        module_name, _, function_name = ref.partition(":")
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name and f"{module_name}.".startswith(f"{error.name}."):
                raise UsageError(f"{self.kind} {ref!r}: there is no module {error.name!r}") from error
            raise ValidationError(f"{self.kind} {ref!r} cannot be imported: {_said(error)}") from error
        except Exception as error:
            raise ValidationError(f"{self.kind} {ref!r} cannot be imported: {_said(error)}") from error
        return self._from_attribute(module, function_name, ref, None)

    def _from_file(self, path: Path, name: str) -> Entry[F]:
        local = _load_file(path)
        canonical = f"{local.namespace}{_short_name(name)}"
        return self._entries.get(canonical) or self._from_attribute(local.module, name, canonical, local.file)

    def _from_attribute(
        self, module: types.ModuleType, name: str, canonical: str, file: LoadedFile | None
    ) -> Entry[F]:
        """The entry of a module's factory, whether it was registered or not."""
        function = getattr(module, name.replace("-", "_"), None)
        if not callable(function):
            own = module.__name__
            here = [key for key, value in vars(module).items() if getattr(value, "__module__", "") == own]
            if file:
                here += [key.rpartition("@")[2] for key in self._entries if key.startswith(f"{_LOCAL}/")]
            raise UsageError(f"{self.kind} {canonical!r}: {name!r} is not there{did_you_mean(name, here)}")
        for entry in self._entries.values():
            if entry.function is function:
                return entry
        return self._entries.setdefault(canonical, Entry(self.kind, canonical, cast("F", function), {}, file))


@dataclasses.dataclass(frozen=True)
class _Importing:
    """Whose code is being imported: what it registers gets this namespace."""

    namespace: str
    file: LoadedFile | None


@dataclasses.dataclass(frozen=True)
class _LocalModule:
    namespace: str
    module: types.ModuleType
    file: LoadedFile


_registries: list[Registry[Callable[..., Any]]] = []
_loaded_plugins: set[str] = set()
_local_modules: dict[str, _LocalModule] = {}
_importing: _Importing | None = None


@contextmanager
def _importing_for(namespace: str, file: LoadedFile | None, what: str) -> Generator[None]:
    """Give registrations a namespace while code is imported; take them back when that fails."""
    global _importing
    before, _importing = _importing, _Importing(namespace, file)
    try:
        yield
    except Exception as error:
        for registry in _registries:
            registry.forget(namespace)
        raise ValidationError(f"{what} cannot be imported: {_said(error)}") from error
    finally:
        _importing = before


def _namespace(module: str) -> str:
    """The prefix of what a module registers; empty for code that is neither ours nor a plugin's."""
    top = module.partition(".")[0]
    if top == "control_tower":
        return f"{_OWN}/"
    if _importing:
        return _importing.namespace
    owners = [name for name, plugin in _plugins().items() if plugin.module.partition(".")[0] == top]
    return f"{owners[0]}/" if owners else ""


@cache
def _plugins() -> dict[str, importlib.metadata.EntryPoint]:
    """Installed plugins by name; of two with one name the second is refused, so are reserved names."""
    plugins: dict[str, importlib.metadata.EntryPoint] = {}
    for plugin in importlib.metadata.entry_points(group=_PLUGIN_GROUP):
        if plugin.name in (_OWN, _LOCAL):
            _logger.warning("plugin %s is ignored: %r is reserved", plugin.value, plugin.name)
        elif plugin.name in plugins and plugins[plugin.name].value != plugin.value:
            _logger.warning("plugin %s is ignored: %r is another one's", plugin.value, plugin.name)
        else:
            plugins[plugin.name] = plugin
    return plugins


def _load_plugin(name: str) -> None:
    """Import a plugin once; an unknown name is left to the lookup that follows.

    Raises:
        ValidationError: its import fails.
    """
    plugin = _plugins().get(name)
    if plugin is None or name in _loaded_plugins:
        return
    with _importing_for(f"{name}/", None, f"plugin {name!r} ({plugin.value})"):
        plugin.load()
    _loaded_plugins.add(name)


def _load_file(path: Path) -> _LocalModule:
    """Execute a Python file once and remember the hash of exactly what was executed.

    Raises:
        UsageError: there is no such file.
        ValidationError: it fails, or another file of the same name was loaded before.
    """
    resolved = path.expanduser().resolve()
    try:
        source = resolved.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
    if known := _local_modules.get(resolved.name):
        if known.file["path"] != str(resolved):
            there = Path(known.file["path"]).parent
            raise ValidationError(f"{resolved.name} was already loaded from {there}: rename one of the two")
        return known
    file = LoadedFile(path=str(resolved), sha256=hashlib.sha256(source).hexdigest())
    module = types.ModuleType(f"{_LOCAL}_{resolved.stem}")
    module.__file__ = str(resolved)
    namespace = f"{_LOCAL}/{resolved.name}@"
    sys.modules[module.__name__] = module
    sys.path.insert(0, str(resolved.parent))
    try:
        with _importing_for(namespace, file, str(path)):
            exec(compile(source, str(resolved), "exec"), vars(module))
    except ValidationError:
        del sys.modules[module.__name__]
        raise
    finally:
        sys.path.remove(str(resolved.parent))
    return _local_modules.setdefault(resolved.name, _LocalModule(namespace, module, file))


def _short_name(name: str) -> str:
    return name.replace("_", "-")


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
