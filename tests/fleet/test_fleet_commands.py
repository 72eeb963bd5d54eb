"""`ct fleet` over a store that was filled by hand: nobody leads, nothing runs."""

import asyncio
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from control_tower.cli.app import cli
from control_tower.errors import ExpectedError, UsageError
from control_tower.fleet.directory import DirectoryStore
from control_tower.fleet.documents import Asked, Control, Ending
from control_tower.fleet.events import Told
from control_tower.fleet.facts import Changed
from control_tower.fleet.keys import Keys
from control_tower.fleet.place import local_place
from control_tower.fleet.plan import header_log, publish
from control_tower.fleet.reconcile import Policy
from control_tower.fleet.standing import begin, read_standing
from control_tower.logs.validate import validate_log
from tests.evals.test_run_eval import CT, Finished, ct
from tests.fleet.played import PlayedFleet, toy_run, toy_setting, wait

DEMO = "-e demo/web_scraping -t crawl_depth"


@pytest.fixture(name="played", scope="module")
def _played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlayedFleet]:
    """An honest sample and two attacks, of which the one with `stain` failed."""
    with toy_setting():
        fleet = PlayedFleet(tmp_path_factory.mktemp("fleet"), toy_run())
        fleet.play()
        yield fleet


class Kept:
    """The same fleet where the commands look."""

    def __init__(self, played: PlayedFleet, tmp_path: Path) -> None:
        self.played = played
        self.fleet = played.copy(tmp_path)
        self.root = local_place("").root
        self.fleet.store = DirectoryStore(self.root)  # type: ignore[assignment]
        wait(publish(self.fleet.plan, header_log(played.run, tmp_path / "header"), self.fleet.store))
        self.id = self.fleet.plan.fleet

    def decide(
        self, sample: str, status: str = "completed", attempt: int = 1, usd: float | None = 0.5
    ) -> str:
        """A job gets the verdict that it had; returns its id."""
        job = self.fleet.job(sample)
        self.fleet.claim(job, attempt)
        self.fleet.verdict(job, self.played.log(job), status=status, attempt=attempt, usd=usd)
        return job.id

    def end(self, sample: str, attempt: int, category: Any) -> str:
        """An attempt failed; returns the job's id."""
        job = self.fleet.job(sample)
        self.fleet.claim(job, attempt)
        fields = {"worker": "local-1-abcd", "boot": "b", "outcome": "failed", "category": category}
        ending = Ending(job=job.id, n=attempt, error_summary="it broke", usd=0.25, **fields)  # pyright: ignore[reportArgumentType]
        wait(self.fleet.store.create(self.fleet.keys.outcome(job.id, attempt), ending.text().encode()))
        return job.id

    def files(self) -> dict[str, bytes]:
        """All that is kept, by path."""
        return {str(path): path.read_bytes() for path in self.root.rglob("*") if path.is_file()}


