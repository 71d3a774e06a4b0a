"""Batches are checked on a branch before they are committed to main (spec.safety.branch)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reconciler.api.catalog_config import CatalogConfig
from reconciler.api.check_query import refused
from reconciler.engines.commit import audit, cleanup
from reconciler.errors import AuditFailedError, BlockedError
from reconciler.plan.actions.rewrite import BinPack
from reconciler.plan.execution import Audit, ExecutionRequest
from reconciler.spark.commit import query
from reconciler.spark.commit.table import JavaTable
from reconciler.spark.session import iceberg
from reconciler.table.audits import AUDIT
from tests.spark.disturbed import killed_at
from tests.spark.tables import Bench, intact

SAME_ROWS = (
    "SELECT 1 FROM (SELECT count(*) AS n FROM {table}) a "
    "JOIN (SELECT count(*) AS n FROM {main}) m ON a.n <> m.n"
)


def _nothing(*_: Any) -> cleanup.Discarded:
    return cleanup.Discarded(0, 0, None)


def _table(bench: Bench) -> str:
    name = bench.create("id BIGINT, v STRING")
    bench.write(name, 4, 10, "file * 10 + n, 'v'")
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
    assert len(bench.paths(name)) == 1
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
        "SELECT 1 FROM {table}.snapshots, {table}",
        "SELECT 1 FROM {table} WHERE version() = 'x'",
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

    def append_first(live: JavaTable, snapshot: Any, wanted: Audit) -> Any:
        bench.append(name, {"id": [1000], "v": ["new"]})
        return asked(live, snapshot, wanted)

    monkeypatch.setattr(audit, "check", append_first)
    assert bench.run(_request(bench, name, SAME_ROWS)).done
    assert bench.rows(name).total() == 41
    assert len(bench.paths(name)) == 2
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
        patched.setattr(audit.metadata_files, "remove_of_commits", _nothing)
        bench.run(_request(bench, name, SAME_ROWS))
    assert (_refs(bench, name), _audits(bench, name)) == ({"main", "audit"}, 1)
    assert bench.run(_request(bench, name, SAME_ROWS, plan="p-2")).done
    assert (_refs(bench, name), _audits(bench, name)) == ({"main"}, 0)
    assert bench.leftovers(name) == []
    intact(bench, name, rows)


def test_a_snapshot_of_an_audit_that_somebody_tagged_stays(bench: Bench) -> None:
    name = _table(bench)
    live = JavaTable(bench.spark, bench.full(name), bench.table(name))
    live.java.newAppend().toBranch("audit").set(AUDIT, "p-1-x/1").commit()
    bench.sql(f"ALTER TABLE {bench.full(name)} CREATE TAG kept AS OF VERSION "
              f"{live.java.refs().get('audit').snapshotId()}")  # fmt: skip
    audit.drop(live)
    assert (_refs(bench, name), _audits(bench, name)) == ({"main", "kept"}, 1)


SECRET = "s3cret-of-another-team"
OVER_ANOTHER = [
    "SELECT raise_error((SELECT max(v) FROM {other})) FROM {table}",
    "SELECT 1 FROM {table} WHERE (SELECT count(*) FROM {other} WHERE v LIKE 's3%') > 0",
    "SELECT CAST(v AS INT) FROM (SELECT v FROM {other} UNION ALL SELECT v FROM {table})",
    "WITH o AS (SELECT * FROM {other}) SELECT 1 FROM o, {table}",
    "SELECT 1 FROM {table} JOIN {other}.files ON true",
]
OVER_ITS_OWN = [
    "SELECT raise_error(v) FROM {table}",
    "SELECT CAST(v AS INT) FROM {table}",
    "SELECT assert_true(v = 'x', v) FROM {table}",
    "SELECT map_from_arrays(array(v, v), array(1, 2)) FROM {table}",
]


@pytest.fixture(scope="module")
def secrets(
    spark: Any, catalog_config: CatalogConfig, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, str]:
    """A table and another one, which no check that fails changes."""
    bench = Bench(spark, catalog_config, tmp_path_factory.mktemp("secrets"))
    other, name = (bench.create("id BIGINT, v STRING") for _ in range(2))
    bench.write(other, 1, 3, f"n, '{SECRET}'")
    bench.write(name, 4, 10, f"file * 10 + n, '{SECRET}'")
    return name, other


@pytest.mark.parametrize("asked", ["before Spark", "of Spark's plan"])
@pytest.mark.parametrize("check", [*OVER_ANOTHER, *OVER_ITS_OWN])
def test_no_value_of_a_row_leaves_a_check(
    bench: Bench,
    secrets: tuple[str, str],
    check: str,
    asked: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the error, the ledger and the events; whichever of the two looks finds another table."""
    from reconciler.loop.driver_job import last_words

    name, other = secrets
    read: list[str] = []
    if asked == "before Spark":
        place, judge, where = audit, refused, "refused"
    else:
        monkeypatch.setattr(audit, "refused", lambda query: "")
        place, judge, where = query, query._beyond, "_beyond"
    monkeypatch.setattr(place, where, lambda *asked: read.append(judge(*asked)) or read[-1])
    request = _request(bench, name, check.replace("{other}", bench.full(other)))
    with pytest.raises(AuditFailedError) as failed:
        bench.run(request)
    error = failed.value
    said = [error.render(), last_words(error).line(), *(event.text for event in bench.events)]
    said += [str(outcome) for outcome in bench.ledger.outcomes()]
    assert SECRET not in " ".join(said)
    assert bool(read[-1]) is (check in OVER_ANOTHER)  # refused before a row was read


def test_what_a_check_may_ask_of_its_table(bench: Bench) -> None:
    name = _table(bench)
    for check in (
        "WITH t AS (SELECT * FROM {table}) SELECT 1 FROM t WHERE id < 0",
        "SELECT id FROM {table} EXCEPT ALL SELECT id FROM {main}",
        "SELECT 1 FROM {table} t LEFT ANTI JOIN {main} m ON t.id = m.id",
        "SELECT 1 FROM {table}, VALUES (1) AS o(x) WHERE id = -x",
        "SELECT 1 FROM range(3) r JOIN {table} t ON t.id = -1 - r.id",
        "SELECT 1 FROM {table} LATERAL VIEW explode(array(id)) e AS x WHERE x < 0",
        "SELECT assert_true(id >= 0) FROM {table} WHERE id IN (SELECT -1 FROM {main})",
    ):
        head = bench.live(name).head()
        assert head is not None
        snapshot = bench.live(name).snapshot(head)
        assert snapshot is not None
        live = JavaTable(bench.spark, bench.full(name), bench.table(name))
        text = check.replace("{main}", "{table}")  # one snapshot stands for both
        refusal = audit.check(live, replace(snapshot, parent=snapshot.id), Audit("audit", text))
        assert refusal is None, (check, refusal)
