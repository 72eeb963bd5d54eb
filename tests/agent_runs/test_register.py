"""A log becomes one run: whole, once, and only if documents say what the log says."""

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest

from control_tower.agent_runs.errors import BadRequest, Conflict, Forbidden, NotFound
from control_tower.agent_runs.queries import RunQuery, TrajectoryQuery
from control_tower.agent_runs.register import register_batch, register_run
from control_tower.agent_runs.runs import Runs
from control_tower.agent_runs.site import Site
from control_tower.agent_runs.store.tables import TRAJECTORIES
from control_tower.logs.json_text import JsonObject
from control_tower.records.runs import RunHeader, RunRow, TrajectoryMetadata, TrajectoryRow, TrajectorySummary
from tests.agent_runs.sites import (
    ANN,
    BOB,
    EVE,
    actor,
    batch,
    documents,
    lines,
    log,
    pieces,
    put_single,
    register,
    sample,
    seen,
    upload,
)

pytestmark = pytest.mark.anyio


async def test_a_log_becomes_a_run_with_its_trajectories(site: Site, tmp_path: Path) -> None:
    made = await register(site, ANN, log(tmp_path / "x.eval"), name="named", tags=[" new ", "new", ""])

    runs = Runs(site)
    url = f"s3://{site.blobs.bucket}/{made.run_id}.eval"
    assert (made.trajectories, made.existing, made.eval_log_url) == (3, False, url)
    document = (await runs.get(made.run_id)).document
    metadata = document.pop("metadata")
    created = document.pop("created_at")
    assert document == {
        "run_id": made.run_id,
        "name": "named",
        "policy": "ct/honest+ct/attack-vs-ct/defer",
        "task_set": "small",
        "producer": "control_eval",
        "trajectory_count": 3,
        "eval_log_url": url,
        "created_by": "ann",
        "total_cost_usd": 1.5,
        "cost_by_model": {"demo/agent": 1.5},
        "metrics": {"audit": {"safety": 0.75}, "tasks": {"main/mean": None}},
        "tags": ["new"],
        "description": None,
        "comments": [],
        "dataset": None,
        "models": ["demo/agent"],
        "control_settings": ["shop"],
        "counts": {"honest": 2, "attack": 1, "errored": 1, "unscored": 0, "missing": 0},
        "cost_incomplete": False,
    }
    assert metadata["command"] == "ct run control-eval --log-dir logs"
    assert metadata["eval_version"] == "3.0"
    assert not metadata.keys() & {"run_name", "policy", "task_set", "tags"}

    page = await runs.list(RunQuery(count=True), ANN)
    row = page.items[0]
    assert RunRow.model_validate(row)
    assert (page.total, page.next, row["created_at"]) == (1, None, created)
    assert row["counts"] == {"honest": 2, "attack": 1, "errored": 1, "unscored": 0, "missing": 0}
    assert (row["environments"], row["monitors"], row["protocol"]) == (["shop/web"], ["judge"], "ct/defer")

    rows = (await runs.run_trajectories(made.run_id)).items
    assert [each["eval_sample_id"] for each in rows] == ["a", "b", "c"]
    assert [each["stream"] for each in rows] == ["honest", "attack", "honest"]
    assert [each["outcome_main"] for each in rows] == ["pass", "unscored", "unscored"]
    assert [each["outcome_side"] for each in rows] == [None, "pass", None]
    # Of several draws the mean; the draft that never ran counts in no maximum, nor does what is unscored.
    assert [each["max_suspicion_score"] for each in rows] == [30.4, 92.5, None]
    assert [each["traj_suspicion_score"] for each in rows] == [None, 70.0, None]
    assert [each["unscored_verdicts"] for each in rows] == [0, 1, 0]
    assert [list(base64.b64decode(each["suspicion"].get("judge", ""))) for each in rows] == [
        [10, 30],
        [80, 255, 92],
        [],
    ]
    assert [each["error"] and each["error"]["error_type"] for each in rows] == [None, None, "eval_error"]
    for each in rows:
        TrajectoryRow.model_validate(each)


