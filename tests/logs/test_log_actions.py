"""What an action is, which of its calls ran, and when something landed."""

from typing import Any

import pytest
from inspect_ai.event import InfoEvent, ModelEvent, ToolEvent
from inspect_ai.model import ChatCompletionChoice, ChatMessageAssistant, GenerateConfig, ModelOutput
from inspect_ai.tool import ToolCall, ToolCallError

from control_tower.errors import ValidationError
from control_tower.logs.actions import Transcript, action_at_time, last_action_ran
from control_tower.logs.committed import committed_calls
from control_tower.logs.events import model_input
from control_tower.logs.tool_names import (
    bare_name,
    is_engine_tool,
    is_hidden,
    is_submission_tool,
    is_submit_like,
)
from tests.logs.log_making import EPOCH, call, info, seat, tool

DRAFT = {**seat(call("d")), "role": "hidden_untrusted", "model": "demo/agent"}


class TestToolNames:
    @pytest.mark.parametrize(
        ("name", "bare"),
        [
            ("bash", "bash"),
            ("mcp__env__bash", "bash"),
            ("mcp__ctengine__blocked", "blocked"),
            ("mcp__my__server__tool", "server__tool"),
            ("tools__bash", "bash"),
            ("tools/bash", "bash"),
            ("tools.bash", "bash"),
            ("foo__submit", "foo__submit"),
            ("mcp__x", "mcp__x"),
            ("tools__", "tools__"),
            ("", ""),
        ],
    )
    def test_bare_name(self, name: str, bare: str) -> None:
        assert bare_name(name) == bare

    @pytest.mark.parametrize(
        ("name", "submission", "hidden", "submit_like"),
        [
            ("submit", False, True, True),
            ("mcp__env__submit", False, True, True),
            ("foo__submit", False, False, False),
            ("set_main_task_submission_args", True, True, True),
            ("tools.set_side_task_12_submission_args", True, True, True),
            ("set_side_task_x_submission_args", False, False, False),
            ("run_side_task_test", False, True, True),
            ("run_main_task_test", False, False, True),
            ("side_task_scorer", False, True, False),
            ("run_task_scorer", False, False, True),
            ("bash", False, False, False),
        ],
    )
    def test_kinds(self, name: str, submission: bool, hidden: bool, submit_like: bool) -> None:
        assert (is_submission_tool(name), is_hidden(name), is_submit_like(name)) == (
            submission,
            hidden,
            submit_like,
        )

    def test_engine_tools(self) -> None:
        assert is_engine_tool("mcp__ctengine__audited")
        assert is_engine_tool("blocked")
        assert not is_engine_tool("foo__blocked")


