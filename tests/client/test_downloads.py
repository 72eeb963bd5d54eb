"""What runs are named by, and downloads: kept, asked for again, resumed, checked."""

import hashlib
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_tower.client import session
from control_tower.client.download import safe_name
from control_tower.client.sources import Named, named
from control_tower.errors import UsageError
from tests.agent_runs.sites import header, sample
from tests.client.stub import Answer, Asked, json_answer, stub
from tests.client.using import User
from tests.logs.log_making import write_log
from tests.support import s3_stub
from tests.support.s3_server import CREDENTIALS
from tests.support.viewer_server import CT

DATA = bytes(range(256)) * 20_000
SHA256 = hashlib.sha256(DATA).hexdigest()
IDS = st.from_regex(r"[A-Za-z0-9_.-]{1,128}", fullmatch=True)


@pytest.mark.parametrize(
    ("text", "kind", "id", "viewer"),
    [
        ("abc", "run", "abc", None),
        ("https://v.example/runs/abc", "run", "abc", "https://v.example"),
        ("https://v.example:8443/runs/abc/", "run", "abc", "https://v.example:8443"),
        ("https://v.example/runs/abc?tab=1&x=/runs/no#top", "run", "abc", "https://v.example"),
        ("https://v.example/api/runs/abc/eval", "run", "abc", "https://v.example"),
        ("https://v.example/api/v1/runs/abc/files", "run", "abc", "https://v.example"),
        ("https://v.example/team/viewer/runs/abc", "run", "abc", "https://v.example/team/viewer"),
        ("http://[::1]:8642/runs/a%2Db", "run", "a-b", "http://[::1]:8642"),
        ("https://v.example/trajectories/t1", "trajectory", "t1", "https://v.example"),
        ("https://v.example/p/runs/abc/trajectories/t1", "trajectory", "t1", "https://v.example/p"),
    ],
)
def test_ids_and_addresses_of_pages_and_endpoints(text: str, kind: str, id: str, viewer: str | None) -> None:
    assert named(text) == Named(kind, id, viewer)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a/b",
        "a b",
        "x" * 129,
        "\x1b[2J",
        "https://v.example/runs/",
        "https://v.example/runs",
        "https://v.example/other/abc",
        "https://v.example/runs/a%2Fb",
        "https:///runs/abc",
        "ftp://v.example/runs/abc",
        "hawk://abc",
        "https://[::1/runs/abc",
    ],
)
def test_what_names_no_run_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        named(text)


def test_a_password_in_an_address_is_not_repeated() -> None:
    with pytest.raises(UsageError) as refused:
        named("https://ann:hunter2@v.example/other/abc")
    assert "hunter2" not in str(refused.value)


@given(
    id=IDS, tail=st.sampled_from(["", "/", "/eval", "?a=b", "#c"]), prefix=st.sampled_from(["", "/p", "/api"])
)
def test_every_id_comes_back_from_its_address(id: str, tail: str, prefix: str) -> None:
    url = f"https://v.example{prefix}/runs/{quote(id)}{tail}"
    assert named(url).id == id
    assert named(id).id == id


@given(st.text(min_size=1), st.text(min_size=1))
def test_names_of_files_are_safe_and_differ(one: str, other: str) -> None:
    try:
        names = [safe_name(text) for text in (one, other)]
    except UnicodeEncodeError:
        return
    assert all(re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,198}", name) for name in names)
    assert (names[0] == names[1]) == (one == other)


def served(data: bytes = DATA, e_tag: str = SHA256, cut: int | None = None) -> Callable[[Asked], Answer]:
    """A viewer with one log; the first whole answer breaks off after `cut` bytes."""
    broken = [cut]

    def answer(asked: Asked) -> Answer:
        tag = f'"{e_tag}"'
        headers = {"ETag": tag}
        if asked.headers.get("If-None-Match") == tag:
            return Answer(304, b"", headers)
        asked_for = asked.headers.get("Range")
        if asked_for and asked.headers.get("If-Range") == tag:
            start = int(asked_for.removeprefix("bytes=").rstrip("-"))
            return Answer(206, data[start:], {**headers, "Content-Range": f"bytes {start}-/{len(data)}"})
        if (end := broken.pop() if broken else None) is not None:
            return Answer(200, data[:end], {**headers, "Content-Length": str(len(data))})
        return Answer(200, data, headers)

    return answer


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "ATTEMPTS", 2)


def download(user: User, url: str, *words: str) -> bytes:
    path = user.done("runs", "download-eval", f"{url}/runs/abc", *words).out.strip()
    assert path == "data/eval-logs/abc.eval"
    return (user.folder / path).read_bytes()


def test_a_log_that_is_here_is_only_asked_about(user: User) -> None:
    with stub(served()) as viewer:
        for _ in range(2):
            assert download(user, viewer.url) == DATA
        assert [asked.headers.get("If-None-Match") for asked in viewer.asked] == [None, f'"{SHA256}"']
        assert download(user, viewer.url, "--no-cache") == DATA
        assert viewer.asked[-1].headers.get("If-None-Match") is None


def test_a_log_that_was_changed_here_is_downloaded_again(user: User) -> None:
    with stub(served()) as viewer:
        download(user, viewer.url)
        (user.folder / "data/eval-logs/abc.eval").write_bytes(b"edited")
        assert download(user, viewer.url) == DATA


