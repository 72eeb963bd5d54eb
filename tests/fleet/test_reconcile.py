"""The decision core: facts in, actions out."""

from copy import deepcopy
from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as some

from control_tower.fleet.documents import Asked, Control, Ending, SampleResult
from control_tower.fleet.events import Told
from control_tower.fleet.facts import (
    Action,
    Changed,
    Decided,
    Emit,
    End,
    Ended,
    Event,
    Exit,
    Give,
    Heard,
    Interrupted,
    LeaseChanged,
    Listed,
    Look,
    Polled,
    Read,
    ReadSamples,
    Sealed,
    SetControl,
    Start,
    Started,
    Swept,
    Tick,
    WriteFailed,
    WriteSeal,
)
from control_tower.fleet.machines import Size
from control_tower.fleet.messages import AttemptDone, BootFailed, Bye, Heartbeat, Hello, Hold
from control_tower.fleet.ports import Instance
from control_tower.fleet.reconcile import Policy, State, decide
from control_tower.fleet.standing import Standing, begin

NOTHING = Swept((), (), (), 0)
COMMON: dict[str, Any] = {"fleet": "f", "boot": "b"}


class Fleet:
    """A core and its time; ticks pass every second, and the queue answers."""

    def __init__(self, *jobs: str, state: State | None = None, **policy: Any) -> None:
        size = policy.pop("size", Size(max_workers=8, initial_workers=2, slots=2))
        self.state = state or State("f", jobs or ("a", "b", "c"), Policy(size=size, **policy))
        self.now = 1000.0
        self.seq = 0
        self.tell(LeaseChanged(True))
        self.first = self.tell(NOTHING) if state is None else []

    def tell(self, *events: Event) -> list[Action]:
        return [action for event in events for action in decide(self.state, event, self.now)]

    def wait(self, seconds: float, *, deaf: bool = False) -> list[Action]:
        found: list[Action] = []
        for _ in range(round(seconds)):
            self.now += 1
            found += self.tell(*(() if deaf else (Polled(),)), Tick())
        return found

    def beat(
        self, worker: str, *holds: tuple[str, int], backoff: int = 0, usd: float | None = None
    ) -> list[Action]:
        self.seq += 1
        held = tuple(Hold(job=job, n=n, phase="running", usd=usd) for job, n in holds)
        message = Heartbeat(**COMMON, worker=worker, seq=self.seq, holds=held, slots=2, backoff=backoff)
        return self.tell(Heard(message))

    def fail(self, job: str, n: int, category: str, worker: str = "i-1", text: str = "x") -> list[Action]:
        return self.tell(Ended(ending(job, n, category, worker, text)))


def ending(job: str, n: int, category: str, worker: str = "i-1", text: str = "x") -> Ending:
    fields = {"job": job, "n": n, "worker": worker, "boot": "b", "outcome": "failed", "category": category}
    return Ending.model_validate({**fields, "error_summary": text, "fingerprint": text, "usd": 1.0})


SAMPLE = SampleResult(sample="a", epoch=1, status="success", task="shop/fix", model="mockllm/model")


def completed(job: str, *samples: SampleResult) -> AttemptDone:
    fields = {"worker": "i-1", "seq": 1, "job": job, "n": 1, "outcome": "completed"}
    return AttemptDone.model_validate({**COMMON, **fields, "samples": samples})


def of(kind: type[Any], actions: list[Action]) -> list[Any]:
    return [one for one in actions if isinstance(one, kind)]


def modes(actions: list[Action]) -> set[str]:
    return {one.mode for one in of(SetControl, actions)}


def gives(actions: list[Action]) -> list[tuple[str, int]]:
    return [(one.job, one.attempt) for one in of(Give, actions)]


def test_all_jobs_are_offered_once_the_store_was_looked_at() -> None:
    assert gives(Fleet().first) == [("a", 1), ("b", 1), ("c", 1)]
    state = State("f", ["a"], Policy())
    assert not of(Give, decide(state, LeaseChanged(True), 0) + decide(state, Tick(), 1))


