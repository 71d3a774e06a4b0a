"""Batches are checked on a branch before they are committed to main (spec.safety.branch)."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.errors import AuditFailedError, BlockedError
from reconciler.plan.actions.bin_pack import BinPack
from reconciler.plan.execution import Audit, ExecutionRequest
from reconciler.spark import audit, iceberg
from reconciler.spark.iceberg import LiveTable
from reconciler.table.audits import AUDIT
from tests.spark.disturbed import killed_at
from tests.spark.tables import Bench, intact

SAME_ROWS = (
    "SELECT 1 FROM (SELECT count(*) AS n FROM {table}) a "
    "JOIN (SELECT count(*) AS n FROM {main}) m ON a.n <> m.n"
)


def _table(bench: Bench) -> str:
    name = bench.create("id BIGINT, v STRING")
    bench.fill(name, 4, 10, "file * 10 + n, 'v'")
    return name


def _request(bench: Bench, name: str, check: str, **more: Any) -> ExecutionRequest:
    action = bench.action(name, BinPack, target_bytes=1 << 20)
    return bench.request(name, action, audit=Audit("audit", check), **more)


def _refs(bench: Bench, name: str) -> set[str]:
    return {str(key) for key in bench.table(name).refs()}


def _audits(bench: Bench, name: str) -> int:
    snapshots = iceberg.each(bench.table(name).snapshots())
    return sum(AUDIT in snapshot.summary() for snapshot in snapshots)


def test_a_batch_is_committed_after_its_check_passed_on_the_branch(bench: Bench) -> None:
    name = _table(bench)
    rows = bench.rows(name)
    assert bench.run(_request(bench, name, SAME_ROWS)).done
    phases = [event.phase for event in bench.events]
    assert phases.index("audit") < phases.index("commit") < phases.index("committed")
    assert len(bench.files(name)) == 1
    assert (_refs(bench, name), _audits(bench, name)) == ({"main"}, 0)
    intact(bench, name, rows)


@pytest.mark.parametrize(
    "check",
    [
        "SELECT 1 FROM {table} WHERE id = 7",
        "SELECT no_such_column FROM {table}",
        "DROP TABLE {table}",
        "SELECT TRANSFORM (id) USING 'touch started' AS (x) FROM {table}",
        "SELECT 1 FROM {table} WHERE id IN (SELECT TRANSFORM (id) USING 'touch started' AS (x) "
        "FROM {main})",
        "SELECT 1 WHERE EXISTS (SELECT 1 FROM {table}) -- a comment",
        "SELECT reflect('java.lang.System', 'getProperty', 'user.home') FROM {table}",
        "SELECT 1 FROM text.`/etc/hostname`, {table}",
    ],
)
def test_a_check_that_returns_rows_or_cannot_be_run_leaves_main_alone(
    bench: Bench, check: str
) -> None:
    name = _table(bench)
    rows, head = bench.rows(name), int(bench.table(name).currentSnapshot().snapshotId())
    with pytest.raises(AuditFailedError):
        bench.run(_request(bench, name, check))
    assert int(bench.table(name).currentSnapshot().snapshotId()) == head
    assert (_refs(bench, name), _audits(bench, name)) == ({"main"}, 0)
    assert bench.leftovers(name) == []
    intact(bench, name, rows)
    assert bench.run(_request(bench, name, SAME_ROWS, plan="p-2")).done


def test_the_check_reads_the_rewrite_and_main_as_they_were_however_main_goes_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = _table(bench)
    asked = audit.check

    def append_first(live: LiveTable, snapshot: Any, wanted: Audit) -> Any:
        bench.append(name, {"id": [1000], "v": ["new"]})
        return asked(live, snapshot, wanted)

    monkeypatch.setattr(audit, "check", append_first)
    assert bench.run(_request(bench, name, SAME_ROWS)).done
    assert bench.rows(name).total() == 41
    assert len(bench.files(name)) == 2
    assert _audits(bench, name) == 0


def test_a_branch_of_somebody_else_is_left_alone(bench: Bench) -> None:
    name = _table(bench)
    bench.sql(f"ALTER TABLE {bench.full(name)} CREATE BRANCH audit")
    with pytest.raises(BlockedError):
        bench.run(_request(bench, name, SAME_ROWS))
    assert _refs(bench, name) == {"main", "audit"}
    assert bench.leftovers(name) == []


def test_what_a_crash_leaves_on_the_branch_is_dropped_by_the_next_run(bench: Bench) -> None:
    """It ends between the commit to the branch and the answer."""
    name = _table(bench)
    rows = bench.rows(name)
    with killed_at(audit, "check") as patched:
        patched.setattr(audit, "drop", lambda live, **named: None)
        patched.setattr(audit.metadata_files, "remove_of_commits", lambda *parts: (0, 0))
        bench.run(_request(bench, name, SAME_ROWS))
    assert (_refs(bench, name), _audits(bench, name)) == ({"main", "audit"}, 1)
    assert bench.run(_request(bench, name, SAME_ROWS, plan="p-2")).done
    assert (_refs(bench, name), _audits(bench, name)) == ({"main"}, 0)
    assert bench.leftovers(name) == []
    intact(bench, name, rows)


def test_a_snapshot_of_an_audit_that_somebody_tagged_stays(bench: Bench) -> None:
    name = _table(bench)
    live = LiveTable(bench.spark, bench.full(name), bench.table(name))
    live.table.newAppend().toBranch("audit").set(AUDIT, "p-1-x/1").commit()
    bench.sql(f"ALTER TABLE {bench.full(name)} CREATE TAG kept AS OF VERSION "
              f"{live.table.refs().get('audit').snapshotId()}")  # fmt: skip
    audit.drop(live)
    assert (_refs(bench, name), _audits(bench, name)) == ({"main", "kept"}, 1)
