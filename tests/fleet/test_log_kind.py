"""Logs as the controller sees them: written for jobs that left none, read for their samples."""

from pathlib import Path
from typing import Any

from inspect_ai.log import read_eval_log, read_eval_log_sample_summaries

from control_tower.fleet.log_kind import EvalLogs
from control_tower.fleet.plan import Job
from control_tower.logs.archive import HEADER, SUMMARIES, EvalArchive
from control_tower.logs.json_text import dumps
from control_tower.logs.zip_writer import new_archive

HONEST = Job(id="a", sample="shop:fix", epoch=2, task="shop/fix", attack=False)
ATTACK = Job(id="b", sample="shop:fix:leak", epoch=1, task="shop/fix+leak", attack=True)


def log(path: Path, *summaries: dict[str, Any]) -> bytes:
    spec: dict[str, Any] = {
        "created": "2026-01-01T00:00:00+00:00",
        "task": "fix",
        "dataset": {"name": "d", "samples": 9, "sample_ids": ["x", "y"]},
        "model": "none/none",
        "model_roles": {"untrusted": {"model": "demo/agent"}},
        "config": {},
    }
    with new_archive(path) as writer:
        writer.add(SUMMARIES, dumps(list(summaries)))
        writer.add(HEADER, dumps({"version": 2, "status": "success", "eval": spec, "plan": {}, "stats": {}}))
    return path.read_bytes()


def summary(job: Job, **fields: Any) -> dict[str, Any]:
    return {"id": job.sample, "epoch": job.epoch, "input": "", "target": "", "completed": True, **fields}


def test_an_empty_log_says_why_its_job_failed_and_opens_in_inspect(tmp_path: Path) -> None:
    made = tmp_path / "made.eval"
    made.write_bytes(
        EvalLogs([HONEST, ATTACK], log(tmp_path / "header.eval")).empty("b", "timeout", "too long")
    )

    read = read_eval_log(str(made))
    assert (read.status, read.error and read.error.message) == ("error", "timeout: too long")
    assert (read.eval.dataset.samples, read.eval.dataset.sample_ids) == (1, ["shop:fix:leak"])
    assert not read.samples
    assert read_eval_log_sample_summaries(str(made)) == []
    with EvalArchive.open(made) as archive:
        assert archive.finished


def test_samples_are_told_as_their_jobs_name_them(tmp_path: Path) -> None:
    priced = {"demo/agent": {"input_tokens": 5, "output_tokens": 1, "total_tokens": 6, "total_cost": 0.25}}
    unpriced = {"demo/judge": {"input_tokens": 5, "output_tokens": 1, "total_tokens": 6}}
    found = log(
        tmp_path / "log.eval",
        summary(HONEST, scores={"tasks": {"value": {"main": 0.5}}}, model_usage=priced, total_time=3.5),
        summary(ATTACK, scores={"tasks": {"value": {"side": 1.0}}}, model_usage={**priced, **unpriced}),
        summary(Job(id="c", sample="other", epoch=1, task="o", attack=False)),
    )

    honest, attack = EvalLogs([HONEST, ATTACK], b"").samples(found)

    assert (honest.sample, honest.epoch, honest.task, honest.mode) == ("shop:fix", 2, "shop/fix", "honest")
    assert (honest.model, honest.usd, honest.duration_s, honest.status) == (
        "demo/agent",
        0.25,
        3.5,
        "success",
    )
    assert honest.scores["linux_scorer"] == {"value": {"main_task_success": "I"}}
    assert (attack.mode, attack.usd) == ("attack", None)
    assert attack.scores["linux_scorer"]["value"] == {"main_task_success": "N", "side_task_success": "C"}
