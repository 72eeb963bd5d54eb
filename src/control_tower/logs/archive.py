"""An .eval log without Inspect: its header, its summaries, one sample at a time, and changing the header."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, cast

from control_tower.logs.json_text import BadJson, JsonObject, dumps, loads
from control_tower.logs.zip_reader import Damage, DamagedArchive, Limits, ZipReader
from control_tower.logs.zip_writer import new_archive
from control_tower.storage.source import ByteSource, open_source

HEADER = "header.json"
START = "_journal/start.json"
SUMMARIES = "summaries.json"
REDUCTIONS = "reductions.json"

DERIVED = frozenset({"tags", "metadata"})
"""Header keys that Inspect works out of `eval` and `log_updates` whenever it reads the log."""

_SAMPLE = re.compile(r"samples/(?P<id>.*)_epoch_(?P<epoch>\d{1,9})\.json", re.DOTALL)
_JOURNAL = re.compile(r"_journal/(?P<kind>summaries|config_updates)/(?P<number>\d{1,9})\.json")


class SampleKey(NamedTuple):
    """What names a sample in its log: the id as text (ids may be numbers) and the epoch, from 1."""

    id: str
    epoch: int

    @classmethod
    def of(cls, sample: JsonObject) -> SampleKey:
        """The key of a sample or a summary; without an epoch it is the first."""
        return cls(str(sample["id"]), int(sample.get("epoch") or 1))

    @classmethod
    def of_member(cls, name: str) -> SampleKey | None:
        """The key of the sample that a member of the archive holds; None when it is something else."""
        match = _SAMPLE.fullmatch(name)
        return cls(match["id"], int(match["epoch"])) if match else None

    @property
    def member(self) -> str:
        """The archive's member that holds the sample."""
        return f"samples/{self.id}_epoch_{self.epoch}.json"

    def __str__(self) -> str:
        return self.id if self.epoch == 1 else f"{self.id} (epoch {self.epoch})"


