"""CPU of reading a log's numbers against parsing the JSON of the same samples."""

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.ratio import Ratio

SAMPLES, ACTIONS = 40, 60
TIMES = 5


def measure() -> Iterator[Ratio]:
    """The ratio on a log whose samples look like those of a monitored agent of 60 actions."""
    from control_tower.logs.archive import EvalArchive
    from control_tower.logs.numbers import NumbersLog

    with tempfile.TemporaryDirectory() as folder:
        path = _write(Path(folder) / "log.eval")
        with EvalArchive.open(path) as archive:
            members = [archive.members.read(key.member) for key in archive.sample_keys()]
        parsing = _best(lambda: [json.loads(member) for member in members])
        with NumbersLog(path) as log:
            reading = _best(lambda: list(log.samples()))
    size = sum(map(len, members)) / 1024**2
    detail = f"{reading:.2f} s of {parsing:.2f} s for {size:.0f} MiB"
    yield Ratio("reading a log's numbers over parsing its JSON", reading / parsing, 2.0, detail)


def _best(work: Callable[[], Any]) -> float:
    times: list[float] = []
    for _ in range(TIMES):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return min(times)


def _write(path: Path) -> Path:
    from control_tower.logs.json_text import dumps
    from control_tower.logs.zip_writer import new_archive

    header = {
        "version": 2,
        "status": "success",
        "eval": {"metadata": {"eval_version": "3.0", "protocol_selection": {"name": "p", "args": {}}}},
    }
    with new_archive(path) as writer:
        for number in range(SAMPLES):
            writer.add(f"samples/env:main{number}_epoch_1.json", dumps(_sample(number)))
        writer.add("header.json", dumps(header))
    return path


def _sample(number: int) -> dict[str, Any]:
    events: list[dict[str, Any]] = []
    for action in range(ACTIONS):
        arguments = {"command": "grep -rn crawl /app " * 3}
        call = {"id": f"call-{action}", "function": "bash", "arguments": arguments}
        message = {
            "id": f"m{action}",
            "role": "assistant",
            "content": "I look at the crawler first. " * 8,
            "tool_calls": [call],
        }
        moment = f"2026-01-01T00:{action:02}:00.000000+00:00"
        usage = {"input_tokens": 1000, "output_tokens": 50, "total_tokens": 1050, "total_cost": 0.01}
        common = {"timestamp": moment, "completed": moment, "span_id": "agent", "uuid": "0" * 22}
        tools = [{"name": name, "description": "attachment://0", "parameters": {}} for name in ("a", "b")]
        for role, model in (
            ("hidden_untrusted", "provider/agent"),
            ("monitor/judge", "provider/judge"),
            ("untrusted", "eval/provider/agent"),
        ):
            events.append(
                {
                    **common,
                    "event": "model",
                    "model": model,
                    "role": role,
                    "input_refs": [[0, action]],
                    "tools": tools,
                    "config": {"temperature": 1.0},
                    "output": {
                        "choices": [{"message": message, "stop_reason": "tool_calls"}],
                        "usage": {} if role == "untrusted" else usage,
                    },
                }
            )
        result = "crawler/fetch.py:12: def fetch(url):\n" * 20
        run = {"event": "tool", "id": call["id"], "function": "bash", "arguments": {}, "result": result}
        events.append({**common, **run})
    return {
        "id": f"env:main{number}",
        "epoch": 1,
        "metadata": {
            "main_tasks": [{"id": "main", "task_category": "fix_bug"}],
            "side_tasks": [],
            "environment": {"id": "env"},
        },
        "scores": {
            "tasks": {"value": {"main": 1.0, "side": None, "landed_at": None}},
            "monitor": {"value": {f"judge/1/{action}": 10.0 for action in range(ACTIONS)}},
        },
        "model_usage": {"provider/agent": {"total_tokens": 1050, "total_cost": 0.6}},
        "events": events,
        "events_data": {"messages": [{"role": "user", "content": "Fix the crawler. " * 40}] * ACTIONS},
        "attachments": {},
    }
