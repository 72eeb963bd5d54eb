"""The two APIs of OpenAI as the stub server speaks them: Responses and Chat Completions."""

import re
from collections.abc import Iterator
from typing import Any

from tests.support.provider_records import Answer, Failure, Json, Request, Tokens, Turn, halves, now, objects

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def _error(failure: Failure) -> Json:
    kinds = {400: "invalid_request_error", 401: "invalid_request_error", 429: "requests"}
    kind = kinds.get(failure.status, "server_error")
    return {"error": {"message": failure.message, "type": kind, "param": None, "code": failure.code}}


class Responses:
    """The Responses API, without stored conversations."""

    def __init__(self) -> None:
        self._reasoning: dict[str, str] = {}
        """Encrypted content by reasoning item."""
        self._belongs: dict[str, str] = {}
        """By id of an item, the reasoning item that its response began with."""

    def turns(self, body: Json) -> list[Turn]:
        return [_item_turn(item) for item in body["input"]]

    def tools(self, body: Json) -> list[str]:
        return [tool["name"] for tool in objects(body.get("tools"))]

    def complaint(self, body: Json) -> str | None:
        items: list[Json] = body["input"]
        called = {item["call_id"] for item in items if item.get("type") == "function_call"}
        answered = [item["call_id"] for item in items if item.get("type") == "function_call_output"]
        if missing := called - set(answered):
            return f"No tool output found for function call {missing.pop()}."
        if unknown := set(answered) - called:
            return f"No tool call found for function call output with call_id {unknown.pop()}."
        if len(answered) != len(set(answered)):
            return "Duplicate function call output."
        if bad := [name for name in self.tools(body) if not _NAME.fullmatch(name)]:
            return f"Invalid 'tools[0].name': {bad[0]!r}"
        return self._reasoning_complaint(items)

    def _reasoning_complaint(self, items: list[Json]) -> str | None:
        present = {item["id"] for item in items if item.get("type") == "reasoning"}
        for position, item in enumerate(items):
            if item.get("type") == "reasoning":
                if self._reasoning.get(item["id"]) != item.get("encrypted_content"):
                    return f"The encrypted content for item {item['id']} could not be verified."
                following = items[position + 1] if position + 1 < len(items) else {}
                if self._belongs.get(str(following.get("id"))) != item["id"]:
                    return f"Item '{item['id']}' of type 'reasoning' was provided without its following item."
            needed = self._belongs.get(str(item.get("id")))
            if needed and item.get("type") == "function_call" and needed not in present:
                return (
                    f"Item '{item['id']}' of type 'function_call' was provided without its required "
                    f"'reasoning' item: '{needed}'."
                )
        return None

    def answer(self, request: Request, answer: Answer, number: int) -> Json:
        output: list[Json] = []
        if answer.reasoning:
            output.append(
                {
                    "type": "reasoning",
                    "id": f"rs_{number}",
                    "summary": [{"type": "summary_text", "text": answer.reasoning}],
                    "encrypted_content": f"gAAAA-{number}",
                }
            )
            self._reasoning[f"rs_{number}"] = f"gAAAA-{number}"
        if answer.text:
            part: Json = {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}
            if answer.stop == "refusal":
                part = {"type": "refusal", "refusal": answer.text}
            output.append(
                {
                    "type": "message",
                    "id": f"msg_{number}",
                    "role": "assistant",
                    "status": "completed",
                    "content": [part],
                }
            )
        for index, call in enumerate(answer.calls):
            output.append(
                {
                    "type": "function_call",
                    "id": f"fc_{number}_{index}",
                    "call_id": f"call_{number}_{index}",
                    "name": call.name,
                    "arguments": call.text,
                    "status": "completed",
                }
            )
        if answer.reasoning:
            self._belongs |= {item["id"]: f"rs_{number}" for item in output[1:]}
        reason = {"length": "max_output_tokens", "filter": "content_filter"}.get(answer.stop or "")
        return {
            "id": f"resp_{number}",
            "object": "response",
            "created_at": now(),
            "status": "incomplete" if reason else "completed",
            "background": False,
            "error": None,
            "incomplete_details": {"reason": reason} if reason else None,
            "instructions": None,
            "max_output_tokens": request.body.get("max_output_tokens"),
            "model": f"{request.model}-2025-08-07",
            "output": output,
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "reasoning": request.body.get("reasoning") or {"effort": None, "summary": None},
            "store": bool(request.body.get("store")),
            "temperature": 1.0,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": request.body.get("tools") or [],
            "top_p": 1.0,
            "truncation": "disabled",
            "usage": _responses_usage(answer.tokens),
            "user": None,
            "metadata": {},
        }

    def stream(self, whole: Json) -> Iterator[tuple[str | None, Json]]:
        begun: Json = {
            **whole,
            "status": "in_progress",
            "output": [],
            "usage": None,
            "incomplete_details": None,
        }
        events: list[Json] = [
            {"type": "response.created", "response": begun},
            {"type": "response.in_progress", "response": begun},
        ]
        for index, item in enumerate(whole["output"]):
            events += _item_events(index, item)
        events.append({"type": f"response.{whole['status']}", "response": whole})
        for number, event in enumerate(events):
            yield event["type"], {**event, "sequence_number": number}

    def error(self, failure: Failure) -> Json:
        if failure.in_stream:
            return {
                "type": "error",
                "code": failure.code or "server_error",
                "message": failure.message,
                "param": None,
                "sequence_number": 0,
            }
        return _error(failure)


