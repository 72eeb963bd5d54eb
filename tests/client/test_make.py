"""`ct runs make` and `ct runs push`: once only, nothing sent in vain, nothing lost."""

import csv
import json
import shutil
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest

from control_tower.logs.archive import edit_header
from tests.agent_runs.sites import header, sample
from tests.client.serving import Server, serving
from tests.client.stub import Answer, stub
from tests.client.using import User
from tests.logs.log_making import write_log


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    with serving(tmp_path_factory.mktemp("server")) as found:
        yield found


@pytest.fixture
def remote(user: User, server: Server) -> User:
    """The same user, with a viewer over the network."""
    return replace(user, environment={**user.environment, "CONTROL_TOWER_API_BASE_URL": server.url})


def parts_of(server: Server) -> int:
    return sum(asked["method"] == "PUT" for asked in server.requests())


def test_the_second_time_no_byte_of_the_log_is_sent(remote: User, server: Server, log: Path) -> None:
    before = parts_of(server)
    first = remote.done("runs", "make", log, "--format", "json").json
    assert (first["existing"], first["trajectories"], parts_of(server)) == (False, 3, before + 1)
    copy = shutil.copy(log, log.with_name("other name.eval"))
    second = remote.done("runs", "make", copy, "--format", "json").json
    assert second == {**first, "existing": True, "eval": str(copy)}
    assert parts_of(server) == before + 1
    another = remote.done("runs", "make", log, "--new", "--format", "json").json
    assert another["run_id"] != first["run_id"]
    renamed = remote.done("runs", "make", log, "--run-name", "mine", "--format", "json").json
    assert renamed["run_id"] not in (first["run_id"], another["run_id"])
    assert parts_of(server) == before + 1
    assert renamed["url"] == f"{server.url}/runs/{renamed['run_id']}"


def test_a_log_that_is_there_already_is_not_called_uploaded(user: User, log: Path) -> None:
    assert "Uploaded eval log to s3://" in user.done("runs", "make", log).out
    again = user.done("runs", "make", log)
    assert "Uploaded" not in again.out
    assert "was there already" in again.err


def test_an_empty_name_and_a_folder_are_refused(user: User, log: Path) -> None:
    unnamed = user.ct("runs", "make", log, "--run-name", "")
    assert unnamed.code == 2
    assert "--run-name is empty; leave it out for what the log says" in unnamed.err
    folder = user.ct("runs", "make", log.parent)
    assert folder.code == 2
    assert "is a directory" in folder.err


def test_what_the_run_is_called_can_be_said(user: User, log: Path) -> None:
    words = [
        "--run-name",
        "mine",
        "--policy",
        "p",
        "--task-set",
        "t",
        "--tag",
        "a",
        "--tag",
        "b",
        "--description",
    ]
    made = user.done("runs", "make", log, *words, "a few words", "--format", "json").json
    found = user.done("runs", "info", made["run_id"], "--format", "json").json
    fields = ("name", "policy", "task_set", "tags", "description")
    assert [found[field] for field in fields] == ["mine", "p", "t", ["a", "b"], "a few words"]


def torn(log: Path) -> Path:
    log.write_bytes(log.read_bytes()[:-100])
    return log


def with_status(log: Path, status: str) -> Path:
    edit_header(log, lambda header: {**header, "status": status})
    return log


TROUBLES = {
    "torn": "ct logs recover",
    "unfinished": "ct logs recover",
    "started": "ct logs recover",
    "no samples": "no samples",
    "no log": "it is not an .eval archive",
    "no file": "there is no such file",
}
"""What is wrong with a log, and what is said about it."""


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_log_that_cannot_be_a_run_is_refused_before_anything_is_sent(
    trouble: str, user: User, log: Path
) -> None:
    if trouble == "torn":
        torn(log)
    elif trouble == "unfinished":
        write_log(log, header(), [sample()], finished=False)
    elif trouble == "started":
        with_status(log, "started")
    elif trouble == "no samples":
        write_log(log, header(), [])
    elif trouble == "no log":
        log.write_bytes(b"PK is not all it takes")
    elif trouble == "no file":
        log.unlink()
    with stub(lambda asked: pytest.fail(f"asked {asked.path}")) as viewer:
        refused = user.ct("runs", "make", log, CONTROL_TOWER_API_BASE_URL=viewer.url)
    assert (refused.code, viewer.asked) == (1, [])
    assert TROUBLES[trouble] in refused.err
    assert str(log) in refused.err
    assert len(refused.err.splitlines()) == 1


def test_a_damaged_sample_is_found_before_the_log_is_sent(user: User, log: Path) -> None:
    data = bytearray(log.read_bytes())
    place = data.index(b"samples/b_epoch_1.json") + 40
    data[place : place + 8] = b"\0" * 8
    log.write_bytes(data)
    with stub(lambda asked: Answer(404)) as viewer:
        refused = user.ct("runs", "make", log, CONTROL_TOWER_API_BASE_URL=viewer.url)
    assert refused.code == 1
    assert "samples/b_epoch_1.json" in refused.err
    assert "ct logs recover" in refused.err
    assert [asked.path for asked in viewer.asked] == ["/api/v1/runs"], "whether the run is there, no more"


def test_logs_with_errors_and_cancelled_ones_may_become_runs(user: User, log: Path) -> None:
    for status in ("error", "cancelled"):
        made = user.done("runs", "make", with_status(log, status), "--format", "json").json
        found = user.done("runs", "list", "--where", f"status:{status}", "--format", "json").json
        assert [run["run_id"] for run in found] == [made["run_id"]]


