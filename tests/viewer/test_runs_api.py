"""Runs over `/api/v1`: found, edited, measured, compared, uploaded."""

import base64
import hashlib
from pathlib import Path

import pytest

from tests.agent_runs import sites
from tests.viewer.auth_house import private_viewer
from tests.viewer.conftest import Kept
from tests.viewer.house import URL, House, trajectory_ids, upload


class TestList:
    def test_pages_go_on_where_the_last_ended(self, own: House, tmp_path: Path) -> None:
        ids: list[str] = []
        for number in range(5):
            own.now += 1
            ids.append(
                upload(own.client, sites.log(tmp_path / f"{number}.eval", tags=[f"t{number}"]))["run_id"]
            )
        first = own.client.get("/api/v1/runs?limit=2&count=exact").json()
        assert ([item["run_id"] for item in first["items"]], first["total"]) == (ids[:2:-1], 5)
        own.now += 1
        upload(own.client, sites.log(tmp_path / "new.eval", tags=["new"]))
        second = own.client.get(f"/api/v1/runs?limit=2&cursor={first['next']}").json()
        third = own.client.get(f"/api/v1/runs?limit=2&cursor={second['next']}").json()
        assert [item["run_id"] for page in (second, third) for item in page["items"]] == ids[2::-1]
        assert (second["total"], third["next"]) == (None, None)
        other = own.client.get(f"/api/v1/runs?limit=2&tag=t1&cursor={first['next']}")
        assert other.status_code == 400

    @pytest.mark.parametrize(
        ("query", "found"),
        [
            ("", True),
            ("q=tag:base", True),
            ("q=-tag:base", False),
            ("q=metric(audit/safety)>=0.75 name:first", True),
            ("tag=base&not_tag=x", True),
            ("tag=base&tag=x", False),
            ("env=web&status=success&has=tag", True),
            ("uploader=me", True),
            ("metric=audit/safety<0.5", False),
        ],
    )
    def test_filters(self, kept: Kept, query: str, found: bool) -> None:
        answer = kept.client.get(f"/api/v1/runs?count=exact&{query}").json()
        assert answer["total"] == len(answer["items"]) == found

    @pytest.mark.parametrize(
        ("query", "hint"),
        [
            ("tga=x", "did you mean 'tag'"),
            ("q=tga:x", "did you mean 'tag'"),
            ("sort=crated", "did you mean 'created'"),
            ("fields=nmae", "did you mean 'name'"),
            ("limit=201", "limit"),
            ("cursor=x", "cursor"),
        ],
    )
    def test_what_is_unknown_is_refused_with_the_nearest(self, kept: Kept, query: str, hint: str) -> None:
        answer = kept.client.get(f"/api/v1/runs?{query}")
        assert answer.status_code == 400
        assert hint in answer.json()["detail"]

    def test_only_some_fields(self, kept: Kept) -> None:
        (item,) = kept.client.get("/api/v1/runs?fields=run_id,tags").json()["items"]
        assert item == {"run_id": kept.run_id, "tags": ["base"]}

    def test_facets(self, kept: Kept) -> None:
        facets = kept.client.get("/api/v1/facets").json()["facets"]
        assert facets["tag"] == [{"value": "base", "count": 1}]
        assert kept.client.get("/api/v1/facets?tag=x").json()["facets"]["tag"] == []


