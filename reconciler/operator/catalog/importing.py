"""Imports query logs in the cluster: one bounded task per catalog, after its reconcile.

Each run reads what is new in a bounded number of files, with the readers and cursors of `layoutctl
workload import`, so that a run that dies can be repeated safely. Its result is WorkloadFresh; while
that is False, nothing is done because of queries.
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

from reconciler.api.choices import SourceType
from reconciler.api.conditions import Reason
from reconciler.api.conditions import Status as Truth
from reconciler.api.documents import WorkloadSource
from reconciler.catalog.calls import in_lane
from reconciler.errors import ReconcilerError, UnusableLogError
from reconciler.operator.catalog.handles import LiveHandle
from reconciler.operator.catalog.turns import Turns
from reconciler.operator.index import ObjectName
from reconciler.operator.ports import CatalogHandle, Problem
from reconciler.queries.shape import STALE_MS, workload_of
from reconciler.workload_log.catalog_tables import ExcludingSink, tables_by_name
from reconciler.workload_log.stores import OutOfTime, StoredLog, remote_log, stored_logs
from reconciler.workload_log.tables import CatalogTables

log = logging.getLogger(__name__)

MOST_FILES = 64
"""Maximum files of one run; the next run continues."""
MOST_BYTES = 4 << 30
"""Bytes of the files of one run. A larger file is read alone."""
READ_SECONDS = 1800.0
"""Time after which a run reads no further. What was read of a SQL log is kept, and the next run
goes on after it."""
IMPORT_SECONDS = 3600.0
"""Maximum time of one run, its bytes and its queries together."""
MOST_ERRORS = 3
"""Files of a source that its error names."""
PATIENCE_SECONDS = 30.0
"""After this a run no longer keeps another catalog's from starting."""
SOON = dt.timedelta(seconds=20)
NOTE = "workload-import"

Origin = tuple[str, Sequence[str], Mapping[str, str], Sequence[WorkloadSource]]
"""The object, the place of its state, and what is read."""


@dataclass(frozen=True, slots=True)
class ImportState:
    """The content of the condition WorkloadFresh."""

    status: Truth
    """Whether the recorded queries are recent."""
    reason: str
    """The condition's reason."""
    message: str
    """The condition's message."""
    version: int = 0
    """Version of the recorded queries; a new one makes tables be planned again."""
    due: dt.datetime | None = None
    """When the catalog's reconcile should check again; None for its regular interval."""
    new_mix: frozenset[tuple[str, ...]] = frozenset()
    """Namespace and name of the tables whose queries have another mix, or are more than
    on any day before, since the last call."""


