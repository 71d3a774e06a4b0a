"""The common parts of all readers: the sink of fragments, the counts, the reading of lines.

The sink is the state store of `reconciler.state`; the CLI passes it in. Storing a fragment of the
same table, source and position twice must have no effect there: an import that died before its
cursor was set is repeated, and logs overlap.
"""

from __future__ import annotations

import io
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO, Any, Protocol

from reconciler.queries.fragments import Fragment
from reconciler.workload_log import skip_reasons
from reconciler.workload_log.identity import Keys

BATCH = 20_000
"""Fragments stored in one commit: bounds memory and the number of commits."""

MOST_UNKNOWN = 1_000
"""Unknown columns that an import names; further ones are counted as one."""

LINES_NAMED = 5
"""Line numbers kept per reason for skipping lines; their text is never kept."""

MAX_LINE = 32 << 20
"""A longer line is skipped without being read."""

READ_AT_ONCE = 1 << 20
"""Bytes of a log that are read at a time."""

MAX_UNPACKED = 1 << 30
MAX_RATIO = 200
"""A compressed log is read up to MAX_UNPACKED bytes or MAX_RATIO times its size, whichever is more:
logs shrink to a tenth or a fiftieth, a bomb to a thousandth."""


class FragmentSink(Protocol):
    def append_fragments(self, fragments: Iterable[Fragment]) -> None: ...

    def recorded_positions(self) -> Keys:
        """Return the positions of all fragments that are kept, ascending."""
        ...

    def cursor(self, source: str) -> str | None: ...

    def set_cursor(self, source: str, value: str) -> None: ...

    def record_skips(self, table_uuid: str | None, counts: Mapping[str, int]) -> None: ...


@dataclass
class Tally:
    """Counts of one import. The lines read are the kept, the skipped and the repeated ones."""

    read: int = 0
    """Number of lines or queries read."""
    kept: int = 0
    """Number of queries kept."""
    fragments: int = 0
    """Number of fragments stored; a kept query has one for each table that it reads."""
    earlier: int = 0
    """Number of lines or queries that an earlier import had read."""
    repeated: int = 0
    """Number of further events of a query that this log already had."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Number of skipped lines, by reason."""
    full_scans: Counter[str] = field(default_factory=Counter)
    """Number of queries that were kept but not understood, by reason."""
    unknown: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By table and column, conditions that count as none because no column has that name."""
    queries: Counter[str] = field(default_factory=Counter)
    """Number of kept queries, by table name."""
    weights: dict[str, float] = field(default_factory=dict)
    """Number of executions that the kept queries represent, by table name."""
    lines: dict[str, list[int]] = field(default_factory=dict)
    """By reason the numbers of the first skipped lines, if the log's lines are numbered."""
    zoneless: int = 0
    """Number of times without a zone."""
    others: Counter[str] = field(default_factory=Counter)
    """Number of skipped records of other systems than the log was read as, by format."""
    valueless: int = 0
    """Number of kept queries whose log has placeholders instead of values."""
    examples: dict[str, str] = field(default_factory=dict)
    """By reason, why one query could not be read, without its text."""
    since_ms: int | None = None
    """Earliest time of a kept event, in epoch milliseconds; None if nothing was kept."""
    until_ms: int | None = None
    """Latest time of a kept event, in epoch milliseconds; None if nothing was kept."""

    def skip(self, reason: str, line: int | None = None) -> None:
        """line: its number in the file, counted from 1."""
        self.read += 1
        self.skipped[reason] += 1
        if line is not None:
            named = self.lines.setdefault(reason, [])
            if len(named) < LINES_NAMED:
                named.append(line)

    def cut_off(self, line: bytes | None, number: int) -> None:
        """Count a last line without an end, None for one that is too long, unless it is empty."""
        if line is None:
            self.skip(skip_reasons.TOO_LONG, number)
        elif line.strip():
            self.skip(skip_reasons.INCOMPLETE, number)

    def unknown_columns(self, table: str, columns: Iterable[str]) -> None:
        for column in columns:
            key = (table, column)
            full = len(self.unknown) >= MOST_UNKNOWN and key not in self.unknown
            self.unknown[(table, "(others)") if full else key] += 1

    def repeat(self) -> None:
        self.read += 1
        self.repeated += 1

    def keep(
        self, tables: Iterable[str], fragments: int, event_ms: int, weight: float = 1.0
    ) -> None:
        self.read += 1
        self.kept += 1
        self.fragments += fragments
        for table in set(tables):
            self.queries[table] += 1
            self.weights[table] = self.weights.get(table, 0.0) + weight
        self.since_ms = event_ms if self.since_ms is None else min(self.since_ms, event_ms)
        self.until_ms = event_ms if self.until_ms is None else max(self.until_ms, event_ms)


class Unreadable(Exception):
    """The rest of a compressed file cannot be read. reason: DAMAGED or BOMB of `skip_reasons`."""

    def __init__(self, reason: str = skip_reasons.DAMAGED):
        super().__init__(reason)
        self.reason = reason


class Unpacked(io.RawIOBase):
    """An unpacked file. Reading it raises Unreadable where the file is damaged, and where it
    unpacks to more than any log does."""

    def __init__(self, file: IO[bytes], packed: int | None):
        """packed: the size of the compressed file, None where the file is not compressed."""
        self._file, self._read = file, 0
        self._limit = None if packed is None else max(MAX_UNPACKED, packed * MAX_RATIO)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._limit is not None and self._read > self._limit:
            raise Unreadable(skip_reasons.BOMB)
        try:
            data = self._file.read1(len(buffer))  # type: ignore[attr-defined]
        except (OSError, EOFError, zlib.error) as error:
            raise Unreadable(skip_reasons.DAMAGED) from error
        buffer[: len(data)] = data
        self._read += len(data)
        return len(data)


def unpacked(file: IO[bytes], packed: int | None) -> io.BufferedReader:
    """Return the file with a buffer of READ_AT_ONCE bytes."""
    return io.BufferedReader(Unpacked(file, packed), READ_AT_ONCE)


def lines_of(stream: IO[bytes], most: int = MAX_LINE) -> Iterator[tuple[bytes | None, bool]]:
    """Yield lines without their end, and whether the end was there; None for a too long line."""
    while line := stream.readline(most + 1):
        ended = line.endswith(b"\n")
        if len(line) > most and not ended:
            yield None, _skip_rest(stream, most)
        else:
            yield line.rstrip(b"\r\n"), ended


def _skip_rest(stream: IO[bytes], most: int) -> bool:
    while piece := stream.readline(most + 1):
        if piece.endswith(b"\n"):
            return True
    return False