def test_a_claimed_attempt_that_nobody_lists_is_lost_after_the_deadline() -> None:
    fleet = Fleet("a")
    fleet.beat("i-1", ("a", 1))
    fleet.wait(100)
    fleet.beat("i-1", ("a", 1))
    assert gives(fleet.wait(175)) == []
    assert gives(fleet.wait(10)) == [("a", 2)]


def test_nothing_is_lost_while_the_controller_hears_nothing() -> None:
    fleet = Fleet("a")
    fleet.beat("i-1", ("a", 1))
    assert gives(fleet.wait(3600, deaf=True)) == []
    assert gives(fleet.wait(140)) == []
    assert gives(fleet.wait(45)) == [("a", 2)]


def test_nothing_is_lost_while_the_controller_has_not_heard_all_that_was_said() -> None:
    """Messages come in, but the queue is never empty: others may wait in it."""
    fleet = Fleet("a", "b")
    fleet.beat("i-1", ("a", 1))
    for _ in range(40):
        fleet.beat("i-2", ("b", 1))
        assert gives(fleet.wait(10, deaf=True)) == []


def test_a_machine_that_is_gone_loses_its_attempts_at_once() -> None:
    fleet = Fleet("a", "b")
    fleet.beat("i-1", ("a", 1))
    fleet.beat("i-2", ("b", 1))
    actions = fleet.tell(Listed([Instance("i-1", "spot", gone=True), Instance("i-2", "spot", gone=False)]))
    assert gives(actions) == [("a", 2)]
    assert [one.fields["held"] for one in of(Emit, actions) if one.kind == "worker_lost"] == [1]


def test_what_a_machine_held_and_finished_is_not_lost_with_it() -> None:
    fleet = Fleet("a", "b")
    fleet.beat("i-1", ("a", 1))
    fleet.tell(Heard(completed("a", SAMPLE)), Decided("a", "completed", 1, "i-1", "etag"))
    fleet.tell(Heard(Bye(**COMMON, worker="i-1", seq=9, reason="idle")))
    told = [one.kind for one in of(Emit, fleet.tell(Listed([Instance("i-1", "spot", gone=True)])))]
    assert "worker_lost" not in told


def test_what_one_controller_lost_the_next_one_does_not_wait_for() -> None:
    first = Fleet("a")
    first.beat("i-1", ("a", 1))
    lost = first.tell(Listed([Instance("i-1", "spot", gone=True)]))
    told = Told()
    for one in of(Emit, [*first.first, *lost]):
        told.add({"type": one.kind, **one.fields})
    after = Fleet(state=State("f", ["a"], Policy(), told))
    found = after.tell(replace(NOTHING, claims=[("a", 1)]))
    assert gives(found) == [("a", 2)]
    assert not [one for one in of(Emit, found) if one.kind == "attempt_done"]
    # While its worker is heard of, it is not lost.
    other = Fleet(state=State("f", ["a"], Policy(), told))
    other.beat("i-1", ("a", 1))
    assert gives(other.tell(replace(NOTHING, claims=[("a", 1)]))) == []


def test_a_machine_missing_on_a_late_list_is_not_gone_while_it_is_heard_of() -> None:
    fleet = Fleet("a")
    fleet.tell(Listed([Instance("i-1", "spot", gone=False)]))
    for _ in range(4):
        fleet.beat("i-1", ("a", 1))
        fleet.wait(15)
        assert gives(fleet.tell(Listed([]))) == []
    fleet.wait(80)
    assert gives(fleet.tell(Listed([]))) == [("a", 2)]


def test_an_unclaimed_offer_is_made_again_when_the_queues_stay_empty() -> None:
    fleet = Fleet("a", "b")
    fleet.beat("i-1", ("b", 1))
    for _ in range(5):
        fleet.beat("i-1", ("b", 1))
        assert gives(fleet.wait(60) + fleet.tell(NOTHING)) == []
    assert gives(fleet.wait(30) + fleet.tell(NOTHING)) == [("a", 1)]


