"""Continuing an unfinished run: what is left to run, and one log out of the attempts."""

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inspect_ai.log import read_eval_log, read_eval_log_sample, read_eval_log_sample_summaries

from control_tower.errors import StateError, ValidationError
from control_tower.logs.archive import EvalArchive, SampleKey
from control_tower.logs.attempts import FINGERPRINT, State, read_attempt, state_of
from control_tower.logs.merge import merge, merged_path
from control_tower.logs.resume import find_resumable, resumable
from control_tower.logs.usage import added, usage_of
from control_tower.logs.zip_writer import new_archive
from tests.logs.log_making import write_log
from tests.logs.small_evals import run_eval

PRINT = {FINGERPRINT: "abc"}
MEAN = {"metrics": [{"name": "inspect_ai/mean", "options": {}}]}


def header(
    eval_id: str, ids: list[Any], *, epochs: int = 1, metadata: dict[str, Any] | None = None, **fields: Any
) -> dict[str, Any]:
    """A header of a made log; `created` grows with the eval id."""
    spec = {
        "eval_id": eval_id,
        "run_id": "r",
        "task_id": "t",
        "created": f"2026-01-01T00:00:{sum(map(ord, eval_id)) % 60:02}+00:00",
        "task": "tiny",
        "dataset": {"samples": len(ids), "sample_ids": ids},
        "model": "none/none",
        "config": {"epochs": epochs},
        "scorers": [{"name": "points", "options": {}, **MEAN}],
        "metadata": PRINT if metadata is None else metadata,
    }
    return {"eval": spec, "plan": {"name": "plan", "steps": []}, **fields}


def sample(
    id: Any, epoch: int = 1, value: Any = 1.0, *, error: str | None = None, tokens: int = 5
) -> dict[str, Any]:
    """A made sample with one score, one message, one event and usage."""
    made: dict[str, Any] = {
        "id": id,
        "epoch": epoch,
        "input": "q",
        "target": "",
        "messages": [{"role": "user", "content": f"{id}/{epoch}/{value}", "id": "m"}],
        "events": [
            {
                "event": "info",
                "source": "eval",
                "data": {"finished": "submitted"},
                "timestamp": "2026-01-01T00:00:00+00:00",
                "working_start": 0.0,
            }
        ],
        "model_usage": {
            "m": {
                "input_tokens": tokens,
                "output_tokens": 1,
                "total_tokens": tokens + 1,
                "total_cost": tokens / 10,
            }
        },
        "role_usage": {"untrusted": {"input_tokens": tokens, "output_tokens": 1, "total_tokens": tokens + 1}},
        "metadata": {},
        "uuid": f"{id}-{epoch}-{value}",
    }
    if error:
        return {**made, "error": {"message": error, "traceback": "", "traceback_ansi": ""}}
    return {**made, "scores": {"points": {"value": value}}}


def raw(path: Path) -> dict[SampleKey, bytes]:
    """The compressed bytes of each sample."""
    with EvalArchive.open(path) as archive:
        members = archive.members
        return {key: b"".join(members.raw(members.members[key.member])) for key in archive.sample_keys()}


