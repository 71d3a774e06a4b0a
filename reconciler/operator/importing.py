"""Imports query logs in the cluster: one bounded task per catalog, after its reconcile.

Each run reads what is new in a bounded number of files, with the readers and cursors of `layoutctl
workload import`, so that a run that dies can be repeated safely. Its result is WorkloadFresh; while
that is False, nothing is done because of queries.
"""

from __future__ import annotations

import datetime as dt
import logging
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from reconciler.api.conditions import Reason
from reconciler.api.conditions import Status as Truth
from reconciler.api.documents import SourceType, WorkloadSource
from reconciler.catalog.calls import in_lane
from reconciler.errors import ReconcilerError, UserError
from reconciler.operator.catalogs import LiveHandle
from reconciler.operator.ports import CatalogHandle, CatalogProblem
from reconciler.operator.turns import Turns
from reconciler.queries.excluded import excluded_fields, without_fields
from reconciler.queries.fragments import Fragment
from reconciler.table.schema import Schema
from reconciler.workload_log.identity import Keys
from reconciler.workload_log.importing import FragmentSink

log = logging.getLogger(__name__)

MOST_FILES = 64
"""Maximum files of one run; the next run continues."""
MOST_BYTES = 4 << 30
"""Maximum bytes of one run, and so of the temporary copy of one file."""
IMPORT_SECONDS = 3600.0
"""Maximum time of one run, its bytes and its queries together."""
PATIENCE_SECONDS = 30.0
"""After this a run no longer keeps another catalog's from starting."""
STALE = dt.timedelta(days=30)
SOON = dt.timedelta(seconds=20)
NOTE = "workload-import"

Where = tuple[str, str]
Origin = tuple[str, Sequence[str], Mapping[str, str]]
"""The object, and the place of its state."""


@dataclass(frozen=True, slots=True)
class ImportState:
    """The content of WorkloadFresh. due: when the catalog's reconcile should check again."""

    status: Truth
    reason: str
    message: str
    version: int = 0
    due: dt.datetime | None = None


@dataclass(frozen=True, slots=True)
class ImportRun:
    """The result of one run. until_ms: time of the last known query; files: seen and unchanged."""

    until_ms: int = 0
    version: int = 0
    error: str = ""
    more: bool = False
    done: dict[str, str] = field(default_factory=dict)


