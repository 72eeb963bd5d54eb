"""The wire of older clients: what they send and the shapes that they read; quoted is what they rely on."""

import hashlib
import json
import math
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from fastapi.testclient import TestClient

from control_tower.logs.archive import EvalArchive, SampleKey
from control_tower.logs.json_text import JsonObject, loads
from control_tower.models.rate_sources import price_list
from tests.agent_runs import sites
from tests.viewer.auth_house import private_viewer
from tests.viewer.conftest import Kept
from tests.viewer.house import URL, House, upload

RUN, IDS = "f" * 32, ["1" * 32, "2" * 32, "3" * 32]
LISTS = ("tags", "comments", "metadata", "metrics", "cost_by_model")


def _put(own: House, log: Path, run_id: str = RUN) -> None:
    plan = own.client.post(
        "/api/eval-logs/upload", json={"filename": f"{run_id}.eval", "size_bytes": log.stat().st_size}
    )
    answer = own.client.put(plan.json()["url"], content=log.read_bytes(), headers={"If-None-Match": "*"})
    assert answer.status_code == 200, answer.text


def _batch(own: House, log: Path, **more: object) -> JsonObject:
    return sites.batch(own.site, log, RUN, IDS, **more)


class TestUpload:
    def test_a_log_goes_to_an_address_that_needs_no_token(self, tmp_path: Path) -> None:
        """The PUT has no bearer; its answer's ETag is the quoted MD5; 412 when it lost an add-only race."""
        log = sites.log(tmp_path / "log.eval")
        data = log.read_bytes()
        with private_viewer(tmp_path / "data") as viewer:
            viewer.add("ann")
            token = viewer.token("ann")
            asked = {"filename": f"{RUN}.eval", "size_bytes": len(data)}
            plan = viewer.browser().post("/api/eval-logs/upload", json=asked, headers=token).json()
            assert {"url": plan["url"], "bucket": "local", "key": f"{RUN}.eval"}.items() <= plan.items()
            stranger = TestClient(viewer.app, viewer.url)
            if_absent = {"If-None-Match": "*"}
            answer = stranger.put(plan["url"], content=data, headers=if_absent)
            assert answer.status_code == 200
            assert answer.headers["ETag"] == f'"{hashlib.md5(data).hexdigest()}"'
            assert stranger.put(plan["url"], content=data[::-1], headers=if_absent).status_code == 412
            again = viewer.browser().post("/api/eval-logs/upload", json=asked, headers=token)
            assert (again.status_code, type(again.json()["error"])) == (409, str)
            head = viewer.browser().get(f"/api/eval-logs/head?filename={RUN}.eval", headers=token).json()
            assert head == {
                "bucket": "local",
                "size_bytes": len(data),
                "e_tag": f'"{hashlib.md5(data).hexdigest()}"',
            }

    def test_the_address_holds_for_what_was_planned_only(self, own: House) -> None:
        asked = {"filename": f"{RUN}.eval", "size_bytes": 10}
        url = own.client.post("/api/eval-logs/upload", json=asked).json()["url"]
        if_absent = {"If-None-Match": "*"}
        assert own.client.put(url, content=b"0123456789").status_code == 400
        assert own.client.put(url, content=b"012345678", headers=if_absent).status_code == 400
        assert own.client.put(url, content=b"0123456789x", headers=if_absent).status_code == 400
        for altered in (url.replace("size=10", "size=11"), url.replace(RUN, "e" * 32), url[:-1] + "#"):
            assert own.client.put(altered, content=b"0" * 10, headers=if_absent).status_code == 403
        assert own.client.get(url).status_code == 405
        own.now += 3601
        assert own.client.put(url, content=b"0123456789", headers=if_absent).status_code == 403
        assert own.client.get(f"/api/eval-logs/head?filename={RUN}.eval").status_code == 404


