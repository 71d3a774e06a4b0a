"""Imports SQL logs: JSON lines with `sql` and `timestamp`, one query each.

A line that cannot be used is counted with its reason and never stops an import. Fragments keep
neither the SQL text nor the user's name.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reconciler.queries.fragments import Fragment
from reconciler.workload_log import skip_reasons
from reconciler.workload_log.constants import named_zone, parse_timestamp
from reconciler.workload_log.importing import (
    BATCH,
    FragmentSink,
    Tally,
    Unreadable,
    lines_of,
)
from reconciler.workload_log.packing import open_log, packed_size
from reconciler.workload_log.prepared import PreparedStatements
from reconciler.workload_log.progress import (
    Running,
    StartOfReading,
    Stream,
    forked,
    key_of,
    parse_streams,
    place_in,
    render_streams,
)
from reconciler.workload_log.sql import Demand, Session, Skipped, SqlReader

EARLIEST_MS = 631_152_000_000  # 1990
DAY_MS = 86_400_000
SCANS_PER_LINE = 256
OWN_AGENT = "layoutctl"
MAX_LINE = 8 << 20
"""A statement that is analysed has 1 MiB, which JSON may write as six."""


@dataclass(frozen=True, slots=True)
class Record:
    """A usable line. engine, session_name: "" if the log does not name them.

    session_name decides whose prepared statements the line may execute; it is not kept.
    """

    sql: str
    event_ms: int
    weight: float
    session: Session
    engine: str
    duration_ms: int | None
    recorded_bytes: int | None
    session_name: str = ""


@dataclass
class SqlLogImport:
    """Imports SQL logs of one dialect against one catalog; the reader keeps its templates."""

    reader: SqlReader
    sink: FragmentSink
    defaults: Session = field(default_factory=Session)
    latest_ms: int = 0

    def run(self, path: Path) -> Tally:
        """Import what is new in one file. Raises UserError if it cannot be opened."""
        self.latest_ms = int(time.time() * 1000) + DAY_MS
        tally = Tally()
        first = _first_line(path, tally)
        if first is None:
            return tally
        key = key_of(first)
        streams = parse_streams(self.sink.cursor(key))
        place = place_in(streams, _complete_lines(path)) if streams else StartOfReading(0, None, "")
        tally.earlier = place.lines
        self._import_from(path, place, key, streams, tally)
        return tally

    def _import_from(
        self, path: Path, place: StartOfReading, key: str, streams: list[Stream], tally: Tally
    ) -> None:
        running = Running()
        stream = place.stream
        pending = _Pending(self.sink, tally, PreparedStatements(self.reader.dialect))
        with open_log(path) as file:
            try:
                lines = lines_of(file, MAX_LINE, packed_size(path))
                for number, (line, ended) in enumerate(lines, start=1):
                    content = b"" if line is None else line
                    if number <= place.lines:
                        running.add(content)
                        self._look_back(content, pending.prepared)
                        continue
                    if not ended and not _is_object(content):
                        if content.strip():
                            tally.skip(skip_reasons.INCOMPLETE, number)
                        break
                    if stream is None:
                        stream = forked(place.parent, place.lines, content)
                        stream.lines = place.lines
                    running.add(content)
                    stream.advance(running.digest)
                    self._line(line, number, stream, pending)
                    if len(pending.fragments) >= BATCH:
                        pending.store()
                        self.sink.set_cursor(key, render_streams(streams, stream, running.digest))
            except Unreadable as unreadable:
                tally.skip(unreadable.reason)
        pending.store()
        if stream is not None and stream.lines > place.lines:
            self.sink.set_cursor(key, render_streams(streams, stream, running.digest))

    def _look_back(self, line: bytes, prepared: PreparedStatements) -> None:
        """Read an already imported line: it may hold the PREPARE that a new line executes."""
        record = self.record(line) if prepared.concerned(line) else ""
        if isinstance(record, Record):
            prepared.running(record.sql, record.session_name)

    def _line(self, line: bytes | None, number: int, stream: Stream, pending: _Pending) -> None:
        if line is not None and not line.strip(b" \t\r\n\xef\xbb\xbf"):
            return
        record = skip_reasons.TOO_LONG if line is None else self.record(line)
        if isinstance(record, str):
            pending.skip(record, number)
            return
        sql, reason = pending.prepared.running(record.sql, record.session_name)
        if reason:
            pending.skip(reason, number)
            return
        try:
            found = self.reader.extract(sql, record.event_ms, record.session)
        except Exception as error:  # a bug in reading one query must not stop the import
            pending.skip(f"could not be analysed ({type(error).__name__})", number)
            return
        if isinstance(found, Skipped):
            pending.skip(found.reason, number)
            return
        source, position = stream.id, stream.lines * SCANS_PER_LINE
        pending.keep(fragments_of(found, record, source, position, self.reader.dialect), found)

    def record(self, line: bytes) -> Record | str:
        """Return the line's values, or why it cannot be used."""
        try:
            body = json.loads(line.decode("utf-8-sig"))
        except UnicodeDecodeError:
            return skip_reasons.NOT_UTF8
        except (ValueError, RecursionError):
            return skip_reasons.NOT_JSON
        if not isinstance(body, dict):
            return skip_reasons.NOT_AN_OBJECT
        sql = body.get("sql")
        if not isinstance(sql, str) or not sql.strip():
            return skip_reasons.NO_SQL
        event_ms = event_time(body.get("timestamp"), self.defaults.zone)
        if event_ms is None:
            return skip_reasons.NO_TIMESTAMP
        if not EARLIEST_MS <= event_ms <= self.latest_ms:
            return skip_reasons.ABSURD_TIMESTAMP
        weight = 1.0 if body.get("weight") is None else _number(body["weight"])
        if weight is None or weight <= 0 or weight > 1e12:
            return skip_reasons.BAD_WEIGHT
        if _own(body):
            return skip_reasons.OWN_JOB
        return Record(
            sql,
            event_ms,
            weight,
            self._session(body),
            body["engine"][:40] if isinstance(body.get("engine"), str) else "",
            _count(body.get("durationMs")),
            _first_count(body, ("recordedBytes", "bytesRead", "bytes")),
            _session_name(body),
        )

    def _session(self, body: dict[str, Any]) -> Session:
        levels: list[str] = []
        for name in ("catalog", "schema"):
            value = body.get(name)
            if isinstance(value, str) and value:
                levels += [value] if name == "catalog" else value.split(".")
        zone = self.defaults.zone
        if isinstance(body.get("timezone"), str):
            try:
                zone = named_zone(body["timezone"])
            except ValueError:
                zone = self.defaults.zone
        return Session(tuple(levels) or self.defaults.levels, zone)


