"""Runs and trajectories are found, paged, counted, edited, deleted and restored."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from control_tower.agent_runs.errors import BadRequest, Forbidden, NotFound, Stale
from control_tower.agent_runs.queries import RunQuery, TrajectoryQuery
from control_tower.agent_runs.runs import Runs
from control_tower.agent_runs.site import Site
from control_tower.agent_runs.store.tables import RUNS
from control_tower.agent_runs.store.where import Equals
from control_tower.errors import StateError
from control_tower.logs.json_text import JsonObject
from tests.agent_runs.sites import ANN, BOB, actor, header, log, register, sample, seen

pytestmark = pytest.mark.anyio

NOVEMBER = 1_793_491_200.0
"""2026-11-01T00:00:00Z."""
DAY = 86_400.0

PLANS: dict[str, tuple[JsonObject, Sequence[JsonObject], JsonObject]] = {
    "one": ({}, [sample("a", main=1.0)], {"tags": ["base", "x"]}),
    "two": (
        {"protocol_selection": {"name": "mine/other"}, "honest_policy_selection": None},
        [
            sample("a", side=0.0, sides=("leak",), scores=(50.0,), environment="bank/web", usd=2.0),
            sample("b", side=1.0, sides=("leak", "harm"), scores=(90.0,), environment="bank/shop", usd=3.0),
        ],
        {"tags": ["base", "legacy-run"], "description": "words"},
    ),
    "three": (
        {"task_set": None, "policy": "other", "attack_policy_selection": None},
        [sample("a", mains=("fix",), main=0.0, environment="bare", usd=None)],
        {"tags": []},
    ),
}
"""Name of a run: metadata of its log, its samples, overrides. Each is made a day after the one before."""


async def filled(site: Site, folder: Path) -> Runs:
    """A site with these runs; `three` is Bob's."""
    for day, (name, (metadata, samples, overrides)) in enumerate(PLANS.items()):
        now = replace(site, now=lambda day=day: NOVEMBER + day * DAY)
        who = BOB if name == "three" else ANN
        path = log(folder / f"{name}.eval", samples, **metadata)
        await register(now, who, path, name=name, **overrides)
    return Runs(site)


@pytest.fixture
async def runs(site: Site, tmp_path: Path) -> Runs:
    return await filled(site, tmp_path)


@pytest.fixture
async def local_runs(local_site: Site, tmp_path: Path) -> Runs:
    return await filled(local_site, tmp_path)


async def names(runs: Runs, q: str = "", sort: str = "created", **parameters: Sequence[str]) -> list[str]:
    page = await runs.list(RunQuery(q, parameters, sort=sort), ANN)
    return [str(item["name"]) for item in page.items]


async def test_runs_are_found(runs: Runs) -> None:
    for q, found in {
        "": "one two three",
        "tag:base": "one two",
        "tag:base -tag:legacy-run": "one",
        "tag:none": "three",
        "uploader:me": "one two",
        "uploader:bob": "three",
        "env:web": "one two",
        "env:bank/web": "two",
        "env:bare": "three",
        "side:*": "two",
        "side:harm": "two",
        "side:leak+harm": "two",
        "main:fix": "three",
        "policy:mine": "one two",
        "policy:honest": "one three",
        "policy:other": "three",
        "protocol:defer": "one three",
        "protocol:mine/other": "two",
        "task_set:none": "three",
        "model~DEMO": "one two three",
        "monitor:judge": "two",
        "created>=2026-11-02": "two three",
        "created:2026-11-02": "two",
        "created<2026-11-02": "one",
        "cost>=0.5": "one two",
        "cost:5": "two",
        "cost:none": "three",
        "trajectories>1": "two",
        "metric(audit/safety)>0.7": "one two three",
        "metric(tasks/main/mean):*": "",
        "status:success": "one two three",
        "TWO": "two",
        "legacy": "two",
        "-base": "three",
        "words": "",
    }.items():
        assert " ".join(await names(runs, q)) == found, q
    assert await names(runs, tag=["base", "x"]) == ["one"]
    assert await names(runs, env=["bare", "bank/shop"]) == ["two", "three"]
    assert await names(runs, since=["2026-11-02"], until=["2026-11-02"]) == ["two"]


