"""The page "Evaluation Runs", requirement by requirement, without a viewer and with one over the network."""

import json
import os
import re
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from inspect_ai.log import read_eval_log

from control_tower.client.rates import viewer_rates
from control_tower.client.session import open_viewer, run
from control_tower.logs.json_text import JsonObject
from tests.agent_runs.sites import sample
from tests.client.using import User
from tests.conversion.old_logs import header_2x, header_old, sample_2x, sample_old
from tests.logs.log_making import write_log
from tests.metrics.logs import control_log
from tests.support import s3_stub
from tests.support.s3_server import CREDENTIALS
from tests.support.viewer_server import ADMIN, CT, served_viewer

EVAL = "run eval --policy honest --env web_scraping --main-task crawl_depth --tag experiment-1 --tag baseline"


class House:
    """A place where runs are kept, with the run of one eval in it."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.environment = environment
        self.remote = "CONTROL_TOWER_API_BASE_URL" in environment
        done = subprocess.run(
            [CT, *EVAL.split(), "--format", "json"],
            cwd=folder,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )
        assert done.returncode == 0, done.stderr
        self.result: JsonObject = json.loads(done.stdout)
        self.run_id: str = self.result["run_id"]
        self.url: str = self.result["run_url"]


@pytest.fixture(scope="module", params=["local data folder", "private viewer"])
def house(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator[House]:
    folder = tmp_path_factory.mktemp("house")
    own = {f"CONTROL_TOWER_{kind}_DIR": str(folder / kind) for kind in ("DATA", "CACHE", "CONFIG")}
    # S7: a client needs neither.
    own |= {"MONGOURI": "mongodb://nobody.invalid/none", "AWS_ACCESS_KEY_ID": "", "AWS_PROFILE": "none"}
    if request.param == "local data folder":
        yield House(folder, own)
        return
    with served_viewer(folder / "server") as viewer:
        token = viewer.manage("token", "create", ADMIN, "--description", "a test")
        yield House(
            folder, {**own, "CONTROL_TOWER_API_BASE_URL": viewer.url, "CONTROL_TOWER_API_TOKEN": token}
        )


@pytest.fixture
def user(house: House, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> User:
    return User(tmp_path, capsys, house.environment)


def info(user: User, run: str) -> JsonObject:
    return user.done("runs", "info", run, "--format", "json").json


def test_s1_and_s2_a_run_has_a_header_and_the_address_of_its_log(house: House, user: User) -> None:
    found = info(user, house.run_id)
    assert found["run_id"] == house.run_id
    assert found["name"] == "honest-vs-null-blue-team"
    assert found["policy"] == "ct/honest-vs-ct/null-blue-team"
    assert "task_set" in found
    assert found["tags"] == ["experiment-1", "baseline"]
    assert found["created_by"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", found["created_at"])
    assert found["eval_log_url"] == f"s3://local/{house.run_id}.eval"


def test_s3_its_samples_are_trajectories(house: House, user: User) -> None:
    found = info(user, house.run_id)
    assert found["trajectory_count"] == 1
    folder = Path(user.done("runs", "download-traj", house.run_id, "--format", "json").out.strip())
    [path] = (user.folder / folder).glob("*.json")
    bundle = json.loads(path.read_bytes())
    assert bundle["metadata"]["run_id"] == house.run_id
    assert bundle["sample"]["id"] == "demo/web_scraping:crawl_depth"


def test_s4_an_eval_is_uploaded_with_its_tags(house: House, user: User) -> None:
    assert house.url.endswith(f"/runs/{house.run_id}")
    assert [run["run_id"] for run in user.done("runs", "list", "--tag", "baseline", "--format", "json").json]


def test_s5_a_saved_log_is_made_a_run(house: House, user: User) -> None:
    log = house.folder / house.result["log"]
    said = user.done("runs", "make", log, "--tag", "again")
    url = re.search(r"^Run: (\S+)$", said.out, re.MULTILINE)
    assert url
    made = info(user, url[1])
    assert made["tags"] == ["again"]
    assert made["run_id"] != house.run_id
    same = user.done("runs", "make", log, "--format", "json").json
    assert (same["run_id"], same["existing"]) == (house.run_id, True)


def test_s6_uploads_over_the_network_need_a_token(house: House, user: User) -> None:
    without = {"CONTROL_TOWER_API_TOKEN": None}
    said = user.ct("runs", "make", house.folder / house.result["log"], **without)
    if not house.remote:
        assert said.code == 0
        return
    assert said.code == 1
    assert "ct login" in said.err
    assert "CONTROL_TOWER_API_TOKEN" in said.err


def test_s8_an_older_log_is_refused_with_the_way_to_convert_it(user: User, tmp_path: Path) -> None:
    for log in (
        write_log(tmp_path / "2x.eval", header_2x(), [sample_2x()]),
        write_log(tmp_path / "old.eval", header_old(), [sample_old()]),
    ):
        said = user.ct("runs", "make", log)
        assert said.code == 1
        assert "ct runs convert" in said.err


def test_s9_converted_logs_are_uploaded_as_new_runs(house: House, user: User, tmp_path: Path) -> None:
    log = write_log(tmp_path / "2x.eval", header_2x(eval_id="E9", tags=["old"]), [sample_2x()])
    before = log.read_bytes()
    said = user.done("runs", "convert", log, "--upload")
    [line] = [json.loads(text) for text in said.out.splitlines()]
    assert list(line) == ["converted_from", "eval", "run_id"]
    found = info(user, line["run_id"])
    assert found["metadata"]["converted_from"] == line["converted_from"] == ["E9"]
    assert found["trajectory_count"] == 1
    assert log.read_bytes() == before
    again = user.done("runs", "convert", log, "--upload")
    assert json.loads(again.out)["run_id"] == line["run_id"]
    assert user.done("runs", "convert", line["run_id"], "--upload").out == ""


def test_s10_runs_are_listed(house: House, user: User) -> None:
    assert "honest-vs-null-blue-team" in user.done("runs", "list").out
    assert len(user.done("runs", "list", "--limit", "1", "--format", "json").json) == 1
    tagged = user.done("runs", "list", "--tag", "baseline", "--tag", "experiment-1", "--format", "json").json
    assert house.run_id in [run["run_id"] for run in tagged]
    nothing = user.done("runs", "list", "--tag", "never-given", "--format", "json")
    assert nothing.out == "[]\n"


def test_s11_a_run_is_shown(house: House, user: User) -> None:
    shown = user.done("runs", "info", house.run_id).out
    assert re.search(r"^Trajectory Count: +1$", shown, re.MULTILINE)
    for kind, count in {"Honest": 1, "Attack": 0, "Errored": 0, "Unscored": 0, "Missing": 0}.items():
        assert re.search(rf"^{kind}: +{count}$", shown, re.MULTILINE)
    assert "experiment-1, baseline" in shown
    assert "$0.0196" in shown
    assert info(user, house.url) == info(user, house.run_id)


def test_s12_its_log_is_downloaded_by_id_url_and_address(house: House, user: User) -> None:
    log = (house.folder / house.result["log"]).read_bytes()
    for name in (house.run_id, house.url):
        path = Path(user.done("runs", "download-eval", name).out.strip())
        assert path.parent == Path("data/eval-logs")
        assert (user.folder / path).read_bytes() == log
    with s3_stub.serving() as s3:
        s3.put("logs/some/run.eval", log)
        own = {**CREDENTIALS, "AWS_ENDPOINT_URL": s3.address, "AWS_PROFILE": None}
        path = Path(user.done("runs", "download-eval", "s3://logs/some/run.eval", **own).out.strip())
    assert path.parent == Path("data/eval-logs")
    assert (user.folder / path).read_bytes() == log


def test_s13_every_bundle_is_downloaded_and_opens(user: User, tmp_path: Path) -> None:
    whole = {"input": "", "target": "", "events": []}
    samples = [{**sample(id, main=1.0), **whole} for id in ("a", "b+/c", "d")]
    made = user.done("runs", "make", control_log(tmp_path / "log.eval", samples), "--format", "json").json
    folder = user.folder / user.done("runs", "download-traj", made["url"]).out.strip()
    assert folder.name == made["run_id"]
    opened = [read_eval_log(str(path)) for path in folder.glob("*.eval")]
    ids = sorted(str(each.id) for bundle in opened for each in bundle.samples or [])
    assert (len(opened), ids) == (3, ["a", "b+/c", "d"])


def test_s16_legacy_runs_are_listed_beside_new_ones(house: House, user: User, tmp_path: Path) -> None:
    old = write_log(tmp_path / "old.eval", header_old(), [sample_old()])
    run_id = json.loads(user.done("runs", "convert", old, "--upload").out)["run_id"]
    assert "legacy-run" in info(user, run_id)["tags"]
    listed: Any = user.done("runs", "list", "--all", "--format", "json").json
    assert {run_id, house.run_id} <= {run["run_id"] for run in listed}
    new = user.done("runs", "list", "--where", "-tag:legacy-run", "--all", "--format", "json").json
    assert house.run_id in [run["run_id"] for run in new]
    assert run_id not in [run["run_id"] for run in new]


ROOT = Path(__file__).parents[2]


def test_s14_the_database_and_the_http_api_have_pages() -> None:
    assert "MONGOURI" in (ROOT / "docs/database.md").read_text()
    assert "/api/runs/{run_id}/eval" in (ROOT / "docs/http-api.md").read_text()


def test_s15_every_url_that_the_page_names_is_there(house: House, user: User) -> None:
    bundle = user.folder / user.done("runs", "download-traj", house.run_id).out.strip()
    trajectory = next(bundle.glob("*.eval")).stem
    page = (ROOT / "docs/runs.md").read_text().partition("## Downloading from the viewer")[2]
    paths = [
        path.replace("<run id>", house.run_id)
        .replace("<trajectory id>", trajectory)
        .replace("<id>", trajectory)
        for path in re.findall(r"^\| `<viewer>(/[^`]*)`", page, re.MULTILINE)
    ]
    assert len(paths) > 10

    async def ask() -> None:
        async with open_viewer() as viewer:
            for path in paths:
                assert (await viewer.call("GET", path)).content, path

    with pytest.MonkeyPatch.context() as patch:
        for name, value in house.environment.items():
            patch.setenv(name, value)
        run(ask())


def test_prices_are_the_viewer_s_where_that_is_asked_for(user: User) -> None:
    viewer_rates.cache_clear()
    priced = user.done("models", "rates", "opus", "--format", "json", CONTROL_TOWER_PRICING="api").json
    assert [model["source"] for model in priced] == ["viewer"]