def test_another_viewer_s_log_of_the_same_id_is_another(user: User) -> None:
    other = DATA[::-1]
    with (
        stub(served(e_tag="same")) as viewer,
        stub(served(other, e_tag="same")) as elsewhere,
    ):
        assert download(user, viewer.url) == DATA
        assert download(user, elsewhere.url) == other


def test_a_download_that_breaks_off_goes_on(user: User) -> None:
    with stub(served(cut=1_000_000)) as viewer:
        assert download(user, viewer.url) == DATA
    ranges = [asked.headers.get("Range") for asked in viewer.asked]
    assert ranges == [None, "bytes=1000000-"]


def test_what_is_not_what_the_viewer_has_is_not_kept(user: User) -> None:
    with stub(served(DATA[:-1] + b"x")) as viewer:
        said = user.ct("runs", "download-eval", f"{viewer.url}/runs/abc")
    assert said.code == 1
    assert "is not what the viewer has" in said.err
    assert list((user.folder / "data/eval-logs").glob("*.eval")) == []


def test_a_changed_log_is_not_joined_with_the_old(user: User) -> None:
    newer = b"n" * len(DATA)
    answers = [served(cut=900_000), served(newer, hashlib.sha256(newer).hexdigest())]

    def answer(asked: Asked) -> Answer:
        return answers[min(len(viewer.asked) - 1, 1)](asked)

    with stub(answer) as viewer:
        assert download(user, viewer.url) == newer


def test_two_at_once_do_not_mix(user: User) -> None:
    user.folder.mkdir(parents=True)
    with stub(served()) as viewer:
        words = [CT, "runs", "download-eval", f"{viewer.url}/runs/abc"]
        own = {**os.environ, **user.environment}
        at_once = [
            subprocess.Popen(words, cwd=user.folder, env=own, stdout=subprocess.PIPE) for _ in range(2)
        ]
        assert [process.communicate()[0] for process in at_once] == [b"data/eval-logs/abc.eval\n"] * 2
    assert (user.folder / "data/eval-logs/abc.eval").read_bytes() == DATA


def test_objects_in_s3_are_kept_by_their_etag(user: User, tmp_path: Path) -> None:
    with s3_stub.serving() as s3:
        own = {**CREDENTIALS, "AWS_ENDPOINT_URL": s3.address}
        paths: list[str] = []
        for data, place in (
            (DATA, "plain/a/run.eval"),
            (DATA[::-1], "plain/b/run.eval"),
            (b"new", "plain/a/run.eval"),
        ):
            s3.put(place, data)
            paths.append(user.done("runs", "download-eval", f"s3://{place}", **own).out.strip())
            assert (user.folder / paths[-1]).read_bytes() == data
        copy = tmp_path / "copy.eval"
        kept = (user.folder / paths[0]).stat().st_ino
        user.done("runs", "download-eval", "s3://plain/a/run.eval", "-o", copy, **own)
        assert (user.folder / paths[0]).stat().st_ino == kept
        user.done("runs", "download-eval", "s3://plain/a/run.eval", "--no-cache", **own)
        assert (user.folder / paths[0]).stat().st_ino != kept
        missing = user.ct("runs", "download-eval", "s3://plain/none.eval", **own)
    assert paths[0] == paths[2] != paths[1]
    assert copy.read_bytes() == b"new"
    assert (missing.code, "there is no such object" in missing.err) == (1, True)


def test_bundles_are_chosen_by_filters_and_kept(user: User, tmp_path: Path) -> None:
    whole = {"events": [], "input": "", "target": ""}
    samples = [
        {**sample(id, main=1.0, environment=env), **whole}
        for id, env in (("a", "shop/web"), ("b", "shop/app"))
    ]
    made = user.done(
        "runs", "make", write_log(tmp_path / "l.eval", header(), samples), "--format", "json"
    ).json
    here = user.done("runs", "download-traj", "-e", "app", "--format", "json")
    assert "1 downloaded, 0 here already" in here.err
    [path] = (user.folder / here.out.strip()).glob("*.json")
    run = user.done("runs", "download-traj", made["run_id"], "-e", "web", "--format", "json")
    assert run.out.strip() == f"data/traj/{made['run_id']}"
    again = user.done("runs", "download-traj", made["url"], "--format", "json")
    assert "1 downloaded, 1 here already" in again.err
    one = user.ct("runs", "download-traj", path.stem, "--format", "json")
    assert (one.code, "--overwrite" in one.err) == (1, True)
    user.done("runs", "download-traj", path.stem, "--format", "json", "--overwrite")
    for words, said in ((("-e", "none"), "no trajectory matches"), (("nothing",), "there is no")):
        refused = user.ct("runs", "download-traj", *words)
        assert refused.code == 1
        assert said in refused.err
    assert user.ct("runs", "download-traj").code == 2
    assert user.ct("runs", "download-traj", "-n", "501", "-e", "web").code == 2


def test_fewer_trajectories_than_there_are_said_to_be_is_an_error(user: User) -> None:
    def answer(asked: Asked) -> Answer:
        if asked.path.startswith("/api/trajectories?"):
            first = "page=" not in asked.path
            return json_answer({"items": ["t1", "t2"] if first else [], "total_count": 3, "page_size": 2})
        return json_answer({"run_id": "abc", "name": "n"})

    with stub(answer) as viewer:
        said = user.ct("runs", "download-traj", f"{viewer.url}/runs/abc")
    assert said.code == 1
    assert "gave 2 of 3" in said.err
