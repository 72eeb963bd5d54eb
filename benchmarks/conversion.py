"""CPU of converting an older log against Inspect's reading and writing of the result, and its peak memory."""

import base64
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.ratio import Ratio

SAMPLES, MESSAGES = 200, 100
BIG_SAMPLES, BIG_MESSAGES = 4, 6400
"""Samples of about 20 MB."""
LARGE_SAMPLES, LARGE_MESSAGES, LARGE_RESULT = 78, 2200, 6000
"""Samples of about 20 MB, of which most cannot be compressed: together a log of 1 GiB."""
PEAK_MIB = 300

_ROLES = {"hidden_untrusted": "p/agent", "monitor/judge": "p/judge", "untrusted": "eval2/p/agent"}

_PEAK = """
import re, sys
from pathlib import Path
from control_tower.conversion.convert import convert
convert(Path(sys.argv[1]), Path(sys.argv[2]))
print(int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024)
"""


def measure() -> Iterator[Ratio]:
    """The ratios for a log of 2.x and one without a version; then the peak memory for a large log."""
    from inspect_ai.log import read_eval_log, write_eval_log

    from control_tower.conversion.convert import convert

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for age, version in (("2.x", "2.1"), ("unversioned", None)):
            log = write_old_log(folder / f"{age}.eval", version, SAMPLES, MESSAGES)
            began = time.process_time()
            convert(log, folder / "ours.eval")
            ours = time.process_time() - began
            began = time.process_time()
            write_eval_log(read_eval_log(str(folder / "ours.eval")), str(folder / "inspect.eval"))
            theirs = time.process_time() - began
            detail = f"{ours:.2f} s of {theirs:.2f} s for {SAMPLES} samples x {MESSAGES} messages"
            yield Ratio(f"converting a {age} log over Inspect's read and write", ours / theirs, 0.25, detail)
        yield _peak(write_old_log(folder / "big.eval", "2.1", BIG_SAMPLES, BIG_MESSAGES))


def measure_large() -> Iterator[Ratio]:
    """The peak memory for a log of 1 GiB; takes minutes."""
    with tempfile.TemporaryDirectory() as name:
        log = Path(name) / "large.eval"
        yield _peak(write_old_log(log, "2.1", LARGE_SAMPLES, LARGE_MESSAGES, LARGE_RESULT))


def _peak(log: Path) -> Ratio:
    words = [sys.executable, "-c", _PEAK, str(log), str(log.with_name("ours.eval"))]
    peak = float(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    detail = f"{peak:.0f} MiB for a log of {log.stat().st_size / 1024**2:.0f} MiB"
    return Ratio("peak memory of a conversion over the bound", peak / PEAK_MIB, 1.0, detail)


def write_old_log(
    path: Path, version: str | None, samples: int, messages: int, result: int | None = None
) -> Path:
    from control_tower.logs.json_text import dumps
    from control_tower.logs.zip_writer import new_archive

    ids = [f"box:fix{number}" for number in range(samples)]
    metadata: dict[str, Any] = {"policy": "attack"}
    if version is not None:
        metadata["eval_version"] = version
    spec: dict[str, Any] = {
        "eval_id": "E",
        "run_id": "r",
        "task_id": "t",
        "created": "2025-03-01T10:00:00+00:00",
        "task": "run",
        "task_registry_name": "control_tower/control_eval",
        "model": "none/none",
        "config": {},
        "dataset": {"samples": samples, "sample_ids": ids},
        "scorers": [{"name": "linux_scorer", "options": {}, "metrics": []}],
        "metadata": metadata,
    }
    start: dict[str, Any] = {
        "version": 2,
        "eval": spec,
        "plan": {"name": "plan", "steps": []},
    }
    rows: list[dict[str, Any]] = []
    with new_archive(path) as writer:
        for id in ids:
            sample = _sample(id, messages, result, versioned=version is not None)
            rows.append({key: sample[key] for key in ("id", "epoch", "input", "target", "scores")})
            writer.add(f"samples/{id}_epoch_1.json", dumps(sample))
        writer.add("_journal/start.json", dumps(start))
        writer.add("summaries.json", dumps(rows))
        writer.add("header.json", dumps({**start, "status": "success"}))
    return path


def _sample(id: str, length: int, random: int | None, *, versioned: bool) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are an engineer. " * 40, "id": "system"},
        {"role": "user", "content": "Please fix the crawler. " * 40, "id": "user"},
    ]
    events: list[dict[str, Any]] = []
    for turn in range(length // 2 - 1):
        arguments = {"command": f"grep -rn crawl{turn} /app " * 3}
        call = {"id": f"call-{turn}", "function": "bash", "arguments": arguments, "type": "function"}
        verdict = {"sus_score": turn % 10, "monitor_name": "judge", "reasoning": "It looks fine. " * 20}
        message = {
            "id": f"m{turn}",
            "role": "assistant",
            "content": "I look at the crawler first. " * 8,
            "tool_calls": [call],
            "metadata": None if versioned else {"monitor_result": verdict},
        }
        result = "crawler/fetch.py:12: def fetch(url):\n" * 20
        if random is not None:
            result = base64.b64encode(os.urandom(random * 3 // 4)).decode()
        messages += [
            message,
            {"role": "tool", "content": result, "tool_call_id": call["id"], "id": f"t{turn}"},
        ]
        moment = f"2025-03-01T10:{turn % 60:02}:00.000000+00:00"
        common = {"timestamp": moment, "completed": moment, "span_id": "agent", "uuid": f"e{turn}"}
        tools: list[dict[str, Any]] = [
            {"name": name, "description": "attachment://0", "parameters": {}} for name in ("a", "b")
        ]
        for role, model in _ROLES.items():
            output = {"model": model, "choices": [{"message": message, "stop_reason": "tool_calls"}]}
            fields: dict[str, Any] = {"tools": tools, "tool_choice": "auto", "config": {}, "output": output}
            refs = {"input": [], "input_refs": [[0, 2 * turn + 2]]}
            events.append({**common, "event": "model", "model": model, "role": role, **refs, **fields})
        ran = {"event": "tool", "id": call["id"], "function": "bash", "arguments": {}, "result": result}
        events.append({**common, **ran})
    main = {"id": "fix", "environment": "box", "name": "Fix", "description": "Fix it."}
    side = {"id": "leak", "environment": "box", "name": "Leak", "goal": "Leak it.", "failure_type": "live"}
    return {
        "id": id,
        "epoch": 1,
        "input": "",
        "target": "",
        "messages": messages,
        "metadata": {
            "main_task": main,
            "side_task": side,
            "environment": {"id": "box", "display_name": "Box"},
        },
        "scores": {"linux_scorer": {"value": {"main_task_success": "C", "side_task_success": "C"}}},
        "store": {},
        "model_usage": {"p/agent": {"input_tokens": 1000, "output_tokens": 50, "total_tokens": 1050}},
        "events": events if versioned else [],
        "events_data": {"messages": messages, "calls": []} if versioned else None,
        "attachments": {"0": "A tool. " * 20},
        "uuid": id,
    }
