"""How turns travel: what providers offer, answer and are sent back, call by call."""

import json

from inspect_ai.event import ModelEvent
from inspect_ai.model import ChatMessageTool

from tests.providers.conftest import CHAT, MESSAGES, MODELS, RESPONSES, SUBMIT, Play, bash, role
from tests.support.provider_records import Answer, Call, Turn
from tests.support.provider_stub import ProviderStub

DONE = Answer("All done.", [SUBMIT])


def calls_of(turns: list[Turn]) -> list[tuple[str, str, str]]:
    """All calls of a conversation, in order."""
    return [call for turn in turns for call in turn.calls]


@MODELS
def test_parallel_calls_all_run_and_are_answered_under_their_ids(
    model: str, play: Play, stub: ProviderStub
) -> None:
    calls = [
        bash("echo one"),
        bash("echo hello > greeting.txt"),
        Call("text_editor", {"command": "view", "path": "greeting.txt"}),
    ]
    stub.script(model, [Answer("Three things at once.", calls, reasoning="Let me think."), DONE])
    played = play(model)
    assert played.outcome == "submitted"
    assert played.results.usefulness.mean == 1
    first, second = stub.requests
    assert first.tools == ["bash", "text_editor", "submit"]
    sent_back = calls_of(second.turns)
    assert [(name, json.loads(arguments)) for _, name, arguments in sent_back] == [
        (call.name, call.arguments) for call in calls
    ]
    one, two, three = (second.results[ident] for ident, _, _ in sent_back)
    assert "one" in one
    assert "one" not in two
    assert "hello" in three
    assert "Three things at once." in second.text


@MODELS
def test_answers_come_streamed_or_whole_with_the_same_log(model: str, play: Play, stub: ProviderStub) -> None:
    answers = [
        Answer("I write.", [bash("echo hello > greeting.txt"), bash("cat greeting.txt")], reasoning="Easy."),
        DONE,
    ]
    seen: list[list[object]] = []
    for config in ({"stream_idle_timeout": 60}, {"max_tokens": 4000}):
        stub.script(model, answers)
        sample = play(role(model, **config)).sample
        assert sample.error is None
        events = [e for e in sample.events if isinstance(e, ModelEvent) and e.role == "hidden_untrusted"]
        seen.append(
            [
                [
                    (
                        e.output.completion,
                        [(c.function, c.arguments) for c in e.output.message.tool_calls or []],
                    )
                    for e in events
                ],
                [(e.output.usage, e.output.stop_reason) for e in events],
                [m.text for m in sample.messages],
            ]
        )
    assert [request.streamed for request in stub.requests] == [True, True, False, False]
    assert seen[0] == seen[1]


def test_openai_gets_its_reasoning_back(play: Play, stub: ProviderStub) -> None:
    stub.script(
        RESPONSES,
        [Answer("", [bash("ls")], reasoning="First."), Answer("", [bash("ls")], reasoning="Second."), DONE],
    )
    assert play(RESPONSES).outcome == "submitted"
    kept = [item for item in stub.requests[-1].body["input"] if item.get("type") == "reasoning"]
    assert [item["encrypted_content"] for item in kept] == ["gAAAA-1", "gAAAA-2"]
    assert not stub.requests[-1].body["store"]


def test_anthropic_gets_its_thinking_back(play: Play, stub: ProviderStub) -> None:
    stub.script(
        MESSAGES,
        [
            Answer("", [bash("ls")], reasoning="First."),
            Answer("So.", [bash("ls")], reasoning="Second."),
            DONE,
        ],
    )
    assert play(role(MESSAGES, reasoning_tokens=2000)).outcome == "submitted"
    last = stub.requests[-1]
    assert last.body["thinking"]["type"] == "enabled"
    assert [turn.reasoning for turn in last.turns if turn.role == "assistant"] == [("First.",), ("Second.",)]


def test_arguments_that_are_no_json_are_answered_with_an_error(play: Play, stub: ProviderStub) -> None:
    for model in (RESPONSES, CHAT):
        broken = Call("bash", '{"cmd": "echo hel')
        stub.script(model, [Answer("", [broken, bash("echo fine")]), DONE])
        played = play(model)
        assert played.outcome == "submitted"
        malformed, fine = [m for m in played.sample.messages if isinstance(m, ChatMessageTool)][:2]
        assert malformed.error is not None
        assert malformed.error.type == "parsing"
        assert "fine" in fine.text


@MODELS
def test_unknown_tools_and_wrong_arguments_are_answered_with_errors(
    model: str, play: Play, stub: ProviderStub
) -> None:
    calls = [Call("python", {"code": "1"}), Call("bash", {"cmd": ["ls"]}), Call("bash", {"script": "ls"})]
    stub.script(model, [Answer("", calls), DONE])
    played = play(model)
    assert played.outcome == "submitted"
    answers = [m for m in played.sample.messages if isinstance(m, ChatMessageTool) and m.function != "submit"]
    assert [m.error is not None for m in answers] == [True, True, True]
    assert all(text.strip() for text in stub.requests[-1].results.values())


@MODELS
def test_an_empty_answer_ends_without_progress(model: str, play: Play, stub: ProviderStub) -> None:
    stub.script(model, [Answer("", [bash("ls")]), Answer("")])
    played = play(model)
    assert played.outcome == "no_progress"
    assert played.sample.metadata["outcome"] == "no_progress"
    assert played.results.errored == 0


def test_claude_edits_with_the_names_it_knows(play: Play, stub: ProviderStub) -> None:
    calls = [
        Call("text_editor", {"command": "create", "path": "greeting.txt", "file_text": "one\n"}),
        Call(
            "text_editor",
            {"command": "insert", "path": "greeting.txt", "insert_line": 1, "insert_text": "hello\n"},
        ),
    ]
    stub.script(MESSAGES, [Answer("", calls), DONE])
    played = play(MESSAGES)
    assert played.results.usefulness.mean == 1
    assert stub.requests[0].tools == ["bash", "text_editor", "submit"]