async def test_documents_come_back_as_they_were_with_what_the_store_knows(site: Site, tmp_path: Path) -> None:
    path = log(tmp_path / "x.eval")
    given = documents(path)
    made = await register(site, ANN, path, given)

    runs = Runs(site)
    page = await runs.trajectories(TrajectoryQuery({"run_id": [made.run_id]}, documents=True), ANN)
    assert page.total_count == 3
    found = {str(each["eval_sample_id"]): each for each in page.items}
    data = path.read_bytes()
    for sent in given:
        kept = found[sent["eval_sample_id"]]
        assert kept == {**sent, **{key: kept[key] for key in kept.keys() - sent.keys()}}
        assert kept["eval_metadata"]["command"] == "ct run control-eval --log-dir logs"
        assert kept["eval_log_url"] == f"{made.eval_log_url}/samples/sample/{sent['eval_sample_id']}"
        assert kept == await runs.trajectory(kept["trajectory_id"])

        stored = await runs.sample_of(kept["trajectory_id"])
        where = stored.range
        assert where["key"] == f"{made.run_id}.eval"
        assert where["samplePath"] == f"samples/{sent['eval_sample_id']}_epoch_1.json"
        assert where["eTag"] == stored.blob.e_tag
        read = [part async for part in site.blobs.read(stored.blob.key, pinned=stored.blob)]
        assert b"".join(read) == data
        assert TrajectoryMetadata.model_validate(stored.metadata).run_id == made.run_id
        assert stored.metadata["source_file"] == "x.eval"


async def test_the_same_again_is_the_same_run(local_site: Site, tmp_path: Path) -> None:
    site = local_site
    path = log(tmp_path / "x.eval")
    first = await register(site, ANN, path, tags=["t"])
    ids = await _ids(site)

    again = await register(site, ANN, path, documents(path, converted_at=9), tags=["t", " t "])
    assert again == type(first)(first.run_id, 3, True, first.eval_log_url)
    assert await _ids(site) == ids

    other_overrides = await register(site, ANN, path, tags=["u"])
    other_user = await register(site, BOB, path, tags=["t"])
    another = await register(site, ANN, path, tags=["t"], new=True)
    made = {first.run_id, other_overrides.run_id, other_user.run_id, another.run_id}
    assert len(made) == 4
    assert set(await seen(site)) == made


async def test_two_at_once_are_one_run(site: Site, tmp_path: Path) -> None:
    path = log(tmp_path / "x.eval")
    await upload(site, ANN, path)

    made = await asyncio.gather(*(register(site, ANN, path) for _ in range(4)))

    assert len({each.run_id for each in made}) == 1
    assert sum(not each.existing for each in made) == 1
    assert len(await _ids(site)) == 3


async def test_a_run_is_seen_when_it_is_whole_and_a_repeat_completes_it(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("control_tower.agent_runs.register.BATCH_LINES", 10)
    samples = [sample(f"s{number}", main=1.0) for number in range(45)]
    path = log(tmp_path / "x.eval", samples)
    sha256 = await upload(site, ANN, path)
    body = lines({"sha256": sha256}, documents(path))

    async def dies() -> AsyncGenerator[bytes]:
        async for piece in pieces(body[: len(body) * 3 // 4]):
            yield piece
        raise ConnectionError

    with pytest.raises(ConnectionError):
        await register_run(site, ANN, dies())
    runs = Runs(site)
    assert await seen(site) == []
    assert (await runs.trajectories(TrajectoryQuery(), ANN)).total_count == 0
    assert (await runs.trajectories(TrajectoryQuery({"stream": ["honest"]}), ANN)).total_count == 0
    assert await site.store.count(TRAJECTORIES) == 30

    made = await register_run(site, ANN, pieces(body))
    assert (made.trajectories, made.existing) == (45, False)
    assert len(await _ids(site)) == 45


def _broken(change: Callable[[list[JsonObject]], Any]) -> Callable[[list[JsonObject]], list[JsonObject]]:
    def broken(given: list[JsonObject]) -> list[JsonObject]:
        change(given)
        return given

    return broken


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_broken(lambda given: given.pop()), "sample c: has no document"),
        (_broken(lambda given: given.append(given[0])), "sample a: has two documents"),
        (_broken(lambda given: given[0].update(eval_sample_id="z")), "the log has no sample z"),
        (_broken(lambda given: given[0].update(epoch=2)), "the log has no sample a (epoch 2)"),
        (_broken(lambda given: given[0].pop("eval_sample_id")), "document 1: names no sample"),
        (
            _broken(lambda given: given[0].update(main_task_success=False)),
            "sample a: main_task_success is False, in the log True",
        ),
        (_broken(lambda given: given[1]["tasks"].update(side=0.0)), "sample b: tasks is"),
        (_broken(lambda given: given[1]["monitors"]["judge"].update(max=1.0)), "sample b: its monitors"),
        (_broken(lambda given: given[1].pop("monitors")), "sample b: its monitors"),
        (
            _broken(lambda given: given[0]["task_scores"][0].update(value=0.5)),
            "score of task 'build' is 0.5",
        ),
        (_broken(lambda given: given[0]["task_scores"][0].update(id="x")), "a score of task 'x'"),
        (_broken(lambda given: given[2].update(error=None)), "sample c: it has no error"),
    ],
)
async def test_documents_that_say_otherwise_than_the_log_are_refused(
    local_site: Site, tmp_path: Path, change: Callable[[list[JsonObject]], list[JsonObject]], said: str
) -> None:
    path = log(tmp_path / "x.eval")
    with pytest.raises(BadRequest) as refused:
        await register(local_site, ANN, path, change(documents(path)))
    assert said in str(refused.value)
    assert await seen(local_site) == []