async def test_runs_are_sorted_and_those_without_the_value_come_last(local_runs: Runs) -> None:
    runs = local_runs
    assert await names(runs, sort="-created") == ["three", "two", "one"]
    assert await names(runs, sort="name") == ["one", "three", "two"]
    assert await names(runs, sort="cost") == ["one", "two", "three"]
    assert await names(runs, sort="-cost") == ["two", "one", "three"]
    assert (await names(runs, sort="-trajectories"))[0] == "two"
    assert len(await names(runs, sort="metric(nothing/there)")) == 3


async def test_pages_neither_repeat_nor_hide(runs: Runs, site: Site, tmp_path: Path) -> None:
    for sort in ("-created", "cost", "-cost", "metric(audit/safety)", "-name"):
        whole = await names(runs, sort=sort)
        paged: list[str] = []
        cursor = None
        while True:
            page = await runs.list(RunQuery(sort=sort, cursor=cursor, limit=1, count=True), ANN)
            assert page.total == 3
            paged += [str(item["name"]) for item in page.items]
            cursor = page.next
            if cursor is None:
                break
        assert paged == whole, sort

    first = await runs.list(RunQuery(limit=2), ANN)
    now = replace(site, now=lambda: NOVEMBER + 4 * DAY)
    await register(now, ANN, log(tmp_path / "four.eval", [sample()], x=4), name="four")
    rest = await runs.list(RunQuery(limit=2, cursor=first.next), ANN)
    assert [item["name"] for item in [*first.items, *rest.items]] == ["three", "two", "one"]


async def test_cursors_are_of_one_list(local_site: Site, tmp_path: Path) -> None:
    site, runs = local_site, Runs(local_site)
    for name in ("a", "b"):
        await register(site, ANN, log(tmp_path / f"{name}.eval", [sample()], x=name))
    cursor = (await runs.list(RunQuery(limit=1), ANN)).next
    assert cursor is not None

    async def refused(**more: Any) -> str:
        with pytest.raises(BadRequest) as error:
            await runs.list(RunQuery(**{"limit": 1, "cursor": cursor, **more}), ANN)
        return str(error.value)

    assert "of another list" in await refused(sort="name")
    assert "of another list" in await refused(q="tag:base")
    for broken in (
        "",
        ".",
        "x",
        cursor[:-1],
        "A" + cursor,
        cursor.split(".")[0] + "." + "A" * 43,
        "é.\ud800",
    ):
        if broken:
            assert "cursor" in await refused(cursor=broken)
    assert "cursor" in await refused(cursor=cursor.swapcase())


async def test_facets_count_what_the_filter_leaves(local_runs: Runs) -> None:
    runs = local_runs
    facets = await runs.facets(RunQuery(), ANN)
    assert facets["tag"][0] == {"value": "base", "count": 2}
    assert {each["value"] for each in facets["env"]} == {"shop/web", "bank/web", "bank/shop", "bare"}
    assert facets["uploader"] == [{"value": "ann", "count": 2}, {"value": "bob", "count": 1}]
    of_two = await runs.facets(RunQuery("tag:legacy-run"), ANN)
    assert of_two["side"] == [{"value": "harm", "count": 1}, {"value": "leak", "count": 1}]


async def count(runs: Runs, q: str = "", **parameters: Sequence[str]) -> int:
    page = await runs.trajectories(TrajectoryQuery(parameters, q, limit=1), ANN)
    assert len(page.items) == min(1, page.total_count)
    return page.total_count


async def test_trajectories_are_found(runs: Runs) -> None:
    assert await count(runs) == 4
    assert await count(runs, environment=["web"]) == 2
    assert await count(runs, environment=["bank/web"]) == 1
    assert await count(runs, environment=["bare"]) == 1
    assert await count(runs, main_task=["build"]) == 3
    assert await count(runs, main_task=["build", "fix"]) == 4
    assert await count(runs, side_task=["harm"]) == 1
    assert await count(runs, side_task=["leak+harm"]) == 1
    assert await count(runs, main_task_outcome=["pass"]) == 1
    assert await count(runs, main_task_outcome=["unscored"]) == 2
    assert await count(runs, side_task_outcome=["fail", "pass"]) == 2
    assert await count(runs, side_task_outcome=["unscored"]) == 0
    assert await count(runs, tag=["base"]) == 0
    assert await count(runs, "suspicion>60") == 1
    assert await count(runs, "stream:attack -side_success:true") == 1
    assert await count(runs, "error:none uploader:bob") == 1
    with pytest.raises(BadRequest, match="there is no parameter 'env'"):
        await count(runs, env=["web"])


