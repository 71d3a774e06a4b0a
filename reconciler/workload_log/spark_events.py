"""Imports Spark event logs: the filters of Iceberg scans, and the bytes that their tasks read.

Filters and columns come from the scan's line in the plan (the last plan of an adaptive execution),
bytes from the metrics of the tasks that ran it. Runtime filters are ignored: they only narrow a
scan further. Executions that have not ended are left for the next import.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from reconciler.queries.fragments import Fragment
from reconciler.queries.predicate import TRUE, fields_of, only_null_tests
from reconciler.table.schema import Schema
from reconciler.workload_log import skip_reasons
from reconciler.workload_log.constants import Binding
from reconciler.workload_log.identity import SOURCE, Keys, contained, execution_key, position
from reconciler.workload_log.importing import (
    BATCH,
    FragmentSink,
    Tally,
    Unreadable,
    lines_of,
    unpacked,
)
from reconciler.workload_log.packing import Log, open_log, packed_size
from reconciler.workload_log.scan_text import merged_scan, parse_scan, scan_nodes
from reconciler.workload_log.spark_filters import UnreadableFilters, read_filters
from reconciler.workload_log.tables import KnownTable, TableSchemas

OWN_APPLICATION = "layoutctl"
SCANS_PER_EXECUTION = 256
MOST_OPEN = 10_000
MOST_OPEN_TEXT = 64 << 20
"""Executions that have not ended, and characters of their scans; the oldest are given up first."""
MOST_DONE = 1_000_000
"""Executions of one application that are remembered as read; the state recognises further ones."""
MAX_ID = 1 << 48
LATEST_MS = 253_402_300_799_000
"""The end of year 9999: no time that a query's constants are computed with lies beyond."""

_EVENTS = (b"SparkListenerSQL", b"SparkListenerApplicationStart", b"DriverAccumUpdates",
           b"SparkListenerTaskEnd")  # fmt: skip


def _parts(path: Log) -> Sequence[Log]:
    """Return the files of one application's log in order; a compacted one replaces those before
    it."""
    if not isinstance(path, Path) or not path.is_dir():
        return [path]
    numbered = []
    for part in path.iterdir():
        match = re.match(r"events_(\d+)_", part.name)
        if match:
            numbered.append((int(match.group(1)), ".compact" in part.name, part))
    numbered.sort()
    compacted = [index for index, item in enumerate(numbered) if item[1]]
    return [part for _, _, part in numbered[compacted[-1] if compacted else 0 :]]


@dataclass
class _Scan:
    """One scan node of a plan."""

    text: str
    """The node's line in the plan."""
    accumulators: frozenset[int]
    """Ids of its metrics."""
    file_bytes_id: int | None
    """Id of the metric of its planned file bytes; None if it has none."""
    merged: bool = False
    """Whether a MERGE reads here the table that it writes."""
    ran: bool = False
    """Whether a metric shows that it ran."""
    bytes: float = 0.0
    """Bytes that its tasks read."""
    measured: bool = False
    """Whether `bytes` was measured."""


@dataclass
class _Execution:
    """A SQL execution between its start and its end."""

    id: int
    """Spark's number of the execution."""
    start_ms: int
    """Its start in epoch milliseconds."""
    key: int
    """Hash that identifies the query in every log."""
    scans: list[_Scan] = field(default_factory=list)
    """Its scans."""
    text: int = 0
    """Characters of the lines of its scans."""
    file_bytes: dict[int, int] = field(default_factory=dict)
    """Planned file bytes by the id of the metric."""


@dataclass
class SparkEventImport:
    """Imports event logs against one catalog."""

    tables: TableSchemas
    """The tables of the catalog."""
    sink: FragmentSink
    """Keeps the fragments."""
    zone: dt.tzinfo = dt.UTC
    """Time zone of times without one."""

    def run(self, path: Log) -> Tally:
        """Import the executions of one application that ended since the last import."""
        return _Application(self, Tally()).run(path)