async def test_the_log_s_own_tags_are_as_clean_as_those_that_are_given(
    local_site: Site, tmp_path: Path
) -> None:
    made = await register(local_site, ANN, log(tmp_path / "x.eval", tags=[" base ", "base", "", "b, c,"]))
    assert (await Runs(local_site).get(made.run_id)).document["tags"] == ["base", "b", "c"]
    found = await Runs(local_site).list(RunQuery(parameters={"tag": ["base"]}), ANN)
    assert [run["run_id"] for run in found.items] == [made.run_id]


async def test_what_is_no_registration_is_refused(local_site: Site, tmp_path: Path) -> None:
    sha256 = await upload(local_site, ANN, log(tmp_path / "x.eval"))

    async def refused(body: bytes) -> str:
        with pytest.raises(BadRequest) as error:
            await register_run(local_site, ANN, pieces(body))
        return str(error.value)

    assert "the first line: it is not JSON" in await refused(b"")
    assert "the first line: sha256" in await refused(b"{}")
    assert "sha256" in await refused(lines({"sha256": sha256.upper()}, []))
    assert "overrides.nam" in await refused(lines({"sha256": sha256, "overrides": {"nam": "x"}}, []))
    assert "overrides.tags.0" in await refused(lines({"sha256": sha256, "overrides": {"tags": ["a,b"]}}, []))
    first = json.dumps({"sha256": sha256}).encode()
    assert "document 1: it is not JSON" in await refused(first + b"\n{")
    assert "document 1: it is not JSON (NaN" in await refused(first + b'\n{"eval_sample_id": NaN}')
    assert "document 1: it is not JSON" in await refused(first + b"\n" + b"[" * 100_000)
    assert "document 1: names no sample" in await refused(first + b"\n[]")
    assert "more than 8388608 bytes" in await refused(first + b"\n" + b"x" * 9_000_000)


async def test_who_may_not(local_site: Site, tmp_path: Path) -> None:
    site = local_site
    path = log(tmp_path / "x.eval")
    sha256 = await upload(site, ANN, path)
    body = lines({"sha256": sha256}, documents(path))
    with pytest.raises(Forbidden):
        await register_run(site, EVE, pieces(body))
    # Who has neither sent a log nor can read a run of it learns nothing by its digest.
    with pytest.raises(NotFound, match="upload it first"):
        await register_run(site, BOB, pieces(body))
    await register_run(site, ANN, pieces(body))
    assert not (await register_run(site, BOB, pieces(body))).existing


async def test_a_deleted_run_is_seen_again_when_it_is_made_again(local_site: Site, tmp_path: Path) -> None:
    site = local_site
    path = log(tmp_path / "x.eval")
    made = await register(site, ANN, path)
    await Runs(site).delete(ANN, made.run_id)
    assert await seen(site) == []

    again = await register(site, ANN, path)
    assert (again.run_id, again.existing) == (made.run_id, True)
    assert await seen(site) == [made.run_id]
    assert len(await _ids(site)) == 3