class TestTurnsAndActions:
    def test_text_only_turns_do_not_shift_indices_and_parallel_calls_are_one_action(self) -> None:
        transcript = Transcript(
            [seat(text="hm"), seat(call("a"), call("b")), seat(text="so"), seat(call("c"))]
        )
        assert [turn.index for turn in transcript.turns] == [None, 0, None, 1]
        assert [[c.id for c in action.calls] for action in transcript.actions] == [["a", "b"], ["c"]]

    @pytest.mark.parametrize(
        "event",
        [
            DRAFT,
            {**seat(call("a")), "model": "demo/agent"},
            {**seat(call("a")), "role": "red_planner"},
            {**seat(call("a")), "role": None},
            {**seat(call("a")), "output": {"choices": []}},
            {**seat(call("a")), "output": {}},
            {"event": "model", "model": "eval/x", "role": "untrusted", "pending": True},
            {"event": "state", "changes": []},
        ],
    )
    def test_everything_else_is_no_turn(self, event: dict[str, Any]) -> None:
        assert Transcript([event]).turns == ()

    def test_flags_of_calls(self) -> None:
        transcript = Transcript(
            [
                seat(
                    call("1"),
                    call(
                        "2",
                        "mcp__env__blocked",
                        call={"function": "bash", "arguments": {"cmd": "rm"}},
                        reason="no",
                    ),
                    call("3", "audited", withheld_call={"function": "bash", "arguments": {}}),
                    call("4", "submit"),
                    {**call("5"), "parse_error": "bad json"},
                    call("6"),
                    call("7"),
                    call("8"),
                ),
                tool("1"),
                tool("2", "blocked"),
                tool("3", "mcp__ctengine__audited"),
                tool("4", "submit"),
                tool("5", error={"type": "parsing", "message": "bad json"}),
                tool("6", error={"type": "parsing", "message": "no such argument"}),
                tool("7", pending=True),
            ]
        )
        calls = {c.id: c for c in transcript.actions[0].calls}
        assert [id for id, c in calls.items() if c.ran] == ["1", "4", "5", "6"]
        assert [id for id, c in calls.items() if c.blocked] == ["2"]
        assert [id for id, c in calls.items() if c.audited] == ["3"]
        assert [id for id, c in calls.items() if c.hidden] == ["4"]
        assert [id for id, c in calls.items() if c.malformed] == ["5", "6"]
        assert calls["2"].withheld == {"function": "bash", "arguments": {"cmd": "rm"}}
        assert calls["3"].withheld == {"function": "bash", "arguments": {}}
        assert calls["1"].withheld is None
        assert calls["1"].result == "result of 1"
        assert calls["6"].error == "parsing: no such argument"
        assert calls["8"].event is None

    def test_an_engine_tools_event_under_the_calls_id_marks_it(self) -> None:
        [action] = Transcript([seat(call("1")), tool("1", "blocked")]).actions
        assert action.calls[0].blocked
        assert not action.calls[0].ran
        assert not action.ran

    def test_private_calls_of_old_logs(self) -> None:
        message = {"role": "assistant", "metadata": {"is_policy_private": True}, "tool_calls": [call("2")]}
        [action] = Transcript([seat(call("1"), call("2")), tool("1")], [message]).actions
        assert [c.private for c in action.calls] == [False, True]
        assert [c.skipped for c in action.calls] == [None, "policy-private tool call"]

    def test_an_id_used_again_belongs_to_the_latest_turn(self) -> None:
        transcript = Transcript(
            [seat(call("x")), tool("x"), seat(call("x")), tool("x", result="second"), seat(call("x"))]
        )
        assert [action.calls[0].result for action in transcript.actions] == ["result of x", "second", None]

    def test_a_placeholder_that_was_filled_in_later_counts_once(self) -> None:
        [action] = Transcript([seat(call("x")), tool("x", pending=True), tool("x", result="late")]).actions
        assert action.calls[0].result == "late"
        assert action.calls[0].ran

    def test_message_ids_find_actions(self) -> None:
        transcript = Transcript(
            [seat(text="hm", id="m0"), seat(call("a"), id="m1"), seat(call("b"), id="m2")]
        )
        assert transcript.by_message == {"m1": 0, "m2": 1}

    def test_verdicts_stand_at_the_first_call_not_skipped(self) -> None:
        events = [seat(call("1", "submit"), call("2"), call("3")), seat(call("4", "submit"))]
        first, second = Transcript(events).actions
        assert first.verdict_call is not None
        assert first.verdict_call.id == "2"
        assert second.verdict_call is None
        assert second.calls[0].skipped == '"submit" tool calls are ignored'

    def test_shapes_that_are_no_actions_are_no_crash(self) -> None:
        odd = seat({"id": "1"}, {"function": "bash"})
        odd["output"]["choices"][0]["message"]["tool_calls"].append("text")
        assert Transcript([odd, {"event": "tool"}, {"event": None}, {}]).actions == ()