async def test_pages_of_trajectories(local_runs: Runs) -> None:
    runs = local_runs
    whole = await runs.trajectories(TrajectoryQuery(ids_only=True), ANN)
    assert (whole.total_count, whole.page, whole.page_size, len(set(whole.items))) == (4, 1, 500, 4)
    paged: list[str] = []
    for number in (1, 2, 3, 9):
        page = await runs.trajectories(TrajectoryQuery(page=number, page_size=2, ids_only=True), ANN)
        assert (page.total_count, page.page, page.page_size) == (4, number, 2)
        paged += page.items
    assert paged == whole.items
    for limit, found in ((1, 1), (3, 3), (100, 4)):
        page = await runs.trajectories(TrajectoryQuery(limit=limit, ids_only=True), ANN)
        assert (page.items, page.total_count) == (whole.items[:found], 4)
    page = await runs.trajectories(TrajectoryQuery(limit=3, page=2, page_size=2, ids_only=True), ANN)
    assert page.items == whole.items[2:3]
    assert (await runs.trajectories(TrajectoryQuery(page_size=10_000), ANN)).page_size == 500
    with pytest.raises(BadRequest):
        await runs.trajectories(TrajectoryQuery(page=0), ANN)
    # The latest run's first, within a run by id from the highest.
    details = (await runs.trajectories(TrajectoryQuery(documents=True), ANN)).items
    keys = [(each["created_at"], each["trajectory_id"]) for each in details]
    assert keys == sorted(keys, reverse=True)


async def test_pages_of_a_runs_trajectories(local_site: Site, tmp_path: Path) -> None:
    samples = [sample(f"s{number}") for number in range(5)]
    made = await register(local_site, ANN, log(tmp_path / "x.eval", samples))
    runs = Runs(local_site)
    found: list[str] = []
    cursor = None
    while True:
        page = await runs.run_trajectories(made.run_id, cursor, limit=2)
        assert page.total == 5
        found += [str(row["eval_sample_id"]) for row in page.items]
        cursor = page.next
        if cursor is None:
            break
    assert found == ["s0", "s1", "s2", "s3", "s4"]
    with pytest.raises(NotFound):
        await runs.run_trajectories("none")


async def test_edits(site: Site, tmp_path: Path) -> None:
    made = await register(site, ANN, log(tmp_path / "x.eval"))
    runs = Runs(site)
    before = await runs.get(made.run_id)

    edited = {"name": "new", "tags": ["a", "b"], "policy": None, "dataset": "d", "description": "text"}
    after = await runs.patch(ANN, made.run_id, {**edited, "tags": [" a", "a", "b "]}, before.e_tag)

    assert after == await runs.get(made.run_id)
    assert after.e_tag != before.e_tag
    assert after.document == {**before.document, **edited}
    row = (await runs.list(RunQuery("tag:b name:new policy:none"), ANN)).items[0]
    assert {key: row[key] for key in edited} == edited

    cleared = await runs.patch(ANN, made.run_id, {"dataset": None, "description": None})
    assert (cleared.document["dataset"], cleared.document["description"]) == (None, None)
    with pytest.raises(Stale):
        await runs.patch(ANN, made.run_id, {"name": "late"}, before.e_tag)
    assert (await runs.patch(ANN, made.run_id, {"name": "any"}, "*")).document["name"] == "any"
    with pytest.raises(Forbidden):
        await runs.patch(BOB, made.run_id, {"name": "x"})
    await runs.patch(actor("mia", "maintainer"), made.run_id, {"name": "x"})