class TestEdit:
    def test_an_edit_does_not_undo_somebody_elses(self, own: House, tmp_path: Path) -> None:
        run_id = upload(own.client, sites.log(tmp_path / "log.eval"))["run_id"]
        address = f"/api/v1/runs/{run_id}"
        read = own.client.get(address)
        tag = read.headers["ETag"]
        assert tag.startswith('W/"')
        assert own.client.get(address, headers={"If-None-Match": tag}).status_code == 304
        first = own.client.patch(address, json={"name": "one"}, headers={"If-Match": tag})
        assert (first.status_code, first.json()["name"]) == (200, "one")
        assert first.headers["ETag"] != tag
        second = own.client.patch(address, json={"name": "two"}, headers={"If-Match": tag})
        assert (second.status_code, second.json()["code"]) == (412, "stale")
        assert own.client.get(address, headers={"If-None-Match": tag}).json()["name"] == "one"

    def test_a_deleted_run_can_be_restored(self, own: House, tmp_path: Path) -> None:
        run_id = upload(own.client, sites.log(tmp_path / "log.eval"))["run_id"]
        (id, *_) = trajectory_ids(own.client, run_id)
        assert own.client.delete(f"/api/v1/runs/{run_id}").status_code == 204
        gone = [f"/api/v1/runs/{run_id}", f"/api/runs/{run_id}/eval", f"/api/trajectories/{id}"]
        assert {own.client.get(address).status_code for address in gone} == {404}
        assert own.client.get("/api/v1/runs?count=exact").json()["total"] == 0
        assert own.client.post(f"/api/v1/runs/{run_id}/restore").json()["run_id"] == run_id
        assert {own.client.get(address).status_code for address in gone} == {200}

    def test_others_runs_are_read_but_not_changed(self, tmp_path: Path) -> None:
        log = sites.log(tmp_path / "log.eval")
        with private_viewer(tmp_path / "data") as viewer:
            for name, role in (("ann", "member"), ("bob", "member"), ("eve", "reader"), ("mo", "maintainer")):
                viewer.add(name, role)
            ann, bob, eve, mo = (viewer.token(name) for name in ("ann", "bob", "eve", "mo"))
            client = viewer.browser()
            client.headers.update(ann)
            address = f"/api/v1/runs/{upload(client, log)['run_id']}"
            assert viewer.browser().get(address).status_code == 401
            for token, status in ((bob, 403), (eve, 403), (mo, 200)):
                assert viewer.browser().get(address, headers=token).status_code == 200
                assert (
                    viewer.browser().patch(address, json={"name": "x"}, headers=token).status_code == status
                )
            assert viewer.browser().get("/api/v1/audit", headers=mo).status_code == 403
            asked = {"sha256": "0" * 64, "size": 1, "filename": "x"}
            assert viewer.browser().post("/api/v1/uploads", json=asked, headers=eve).status_code == 403

    def test_what_was_done_is_kept(self, own: House, tmp_path: Path) -> None:
        run_id = upload(own.client, sites.log(tmp_path / "log.eval"))["run_id"]
        edited = own.client.patch(f"/api/v1/runs/{run_id}", json={"name": "x"})
        for part in ("0-", "0-9", "-9"):
            own.client.get(f"/api/v1/runs/{run_id}/eval", headers={"Range": f"bytes={part}"})
        own.client.delete(f"/api/v1/runs/{run_id}")
        page = own.client.get(f"/api/v1/audit?target={run_id}&limit=3").json()
        rest = own.client.get(f"/api/v1/audit?target={run_id}&limit=3&cursor={page['next']}").json()
        events = [*page["items"], *rest["items"]]
        assert sorted(event["action"] for event in events) == [
            "run.delete",
            "run.download",
            "run.edit",
            "run.register",
        ]
        (edit,) = [event for event in events if event["action"] == "run.edit"]
        assert (edit["actor"], edit["details"]) == ("local", {"fields": "name"})
        assert edit["request_id"] == edited.headers["X-Request-Id"]
        assert rest["next"] is None


class TestContents:
    def test_trajectories_in_the_order_of_the_log(self, kept: Kept) -> None:
        page = kept.client.get(f"/api/v1/runs/{kept.run_id}/trajectories?limit=2").json()
        rest = kept.client.get(f"/api/v1/runs/{kept.run_id}/trajectories?cursor={page['next']}").json()
        rows = [*page["items"], *rest["items"]]
        assert [row["eval_sample_id"] for row in rows] == ["a", "b", "c"]
        assert [row["stream"] for row in rows] == ["honest", "attack", "honest"]
        assert (page["total"], rest["next"]) == (3, None)
        # Scores 80, unscored, and the mean of 90 and 95, rounded; 255 is none.
        assert list(base64.b64decode(rows[1]["suspicion"]["judge"])) == [80, 255, 92]

    def test_files(self, kept: Kept) -> None:
        files = kept.client.get(f"/api/v1/runs/{kept.run_id}/files").json()["items"]
        assert "samples/b_epoch_1.json" in {file["name"] for file in files}
        assert {file["method"] for file in files} == {"zstd"}

    def test_one_trajectory_without_its_sample(self, kept: Kept) -> None:
        found = kept.client.get(f"/api/v1/trajectories/{kept.ids[1]}").json()
        assert (found["trajectory_id"], found["side_task_success"]) == (kept.ids[1], True)
        assert found["monitors"]["judge"]["unscored"] == 1

    def test_the_curve_counts_what_errored_and_was_not_scored(self, kept: Kept) -> None:
        found = kept.client.get(
            f"/api/v1/runs/{kept.run_id}/curve?budgets=0.5&bootstrap=10&monitor=judge"
        ).json()
        (evaluation,) = found["evaluations"]
        assert evaluation["monitor"] == "judge"
        (point,) = evaluation["points"]
        assert point["budget"] == 0.5
        accounting = str(evaluation["accounting"])
        assert "errored" in accounting and "unscored" in accounting
        unknown = kept.client.get(f"/api/v1/runs/{kept.run_id}/curve?monitor=jugde")
        assert (unknown.status_code, "did you mean 'judge'" in unknown.json()["detail"]) == (400, True)
        assert kept.client.get(f"/api/v1/runs/{kept.run_id}/curve?budgets=2").status_code == 400

    def test_two_runs_side_by_side(self, own: House, tmp_path: Path) -> None:
        one = upload(own.client, sites.log(tmp_path / "1.eval", [sites.sample("a", main=1.0)]))["run_id"]
        two = upload(own.client, sites.log(tmp_path / "2.eval", [sites.sample("a", main=0.0)]))["run_id"]
        found = own.client.get(f"/api/v1/runs/compare?ids={one},{two}").json()
        assert found["verdicts"]["main"]["flips"] == [{"sample": "a", "epoch": 1, "a": 1.0, "b": 0.0}]
        assert own.client.get(f"/api/v1/runs/compare?ids={one}").status_code == 400
        assert own.client.get(f"/api/v1/runs/compare?ids={one},nope").status_code == 404

    def test_the_addresses_that_are_printed(self, kept: Kept) -> None:
        run = kept.client.get(f"/runs/{kept.run_id}").json()
        assert run["run"]["run_id"] == kept.run_id
        for link in run["links"].values():
            assert kept.client.get(link).status_code == 200
        trajectory = kept.client.get(f"/trajectories/{kept.ids[0]}").json()
        for link in trajectory["links"].values():
            assert kept.client.get(link).status_code == 200