@dataclass
class Imports:
    """The runs of all catalogs: one at a time per catalog, two at once in total."""

    clock: Callable[[], dt.datetime]
    held: Callable[[], bool]
    cache: Path
    _of: dict[Where, Origin] = field(default_factory=dict)
    _runs: dict[Where, ImportRun] = field(default_factory=dict)
    _next: dict[Where, dt.datetime] = field(default_factory=dict)
    _tasks: dict[Where, Future[ImportRun]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _turns: Turns = field(default_factory=lambda: Turns(2, PATIENCE_SECONDS))

    def state(
        self, where: Where, handle: CatalogHandle | CatalogProblem, now: dt.datetime
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
            running = self._collect(where)
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
            )

    def _started(self, handle: LiveHandle, known: ImportRun | None) -> Future[ImportRun]:
        """In a thread of its own, which waits for its turn and then for its own catalog only."""
        future: Future[ImportRun] = Future()

        def work() -> None:
            with self._turns.taken():
                future.set_result(run(handle, known, self.cache, self.held))

        threading.Thread(target=work, name="import", daemon=True).start()
        return future

    def _keep_to(self, where: Where, handle: LiveHandle) -> None:
        """Forget results of another state: a catalog may be created again, or changed, under its
        old name."""
        spec = handle.document.spec
        origin = (handle.uid, spec.system.namespace, spec.properties)
        if self._of.get(where) != origin:
            self._of[where] = origin
            self._runs.pop(where, None)
            self._next.pop(where, None)
            self._tasks.pop(where, None)

    def _collect(self, where: Where) -> bool:
        """Collect a run that ended; return whether one is still running."""
        task = self._tasks.get(where)
        if task is None:
            return False
        if not task.done():
            return True
        del self._tasks[where]
        result = task.result()
        self._runs[where] = result
        if result.more:
            self._next[where] = self.clock()
        return False


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
    if now - last > STALE:
        text = f"the last recorded query is of {day}"
        return ImportState(Truth.FALSE, Reason.STALE.value, text, known.version)
    text = f"queries are recorded up to {day}"
    return ImportState(Truth.TRUE, Reason.FRESH.value, text, known.version)


def run(
    handle: LiveHandle, known: ImportRun | None, cache: Path, held: Callable[[], bool]
) -> ImportRun:
    """Read what is new in every source. Never raises: the error is in the result."""
    try:
        reach = handle.config.reach
        return in_lane(
            handle.lane, reach, IMPORT_SECONDS, lambda: _noted(handle, known, cache, held)
        )
    except ReconcilerError as error:
        return replace(known or ImportRun(), error=error.what, more=False)
    except BaseException as error:  # no bug of a reader may end imports or the process
        log.exception("the import of %s failed", handle.owner())
        text = f"the import failed ({type(error).__name__})"
        return replace(known or ImportRun(), error=text, more=False)


def _noted(
    handle: LiveHandle, known: ImportRun | None, cache: Path, held: Callable[[], bool]
) -> ImportRun:
    """Goes on from what this operator knows, or an earlier one has noted."""
    note = handle.store.note(NOTE) or {}
    before = known or ImportRun()  # a first run that failed knows less than the note
    until = max(before.until_ms, int(note.get("untilMs", 0)))
    version = max(before.version, int(note.get("version", 0)))
    return _run(handle, ImportRun(until, version, done=before.done), cache, held)


def _run(handle: LiveHandle, state: ImportRun, cache: Path, held: Callable[[], bool]) -> ImportRun:
    tables = CatalogTables(handle)
    files = size = 0
    errors: list[str] = []
    done = dict(state.done)
    until, added, more = state.until_ms, False, False
    for source in handle.document.spec.workload.sources:
        try:
            for uri, mark, length in _files(handle, source):
                if done.get(uri) == mark:
                    continue
                if files >= MOST_FILES or size + length > MOST_BYTES or not held():
                    more = held()
                    break
                tally = _import(handle, source, tables, uri, cache)
                files, size = files + 1, size + length
                until = max(until, tally.until_ms or 0)
                added = added or tally.fragments > 0
                done[uri] = mark
        except ReconcilerError as error:
            errors.append(f"source {source.name}: {error.what}")
    try:
        handle.store.remove_expired()
    except ReconcilerError as error:  # what was read is kept, and the next run tries again
        errors.append(f"expired queries could not be removed: {error.what}")
    version = state.version + (1 if added else 0)
    if (until, version) != (state.until_ms, state.version):
        handle.store.set_note(NOTE, {"untilMs": until, "version": version})
    return ImportRun(until, version, "; ".join(errors)[:500], more and not errors, done)


def _files(handle: LiveHandle, source: WorkloadSource) -> Iterator[tuple[str, str, int]]:
    """Yield (uri, mark of its content, bytes) of each log below the source's uri, oldest name
    first."""
    from pyarrow.fs import FileSelector, FileType

    system, path = _filesystem(handle, source)
    try:
        root = system.get_file_info(path)
        infos = (
            [root]
            if root.type == FileType.File
            else system.get_file_info(FileSelector(path, recursive=True))
        )
    except OSError as error:
        raise UserError(
            f"{source.uri} cannot be listed",
            details=(type(error).__name__,),
            do="check the source's uri, and that the catalog's secret may list it",
        ) from error
    for info in sorted(infos, key=lambda item: item.path):
        if info.type == FileType.File and not info.base_name.startswith((".", "_")):
            yield info.path, f"{info.size}:{info.mtime_ns}", int(info.size or 0)


def _filesystem(handle: LiveHandle, source: WorkloadSource) -> tuple[Any, str]:
    """Return the file system of a uri, with the catalog's own credentials."""
    from pyiceberg.io.pyarrow import PyArrowFileIO

    from reconciler.catalog.properties import pyiceberg_properties
    from reconciler.catalog.reached import reached

    io = reached(PyArrowFileIO(pyiceberg_properties(handle.config)))
    assert isinstance(io, PyArrowFileIO)
    scheme, netloc, path = PyArrowFileIO.parse_location(source.uri)
    return io.fs_by_scheme(scheme, netloc), path


def _import(
    handle: LiveHandle, source: WorkloadSource, tables: CatalogTables, path: str, cache: Path
) -> Any:
    """Import one file through its reader, which needs a local file and gets a temporary copy."""
    from reconciler.workload_log.spark_events import SparkEventImport
    from reconciler.workload_log.sql import Session, SqlReader, check_dialect
    from reconciler.workload_log.sql_log import SqlLogImport

    sink = ExcludingSink(handle.store, tables, handle.document.spec.workload.exclude_columns)
    system, _ = _filesystem(handle, source)
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as directory:
        copy = Path(directory) / Path(path).name
        with system.open_input_stream(path, compression=None) as remote, copy.open("wb") as local:
            shutil.copyfileobj(remote, local, 1 << 20)
        if source.type is SourceType.SPARK_EVENT_LOG:
            return SparkEventImport(tables, sink, dt.UTC).run(copy)
        reader = SqlReader(check_dialect(source.dialect or "spark"), tables)
        return SqlLogImport(reader, sink, Session((), dt.UTC)).run(copy)


@dataclass(frozen=True, slots=True)
class ExcludingSink:
    """The state, for a reader: conditions on the excluded columns do not arrive there."""

    store: FragmentSink
    tables: CatalogTables
    columns: tuple[str, ...]

    def append_fragments(self, fragments: Iterable[Fragment]) -> None:
        items = list(fragments)
        excluded = {
            uuid: excluded_fields(self.columns, self.tables.schema(uuid))
            for uuid in {item.table_uuid for item in items}
        }
        self.store.append_fragments(
            [without_fields(item, excluded[item.table_uuid]) for item in items]
        )

    def recorded(self) -> Keys:
        return self.store.recorded()

    def cursor(self, source: str) -> str | None:
        return self.store.cursor(source)

    def set_cursor(self, source: str, value: str) -> None:
        self.store.set_cursor(source, value)

    def record_skips(self, table_uuid: str | None, counts: Mapping[str, int]) -> None:
        self.store.record_skips(table_uuid, counts)


class CatalogTables:
    """Tables by the names in queries, loaded when a query first names them."""

    def __init__(self, handle: LiveHandle):
        from reconciler.workload_log.tables import NameIndex

        self._handle = handle
        name = handle.config.name
        self._identifiers = {(name, *table): table for table in handle.listing()}
        self._index = NameIndex(self._identifiers)
        self._loaded: dict[tuple[str, ...], Any] = {}

    def resolve(self, parts: tuple[str, ...]) -> Any:
        full = self._index.find(parts)
        if full is None:
            return None
        if full not in self._loaded:
            self._loaded[full] = self._load(self._identifiers[full])
        return self._loaded[full]

    def schema(self, table_uuid: str) -> Schema:
        """Return the schema of a table that was resolved, as it was then."""
        found = (table for table in self._loaded.values() if table is not None)
        schema: Schema = next(table.schema for table in found if table.uuid == table_uuid)
        return schema

    def _load(self, table: tuple[str, ...]) -> Any:
        from reconciler.catalog.load import connect, load_table
        from reconciler.catalog.metadata import schema_of
        from reconciler.table.observation import quoted_name
        from reconciler.workload_log.tables import KnownTable

        config, timeout = self._handle.config, self._handle.timeout
        try:
            loaded = load_table(connect(config, timeout), config, table, timeout)
        except UserError as error:
            log.warning("%s is left out of the import: %s", quoted_name(table), error.what)
            return None
        name = quoted_name((config.name, *table))
        return KnownTable(str(loaded.metadata.table_uuid), name, schema_of(loaded.metadata))