def test_an_offer_that_waits_in_the_other_queue_does_not_hide_a_lost_one() -> None:
    fleet = Fleet("a")
    stuck = Swept((), (), (), 0, visible_safe=1)
    found = [gives(fleet.wait(60) + fleet.tell(stuck)) for _ in range(6)]
    assert found == [[], [], [], [], [], [("a", 1)]]


def test_offers_that_wait_in_the_queue_are_not_made_again() -> None:
    fleet = Fleet("a")
    for _ in range(20):
        assert gives(fleet.wait(60) + fleet.tell(Swept((), (), (), visible=1))) == []


def test_a_failed_attempt_is_tried_again_until_its_budget_is_spent() -> None:
    fleet = Fleet("a")
    assert gives(fleet.fail("a", 1, "eval_error")) == [("a", 2)]
    assert gives(fleet.fail("a", 2, "eval_error")) == [("a", 3)]
    actions = fleet.fail("a", 3, "eval_error")
    assert (gives(actions), of(WriteFailed, actions)) == ([], [WriteFailed("a", 3, "eval_error", "x")])
    assert fleet.fail("a", 3, "eval_error") == []


def test_a_refused_attempt_waits_before_it_is_tried_again() -> None:
    fleet = Fleet("a")
    assert gives(fleet.fail("a", 1, "rate_limit")) == []
    assert gives(fleet.wait(58)) == []
    assert gives(fleet.wait(3)) == [("a", 2)]


def test_an_account_that_comes_late_still_counts() -> None:
    """Attempt 1 was lost for the controller, then says that it failed, and so did 2: 3 is the last."""
    fleet = Fleet("a")
    fleet.beat("i-1", ("a", 1))
    assert gives(fleet.wait(185)) == [("a", 2)]
    assert gives(fleet.fail("a", 2, "rate_limit")) == []
    fleet.fail("a", 1, "prerequisite")
    assert gives(fleet.wait(70)) == [("a", 3)]
    assert of(WriteFailed, fleet.fail("a", 3, "eval_error")) == []
    assert of(WriteFailed, fleet.fail("a", 4, "eval_error")) == [WriteFailed("a", 4, "eval_error", "x")]


def test_a_success_is_told_once_and_only_when_the_store_has_it() -> None:
    fleet = Fleet("a", "b")
    done = completed("a", SAMPLE)
    assert fleet.tell(Heard(done)) == [Look("a")]
    verdict = Decided("a", "completed", 1, "i-1", "etag")
    told = [one for one in fleet.tell(verdict, verdict, Heard(done)) if isinstance(one, Emit)]
    assert [(one.kind, one.fields["status"], one.fields["attempt"]) for one in told] == [
        ("result", "success", 1),
        ("job_done", "completed", 1),
    ]


def test_what_a_worker_leaves_out_is_read_from_the_log_of_the_verdict() -> None:
    fleet = Fleet("a", "b")
    fleet.tell(Heard(completed("a")))
    assert fleet.tell(Decided("a", "completed", 1, "i-1", "etag")) == [ReadSamples("a", 1)]


def test_a_success_found_in_the_store_is_read_before_it_is_told() -> None:
    fleet = Fleet("a", "b")
    assert fleet.tell(Swept((), (), [Decided("a", "completed", 2, "i-1", "etag")], 0)) == [
        ReadSamples("a", 2)
    ]
    assert [one.kind for one in of(Emit, fleet.tell(Read("a", 2, ())))] == ["job_done"]


def test_the_fleet_is_sealed_when_all_is_decided_and_ends_when_no_machine_is_left() -> None:
    fleet = Fleet("a")
    fleet.beat("i-1", ("a", 1))
    actions = fleet.tell(Decided("a", "failed", 1, "i-1", "etag", "timeout"))
    (seal,) = of(WriteSeal, actions)
    assert seal.jobs["a"].model_dump() == {"etag": "etag", "attempt": 1, "status": "failed"}
    actions = fleet.tell(Sealed(1))
    assert of(End, actions) == [End(["i-1"])]
    assert of(SetControl, actions)[0].mode == "stop"
    assert [one.fields["failed"] for one in of(Emit, actions)] == [1]
    alive, dead = Instance("i-1", "spot", gone=False), Instance("i-1", "spot", gone=True)
    assert of(Exit, fleet.tell(Listed([alive]), Listed([alive]))) == []
    assert of(Exit, fleet.tell(Listed([dead]), Listed([dead]))) == [Exit(1)]


