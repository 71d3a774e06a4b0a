"""Imports SQL logs and query histories: records with the text and the time of one query each.

A line that cannot be used is counted with its reason and never stops an import. Fragments keep
neither the SQL text nor the user's name.
"""

from __future__ import annotations

import json
import time
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from reconciler.errors import ReconcilerError
from reconciler.queries.fragments import Fragment
from reconciler.table.times import DAY_MS
from reconciler.workload_log import skip_reasons
from reconciler.workload_log.constants import named_zone
from reconciler.workload_log.containers import NO_ROW
from reconciler.workload_log.dialects import (
    LONGEST,
    SAMPLED,
    mostly_unparsable,
    why_unparsable,
    wrong_dialect,
)
from reconciler.workload_log.histories import OWN, FieldMap, recognised
from reconciler.workload_log.history_lines import is_redacted, translated
from reconciler.workload_log.identity import (
    Keys,
    Occurrences,
    contained,
    identity_of,
    query_id,
)
from reconciler.workload_log.importing import (
    BATCH,
    FragmentSink,
    Tally,
    Unreadable,
)
from reconciler.workload_log.line_fields import (
    count_of,
    event_time,
    first_count,
    is_own,
    names_of,
    number_of,
    session_name_of,
)
from reconciler.workload_log.log_lines import (
    complete_lines,
    first_line,
    is_object,
    kind_of_line,
    lines_in,
)
from reconciler.workload_log.packing import Log, modified_ms, open_log
from reconciler.workload_log.prepared import PreparedStatements
from reconciler.workload_log.progress import (
    RunningHash,
    StartOfReading,
    Stream,
    forked,
    key_of,
    parse_streams,
    place_in,
    render_streams,
)
from reconciler.workload_log.query_records import Record, fragments_of, with_later
from reconciler.workload_log.sql import Session, Skipped, SqlReader

EARLIEST_MS = 631_152_000_000  # 1990
BATCH_SIZE = 16 << 20
"""Characters of SQL after which what was read is stored, however few queries they are."""
LOOK_BACK = 20_000
"""Already imported lines in which equal queries are counted when a log has grown: equal times are
close to each other."""
LONG_LINE = 16 << 10
"""Bytes of a line from which on it is left out of that count."""