class TestStates:
    @pytest.mark.parametrize(
        ("row", "state"),
        [
            ({"scores": {"points": {"value": 0.5}}}, State.FINISHED),
            ({"scores": {"points": {"value": "C"}, "t": {"value": math.nan}}}, State.UNSCORED),
            ({"scores": {"points": {"value": "noanswer"}}}, State.UNSCORED),
            ({"scores": {"points": {}}}, State.UNSCORED),
            ({"scores": {}}, State.UNSCORED),
            ({"error": "boom", "scores": {"points": {"value": 1}}}, State.ERRORED),
            (
                {"limit": "time", "scores": {"points": {"value": "I", "reason": "scorer_timeout"}}},
                State.FINISHED,
            ),
            (
                {
                    "scores": {
                        "workspace_diff": {"value": "N"},
                        "t": {"value": "I"},
                        "tasks": {"value": {"main": None, "side": None}},
                        "monitor": {"value": {}},
                        "audit": {"value": math.nan},
                        "audit1": {"value": math.nan},
                    }
                },
                State.FINISHED,
            ),
        ],
    )
    def test_by_summary(self, row: dict[str, Any], state: State) -> None:
        assert state_of(row) is state

    def test_without_scorers_nothing_is_unscored(self) -> None:
        assert state_of({}, scored=False) is State.FINISHED

    def test_a_sample_without_its_summary_is_read_itself(self, inspect_log: Path, tmp_path: Path) -> None:
        torn = tmp_path / "torn.eval"
        with EvalArchive.open(inspect_log) as archive, new_archive(torn) as writer:
            for name in archive.members.members:
                if name.startswith("samples/") or name.endswith("start.json"):
                    writer.copy(archive.members, name)
        data = torn.read_bytes()
        torn.write_bytes(data[:-30])
        attempt = read_attempt(torn)
        assert len(attempt.summaries) == 6
        assert all("model_usage" in row for row in attempt.summaries.values())
        with EvalArchive.open(inspect_log) as archive:
            full = {SampleKey.of(row): row for row in archive.summaries()}
        for key, row in attempt.summaries.items():
            assert {**row, "working_time": 0} == {**full[key], "working_time": 0}

    def test_a_damaged_sample_is_missing(self, tmp_path: Path) -> None:
        path = write_log(tmp_path / "log.eval", header("a", ["1", "2"]), [sample("1"), sample("2")])
        data = bytearray(path.read_bytes())
        at = data.index(b"samples/2_epoch_1.json") + 60
        data[at] ^= 255
        path.write_bytes(data)
        attempt = read_attempt(path)
        assert list(attempt.states) == [SampleKey("1", 1)]
        assert len(attempt.damage) == 1
        assert "samples/2_epoch_1.json" in attempt.damage[0]

    def test_an_invalidated_sample_is_run_again(self, tmp_path: Path) -> None:
        samples = [sample("1"), {**sample("2"), "invalidation": {"author": "x"}}]
        path = write_log(tmp_path / "log.eval", header("a", ["1", "2"], invalidated=True), samples)
        assert read_attempt(path).states == {
            SampleKey("1", 1): State.FINISHED,
            SampleKey("2", 1): State.ERRORED,
        }


class TestFinding:
    def write(self, folder: Path, name: str, ids: list[str], samples: list[Any], **fields: Any) -> Path:
        return write_log(folder / f"{name}.eval", header(name, ids, **fields), samples)

    def test_what_is_missing_errored_or_unscored_is_to_run(self, tmp_path: Path) -> None:
        samples = [
            sample("1"),
            sample("2", value=math.nan),
            sample("3", error="no"),
            sample("1", 2),
            sample(4, 2),
        ]
        log = self.write(tmp_path, "a", ["1", "2", "3", 4], samples, epochs=2)  # type: ignore[list-item]
        found = find_resumable(tmp_path, "abc")
        assert found is not None
        assert found.logs == (log,)
        assert found.to_run == [("2", 1), ("3", 1), (4, 1), ("2", 2), ("3", 2)]
        assert found.counts == {State.MISSING: 3, State.ERRORED: 1, State.UNSCORED: 1, State.FINISHED: 3}

    def test_finished_and_foreign_logs_are_not_resumed(self, tmp_path: Path) -> None:
        self.write(tmp_path, "done", ["1"], [sample("1")])
        self.write(tmp_path, "other", ["1", "2"], [sample("1")], metadata={FINGERPRINT: "xyz"})
        self.write(tmp_path, "plain", ["1", "2"], [sample("1")], metadata={})
        (tmp_path / "torn.eval").write_bytes(b"PK\x03\x04 and no more")
        (tmp_path / "empty.eval").write_bytes(b"")
        assert find_resumable(tmp_path, "abc") is None
        assert find_resumable(tmp_path / "none", "abc") is None

    def test_the_newest_is_taken(self, tmp_path: Path) -> None:
        self.write(tmp_path, "a", ["1", "2"], [sample("1")])
        newest = self.write(tmp_path, "c", ["1", "2"], [sample("1")])
        self.write(tmp_path, "d", ["1"], [sample("1")])
        self.write(tmp_path, "b", ["1", "2"], [sample("1")])
        found = find_resumable(tmp_path, "abc")
        assert found is not None
        assert found.logs == (newest,)

    def test_an_attempt_that_was_killed_too_is_found_with_the_first(self, tmp_path: Path) -> None:
        first = self.write(tmp_path, "z", ["1", "2", "3"], [sample("1")])
        marked = resumable(first)
        second = write_log(
            tmp_path / "a.eval",
            header("a", ["1", "2", "3"], metadata={**PRINT, **marked.marker}),
            [sample("2")],
            finished=False,
        )
        for log in (first, second):
            assert resumable(log).logs == (first, second)
        found = find_resumable(tmp_path, "abc")
        assert found is not None
        assert found.logs == (first, second)
        assert found.to_run == [("3", 1)]

    def test_attempts_that_were_not_merged_yet_are_found_though_nothing_is_left_to_run(
        self, tmp_path: Path
    ) -> None:
        first = self.write(tmp_path, "a", ["1", "2"], [sample("1")])
        second = self.write(
            tmp_path, "b", ["1", "2"], [sample("2")], metadata={**PRINT, **resumable(first).marker}
        )
        found = find_resumable(tmp_path, "abc")
        assert found is not None
        assert (found.logs, found.to_run) == ((first, second), [])
        merge(found.logs, merged_path(found.logs))
        assert find_resumable(tmp_path, "abc") is None

    def test_merged_attempts_are_not_resumed_again(self, tmp_path: Path) -> None:
        first = self.write(tmp_path, "a", ["1", "2", "3"], [sample("1")])
        second = self.write(
            tmp_path, "b", ["1", "2", "3"], [sample("2")], metadata={**PRINT, **resumable(first).marker}
        )
        merged = merge([first, second], merged_path([first, second])).path
        assert merged.name == "a-resumed-1.eval"
        found = find_resumable(tmp_path, "abc")
        assert found is not None
        assert found.logs == (merged,)
        assert found.to_run == [("3", 1)]
        with pytest.raises(StateError, match=r"was merged into .*a-resumed-1\.eval; resume that one"):
            resumable(first)
        third = self.write(tmp_path, "c", ["1", "2", "3"], [sample("3")], metadata={**PRINT, **found.marker})
        complete = merge([merged, third], merged_path([merged, third])).path
        assert complete.name == "a-resumed-2.eval"
        assert find_resumable(tmp_path, "abc") is None
        assert resumable(complete).to_run == []

    def test_another_configuration_is_refused(self, tmp_path: Path) -> None:
        log = self.write(tmp_path, "a", ["1"], [])
        with pytest.raises(StateError, match="not of this configuration"):
            resumable(log, "xyz")
        with pytest.raises(StateError, match="no such file"):
            resumable(tmp_path / "nothing.eval")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("real")
    first = run_eval(folder, ["s1", "s2", "s3"], epochs=2, fail=("s2/2",), unscored=("s3/1",), metadata=PRINT)
    second = run_eval(folder, ["s2", "s3"], epochs=2, metadata=PRINT)
    return [Path(log.location.removeprefix("file://")) for log in (first, second)]


