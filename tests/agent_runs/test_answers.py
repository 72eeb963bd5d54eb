"""Facets and counts are remembered: how long, until which write, and never made twice at once."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from control_tower.agent_runs.answers import Answers
from control_tower.agent_runs.errors import BadRequest
from control_tower.agent_runs.queries import RunQuery, TrajectoryQuery
from control_tower.agent_runs.runs import Runs
from control_tower.agent_runs.site import Site, open_site
from tests.agent_runs.conftest import local_settings
from tests.agent_runs.sites import ANN, log, register, sample

pytestmark = pytest.mark.anyio


class Works:
    """Answers made by works that are counted, on a clock that stands still."""

    def __init__(self) -> None:
        self.writes = 0
        self.now = 0.0
        self.takes = 0.0
        self.done = 0
        self.running = 0
        self.most_running = 0
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.answers = Answers(lambda: self.writes, lambda: self.now)

    async def work(self) -> int:
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        seen = self.writes
        try:
            await self.may_end.wait()
            self.now += self.takes
        finally:
            self.running -= 1
        self.done += 1
        return seen

    async def ask(self, asked: str = "a") -> int:
        return await self.answers.of(asked, self.work)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_an_answer_lasts_two_seconds_or_twenty_times_what_it_took() -> None:
    for takes, lasts in ((0.01, 2.0), (1.0, 20.0)):
        works = Works()
        works.takes = takes
        await works.ask()
        works.now = lasts / 2 - 0.01
        await works.ask()
        assert works.done == 1
        works.now = lasts
        await works.ask()
        assert works.done == 2


async def test_one_that_grows_old_is_made_anew_behind_the_back_of_who_asks() -> None:
    works = Works()
    await works.ask()
    works.now = 1.5
    works.may_end.clear()
    assert [await works.ask() for _ in range(3)] == [0, 0, 0]
    await settle()
    assert (works.done, works.running) == (1, 1)
    works.may_end.set()
    await settle()
    works.now = 2.1
    await works.ask()
    assert works.done == 2


async def test_many_that_ask_at_once_wait_for_one_work() -> None:
    works = Works()
    works.may_end.clear()
    waiting = [asyncio.create_task(works.ask()) for _ in range(5)]
    await settle()
    waiting.pop().cancel()
    works.may_end.set()
    assert await asyncio.gather(*waiting) == [0] * 4
    assert works.done == 1


async def test_an_answer_from_before_a_write_is_given_to_nobody_who_asks_after_it() -> None:
    works = Works()
    works.may_end.clear()
    before = asyncio.create_task(works.ask())
    await settle()
    works.writes = 1
    after = asyncio.create_task(works.ask())
    await settle()
    works.may_end.set()
    assert (await before, await after) == (0, 1)
    assert (works.done, works.most_running) == (2, 1)
    works.writes = 2
    assert await works.ask() == 2


async def test_few_works_run_at_a_time_and_few_answers_are_kept() -> None:
    works = Works()
    works.may_end.clear()
    waiting = [asyncio.create_task(works.ask(f"{n}")) for n in range(600)]
    await settle()
    assert works.running == 2
    works.may_end.set()
    await asyncio.gather(*waiting)
    await works.ask("599")
    assert works.done == 600
    await works.ask("0")
    assert works.done == 601


async def test_a_work_that_fails_is_done_again_by_who_asks_next() -> None:
    works = Works()

    async def fails() -> int:
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        await works.answers.of("a", fails)
    assert await works.ask() == 0


async def test_whoever_writes_sees_it_in_what_is_counted_next(site: Site, tmp_path: Path) -> None:
    runs = Runs(site)

    async def counted() -> list[int | None]:
        page = await runs.list(RunQuery(count=True), ANN)
        lately = await runs.trajectories(TrajectoryQuery(exact=False), ANN)
        tags = (await runs.facets(RunQuery(), ANN, fields=["tag"]))["tag"]
        return [page.total, lately.total_count, tags[0]["count"] if tags else 0]

    assert await counted() == [0, 0, 0]
    path = log(tmp_path / "a.eval", [sample("a"), sample("b")])
    made = await register(site, ANN, path, tags=["t"])
    assert await counted() == [1, 2, 1]
    await runs.patch(ANN, made.run_id, {"tags": []})
    assert await counted() == [1, 2, 0]
    await runs.delete(ANN, made.run_id)
    assert await counted() == [0, 0, 0]
    await runs.restore(ANN, made.run_id)
    assert await counted() == [1, 2, 0]


async def test_totals_that_older_clients_rely_on_count_what_other_processes_wrote_too(
    local_site: Site, tmp_path: Path
) -> None:
    still = replace(local_site, answers=Answers(lambda: 0, lambda: 0.0))
    runs = Runs(still)
    queries = [TrajectoryQuery(), TrajectoryQuery({"environment": ["web"]})]
    lately = [replace(query, exact=False) for query in queries]
    assert [(await runs.trajectories(query, ANN)).total_count for query in (*queries, *lately)] == [0] * 4

    async with open_site(local_settings(tmp_path)) as other:
        await register(other, ANN, log(tmp_path / "a.eval", [sample("a"), sample("b")]))

    assert [(await runs.trajectories(query, ANN)).total_count for query in queries] == [2, 2]
    assert [(await runs.trajectories(query, ANN)).total_count for query in lately] == [0, 0]


async def test_one_facet_can_be_asked_for(local_site: Site, tmp_path: Path) -> None:
    await register(local_site, ANN, log(tmp_path / "a.eval", [sample("a")]), tags=["t", "u"])
    runs = Runs(local_site)
    found = await runs.facets(RunQuery(), ANN, limit=1, fields=["tag", "uploader"])
    assert found == {"tag": [{"value": "t", "count": 1}], "uploader": [{"value": "ann", "count": 1}]}
    with pytest.raises(BadRequest, match=r"'tags'.*did you mean 'tag'"):
        await runs.facets(RunQuery(), ANN, fields=["tags"])
