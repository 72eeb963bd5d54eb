"""Samples and logs made by hand: short spellings of events, messages and whole archives."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from control_tower.logs.json_text import JsonObject, dumps
from control_tower.logs.zip_writer import new_archive

EPOCH = 1_700_000_000
"""When second 0 of a made sample is."""


def at(second: float) -> str:
    """A second of the sample as a log writes times."""
    whole, fraction = divmod(second, 1)
    minutes, seconds = divmod(int(whole) + 20, 60)
    return f"2023-11-14T22:{13 + minutes:02}:{seconds:02}{f'{fraction:.6f}'[1:]}+00:00"


def call(id: str, function: str = "bash", **arguments: Any) -> JsonObject:
    """A tool call."""
    return {"id": id, "function": function, "arguments": arguments}


def seat(*calls: JsonObject, id: str = "", text: str = "", **fields: Any) -> JsonObject:
    """A decided turn."""
    message = {"id": id, "role": "assistant", "content": text, "tool_calls": list(calls)}
    return {
        "event": "model",
        "model": "eval/demo/agent",
        "role": "untrusted",
        "output": {"choices": [{"message": message, "stop_reason": "tool_calls"}]},
        **fields,
    }


def tool(
    id: str, function: str = "bash", *, began: float = 0, ended: float | None = None, **fields: Any
) -> JsonObject:
    """A call's execution."""
    event: JsonObject = {
        "event": "tool",
        "id": id,
        "function": function,
        "arguments": {},
        "timestamp": at(began),
    }
    if ended is not None:
        event["completed"] = at(ended)
    return {**event, "result": f"result of {id}", **fields}


def info(source: str, data: Any) -> JsonObject:
    """A fact in the transcript."""
    return {"event": "info", "source": source, "data": data}


def summary(sample: JsonObject) -> JsonObject:
    """What Inspect's journal says about a sample."""
    keys = ("id", "epoch", "input", "target", "metadata", "scores", "model_usage", "role_usage", "uuid")
    row = {key: sample[key] for key in keys if key in sample}
    if sample.get("error"):
        row["error"] = sample["error"]["message"]
    return {**row, "completed": True}


def write_log(
    path: Path, header: JsonObject, samples: Sequence[JsonObject], *, finished: bool = True
) -> Path:
    """An archive as Inspect lays it out; an unfinished one has only its journal."""
    with new_archive(path) as writer:
        start = {"version": 2, "eval": header["eval"], "plan": header.get("plan", {})}
        writer.add("_journal/start.json", dumps(start))
        for number, sample in enumerate(samples, 1):
            writer.add(f"samples/{sample['id']}_epoch_{sample['epoch']}.json", dumps(sample))
            writer.add(f"_journal/summaries/{number}.json", dumps([summary(sample)]))
        if finished:
            writer.add("summaries.json", dumps([summary(sample) for sample in samples]))
            writer.add("header.json", dumps({"version": 2, "status": "success", **header}))
    return path
