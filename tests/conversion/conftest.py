"""`ct runs convert`, called as a user calls it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from control_tower.cli.app import main
from control_tower.logs.json_text import JsonObject

Convert = Callable[..., tuple[int, list[JsonObject], str]]


@pytest.fixture
def convert(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Convert:
    """Converts into the folder `out`: gives the exit code, the lines of JSON, and what is on stderr."""

    def run(*words: str) -> tuple[int, list[JsonObject], str]:
        with pytest.raises(SystemExit) as ended:
            main(["runs", "convert", "-o", str(tmp_path / "out"), *words])
        printed = capsys.readouterr()
        lines = [json.loads(line) for line in printed.out.splitlines()]
        return int(str(ended.value.code)), lines, printed.err

    return run
