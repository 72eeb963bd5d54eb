"""A check script with the local modules it imports, as one file that runs anywhere."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from control_tower.environments.modules import find_environment_root, import_folders

_LAUNCHER = """\
import importlib.abc, importlib.util, sys
SOURCES = {sources!r}
class Bundled(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name in SOURCES:
            return importlib.util.spec_from_loader(name, self, is_package=SOURCES[name][1])
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        source = SOURCES[module.__name__][0]
        exec(compile(source, module.__name__, "exec", dont_inherit=True), module.__dict__)
sys.meta_path.insert(0, Bundled())
exec(compile({main!r}, {name!r}, "exec", dont_inherit=True),
     {{"__name__": "__main__", "__package__": {package!r}, "__file__": __file__}})
"""


@dataclass(frozen=True)
class _Module:
    """A module: its dotted name, its file, None for a package whose code is left out."""

    name: str
    file: Path | None
    is_package: bool

    @property
    def package(self) -> str:
        """What its relative imports start from."""
        return self.name if self.is_package else self.name.rpartition(".")[0]


def bundled(script: Path) -> str:
    """The script's text, with a launcher around it when it imports local modules.

    Local are: relative imports, modules beside the script, its environment's package, and packages of the
    setting's folder such as `shared`. Packages above an imported module are made empty: an environment's
    own `__init__.py` is no code for a sandbox.

    Raises:
        OSError, SyntaxError: the script or a module it imports is not readable.
    """
    text = script.read_text(encoding="utf-8")
    env_root = find_environment_root(script)
    base = (env_root or script.parent).parent
    package = ".".join(script.parent.relative_to(base).parts)
    roots = [script.parent, base, *import_folders()]
    modules: dict[str, _Module] = {}
    pending = list(_imports(text, package, script.parent, roots))
    while pending:
        module = pending.pop()
        if module.file is None or module.name in modules:
            continue
        modules[module.name] = module
        if module.file != (env_root or script.parent) / "__init__.py":
            source = module.file.read_text(encoding="utf-8")
            pending += _imports(source, module.package, module.file.parent, roots)
    if not modules:
        return text
    sources = _with_parents(modules, env_root)
    if package:
        sources = _parents(package + ".x") | sources
    return _LAUNCHER.format(sources=sources, main=text, name=script.name, package=package)


def _with_parents(modules: Mapping[str, _Module], env_root: Path | None) -> dict[str, tuple[str, bool]]:
    sources: dict[str, tuple[str, bool]] = {}
    for name, module in modules.items():
        sources |= {parent: empty for parent, empty in _parents(name).items() if parent not in sources}
        assert module.file is not None
        is_env_init = env_root is not None and module.file == env_root / "__init__.py"
        text = "" if is_env_init else module.file.read_text(encoding="utf-8")
        sources[name] = (text, module.is_package)
    return sources


def _parents(name: str) -> dict[str, tuple[str, bool]]:
    parts = name.split(".")[:-1]
    return {".".join(parts[:depth]): ("", True) for depth in range(1, len(parts) + 1)}


def _imports(text: str, package: str, folder: Path, roots: list[Path]) -> Iterator[_Module]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _absolute(alias.name, roots)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield from _absolute(node.module, roots)
            for alias in node.names:
                yield from _absolute(f"{node.module}.{alias.name}", roots)
        elif isinstance(node, ast.ImportFrom) and node.level:
            yield from _relative(node, package, folder)


def _absolute(name: str, roots: list[Path]) -> Iterator[_Module]:
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names:
        return
    for root in roots:
        module = _module_at(name, root.joinpath(*name.split(".")))
        if module is not None and not _is_installed(top, roots):
            yield module
            return


def _relative(node: ast.ImportFrom, package: str, folder: Path) -> Iterator[_Module]:
    parts = package.split(".") if package else []
    above = node.level - 1
    names = parts[: len(parts) - above] if above else parts
    start = folder.parents[above - 1] if above else folder
    if node.module:
        names = [*names, *node.module.split(".")]
        start = start.joinpath(*node.module.split("."))
        if (module := _module_at(".".join(names), start)) is not None:
            yield module
    for alias in node.names:
        if (module := _module_at(".".join([*names, alias.name]), start / alias.name)) is not None:
            yield module


def _module_at(name: str, stem: Path) -> _Module | None:
    file = stem.with_name(stem.name + ".py")
    if file.is_file():
        return _Module(name, file, False)
    init = stem / "__init__.py"
    return _Module(name, init, True) if init.is_file() else None


def _is_installed(top: str, roots: list[Path]) -> bool:
    """Whether a top-level name is an installed package rather than a folder of the setting."""
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return False
    if spec is None or spec.origin is None:
        return False
    return not any(Path(spec.origin).is_relative_to(root) for root in roots)
