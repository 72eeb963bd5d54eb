"""Why an attempt failed: told by classes, statuses, codes and places, never by what a text says.

Texts hold what agents wrote, and an agent must not decide whether its job is tried again.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from types import TracebackType
from typing import Any, cast

from control_tower.errors import OperationError, StateError, ValidationError
from control_tower.fleet.attempt_files import Fault, Phase
from control_tower.fleet.documents import one_line
from control_tower.fleet.outcomes import Category

_LONGEST = 20_000
"""Characters of a message that are kept."""

_BY_STATUS: dict[int, Category] = {
    401: "prerequisite",
    404: "prerequisite",
    402: "quota",
    403: "quota",
    408: "network",
    429: "rate_limit",
    503: "rate_limit",
    529: "rate_limit",
}
"""What the statuses of models' services mean; others from 500 on are the network, the rest our mistakes."""

_CONNECTION = frozenset(
    {
        "httpx.TransportError",
        "httpx2.TransportError",
        "httpcore.NetworkError",
        "httpcore.TimeoutException",
        "openai.APIConnectionError",
        "anthropic.APIConnectionError",
        "aiohttp.client_exceptions.ClientConnectionError",
        "botocore.exceptions.HTTPClientError",
        "requests.exceptions.ConnectionError",
    }
)
"""Exceptions beside Python's own that say that no answer came."""

_PREREQUISITE = "inspect_ai._util.error.PrerequisiteError"
_MODEL = ("inspect_ai", "model", "_model.py")
_SANDBOXES = (("control_tower", "sandbox"), ("inspect_ai", "util", "_sandbox"))
_LIBRARIES = ("site-packages", "dist-packages")


def fault_of(error: BaseException, phase: Phase) -> Fault:
    """What is kept of an exception.

    Args:
        error: It, as it was caught.
        phase: How far the job had come.
    """
    return Fault(
        category=category_of(error, phase),
        phase=phase,
        kind=type(error).__name__,
        message=_message(error),
        frame=_frame(error),
        retry_after_s=next((wait for one in _chain(error) if (wait := _retry_after(one)) is not None), None),
    )


def category_of(error: BaseException, phase: Phase) -> Category:
    """The kind of failure that an exception is.

    Args:
        error: It, as it was caught: what it was raised from counts too.
        phase: How far the job had come.
    """
    chain = list(_chain(error))
    asked_model = any(_passes(one, _MODEL) for one in chain)
    in_sandbox = any(_passes(one, place) for one in chain for place in _SANDBOXES)
    for one in chain:
        if asked_model and (status := _status(one)) is not None:
            return _by_status(one, status)
    for one in chain:
        if isinstance(one, MemoryError):
            return "oom_job"
        if isinstance(one, OSError) and one.errno in (errno.ENOSPC, errno.EDQUOT) and not in_sandbox:
            return "disk"
        if asked_model and _no_answer(one):
            return "network"
        if isinstance(one, ConnectionError) and in_sandbox:
            return "sandbox"
    if phase == "sandbox":
        return "sandbox"
    if any(isinstance(one, ImportError) or _asks_for_a_fix(one) for one in chain):
        return "prerequisite"
    return "eval_internal" if phase == "start" else "eval_error"


def exit_category(code: int, *, out_of_memory: bool = False) -> Category:
    """The kind of failure of a process that ended without an account of it, and was not ended by us.

    Args:
        code: Exit code, or the negative number of the signal that ended it.
        out_of_memory: Whether the kernel ended one of its processes because memory ran out.
    """
    if out_of_memory:
        return "oom_job"
    # Nobody else kills like this: where there is no counter, it was the kernel on a full machine.
    return "oom_worker" if code == -9 else "eval_internal"


def fingerprint(category: Category, kind: str, frame: str | None, message: str) -> str:
    """The same text for failures of one cause: numbers, digests and paths are masked."""
    masked = re.sub(r"(?:/[^\s/:'\"]+)+/?", "<path>", message)
    masked = re.sub(r"\b(?=\w*\d)[0-9a-fA-FxX]{8,}\b", "<hex>", masked)
    masked = re.sub(r"\d+", "#", masked)
    return one_line(f"{category} {kind} {frame or '-'} {masked}")[:200]