def test_a_controller_that_gets_its_lease_back_hears_first_and_judges_then() -> None:
    fleet = Fleet("a")
    fleet.beat("i-1", ("a", 1))
    fleet.wait(170)
    fleet.tell(LeaseChanged(False), LeaseChanged(True))
    assert gives(fleet.wait(170)) == []
    assert gives(fleet.wait(15)) == [("a", 2)]


def test_without_the_lease_nothing_is_started_ended_or_sealed() -> None:
    fleet = Fleet("a")
    fleet.tell(LeaseChanged(False))
    actions = (
        fleet.wait(700)
        + fleet.tell(Decided("a", "failed", 1, "i-1", "etag"), Interrupted(2))
        + fleet.wait(60)
    )
    acting = Give | Start | End | SetControl | WriteSeal | Exit
    assert not [one for one in actions if isinstance(one, acting)]


def test_machines_are_started_as_jobs_need_them_and_doubled_while_all_are_busy() -> None:
    fleet = Fleet(*(f"{n}" for n in range(40)))
    (start,) = of(Start, fleet.wait(2))
    assert (start.count, start.market) == (2, "on-demand")
    fleet.tell(Started(start.number, ["i-1", "i-2"], 0, None, "on-demand"))
    fleet.beat("i-1", ("0", 1), ("1", 1))
    assert of(Start, fleet.wait(100)) == []
    fleet.beat("i-1", ("0", 1), ("1", 1))
    fleet.beat("i-2", ("2", 1), ("3", 1))
    assert [one.count for one in of(Start, fleet.wait(2))] == [2]


def test_without_capacity_the_next_market_is_asked_and_the_first_again_later() -> None:
    size = Size(max_workers=2, initial_workers=2, slots=2, markets=("spot", "on-demand"))
    fleet = Fleet(*"abcd", size=size)
    (start,) = of(Start, fleet.wait(2))
    fleet.tell(Started(start.number, [], 2, "no capacity", "spot"))
    (second,) = of(Start, fleet.wait(2))
    assert (start.market, second.market) == ("spot", "on-demand")
    fleet.tell(Started(second.number, [], 2, "no capacity", "on-demand"))
    assert of(Start, fleet.wait(20)) == []
    assert [one.market for one in of(Start, fleet.wait(15))] == ["spot"]


def test_a_machine_that_never_says_hello_is_replaced() -> None:
    fleet = Fleet("a")
    (start,) = of(Start, fleet.wait(2))
    fleet.tell(Started(start.number, ["i-1"], 0, None, "on-demand"))
    actions = fleet.wait(605)
    assert of(End, actions) == [End(["i-1"])]
    assert len(of(Start, actions)) == 1


def test_machines_that_all_fail_at_one_step_stop_the_starting() -> None:
    fleet = Fleet("a")
    for n in range(3):
        fleet.tell(Heard(BootFailed(**COMMON, worker=f"i-{n}", seq=1, step="docker")))
    actions = fleet.wait(5)
    assert of(SetControl, actions)[-1].mode == "pause"
    assert not of(Start, actions)


def test_machines_that_fail_after_others_became_workers_stop_the_starting_too() -> None:
    fleet = Fleet("a")
    fleet.tell(Heard(Hello(**COMMON, worker="i-0", seq=1, slots=1)))
    for n in range(1, 4):
        fleet.tell(Heard(BootFailed(**COMMON, worker=f"i-{n}", seq=1, step="docker")))
    assert of(SetControl, fleet.wait(5))[-1].mode == "pause"


