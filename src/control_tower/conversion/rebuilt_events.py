"""Events of a sample that has none of today's: turns, what they cost, audits and monitors' calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from control_tower.conversion.carriers import Placed
from control_tower.conversion.ids import derived_id
from control_tower.conversion.judging_calls import JudgingCall, judging_calls, without_live
from control_tower.conversion.recorded import Recorded, text_of
from control_tower.logs.events import SEAT_PREFIX, SEAT_ROLE, tool_calls
from control_tower.logs.json_text import JsonObject, child

SOURCE = "converted_from"
"""Source of the info event that holds what of the old sample has no other place."""

UNKNOWN = "none/none"
"""The model where the log names none."""


class EventMaker:
    """Makes the events of one sample; ids and times are functions of the old sample.

    Args:
        seed: From which ids are derived.
        moment: When they are said to have happened, ISO.
        pool: How many messages are already in the sample's pool of model inputs.
    """

    def __init__(self, seed: str, moment: str, pool: int) -> None:
        self.events: list[JsonObject] = []
        self._seed = seed
        self._moment = moment
        self._pool = pool
        self._spans: list[str] = []
        self._made = 0

    def rest(self, data: JsonObject) -> None:
        """What has no other place."""
        if data:
            self._info(SOURCE, data)

    def turns(self, recorded: Recorded) -> None:
        """A step for each assistant message, with the results of its calls."""
        answers: dict[str, list[JsonObject]] = {}
        for message in recorded.messages:
            if message.get("role") == "tool":
                answers.setdefault(str(message.get("tool_call_id")), []).append(message)
        step = 0
        for position, message in enumerate(recorded.messages):
            if message.get("role") != "assistant":
                continue
            self._begin(f"step {step}", "ct_step")
            self._seat(message, position)
            for call in tool_calls(message):
                if waiting := answers.get(call["id"]):
                    self._tool(call, waiting.pop(0), str(message["id"]))
            self._end()
            step += 1

    def usage(self, model_usage: JsonObject, placed: Sequence[Placed]) -> None:
        """What the agent spent in all, by model, without what monitors spent on the same models."""
        if not model_usage:
            self._model(UNKNOWN, "hidden_untrusted", metadata={"summed_usage": True})
        live = [call for one in placed if one.live for call in judging_calls(one, model_usage)]
        for model, usage in model_usage.items():
            rest = without_live(child({"u": usage}, "u"), [c for c in live if c.model == model and c.usage])
            if rest is not None:
                self._model(model, "hidden_untrusted", usage=rest or None, metadata={"summed_usage": True})

    def audits(self, turns: Iterable[int]) -> None:
        """An event for each audit."""
        for turn in turns:
            self._info("audit", {"audited": turn})

    def judging(self, placed: Sequence[Placed], model_usage: JsonObject) -> None:
        """The monitors' calls, those while the sample ran first."""
        if not placed:
            return
        priced = {
            one.monitor
            for one in placed
            for call in judging_calls(one, model_usage)
            if call.usage is not None
        }
        for live in (True, False):
            self._begin("scorers", "scorers")
            self._begin("monitor", "scorer")
            given = [one for one in placed if one.live is live]
            turns = sorted({one.turn for one in given if one.turn is not None})
            whole = [None] if any(one.turn is None for one in given) else []
            for turn in [*turns, *whole]:
                self._judging_of([one for one in given if one.turn == turn], turn, model_usage, priced)
            self._end()
            self._end()

    def _judging_of(
        self, placed: Sequence[Placed], turn: int | None, model_usage: JsonObject, priced: set[str]
    ) -> None:
        self._begin("monitor: trajectory" if turn is None else f"monitor: action {turn}", "ct_scope")
        for monitor in dict.fromkeys(one.monitor for one in placed):
            self._begin(f"monitor: {monitor}", "ct_scope")
            said: list[JudgingCall] = []
            for one in placed:
                if one.monitor == monitor:
                    said += [call for call in judging_calls(one, model_usage) if call not in said]
            for call in said:
                if call.usage is not None or call.unpriced or monitor not in priced:
                    self._judgement(call, monitor)
            self._end()
        self._end()

    def _judgement(self, call: JudgingCall, monitor: str) -> None:
        message: JsonObject = {"id": self._id(), "role": "assistant", "source": "generate"}
        if call.value is None:
            message |= {"content": call.explanation or ""}
        else:
            arguments = {"reasoning": call.explanation or "", "score": call.value}
            answer = {"id": self._id(), "function": "score", "arguments": arguments, "type": "function"}
            message |= {"content": "", "tool_calls": [answer]}
        asked = [{"id": self._id(), "role": "user", "content": call.prompt}] if call.prompt else []
        self._model(call.model, f"monitor/{monitor}", given=asked, message=message, usage=call.usage)

    def _seat(self, message: JsonObject, position: int) -> None:
        model = SEAT_PREFIX + UNKNOWN
        refs = [[self._pool, self._pool + position]] if position else []
        self._model(model, SEAT_ROLE, refs=refs, message=message)

    def _model(
        self,
        model: str,
        role: str,
        *,
        given: list[JsonObject] | None = None,
        refs: list[list[int]] | None = None,
        message: JsonObject | None = None,
        usage: JsonObject | None = None,
        metadata: JsonObject | None = None,
    ) -> None:
        output: JsonObject = {"model": model, "choices": []}
        if message is not None:
            stop = "tool_calls" if tool_calls(message) else "stop"
            output["choices"] = [{"message": message, "stop_reason": stop}]
            output["completion"] = text_of(message)
        if usage is not None:
            output["usage"] = usage
        self._add(
            event="model",
            model=model,
            role=role,
            input=given or [],
            **({"input_refs": refs} if refs else {}),
            tools=[],
            tool_choice="auto",
            config={},
            output=output,
            completed=self._moment,
            **({"metadata": metadata} if metadata else {}),
        )

    def _tool(self, call: JsonObject, answer: JsonObject, message_id: str) -> None:
        self._add(
            event="tool",
            type="function",
            id=call["id"],
            function=call["function"],
            arguments=child(call, "arguments"),
            result=text_of(answer),
            **({"error": answer["error"]} if answer.get("error") else {}),
            completed=self._moment,
            message_id=message_id,
        )

    def _info(self, source: str, data: JsonObject) -> None:
        self._add(event="info", source=source, data=data)

    def _begin(self, name: str, kind: str) -> None:
        id = self._id()
        parent = {"parent_id": self._spans[-1]} if self._spans else {}
        self._spans.append(id)
        self._add(event="span_begin", id=id, **parent, type=kind, name=name)

    def _end(self) -> None:
        self._add(event="span_end", id=self._spans[-1])
        self._spans.pop()

    def _add(self, **fields: Any) -> None:
        span = {"span_id": self._spans[-1]} if self._spans else {}
        self.events.append(
            {"uuid": self._id(), **span, "timestamp": self._moment, "working_start": 0.0, **fields}
        )

    def _id(self) -> str:
        self._made += 1
        return derived_id("event", self._seed, self._made)[:22]