class TestRegister:
    def test_a_run_is_seen_when_its_header_has_come(self, own: House, tmp_path: Path) -> None:
        """Batches first, header in the last; the very same batch again changes nothing and succeeds."""
        log = sites.log(tmp_path / "log.eval")
        _put(own, log)
        body = _batch(own, log)
        header = {"run_id": RUN, "name": "mine", "tags": ["a"], "eval_log_url": f"s3://local/{RUN}.eval"}
        first, rest = body["trajectories"][:2], body["trajectories"][2:]
        for _ in range(2):
            answer = own.client.post("/api/trajectories/register", json={**body, "trajectories": first})
            assert answer.status_code == 200
            assert own.client.get(f"/api/runs/{RUN}").status_code == 404
            assert own.client.get(f"/api/trajectories?run_id={RUN}").json()["total_count"] == 0
        for _ in range(2):
            last = {**body, "trajectories": rest, "run": header}
            assert own.client.post("/api/trajectories/register", json=last).status_code == 200
            found = own.client.get(f"/api/runs/{RUN}").json()
            assert (found["name"], found["trajectory_count"], found["created_by"]) == ("mine", 3, "local")
        other = own.client.post(
            "/api/trajectories/register",
            json={**body, "trajectories": [], "run": {**header, "name": "other"}},
        )
        assert other.status_code == 409
        assert other.json()["error"]

    def test_what_cannot_be_meant_is_refused_in_words(self, own: House, tmp_path: Path) -> None:
        """400 is invalid input, the text from `error`; schema_version other than 3 is refused."""
        log = sites.log(tmp_path / "log.eval")
        _put(own, log)
        body = _batch(own, log)
        for wrong in (
            {"schema_version": 4},
            {"trajectories": [1]},
            {"eval_log_sizes": {f"{RUN}.eval": 1}},
        ):
            answer = own.client.post("/api/trajectories/register", json={**body, **wrong})
            assert answer.status_code == 400
            assert answer.json()["error"] == answer.json()["detail"] != ""
        too_large = own.client.post(
            "/api/trajectories/register",
            content=b'{"schema_version": 3, "x": "' + b"x" * 8 * 1024**2 + b'"}',
            headers={"Content-Type": "application/json"},
        )
        assert too_large.status_code == 413

    @pytest.mark.parametrize("number", ["1" + "0" * 400, "1e999"])
    def test_numbers_that_no_float_comes_near_of_are_refused(
        self, own: House, tmp_path: Path, number: str
    ) -> None:
        log = sites.log(tmp_path / "log.eval")
        _put(own, log)
        body = _batch(own, log)
        body["trajectories"][0]["number_of_actions"] = "HERE"
        answer = own.client.post(
            "/api/trajectories/register",
            content=json.dumps(body).replace('"HERE"', number),
            headers={"Content-Type": "application/json"},
        )
        assert (answer.status_code, "too large" in answer.json()["error"]) == (400, True)

    def test_what_is_no_whole_number_is_none_in_lists(self, own: House, tmp_path: Path) -> None:
        """One trajectory must not make the lists of all unreadable to clients that trust their types."""
        log = sites.log(tmp_path / "log.eval")
        _put(own, log)
        body = _batch(own, log, run={"run_id": RUN, "eval_log_url": f"s3://local/{RUN}.eval"})
        body["trajectories"][0]["number_of_actions"] = 1.5
        body["trajectories"][0]["timing"]["time_started"] = {"a": "text"}
        assert own.client.post("/api/trajectories/register", json=body).status_code == 200
        items = own.client.get("/api/trajectories").json()["items"]
        row = next(item for item in items if item["trajectory_id"] == IDS[0])
        assert (row["actions_count"], row["time_started"]) == (None, None)