def summary(fault: Fault, message: str) -> str:
    """An exception as one line.

    Args:
        fault: It.
        message: Its message without secrets.
    """
    place = f" ({fault.frame})" if fault.frame else ""
    return one_line(f"{fault.kind}{place}: {message}" if message else f"{fault.kind}{place}")


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception, those that groups hold, and what each was raised from, every one once."""
    rest, seen = [error], set[int]()
    while rest:
        one = rest.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        if isinstance(one, BaseExceptionGroup):
            rest += cast("BaseExceptionGroup[BaseException]", one).exceptions
        cause = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
        if cause is not None:
            rest.append(cause)


def _files(error: BaseException) -> Iterator[tuple[tuple[str, ...], str]]:
    """Path and function of each place that an exception came through, the deepest last."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        yield PurePath(code.co_filename).parts, code.co_name
        trace = trace.tb_next


def _passes(error: BaseException, place: tuple[str, ...]) -> bool:
    return any(parts[at : at + len(place)] == place for parts, _ in _files(error) for at in range(len(parts)))


def _frame(error: BaseException) -> str | None:
    """The deepest place outside of libraries; the deepest of all when there is none."""
    places = list(_files(error))
    ours = [
        (parts, name)
        for parts, name in places
        if "control_tower" in parts or not (_library(parts) or parts[-1].startswith("<"))
    ]
    if not (found := ours or places):
        return None
    parts, name = found[-1]
    return f"{parts[-1]}:{name}"


def _library(parts: tuple[str, ...]) -> bool:
    return any(name in parts for name in _LIBRARIES) or any(
        part.startswith("python3.") for part in parts[:-1]
    )


def _status(error: BaseException) -> int | None:
    """The HTTP status that an exception of a model's service carries."""
    answer: Any = getattr(error, "response", None)
    found: list[Any] = [getattr(error, name, None) for name in ("status_code", "code", "status")]
    found.append(getattr(answer, "status_code", None))
    if isinstance(answer, Mapping):
        metadata = cast("Mapping[str, Any]", answer).get("ResponseMetadata")
        found.append(metadata.get("HTTPStatusCode") if isinstance(metadata, Mapping) else None)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    return next((one for one in found if isinstance(one, int) and 400 <= one < 600), None)


def _by_status(error: BaseException, status: int) -> Category:
    if status == 429 and getattr(error, "code", None) == "insufficient_quota":
        return "quota"
    return _BY_STATUS.get(status) or ("network" if status >= 500 else "eval_error")


def _retry_after(error: BaseException) -> float | None:
    headers: Any = getattr(getattr(error, "response", None), "headers", None)
    if not isinstance(headers, Mapping):
        return None
    try:
        wait = float(cast("Mapping[str, Any]", headers).get("retry-after", ""))
    except (TypeError, ValueError):
        return None
    return wait if 0 <= wait < float("inf") else None


def _no_answer(error: BaseException) -> bool:
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    names = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__}
    # Names that a package shows at its top belong to its modules inside.
    short = {f"{name.partition('.')[0]}.{name.rpartition('.')[2]}" for name in names}
    return bool((names | short) & _CONNECTION) or (isinstance(error, OSError) and _of_socket(error))


def _of_socket(error: OSError) -> bool:
    import socket
    import ssl

    return isinstance(error, socket.gaierror | socket.herror | ssl.SSLError)


def _asks_for_a_fix(error: BaseException) -> bool:
    """Whether somebody has to change something before the job can succeed."""
    if isinstance(error, OperationError):
        return False
    name = f"{type(error).__module__}.{type(error).__name__}"
    return isinstance(error, ValidationError | StateError) or name == _PREREQUISITE


def _message(error: BaseException) -> str:
    text = getattr(error, "message", None)
    return (text if isinstance(text, str) else str(error))[:_LONGEST]
