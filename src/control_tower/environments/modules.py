"""Importing authors' files under the one dotted name they have, without a second copy of a package."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import cast

from control_tower.errors import OperationError

_ENV_MARKERS = ("codebase", "main_tasks", "side_tasks", "docs")

_import_folders: list[Path] = []
_setting_roots: set[Path] = set()


def register_setting_root(folder: Path) -> None:
    """Make the packages of a setting's folder importable by their own names."""
    root = folder.resolve()
    _setting_roots.add(root)
    use_import_folder(root)


def use_import_folder(folder: Path) -> None:
    """Put a folder on the import path, before those of other settings and after everything installed.

    Modules that other settings loaded under a top-level name that this folder has too are forgotten.
    """
    folder = folder.resolve()
    if _import_folders and _import_folders[0] == folder and str(folder) in sys.path:
        return
    if folder in _import_folders:
        _import_folders.remove(folder)
    others = list(_import_folders)
    _import_folders.insert(0, folder)
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".") not in _import_folders]
    sys.path += [str(entry) for entry in _import_folders]
    _forget_shadowed(folder, others)
    importlib.invalidate_caches()


def import_folders() -> tuple[Path, ...]:
    """The folders that settings brought, the one used last first."""
    return tuple(_import_folders)


def find_environment_root(path: Path) -> Path | None:
    """The environment's folder that a file or task folder belongs to.

    The nearest folder upward that is a package and holds a codebase, tasks or docs; else the direct child
    of a setting's folder; None outside of both.
    """
    start = path.resolve()
    for folder in (start, *start.parents):
        if (folder / "__init__.py").is_file() and any((folder / name).exists() for name in _ENV_MARKERS):
            return folder
    for folder in (start, *start.parents):
        if folder.parent in _setting_roots:
            return folder
    return None


def load_module_from_path(path: Path) -> ModuleType:
    """Import a Python file, or a folder with `__init__.py`, under its real dotted name.

    That is: below a package that is imported already, else below its environment's folder, else below a
    name made for the folder that it stands in.

    Raises:
        OperationError: there is no such file, or a folder's name has a dot.
        ImportError and whatever the file itself raises.
    """
    path = path.resolve()
    if not path.exists():
        raise OperationError(f"{path}: there is no such file or folder to import")
    stem = path if path.is_dir() else path.with_suffix("")
    if (package := _imported_package_above(stem)) is not None:
        name, folder = package
        return _import(name, stem.relative_to(folder))
    root = find_environment_root(stem)
    if root is not None and not _is_taken(root):
        use_import_folder(root.parent)
        return _import("", stem.relative_to(root.parent))
    base = stem.parent if root is None else root.parent
    return _import(_made_up_package(base), stem.relative_to(base))


def load_file(path: Path, name: str) -> ModuleType:
    """Run a Python file as a module of a name that nothing else imports.

    Raises:
        OperationError: the file is missing.
        Whatever the file itself raises.
    """
    path = path.resolve()
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise OperationError(f"{path}: there is no such Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _import(package: str, relative: Path) -> ModuleType:
    dotted = [part for part in relative.parts if part not in ("", ".")]
    if any("." in part for part in dotted):
        raise OperationError(f"{relative}: a folder or file with a dot in its name cannot be imported")
    return importlib.import_module(".".join([package, *dotted] if package else dotted))


def _imported_package_above(stem: Path) -> tuple[str, Path] | None:
    """The deepest imported package whose folder holds `stem`, with that folder."""
    wanted = {str(folder): folder for folder in (stem, *stem.parents)}
    best: tuple[str, Path] | None = None
    for name, module in list(sys.modules.items()):
        for entry in _package_paths(module):
            folder = wanted.get(entry)
            if folder is not None and (best is None or len(folder.parts) > len(best[1].parts)):
                best = name, folder
    return best


def _package_paths(module: ModuleType | None) -> Iterator[str]:
    # Some modules import on attribute access, so the namespace is read directly.
    paths: object = getattr(module, "__dict__", {}).get("__path__")
    if paths is None:
        return
    try:
        entries = list(cast(Iterable[object], paths))
    except (TypeError, KeyError, AttributeError):
        return
    yield from (entry for entry in entries if isinstance(entry, str))


def _is_taken(root: Path) -> bool:
    """Whether the environment's top-level name belongs to something installed."""
    if root.name in sys.stdlib_module_names:
        return True
    module = sys.modules.get(root.name)
    if module is not None:
        return not any(_is_ours(place) for place in _places(module))
    try:
        spec = importlib.util.find_spec(root.name)
    except (ImportError, ValueError):
        return False
    if spec is None:
        return False
    places = [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
    return not any(_is_ours(place) for place in places) and not any(
        Path(place).resolve().is_relative_to(root) for place in places
    )


def _is_ours(place: str) -> bool:
    return any(Path(place).is_relative_to(folder) for folder in _import_folders)


def _places(module: ModuleType | None) -> list[str]:
    file: object = getattr(module, "__dict__", {}).get("__file__")
    return [file] if isinstance(file, str) else list(_package_paths(module))


def _forget_shadowed(folder: Path, others: list[Path]) -> None:
    for top in [name for name in sys.modules if "." not in name]:
        if not (folder / top).is_dir() and not (folder / f"{top}.py").is_file():
            continue
        places = [Path(place) for place in _places(sys.modules[top])]
        if any(place.is_relative_to(folder) for place in places):
            continue
        if any(place.is_relative_to(other) for place in places for other in others):
            for name in [name for name in sys.modules if name == top or name.startswith(f"{top}.")]:
                del sys.modules[name]


def _made_up_package(folder: Path) -> str:
    name = f"ct_loaded_{hashlib.sha256(str(folder).encode()).hexdigest()[:12]}"
    if name not in sys.modules:
        package = ModuleType(name)
        package.__path__ = [str(folder)]
        sys.modules[name] = package
    return name