def test_failures_alike_pause_the_fleet_and_it_goes_on_when_asked() -> None:
    fleet = Fleet(*(f"{n}" for n in range(40)))
    for n in range(19):
        fleet.fail(f"{n}", 1, "eval_error")
    assert modes(fleet.wait(1)) <= {"run"}
    fleet.fail("19", 1, "eval_error")
    (control,) = of(SetControl, fleet.wait(1))
    assert control.mode == "pause"
    assert "20 of 20 first attempts failed alike: eval_error x" in control.why
    assert gives(fleet.fail("20", 1, "sandbox") + fleet.wait(60)) == []
    fleet.tell(Changed(mode="run"))
    assert ("20", 2) in gives(fleet.wait(1))


def test_three_of_five_thousand_jobs_that_fail_do_not_stop_a_fleet() -> None:
    fleet = Fleet(*(f"{n}" for n in range(5000)))
    for n in range(5):
        fleet.fail(f"{n}", 1, "eval_error")
    assert modes(fleet.wait(400)) <= {"run"}


def test_a_mistake_in_the_configuration_pauses_at_the_third_of_two_workers() -> None:
    fleet = Fleet(*(f"{n}" for n in range(40)))
    fleet.beat("i-1")
    fleet.beat("i-2")
    for n in range(5):
        fleet.fail(f"{n}", 1, "prerequisite", "i-1", "no module")
    assert modes(fleet.wait(1)) <= {"run"}
    fleet.fail("5", 1, "prerequisite", "i-2", "no module")
    assert of(SetControl, fleet.wait(1))[0].mode == "pause"


def test_a_spent_budget_pauses_and_more_money_goes_on() -> None:
    fleet = Fleet(*(f"{n}" for n in range(20)), budget=5.5)
    fleet.beat("i-1", ("10", 1), ("11", 1))
    for n in range(3):
        fleet.tell(Decided(f"{n}", "completed", 1, "i-1", f"e{n}", usd=1.0))
    assert modes(fleet.wait(2)) <= {"run"}
    fleet.tell(Decided("3", "completed", 1, "i-1", "e3", usd=1.0))
    actions = fleet.wait(2)
    assert of(SetControl, actions)[-1].mode == "pause"
    assert gives(fleet.fail("10", 1, "eval_error") + fleet.wait(60)) == []
    assert gives(fleet.tell(Changed(budget=6.0))) == []
    fleet.tell(Changed(budget=50.0))
    assert gives(fleet.wait(1)) == [("10", 2)]


def test_who_goes_on_without_more_money_is_paused_again_before_anything_is_offered() -> None:
    fleet = Fleet(*(f"{n}" for n in range(20)), budget=2.0)
    fleet.tell(Decided("0", "completed", 1, "i-1", "e", usd=2.0))
    fleet.wait(2)
    fleet.fail("1", 1, "eval_error")
    actions = fleet.tell(Changed(mode="run")) + fleet.wait(3)
    assert gives(actions) == []
    assert modes(actions) <= {"pause"}
    assert [one.fields["why"] for one in of(Emit, actions) if one.kind == "pause"] == ["the budget is spent"]


def test_past_the_hard_budget_what_runs_is_ended_until_there_is_more_money() -> None:
    fleet = Fleet(*(f"{n}" for n in range(20)), budget=5.0, hard_budget=6.0)
    fleet.wait(1)
    fleet.beat("i-1", ("10", 1), ("11", 1), usd=0.5)
    for n in range(4):
        fleet.tell(Decided(f"{n}", "completed", 1, "i-1", f"e{n}", usd=1.0))
    assert [(one.mode, one.halt) for one in of(SetControl, fleet.wait(2))] == [("pause", False)]
    fleet.beat("i-1", ("10", 1), ("11", 1), usd=1.0)
    assert [(one.mode, one.halt) for one in of(SetControl, fleet.wait(2))] == [("pause", True)]
    assert gives(fleet.fail("10", 1, "budget") + fleet.wait(60)) == []
    assert fleet.state.why == "the hard budget is spent"
    for change in (Changed(budget=50.0), Changed(mode="run")):
        actions = fleet.tell(change) + fleet.wait(3)
        assert gives(actions) == []
        control = of(SetControl, actions)[-1:]
        assert [(one.mode, one.halt) for one in control] in ([], [("pause", True)])
    actions = fleet.tell(Changed(hard_budget=50.0)) + fleet.wait(1)
    assert of(SetControl, actions)[-1].halt is False and gives(actions) == [("10", 2)]