@dataclass
class SqlLogImport:
    """Imports SQL logs of one dialect against one catalog; the reader keeps its templates."""

    reader: SqlReader
    """Reads the statements."""
    sink: FragmentSink
    """Keeps what they ask for."""
    defaults: Session = field(default_factory=Session)
    """Catalog and schema of statements that name none."""
    kind: FieldMap = OWN
    """The fields of the log's records."""
    latest_ms: int = 0
    """The latest time that a record may have, in epoch milliseconds: a day after now."""
    changed_ms: int | None = None
    """When the log was changed, in epoch milliseconds; None if that is not known."""

    def run(self, path: Log) -> Tally:
        """Import what is new in one file. Raises UserError if it cannot be opened."""
        self.latest_ms = int(time.time() * 1000) + DAY_MS
        self.changed_ms = modified_ms(path)
        tally = Tally()
        first = first_line(path, tally)
        if first is None:
            return tally
        key = key_of(first, self._beside(first))
        streams = parse_streams(self.sink.cursor(key))
        place = place_in(streams, complete_lines(path)) if streams else StartOfReading(0, None, "")
        tally.earlier = place.lines
        self._import_from(path, place, key, streams, tally)
        return tally

    def _beside(self, first: bytes) -> str:
        """Return the name of the format that a log is read as, if its first record is of another
        one; else "". Such a log holds several formats, and it is read once as each."""
        return self.kind.name if self.kind.marks and kind_of_line(first) is not self.kind else ""

    def _import_from(
        self, path: Log, place: StartOfReading, key: str, streams: list[Stream], tally: Tally
    ) -> None:
        running = RunningHash()
        stream = place.stream
        behind: deque[bytes] = deque(maxlen=LOOK_BACK)
        pending = _Pending(
            self.sink,
            tally,
            PreparedStatements(self.reader.dialect),
            name=str(path),
            judged=place.lines > 0,
        )
        with open_log(path) as file:
            try:
                lines = lines_in(file, path)
                for number, (line, ended) in enumerate(lines, start=1):
                    content = b"" if line is None else line
                    if number <= place.lines:
                        running.add(content)
                        behind.append(content if len(content) < LONG_LINE else b"")
                        self._look_back(content, pending.prepared)
                        continue
                    if behind:
                        pending.occurrences.add(self._keys(behind))
                        behind.clear()
                    if not ended and not is_object(content):
                        tally.cut_off(line, number)
                        break
                    if stream is None:
                        stream = forked(place.parent, place.lines, content)
                        stream.lines = place.lines
                    running.add(content)
                    stream.advance(running.digest)
                    self._line(line, number, pending)
                    if pending.full:
                        pending.store()
                        self.sink.set_cursor(key, render_streams(streams, stream, running.digest))
            except Unreadable as unreadable:
                tally.skip(unreadable.reason)
        pending.store()
        if stream is not None and stream.lines > place.lines and pending.used:
            self.sink.set_cursor(key, render_streams(streams, stream, running.digest))

    def _look_back(self, line: bytes, prepared: PreparedStatements) -> None:
        """Read an already imported line: it may hold the PREPARE that a new line executes."""
        record = self.record(line) if prepared.concerned(line) else ""
        if isinstance(record, Record):
            prepared.executed(record.sql, record.session_name)

    def _keys(self, lines: Iterable[bytes]) -> list[int]:
        """Return the keys of the queries in already imported lines."""
        records = (self.record(line) for line in lines)
        return [record.identity.key for record in records if isinstance(record, Record)]

    def _line(self, line: bytes | None, number: int, pending: _Pending) -> None:
        if line is not None and not line.strip(b" \t\r\n\xef\xbb\xbf"):
            return
        record = skip_reasons.TOO_LONG if line is None else self.record(line)
        if isinstance(record, str):
            pending.skip(record, number)
            other = kind_of_line(line or b"") if record == skip_reasons.OTHER_HISTORY else None
            if other is not None:
                pending.tally.others[other.name] += 1
            return
        pending.tally.zoneless += record.zoneless
        sql, reason = pending.prepared.executed(record.sql, record.session_name)
        if reason:
            pending.skip(reason, number)
            return
        try:
            found = self.reader.extract(sql, record.event_ms, record.session, record.joined)
        except ReconcilerError:  # a catalog that does not answer: the query is read next time
            raise
        except Exception as error:  # a bug in reading one query must not stop the import
            pending.skip(f"could not be analysed ({type(error).__name__})", number)
            return
        if isinstance(found, Skipped):
            if found.reason == skip_reasons.UNPARSABLE:
                pending.unparsed(sql, number)
            pending.skip(found.reason, number)
            return
        if any(read.note == skip_reasons.UNPARSABLE for read in found):
            pending.unparsed(sql, number)
        record.sql, record.joined, record.reads = "", (), tuple(found)
        pending.queries.append(record)
        pending.size += len(sql)

    def record(self, line: bytes) -> Record | str:
        """Return the line's values, or why it cannot be used."""
        try:
            body = json.loads(line.decode("utf-8-sig"))
        except UnicodeDecodeError:
            return skip_reasons.NOT_UTF8
        except (ValueError, RecursionError):
            return skip_reasons.NOT_JSON
        if not isinstance(body, dict):
            return skip_reasons.RAGGED if line == NO_ROW else skip_reasons.NOT_AN_OBJECT
        if self.kind is not OWN:
            found = translated(body, self.kind, line, self.changed_ms)
            if isinstance(found, str):
                return found
            body = found
        sql = body.get("sql")
        if not isinstance(sql, str) or not sql.strip():
            foreign = recognised(body) not in (None, self.kind)
            return skip_reasons.OTHER_HISTORY if foreign else skip_reasons.NO_SQL
        if is_redacted(sql):
            return skip_reasons.REDACTED
        event_ms, zoneless = event_time(body.get("timestamp"), self.defaults.zone)
        if event_ms is None:
            return skip_reasons.NO_TIMESTAMP
        if not EARLIEST_MS <= event_ms <= self.latest_ms:
            return skip_reasons.ABSURD_TIMESTAMP
        weight = 1.0 if body.get("weight") is None else number_of(body["weight"])
        if weight is None or weight <= 0 or weight > 1e12:
            return skip_reasons.BAD_WEIGHT
        if is_own(body):
            return skip_reasons.OWN_JOB
        return Record(
            sql,
            event_ms,
            weight,
            self._session(body),
            body["engine"][:40] if isinstance(body.get("engine"), str) else "",
            count_of(body.get("durationMs")),
            first_count(body, ("recordedBytes", "bytesRead", "bytes")),
            session_name_of(body),
            identity_of(query_id(body), event_ms, sql, names_of(body)),
            zoneless,
            body.get("tableBytes", {}) if self.kind is not OWN else {},
            body.get("joinRanges", ()) if self.kind is not OWN else (),
        )

    def _session(self, body: dict[str, Any]) -> Session:
        catalog, schema = names_of(body)
        levels = [*([catalog] if catalog else []), *(schema.split(".") if schema else [])]
        zone = self.defaults.zone
        if isinstance(body.get("timezone"), str):
            try:
                zone = named_zone(body["timezone"])
            except ValueError:
                zone = self.defaults.zone
        return Session(tuple(levels) or self.defaults.levels, zone)


