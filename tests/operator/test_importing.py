"""Imports in the cluster: what is remembered of a catalog is of that one, and never less."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from reconciler.api.reach import Reach
from reconciler.errors import UnavailableError
from reconciler.kube.kinds import CATALOG
from reconciler.loop.ports import Target
from reconciler.operator import importing
from reconciler.operator.catalogs import LiveHandle
from reconciler.operator.importing import NOTE, ImportRun, Imports, run
from reconciler.queries.predicate import TRUE, fields_of
from reconciler.state import state
from tests.cluster.fixtures import eventually
from tests.operator.test_live import NAMESPACE, Cluster

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

    from reconciler.operator.catalogs import LiveCatalogs
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
    before = run(handle, None, tmp_path / "imports", lambda: True)
    assert before.until_ms and before.version == 1 and not before.error
    with monkeypatch.context() as patched:
        patched.setattr(handle.store, "note", _refuses)
        failed = run(handle, None, tmp_path / "imports", lambda: True)
    assert failed.error and not failed.until_ms
    after = run(handle, failed, tmp_path / "imports", lambda: True)
    assert (after.until_ms, after.version, after.error) == (before.until_ms, 1, "")
    assert handle.store.note(NOTE) == {"untilMs": before.until_ms, "version": 1}


def _refuses(key: str) -> Any:
    raise UnavailableError("the catalog does not answer")


@pytest.mark.parametrize("made_anew", [False, True])
def test_what_was_read_for_another_state_is_read_again(
    handle: LiveHandle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made_anew: bool
) -> None:
    from dataclasses import replace

    asked: list[ImportRun | None] = []

    def runs(handle: LiveHandle, known: ImportRun | None, *rest: Any) -> ImportRun:
        asked.append(known)
        return ImportRun(1, 1, done={"a.json": "1"})

    monkeypatch.setattr(importing, "run", runs)
    imports = Imports(lambda: NOW, lambda: True, tmp_path)

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


def test_conditions_on_excluded_columns_are_neither_stored_nor_used(
    handle: LiveHandle, tmp_path: Path
) -> None:
    run(handle, None, tmp_path / "imports", lambda: True)
    seen = handle.actor.observe(Target(handle.config, ("sales", "orders")))
    assert {item.literals for item in handle.store.fragments(seen.uuid)} == {(7,)}
    assert [fields_of(it.predicate) for it in handle.actor.evidence(seen).workload.shapes] == [(1,)]
    excluding = with_workload(tmp_path, excludeColumns=["ID"])
    assert [it.predicate for it in excluding.actor.evidence(seen).workload.shapes] == [TRUE]
    (tmp_path / "logs" / "a.json").rename(tmp_path / "logs" / "b.json")
    line = {"sql": "SELECT id FROM sales.orders WHERE id = 8", "timestamp": str(NOW)}
    (tmp_path / "logs" / "b.json").write_text(json.dumps(line) + "\n")
    assert not run(excluding, None, tmp_path / "imports", lambda: True).error
    assert sorted(item.literals for item in excluding.store.fragments(seen.uuid))[:2] == [(), (7,)]


def test_queries_are_kept_for_the_retention_of_the_catalog(
    handle: LiveHandle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(handle, None, tmp_path / "imports", lambda: True)
    uuid = handle.actor.observe(Target(handle.config, ("sales", "orders"))).uuid
    later = state._now_ms() + 3 * 3_600_000
    monkeypatch.setattr(state, "_now_ms", lambda: later)
    kept, brief = (with_workload(tmp_path, retention=text) for text in ("4h", "2h"))
    known = ImportRun(1, 1)
    run(kept, known, tmp_path / "imports", lambda: True)
    assert len(handle.store.fragments(uuid)) == len(kept.store.fragments(uuid)) == 3
    run(brief, known, tmp_path / "imports", lambda: True)
    assert not handle.store.fragments(uuid)
