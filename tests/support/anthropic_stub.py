"""Anthropic's Messages API as the stub server speaks it."""

import json
import re
from collections.abc import Iterator
from typing import Any

from tests.support.provider_records import Answer, Call, Failure, Json, Request, Tokens, Turn, halves, objects

_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}


class Messages:
    """The Messages API."""

    def __init__(self) -> None:
        self._thoughts: dict[str, str] = {}
        """Thinking by its signature."""

    def turns(self, body: Json) -> list[Turn]:
        system = [Turn("system", _text(body["system"]))] if body.get("system") else []
        return [*system, *(_turn(message) for message in body["messages"])]

    def tools(self, body: Json) -> list[str]:
        return [tool["name"] for tool in objects(body.get("tools"))]

    def complaint(self, body: Json) -> str | None:
        messages: list[Json] = body["messages"]
        if not isinstance(body.get("max_tokens"), int):
            return "max_tokens: Field required"
        if not messages or messages[0]["role"] != "user":
            return "messages: first message must use the user role"
        budget = _thinking(body).get("budget_tokens")
        if budget is not None and budget >= body["max_tokens"]:
            return "`max_tokens` must be greater than `thinking.budget_tokens`."
        for number, message in enumerate(messages):
            if complaint := self._message_complaint(message, final=number == len(messages) - 1):
                return f"messages.{number}: {complaint}"
        return (
            self._tool_complaint(body, messages)
            or self._thinking_complaint(body, messages)
            or next((f"tools: bad name {n!r}" for n in self.tools(body) if not _NAME.fullmatch(n)), None)
        )

    def _message_complaint(self, message: Json, final: bool) -> str | None:
        blocks = _blocks(message)
        if not blocks and not (final and message["role"] == "assistant"):
            return "all messages must have non-empty content except for the optional final assistant message"
        for block in blocks:
            if block["type"] == "text" and not block["text"].strip():
                return "text content blocks must contain non-whitespace text"
            if block["type"] == "thinking" and self._thoughts.get(block["signature"]) != block["thinking"]:
                return "Invalid `signature` in `thinking` block"
            if block["type"] == "tool_use" and not (
                _ID.fullmatch(block["id"]) and isinstance(block["input"], dict)
            ):
                return "tool_use: Input should be a valid dictionary, id should match the pattern"
        return None

    def _tool_complaint(self, body: Json, messages: list[Json]) -> str | None:
        seen: set[str] = set()
        waiting: set[str] = set()
        for number, message in enumerate(messages):
            blocks = _blocks(message)
            results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
            if unexpected := set(results) - waiting:
                return (
                    f"messages.{number}: unexpected `tool_use_id` found in `tool_result` blocks: {unexpected}"
                )
            if left := waiting - set(results):
                return (
                    f"messages.{number - 1}: `tool_use` ids were found without `tool_result` blocks "
                    f"immediately after: {', '.join(sorted(left))}"
                )
            used = [block["id"] for block in blocks if block["type"] == "tool_use"]
            if len(used) != len(set(used)) or seen & set(used):
                return "`tool_use` ids must be unique"
            seen |= set(used)
            waiting = set(used)
        if waiting:
            return f"`tool_use` ids were found without `tool_result` blocks: {waiting}"
        if seen and not body.get("tools"):
            return "Requests which include `tool_use` or `tool_result` blocks must define tools"
        return None

    def _thinking_complaint(self, body: Json, messages: list[Json]) -> str | None:
        """With a thinking budget, the turn whose tool results are sent must begin with its thinking."""
        if _thinking(body).get("type") != "enabled":
            return None
        if not any(block["type"] == "tool_result" for block in _blocks(messages[-1])):
            return None
        last = next(message for message in reversed(messages) if message["role"] == "assistant")
        first = _blocks(last)[0]["type"]
        if first not in ("thinking", "redacted_thinking"):
            return (
                f"Expected `thinking` or `redacted_thinking`, but found `{first}`. When `thinking` is "
                "enabled, a final `assistant` message must start with a thinking block"
            )
        return None

    def answer(self, request: Request, answer: Answer, number: int) -> Json:
        content: list[Json] = []
        if answer.reasoning:
            signature = f"EqQB-{number}"
            self._thoughts[signature] = answer.reasoning
            content.append({"type": "thinking", "thinking": answer.reasoning, "signature": signature})
        if answer.text:
            content.append({"type": "text", "text": answer.text, "citations": None})
        content += [
            {"type": "tool_use", "id": f"toolu_{number}_{index}", "name": call.name, "input": _input(call)}
            for index, call in enumerate(answer.calls)
        ]
        ended = "tool_use" if answer.calls else "end_turn"
        reasons = {"length": "max_tokens", "filter": "refusal", "refusal": "refusal"}
        return {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "model": f"{request.model}-20251001",
            "content": content,
            "stop_reason": reasons.get(answer.stop or "", ended),
            "stop_sequence": None,
            "usage": _usage(answer.tokens),
        }

    def stream(self, whole: Json) -> Iterator[tuple[str | None, Json]]:
        usage = {**whole["usage"], "output_tokens": 1, "output_tokens_details": None}
        start: Json = {**whole, "content": [], "stop_reason": None, "usage": usage}
        events: list[Json] = [{"type": "message_start", "message": start}, {"type": "ping"}]
        for index, block in enumerate(whole["content"]):
            cut = whole["stop_reason"] == "max_tokens" and block is whole["content"][-1]
            empty: Json = {"thinking": {"thinking": "", "signature": ""}, "text": {"text": ""}}
            begun = {**block, **empty.get(block["type"], {"input": {}})}
            events.append({"type": "content_block_start", "index": index, "content_block": begun})
            events += [
                {"type": "content_block_delta", "index": index, "delta": delta}
                for delta in _deltas(block, cut)
            ]
            events.append({"type": "content_block_stop", "index": index})
        ended = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
        events.append({"type": "message_delta", "delta": ended, "usage": whole["usage"]})
        events.append({"type": "message_stop"})
        for event in events:
            yield event["type"], event

    def error(self, failure: Failure) -> Json:
        kind = failure.code or _KINDS.get(failure.status, "api_error")
        return {
            "type": "error",
            "error": {"type": kind, "message": failure.message},
            "request_id": "req_stub",
        }