def test_numbers_that_json_has_not_can_be_uploaded(user: User, tmp_path: Path) -> None:
    samples = [sample("a", main=1.0, scores=[float("nan")], audit=float("nan"))]
    log = write_log(tmp_path / "nan.eval", header(run_name="\ud83d lone", note=float("inf")), samples)
    user.done("runs", "make", log)


def test_without_a_file_the_newest_log_is_taken(user: User, log: Path) -> None:
    folder = user.folder / "logs"
    folder.mkdir(parents=True)
    assert user.ct("runs", "make").code == 1
    shutil.copy(log, folder / "it.eval")
    said = user.done("runs", "make")
    assert "logs/it.eval: the newest log" in said.err


def test_hostile_names_are_shown_and_not_obeyed(user: User, tmp_path: Path) -> None:
    name = "\x1b[2Jcleared\u202ethgir\u200b\n"
    log = write_log(tmp_path / "h.eval", header(run_name=name, tags=[name[:9]]), [sample()])
    made = user.done("runs", "make", log)
    listed = user.done("runs", "list")
    assert "\\x1b[2Jcleared\\u202ethgir\\u200b" in listed.out
    run_id = made.out.split()[1].rsplit("/", 1)[1]
    shown = user.done("runs", "info", run_id)
    refused = user.ct("runs", "info", "\x1b]8;;x\x07")
    for text in (made.out, listed.out, shown.out, refused.err):
        assert all(c.isprintable() or c == "\n" for c in text)


def test_what_could_not_be_sent_is_pushed_later(user: User, remote: User, server: Server, log: Path) -> None:
    assert user.done("runs", "push", log.parent, "--format", "json").json == []
    log.with_name(f"{log.name}.unsent").write_text(json.dumps({"viewer": server.url, "reason": "x"}))
    gone = log.with_name("gone.eval.unsent")
    gone.write_text(json.dumps({"viewer": None}))
    [pushed] = user.done("runs", "push", log.parent, "--format", "json").json
    assert (pushed["log"], pushed["error"]) == (str(log), None)
    assert remote.done("runs", "info", pushed["run_id"]).code == 0
    assert user.done("runs", "push", log.parent, "--format", "json").json == []


def test_a_push_that_fails_says_so_and_keeps_the_note(user: User, log: Path, tmp_path: Path) -> None:
    log.with_name(f"{log.name}.unsent").write_text(json.dumps({"viewer": None}))
    other = write_log(tmp_path / "other.eval", header(), [])
    other.with_name("other.eval.unsent").write_text("{}")
    said = user.ct("runs", "push", tmp_path, "--format", "json")
    assert said.code == 1
    assert [bool(row["error"]) for row in said.json] == [True, False]
    assert [path.name for path in tmp_path.glob("*.unsent")] == ["other.eval.unsent"]


def test_a_folder_to_push_that_is_not_there_is_an_error(user: User) -> None:
    said = user.ct("runs", "push", "nowhere")
    assert (said.code, said.err) == (2, "Error: nowhere: there is no such folder\n")


@pytest.mark.parametrize(
    ("words", "named"), [(("--where", "polcy:attack"), "polcy"), (("--sort", "agee"), "agee")]
)
def test_a_list_that_cannot_be_meant_is_wrong_usage(user: User, words: tuple[str, str], named: str) -> None:
    said = user.ct("runs", "list", *words)
    assert (said.code, said.out) == (2, "")
    assert named in said.err and said.err.count("\n") == 1


def test_a_list_says_why_nothing_is_in_it_and_takes_its_columns_as_fields(user: User, log: Path) -> None:
    assert "to keep one" in user.done("runs", "list").err
    run_id = user.done("runs", "make", log, "--format", "json").json["run_id"]
    for words in (("--where", "policy:none"), ("--tag", "never-given")):
        said = user.done("runs", "list", *words).err
        assert "no run is like that" in said
        assert "to keep one" not in said
    said = user.done("runs", "list", "--fields", "id,n,naem", "--format", "csv")
    assert said.out == f"id,n,naem\n{run_id},3,\n"
    assert said.err == "naem: none of these runs has it\n"
    header, row = csv.reader(user.done("runs", "list", "--format", "csv").out.splitlines())
    found = dict(zip(header, row, strict=True))
    assert (found["id"], found["n"], float(found["cost"])) == (run_id, "3", 1.5)
    assert found["created_at"].endswith("Z")


def test_a_tag_with_a_comma_is_refused_in_words(user: User, log: Path) -> None:
    run_id = user.done("runs", "make", log, "--format", "json").json["run_id"]
    for words in (("make", log, "--tag", "a,b"), ("tag", run_id, "a,b")):
        said = user.ct("runs", *words)
        assert said.code == 1
        assert "a tag holds no comma" in said.err


def test_the_address_of_a_log_in_the_local_folder_leads_to_the_run_s_id(user: User, log: Path) -> None:
    made = user.done("runs", "make", log, "--format", "json").json
    without = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"), None)
    without |= {"AWS_EC2_METADATA_DISABLED": "true"}
    said = user.ct("runs", "download-eval", made["eval_log_url"], **without)
    assert said.code == 1
    assert f"name the run: {made['run_id']}" in said.err