class _Application:
    """The state of reading one application's log."""

    def __init__(self, importer: SparkEventImport, tally: Tally):
        self.importer, self.tally = importer, tally
        self.source = ""
        self.own = False
        self.done: set[int] = set()
        self.executions: dict[int, _Execution] = {}
        self.open_text = 0
        self.by_accumulator: dict[int, _Scan] = {}
        self.ended: list[list[tuple[KnownTable, Fragment]]] = []
        self.recorded: Keys | None = None
        self.skips: Counter[str] = Counter()
        self.full_scans: dict[str, Counter[str]] = {}

    def run(self, path: Log) -> Tally:
        parts = _parts(path)
        for part in parts:
            with open_log(part) as file:
                try:
                    lines = lines_of(unpacked(file, packed_size(part)))
                    for number, (line, ended) in enumerate(lines, start=1):
                        self._line(line, ended, number if len(parts) == 1 else None)
                except Unreadable as unreadable:
                    if unreadable.reason == skip_reasons.BOMB or not part.name.endswith(
                        ".inprogress"
                    ):
                        self.tally.skip(unreadable.reason)
        self._store()
        return self.tally

    def _line(self, line: bytes | None, ended: bool, number: int | None) -> None:
        """Read one line. number: of the line, None in a log of several files."""
        if line is None:
            self._skip(skip_reasons.TOO_LONG, number)
            return
        if not any(name in line[:200] for name in _EVENTS):
            return
        try:
            self._event(json.loads(line))
        except (LookupError, ValueError, ArithmeticError, TypeError, AttributeError,
                RecursionError):  # fmt: skip
            if ended:
                self._skip(skip_reasons.UNREADABLE_EVENT, number)

    def _event(self, event: dict[str, Any]) -> None:
        name = event["Event"].rpartition(".")[2]
        if name == "SparkListenerApplicationStart":
            self._application(event)
        elif name == "SparkListenerTaskEnd":
            self._task_end(event)
        elif name == "SparkListenerSQLExecutionStart":
            if not self.source:  # the log's beginning is lost: identify it by what is left
                text = json.dumps(event, sort_keys=True).encode()
                self._identify("spark:" + hashlib.sha256(text).hexdigest()[:20])
            number, start_ms = _checked(event["executionId"], MAX_ID), _at(event["time"])
            plan = json.dumps(event["sparkPlanInfo"], sort_keys=True)
            execution = _Execution(number, start_ms, execution_key(number, start_ms, plan))
            if execution.id in self.done:
                self.tally.earlier += 1
            else:
                if execution.id in self.executions:
                    self._close(self.executions[execution.id])
                self.executions[execution.id] = execution
                self._plan(execution, event["sparkPlanInfo"])
                self._give_up()
        else:
            self._execution_event(name, event)

    def _give_up(self) -> None:
        """Forget the oldest executions that have not ended, if there are too many."""
        while len(self.executions) > MOST_OPEN or self.open_text > MOST_OPEN_TEXT:
            self._close(self.executions[next(iter(self.executions))])
            self._skip(skip_reasons.NEVER_ENDED)

    def _close(self, execution: _Execution) -> None:
        del self.executions[execution.id]
        self.open_text -= execution.text
        for scan in execution.scans:
            for accumulator in scan.accumulators:
                self.by_accumulator.pop(accumulator, None)

    def _application(self, event: dict[str, Any]) -> None:
        attempt = event.get("App Attempt ID")
        self.own = str(event.get("App Name", "")).startswith(OWN_APPLICATION)
        self._identify(f"spark:{event['App ID']}" + (f":{attempt}" if attempt else ""))

    def _identify(self, source: str) -> None:
        self.source = source
        cursor = self.importer.sink.cursor(self.source)
        for first, last in json.loads(cursor)["done"] if cursor else []:
            self.done.update(range(first, last + 1))

    def _execution_event(self, name: str, event: dict[str, Any]) -> None:
        execution = self.executions.get(int(event.get("executionId", -1)))
        if execution is None:
            return
        if name == "SparkListenerSQLAdaptiveExecutionUpdate":
            self._plan(execution, event["sparkPlanInfo"])
        elif name == "SparkListenerDriverAccumUpdates":
            for accumulator, value in event["accumUpdates"]:
                scan = self.by_accumulator.get(accumulator)
                if scan is not None:
                    scan.ran = True
                    execution.file_bytes[accumulator] = int(value)
        elif name == "SparkListenerSQLExecutionEnd":
            self._end(execution, _at(event["time"]), str(event.get("errorMessage") or ""))

    def _plan(self, execution: _Execution, plan: dict[str, Any]) -> None:
        """Add the scans of a plan; scans kept from an execution's earlier plans have the same
        metrics."""
        known = {scan.accumulators: scan for scan in execution.scans}
        current: dict[frozenset[int], _Scan] = {}
        into = merged_scan(plan)
        for node in scan_nodes(plan):
            metrics = {m["name"]: m["accumulatorId"] for m in node.get("metrics", [])}
            key = frozenset(metrics.values())
            size = next((i for n, i in metrics.items() if "data file size" in n), None)
            current[key] = known.get(key) or _Scan(
                node["simpleString"], key, size, merged=node is into
            )
        for key, scan in known.items():
            if scan.ran or scan.measured:
                current.setdefault(key, scan)
            if key not in current:
                for accumulator in key:
                    self.by_accumulator.pop(accumulator, None)
        execution.scans = list(current.values())
        size = sum(len(scan.text) for scan in execution.scans)
        self.open_text += size - execution.text
        execution.text = size
        for scan in execution.scans:
            self.by_accumulator.update(dict.fromkeys(scan.accumulators, scan))

    def _task_end(self, event: dict[str, Any]) -> None:
        """Assign a task's input bytes to the scan whose metrics it updated; to several by size."""
        accumulables = event.get("Task Info", {}).get("Accumulables", [])
        scans = {
            id(scan): scan
            for scan in (self.by_accumulator.get(a.get("ID")) for a in accumulables)
            if scan is not None
        }
        metrics = event.get("Task Metrics") or {}
        read = (metrics.get("Input Metrics") or {}).get("Bytes Read", 0)
        for scan in scans.values():
            scan.ran = True
            scan.measured = True
            scan.bytes += float(read) / len(scans)

    def _end(self, execution: _Execution, end_ms: int, error: str) -> None:
        self._close(execution)
        if len(self.done) < MOST_DONE:
            self.done.add(execution.id)
        ran = [scan for scan in execution.scans if scan.ran]
        scans = ran or execution.scans
        if not scans:
            return
        if self.own or error:
            self._skip(skip_reasons.OWN_JOB if self.own else skip_reasons.FAILED)
            return
        found = [self._fragment(execution, scan, end_ms) for scan in scans]
        kept = _marked([item for item in found if not isinstance(item, str)])
        if not kept:
            self._skip(next(item for item in found if isinstance(item, str)))
            return
        self.ended.append(_placed(execution.key, kept[:SCANS_PER_EXECUTION]))
        if len(self.ended) >= BATCH:
            self._store()

    def _fragment(
        self, execution: _Execution, scan: _Scan, end_ms: int
    ) -> tuple[KnownTable, Fragment] | str:
        """Return the scan's fragment with its table, or why there is none."""
        parsed = parse_scan(scan.text)
        if parsed is None:
            return skip_reasons.MAINTENANCE
        if parsed.branch:
            return skip_reasons.OTHER_BRANCH
        table = self.importer.tables.resolve(parsed.table)
        if table is None:
            return skip_reasons.UNKNOWN_TABLES
        binding = Binding(execution.start_ms, self.importer.zone, "spark", {})
        predicate, literals, full_scan = TRUE, (), False
        projection = _projection(table.schema, parsed.columns)
        try:
            found = read_filters(parsed.filters, table.schema, binding)
            predicate, literals = found.predicate, found.literals  # type: ignore[assignment]
        except (UnreadableFilters, RecursionError):
            full_scan = True
        return table, Fragment(
            source=SOURCE,
            position=execution.key,
            table_uuid=table.uuid,
            predicate=predicate,
            literals=literals,
            moving=(None,) * len(literals),
            projection=tuple(sorted({*projection, *fields_of(predicate)})),
            weight=1.0,
            event_ms=execution.start_ms,
            engine="spark",
            recorded_bytes=_bytes_read(scan, execution),
            duration_ms=max(0, end_ms - execution.start_ms),
            full_scan=full_scan,
            grouped=parsed.grouped,
            merged=scan.merged,
        )

    def _skip(self, reason: str, line: int | None = None) -> None:
        self.tally.skip(reason, line)
        self.skips[reason] += 1

    def _store(self) -> None:
        sink = self.importer.sink
        new = self._new()
        if new:
            sink.append_fragments(new)
        if self.skips:
            sink.record_skips(None, dict(self.skips))
        for uuid, counts in self.full_scans.items():
            sink.record_skips(uuid, dict(counts))
        self.ended, self.skips, self.full_scans = [], Counter(), {}
        if self.source:
            body = {"done": _ranges(sorted(self.done))}
            sink.set_cursor(self.source, json.dumps(body, separators=(",", ":")))

    def _new(self) -> list[Fragment]:
        """Return the fragments that are new, and count each execution as what it is."""
        if self.recorded is None and self.ended:
            self.recorded = self.importer.sink.recorded_positions()
        new: list[Fragment] = []
        for scans in self.ended:
            positions = [fragment.position for _, fragment in scans]
            known = contained(self.recorded, positions) if self.recorded is not None else []
            missing = [scan for scan, old in zip(scans, known, strict=True) if not old]
            if not missing:
                self.tally.earlier += 1
                continue
            self.tally.keep([table.name for table, _ in scans], len(missing), scans[0][1].event_ms)
            for table, fragment in missing:
                new.append(fragment)
                if fragment.full_scan:
                    reason = skip_reasons.UNREADABLE_FILTERS
                    self.tally.full_scans[reason] += 1
                    self.full_scans.setdefault(table.uuid, Counter())[reason] += 1
        return new