@dataclass
class _Pending:
    """Fragments and counts not stored yet."""

    sink: FragmentSink
    tally: Tally
    prepared: PreparedStatements

    def __post_init__(self) -> None:
        self.fragments: list[Fragment] = []
        self.skips: Counter[str] = Counter()
        self.unread: dict[str, Counter[str]] = {}

    def skip(self, reason: str, line: int) -> None:
        self.tally.skip(reason, line)
        self.skips[reason] += 1

    def keep(self, fragments: list[Fragment], demands: list[Demand]) -> None:
        self.fragments += fragments
        names = [demand.table.name for demand in demands]
        first = fragments[0]
        self.tally.keep(names, len(fragments), first.event_ms, first.weight)
        for demand in demands:
            self.tally.unknown.update((demand.table.name, column) for column in demand.unknown)
            if demand.full_scan:
                self.tally.full_scans[demand.note] += 1
                counts = self.unread.setdefault(demand.table.uuid, Counter())
                counts[demand.note] += 1

    def store(self) -> None:
        if self.fragments:
            self.sink.append_fragments(self.fragments)
        if self.skips:
            self.sink.record_skips(None, dict(self.skips))
        for uuid, counts in self.unread.items():
            self.sink.record_skips(uuid, dict(counts))
        self.__post_init__()