@dataclass
class _Pending:
    """Queries and counts of one log that are not stored yet."""

    sink: FragmentSink
    """Stores the fragments."""
    tally: Tally
    """The counts of the import."""
    prepared: PreparedStatements
    """Prepared statements by session."""
    occurrences: Occurrences = field(default_factory=Occurrences)
    """How often each query occurred in the log so far."""
    queries: list[Record] = field(default_factory=list)
    """The queries to store."""
    skips: Counter[str] = field(default_factory=Counter)
    """Number of skipped lines since the last storing, by reason."""
    full_scans: dict[str, Counter[str]] = field(default_factory=dict)
    """By the UUID of a table, the number of queries that count as full scans, by reason, since the
    last storing."""
    recorded: Keys | None = None
    """Positions that the state had before this import; None if it was not asked yet."""
    size: int = 0
    """Characters of the queries."""
    name: str = ""
    """Name of the log."""
    judged: bool = False
    """Whether the dialect of the log was found to be right."""
    samples: list[str] = field(default_factory=list)
    """Texts of queries that do not parse."""

    @property
    def used(self) -> bool:
        """Whether anything of the log counts. Of a log without a query of a known table nothing is
        recorded, so that it can be imported again with other options."""
        return bool(self.tally.kept or self.tally.earlier or self.tally.repeated)

    @property
    def full(self) -> bool:
        return len(self.queries) >= BATCH or self.size >= BATCH_SIZE

    def skip(self, reason: str, line: int) -> None:
        self.tally.skip(reason, line)
        self.skips[reason] += 1

    def unparsed(self, sql: str, line: int) -> None:
        """Note a query that does not parse."""
        reason = skip_reasons.UNPARSABLE
        if len(self.samples) < SAMPLED:
            self.samples.append(sql[: LONGEST + 1])
        if reason not in self.tally.examples:
            why = why_unparsable(sql, self.prepared.dialect)
            self.tally.examples[reason] = f"line {line}: {why}"

    def store(self) -> None:
        """Store the queries that the state does not have yet, and the counts.

        Raises UserError, and stores nothing, if most of the log's first queries do not parse.
        """
        if not self.judged:
            self._judge()
        new = self._new()
        self.queries, self.size = [], 0
        if new:
            self.sink.append_fragments(new)
        if not self.used:
            return
        if self.skips:
            self.sink.record_skips(None, dict(self.skips))
        for uuid, counts in self.full_scans.items():
            self.sink.record_skips(uuid, dict(counts))
        self.skips, self.full_scans = Counter(), {}

    def _judge(self) -> None:
        unparsable = skip_reasons.UNPARSABLE
        bad = sum(any(read.note == unparsable for read in query.reads) for query in self.queries)
        kept = len(self.queries)
        if not kept:  # what names no table of the catalog shows the dialect as well
            bad, kept = self.skips[unparsable], sum(self.skips.values())
        if mostly_unparsable(kept, bad):
            example = self.tally.examples[unparsable]
            dialect = self.prepared.dialect
            raise wrong_dialect(self.name, dialect, kept, bad, self.samples, example)
        self.judged = True

    def _new(self) -> list[Fragment]:
        """Return the fragments that are new, and count each query as what it is."""
        if self.recorded is None and self.queries:
            self.recorded = self.sink.recorded_positions()
        before = self.occurrences.add([query.identity.key for query in self.queries])
        found: list[tuple[Record, list[Fragment]]] = []
        events: dict[int, int] = {}
        for query, number in zip(self.queries, before, strict=True):
            fragments = fragments_of(query, number)
            if not (query.identity.named and number):
                events[query.identity.key] = len(found)
                found.append((query, fragments))
                continue
            self.tally.repeat()
            at = events.get(query.identity.key)
            if at is not None:  # an event after the query's end also has what it measured
                found[at] = (query, with_later(found[at][1], fragments))
        positions = [item.position for _, fragments in found for item in fragments]
        known = iter([] if self.recorded is None else contained(self.recorded, positions))
        new: list[Fragment] = []
        for query, fragments in found:
            missing = [item for item in fragments if not next(known)]
            if missing:
                self.count(query, missing)
            else:
                self.tally.earlier += 1
            new += missing
        return new

    def count(self, query: Record, fragments: list[Fragment]) -> None:
        names = [read.table.name for read in query.reads]
        self.tally.keep(names, len(fragments), query.event_ms, query.weight)
        self.tally.valueless += any(read.fragment.unbound is not None for read in query.reads)
        for read in query.reads:
            self.tally.unknown_columns(read.table.name, read.unknown)
            if read.fragment.full_scan:
                self.tally.full_scans[read.note] += 1
                counts = self.full_scans.setdefault(read.table.uuid, Counter())
                counts[read.note] += 1