@pytest.fixture(scope="module")
def merged(logs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return merge(logs, tmp_path_factory.mktemp("merged") / "merged.eval").path


class TestMergingRealLogs:
    """An eval with errors and missing samples, and a second one that plays the rest."""

    def test_inspect_opens_it(self, merged: Path, logs: list[Path]) -> None:
        log = read_eval_log(str(merged))
        assert log.status == "success"
        keys = [(s.id, s.epoch) for s in log.samples or []]
        assert keys == [("s1", 1), ("s2", 1), ("s3", 1), ("s1", 2), ("s2", 2), ("s3", 2)]
        only_header = read_eval_log(str(merged), header_only=True)
        assert only_header.results == log.results
        assert log.reductions is not None
        one = read_eval_log_sample(str(merged), "s2", 2)
        theirs = read_eval_log_sample(str(logs[1]), "s2", 2)
        assert one == theirs
        assert [(s.id, s.epoch) for s in read_eval_log_sample_summaries(str(merged))] == keys

    def test_finished_samples_are_the_older_logs_bytes(self, merged: Path, logs: list[Path]) -> None:
        older, newer, ours = raw(logs[0]), raw(logs[1]), raw(merged)
        again = {SampleKey("s2", 2), SampleKey("s3", 1)}
        assert ours == {key: (newer if key in again else older)[key] for key in ours}

    def test_its_metrics_are_those_of_an_eval_without_trouble(self, merged: Path, tmp_path: Path) -> None:
        whole = run_eval(tmp_path, ["s1", "s2", "s3"], epochs=2, metadata=PRINT)
        ours = read_eval_log(str(merged))
        assert ours.results is not None
        assert whole.results is not None
        whole.results.scores[0].params = ours.results.scores[0].params
        assert ours.results.model_dump() == whole.results.model_dump()
        assert (ours.reductions or [])[0].model_dump() == (whole.reductions or [])[0].model_dump()
        assert ours.stats.model_usage == whole.stats.model_usage

    def test_what_else_was_spent_is_told_apart(self, merged: Path) -> None:
        attempts = read_eval_log(str(merged), header_only=True).metadata["resumed"]
        assert [entry["samples"] for entry in attempts] == [4, 2]
        assert [entry["superseded"] for entry in attempts] == [
            [{"id": "s3", "epoch": 1, "state": "unscored"}, {"id": "s2", "epoch": 2, "state": "errored"}],
            [{"id": "s2", "epoch": 1, "state": "finished"}, {"id": "s3", "epoch": 2, "state": "finished"}],
        ]
        for entry in attempts:
            assert entry["other_model_usage"] == {
                "mockllm/model": {"input_tokens": 6, "output_tokens": 4, "total_tokens": 10}
            }
            assert entry["usage_complete"]

    def test_equal_inputs_give_equal_bytes(self, merged: Path, logs: list[Path], tmp_path: Path) -> None:
        again = merge(logs, tmp_path / "again.eval").path
        assert again.read_bytes() == merged.read_bytes()

    def test_recomputing_a_finished_log_alone_changes_no_result(
        self, inspect_log: Path, tmp_path: Path
    ) -> None:
        ours = read_eval_log(str(merge([inspect_log], tmp_path / "merged.eval").path), header_only=True)
        theirs = read_eval_log(str(inspect_log), header_only=True)
        assert ours.results is not None
        assert theirs.results is not None
        assert ours.results.model_dump() == theirs.results.model_dump()

    def test_no_code_named_by_a_log_is_run(self, logs: list[Path], tmp_path: Path) -> None:
        trap = tmp_path / "trap.py"
        trap.write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')\n")
        made = header("a", ["1"])
        made["eval"]["task_file"] = str(trap)
        made["eval"]["scorers"].append({"name": "odd", "metrics": [{"name": "nowhere/metric"}]})
        odd = sample("1")
        odd["scores"][f"{trap}@x"] = {"value": 1}
        odd["scores"]["odd"] = {"value": 1}
        merged = merge([write_log(tmp_path / "a.eval", made, [odd])], tmp_path / "m.eval")
        assert merged.uncomputed == ("odd",)
        assert [score["name"] for score in merged.header["results"]["scores"]] == ["points"]
        assert not (tmp_path / "sprung").exists()


class TestMergingMadeLogs:
    def test_preconditions_are_named(self, tmp_path: Path) -> None:
        one = write_log(tmp_path / "one.eval", header("a", ["1"]), [sample("1")])
        other = write_log(tmp_path / "other.eval", header("b", ["1"], metadata={FINGERPRINT: "x"}), [])
        stranger = write_log(tmp_path / "stranger.eval", header("c", ["1", "2"]), [sample("2")])
        twin = tmp_path / "twin.eval"
        shutil.copy(one, twin)
        out = tmp_path / "out.eval"
        with pytest.raises(
            StateError, match=r"other\.eval: is of another configuration \(x\) than .*one\.eval \(abc\)"
        ):
            merge([one, other], out)
        with pytest.raises(
            ValidationError, match=r"stranger\.eval: holds samples that .*one\.eval does not expect: 2"
        ):
            merge([one, stranger], out)
        with pytest.raises(ValidationError, match="one eval id"):
            merge([one, twin], out)
        with pytest.raises(ValidationError, match="is one of the logs"):
            merge([one], one)
        with pytest.raises(ValidationError, match="at least one log"):
            merge([], out)
        assert not out.exists()

    def test_of_two_bad_records_the_better_then_the_later_is_kept(self, tmp_path: Path) -> None:
        ids = ["e", "u", "ue", "eu"]
        nan = math.nan
        first = [
            sample("e", error="old"),
            sample("u", value=nan),
            sample("ue", value=nan),
            sample("eu", error="old"),
        ]
        second = [
            sample("e", error="new"),
            sample("u", value=nan),
            sample("ue", error="new"),
            sample("eu", value=nan),
        ]
        logs = [
            write_log(tmp_path / "a.eval", header("a", ids), first),
            write_log(tmp_path / "b.eval", header("b", ids, status="error"), second),
        ]
        merged = merge(logs, tmp_path / "m.eval")
        assert [(r.id, r.state, r.attempt and r.attempt.path.name) for r in merged.records] == [
            ("e", State.ERRORED, "b.eval"),
            ("u", State.UNSCORED, "b.eval"),
            ("ue", State.UNSCORED, "a.eval"),
            ("eu", State.UNSCORED, "b.eval"),
        ]
        assert merged.header["status"] == "error"
        assert merged.header["error"]["message"] == "1 of 4 samples errored"

    @pytest.mark.parametrize(
        ("last", "second", "status"),
        [
            ("started", [], "cancelled"),
            ("success", [], "cancelled"),
            ("error", [], "error"),
            ("success", [sample("2", error="x")], "success"),
            ("error", [sample("2", error="x")], "error"),
            ("started", [sample("2")], "success"),
        ],
    )
    def test_status(self, tmp_path: Path, last: str, second: list[Any], status: str) -> None:
        ids = ["1", "2"]
        logs = [
            write_log(tmp_path / "a.eval", header("a", ids), [sample("1")], finished=False),
            write_log(tmp_path / "b.eval", header("b", ids, status=last), second, finished=last != "started"),
        ]
        assert merge(logs, tmp_path / "m.eval").header["status"] == status
        assert read_eval_log(str(tmp_path / "m.eval")).status == status

    def test_metadata_is_completed_by_later_attempts(self, tmp_path: Path) -> None:
        one = {
            **PRINT,
            "command": "ct run",
            "late": None,
            "env_versions": {"e": {"repo": "r", "image_digest": None}},
        }
        two = {
            **PRINT,
            "command": "ct run --resume",
            "late": 1,
            "resumes": {"log": "a.eval", "eval_id": "a"},
            "env_versions": {"e": {"repo": "x", "image_digest": "d"}, "f": {"repo": "f"}},
        }
        logs = [
            write_log(
                tmp_path / "a.eval", header("a", ["1", "2"], metadata=one), [sample("1")], finished=False
            ),
            write_log(tmp_path / "b.eval", header("b", ["1", "2"], metadata=two), [sample("2")]),
        ]
        metadata = merge(logs, tmp_path / "m.eval").header["eval"]["metadata"]
        assert metadata["command"] == "ct run"
        assert metadata["late"] == 1
        assert "resumes" not in metadata
        assert metadata["env_versions"] == {"e": {"repo": "r", "image_digest": "d"}, "f": {"repo": "f"}}
        assert [entry["usage_complete"] for entry in metadata["resumed"]] == [False, False]
        assert [entry["command"] for entry in metadata["resumed"]] == ["ct run", "ct run --resume"]


outcomes: st.SearchStrategy[Callable[[Any, int], dict[str, Any]]] = st.one_of(
    st.builds(lambda n: lambda id, epoch: sample(id, epoch, n, tokens=7), st.floats(0, 1)),
    st.just(lambda id, epoch: sample(id, epoch, math.nan, tokens=3)),
    st.just(lambda id, epoch: sample(id, epoch, error="broken", tokens=2)),
)


@given(data=st.data(), epochs=st.integers(1, 3), count=st.integers(1, 4), attempts=st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_merging_loses_nothing_and_counts_nothing_twice(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, epochs: int, count: int, attempts: int
) -> None:
    folder = tmp_path_factory.mktemp("merge")
    ids: list[Any] = [f"s/{n}" for n in range(count)]
    every = [(id, epoch) for epoch in range(1, epochs + 1) for id in ids]
    logs: list[Path] = []
    for number in range(attempts):
        played = data.draw(st.lists(st.sampled_from(every), unique=True))
        samples = [data.draw(outcomes)(id, epoch) for id, epoch in played]
        finished = data.draw(st.booleans())
        made = header(f"e{number}", ids, epochs=epochs)
        if finished:
            made["stats"] = {"model_usage": added(usage_of(s, "model_usage") for s in samples)}
        logs.append(write_log(folder / f"{number}.eval", made, samples, finished=finished))
    merged = merge(logs, folder / "merged.eval")

    ours, theirs = raw(merged.path), [raw(log) for log in logs]
    with EvalArchive.open(merged.path) as archive:
        rows, head = archive.summaries(), archive.header()
    assert [SampleKey.of(row) for row in rows] == [
        SampleKey(id, e) for id, e in every if SampleKey(id, e) in ours
    ]
    for key in {SampleKey(id, epoch) for id, epoch in every}:
        held = [log[key] for log in theirs if key in log]
        assert (key in ours) == bool(held)
        assert not held or ours[key] in held
    finished_somewhere = {
        key for log in logs for key, state in read_attempt(log).states.items() if state is State.FINISHED
    }
    assert {r.key for r in merged.records if r.state is State.FINISHED} == finished_somewhere
    spent = added(
        usage_of(row, "model_usage") for log in logs for row in read_attempt(log).summaries.values()
    )
    told = [usage_of(head["stats"], "model_usage")]
    told += [usage_of(entry, "other_model_usage") for entry in head["eval"]["metadata"]["resumed"]]
    total = added(told)
    assert total.keys() == spent.keys()
    for model, counts in spent.items():
        assert total[model] == pytest.approx(counts)
    assert read_eval_log(str(merged.path)).eval.eval_id == head["eval"]["eval_id"]