def fragments_of(
    demands: list[Demand], record: Record, source: str, position: int, dialect: str
) -> list[Fragment]:
    """Return one fragment per scan. Recorded bytes are assigned only to the query's single scan."""
    alone = len(demands) == 1
    return [
        Fragment(
            source=source,
            position=position + ordinal,
            table_uuid=demand.table.uuid,
            predicate=demand.predicate,
            literals=demand.literals,
            moving=demand.moving,
            projection=demand.projection,
            weight=record.weight,
            event_ms=record.event_ms,
            engine=record.engine or dialect or "sql",
            recorded_bytes=record.recorded_bytes if alone else None,
            duration_ms=record.duration_ms,
            full_scan=demand.full_scan,
            unbound=demand.unbound,
            elsewhere=demand.elsewhere,
            merged=demand.merged,
        )
        for ordinal, demand in enumerate(demands[:SCANS_PER_LINE])
    ]


def event_time(value: Any, zone: dt.tzinfo) -> int | None:
    """Return the epoch milliseconds of an ISO 8601 text or of a number of milliseconds."""
    if isinstance(value, str):
        text = value.strip()
        if re.fullmatch(r"\d{10,17}(\.\d+)?", text):
            return int(text.partition(".")[0])
        try:
            at = dt.datetime.fromisoformat(text)
        except ValueError:
            named = parse_timestamp(text)  # "2026-03-01 10:00:00 UTC", as engines print it
            if named is None:
                return None
            at = named
        at = at if at.tzinfo is not None else at.replace(tzinfo=zone)
        try:
            return int((at - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) / dt.timedelta(milliseconds=1))
        except OverflowError:
            return None
    number = _number(value)
    return None if number is None else int(number)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _count(value: Any) -> int | None:
    number = _number(value)
    return None if number is None or not 0 <= number < 1 << 62 else int(number)


def _first_count(body: dict[str, Any], names: tuple[str, ...]) -> int | None:
    counts = (_count(body.get(name)) for name in names)
    return next((count for count in counts if count is not None), None)


def _own(body: dict[str, Any]) -> bool:
    """Whether it is our own statement, if the engine logs the client's name."""
    names = ("application", "applicationName", "client", "clientInfo", "source", "userAgent")
    return any(str(body.get(name, "")).lower().startswith(OWN_AGENT) for name in names)


_SESSION_FIELDS = ("sessionId", "session_id", "session", "connectionId", "user", "userName")


def _session_name(body: dict[str, Any]) -> str:
    values = (body.get(name) for name in _SESSION_FIELDS)
    return next((str(v)[:200] for v in values if isinstance(v, (str, int)) and v != ""), "")


def _first_line(path: Path, tally: Tally) -> bytes | None:
    """Return the first line; None, with the reason counted, if no line can be read yet."""
    with open_log(path) as file:
        try:
            lines = lines_of(file, MAX_LINE, packed_size(path))
            line, ended = next(lines, (b"", False))
        except Unreadable as unreadable:
            tally.skip(unreadable.reason)
            return None
    content = b"" if line is None else line
    if ended or _is_object(content):
        return content
    if content.strip():
        tally.skip(skip_reasons.INCOMPLETE, 1)
    return None


def _complete_lines(path: Path) -> Iterator[bytes]:
    with open_log(path) as file:
        try:
            for line, _ in lines_of(file, MAX_LINE, packed_size(path)):
                yield b"" if line is None else line
        except Unreadable:
            return


def _is_object(content: bytes) -> bool:
    try:
        return isinstance(json.loads(content.decode("utf-8-sig")), dict)
    except (ValueError, RecursionError):
        return False