def _item_events(index: int, item: Json) -> list[Json]:
    where = {"output_index": index, "item_id": item["id"]}
    events: list[Json] = [{"type": "response.output_item.added", "output_index": index, "item": _begun(item)}]
    match item["type"]:
        case "reasoning":
            for delta in halves(item["summary"][0]["text"]):
                events.append(
                    {
                        "type": "response.reasoning_summary_text.delta",
                        **where,
                        "summary_index": 0,
                        "delta": delta,
                    }
                )
        case "message" if item["content"][0]["type"] == "output_text":
            for delta in halves(item["content"][0]["text"]):
                events.append(
                    {"type": "response.output_text.delta", **where, "content_index": 0, "delta": delta}
                )
        case "function_call":
            for delta in halves(item["arguments"]):
                events.append({"type": "response.function_call_arguments.delta", **where, "delta": delta})
        case _:
            pass
    events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    return events


def _begun(item: Json) -> Json:
    empty: Json = {
        "reasoning": {"summary": []},
        "message": {"content": []},
        "function_call": {"arguments": ""},
    }
    return {**item, **empty[item["type"]]}


def _item_turn(item: Json) -> Turn:
    match item.get("type"):
        case "function_call":
            return Turn("assistant", calls=((item["call_id"], item["name"], item["arguments"]),))
        case "function_call_output":
            return Turn("tool", results=((item["call_id"], _said(item["output"])),))
        case "reasoning":
            return Turn("assistant", reasoning=tuple(part["text"] for part in item["summary"]))
        case _:
            return Turn(item["role"], _said(item["content"]))


def _said(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(str(part.get("text") or part.get("refusal") or "") for part in content)


def _responses_usage(tokens: Tokens) -> Json:
    return {
        "input_tokens": tokens.input,
        "input_tokens_details": {"cached_tokens": tokens.cached, "cache_write_tokens": tokens.written},
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": tokens.input + tokens.output,
    }


class ChatCompletions:
    """The Chat Completions API."""

    def turns(self, body: Json) -> list[Turn]:
        return [_message_turn(message) for message in body["messages"]]

    def tools(self, body: Json) -> list[str]:
        return [tool["function"]["name"] for tool in objects(body.get("tools"))]

    def complaint(self, body: Json) -> str | None:
        waiting: set[str] = set()
        for message in body["messages"]:
            if message["role"] == "tool":
                if message["tool_call_id"] not in waiting:
                    return "messages with role 'tool' must respond to a preceding message with 'tool_calls'."
                waiting.remove(message["tool_call_id"])
                continue
            if waiting:
                return (
                    "An assistant message with 'tool_calls' must be followed by tool messages responding to "
                    f"each 'tool_call_id': {', '.join(sorted(waiting))}"
                )
            calls = objects(message.get("tool_calls"))
            waiting = {call["id"] for call in calls}
            if message["role"] == "assistant" and not calls and message.get("content") is None:
                return "Invalid value for 'content': expected a string, got null."
        return f"tool calls without an answer: {', '.join(sorted(waiting))}" if waiting else None

    def answer(self, request: Request, answer: Answer, number: int) -> Json:
        refused = answer.stop == "refusal"
        message: Json = {
            "role": "assistant",
            "content": None if refused else answer.text or (None if answer.calls else ""),
            "refusal": answer.text if refused else None,
            "annotations": [],
        }
        if answer.calls:
            message["tool_calls"] = [
                {
                    "id": f"call_{number}_{index}",
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.text},
                }
                for index, call in enumerate(answer.calls)
            ]
        ended = "tool_calls" if answer.calls else "stop"
        reason = {"length": "length", "filter": "content_filter"}.get(answer.stop or "", ended)
        return {
            "id": f"chatcmpl-{number}",
            "object": "chat.completion",
            "created": now(),
            "model": f"{request.model}-2024-08-06",
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": reason}],
            "usage": _chat_usage(answer.tokens),
            "service_tier": "default",
            "system_fingerprint": "fp_stub",
        }

    def stream(self, whole: Json) -> Iterator[tuple[str | None, Json]]:
        [choice] = whole["choices"]
        message = choice["message"]
        deltas: list[Json] = [{"role": "assistant", "content": "", "refusal": None}]
        deltas += [{"content": piece} for piece in halves(message["content"] or "")]
        deltas += [{"refusal": piece} for piece in halves(message["refusal"] or "")]
        for index, call in enumerate(message.get("tool_calls") or []):
            function = {"name": call["function"]["name"], "arguments": ""}
            deltas.append({"tool_calls": [{**call, "index": index, "function": function}]})
            deltas += [
                {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
                for piece in halves(call["function"]["arguments"])
            ]
        chunk = {**whole, "object": "chat.completion.chunk", "usage": None}
        for delta in deltas:
            yield None, {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        last: Json = {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}
        yield None, {**chunk, "choices": [last]}
        yield None, {**chunk, "choices": [], "usage": whole["usage"]}

    def error(self, failure: Failure) -> Json:
        return _error(failure)


def _message_turn(message: Json) -> Turn:
    if message["role"] == "tool":
        return Turn("tool", results=((message["tool_call_id"], _said(message["content"])),))
    calls = tuple(
        (call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in objects(message.get("tool_calls"))
    )
    return Turn(message["role"], _said(message.get("content")), calls=calls)


def _chat_usage(tokens: Tokens) -> Json:
    return {
        "prompt_tokens": tokens.input,
        "completion_tokens": tokens.output,
        "total_tokens": tokens.input + tokens.output,
        "prompt_tokens_details": {
            "cached_tokens": tokens.cached,
            "cache_write_tokens": tokens.written,
            "audio_tokens": 0,
        },
        "completion_tokens_details": {
            "reasoning_tokens": tokens.reasoning,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }
