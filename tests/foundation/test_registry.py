"""How factories are named, found and called."""

import hashlib
import importlib.metadata
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
import pytest

import control_tower.registry as registry_module
from control_tower.errors import UsageError, ValidationError
from control_tower.registry import Registry, parse_key_values

Thing = dict[str, Any]


class Options(pydantic.BaseModel):
    """A structured argument."""

    model: str
    draws: int = 1


@pytest.fixture
def things(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry[Callable[..., Thing]]]:
    """A registry over an importable package with one module, `alpha`."""
    package = tmp_path / "things_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "_hidden.py").write_text("raise RuntimeError('a module with an underscore is not imported')")
    (package / "alpha.py").write_text("imported = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(registry_module, "_registries", [])
    monkeypatch.setattr(registry_module, "_local_modules", {})
    monkeypatch.setattr(registry_module, "_loaded_plugins", set())
    registry_module._plugins.cache_clear()
    yield Registry("thing", "things_package")
    registry_module._plugins.cache_clear()
    for name in [
        n for n in sys.modules if n.startswith(("things_package", "locally_loaded_", "fake_plugin"))
    ]:
        del sys.modules[name]


def own(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as if our own package defined it."""
    function.__module__ = "control_tower.somewhere"
    return function


def add(
    things: Registry[Any], function: Callable[..., Any], name: str | None = None, **metadata: Any
) -> None:
    things.register(name, **metadata)(own(function))


def nothing() -> Thing:
    return {}


def install_plugin(monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, source: str) -> None:
    (folder / "fake_plugin.py").write_text(textwrap.dedent(source))
    point = importlib.metadata.EntryPoint(name=name, value="fake_plugin", group="control_tower")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [point])
    registry_module._plugins.cache_clear()


class TestNames:
    @pytest.mark.parametrize("ref", ["big-thing", "big_thing", "ct/big-thing", "ct/big_thing"])
    def test_own_names_with_and_without_prefix(self, things: Registry[Any], ref: str) -> None:
        def big_thing_policy() -> Thing:
            """Make it big. Then more."""
            return {"made": True}

        add(things, big_thing_policy, sneaky=True)
        entry = things.get(ref)
        assert (entry.name, entry.description, entry.metadata) == (
            "ct/big-thing",
            "Make it big.",
            {"sneaky": True},
        )
        assert entry.make({}) == {"made": True}
        assert entry.function is big_thing_policy

    def test_an_unknown_name_is_wrong_usage_and_names_the_nearest(self, things: Registry[Any]) -> None:
        add(things, nothing, "big-thing")
        with pytest.raises(UsageError, match=r"no thing is called 'bigthng'; did you mean 'big-thing'\?"):
            things.get("bigthng")

    def test_a_name_is_registered_once(self, things: Registry[Any]) -> None:
        add(things, nothing, "one")
        with pytest.raises(ValueError, match="registered twice"):
            add(things, nothing, "one")

    def test_public_modules_of_the_package_are_imported(self, things: Registry[Any]) -> None:
        assert things.names() == []
        assert sys.modules["things_package.alpha"].imported

    def test_code_of_nobody_is_found_by_its_short_name(self, things: Registry[Any]) -> None:
        @things.register("loose")
        def anything() -> Thing:
            return {"loose": 1}

        entry = things.get("loose")
        assert entry.name == f"{__name__}:{anything.__qualname__}"
        assert things.get(entry.name) is entry


class TestModules:
    def test_a_function_of_a_module(self, things: Registry[Any]) -> None:
        entry = things.get("json:dumps")
        assert entry.name == "json:dumps"
        assert entry.make({"obj": [1]}) == "[1]"

    def test_a_registered_function_keeps_its_name(self, things: Registry[Any]) -> None:
        add(things, nothing, "named")
        assert things.get(f"{__name__}:nothing").name == "ct/named"

    @pytest.mark.parametrize(
        ("ref", "message"),
        [
            ("no_such_module:x", "there is no module 'no_such_module'"),
            ("json.nowhere:x", "there is no module 'json.nowhere'"),
            ("textwrap:dedetn", "did you mean 'dedent'"),
        ],
    )
    def test_what_is_not_there_is_wrong_usage(self, things: Registry[Any], ref: str, message: str) -> None:
        with pytest.raises(UsageError, match=message):
            things.get(ref)

    def test_a_module_that_fails_says_why(self, things: Registry[Any], tmp_path: Path) -> None:
        (tmp_path / "things_package_broken.py").write_text("import no_such_dependency")
        with pytest.raises(ValidationError, match="No module named 'no_such_dependency'") as caught:
            things.get("things_package_broken:x")
        assert caught.value.exit_code == 1


class TestFiles:
    SOURCE = """
        import dataclasses
        from helper_beside import VALUE

        @dataclasses.dataclass
        class Made:
            value: int

        def mine(extra: int = 0):
            return Made(VALUE + extra)
        """

    def write(self, folder: Path, source: str = SOURCE) -> Path:
        folder.mkdir(exist_ok=True)
        (folder / "helper_beside.py").write_text("VALUE = 1")
        file = folder / "mine.py"
        file.write_text(textwrap.dedent(source))
        return file

    def test_a_file_beside_its_helpers_with_its_hash(self, things: Registry[Any], tmp_path: Path) -> None:
        file = self.write(tmp_path / "a")
        entry = things.get(f"{file}@mine")
        assert entry.name == "locally_loaded/mine.py@mine"
        assert entry.make({"extra": "2"}).value == 3
        sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
        assert entry.locally_loaded == {"path": str(file), "sha256": sha256}
        assert str(file.parent) not in sys.path
        assert things.get(f"{file}@mine") is things.get("locally_loaded/mine.py@mine") is entry

    def test_two_files_of_one_name_are_refused(self, things: Registry[Any], tmp_path: Path) -> None:
        things.get(f"{self.write(tmp_path / 'a')}@mine")
        with pytest.raises(ValidationError, match=r"mine.py was already loaded from .*/a: rename"):
            things.get(f"{self.write(tmp_path / 'b')}@mine")

    def test_registrations_of_a_failing_file_are_taken_back(
        self, things: Registry[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "shared_registry", type(sys)("shared_registry"))
        sys.modules["shared_registry"].things = things
        source = """
            from shared_registry import things

            @things.register()
            def mine():
                return {}
            """
        file = self.write(tmp_path / "a", source + "\n            raise RuntimeError('halfway')\n")
        with pytest.raises(ValidationError, match="halfway"):
            things.get(f"{file}@mine")
        assert things.names() == []
        self.write(tmp_path / "a", source)
        assert things.get(f"{file}@mine").name == "locally_loaded/mine.py@mine"

    @pytest.mark.parametrize(("name", "message"), [("mien", "did you mean 'mine'"), ("VALUE", "not there")])
    def test_what_the_file_has_not(
        self, things: Registry[Any], tmp_path: Path, name: str, message: str
    ) -> None:
        with pytest.raises(UsageError, match=message):
            things.get(f"{self.write(tmp_path / 'a')}@{name}")

    def test_a_missing_file_is_wrong_usage(self, things: Registry[Any], tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=r"nowhere\.py: No such file"):
            things.get(f"{tmp_path}/nowhere.py@x")


class TestPlugins:
    REGISTERS = """
        from shared_registry import things

        @things.register()
        def sharp_thing():
            return {"sharp": True}
        """

    @pytest.fixture(autouse=True)
    def shared(self, things: Registry[Any], monkeypatch: pytest.MonkeyPatch) -> None:
        module = type(sys)("shared_registry")
        module.things = things
        monkeypatch.setitem(sys.modules, "shared_registry", module)

    def test_names_carry_the_plugin(
        self, things: Registry[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        install_plugin(monkeypatch, tmp_path, "lab", self.REGISTERS)
        assert things.get("lab/sharp_thing").name == "lab/sharp-thing"
        assert things.names() == ["lab/sharp-thing"]
        with pytest.raises(UsageError, match="did you mean 'lab/sharp-thing'"):
            things.get("sharp-thing")

    def test_a_broken_one_is_warned_of_in_lists_and_an_error_by_name(
        self,
        things: Registry[Any],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        source = self.REGISTERS + "\n        raise RuntimeError('no key')\n"
        install_plugin(monkeypatch, tmp_path, "lab", source)
        assert things.names() == []
        assert "plugin 'lab' (fake_plugin) cannot be imported: RuntimeError: no key" in caplog.text
        with pytest.raises(ValidationError, match=r"plugin 'lab'.*no key"):
            things.get("lab/sharp-thing")

    def test_our_own_names_do_not_need_plugins(
        self, things: Registry[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        install_plugin(monkeypatch, tmp_path, "lab", "raise SystemExit('imported')")
        add(things, nothing, "own")
        assert things.get("own").name == "ct/own"

    def test_reserved_names_are_refused(
        self,
        things: Registry[Any],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        install_plugin(monkeypatch, tmp_path, "ct", "raise SystemExit('imported')")
        assert things.names() == []
        assert "'ct' is reserved" in caplog.text


class TestArguments:
    @pytest.fixture
    def entry(self, things: Registry[Any]) -> registry_module.Entry[Any]:
        def all_kinds(
            count: int,
            choice: Literal["epoch"] | int = "epoch",
            names: list[str] | None = None,
            options: Options | None = None,
            mapping: dict[str, int] | None = None,
            text: str | None = None,
            several: str | list[str] = "one",
            flag: bool = False,
            level: Literal[1, 2] = 1,
            share: Annotated[float, pydantic.Field(ge=0, le=1)] = 0.5,
            untyped=3,
            *ignored: int,
            **also_ignored: int,
        ) -> Thing:
            """Take all kinds.

            Args:
                count: how many
                    there are.
                share: a part of one.
            """
            return {key: value for key, value in locals().items() if "ignored" not in key}

        add(things, all_kinds, "kinds")
        return things.get("kinds")

    @pytest.mark.parametrize(
        ("item", "value"),
        [
            ("choice=epoch", "epoch"),
            ("choice=7", 7),
            ("names=a", ["a"]),
            ("names=a,b", ["a", "b"]),
            ("names=[a, b]", ["a", "b"]),
            ("names=", []),
            ("names=none", None),
            ("options={model: m, draws: 3}", Options(model="m", draws=3)),
            ('mapping={"a": 1}', {"a": 1}),
            ("text=none", "none"),
            ("text=a=b", "a=b"),
            ("text=[a]", "[a]"),
            ("several=a,b", "a,b"),
            ("several=[a, b]", ["a", "b"]),
            ("flag=true", True),
            ("flag=no", False),
            ("level=2", 2),
            ("share=0.25", 0.25),
            ("untyped=4", 4),
        ],
    )
    def test_text_is_read_by_the_annotation(
        self, entry: registry_module.Entry[Any], item: str, value: object
    ) -> None:
        made = entry.make(parse_key_values(["count=1", item], "-p"))
        key = item.partition("=")[0]
        assert made[key] == value
        assert type(made[key]) is type(value)

    @pytest.mark.parametrize(
        ("raw", "message"),
        [
            ({}, "argument 'count' is missing"),
            ({"count": "many"}, "argument 'count' is 'many'"),
            ({"count": 1.5}, "argument 'count' is '1.5'"),
            ({"count": 1, "choise": "1"}, "has no argument 'choise'; did you mean 'choice'"),
            ({"count": 1, "choice": "always"}, "argument 'choice' is 'always', not epoch | int"),
            ({"count": 1, "share": "nan"}, "argument 'share' is 'nan'"),
            ({"count": 1, "share": "2"}, "less than or equal to 1"),
            ({"count": 1, "options": "{model: m, draw: 3"}, "options: .* is not YAML"),
            ({"count": 1, "options": "m"}, "argument 'options' is 'm'"),
            ({"count": 1, "ignored": "1"}, "has no argument 'ignored'"),
            ({"count": 1, "level": "3"}, "argument 'level' is '3'"),
        ],
    )
    def test_what_does_not_fit_is_wrong_usage(
        self, entry: registry_module.Entry[Any], raw: Thing, message: str
    ) -> None:
        with pytest.raises(UsageError, match=f"thing ct/kinds.*{message.replace('|', '[|]')}"):
            entry.make(raw)

    def test_keys_may_have_hyphens_but_only_once(self, things: Registry[Any]) -> None:
        add(things, lambda max_steps=1: {"max_steps": max_steps}, "steps")
        entry = things.get("steps")
        assert entry.make({"max-steps": "5"}) == {"max_steps": 5}
        with pytest.raises(UsageError, match="'max_steps' is given twice"):
            entry.make({"max-steps": "5", "max_steps": "6"})

    def test_the_reference_shows_types_defaults_and_descriptions(
        self, entry: registry_module.Entry[Any]
    ) -> None:
        shown = {a.name: a for a in entry.arguments()}
        assert list(shown)[:3] == ["count", "choice", "names"]
        assert (shown["count"].required, shown["count"].description) == (True, "how many there are.")
        assert (shown["choice"].type, shown["choice"].default) == ("epoch | int", "epoch")
        assert shown["names"].type == "list of str | none"
        assert shown["mapping"].type == "object | none"
        assert shown["share"].description == "a part of one."

    @pytest.mark.parametrize(
        ("items", "message"),
        [
            (["novalue"], "-p 'novalue': write it as key=value"),
            (["=x"], "write it as key=value"),
            (["a=1", "a=2"], "'a' is given twice"),
            (["a-b=1", "a_b=2"], "'a_b' is given twice"),
        ],
    )
    def test_items_are_key_value(self, items: list[str], message: str) -> None:
        with pytest.raises(UsageError, match=message):
            parse_key_values(items, "-p")


def test_registries_do_not_mix() -> None:
    """In a process of its own: what is shipped registers under its own kind."""
    code = """
from control_tower.policies.registry import policies
from control_tower.protocols.registry import protocols
for kind in (policies, protocols):
    entries = kind.entries()
    assert entries, kind.kind
    assert all(e.name.startswith("ct/") and e.description and e.kind == kind.kind for e in entries), entries
    for entry in entries:
        entry.arguments()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