class TestRuns:
    def test_the_list_is_newest_first_and_no_list_in_it_is_null(self, own: House, tmp_path: Path) -> None:
        """`tags`, `comments`, `metadata`, `metrics`, `cost_by_model` may be absent but not null."""
        ids: list[str] = []
        for number in range(3):
            own.now += 1
            log = sites.log(tmp_path / f"{number}.eval", tags=["base", f"t{number}"])
            ids.append(upload(own.client, log)["run_id"])
        items = own.client.get("/api/runs").json()["items"]
        assert [item["run_id"] for item in items] == ids[::-1]
        for item in items:
            assert all(item.get(name, ()) is not None for name in LISTS)
            assert item["trajectory_count"] == 3
        assert len(own.client.get("/api/runs?limit=1").json()["items"]) == 1
        assert own.client.get("/api/runs?limit=1001").status_code == 400

        def tagged(query: str) -> list[str]:
            return [item["run_id"] for item in own.client.get(f"/api/runs?{query}").json()["items"]]

        assert tagged("tags_include=base") == ids[::-1]
        assert tagged("tags_include=base,t1") == [ids[1]]
        assert tagged("tags_include=base&tags_include=t1") == [ids[1]]
        assert tagged("tags_include=t0,t1") == []

    def test_one_run_bare(self, kept: Kept) -> None:
        found = kept.client.get(f"/api/runs/{kept.run_id}").json()
        assert found["run_id"] == kept.run_id
        assert found["metrics"] == {"audit": {"safety": 0.75}, "tasks": {"main/mean": None}}  # it was NaN
        assert found["eval_log_url"] == f"s3://local/{kept.run_id}.eval"
        missing = kept.client.get("/api/runs/nope")
        assert (missing.status_code, "nope" in missing.json()["error"]) == (404, True)

    def test_an_edit_is_a_merge_patch(self, own: House, tmp_path: Path) -> None:
        """Explicit null clears `policy` and `dataset`; 404 and 400 are handled."""
        run_id = upload(own.client, sites.log(tmp_path / "log.eval"))["run_id"]
        address = f"/api/runs/{run_id}"
        changed = own.client.patch(
            address, json={"tags": [" b ", "a", "b"], "policy": None, "dataset": "d"}
        ).json()
        assert (changed["tags"], changed["policy"], changed["dataset"]) == (["b", "a"], None, "d")
        assert (changed["name"], changed["run_id"]) == ("first", run_id)
        assert own.client.get(address).json() == changed
        assert own.client.patch(address, json={"name": None}).status_code == 400
        assert own.client.patch(address, json={"run_id": "x"}).status_code == 400
        assert own.client.patch("/api/runs/nope", json={"name": "x"}).status_code == 404