def _placed(
    key: int, scans: Sequence[tuple[KnownTable, Fragment]]
) -> list[tuple[KnownTable, Fragment]]:
    """Return the scans of one execution at the positions of its identity."""
    counts: Counter[str] = Counter()
    found = []
    for table, fragment in scans:
        place = position(key, 0, table.uuid, counts[table.uuid])
        counts[table.uuid] += 1
        found.append((table, replace(fragment, position=place)))
    return found


def _marked(
    found: Sequence[tuple[KnownTable, Fragment]],
) -> list[tuple[KnownTable, Fragment]]:
    """Mark the scans without a condition of their own in a query that has some on other tables."""
    narrow = [
        fragment.predicate != TRUE and not only_null_tests(fragment.predicate)
        for _, fragment in found
    ]
    return [
        (table, replace(fragment, elsewhere=any(narrow) and not own and not fragment.full_scan))
        for (table, fragment), own in zip(found, narrow, strict=True)
    ]


def _bytes_read(scan: _Scan, execution: _Execution) -> int | None:
    """Return the bytes that the scan's tasks read; a scan without planned files had no tasks."""
    if scan.measured:
        return int(scan.bytes)
    planned = execution.file_bytes.get(scan.file_bytes_id) if scan.file_bytes_id else None
    return 0 if planned == 0 else None


def _checked(value: Any, most: int) -> int:
    """A count that a store can hold. Raises ValueError."""
    number = int(value)
    if not 0 <= number <= most:
        raise ValueError("out of range")
    return number


def _at(value: Any) -> int:
    return _checked(value, LATEST_MS)


def _ranges(numbers: list[int]) -> list[list[int]]:
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return found


def _projection(schema: Schema, columns: Iterable[str] | None) -> tuple[int, ...]:
    if columns is None:
        return tuple(sorted(f.field_id for f in schema.fields))
    wanted = {name.lower() for name in columns}
    return tuple(sorted(f.field_id for f in schema.fields if f.path[0].lower() in wanted))