@pytest.fixture(name="kept")
def _kept(played: PlayedFleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kept:
    monkeypatch.setenv("CONTROL_TOWER_DATA_DIR", str(tmp_path / "data"))
    return Kept(played, tmp_path)


def ran(*words: str) -> Result:
    """A command that succeeds."""
    done = CliRunner().invoke(cli, ["fleet", *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done


def told(*words: str) -> Any:
    """The JSON that it prints; nothing else is on stdout."""
    return json.loads(
        ran(*words, "--format", "json").stdout, parse_constant=lambda name: pytest.fail(f"{name} is no JSON")
    )


def refused(*words: str) -> str:
    """The one line of a command that cannot be carried out."""
    with pytest.raises(ExpectedError) as error:
        cli.main(["fleet", *words], standalone_mode=False)
    assert error.value.exit_code == 1
    return str(error.value)


def test_a_list_says_how_far_each_fleet_is(kept: Kept) -> None:
    kept.decide("mark")
    [row] = told("list", "--all")
    assert {key: row[key] for key in ("id", "completed", "failed", "total", "workers")} == {
        "id": kept.id,
        "completed": 1,
        "failed": 0,
        "total": 3,
        "workers": 0,
    }


def test_status_says_what_the_core_would_do_and_touches_nothing(kept: Kept) -> None:
    kept.decide("mark")
    job = kept.end("stain", 1, "eval_error")
    before = kept.files()
    said = ran("status", kept.id[:6]).stdout
    assert "1 completed, 0 failed" in said
    assert any("offer attempt 2" in line and job[:8] in line for line in said.splitlines()), said
    assert any("eval_error" in line for line in said.splitlines()), said
    assert kept.files() == before


def test_status_says_when_a_job_would_fail(kept: Kept) -> None:
    for attempt in (1, 2, 3):
        job = kept.end("stain", attempt, "eval_error")
    said = ran("status", kept.id).stdout
    assert any("failed verdict" in line and job[:8] in line for line in said.splitlines()), said


def test_status_says_how_a_fleet_goes_on_whose_budget_is_spent(kept: Kept) -> None:
    control = Control(epoch=1, turn=1, mode="pause", why="the hard budget is spent")
    wait(kept.fleet.store.put(kept.fleet.keys.control, control.text().encode()))
    then = f"ct fleet set {kept.id} budget_hard_usd=..., then ct fleet resume {kept.id}"
    assert f"begin nothing new: the hard budget is spent; to go on: {then}" in ran("status", kept.id).stdout


def test_why_names_every_attempt_by_job_or_by_sample(kept: Kept) -> None:
    job = kept.end("stain", 1, "sandbox")
    by_job = told("why", kept.id, job[:10])
    assert by_job == told("why", kept.id, kept.fleet.job("stain").sample)
    [attempt] = by_job["attempts"]
    assert (attempt["attempt"], attempt["category"], attempt["worker"]) == (1, "sandbox", "local-1-abcd")
    assert "it broke" in json.dumps(attempt)
    assert "2" in by_job["next"]


def test_nothing_follows_for_a_job_whose_failed_verdict_is_there(kept: Kept) -> None:
    job = kept.end("stain", 1, "prerequisite")
    assert "write the failed verdict" in told("why", kept.id, job)["next"]
    kept.decide("stain", status="failed")
    said = told("why", kept.id, job)
    assert [(one["attempt"], one["outcome"], one["verdict"]) for one in said["attempts"]] == [
        (1, "failed", True)
    ]
    assert said["next"].startswith("nothing: attempt 1 is the verdict, failed")


def test_what_nobody_is_heard_of_would_be_offered_again_after_three_minutes(kept: Kept) -> None:
    kept.fleet.claim(kept.fleet.job("mark"))
    [step] = [one for one in told("status", kept.id)["next"] if one["in_s"]]
    assert (step["jobs"], step["in_s"]) == ([kept.fleet.job("mark").id], 180.0)
    assert "offer attempt 2" in step["text"]
    assert "is gone, is lost unless a heartbeat lists it" in step["text"]


def test_cost_tells_results_from_waste_and_names_what_has_no_price(kept: Kept) -> None:
    kept.end("mark", 1, "network")
    kept.decide("mark", attempt=2)
    kept.decide("greet", usd=None)
    kept.fleet.claim(kept.fleet.job("stain"))
    cost = told("cost", kept.id)
    assert cost["accepted"] == {"usd": None, "incomplete": True}
    assert cost["repeated"] == {"usd": 0.5, "incomplete": False}
    assert cost["wasted"] == {"usd": 0.25, "incomplete": False}
    assert (cost["attempts"], cost["unpriced"], cost["unaccounted"]) == (4, 1, 1)


def test_a_part_is_merged_when_that_is_asked_for(kept: Kept, tmp_path: Path) -> None:
    kept.decide("mark")
    kept.decide("stain", status="failed")
    assert "ct fleet merge" in refused("merge", kept.id)
    log = tmp_path / "part.eval"
    merged = told("merge", kept.id, "--partial", "--output", str(log))
    assert (merged["log"], len(merged["failed"]), len(merged["missing"])) == (str(log), 1, 1)
    assert validate_log(log) == []


def test_lost_events_are_made_anew_and_torn_ones_are_named(kept: Kept, tmp_path: Path) -> None:
    marked = kept.decide("mark")
    kept.decide("stain", status="failed")
    lines = [json.loads(line) for line in ran("events", kept.id).stdout.splitlines()]
    done = {line["job_id"]: line["status"] for line in lines if line["type"] == "job_done"}
    assert sorted(done.values()) == ["completed", "failed"]
    # The attempt that failed left no account of its samples.
    assert [line["job_id"] for line in lines if line["type"] == "result"] == [marked]
    torn = tmp_path / "torn.jsonl"
    torn.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"type":"resu')
    said = CliRunner().invoke(cli, ["fleet", "replay", str(torn)])
    assert said.exit_code == 1
    assert "Completed:      1" in said.stdout
    assert "torn" in said.output


def test_what_is_set_is_kept_for_whoever_leads_next(kept: Kept) -> None:
    assert "from when it goes on" in ran("set", kept.id, "workers=3").stdout
    [asked] = (kept.root / kept.id / "asked").glob("*.json")
    assert Asked.read(asked.read_bytes()) == Asked(kind="set", workers=3)
    ran("set", kept.id, "budget_usd=5", "budget_hard_usd=7")
    ran("set", kept.id, "budget_usd=6")
    standing = asyncio.run(read_standing(DirectoryStore(kept.root), Keys(kept.id), pytest.fail))
    _, (changed, *_) = begin(kept.id, (), Policy(), Told(), standing)
    assert changed == Changed(None, 6, 7, 3)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("set", "budget_usd=none"), "budget_usd cannot be taken away"),
        (("set", "workers=0"), "ct fleet set: argument 'workers' is '0'"),
        (("down", "--delete"), "say --yes to remove all results"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(kept: Kept, words: tuple[str, ...], why: str) -> None:
    before = kept.files()
    with pytest.raises(UsageError, match=why):
        cli.main(["fleet", words[0], kept.id, *words[1:]], standalone_mode=False)
    assert kept.files() == before


def test_ending_what_does_not_run_is_no_error(kept: Kept) -> None:
    for word in ("drain", "stop"):
        assert "nothing runs" in ran(word, kept.id).stdout


def test_down_keeps_results_unless_they_are_to_go(kept: Kept) -> None:
    kept.decide("mark")
    before = kept.files()
    place = local_place(kept.id)
    place.workers.mkdir(parents=True)
    assert "worker logs and scratch" in ran("down", kept.id).stdout
    assert "nothing was left" in ran("down", kept.id).stdout
    assert kept.files() == before
    assert "results" in ran("down", kept.id, "--delete", "--yes").stdout
    assert "there is no fleet" in refused("status", kept.id)


@pytest.mark.slow
def test_a_fleet_that_runs_alone_is_drained_gone_on_with_and_watched(tmp_path: Path) -> None:
    where = {"CONTROL_TOWER_DATA_DIR": str(tmp_path / "data"), "CONTROL_TOWER_FLEET_SPEED": "5"}

    def run(words: str) -> Finished:
        return ct(words, tmp_path, **where)

    fleet = "--fleet local --fleet-arg workers=1 --fleet-arg slots=1 --fleet-arg detach=true --no-upload"
    begun = run(f"run eval --policy sleep -p min_s=2 -p max_s=2 {DEMO} --epochs 8 {fleet}")
    assert begun.returncode == 0, begun.stderr
    [id] = [one["id"] for one in json.loads(run("fleet list --format json").stdout)]
    assert json.loads(run(f"fleet status {id} --format json").stdout)["state"] == "detached"
    drained = run(f"fleet drain {id}")
    assert "this command does, to end its workers" in drained.stderr
    left = json.loads(run(f"fleet status {id} --format json").stdout)
    assert (left["state"], left["workers"]) == ("interrupted", [])
    done = left["jobs"]["completed"]
    assert done < 8
    assert f"{done} of 8 jobs are done and kept" in drained.stdout
    words = [CT, "fleet", "resume", id, "--format", "json"]
    with (tmp_path / "told").open("wb") as told:
        leader = subprocess.Popen(words, cwd=tmp_path, env={**os.environ, **where}, stdout=told)
        lease = tmp_path / "data" / "fleets" / id / "controller.json"
        while f"-{leader.pid}-" not in lease.read_text():
            assert leader.poll() is None
            time.sleep(0.1)
        watched = run(f"fleet attach {id}")
        assert leader.wait(60) == 0
    assert f"pid {leader.pid} leads fleet {id}; this command watches" in watched.stderr
    assert "All 8 jobs are decided: 8 completed, 0 failed" in watched.stdout
    assert json.loads((tmp_path / "told").read_text())["samples"] == 8
    assert run(f"fleet replay logs/fleet/{id}/events.jsonl").returncode == 0


def test_unknown_fleets_and_jobs_are_named_with_the_nearest(kept: Kept) -> None:
    assert kept.id in refused("status", "x" + kept.id[1:])
    assert "no job 'zzz'" in refused("why", kept.id, "zzz")
