"""Secrets are taken out of a log; everything else stays as it was."""

from pathlib import Path

from control_tower.logs.archive import EvalArchive, SampleKey
from control_tower.logs.json_text import JsonObject
from control_tower.logs.masking import mask_log
from control_tower.redactor import Redactor
from tests.logs.log_making import info, seat, write_log

KEY = 'kept "secret"/0123456789'
HEADER: JsonObject = {"eval": {"task": "t"}}


def sample(id: str, *events: JsonObject) -> JsonObject:
    return {"id": id, "epoch": 1, "input": "do it", "target": "", "events": list(events)}


def members(log: Path) -> dict[str, bytes]:
    with EvalArchive.open(log) as archive:
        return {name: archive.members.read(name) for name in archive.members.members}


def test_only_members_that_hold_a_secret_are_changed_and_only_there(tmp_path: Path) -> None:
    # What merely looks like a key is the agent's own.
    found = info("tool", "sk-0123456789abcdef0123 \ud800 https://user:password@host")
    failed = {"traceback": f"Refused: {KEY}", "traceback_ansi": "\x1b[1mRefused\x1b[0m: kept \x1b[1m"}
    said = seat(text=f"it said {KEY}, twice {KEY}", error=failed)
    samples = [sample("clean", found), sample("shows", found, said)]
    log = write_log(tmp_path / "log.eval", HEADER, samples)
    before = members(log)

    assert mask_log(log, Redactor([KEY]).data)

    after = members(log)
    assert list(after) == list(before)
    assert {name for name in after if after[name] != before[name]} == {SampleKey("shows", 1).member}
    with EvalArchive.open(log) as archive:
        shown = archive.sample(SampleKey("shows", 1))
    masked = {"traceback": "Refused: ***", "traceback_ansi": "Refused: ***"}
    assert shown == sample("shows", found, seat(text="it said ***, twice ***", error=masked))


def test_a_log_without_secrets_is_not_written(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.eval", HEADER, [sample("clean")])
    before = log.stat()

    assert not mask_log(log, Redactor([KEY]).data)
    assert not mask_log(log, Redactor([]).data)

    assert (log.stat().st_ino, log.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
