"""`ct` as a user types it, in this process, in a folder and an environment of its own."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from control_tower.cli.app import main


@dataclass(frozen=True)
class Said:
    """What a command ended with."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its stdout, read."""
        return json.loads(self.out)


@dataclass
class User:
    """Somebody who types commands."""

    folder: Path
    capsys: pytest.CaptureFixture[str]
    environment: Mapping[str, str] = field(default_factory=dict[str, str])

    def ct(self, *words: str | Path, **environment: str | None) -> Said:
        """Runs a command; None takes a variable away."""
        before, there = dict(os.environ), Path.cwd()
        wanted = {**self.environment, **environment}
        self.folder.mkdir(parents=True, exist_ok=True)
        os.chdir(self.folder)
        for name, value in wanted.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self.capsys.readouterr()
        try:
            with pytest.raises(SystemExit) as ended:
                main([str(word) for word in words])
        finally:
            os.chdir(there)
            os.environ.clear()
            os.environ.update(before)
        printed = self.capsys.readouterr()
        return Said(int(str(ended.value.code)), printed.out, printed.err)

    def done(self, *words: str | Path, **environment: str | None) -> Said:
        """Runs a command that must succeed."""
        said = self.ct(*words, **environment)
        assert said.code == 0, said.err
        return said