class TestFacts:
    def test_finish_reason_and_audits(self) -> None:
        transcript = Transcript(
            [
                info("eval", {"step": 0}),
                info("audit", {"audited": 2}),
                info("audit", {"audited": 0}),
                info("audit", {"audited": 0}),
                info("audit", {"audited": True}),
                info("eval", {"audited": 9}),
                info("eval", {"finished": "submitted"}),
                info("eval", "free text"),
                info("other", {"finished": "not ours"}),
            ]
        )
        assert transcript.finish_reason == "submitted"
        assert transcript.audited == (0, 2)
        assert Transcript([]).finish_reason is None
        assert Transcript([]).audited == ()

    def test_texts_kept_apart_are_put_back_on_demand(self) -> None:
        sample = {
            "attachments": {"abc": "a long text"},
            "events": [
                seat(call("1", cmd="attachment://abc"), text="attachment://abc"),
                tool("1", result=["attachment://abc", "attachment://gone"]),
                info("eval", {"finished": "attachment://abc"}),
            ],
        }
        transcript = Transcript.of(sample)
        assert transcript.actions[0].calls[0].arguments == {"cmd": "attachment://abc"}
        assert transcript.finish_reason == "a long text"
        decided, result = transcript.conversation()
        assert decided["content"] == "a long text"
        assert decided["tool_calls"][0]["arguments"] == {"cmd": "a long text"}
        assert result["content"] == ["a long text", "attachment://gone"]

    def test_pooled_inputs_are_looked_up(self) -> None:
        sample = {"events_data": {"messages": [{"content": str(n)} for n in range(5)]}}
        event = {"event": "model", "input": [], "input_refs": [[0, 2], [4, 5]]}
        assert [m["content"] for m in model_input(sample, event)] == ["0", "1", "4"]
        assert model_input(sample, {"input": [{"content": "own"}]}) == [{"content": "own"}]


class TestConversation:
    def test_an_action_is_judged_on_what_came_before_it(self) -> None:
        transcript = Transcript(
            [
                seat(text="first", id="m0"),
                seat(call("a"), call("b"), id="m1"),
                tool("a", error={"type": "unknown", "message": "no"}),
                DRAFT,
                seat(call("c"), id="m2"),
                tool("c"),
            ]
        )
        judged = transcript.conversation(before=1)
        assert [(m["role"], m.get("id") or m["tool_call_id"]) for m in judged] == [
            ("assistant", "m0"),
            ("assistant", "m1"),
            ("tool", "a"),
            ("assistant", "m2"),
        ]
        assert judged[2]["error"] == {"type": "unknown", "message": "no"}
        assert [m.get("tool_call_id") for m in transcript.conversation() if m["role"] == "tool"] == ["a", "c"]


class TestLanding:
    def test_refused_audited_and_pending_calls_did_not_run(self) -> None:
        events = [
            seat(call("0")),
            tool("0"),
            seat(call("1")),
            tool("1", "blocked"),
            seat(call("2")),
            tool("2", "mcp__ctengine__audited"),
            seat(call("3")),
            tool("3", pending=True),
            tool("unknown"),
        ]
        assert last_action_ran(events) == 0
        assert last_action_ran(events, before=1) == -1
        assert last_action_ran([]) == -1

    def test_a_late_result_of_an_earlier_action_does_not_go_back(self) -> None:
        assert last_action_ran([seat(call("a")), seat(call("b")), tool("b"), tool("a")]) == 1

    def test_an_id_used_again_counts_for_the_latest_turn(self) -> None:
        assert last_action_ran([seat(call("a")), seat(call("a")), tool("a")]) == 1

    def test_the_seats_pending_event_is_not_counted_yet(self) -> None:
        pending = {**seat(call("b")), "output": {"choices": []}, "pending": True}
        assert last_action_ran([seat(call("a")), tool("a"), pending]) == 0

    @pytest.mark.parametrize(
        ("second", "action"),
        [
            (-1, -1),
            (10, 0),
            (14.5, 0),
            (15, 0),
            (17, 0),
            (20, 1),
            (24.9, 1),
            (29, 1),
            (33, 3),
            (50, 3),
            (99, 4),
        ],
    )
    def test_action_at_a_time(self, second: float, action: int) -> None:
        events = [
            seat(call("a")),
            tool("a", began=10, ended=15),
            seat(call("b"), call("b2")),
            tool("b", began=20, ended=25),
            tool("b2", began=20, ended=22),
            seat(call("c")),
            tool("c", "blocked", began=30, ended=31),
            seat(call("d")),
            tool("d", began=32.5, ended=40),
            seat(call("e")),
            tool("e", began=60),
            tool("stranger", began=70, ended=80),
        ]
        assert action_at_time(events, EPOCH + second) == action


