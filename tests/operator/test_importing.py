"""Imports in the cluster: what is remembered of a catalog is of that one, and never less."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from reconciler.api.reach import Reach
from reconciler.errors import UnavailableError
from reconciler.kube.kinds import CATALOG
from reconciler.loop.ports import Target
from reconciler.operator.catalog import importing
from reconciler.operator.catalog.handles import LiveHandle
from reconciler.operator.catalog.importing import NOTE, ImportRun, Imports, run
from reconciler.queries import moving_windows
from reconciler.queries.predicate import TRUE, fields_of
from reconciler.state import store
from reconciler.workload_log import importing as reading
from reconciler.workload_log import stores
from tests.cluster.fixtures import eventually
from tests.operator.test_live import NAMESPACE, Cluster
from tests.queries.single import recorded

NOW = dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC)
WHERE = (NAMESPACE, "warehouse")


@pytest.fixture
def handle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LiveHandle:
    """Of a catalog with one table and one source of three queries."""
    from pyiceberg.catalog.sql import SqlCatalog

    monkeypatch.setenv("LAYOUTCTL_CACHE", str(tmp_path / "cache"))
    catalog = SqlCatalog(
        "lake", uri=f"sqlite:///{tmp_path}/lake.db?timeout=30", warehouse=f"file://{tmp_path}/wh"
    )
    catalog.create_namespace("sales")
    catalog.create_table("sales.orders", pa.schema([("id", pa.int64())]))
    logs = tmp_path / "logs"
    logs.mkdir()
    line = json.dumps({"sql": "SELECT id FROM sales.orders WHERE id = 7", "timestamp": str(NOW)})
    (logs / "a.json").write_text((line + "\n") * 3)
    cluster = Cluster(tmp_path)
    cluster.apply(log=f"file://{logs}")
    return opened(cluster)


def opened(cluster: Cluster) -> Any:
    from types import SimpleNamespace

    from reconciler.operator.catalog.handles import LiveCatalogs
    from reconciler.operator.stored import StoredDocuments

    body = cluster.server.all(CATALOG)[0]
    settings: Any = SimpleNamespace()
    return LiveCatalogs(
        cluster.api, cluster.index, settings, StoredDocuments(), Reach(local_files=True)
    ).open(NAMESPACE, "warehouse", body)


def test_a_first_run_that_fails_does_not_forget_what_was_imported_before(
    handle: LiveHandle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator that starts while the catalog is away: its next run finds no new query."""
    before = run(handle, None, lambda: True)
    assert before.until_ms and before.version == 1 and not before.error
    with monkeypatch.context() as patched:
        patched.setattr(handle.store, "note", _refuses)
        failed = run(handle, None, lambda: True)
    assert failed.error and not failed.until_ms
    after = run(handle, failed, lambda: True)
    assert (after.until_ms, after.version, after.error) == (before.until_ms, 1, "")
    assert handle.store.note(NOTE) == {"untilMs": before.until_ms, "version": 1}


def _refuses(key: str) -> Any:
    raise UnavailableError("the catalog does not answer")


@pytest.mark.parametrize("made_anew", [False, True])
def test_what_was_read_for_another_state_is_read_again(
    handle: LiveHandle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made_anew: bool
) -> None:
    asked: list[ImportRun | None] = []

    def runs(handle: LiveHandle, known: ImportRun | None, *rest: Any) -> ImportRun:
        asked.append(known)
        return ImportRun(1, 1, done={"a.json": "1"})

    monkeypatch.setattr(importing, "run", runs)
    imports = Imports(lambda: NOW, lambda: True)

    def settled(of: LiveHandle, now: dt.datetime) -> None:
        imports.state(WHERE, of, now)
        eventually(lambda: all(task.done() for task in imports._tasks.values()), 30)
        imports.state(WHERE, of, now)

    settled(handle, NOW)
    settled(handle, NOW + dt.timedelta(hours=2))
    assert asked[0] is None and asked[1] == ImportRun(1, 1, done={"a.json": "1"})
    spec = handle.document.spec
    system = replace(spec.system, namespace=("elsewhere",))
    document = replace(handle.document, spec=replace(spec, system=system))
    other = replace(handle, uid="new") if made_anew else replace(handle, document=document)
    settled(other, NOW + dt.timedelta(hours=2))
    assert asked[2] is None