class EvalArchive:
    """One .eval log. Everything is read when asked for, so a log may be larger than memory.

    What it returns is the raw JSON: use `logs.actions` for what a sample's events mean.
    """

    def __init__(self, members: ZipReader) -> None:
        self.members = members

    @classmethod
    def open(cls, source: ByteSource | str | Path, limits: Limits | None = None) -> EvalArchive:
        """Opens a log.

        Args:
            source: A path, an `s3://` address, or any `ByteSource`.
            limits: What it may cost; the defaults suit any log Inspect writes.

        Raises:
            StateError: There is no such file.
            DamagedArchive: It is no archive, is torn, or lies about itself; `salvage` may still read it.
        """
        return cls(_open(ZipReader.open, source, limits))

    @classmethod
    def salvage(cls, source: ByteSource | str | Path, limits: Limits | None = None) -> EvalArchive:
        """Opens what is readable of a torn log, found without its directory; see `damage` for the rest.

        Raises:
            StateError: There is no such file.
            DamagedArchive: The search would cost too much.
        """
        return cls(_open(ZipReader.salvage, source, limits))

    @property
    def name(self) -> str:
        """The path or address it was opened from."""
        return self.members.source.name

    @property
    def damage(self) -> tuple[Damage, ...]:
        """What `salvage` could not keep."""
        return self.members.damage

    @property
    def finished(self) -> bool:
        """Whether Inspect closed the log; if not, it was killed or still runs and holds what was flushed."""
        return HEADER in self.members.members

    def header(self) -> JsonObject:
        """The log without samples: `version`, `status`, `eval`, `plan`, and `results`, `stats`, `error`.

        Of an unfinished log the status is "started" and there are neither results nor stats.

        Raises:
            DamagedArchive: There is none, or it is not readable.
        """
        if self.finished:
            header = self._object(HEADER)
        elif START in self.members.members:
            header = {"status": "started", **self._object(START)}
            if updates := self._journal("config_updates"):
                header["config_updates"] = updates
        else:
            raise DamagedArchive(
                self.name, None, f"it holds neither {HEADER} nor {START}: not an Inspect log"
            )
        if not isinstance(header.get("eval"), dict):
            raise DamagedArchive(self.name, HEADER if self.finished else START, "it has no `eval` object")
        return header

    def summaries(self) -> list[JsonObject]:
        """One summary a sample, in the order recorded; of several of one sample the last counts.

        Raises:
            DamagedArchive: They are not readable, or one names no sample.
        """
        if SUMMARIES in self.members.members:
            source, rows = SUMMARIES, self.json(SUMMARIES)
        else:
            source, rows = "_journal/summaries", self._journal("summaries")
        latest: dict[SampleKey, JsonObject] = {}
        for row in cast("list[Any]", rows) if isinstance(rows, list) else [rows]:
            try:
                key = SampleKey.of(row)
            except (AttributeError, KeyError, TypeError, ValueError):
                raise DamagedArchive(self.name, source, "it is not a list of sample summaries") from None
            latest.pop(key, None)
            latest[key] = row
        return list(latest.values())

    def sample_keys(self) -> list[SampleKey]:
        """The samples the archive holds, in the order of its directory."""
        found = (SampleKey.of_member(name) for name in self.members.members)
        return [key for key in found if key]

    def sample(self, key: SampleKey) -> JsonObject:
        """One sample, as stored: attachments and pooled messages are not resolved.

        Raises:
            KeyError: The log does not hold it.
            DamagedArchive: It is not readable, or Inspect split it into chunks.
        """
        if f"{key.member.removesuffix('.json')}/sample.json" in self.members.members:
            raise DamagedArchive(self.name, key.member, "it is split into chunks, which are not read")
        return self._object(key.member)

    def json(self, member: str) -> Any:
        """A member's JSON.

        Raises:
            KeyError: There is no such member.
            DamagedArchive: It is damaged or not JSON.
        """
        data = self.members.read(member)
        try:
            return loads(data)
        except BadJson as error:
            raise DamagedArchive(self.name, member, str(error)) from None

    def verify(self, member: str) -> None:
        """Reads a member to its end for its size and checksum, without keeping it.

        Raises:
            KeyError: There is no such member.
            DamagedArchive: It is damaged.
        """
        for _ in self.members.stream(self.members.members[member]):
            pass

    def close(self) -> None:
        """Closes the file."""
        self.members.close()

    def _object(self, member: str) -> JsonObject:
        value = self.json(member)
        if not isinstance(value, dict):
            raise DamagedArchive(self.name, member, "it is not a JSON object")
        return cast(JsonObject, value)

    def _journal(self, kind: str) -> list[Any]:
        """The journal's members of a kind in the order written; lists are joined."""
        found = (_JOURNAL.fullmatch(name) for name in self.members.members)
        numbered = sorted(
            (int(match["number"]), match[0]) for match in found if match and match["kind"] == kind
        )
        joined: list[Any] = []
        for _, member in numbered:
            value = self.json(member)
            joined += cast("list[Any]", value) if isinstance(value, list) else [value]
        return joined

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def edit_header(
    path: Path,
    change: Callable[[JsonObject], JsonObject],
    *,
    output: Path | None = None,
    drop: Iterable[str] = (),
) -> None:
    """Writes a log anew with another header; every other member is copied as it is.

    Args:
        path: The log.
        change: Is given the header and returns the new one.
        output: Where to; None replaces `path`.
        drop: Members to leave out.

    Raises:
        DamagedArchive: The log is damaged where it is read.
        OperationError: It cannot be written; what was there is untouched.
    """
    with EvalArchive.open(path) as archive:
        header = {key: value for key, value in change(archive.header()).items() if key not in DERIVED}
        left_out = {HEADER, *drop}
        with new_archive(output or path) as writer:
            for name in archive.members.members:
                if name not in left_out:
                    writer.copy(archive.members, name)
            writer.add(HEADER, dumps(header))


def _open(
    how: Callable[[ByteSource, Limits | None], ZipReader],
    source: ByteSource | str | Path,
    limits: Limits | None,
) -> ZipReader:
    opened = open_source(source) if isinstance(source, str | Path) else source
    try:
        return how(opened, limits)
    except BaseException:
        opened.close()
        raise