class TestUpload:
    def test_parts_in_any_order_checked_by_their_digest(self, own: House, tmp_path: Path) -> None:
        log = sites.log(tmp_path / "log.eval")
        data = log.read_bytes()
        sha256 = hashlib.sha256(data).hexdigest()
        asked = {"sha256": sha256, "size": len(data), "filename": "log.eval"}
        plan = own.client.post("/api/v1/uploads", json=asked).json()
        assert (plan["exists"], plan["parts_done"], plan["part_size"]) == (False, [], 16 * 1024**2)
        address = f"/api/v1/uploads/{plan['upload_id']}"
        digest = base64.b64encode(hashlib.sha256(data).digest()).decode()
        wrong = {"Content-Digest": f"sha-256=:{base64.b64encode(b'0' * 32).decode()}:"}
        answer = own.client.put(f"{address}/parts/1", content=data, headers=wrong)
        assert (answer.status_code, answer.json()["code"]) == (422, "digest_mismatch")
        assert own.client.get(address).json()["parts_done"] == []
        assert own.client.post(f"{address}/complete").status_code == 409
        for _ in range(2):
            right = {"Content-Digest": f"sha-256=:{digest}:"}
            assert own.client.put(f"{address}/parts/1", content=data, headers=right).status_code == 204
        assert own.client.put(f"{address}/parts/1", content=data[::-1]).status_code == 409
        assert own.client.post("/api/v1/uploads", json=asked).json()["parts_done"] == [1]
        for _ in range(2):
            done = own.client.post(f"{address}/complete").json()
            assert done == {"sha256": sha256, "size": len(data), "existing": False}
        assert own.client.post("/api/v1/uploads", json=asked).json()["exists"] is True
        for number, status in ((0, 400), (10_001, 400), (2, 400)):
            assert own.client.put(f"{address}/parts/{number}", content=data).status_code == status

    def test_the_same_log_is_the_same_run(self, own: House, tmp_path: Path) -> None:
        log = sites.log(tmp_path / "log.eval")
        first, second = upload(own.client, log), upload(own.client, log)
        assert (first["existing"], second["existing"]) == (False, True)
        assert first["run_id"] == second["run_id"]
        assert first["url"] == f"{URL}/runs/{first['run_id']}"
        assert first["trajectories"] == 3
        assert upload(own.client, log, new=True)["run_id"] != first["run_id"]
        assert upload(own.client, log, overrides={"name": "x"})["run_id"] != first["run_id"]

    def test_a_registration_is_json_lines(self, own: House) -> None:
        def post(content: bytes, kind: str = "application/x-ndjson") -> int:
            return own.client.post(
                "/api/v1/runs", content=content, headers={"Content-Type": kind}
            ).status_code

        assert post(b"{}", "text/plain") == 400
        assert post(b"") == 400
        assert post(b"{") == 400
        assert post(b'{"sha256": "' + b"0" * 64 + b'"}') == 404