def with_workload(tmp_path: Path, **changes: Any) -> LiveHandle:
    """The fixture's catalog, with another spec.workload."""
    cluster = Cluster(tmp_path)
    cluster.apply(log=f"file://{tmp_path}/logs")
    (body,) = cluster.server.all(CATALOG)
    spec = {**body["spec"], "workload": {**body["spec"]["workload"], **changes}}
    cluster.server.put(CATALOG, {"metadata": body["metadata"], "spec": spec})
    found = opened(cluster)
    assert isinstance(found, LiveHandle)
    return found


def _asked(logs: Path, name: str, day: int, condition: str, count: int = 20) -> None:
    """A log of one day: that many queries with the condition."""
    at = NOW + dt.timedelta(days=day)
    lines = [
        {
            "sql": f"SELECT id FROM sales.orders {condition.format(number)}",
            "timestamp": str(at + dt.timedelta(minutes=number)),
        }
        for number in range(count)
    ]
    (logs / name).write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_an_import_tells_which_tables_are_asked_another_mix_of_queries_or_more(
    handle: LiveHandle, tmp_path: Path
) -> None:
    logs, table = tmp_path / "logs", ("sales", "orders")
    first = run(handle, None, lambda: True)
    assert first.new_mix == {table}, "queries where there were none"
    known = first
    for day, count in enumerate((20, 20, 20, 20, 20, 60), start=1):
        _asked(logs, f"day-{day}.json", day, "WHERE id = {}", count)
        known = run(handle, known, lambda: True)
        more = count > 20 or day == 1
        assert known.new_mix == ({table} if more else set()), "more than on any day before"
    _asked(logs, "other.json", 7, "", count=59)
    other = run(handle, known, lambda: True)
    assert other.new_mix == {table} and not other.error
    assert not run(handle, other, lambda: True).new_mix, "told once"
    failed = run(replace(handle, lane=None), other, lambda: True)
    assert failed.error and not failed.new_mix, "told once, also if the next import fails"


def test_conditions_on_excluded_columns_are_neither_stored_nor_used(
    handle: LiveHandle, tmp_path: Path
) -> None:
    run(handle, None, lambda: True)
    seen = handle.actor.observe(Target(handle.config, ("sales", "orders")))
    assert {item.literals for item in recorded(handle.store, seen.uuid)} == {(7,)}
    assert [
        fields_of(it.predicate) for it in handle.actor.recorded_queries(seen).workload.shapes
    ] == [(1,)]
    excluding = with_workload(tmp_path, excludeColumns=["ID"])
    assert [it.predicate for it in excluding.actor.recorded_queries(seen).workload.shapes] == [TRUE]
    (tmp_path / "logs" / "a.json").rename(tmp_path / "logs" / "b.json")
    line = {"sql": "SELECT id FROM sales.orders WHERE id = 8", "timestamp": str(NOW)}
    (tmp_path / "logs" / "b.json").write_text(json.dumps(line) + "\n")
    assert not run(excluding, None, lambda: True).error
    assert sorted(item.literals for item in recorded(excluding.store, seen.uuid))[:2] == [(), (7,)]