@dataclass(frozen=True, slots=True)
class ImportRun:
    """The result of one run."""

    until_ms: int = 0
    """Time of the last known query, in epoch milliseconds."""
    version: int = 0
    """Version of the recorded queries after the run."""
    error: str = ""
    """What went wrong, "" if nothing did."""
    more: bool = False
    """Whether files are left for the next run."""
    done: dict[str, str] = field(default_factory=dict)
    """Mark of each file that was read, by path. A file is not read again while its mark stays."""
    refused: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Mark of each file that is no log, and why, by path. It is not read again while its mark
    stays."""
    new_mix: frozenset[tuple[str, ...]] = frozenset()
    """Namespace and name of the tables whose queries have another mix, or are more than
    on any day before, since this run."""


@dataclass
class Imports:
    """The runs of all catalogs: one at a time per catalog, two at once in total."""

    clock: Callable[[], dt.datetime]
    """Returns the time."""
    held: Callable[[], bool]
    """Returns whether this process leads."""
    _of: dict[ObjectName, Origin] = field(default_factory=dict)
    """What each catalog's runs read, and where their state is."""
    _runs: dict[ObjectName, ImportRun] = field(default_factory=dict)
    """The last result of each catalog."""
    _next: dict[ObjectName, dt.datetime] = field(default_factory=dict)
    """When each catalog's next run is due."""
    _tasks: dict[ObjectName, Future[ImportRun]] = field(default_factory=dict)
    """The run of each catalog that is going on."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    """Guards the dictionaries."""
    _turns: Turns = field(default_factory=lambda: Turns(2, PATIENCE_SECONDS))
    """Lets two runs go on at once."""

    def state(
        self, where: ObjectName, handle: CatalogHandle | Problem, now: dt.datetime
    ) -> ImportState:
        """Return what is known; start the next run if it is due."""
        if not isinstance(handle, LiveHandle):
            return ImportState(Truth.UNKNOWN, Reason.CATALOG_UNAVAILABLE.value, "not known")
        workload = handle.document.spec.workload
        if not workload.sources:
            text = "spec.workload.sources is empty"
            return ImportState(Truth.UNKNOWN, Reason.NO_SOURCES.value, text)
        with self._lock:
            self._keep_to(where, handle)
            running, new_mix = self._collect(where)
            interval = dt.timedelta(seconds=workload.interval_seconds)
            moment = self._next.get(where, now)
            come = now >= moment or moment - now > interval  # a clock may be set back
            if not running and come and self.held():
                self._next[where] = now + interval
                known = self._runs.get(where)
                self._tasks[where] = self._started(handle, known)
                running = True
            return replace(
                state_of(self._runs.get(where), now),
                due=now + SOON if running else self._next.get(where),
                new_mix=new_mix,
            )

    def _started(self, handle: LiveHandle, known: ImportRun | None) -> Future[ImportRun]:
        """In a thread of its own, which waits for its turn and then for its own catalog only."""
        future: Future[ImportRun] = Future()

        def work() -> None:
            with self._turns.taken():
                future.set_result(run(handle, known, self.held))

        threading.Thread(target=work, name="import", daemon=True).start()
        return future

    def _keep_to(self, where: ObjectName, handle: LiveHandle) -> None:
        """Forget results of another state or of other sources: a catalog may be created again, or
        changed, under its old name."""
        spec = handle.document.spec
        origin = (handle.uid, spec.system.namespace, spec.properties, spec.workload.sources)
        if self._of.get(where) != origin:
            self._of[where] = origin
            self._runs.pop(where, None)
            self._next.pop(where, None)
            self._tasks.pop(where, None)

    def _collect(self, where: ObjectName) -> tuple[bool, frozenset[tuple[str, ...]]]:
        """Collect a run that ended; return whether one is still running, and the tables of which
        the one that ended found another mix of queries."""
        none = frozenset[tuple[str, ...]]()
        task = self._tasks.get(where)
        if task is None:
            return False, none
        if not task.done():
            return True, none
        del self._tasks[where]
        result = task.result()
        self._runs[where] = result
        if result.more:
            self._next[where] = self.clock()
        return False, result.new_mix


def state_of(known: ImportRun | None, now: dt.datetime) -> ImportState:
    """Return WorkloadFresh from the last run."""
    if known is None:
        return ImportState(Truth.UNKNOWN, Reason.NO_QUERIES.value, "the first import is running")
    if known.error:
        reason = Reason.IMPORT_FAILED.value
        return ImportState(Truth.FALSE, reason, known.error, known.version)
    if not known.until_ms:
        text = "no query of a table of this catalog was found"
        return ImportState(Truth.FALSE, Reason.NO_QUERIES.value, text, known.version)
    last = dt.datetime.fromtimestamp(known.until_ms / 1000, dt.UTC)
    day = last.strftime("%Y-%m-%d")
    if now - last > dt.timedelta(milliseconds=STALE_MS):
        text = f"the last recorded query is of {day}"
        return ImportState(Truth.FALSE, Reason.STALE.value, text, known.version)
    text = f"queries are recorded up to {day}"
    return ImportState(Truth.TRUE, Reason.FRESH.value, text, known.version)


def run(handle: LiveHandle, known: ImportRun | None, held: Callable[[], bool]) -> ImportRun:
    """Read what is new in every source. Never raises: the error is in the result."""
    try:
        reach = handle.config.reach
        return in_lane(handle.lane, reach, IMPORT_SECONDS, lambda: _noted(handle, known, held))
    except ReconcilerError as error:
        return replace(known or ImportRun(), error=error.what, more=False, new_mix=frozenset())
    except BaseException as error:  # no bug of a reader may end imports or the process
        log.exception("the import of %s failed", handle.owner())
        text = f"the import failed ({type(error).__name__})"
        return replace(known or ImportRun(), error=text, more=False, new_mix=frozenset())


def _progress(note: Any) -> tuple[int, int]:
    """Return (untilMs, version) of a note. Raises if it holds none."""
    return int(note.get("untilMs", 0)), int(note.get("version", 0))


def _noted(handle: LiveHandle, known: ImportRun | None, held: Callable[[], bool]) -> ImportRun:
    """Goes on from what this operator knows, or an earlier one has noted."""
    noted = handle.store.note_as(NOTE, _progress) or (0, 0)
    before = known or ImportRun()  # a first run that failed knows less than the note
    until, version = max(before.until_ms, noted[0]), max(before.version, noted[1])
    return _run(handle, replace(before, until_ms=until, version=version), held)


def _run(handle: LiveHandle, state: ImportRun, held: Callable[[], bool]) -> ImportRun:
    reading = _Reading(handle, held, state)
    errors: list[str] = []
    for source in handle.document.spec.workload.sources:
        try:
            reading.source(source)
        except ReconcilerError as error:
            errors.append(f"source {source.name}: {error.what}")
    errors += reading.errors
    try:
        reading.record_workloads()
        handle.store.remove_expired()
    except ReconcilerError as error:  # what was read is kept, and the next run tries again
        errors.append(f"the recorded queries could not be tidied: {error.what}")
    version = state.version + (1 if reading.added else 0)
    if (reading.until_ms, version) != (state.until_ms, state.version):
        handle.store.set_note(NOTE, {"untilMs": reading.until_ms, "version": version})
    more = reading.more and (not errors or reading.added)
    text = "; ".join(errors)[:500]
    return ImportRun(
        reading.until_ms, version, text, more, reading.done, reading.refused,
        reading.new_mix,
    )  # fmt: skip


def _tables_of(handle: LiveHandle) -> CatalogTables:
    from reconciler.catalog.load import connect

    config, timeout = handle.config, handle.timeout
    names = {(config.name, *table): table for table in handle.listing()}

    def left_out(name: str, why: str) -> None:
        log.warning("%s is left out of the import: %s", name, why)

    return tables_by_name(lambda: connect(config, timeout), config, names, timeout, left_out)


class _Reading:
    """One run over the sources of a catalog."""

    def __init__(self, handle: LiveHandle, held: Callable[[], bool], state: ImportRun):
        self.handle, self.held, self.until_ms = handle, held, state.until_ms
        self.done, self.refused = dict(state.done), dict(state.refused)
        self.errors: list[str] = []
        self.added = self.more = False
        self.new_mix: frozenset[tuple[str, ...]] = frozenset()
        self._tables = _tables_of(handle)
        self._sink = ExcludingSink(
            handle.store, self._tables, handle.document.spec.workload.exclude_columns
        )
        self._files = self._bytes = 0
        self._end = time.monotonic() + READ_SECONDS

    def source(self, source: WorkloadSource) -> None:
        """Read what is new in the files of one source. A file that is no log is named, and the
        others are read."""
        bad: list[str] = []
        for stored in stored_logs(self.handle.config, source.uri):
            uri, mark, length = stored.path, stored.mark, stored.size
            if self.done.get(uri) == mark:
                continue
            if self.refused.get(uri, ("", ""))[0] != mark:
                full = self._files >= MOST_FILES or self._bytes + length > MOST_BYTES
                if (full and self._files) or not self.held():
                    self.more = self.held()
                    break
                self._files, self._bytes = self._files + 1, self._bytes + length
                if not self._read(source, stored):
                    break
            if uri in self.refused:
                bad.append(self.refused[uri][1])
        if bad:
            more = f" and {len(bad) - MOST_ERRORS} more" if len(bad) > MOST_ERRORS else ""
            self.errors.append(f"source {source.name}: {'; '.join(bad[:MOST_ERRORS])}{more}")

    def _read(self, source: WorkloadSource, stored: StoredLog) -> bool:
        """Import one file, and note how it ended. Returns False if there is no time left."""
        uri, mark = stored.path, stored.mark
        self.refused.pop(uri, None)
        try:
            why = self._file(source, stored)
        except OutOfTime:
            self.more = self.added = True
            return False
        except UnusableLogError as error:
            why = error
        if why is None:
            self.done[uri] = mark
        else:
            self.refused[uri] = (mark, why.what)
        return True

    def _file(self, source: WorkloadSource, stored: StoredLog) -> UnusableLogError | None:
        """Import one file through its reader, which reads it as a stream; return why it is no log,
        if it is none."""
        from reconciler.workload_log.dialects import check_dialect
        from reconciler.workload_log.log_lines import kind_of
        from reconciler.workload_log.spark_events import SparkEventImport
        from reconciler.workload_log.sql import Session, SqlReader
        from reconciler.workload_log.sql_log import SqlLogImport
        from reconciler.workload_log.unusable import why_unusable

        sink = self._sink
        remote = remote_log(self.handle.config, source.uri, stored, self._end)
        if source.type is SourceType.SPARK_EVENT_LOG:
            tally = SparkEventImport(self._tables, sink, dt.UTC).run(remote)
            why = None
        else:
            kind = kind_of(remote, source.format, source.map)
            reader = SqlReader(check_dialect(source.dialect or kind.dialect), self._tables)
            tally = SqlLogImport(reader, sink, Session((), dt.UTC), kind).run(remote)
            why = why_unusable(remote, remote.name, tally, kind.name)
        self.until_ms = max(self.until_ms, tally.until_ms or 0)
        self.added = self.added or tally.fragments > 0
        return why

    def record_workloads(self) -> None:
        """Note how the literals of the tables with new queries move, and which of the tables are
        asked what decisions did not expect."""
        from reconciler.state.mixes import record_mix
        from reconciler.state.movements import record_movements

        store = self.handle.store
        for uuid in sorted(self._sink.touched):
            workload = workload_of(store.shapes(uuid))
            record_movements(store, uuid, self._tables.schema(uuid), workload)
            if record_mix(store, uuid, workload):
                store.workload_version(uuid, 0.0)  # so that no look takes a remembered version
                self.new_mix |= {
                    name for name, known in self._tables.loaded() if known.uuid == uuid
                }
