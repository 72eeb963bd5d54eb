"""A viewer without `/api/v1`: runs are made and found all the same; the rest says what is missing."""

import hashlib
import json
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from control_tower.logs.json_text import JsonObject
from tests.agent_runs.sites import header, sample
from tests.client.stub import Answer, Asked, Stub, json_answer, stub
from tests.client.using import User
from tests.logs.log_making import write_log


@dataclass
class OlderViewer:
    """Keeps what it is given, as such viewers do."""

    logs: dict[str, bytes] = field(default_factory=dict[str, bytes])
    runs: dict[str, JsonObject] = field(default_factory=dict[str, JsonObject])
    batches: list[JsonObject] = field(default_factory=list[JsonObject])
    stub: Stub | None = None

    def __call__(self, asked: Asked) -> Answer:
        path, _, query = asked.path.partition("?")
        if path == "/api/eval-logs/upload":
            assert self.stub
            name = json.loads(asked.body)["filename"]
            return json_answer({"url": f"{self.stub.url}/put/{name}?sig=x", "bucket": "logs"})
        if path.startswith("/put/"):
            assert asked.token is None
            assert asked.headers["If-None-Match"] == "*"
            assert asked.headers["Content-Length"] == str(len(asked.body))
            self.logs[path.removeprefix("/put/")] = asked.body
            return Answer(200, b"", {"ETag": f'"{hashlib.md5(asked.body).hexdigest()}"'})
        if path == "/api/trajectories/register":
            body = json.loads(asked.body)
            self.batches.append(body)
            if "run" in body:
                self.runs[body["run"]["run_id"]] = body["run"]
            return json_answer({})
        if path == "/api/runs":
            tag = query.partition("tags_include=")[2].partition("&")[0]
            return json_answer(
                {"items": [run for run in self.runs.values() if not tag or tag in run["tags"]]}
            )
        if path.startswith("/api/runs/"):
            id, _, rest = path.removeprefix("/api/runs/").partition("/")
            if id in self.runs:
                return Answer(200, self.logs[f"{id}.eval"]) if rest == "eval" else json_answer(self.runs[id])
        return json_answer({"error": "not found"}, 404)


@pytest.fixture
def viewer() -> Generator[OlderViewer]:
    found = OlderViewer()
    with stub(found) as found.stub:
        yield found


@pytest.fixture
def older(user: User, viewer: OlderViewer) -> User:
    assert viewer.stub
    return User(user.folder, user.capsys, {**user.environment, "CONTROL_TOWER_API_BASE_URL": viewer.stub.url})


def test_runs_are_made_listed_shown_and_downloaded(older: User, viewer: OlderViewer, log: Path) -> None:
    made: Any = older.done("runs", "make", log, "--tag", "old", "--format", "json").json
    run_id = made["run_id"]
    [batch] = viewer.batches
    assert (batch["schema_version"], batch["client"]) == (3, "control-tower")
    assert batch["eval_log_sizes"] == {f"{run_id}.eval": log.stat().st_size}
    assert batch["run"]["tags"] == ["old"]
    assert made["eval_log_url"] == batch["run"]["eval_log_url"] == f"s3://logs/{run_id}.eval"
    documents = {document["eval_sample_id"]: document for document in batch["trajectories"]}
    assert sorted(documents) == ["a", "b", "c"]
    assert documents["a"]["run_id"] == run_id
    assert documents["a"]["eval_log_url"] == f"s3://logs/{run_id}.eval/samples/sample/a"
    found = documents["a"]["eval_sample_range"]
    assert found["key"] == f"{run_id}.eval"
    assert found["eTag"] == f'"{hashlib.md5(log.read_bytes()).hexdigest()}"'
    assert len({document["trajectory_id"] for document in documents.values()}) == 3

    assert [run["run_id"] for run in older.done("runs", "list", "--tag", "old", "--format", "json").json] == [
        run_id
    ]
    assert "old" in older.done("runs", "list").out
    assert "Trajectory Count" in older.done("runs", "info", run_id).out
    path = older.done("runs", "download-eval", run_id).out.strip()
    assert (older.folder / path).read_bytes() == log.read_bytes()


def test_batches_hold_at_most_fifty_documents_and_the_last_the_header(
    older: User, viewer: OlderViewer, tmp_path: Path
) -> None:
    samples = [sample(f"s{number}", main=1.0) for number in range(120)]
    older.done("runs", "make", write_log(tmp_path / "many.eval", header(), samples))
    assert [len(batch["trajectories"]) for batch in viewer.batches] == [50, 50, 20]
    assert ["run" in batch for batch in viewer.batches] == [False, False, True]


@pytest.mark.parametrize(
    "words", [("rm", "abc"), ("restore", "abc"), ("list", "--where", "policy:x"), ("list", "--sort", "name")]
)
def test_what_it_cannot_do_is_said(older: User, words: tuple[str, ...]) -> None:
    said = older.ct("runs", *words)
    assert said.code == 1
    assert "has no /api/v1" in said.err


def test_a_store_that_refuses_the_log_leaves_no_run(older: User, viewer: OlderViewer, log: Path) -> None:
    kept = viewer.__call__

    def refusing(asked: Asked) -> Answer:
        return Answer(412) if asked.path.startswith("/put/") else kept(asked)

    with stub(refusing) as viewer.stub:
        said = older.ct("runs", "make", log, CONTROL_TOWER_API_BASE_URL=viewer.stub.url)
    assert said.code == 1
    assert "status 412" in said.err
    assert viewer.batches == []