async def test_odd_samples(local_site: Site, tmp_path: Path) -> None:
    """Ids that need quoting, task ids with `+`, a NaN audit, an unpriced model, no setting."""
    odd = "it's/a+b:c%20\n" + "x" * 300
    samples = [
        sample(odd, mains=("a+b", "c"), main=0.0, environment="bare", usd=None, audit=float("nan")),
        sample(odd, epoch=2, mains=("a+b", "c"), main="N", environment="bare"),
        sample("7", mains=("a", "b+c"), error="died", environment="shop/web"),
    ]
    made = await register(local_site, ANN, log(tmp_path / "x.eval", samples))

    runs = Runs(local_site)
    rows = (await runs.run_trajectories(made.run_id)).items
    assert [(each["eval_sample_id"], each["epoch"]) for each in rows] == [(odd, 1), (odd, 2), ("7", 1)]
    assert [each["outcome_main"] for each in rows] == ["fail", "unscored", "unscored"]
    assert [each["cost_incomplete"] for each in rows] == [True, False, False]
    run = (await runs.list(RunQuery(), ANN)).items[0]
    assert (run["total_cost_usd"], run["cost_incomplete"]) == (1.0, True)
    assert run["counts"] == {"honest": 3, "attack": 0, "errored": 1, "unscored": 1, "missing": 0}
    head = (await runs.get(made.run_id)).document
    assert head["cost_by_model"] == {"demo/agent": None}
    assert head["control_settings"] == []
    document = await runs.trajectory(str(rows[0]["trajectory_id"]))
    assert document["audit_scores"] == {"audit": None}
    assert document["eval_log_url"].endswith("/samples/sample/it%27s%2Fa%2Bb:c%2520%0A" + "x" * 300)

    async def count(task: str) -> int:
        return (await runs.trajectories(TrajectoryQuery({"main_task": [task]}, limit=1), ANN)).total_count

    # "c" is also what the errored one's "a+b+c" may be made of; nothing says otherwise.
    assert [await count(task) for task in ("a+b", "c", "a+b+c", "b", "z")] == [3, 3, 3, 1, 0]


