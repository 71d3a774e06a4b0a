"""Tracks how far a log has been read, by its content, so that no line is imported twice.

The longest prefix that was imported before is recognised after a log is renamed, rotated, appended
or compressed. A stream remembers running hashes of its lines at up to MARKS positions. A file that
starts like a stream and continues after its end continues it; one that differs earlier (truncated,
written again) becomes a stream of its own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

MARKS = 512


@dataclass
class Stream:
    """A log as it was read so far."""

    id: str
    """Hash of its first line, and of where it parted from another stream."""
    lines: int = 0
    """Number of lines read so far."""
    stride: int = 1
    """Lines between two marks."""
    marks: dict[int, str] = field(default_factory=dict)
    """By number of lines, the hash of all lines up to there."""

    def advance(self, digest: str) -> None:
        """Record one more line; digest: of all lines up to it."""
        self.lines += 1
        if self.lines % self.stride == 0:
            self.marks[self.lines] = digest
            if len(self.marks) > MARKS:
                self.stride *= 2
                self.marks = {n: h for n, h in self.marks.items() if n % self.stride == 0}

    def body(self, digest: str) -> dict[str, Any]:
        """Return the form that serialises to JSON; the position reached is always a mark."""
        marks = {**self.marks, self.lines: digest} if self.lines else self.marks
        return {"id": self.id, "lines": self.lines, "stride": self.stride,
                "marks": [[n, h] for n, h in sorted(marks.items())]}  # fmt: skip


@dataclass(frozen=True)
class StartOfReading:
    """Where the reading of a log starts."""

    lines: int
    """Number of lines that were read before."""
    stream: Stream | None
    """The stream to continue; None for a new log, or for one that differs from `parent` after these
    lines."""
    parent: str
    """Id of the stream that the log shares its first lines with; "" for a new log."""


def key_of(first_line: bytes, form: str = "") -> str:
    """Return the cursor key of all streams that begin with this line. form: the format they are
    read as, if the line is of another one: a log is read once as each. "" if the line is of it."""
    key = "sql:" + hashlib.sha256(first_line).hexdigest()[:32]
    return f"{key}:{form}" if form else key


class RunningHash:
    """Hash of the lines seen so far, readable at every line."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, line: bytes) -> None:
        self._hash.update(line)
        self._hash.update(b"\n")

    @property
    def digest(self) -> str:
        return self._hash.copy().hexdigest()[:16]


def parse_streams(cursor: str | None) -> list[Stream]:
    if cursor is None:
        return []
    return [
        Stream(s["id"], s["lines"], s["stride"], {int(n): h for n, h in s["marks"]})
        for s in json.loads(cursor)["streams"]
    ]


def render_streams(others: Iterable[Stream], current: Stream, digest: str) -> str:
    bodies = [s.body(s.marks.get(s.lines, "")) for s in others if s.id != current.id]
    return json.dumps({"streams": [*bodies, current.body(digest)]}, separators=(",", ":"))


def place_in(streams: list[Stream], lines: Iterable[bytes]) -> StartOfReading:
    """Return the furthest marked position of any stream that matches the file's lines."""
    wanted = {n for stream in streams for n in stream.marks}
    last = max(wanted, default=0)
    seen: dict[int, str] = {}
    running = RunningHash()
    for number, line in enumerate(lines, start=1):
        running.add(line)
        if number in wanted:
            seen[number] = running.digest
        if number >= last:
            break
    best = StartOfReading(0, None, "")
    for stream in streams:
        reached = max((n for n, h in stream.marks.items() if seen.get(n) == h), default=0)
        if reached > best.lines or (reached == best.lines and reached and best.stream is None):
            at_end = reached == stream.lines
            best = StartOfReading(reached, stream if at_end else None, stream.id)
    return best


def forked(parent: str, lines: int, next_line: bytes) -> Stream:
    """Return a new stream; its id depends only on content, so that a repeated import finds it
    again."""
    text = f"{parent}|{lines}|".encode() + next_line
    return Stream("sql-" + hashlib.sha256(text).hexdigest()[:20])