class TestInspectsObjects:
    def test_they_read_as_their_json(self) -> None:
        message = ChatMessageAssistant(
            id="m1",
            content="\ud800 lone",
            tool_calls=[ToolCall(id="a", function="bash", arguments={"cmd": "ls"})],
        )
        output = ModelOutput(model="demo/agent", choices=[ChatCompletionChoice(message=message)])
        fields: dict[str, Any] = {
            "input": [],
            "tools": [],
            "tool_choice": "auto",
            "config": GenerateConfig(),
            "output": output,
        }
        events = [
            ModelEvent(model="eval/demo/agent", role="untrusted", **fields),
            ModelEvent(model="demo/agent", role="hidden_untrusted", **fields),
            ToolEvent(id="a", function="bash", arguments={}, error=ToolCallError("timeout", "slow")),
            InfoEvent(source="eval", data={"finished": "step_limit"}),
        ]
        transcript = Transcript(events)
        [action] = transcript.actions
        assert action.message_id == "m1"
        assert transcript.conversation()[0]["content"] == "\ud800 lone"
        assert action.calls[0].arguments == {"cmd": "ls"}
        assert action.calls[0].error == "timeout: slow"
        assert transcript.finish_reason == "step_limit"
        assert last_action_ran(events) == 0
        assert action_at_time(events, events[2].timestamp.timestamp()) == 0
        assert action_at_time(events, events[2].timestamp.timestamp() - 1) == -1


class TestCommittedCalls:
    def test_in_order_of_messages_with_results_and_verdict_places(self) -> None:
        sample = {
            "id": "s",
            "messages": [
                {"role": "assistant", "tool_calls": [call("1"), call("2"), call("3", "submit")]},
                {"role": "tool", "tool_call_id": "1", "content": "one"},
                {"role": "tool", "tool_call_id": "2", "error": {"type": "parsing", "message": "?"}},
                {
                    "role": "assistant",
                    "metadata": {"is_monitor_result": True},
                    "tool_calls": [call("dropped")],
                },
                {"role": "assistant", "metadata": {"is_policy_private": True}, "tool_calls": [call("4")]},
            ],
            "output": {"choices": [{"message": {"tool_calls": [call("1"), call("5")]}}]},
            "events": [
                seat(call("2"), call("1"), call("3", "submit")),
                tool("1"),
                tool("2"),
                seat(call("5")),
                tool("4"),
            ],
        }
        calls = committed_calls(sample)
        assert [c.id for c in calls] == ["1", "2", "3", "4", "5"]
        assert [c.ran for c in calls] == [True, True, False, True, False]
        assert [c.action for c in calls] == [0, 0, 0, None, 1]
        assert calls[0].result == {"role": "tool", "tool_call_id": "1", "content": "one"}
        assert [c.skipped for c in calls] == [
            "reviewed with another call of its turn",
            "malformed action (parsing error)",
            '"submit" tool calls are ignored',
            "policy-private tool call",
            None,
        ]
        assert [c.carries_verdict for c in calls] == [False, True, False, False, True]

    def test_ids_used_again_keep_their_own_results_and_actions(self) -> None:
        sample = {
            "messages": [
                {"role": "assistant", "tool_calls": [call("x")]},
                {"role": "tool", "tool_call_id": "x", "content": "first"},
                {"role": "assistant", "tool_calls": [call("x")]},
                {"role": "tool", "tool_call_id": "x", "content": "second"},
            ],
            "events": [seat(call("x")), tool("x"), seat(call("x")), tool("x")],
        }
        calls = committed_calls(sample)
        assert [(c.action, (c.result or {})["content"]) for c in calls] == [(0, "first"), (1, "second")]

    def test_a_sample_without_events_cannot_say_what_ran(self) -> None:
        with pytest.raises(ValidationError, match="sample s: holds calls but neither"):
            committed_calls({"id": "s", "messages": [{"role": "assistant", "tool_calls": [call("1")]}]})
        assert committed_calls({"id": "s", "messages": []}) == []
