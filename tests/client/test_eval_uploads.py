"""What becomes of the log of `ct run eval` and `ct run monitor`: a run, and never the eval's failure."""

import json
import shutil
import subprocess
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from control_tower.agent_runs.accounts.token_text import new_token
from control_tower.logs.archive import edit_header
from tests.client.serving import Server, serving
from tests.client.stub import Answer, Asked, json_answer, stub
from tests.client.using import Said, User
from tests.support.viewer_server import CT

EVAL = [
    "run",
    "eval",
    "--policy",
    "scripted",
    "-e",
    "demo/web_scraping",
    "-t",
    "crawl_depth",
    "--format",
    "json",
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    with serving(tmp_path_factory.mktemp("server")) as found:
        yield found


@pytest.fixture(scope="module")
def demo_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished log of the demo."""
    folder = tmp_path_factory.mktemp("played")
    subprocess.run([CT, *EVAL, "--no-upload"], cwd=folder, check=True, capture_output=True)
    [log] = (folder / "logs").glob("*.eval")
    return log


@pytest.fixture
def played(demo_log: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copy(demo_log, tmp_path))


def away(**more: str) -> dict[str, str]:
    """A viewer that nobody reaches."""
    return {"CONTROL_TOWER_API_BASE_URL": "http://127.0.0.1:9", **more}


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("control_tower.client.session.ATTEMPTS", 1)


def runs(user: User, **environment: str) -> list[dict[str, Any]]:
    return user.done("runs", "list", "--format", "json", **environment).json


def test_no_upload_keeps_the_log_here(user: User) -> None:
    told = user.done(*EVAL, "--no-upload").json
    assert (user.folder / told["log"]).is_file()
    assert told["run_id"] is None
    assert runs(user) == []


def test_a_viewer_that_is_away_does_not_fail_the_eval(user: User, server: Server) -> None:
    said = user.done(*EVAL, **away())
    assert "will probably not be uploaded" in said.err
    told = said.json
    assert told["run_id"] is None
    log = user.folder / told["log"]
    assert log.is_file()
    assert f"ct runs make {told['log']}" in told["not_uploaded"].replace("'", "")
    note = json.loads(log.with_name(f"{log.name}.unsent").read_bytes())
    assert note["viewer"] == "http://127.0.0.1:9"
    # The same command once the viewer is there again.
    made = user.done("runs", "make", told["log"], "--format", "json", CONTROL_TOWER_API_BASE_URL=server.url)
    assert [run["run_id"] for run in runs(user, CONTROL_TOWER_API_BASE_URL=server.url)] == [
        made.json["run_id"]
    ]
    assert list(log.parent.glob("*.unsent")) == []


def refused(user: User, *words: str, **environment: str) -> Said:
    said = user.ct(*EVAL, *words, **environment)
    assert said.code == 1
    return said


def test_an_upload_that_was_asked_for_is_checked_before_anything_is_played(user: User) -> None:
    said = refused(user, "--upload", **away())
    assert "cannot be reached" in said.err
    assert not (user.folder / "logs").exists()


def test_a_reader_s_token_is_found_before_the_eval(user: User) -> None:
    _, token = new_token()

    def answer(asked: Asked) -> Answer:
        told = {"name": "ann", "scopes": ["runs:read"]}
        return json_answer(told) if asked.path == "/api/v1/whoami" else Answer(500)

    with stub(answer) as viewer:
        own = {"CONTROL_TOWER_API_BASE_URL": viewer.url, "CONTROL_TOWER_API_TOKEN": token}
        said = refused(user, "--upload", **own)
    assert "ann may not upload" in said.err
    assert [asked.path for asked in viewer.asked] == ["/api/v1/whoami"]


def test_an_upload_that_was_asked_for_and_fails_ends_with_1_once_the_log_is_safe(user: User) -> None:
    def answer(asked: Asked) -> Answer:
        return json_answer({"name": "a", "scopes": ["runs:write"]}) if "whoami" in asked.path else Answer(507)

    with stub(answer) as viewer:
        said = refused(user, "--upload", CONTROL_TOWER_API_BASE_URL=viewer.url)
    told = said.json
    assert (user.folder / told["log"]).is_file()
    assert told["usefulness"] == 1.0
    assert "ct runs make" in said.err


def test_judged_copies_become_runs_of_their_own(user: User, played: Path) -> None:
    words = ["run", "monitor", str(played), "-m", "[simple]", "--format", "json"]
    told = user.done(*words, "--tag", "judged", "--run-name", "again").json
    [run] = runs(user)
    assert (run["run_id"], run["name"], run["tags"]) == (told["run_id"], "again", ["judged"])
    assert run["monitors"] == ["simple"]


def test_what_is_sent_later_is_called_as_it_was_to_be(user: User, played: Path, server: Server) -> None:
    words = ["run", "monitor", str(played), "-m", "[simple]", "--tag", "judged", "--run-name", "again"]
    told = user.done(*words, "--format", "json", **away()).json
    assert "--run-name again --tag judged" in told["not_uploaded"]
    [note] = (user.folder / told["log"]).parent.glob("*.unsent")
    note.write_text(json.dumps({**json.loads(note.read_bytes()), "viewer": server.url}))
    [pushed] = user.done("runs", "push", note.parent, "--format", "json").json
    there = {"CONTROL_TOWER_API_BASE_URL": server.url}
    [run] = user.done("runs", "list", "--tag", "judged", "--format", "json", **there).json
    assert (run["run_id"], run["name"], run["tags"]) == (pushed["run_id"], "again", ["judged"])
    retried = ["runs", "make", told["log"], "--run-name", "again", "--tag", "judged", "--format", "json"]
    assert user.done(*retried, **there).json["run_id"] == run["run_id"]


def test_an_unfinished_eval_is_no_run_by_itself(played: Path) -> None:
    from control_tower.evals.upload import upload_finished

    edit_header(played, lambda header: {**header, "status": "error"})
    outcome = upload_finished(played, "if possible")
    assert outcome.run is None
    assert "status is error" in str(outcome.problem)


@pytest.mark.slow
def test_runs_are_sources_of_other_commands(user: User, played: Path, server: Server) -> None:
    remote = replace(user, environment={**user.environment, "CONTROL_TOWER_API_BASE_URL": server.url})
    for who in (user, remote):
        made = who.done("runs", "make", played, "--format", "json").json
        for name in (made["run_id"], f"{made['url']}?tab=1#top"):
            assert who.done("timing", name, "--format", "json").json["samples"]
            assert who.done("runs", "compare", name, played, "--format", "json").json["pairs"] == 1
            assert who.done("metrics", name, "--format", "json", "--bootstrap", "0").json
    audited = user.done("run", "audit", made["run_id"], "--live", "--format", "json", **remote.environment)
    assert audited.json["log"].startswith("logs/")
    replayed = remote.done("run", "replay", made["run_id"], "--check", "--format", "json").json
    assert replayed["replay"]["same"] is True
    taken = remote.done(
        *("run", "eval", "--from-run", made["run_id"], "--policy", "test", "--format", "json", "--no-upload")
    )
    assert taken.json["samples"] == 1


@pytest.mark.parametrize("command", ["eval", "control-eval", "monitor"])
def test_a_tag_that_no_run_can_have_is_refused_before_anything_is_played(user: User, command: str) -> None:
    said = user.ct("run", command, "--tag", "a,b")
    assert said.code == 2
    assert "'a,b': a tag holds no comma" in said.err