def test_a_controller_that_begins_does_not_take_an_old_budget_for_more_money() -> None:
    control = Control(epoch=1, turn=9, mode="pause", why="the budget is spent", asked=1)
    asked = {1: Asked(kind="set", budget_usd=3.0)}
    state, first = begin("f", "abc", Policy(budget=1.0), Told(), Standing(control, applied=1, asked=asked))
    fleet = Fleet(state=state)
    assert state.money.budget == 3.0
    actions = fleet.tell(*first, NOTHING) + fleet.wait(3)
    assert gives(actions) == [] and modes(actions) <= {"pause"}
    assert gives(fleet.tell(Changed(budget=4.0)) + fleet.wait(1)) == [("a", 1), ("b", 1), ("c", 1)]


def test_a_fleet_is_gone_on_with_when_it_is_known_whether_there_is_money() -> None:
    control = Control(epoch=1, turn=9, mode="pause", why="the budget is spent", asked=0)
    standing = Standing(control, asked={1: Asked(kind="resume")})
    state, first = begin("f", "abc", Policy(budget=1.0), Told(), standing)
    fleet = Fleet(state=state)
    spent = Decided("a", "completed", 1, "i-1", "e", usd=1.0)
    actions = fleet.tell(*first, replace(NOTHING, verdicts=(spent,))) + fleet.wait(3)
    assert gives(actions) == [] and modes(actions) <= {"pause"}


def test_a_controller_that_begins_offers_nothing_before_it_knows_what_is_spent() -> None:
    fleet = Fleet(state=State("f", "abc", Policy(budget=1.0)))
    spent = Decided("a", "completed", 1, "i-1", "e", usd=1.0)
    actions = fleet.tell(replace(NOTHING, verdicts=(spent,))) + fleet.wait(3)
    assert gives(actions) == [] and modes(actions) == {"pause"}


def test_what_was_lost_stays_spent_when_its_job_has_failed() -> None:
    fleet = Fleet(*(f"{n}" for n in range(20)), budget=50.0)
    fleet.beat("i-1", ("0", 1), usd=1.0)
    fleet.tell(Decided("0", "failed", 1, "", "e", usd=None))
    fleet.beat("i-1", ("1", 1), usd=0.5)
    assert fleet.state.spent_usd == 1.5


def test_what_an_attempt_cost_counts_once() -> None:
    fleet = Fleet(*(f"{n}" for n in range(20)), hard_budget=2.5)
    fleet.beat("i-1", ("0", 1), ("1", 1), usd=1.0)
    fleet.tell(Decided("0", "completed", 1, "i-1", "e", usd=1.0))
    assert modes(fleet.wait(2)) <= {"run"}
    assert fleet.state.spent_usd == 2.0
    fleet.beat("i-1", ("1", 1), usd=1.5)
    assert [one.halt for one in of(SetControl, fleet.wait(2))] == [True]


def test_a_hard_budget_below_what_is_spent_ends_what_runs() -> None:
    fleet = Fleet(*(f"{n}" for n in range(20)), budget=5.0)
    fleet.tell(Decided("0", "completed", 1, "i-1", "e", usd=3.0))
    fleet.wait(2)
    actions = fleet.tell(Changed(hard_budget=1.0)) + fleet.wait(2)
    assert [(one.mode, one.halt) for one in of(SetControl, actions)] == [("pause", True)]


def test_a_fleet_that_is_done_is_not_paused_by_what_it_cost() -> None:
    fleet = Fleet("0", hard_budget=1.0)
    fleet.tell(Heard(completed("0", SAMPLE)), Decided("0", "completed", 1, "i-1", "e", usd=1.5))
    assert modes(fleet.wait(5)) <= {"run"}


def test_the_hard_budget_alone_is_a_budget_too() -> None:
    fleet = Fleet("0", "1", hard_budget=1.0)
    fleet.tell(Decided("0", "completed", 1, "i-1", "e", usd=1.0))
    [control] = of(SetControl, fleet.wait(2))
    assert (control.mode, control.why, control.halt) == ("pause", "the hard budget is spent", True)


