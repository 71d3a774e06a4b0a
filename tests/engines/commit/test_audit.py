"""What is dropped of an audit is nothing that main needs; without a JVM."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.catalog.observe import observe_table
from reconciler.commit import updates
from reconciler.commit.local_table import LocalTable
from reconciler.commit.metadata import Update
from reconciler.commit.request import Request, requirements, send
from reconciler.commit.snapshot import CommitNames
from reconciler.engines.answers import Kind
from reconciler.engines.commit import audit
from reconciler.table.audits import (
    AUDIT,
    AUDIT_BASE,
    AUDIT_BRANCH,
    AUDIT_PLAN,
    AUDIT_WAITS,
    waiting_batches,
)
from tests.commit.committing import commit
from tests.commit.test_requests import Table, merged

BRANCH = "candidate"


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "own")


def engine_of(table: Table) -> LocalTable:
    return LocalTable(table.live(), table.directory / "cache")


def change(engine: LocalTable, made: list[Update]) -> None:
    state = engine.state
    answer = send(engine.table, Request(state, made, requirements(state), CommitNames().uuid))
    assert answer.kind is Kind.ACCEPTED
    engine.refresh()


def waiting(engine: LocalTable, attempt: str = "p-1-a", branch: str = BRANCH) -> int:
    """Commit a batch that waits on the branch; return its snapshot."""
    base = engine.head()
    summary = {
        AUDIT: f"{attempt}/1", AUDIT_BRANCH: branch, AUDIT_PLAN: "p-1", AUDIT_BASE: str(base),
        AUDIT_WAITS: "policy",
    }  # fmt: skip
    wanted = replace(merged(engine.table), branch=branch, summary=summary)
    assert commit(engine.table, wanted) is Kind.ACCEPTED
    engine.refresh()
    return engine.refs()[branch].snapshot_id


def published_and_cut(table: Table, engine: LocalTable) -> int:
    """Main is moved to the batch and goes on; then another engine expires what came right after."""
    batch = waiting(engine)
    change(engine, updates.set_branch(engine.state, "main", batch))
    table.append(100)
    engine.refresh()
    second = engine.head()
    assert second is not None
    table.append(200)
    engine.refresh()
    change(engine, updates.expire([second], {}))
    return batch


def test_what_main_took_over_stays_when_the_batch_is_dropped(table: Table) -> None:
    engine = engine_of(table)
    batch = published_and_cut(table, engine)
    snapshot = engine.snapshot(batch)
    assert snapshot is not None
    assert any(added == batch for added in engine.manifests(engine.head() or 0).values())
    audit.drop(engine, snapshots=[batch])
    assert list(engine.refs()) == ["main"] and engine.snapshot(batch) is None
    assert not engine.has_file(snapshot.manifest_list)
    assert table.rows() == [0, 1, 2, 100, 200]


def test_nothing_is_deleted_where_what_is_needed_cannot_be_read(table: Table) -> None:
    engine = engine_of(table)
    batch = published_and_cut(table, engine)
    snapshot, head = engine.snapshot(batch), engine.snapshot(engine.head() or 0)
    assert snapshot is not None and head is not None
    hidden = Path(head.manifest_list.removeprefix("file://"))
    data = hidden.read_bytes()
    hidden.unlink()
    audit.drop(engine, snapshots=[batch])
    hidden.write_bytes(data)
    assert engine.has_file(snapshot.manifest_list)
    assert table.rows() == [0, 1, 2, 100, 200]


def test_a_batch_that_nobody_published_goes_with_its_manifests(table: Table) -> None:
    engine = engine_of(table)
    before = table.written()
    batch = waiting(engine)
    table.append(100)
    audit.drop(engine, snapshots=[batch])
    left = {name for name in table.written() - before if name.endswith(".avro")}
    engine.refresh()
    head = engine.head()
    assert head is not None
    assert (
        left
        == {
            path.rpartition("/")[2]
            for path in (*engine.manifests(head), engine.state.snapshots[head]["manifest-list"])
        }
        - before
    )
    assert table.rows() == [0, 1, 2, 100]


def test_a_published_batch_does_not_wait_again_once_main_is_cut(table: Table) -> None:
    engine = engine_of(table)
    published_and_cut(table, engine)
    assert waiting_batches(engine.log())
    assert not waiting_batches(audit.log_of(engine))
    seen = observe_table(table.config, ("jobs", "t"), table.directory / "seen")
    assert seen.waiting == () and not waiting_batches(seen.metadata.log)
    audit.drop_published(engine)
    assert list(engine.refs()) == ["main"]
    assert table.rows() == [0, 1, 2, 100, 200]