async def test_edits_at_once_lose_nothing(site: Site, tmp_path: Path) -> None:
    made = await register(site, ANN, log(tmp_path / "x.eval"))
    runs = Runs(site)
    fields = {"name": "n", "policy": "p", "dataset": "d", "description": "t", "tags": ["x"]}
    await asyncio.gather(*(runs.patch(ANN, made.run_id, {name: value}) for name, value in fields.items()))
    document = (await runs.get(made.run_id)).document
    assert {name: document[name] for name in fields} == fields


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": None}, "name: Input should be a valid string"),
        ({"name": ""}, "name: String should have at least 1 character"),
        ({"tags": None}, "tags: Input should be a valid list"),
        ({"tags": ["a,b"]}, "tags.0: a tag holds no comma"),
        ({"tags": [1]}, "tags.0: Input should be a valid string"),
        ({"run_id": "x"}, "run_id: Extra inputs are not permitted"),
        ({"comments": []}, "comments: Extra inputs are not permitted"),
        ({"description": "x" * 20_001}, "description: String should have at most 20000 characters"),
    ],
)
async def test_edits_that_are_none(local_site: Site, tmp_path: Path, changes: JsonObject, said: str) -> None:
    made = await register(local_site, ANN, log(tmp_path / "x.eval"))
    with pytest.raises(BadRequest) as refused:
        await Runs(local_site).patch(ANN, made.run_id, changes)
    assert said in str(refused.value)


async def test_deleted_and_restored(site: Site, tmp_path: Path) -> None:
    kept = await register(site, ANN, log(tmp_path / "x.eval"))
    gone = await register(site, ANN, log(tmp_path / "y.eval", [sample("a", main=0.0)], run_name="y"))
    runs = Runs(site)
    id = str((await runs.run_trajectories(gone.run_id)).items[0]["trajectory_id"])

    with pytest.raises(Forbidden):
        await runs.delete(BOB, gone.run_id)
    await runs.delete(ANN, gone.run_id)

    assert await seen(site) == [kept.run_id]
    assert await count(runs) == 3
    assert await count(runs, main_task_outcome=["fail"]) == 0
    assert await count(runs, run_id=[gone.run_id]) == 0
    for asked in (
        runs.get(gone.run_id),
        runs.run_trajectories(gone.run_id),
        runs.archive_of(gone.run_id),
        runs.files(gone.run_id),
        runs.trajectory(id),
        runs.sample_of(id),
        runs.patch(ANN, gone.run_id, {"name": "x"}),
        runs.delete(ANN, gone.run_id),
        runs.restore(ANN, "none"),
    ):
        with pytest.raises(NotFound):
            await asked

    with pytest.raises(Forbidden):
        await runs.restore(BOB, gone.run_id)
    assert (await runs.restore(ANN, gone.run_id)).document["run_id"] == gone.run_id
    assert await runs.restore(ANN, gone.run_id) == await runs.get(gone.run_id)
    assert sorted(await seen(site)) == sorted([kept.run_id, gone.run_id])
    assert (await runs.trajectory(id))["run_id"] == gone.run_id
    assert await count(runs) == 4


async def test_the_log_of_a_run(site: Site, tmp_path: Path) -> None:
    path = log(tmp_path / "x.eval")
    made = await register(site, ANN, path)
    runs = Runs(site)

    archive = await runs.archive_of(made.run_id)
    assert archive.filename == f"{made.run_id}.eval"
    assert b"".join([part async for part in site.blobs.read(archive.blob.key)]) == path.read_bytes()
    files = {str(file["name"]): file for file in await runs.files(made.run_id)}
    assert {"header.json", "summaries.json", "samples/a_epoch_1.json"} <= files.keys()
    assert files["header.json"]["method"] == "zstd"

    await site.blobs.delete(archive.blob.key)
    with pytest.raises(StateError, match="its log is gone"):
        await runs.archive_of(made.run_id)


async def test_headers_are_as_the_log_says(local_site: Site, tmp_path: Path) -> None:
    made = await register(local_site, ANN, log(tmp_path / "x.eval"))
    page = await Runs(local_site).list(RunQuery(documents=True), ANN)
    document = page.items[0]
    assert document == (await Runs(local_site).get(made.run_id)).document
    assert (document["name"], document["tags"], document["task_set"]) == ("first", ["base"], "small")
    own = header()["eval"]["metadata"]
    assert document["policy"] == own["policy"]


async def test_documents_of_a_run_that_is_being_removed_are_left_out(
    local_site: Site, tmp_path: Path
) -> None:
    gone, kept = [await register(local_site, ANN, log(tmp_path / "x.eval"), name=name) for name in "ab"]
    await local_site.store.delete(RUNS, Equals("id", gone.run_id))
    found = (await Runs(local_site).trajectories(TrajectoryQuery(documents=True), ANN)).items
    assert {each["run_id"] for each in found} == {kept.run_id}
