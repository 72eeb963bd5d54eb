"""`ct runs convert` as a user sees it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conversion.conftest import Convert
from tests.conversion.old_logs import SIDE, header_2x, header_old, linux, sample_2x, sample_old
from tests.conversion.test_merging import attack_log, honest_log
from tests.logs.log_making import write_log


def old_log(path: Path, eval_id: str = "E2", **sample: Any) -> str:
    return str(write_log(path, header_2x(eval_id=eval_id), [sample_2x(side=SIDE, **sample)]))


def test_each_source_is_one_line_and_one_file(tmp_path: Path, convert: Convert) -> None:
    logs = [old_log(tmp_path / "a.eval", "A"), old_log(tmp_path / "b.eval", "B")]
    code, lines, said = convert(*logs)
    assert code == 0
    assert [list(line) for line in lines] == [["converted_from", "eval", "run_id"]] * 2
    assert [line["converted_from"] for line in lines] == [["A"], ["B"]]
    assert all(Path(line["eval"]).is_file() and line["run_id"] is None for line in lines)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(
        Path(line["eval"]).name for line in lines
    )
    assert "a.eval: converting" in said


def test_the_merged_log_is_printed_first(tmp_path: Path, convert: Convert) -> None:
    honest, attack = honest_log(tmp_path / "h.eval", "h1"), attack_log(tmp_path / "a.eval", "a1")
    _, lines, _ = convert(old_log(tmp_path / "o.eval"), "--honest", honest, "--attack", attack)
    assert [line["converted_from"] for line in lines] == [["Ehonest", "Eattack"], ["E2"]]


def test_converting_twice_gives_the_same_file(tmp_path: Path, convert: Convert) -> None:
    log = str(write_log(tmp_path / "old.eval", header_old(), [sample_old(), sample_old(id="n", epoch=2)]))
    (first,) = convert(log)[1]
    before = Path(first["eval"]).read_bytes()
    (second,) = convert(log)[1]
    assert first == second
    assert Path(second["eval"]).read_bytes() == before


def test_a_current_log_is_skipped_with_a_word(tmp_path: Path, convert: Convert) -> None:
    (line,) = convert(old_log(tmp_path / "a.eval"))[1]
    for words in ((line["eval"],), ("--attack", line["eval"])):
        code, lines, said = convert(*words)
        assert (code, lines) == (0, [])
        assert "its format is current already; skipped" in said


def test_one_bad_source_and_nothing_is_written(tmp_path: Path, convert: Convert) -> None:
    bad = old_log(tmp_path / "bad.eval", scores=linux("C", "7"))
    worse = str(write_log(tmp_path / "worse.eval", header_2x(eval_version="abc"), []))
    code, lines, said = convert(old_log(tmp_path / "a.eval"), bad, worse)
    assert (code, lines) == (1, [])
    assert "nothing was written, since 2 of 3 cannot be converted" in said
    assert "bad.eval: sample s1: the verdict on its side task" in said
    assert "worse.eval: its eval_version 'abc'" in said
    assert list((tmp_path / "out").iterdir()) == []


def test_dry_run_writes_nothing(tmp_path: Path, convert: Convert) -> None:
    code, (line,), said = convert("--dry-run", "--diff", old_log(tmp_path / "a.eval"))
    assert (code, line["eval"]) == (0, None)
    assert line["changes"]["threshold scaled from 0-10 to 0-100"] == 2
    assert "threshold scaled from 0-10 to 0-100" in said
    assert not (tmp_path / "out").exists()


def test_what_is_not_kept_is_said_without_being_asked(tmp_path: Path, convert: Convert) -> None:
    store = {"Submission:side_reports": [{"step": 1, "side": {"x": 1}}]}
    log = str(write_log(tmp_path / "a.eval", header_2x(), [sample_2x(store=store)]))
    assert "not kept: side report of a sample without side task (1)" in convert(log)[2]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "name a log to convert"),
        (("https://viewer.example/3hx9",), "is not the URL of a run"),
        (("{log}", "--upload", "--dry-run"), "--dry-run writes nothing that --upload could upload"),
        (("{log}", "{log}"), "the same log is named twice"),
    ],
)
def test_wrong_usage_ends_with_2(tmp_path: Path, convert: Convert, words: tuple[str, ...], said: str) -> None:
    log = old_log(tmp_path / "a.eval")
    code, lines, error = convert(*(word.format(log=log) for word in words))
    assert (code, lines) == (2, [])
    assert said in error


def test_a_file_that_is_not_there_ends_with_1(convert: Convert) -> None:
    code, lines, error = convert("none.eval")
    assert (code, lines) == (1, [])
    assert "none.eval: there is no such file" in error


def test_what_is_no_log_is_refused_by_name(tmp_path: Path, convert: Convert) -> None:
    (tmp_path / "x.eval").write_text(json.dumps({"no": "archive"}))
    code, lines, error = convert(str(tmp_path / "x.eval"))
    assert (code, lines) == (1, [])
    assert "x.eval" in error


CONVERTING = """
import sys
from pathlib import Path
from control_tower.conversion import batch
def stopped(*_):
    print("placing", flush=True)
    sys.stdin.read()
batch._place = stopped
batch.convert_logs(batch.Request([Path(sys.argv[1])]), Path(sys.argv[2]), lambda _: None)
"""


def test_what_a_killed_conversion_leaves_goes_with_the_next_one(tmp_path: Path, convert: Convert) -> None:
    log, out = old_log(tmp_path / "a.eval"), tmp_path / "out"
    words = [sys.executable, "-c", CONVERTING, log, str(out)]
    killed, running = (
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)
    )
    for process in (killed, running):
        assert process.stdout and process.stdout.readline() == "placing\n"
    killed.kill()
    killed.communicate()
    assert len(list(out.iterdir())) == 2

    (line,) = convert(log)[1]
    used, written = sorted(out.iterdir())  # what is still in use stays
    assert used.name.startswith(".converting-")
    assert written == Path(line["eval"])

    running.communicate()
    assert list(out.iterdir()) == [written]