def test_queries_are_kept_for_the_retention_of_the_catalog(
    handle: LiveHandle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(handle, None, lambda: True)
    uuid = handle.actor.observe(Target(handle.config, ("sales", "orders"))).uuid
    later = store._now_ms() + 3 * 3_600_000
    monkeypatch.setattr(store, "_now_ms", lambda: later)
    kept, brief = (with_workload(tmp_path, retention=text) for text in ("4h", "2h"))
    known = ImportRun(1, 1)
    run(kept, known, lambda: True)
    assert len(recorded(handle.store, uuid)) == len(recorded(kept.store, uuid)) == 3
    run(brief, known, lambda: True)
    assert not recorded(handle.store, uuid)


def test_a_plan_takes_the_movement_that_the_import_found(
    handle: LiveHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not run(handle, None, lambda: True).error
    seen = handle.actor.observe(Target(handle.config, ("sales", "orders")))

    def looked_at(*_: Any) -> None:
        raise AssertionError("a plan looks at the whole log again")

    monkeypatch.setattr(moving_windows, "_detected", looked_at)
    assert handle.actor.recorded_queries(seen).workload.shapes


def log_of(directory: Path, name: str, *lines: dict[str, Any]) -> Path:
    path = directory / "logs" / name
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def asked(number: int, **extra: Any) -> dict[str, Any]:
    sql = f"SELECT id FROM sales.orders WHERE id = {number}"
    return {"sql": sql, "timestamp": str(NOW), **extra}


def literals(handle: LiveHandle) -> list[Any]:
    seen = handle.actor.observe(Target(handle.config, ("sales", "orders")))
    return sorted(item.literals for item in recorded(handle.store, seen.uuid))


def test_a_file_that_is_no_log_is_named_at_each_run_and_read_once(
    handle: LiveHandle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_of(tmp_path, "0.json", *[{"query": "SELECT 1", "at": 1}] * 3)
    (tmp_path / "logs" / "1.csv").write_text("sql,timestamp\n")
    wrong = "SELECT [id] FROM sales.orders WHERE [id] = 1 OPTION (RECOMPILE)"
    log_of(tmp_path, "2.json", *[asked(1, sql=wrong)] * 5)
    first = run(handle, None, lambda: True)
    assert literals(handle) == [(7,)] * 3 and first.until_ms
    assert [name.rpartition("/")[2] for name in first.refused] == ["0.json", "1.csv", "2.json"]
    assert all(name in first.error for name in ("0.json", "1.csv", "2.json"))
    read: list[str] = []
    remote = importing.remote_log

    def noting(config: Any, uri: str, stored: stores.StoredLog, end: float) -> Any:
        read.append(stored.path)
        return remote(config, uri, stored, end)

    monkeypatch.setattr(importing, "remote_log", noting)
    again = run(handle, first, lambda: True)
    assert (again.error, again.refused, read) == (first.error, first.refused, [])
    log_of(tmp_path, "2.json", *[asked(8)] * 5)
    mended = run(handle, again, lambda: True)
    assert len(read) == 1 and "2.json" not in mended.error
    assert literals(handle) == [(7,)] * 3 + [(8,)] * 5


def test_another_dialect_of_a_source_reads_its_refused_files_again(
    handle: LiveHandle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: list[ImportRun | None] = []

    def runs(handle: LiveHandle, state: ImportRun | None, *rest: Any) -> ImportRun:
        known.append(state)
        return ImportRun(1, 1, "2.json", refused={"2.json": ("1", "2.json")})

    monkeypatch.setattr(importing, "run", runs)
    imports = Imports(lambda: NOW, lambda: True)
    source = handle.document.spec.workload.sources[0]
    workload = replace(handle.document.spec.workload, sources=(replace(source, dialect="tsql"),))
    spec = replace(handle.document.spec, workload=workload)
    other = replace(handle, document=replace(handle.document, spec=spec))
    for of in (handle, other):
        imports.state(WHERE, of, NOW)
        eventually(lambda: all(task.done() for task in imports._tasks.values()), 30)
    assert known == [None, None]


@pytest.mark.parametrize(
    "fields",
    [
        {"map": {"sql": "q.text", "timestamp": "began"}},
        {"format": "sql", "map": {"sql": "q.text", "timestamp": "began"}},
    ],
)
def test_a_source_names_the_fields_of_its_records_and_is_read_on_when_it_has_grown(
    handle: LiveHandle, tmp_path: Path, fields: dict[str, Any]
) -> None:
    def other(number: int) -> dict[str, Any]:
        query = asked(number)
        return {"q": {"text": query["sql"]}, "began": query["timestamp"]}

    (tmp_path / "logs" / "a.json").unlink()
    log_of(tmp_path, "0.json", other(1), other(2))
    assert "0.json" in run(handle, None, lambda: True).error and literals(handle) == []
    (source,) = handle.document.spec.workload.sources
    whole = {"name": source.name, "type": source.type.value, "uri": source.uri, **fields}
    of = with_workload(tmp_path, sources=[whole])
    first = run(of, None, lambda: True)
    assert first.error == "" and literals(of) == [(1,), (2,)]
    log_of(tmp_path, "0.json", other(1), other(2), other(3))
    assert run(of, first, lambda: True).version == 2
    assert literals(of) == [(1,), (2,), (3,)]


def test_a_source_of_a_named_format_is_not_read_as_another(
    handle: LiveHandle, tmp_path: Path
) -> None:
    """The records are the project's own; the source says that they are Trino's."""
    (source,) = handle.document.spec.workload.sources
    whole = {"name": source.name, "type": source.type.value, "uri": source.uri, "format": "trino"}
    of = with_workload(tmp_path, sources=[whole])
    found = run(of, None, lambda: True)
    assert len(found.refused) == 1 and "trino" in found.error
    assert literals(of) == []


def test_a_log_is_read_as_a_stream_and_a_run_without_time_goes_on(
    handle: LiveHandle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Larger than the bytes of a run: it is read alone, in as many runs as it takes."""
    from reconciler.workload_log import sql_log

    (tmp_path / "logs" / "a.json").unlink()
    log_of(tmp_path, "a.json", asked(0))
    log_of(tmp_path, "b.json", *(asked(n, timestamp=str(NOW + dt.timedelta(0, n)))
                                 for n in range(1, 60)))  # fmt: skip
    monkeypatch.setattr(sql_log, "BATCH", 10)
    monkeypatch.setattr(importing, "MOST_BYTES", 200)
    monkeypatch.setattr(reading, "READ_AT_ONCE", 256)
    monkeypatch.setattr(stores, "STREAM_BYTES", 256)
    clock = [0.0]

    def tick() -> float:
        clock[0] += 1.0
        return clock[0]

    monkeypatch.setattr("reconciler.operator.catalog.importing.time.monotonic", tick)
    monkeypatch.setattr(importing, "READ_SECONDS", 60.0)
    before = set(tmp_path.rglob("*"))
    found, runs = None, 0
    while found is None or found.more:
        found = run(handle, found, lambda: True)
        assert not found.error
        runs += 1
        assert runs < 20
    assert runs > 2
    assert literals(handle) == [(n,) for n in range(60)]
    assert not [path for path in set(tmp_path.rglob("*")) - before if path.name == "b.json"]


def test_a_store_that_fails_is_no_damaged_log(
    handle: LiveHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream ends with an error after some bytes; the next run reads the whole log."""

    class Cut:
        def __init__(self, stream: Any):
            self._stream, self._left = stream, 2

        def read(self, size: int) -> bytes:
            self._left -= 1
            if self._left < 0:
                raise OSError("connection reset")
            data: bytes = self._stream.read(size)
            return data

        def close(self) -> None:
            self._stream.close()

    monkeypatch.setattr(reading, "READ_AT_ONCE", 64)
    monkeypatch.setattr(stores, "STREAM_BYTES", 64)
    with monkeypatch.context() as patched:
        made = stores._Remote.__init__

        def cut(self: Any, stream: Any, name: str, end: float) -> None:
            made(self, Cut(stream), name, end)

        patched.setattr(stores._Remote, "__init__", cut)
        failed = run(handle, None, lambda: True)
    assert "a.json" in failed.error and not failed.done and not failed.refused
    after = run(handle, failed, lambda: True)
    assert not after.error and literals(handle) == [(7,)] * 3
