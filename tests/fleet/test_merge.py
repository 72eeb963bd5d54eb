"""Merging a fleet: one log, as one process would have written it, of exactly what was sealed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from inspect_ai.log import read_eval_log

from control_tower.errors import StateError
from control_tower.evals.local import LocalRun, results_of, run_local
from control_tower.evals.plan import RunPlan
from control_tower.evals.results import Results
from control_tower.evals.table import result_lines
from control_tower.fleet.merge import MergedFleet, merge_fleet
from control_tower.fleet.plan import Job
from control_tower.logs.archive import EvalArchive
from control_tower.logs.diff import diff_logs
from control_tower.logs.validate import validate_log
from tests.fleet.played import WORKER, PlayedFleet, toy_run, toy_setting, wait

HONEST, MARKED, STAINED = ":greet", ":greet:mark", ":greet:stain"


@pytest.fixture(scope="module")
def run() -> Iterator[RunPlan]:
    """Three samples, each at two epochs; one of them errors."""
    with toy_setting():
        yield toy_run(eval_args={"epochs": 2})


@pytest.fixture(scope="module")
def local(run: RunPlan, tmp_path_factory: pytest.TempPathFactory) -> LocalRun:
    """The run played by one process."""
    return run_local(run, tmp_path_factory.mktemp("local"))


@pytest.fixture(scope="module")
def _played(run: RunPlan, tmp_path_factory: pytest.TempPathFactory) -> PlayedFleet:
    fleet = PlayedFleet(tmp_path_factory.mktemp("fleet"), run)
    fleet.play()
    return fleet


@pytest.fixture
def fleet(_played: PlayedFleet, tmp_path: Path) -> PlayedFleet:
    """The run played by a fleet; a copy that a test may change."""
    return _played.copy(tmp_path)


def merged(fleet: PlayedFleet, partial: bool = False) -> MergedFleet:
    """Its merged log."""
    return wait(merge_fleet(fleet.store, fleet.plan.fleet, fleet.folder / "merged", partial))


def test_a_merged_log_is_that_of_one_process(run: RunPlan, local: LocalRun, fleet: PlayedFleet) -> None:
    fleet.seal()
    log = merged(fleet).path
    differences = [
        f"{one.where}: {one.path}"
        for one in diff_logs(local.results.log, log, ("ids", "times"))
        # Ids that an assignment of the state replaced; a summary has only the begin of an explanation.
        if not (
            one.path.endswith(".replaced") or (one.where, one.path[-11:]) == ("reductions", "explanation")
        )
    ]
    assert differences == ["header: eval.metadata.fleet"]
    assert validate_log(log) == []
    own, others = (lines(results_of(run, path)) for path in (log, local.results.log))
    assert own
    assert own == others


def lines(results: Results) -> list[tuple[str, str]]:
    """The table of a run, but for where its log is and how long it took."""
    return [line for line in result_lines(results, []) if str(results.log) not in line[1]]


def test_inspect_reads_it_as_a_run_in_which_two_samples_errored(fleet: PlayedFleet) -> None:
    fleet.seal()
    made = merged(fleet)
    log = read_eval_log(str(made.path))
    assert log.status == "error"
    assert log.results and (log.results.total_samples, log.results.completed_samples) == (6, 4)
    assert log.samples and [bool(sample.error) for sample in log.samples].count(True) == 2
    assert set(made.failed) == {fleet.job(STAINED, epoch).id for epoch in (1, 2)}
    assert (made.missing, made.alarms) == ((), ())


def test_the_header_says_whose_results_they_are(fleet: PlayedFleet) -> None:
    job = fleet.job(MARKED, 2)
    fleet.claim(job, attempt=3, worker="local-2-ffff")
    fleet.verdict(job, fleet.log(job), attempt=3, worker="local-2-ffff")
    fleet.seal()
    with EvalArchive.open(merged(fleet).path) as archive:
        said = archive.header()["eval"]["metadata"]["fleet"]
    samples = said.pop("samples")
    counts = {"jobs": 6, "completed": 4, "failed": 2, "repeated": 1}
    assert said == {"fleet_id": fleet.plan.fleet, "seal": 1, **counts}
    assert samples[job.sample] == {
        "1": {"attempt": 1, "worker": WORKER},
        "2": {"attempt": 3, "worker": "local-2-ffff"},
    }


def test_merging_again_gives_the_same_bytes_and_another_seal_another_log(fleet: PlayedFleet) -> None:
    fleet.seal()
    first = merged(fleet).path
    content = first.read_bytes()
    first.unlink()
    assert merged(fleet).path == first
    assert first.read_bytes() == content
    fleet.seal(2)
    second = merged(fleet).path
    assert second != first
    assert eval_id(second) != eval_id(first)


def eval_id(log: Path) -> str:
    """What names a log."""
    with EvalArchive.open(log) as archive:
        return archive.header()["eval"]["eval_id"]


def test_a_failed_job_without_a_sample_is_missing_and_named(fleet: PlayedFleet) -> None:
    job = fleet.job(STAINED, 2)
    header = wait(fleet.store.get(fleet.keys.header))
    assert header
    fleet.verdict(job, header.body, status="failed", worker="")
    fleet.seal()
    made = merged(fleet)
    assert made.missing == (f"{job.sample} (epoch 2)",)
    assert job.id in made.failed
    assert made.alarms == ()
    log = read_eval_log(str(made.path))
    assert log.status == "error"
    assert log.error and log.error.message == "1 of 6 samples are missing"
    assert log.results and (log.results.total_samples, log.results.completed_samples) == (6, 4)


def test_errors_that_are_allowed_leave_the_run_a_success(tmp_path: Path) -> None:
    with toy_setting():
        fleet = PlayedFleet(tmp_path, toy_run(eval_args={"fail_on_error": 0.5}))
        fleet.play()
    fleet.seal()
    assert read_eval_log(str(merged(fleet).path), header_only=True).status == "success"


def test_only_a_sealed_fleet_is_merged_unless_a_part_will_do(fleet: PlayedFleet) -> None:
    job = fleet.job(HONEST, 2)
    wait(fleet.store.delete(fleet.keys.verdict(job.id)))
    with pytest.raises(StateError, match=f"fleet {fleet.plan.fleet} is not sealed.*--partial"):
        merged(fleet)
    made = merged(fleet, partial=True)
    assert made.missing == (f"{job.sample} (epoch 2)",)
    assert made.path.stem.endswith("-partial")
    log = read_eval_log(str(made.path))
    assert log.status == "cancelled"
    assert log.samples and len(log.samples) == 5


def test_what_changed_after_the_seal_is_refused(fleet: PlayedFleet) -> None:
    job = fleet.job(HONEST)
    fleet.seal()
    fleet.verdict(job, fleet.log(fleet.job(HONEST, 2)))
    with pytest.raises(StateError, match=rf"{job.id}\.eval: is not what fleet .* sealed"):
        merged(fleet)
    assert not list(fleet.folder.glob("merged/*"))


def test_what_came_after_the_seal_is_left_out(fleet: PlayedFleet) -> None:
    job = fleet.job(HONEST)
    log = fleet.log(job)
    wait(fleet.store.delete(fleet.keys.verdict(job.id)))
    fleet.seal()
    fleet.verdict(job, log)
    assert merged(fleet).missing == (f"{job.sample} (epoch 1)",)


class TestResultsThatDoNotCount:
    def refused(self, fleet: PlayedFleet, job: Job) -> str:
        """Why a job's result is not accepted."""
        fleet.seal()
        made = merged(fleet)
        [alarm] = made.alarms
        assert job.id in alarm
        assert made.missing == (f"{job.sample} (epoch {job.epoch})",)
        with EvalArchive.open(made.path) as archive:
            assert len(archive.sample_keys()) == 5
            assert archive.header()["status"] == "error"
        return alarm

    def test_of_an_attempt_that_nobody_claimed(self, fleet: PlayedFleet) -> None:
        job = fleet.job(HONEST)
        fleet.verdict(job, fleet.log(job), attempt=2)
        assert "nobody claimed attempt 2" in self.refused(fleet, job)

    def test_of_an_attempt_that_another_worker_claimed(self, fleet: PlayedFleet) -> None:
        job = fleet.job(HONEST)
        fleet.verdict(job, fleet.log(job), worker="local-9-eeee")
        assert f"it is of 'local-9-eeee', and {WORKER} claimed attempt 1" in self.refused(fleet, job)

    @pytest.mark.parametrize(("sample", "epoch"), [(MARKED, 1), (HONEST, 2)])
    def test_of_another_sample_or_epoch(self, fleet: PlayedFleet, sample: str, epoch: int) -> None:
        job = fleet.job(HONEST)
        other = fleet.job(sample, epoch)
        fleet.verdict(job, fleet.log(other))
        assert f"its log holds {other.sample}" in self.refused(fleet, job)

    def test_without_the_sample(self, fleet: PlayedFleet) -> None:
        job, header = fleet.job(HONEST), wait(fleet.store.get(fleet.keys.header))
        assert header
        fleet.verdict(job, header.body)
        assert "its log holds no sample" in self.refused(fleet, job)

    def test_of_other_bytes_than_were_written(self, fleet: PlayedFleet) -> None:
        job = fleet.job(HONEST)
        fleet.verdict(job, fleet.log(job), sha256="0" * 64)
        assert "its bytes are not those that were written" in self.refused(fleet, job)

    def test_that_are_no_log(self, fleet: PlayedFleet) -> None:
        job = fleet.job(HONEST)
        fleet.verdict(job, b"not a log")
        assert "is not accepted" in self.refused(fleet, job)