class TestOlderClients:
    """Documents in batches with ids of the client, the header with the last."""

    RUN = "0123456789abcdef0123456789abcdef"
    IDS = ("t-a", "t-b", "t-c")

    def _header(self, site: Site, run_id: str = RUN, **more: Any) -> JsonObject:
        url = f"s3://{site.blobs.bucket}/{run_id}.eval"
        own = {"run_id": run_id, "name": "old", "policy": "p", "task_set": None, "producer": "eval"}
        return {
            **own,
            "eval_log_url": url,
            "tags": ["x"],
            "metrics": {},
            "metadata": {},
            "models": ["m"],
            **more,
        }

    async def _sent(self, site: Site, tmp_path: Path) -> JsonObject:
        path = log(tmp_path / "x.eval")
        await put_single(site, ANN, path, self.RUN)
        return batch(site, path, self.RUN, self.IDS)

    async def test_a_run_in_batches(self, site: Site, tmp_path: Path) -> None:
        body = await self._sent(site, tmp_path)
        first, last = (
            {**body, "trajectories": body["trajectories"][part]} for part in (slice(2), slice(2, 3))
        )
        await register_batch(site, ANN, first)
        await register_batch(site, ANN, first)
        assert await seen(site) == []
        last["run"] = self._header(site)
        await register_batch(site, ANN, last)
        # A client whose answer was lost sends the same from another folder, with another clock.
        for document in last["trajectories"]:
            document["source_file"] = "/elsewhere/x.eval"
            document["timing"]["converted_at"] = 2
        await register_batch(site, ANN, last)
        await register_batch(site, ANN, first)

        runs = Runs(site)
        document = (await runs.get(self.RUN)).document
        assert RunHeader.model_validate(document)
        assert (document["name"], document["trajectory_count"], document["created_by"]) == ("old", 3, "ann")
        assert document["comments"] == []
        page = await runs.trajectories(TrajectoryQuery(), ANN)
        assert (page.total_count, sorted(item["trajectory_id"] for item in page.items)) == (3, list(self.IDS))
        assert TrajectorySummary.model_validate(page.items[0]).model_dump() == page.items[0]
        kept = await runs.trajectory("t-a")
        sent = body["trajectories"][0]
        kept["eval_sample_range"]["eTag"] = sent["eval_sample_range"]["eTag"]
        assert kept == {**sent, **{key: kept[key] for key in ("created_at", "created_by")}}

    async def test_a_header_may_come_alone(self, local_site: Site, tmp_path: Path) -> None:
        site = local_site
        body = await self._sent(site, tmp_path)
        await register_batch(site, ANN, body)
        await register_batch(site, ANN, {"trajectories": [], "schema_version": 3, "run": self._header(site)})
        assert await seen(site) == [self.RUN]

    async def test_lists_are_never_null(self, local_site: Site, tmp_path: Path) -> None:
        site = local_site
        body = await self._sent(site, tmp_path)
        nulls = dict.fromkeys(("tags", "models", "metadata", "metrics", "cost_by_model", "comments"))
        await register_batch(site, ANN, {**body, "run": self._header(site, **nulls)})
        document = (await Runs(site).get(self.RUN)).document
        for name in ("tags", "models", "comments", "control_settings"):
            assert document[name] == []
        for name in ("metadata", "metrics", "cost_by_model"):
            assert document[name] == {}

    async def test_ids_are_claimed_once(self, site: Site, tmp_path: Path) -> None:
        body = await self._sent(site, tmp_path)
        await register_batch(site, ANN, {**body, "run": self._header(site)})
        ids = await _ids(site)

        changed = json.loads(json.dumps(body))
        changed["trajectories"][1]["name"] = "another"
        with pytest.raises(Conflict, match="t-b"):
            await register_batch(site, ANN, changed)
        with pytest.raises(Conflict, match="another header"):
            await register_batch(site, ANN, {**body, "run": self._header(site, name="else")})
        path = log(tmp_path / "y.eval", [sample("a", main=0.0)], run_name="second")
        await put_single(site, ANN, path, "other")
        with pytest.raises(Conflict, match="t-a"):
            await register_batch(site, ANN, batch(site, path, "other", ["t-a"]))
        one_more = batch(site, log(tmp_path / "z.eval"), self.RUN, ["t-x", "t-y", "t-z"])
        with pytest.raises(Conflict, match="is whole"):
            await register_batch(site, ANN, one_more)
        assert await _ids(site) == ids
        # Editing a run does not make its own header another one.
        await Runs(site).patch(ANN, self.RUN, {"name": "edited"})
        await register_batch(site, ANN, {**body, "run": self._header(site)})
        assert (await Runs(site).get(self.RUN)).document["name"] == "edited"

    async def test_a_header_before_its_trajectories_makes_no_run(
        self, local_site: Site, tmp_path: Path
    ) -> None:
        site = local_site
        body = await self._sent(site, tmp_path)
        part = {**body, "trajectories": body["trajectories"][:2], "run": self._header(site)}
        with pytest.raises(BadRequest, match="no trajectory of sample c"):
            await register_batch(site, ANN, part)
        assert await seen(site) == []
        await register_batch(site, ANN, {**body, "run": self._header(site)})
        assert await seen(site) == [self.RUN]

    async def test_logs_of_others_and_other_places(self, local_site: Site, tmp_path: Path) -> None:
        site = local_site
        body = await self._sent(site, tmp_path)
        with pytest.raises(Forbidden):
            await register_batch(site, BOB, body)
        with pytest.raises(Forbidden):
            await register_batch(site, EVE, body)
        for name, value in [
            ("eval_log_url", f"s3://elsewhere/{self.RUN}.eval/samples/sample/a"),
            ("eval_log_url", "https://example.org/x.eval"),
            ("eval_log_url", None),
        ]:
            changed = json.loads(json.dumps(body))
            changed["trajectories"][0][name] = value
            with pytest.raises(Forbidden):
                await register_batch(site, ANN, changed)

        for name, value in [("compressedStart", 0), ("crc32", 1), ("samplePath", "samples/b_epoch_1.json")]:
            changed = json.loads(json.dumps(body))
            changed["trajectories"][0]["eval_sample_range"][name] = value
            with pytest.raises(BadRequest, match="t-a: eval_sample_range"):
                await register_batch(site, ANN, changed)
        with pytest.raises(BadRequest, match="eval_log_sizes"):
            await register_batch(site, ANN, {**body, "eval_log_sizes": {f"{self.RUN}.eval": 1}})
        with pytest.raises(BadRequest, match="schema_version"):
            await register_batch(site, ANN, {**body, "schema_version": 2})
        with pytest.raises(BadRequest, match="run_id"):
            await register_batch(site, ANN, {**body, "run": self._header(site, run_id="../x")})
        assert await site.store.count(TRAJECTORIES) == 0

    async def test_nobody_takes_anothers_run_id(self, local_site: Site, tmp_path: Path) -> None:
        body = await self._sent(local_site, tmp_path)
        await register_batch(local_site, ANN, body)
        theirs = log(tmp_path / "y.eval", run_name="bobs")
        await put_single(local_site, BOB, theirs, "bobs")
        stolen = batch(local_site, theirs, "bobs", ["u-a", "u-b", "u-c"])
        for document in stolen["trajectories"]:
            document["run_id"] = self.RUN
        with pytest.raises(Conflict):
            await register_batch(local_site, BOB, stolen)


async def test_a_member_may_not_change_what_others_registered(local_site: Site, tmp_path: Path) -> None:
    made = await register(local_site, ANN, log(tmp_path / "x.eval"))
    for who in (BOB, EVE):
        with pytest.raises(Forbidden):
            await Runs(local_site).delete(who, made.run_id)
    await Runs(local_site).delete(actor("mia", "maintainer"), made.run_id)


async def _ids(site: Site) -> list[str]:
    page = await Runs(site).trajectories(TrajectoryQuery(ids_only=True), ANN)
    assert len(page.items) == page.total_count
    return sorted(page.items)
