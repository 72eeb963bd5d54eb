"""A log made ready to be sent: looked at first, then read once, one sample at a time."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from control_tower.errors import ExpectedError, OperationError, StateError, ValidationError
from control_tower.logs.archive import EvalArchive, SampleKey
from control_tower.logs.json_text import JsonObject, dumps
from control_tower.logs.recordings import check_format
from control_tower.storage.source import FileSource

PIECE = 1024 * 1024
"""Bytes read at once."""

Progress = Callable[[str, int, int], None]
"""Is told what is done, how far it is, and how far it goes."""

_WORTH_HELPERS = 40
"""Samples from which on other processes are worth their start."""
_MOST_PROCESSES = 4


@dataclass(frozen=True)
class Known:
    """A log that can become a run."""

    path: Path
    size: int
    """Bytes."""
    sha256: str
    header: JsonObject


@dataclass(frozen=True)
class Prepared(Known):
    """Such a log, and what is said of its samples."""

    _spools: Sequence[IO[bytes]]

    def documents(self) -> Iterator[bytes]:
        """A line of JSON for each sample, its `trajectory_document`, in no order."""
        for spool in self._spools:
            spool.seek(0)
            yield from spool


def check_log(path: Path) -> Known:
    """Refuses a log that cannot become a run; its samples are not looked at.

    Raises:
        StateError: There is no such file, or the log is not finished.
        ValidationError: It is torn, of another format than today's, or has no samples.
    """
    with FileSource(path) as source:
        archive = EvalArchive.open(source)
        header = archive.header()
        if not archive.finished or header.get("status") == "started":
            raise StateError(f"{path}: the log is not finished; when its run is over, `ct logs recover`")
        check_format(path, header)
        if not archive.sample_keys():
            raise ValidationError(f"{path}: the log has no samples")
        digest = hashlib.sha256()
        for piece in pieces(source, 0, source.size):
            digest.update(piece)
        return Known(path, source.size, digest.hexdigest(), header)


@contextmanager
def prepared(known: Known, progress: Progress | None = None) -> Generator[Prepared]:
    """Reads the samples of a log for sending, one at a time; memory does not grow with the log.

    Raises:
        ExpectedError: A sample is damaged, or not what the format allows.
    """
    with FileSource(known.path) as source, ExitStack() as stack:
        archive = EvalArchive.open(source)
        keys = archive.sample_keys()
        shares = _helpers(len(keys)) + 1
        spools = [stack.enter_context(TemporaryFile(prefix="ct-upload-")) for _ in range(shares)]
        helpers = [_Helper(known.path, known.header, keys[n::shares], spools[n]) for n in range(1, shares)]
        for helper in helpers:
            stack.callback(helper.stop)
        for done, line in enumerate(_documents(archive, known.header, keys[::shares]), 1):
            spools[0].write(line)
            if progress:
                progress("reading samples", done * shares, len(keys))
        for helper in helpers:
            helper.finish()
        yield Prepared(**vars(known), _spools=spools)


def pieces(source: FileSource, start: int, length: int) -> Iterator[bytes]:
    """A range of a file.

    Raises:
        OperationError: The file was changed since it was opened.
    """
    end = start + length
    return (source.read_at(at, min(PIECE, end - at)) for at in range(start, end, PIECE))


def _documents(archive: EvalArchive, header: JsonObject, keys: Sequence[SampleKey]) -> Iterator[bytes]:
    from control_tower.logs.trajectories import trajectory_document

    for key in keys:
        yield dumps(trajectory_document(archive.sample(key), header)) + b"\n"


def _helpers(samples: int) -> int:
    """How many more processes make documents: none where that is not safe or not worth it."""
    # A forked process has only the thread that forked it: locks that others hold would stay locked.
    if samples < _WORTH_HELPERS or sys.platform != "linux" or threading.active_count() > 1:
        return 0
    return min(os.cpu_count() or 1, _MOST_PROCESSES) - 1


class _Helper:
    """Another process, which makes a share of the documents."""

    def __init__(self, path: Path, header: JsonObject, keys: Sequence[SampleKey], spool: IO[bytes]) -> None:

        self._path = path
        self._refused = TemporaryFile(prefix="ct-upload-")  # noqa: SIM115
        arguments = (path, header, keys, spool, self._refused)
        self._process = get_context("fork").Process(target=_help, args=arguments, daemon=True)
        self._process.start()

    def finish(self) -> None:
        """Waits for it.

        Raises:
            ValidationError: A sample is damaged, or not what the format allows.
            OperationError: It died.
        """
        self._process.join()
        self._refused.seek(0)
        if refused := self._refused.read():
            raise ValidationError(refused.decode())
        if self._process.exitcode:
            raise OperationError(f"{self._path}: a process that read a part of it has died; try again")

    def stop(self) -> None:
        """Ends it if it still works."""
        self._process.kill()
        self._process.join()
        self._refused.close()


def _help(
    path: Path, header: JsonObject, keys: Sequence[SampleKey], spool: IO[bytes], refused: IO[bytes]
) -> None:
    try:
        with EvalArchive.open(path) as archive:
            spool.writelines(_documents(archive, header, keys))
    except ExpectedError as error:
        refused.write(str(error).encode())
    for file in (spool, refused):
        file.flush()