class TestTrajectories:
    def test_paging(self, own: House, tmp_path: Path) -> None:
        """The server says its page size; `total_count` is the full count whatever `limit` is."""
        samples = [sites.sample(f"s{number}", main=float(number % 2)) for number in range(7)]
        upload(own.client, sites.log(tmp_path / "log.eval", samples))

        def page(query: str = "") -> JsonObject:
            answer = own.client.get(f"/api/trajectories?{query}")
            assert answer.status_code == 200, answer.text
            return answer.json()

        whole = page()
        assert (whole["total_count"], whole["page_size"], len(whole["items"])) == (7, 500, 7)
        one = page("limit=1")
        assert (one["total_count"], len(one["items"])) == (7, 1)
        ids = [page(f"ids_only=true&page={number}&page_size=3")["items"] for number in (1, 2, 3, 4)]
        assert [len(found) for found in ids] == [3, 3, 1, 0]
        assert [id for found in ids for id in found] == [item["trajectory_id"] for item in whole["items"]]
        assert page("page_size=100000")["page_size"] == 500
        assert page("main_task_outcome=pass&limit=1")["total_count"] == 3
        documents = page("documents=true&limit=2")["items"]
        assert {"eval_sample_range", "eval_metadata", "task_scores"} <= documents[0].keys()
        for wrong in (
            "page=0",
            "page_size=0",
            "limit=1001",
            "main_task_outcome=maybe",
            "versioned_dataset=x",
        ):
            assert own.client.get(f"/api/trajectories?{wrong}").status_code == 400

    @pytest.mark.parametrize(
        ("query", "found"),
        [
            ("environment=web", "abc"),
            ("environment=shop/web", "abc"),
            ("environment=other/web", ""),
            ("main_task=build", "abc"),
            ("side_task=leak", "b"),
            ("main_task_outcome=pass", "a"),
            ("side_task_outcome=pass", "b"),
            ("tag=none-such", ""),
        ],
    )
    def test_filters(self, kept: Kept, query: str, found: str) -> None:
        """A bare environment matches what follows the slash; absent means no filter."""
        answer = kept.client.get(f"/api/trajectories?documents=true&{query}").json()
        assert sorted(item["eval_sample_id"] for item in answer["items"]) == list(found)
        assert answer["total_count"] == len(found)

    def test_summaries_have_every_member(self, kept: Kept) -> None:
        from control_tower.records.runs import TrajectorySummary

        for item in kept.client.get("/api/trajectories").json()["items"]:
            assert set(TrajectorySummary.model_fields) <= set(item)
            assert item["tags"] == [] and isinstance(item["authors"], list)

    def test_the_sample_is_the_logs_own_bytes(self, own: House, tmp_path: Path) -> None:
        """Sample bytes as in the log, bare NaN allowed, since null would break the old model."""
        sample = sites.sample("a", main=1.0, audit=math.nan)
        log = sites.log(tmp_path / "log.eval", [sample])
        run_id = upload(own.client, log)["run_id"]
        (id,) = own.client.get(f"/api/trajectories?run_id={run_id}&ids_only=true").json()["items"]
        text = own.client.get(f"/api/trajectories/{id}").content
        with EvalArchive.open(log) as archive:
            raw = archive.members.read(SampleKey("a", 1).member)
        assert b'"audit":{"value":NaN}' in raw
        assert text.endswith(b',"sample":' + raw + b"}")
        metadata = loads(text)["metadata"]
        assert (metadata["trajectory_id"], metadata["eval_sample_id"]) == (id, "a")
        assert metadata["eval_log_url"] == f"s3://local/{run_id}.eval/samples/sample/a"
        for name in ("tags", "datasets", "comments", "step_comments", "metadata"):
            assert metadata.get(name, ()) is not None
        document = own.client.get(f"/api/trajectories?documents=true&run_id={run_id}").text
        assert "NaN" not in document
        assert json.loads(document)["items"][0]["audit_scores"] == {"audit": None}

    def test_its_log_is_behind_an_absolute_redirect(self, kept: Kept) -> None:
        """Must be a redirect with an absolute Location; the second hop carries no bearer."""
        answer = kept.client.get(f"/api/trajectories/{kept.ids[0]}/eval")
        assert answer.status_code == 302
        location = answer.headers["Location"]
        assert location.startswith(f"{URL}/blobs/out/{kept.ids[0]}.eval?")
        second = kept.client.get(location)
        assert second.content == kept.client.get(f"/api/v1/trajectories/{kept.ids[0]}/eval").content
        assert kept.client.get("/api/trajectories/nope/eval").status_code == 404

    def test_the_redirect_leads_to_the_public_address_and_needs_no_login(self, tmp_path: Path) -> None:
        log = sites.log(tmp_path / "log.eval")
        with private_viewer(tmp_path / "data", url="https://viewer.example/ct") as viewer:
            viewer.add("ann")
            client = TestClient(viewer.app, "https://inside:8000", follow_redirects=False)
            client.headers.update(viewer.token("ann"))
            run_id = upload(client, log)["run_id"]
            (id, *_) = client.get(f"/api/trajectories?run_id={run_id}&ids_only=true").json()["items"]
            location = client.get(f"/api/trajectories/{id}/eval").headers["Location"]
            assert location.startswith("https://viewer.example/ct/blobs/out/")
            stranger = TestClient(viewer.app, "https://viewer.example", follow_redirects=False)
            assert stranger.get(location).status_code == 200
            assert stranger.get(location[:-1] + "#").status_code == 403
            parts = urlsplit(location)
            other = f"/ct/blobs/out/{'0' * 32}.eval?{parts.query}"
            assert stranger.get(other).status_code == 403
            viewer.now += 301
            assert stranger.get(location).status_code == 403


class TestPricing:
    def test_rows_have_no_key_but_those_that_are_known(self, kept: Kept) -> None:
        """An unknown key in a row is refused by clients; the table is that of `ct models rates`."""
        found = kept.client.get("/api/pricing").json()
        assert found["items"] == [row.model_dump(mode="json") for row in price_list()]
        assert len(found["items"]) == found["total_count"] > 3
        prices = {
            "input_per_million",
            "output_per_million",
            "cached_input_per_million",
            "cache_write_multiplier",
        }
        for row in found["items"]:
            assert set(row) == {"model", "pricing", "manual"}
            assert set(row["pricing"]) == {*prices, "tiers"}
            for tier in row["pricing"]["tiers"] or ():
                assert set(tier) == {*prices, "max_input_tokens"}

    def test_pages(self, kept: Kept) -> None:
        whole = kept.client.get("/api/pricing").json()["items"]
        pages = [kept.client.get(f"/api/pricing?page={n}&page_size=5").json() for n in (1, 2, 3, 4)]
        assert [row for page in pages for row in page["items"]] == whole
        assert {page["page_size"] for page in pages} == {5}
