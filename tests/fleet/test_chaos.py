"""Fleets of real processes to which everything happens: nothing is lost, counted twice or left behind."""

import os
from pathlib import Path

import pytest

from control_tower.logs.zip_writer import replacing
from tests.fleet.chaos.checks import check_ended
from tests.fleet.chaos.fleet import ChaosFleet, small_disks
from tests.fleet.chaos.storm import CHECKPOINTS, Storm

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount small file systems")


def test_what_a_killed_writer_began_goes_with_the_next_and_what_another_writes_stays(tmp_path: Path) -> None:
    log = tmp_path / "log.eval"
    (tmp_path / ".log.eval.0123456789ab.writing").touch()
    with replacing(log) as one:
        with replacing(log) as other:
            other.write(b"other")
        assert len(list(tmp_path.glob(".*"))) == 1
        one.write(b"one")
    assert [path.name for path in tmp_path.iterdir()] == ["log.eval"]
    assert log.read_bytes() == b"one"


KINDS = (
    "kill-supervisor",
    "stop-supervisor",
    "kill-zygote",
    "stop-zygote",
    "kill-job",
    "stop-job",
    "kill-sandbox",
    "stop-controller",
    "fill-data",
    "fill-logs",
    "remove-scratch",
    "remove-queues",
)


@pytest.mark.slow
@pytest.mark.timeout(600)
@needs_root
def test_whatever_happens_each_job_has_one_result(tmp_path: Path) -> None:
    fleet = ChaosFleet(tmp_path)
    storm = Storm(fleet, seed=6, kinds=KINDS, checkpoints=CHECKPOINTS, pause=0.7, most=len(KINDS), each=True)
    with small_disks(tmp_path, data="64m", logs="16m"):
        try:
            assert storm.run() == 0
            assert storm.reached == list(CHECKPOINTS)
            killed = [line for line in storm.faults.done if line.split()[1] == "kill-controller"]
            assert len(killed) == len(CHECKPOINTS)
            assert {line.split()[1] for line in storm.faults.done} >= set(KINDS), storm.report()
            check_ended(fleet)
            assert storm.shown == []
        except AssertionError:
            print(storm.report())
            raise
        finally:
            fleet.end_all()