def _thinking(body: Json) -> Json:
    return dict(body.get("thinking") or {})


def _deltas(block: Json, cut: bool) -> Iterator[Json]:
    """The pieces of a block; of a call that was cut off only the first."""
    match block["type"]:
        case "thinking":
            yield from ({"type": "thinking_delta", "thinking": p} for p in halves(block["thinking"]))
            yield {"type": "signature_delta", "signature": block["signature"]}
        case "text":
            yield from ({"type": "text_delta", "text": piece} for piece in halves(block["text"]))
        case _:
            pieces = list(halves(json.dumps(block["input"])))
            for piece in pieces[:1] if cut else pieces:
                yield {"type": "input_json_delta", "partial_json": piece}


def _input(call: Call) -> Any:
    return json.loads(call.arguments) if isinstance(call.arguments, str) else dict(call.arguments)


def _turn(message: Json) -> Turn:
    blocks = _blocks(message)
    return Turn(
        message["role"],
        "\n".join(block["text"] for block in blocks if block["type"] == "text"),
        tuple(block["thinking"] for block in blocks if block["type"] == "thinking"),
        tuple((b["id"], b["name"], json.dumps(b["input"])) for b in blocks if b["type"] == "tool_use"),
        tuple((b["tool_use_id"], _text(b["content"])) for b in blocks if b["type"] == "tool_result"),
    )


def _blocks(message: Json) -> list[Json]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in objects(content))


def _usage(tokens: Tokens) -> Json:
    return {
        "input_tokens": tokens.uncached,
        "cache_creation_input_tokens": tokens.written,
        "cache_read_input_tokens": tokens.cached,
        "cache_creation": {"ephemeral_5m_input_tokens": tokens.written, "ephemeral_1h_input_tokens": 0},
        "output_tokens": tokens.output,
        "output_tokens_details": {"thinking_tokens": tokens.reasoning},
        "service_tier": "standard",
    }
