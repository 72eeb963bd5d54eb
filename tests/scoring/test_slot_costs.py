"""Which action pays for a call: drafts and live monitors for the decision they lead to."""

from typing import Any

from inspect_ai.event import InfoEvent, ModelEvent, SpanBeginEvent
from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessageAssistant,
    GenerateConfig,
    ModelOutput,
    ModelUsage,
)
from inspect_ai.tool import ToolCall

from control_tower.logs.json_text import JsonObject
from control_tower.logs.slot_costs import Slots, slot_costs
from tests.logs.log_making import EPOCH, at, call, info, seat


def paid(second: float, usd: float | None, role: str = "hidden_untrusted", **fields: Any) -> JsonObject:
    """A call of a model; without a price its usage has none."""
    usage = {"total_tokens": 10, **({} if usd is None else {"total_cost": usd})}
    return {
        "event": "model",
        "model": "fake/model",
        "role": role,
        "timestamp": at(second),
        "output": {"choices": [{}], "usage": usage},
        **fields,
    }


def decided(began: float, ended: float, *calls: JsonObject) -> JsonObject:
    """A decided turn, which is in the log before the calls that led to it."""
    return seat(*calls, id=f"m{began}", timestamp=at(began), completed=at(ended))


def span(ident: str, kind: str, name: str, parent: str | None = None) -> JsonObject:
    """The beginning of a span."""
    return {"event": "span_begin", "id": ident, "parent_id": parent, "type": kind, "name": name}


def test_a_call_is_paid_by_the_decision_it_leads_to() -> None:
    costs = slot_costs(
        [
            paid(0, 1.0),  # before the first decision: red plans
            decided(1, 5, call("a")),
            paid(2, 2.0),
            paid(5, 4.0, "monitor/m"),  # at the very moment of the decision
            decided(6, 8),  # no call: its draft is paid by the next action
            paid(7, 8.0),
            decided(9, 12, call("b")),
            paid(10, 16.0, "trusted"),
            paid(20, 32.0),
        ]
    )
    assert costs.playing == Slots((7.0, 24.0, 32.0))
    assert costs.monitors == {}


def test_seats_scripts_and_cached_answers_cost_nothing() -> None:
    free = [
        decided(1, 5, call("a")),
        paid(2, 1.0, cache="read"),
        paid(2, None, model="scripted/trajectory"),
        paid(2, 2.0, cache="write"),
    ]
    assert slot_costs(free).playing == Slots((2.0, 0.0))


def test_what_has_no_price_is_said() -> None:
    assert slot_costs([decided(1, 5, call("a")), paid(2, None)]).playing == Slots((0.0, 0.0), incomplete=True)
    unknown = info("cost", {"component": "watcher", "usd": None, "role": "protocol"})
    known = info("cost", {"component": "watcher", "usd": 0.5, "role": "protocol"})
    events = [decided(1, 5, call("a")), {**known, "timestamp": at(3)}]
    assert slot_costs(events).playing == Slots((0.5, 0.0))
    assert slot_costs([*events, {**unknown, "timestamp": at(9)}]).playing == Slots(
        (0.5, 0.0), incomplete=True
    )


def test_scorers_are_left_out_and_later_monitors_stand_apart() -> None:
    events = [
        decided(1, 5, call("a")),
        span("s", "scorers", "scorers"),
        span("t", "scorer", "greet", "s"),
        paid(6, 1.0, "scorer", span_id="t"),
        span("m", "scorer", "monitor", "s"),
        span("m0", "ct_scope", "monitor: action 0", "m"),
        span("m0d", "ct_scope", "monitor: strong (2)", "m0"),
        paid(7, 2.0, "monitor/strong", span_id="m0d"),
        span("mt", "ct_scope", "monitor: trajectory", "m"),
        paid(8, 4.0, "monitor/strong", span_id="mt"),
        span("m9", "ct_scope", "monitor: action 9", "m"),
        paid(9, None, "monitor/weak", span_id="m9"),
    ]
    costs = slot_costs(events)
    assert costs.playing == Slots((0.0, 0.0))
    assert costs.monitors == {
        "strong": Slots((2.0, 4.0)),
        "weak": Slots((0.0, 0.0), incomplete=True),
    }


def test_a_running_samples_events_read_the_same() -> None:
    from datetime import UTC, datetime

    def moment(second: float) -> datetime:
        return datetime.fromtimestamp(EPOCH + second, UTC)

    def model(began: float, ended: float, name: str, role: str, usage: Any, *calls: ToolCall) -> ModelEvent:
        message = ChatMessageAssistant(content="", tool_calls=list(calls) or None)
        return ModelEvent(
            model=name,
            role=role,
            input=[],
            tools=[],
            tool_choice="auto",
            config=GenerateConfig(),
            output=ModelOutput(model=name, choices=[ChatCompletionChoice(message=message)], usage=usage),
            timestamp=moment(began),
            completed=moment(ended),
            span_id="t" if role == "scorer" else None,
        )

    usage = ModelUsage(total_tokens=10, total_cost=3.0)
    ran = ToolCall(id="a", function="bash", arguments={})
    events = [
        model(1, 5, "eval/fake/model", "untrusted", None, ran),
        model(2, 3, "fake/model", "hidden_untrusted", usage),
        InfoEvent(
            source="cost", data={"component": "w", "usd": 0.5, "role": "protocol"}, timestamp=moment(4)
        ),
        SpanBeginEvent(id="t", type="scorer", name="greet"),
        model(6, 7, "fake/model", "scorer", usage),
        model(8, 9, "fake/model", "hidden_untrusted", ModelUsage(total_tokens=1)),
    ]
    assert slot_costs(events).playing == Slots((3.5, 0.0), incomplete=True)