def test_refusals_of_a_service_halve_what_runs_for_all_workers() -> None:
    fleet = Fleet(*(f"{n}" for n in range(20)))
    fleet.tell(*(Heard(Hello(**COMMON, worker=f"i-{n}", seq=0, slots=2)) for n in (1, 2)))
    fleet.beat("i-1", ("0", 1), ("1", 1), backoff=7)
    fleet.beat("i-2", ("2", 1), ("3", 1))
    assert of(SetControl, fleet.wait(62))[-1].slots_cap == 1
    fleet.beat("i-1", ("0", 1), ("1", 1))
    fleet.beat("i-2", ("2", 1), ("3", 1))
    assert of(SetControl, fleet.wait(62))[-1].slots_cap is None


def test_ctrl_c_lets_what_runs_finish_then_leaves() -> None:
    fleet = Fleet("a", "b")
    fleet.beat("i-1", ("a", 1))
    (control,) = of(SetControl, fleet.tell(Interrupted(1)))
    assert control.mode == "drain"
    assert not of(End, fleet.wait(60))
    # It may have claimed another one, of which nobody has heard yet.
    assert not of(End, fleet.tell(Decided("a", "completed", 1, "i-1", "etag"), Read("a", 1, ())))
    actions = fleet.tell(Heard(Bye(**COMMON, worker="i-1", seq=99, reason="idle")))
    assert of(End, actions) == [End(["i-1"])]
    dead = Listed([Instance("i-1", "spot", gone=True)])
    assert of(Exit, fleet.tell(dead, dead)) == [Exit(130)]


def test_a_third_ctrl_c_leaves_at_once() -> None:
    assert Fleet().tell(Interrupted(3)) == [Exit(130)]


def facts(seed: int) -> list[Event]:
    """What could be known of three jobs, with doubles."""
    random = Random(seed)
    found: list[Event] = []
    for job in "abc":
        last = random.randint(1, 4)
        for n in range(1, last + 1):
            found.append(Swept([(job, n)], (), (), 3))
            kind = random.choice(["lost", "eval_error", "preempted", "rate_limit"])
            if kind != "lost":
                found.append(Ended(ending(job, n, kind)))
        if random.random() < 0.5:
            found.append(Decided(job, "completed", last, "i-1", f"{job}{last}"))
    return found + random.sample(found, len(found) // 2)


def known(fleet: Fleet) -> list[object]:
    """The state of all jobs, but for times."""
    jobs = fleet.state.jobs
    return [
        (job.id, job.verdict, sorted((job.ends or {}).items()), job.failing, sorted(jobs.told.jobs.items()))
        for job in jobs.by_id.values()
    ]


@settings(max_examples=60, deadline=None)
@given(some.integers(0, 10_000), some.randoms(use_true_random=False))
def test_the_order_of_facts_does_not_matter_and_twice_is_once(seed: int, random: Random) -> None:
    events = facts(seed)
    shuffled = list(events)
    random.shuffle(shuffled)
    one, two = Fleet(), Fleet()
    for fleet, order in ((one, events), (two, shuffled)):
        for event in order:
            before = {job.id for job in fleet.state.jobs.by_id.values() if job.verdict}
            actions = fleet.tell(event)
            assert not {job for job, _ in gives(actions)} & before
        fleet.tell(*(Read(job, n, ()) for job in "abc" for n in range(1, 5)))
    assert [job[:3] for job in known(one)] == [job[:3] for job in known(two)]  # pyright: ignore
    again = deepcopy(two.state)
    assert not [one for event in shuffled for one in decide(again, event, two.now) if isinstance(one, Emit)]


@settings(max_examples=60, deadline=None)
@given(some.integers(0, 10_000))
def test_nothing_but_time_produces_actions_when_all_is_known(seed: int) -> None:
    fleet = Fleet()
    fleet.tell(*facts(seed))
    assert fleet.tell(Polled()) == []
    copied = deepcopy(fleet)
    assert copied.wait(30) == fleet.wait(30)
