"""Batches that wait on a branch until a person approves them (spec.safety.approval)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from reconciler.catalog.observe import observe_table
from reconciler.engines.actions import audited
from reconciler.engines.commit import audit, commit, fence
from reconciler.errors import AuditFailedError, BlockedError
from reconciler.plan.actions.audited import Discard, Publish
from reconciler.plan.actions.delete_maintenance import ConvertDeletes
from reconciler.plan.actions.rewrite import ApplyDeletes, BinPack
from reconciler.plan.actions.rewrite_manifests import RewriteManifests
from reconciler.plan.actions.state import Validity
from reconciler.plan.execution import WAITING, Audit, ExecutionRequest, ExecutionResult
from reconciler.spark.session import iceberg
from reconciler.table import summary_keys
from reconciler.table.audits import WaitingBatch, carried_out
from tests.spark.disturbed import killed_at
from tests.spark.equality import add_equality_delete, delete_paths
from tests.spark.tables import Bench, intact

BRANCH = "candidate"
WAITS = Audit(BRANCH, waits="policy")


def _table(bench: Bench, files: int = 4, properties: str = "") -> str:
    name = bench.create("id BIGINT, v STRING", properties)
    bench.write(name, files, 10, "file * 10 + n, 'v'")
    return name


def _halves(bench: Bench, name: str) -> list[BinPack]:
    paths = bench.paths(name)
    middle = len(paths) // 2
    return [
        bench.action(name, BinPack, target_bytes=1 << 20, inputs=tuple(part))
        for part in (paths[:middle], paths[middle:])
    ]


def _held(bench: Bench, name: str, audit: Audit = WAITS) -> ExecutionResult:
    """Carries out two actions, each of which is a batch that stays on the branch."""
    return bench.run(bench.request(name, *_halves(bench, name), audit=audit))


def _waiting(bench: Bench, name: str) -> tuple[WaitingBatch, ...]:
    return observe_table(bench.config, ("jobs", name), Path(bench.directory / "cache")).waiting


def _publish(bench: Bench, name: str, plan: str = "p-2", **more: Any) -> ExecutionRequest:
    actions = [Publish(o.inputs, o.branch, o.snapshot_id) for o in _waiting(bench, name)]
    more.setdefault("audit", WAITS)
    return bench.request(name, *actions, plan=plan, **more)


def _discard(bench: Bench, name: str) -> ExecutionRequest:
    snapshots = tuple(sorted(one.snapshot_id for one in _waiting(bench, name)))
    return bench.request(name, Discard(BRANCH, snapshots), plan="p-3", audit=WAITS)


def _refs(bench: Bench, name: str) -> set[str]:
    return {str(key) for key in bench.table(name).refs()}


def _states(result: ExecutionResult) -> list[Validity]:
    return [action.state for action in result.actions]


def test_batches_wait_on_the_branch_and_are_published_as_they_are(bench: Bench) -> None:
    name = _table(bench)
    rows, head = bench.rows(name), int(bench.table(name).currentSnapshot().snapshotId())
    inputs = set(bench.paths(name))
    held = _held(bench, name)
    assert (held.waiting, held.commits, _states(held)) == (2, 0, [Validity.PENDING] * 2)
    assert [outcome.state for outcome in bench.ledger.outcomes()] == [WAITING] * 2
    assert int(bench.table(name).currentSnapshot().snapshotId()) == head
    waiting = _waiting(bench, name)
    assert {path for one in waiting for path in one.inputs} == inputs
    assert {(one.branch, one.base, one.plan_id, one.policy) for one in waiting} == {
        (BRANCH, head, "p-1", "policy")
    }
    new = bench.sql(f"SELECT file_path FROM {bench.full(name)}.files VERSION AS OF '{BRANCH}'")
    bench.append(name, {"id": [1000], "v": ["new"]})
    done = bench.run(_publish(bench, name))
    assert (done.commits, done.done, done.waiting) == (2, True, 0)
    assert {row.file_path for row in new} < set(bench.paths(name))
    assert _refs(bench, name) == {"main"}
    intact(bench, name, rows + bench.rows(name) - rows)
    assert bench.rows(name).total() == 41 and len(bench.paths(name)) == 3


def test_nothing_else_is_done_while_a_branch_waits(bench: Bench) -> None:
    name = _table(bench)
    _held(bench, name)
    with pytest.raises(BlockedError) as refused:
        bench.run(bench.request(name, *_halves(bench, name), plan="p-4"))
    assert "p-1" in refused.value.what and BRANCH in refused.value.what
    assert len(_waiting(bench, name)) == 2
    intact(bench, name)


def test_what_another_writer_changed_is_not_published(bench: Bench) -> None:
    """The batch that still fits is: its rows were verified apart from the other one's."""
    name = _table(bench)
    _held(bench, name)
    request = _publish(bench, name)
    bench.sql(f"DELETE FROM {bench.full(name)} WHERE id = 1")
    rows = bench.rows(name)
    done = bench.run(request)
    assert sorted(_states(done)) == [Validity.DONE, Validity.LOST]
    assert (done.commits, done.conflicts, done.done) == (1, 1, False)
    assert _refs(bench, name) == {"main"} and bench.leftovers(name) == []
    intact(bench, name, rows)


def test_deletes_that_arrive_as_files_prevent_the_publication_of_their_rows(bench: Bench) -> None:
    mode = "'format-version'='2', 'write.delete.mode'='merge-on-read'"
    name = _table(bench, properties=mode)
    _held(bench, name)
    request = _publish(bench, name)
    bench.sql(f"DELETE FROM {bench.full(name)} WHERE id = 1")
    done = bench.run(request)
    assert sorted(_states(done)) == [Validity.DONE, Validity.LOST]
    assert 1 not in bench.ids(name)
    assert bench.rows(name).total() == 39


@pytest.mark.parametrize("version", [2, 3])
def test_deletes_and_their_maintenance_wait_in_the_same_way(bench: Bench, version: int) -> None:
    """Equality deletes become positions on the branch, and then deleted rows are left out there;
    on format 3 the rows keep their ids."""
    mode = f"'format-version'='{version}', 'write.delete.mode'='merge-on-read'"
    name = _table(bench, 2, mode)
    lineage = f"SELECT *{', _row_id' if version == 3 else ''} FROM {bench.full(name)} ORDER BY id"
    bench.sql(f"DELETE FROM {bench.full(name)} WHERE id IN (3, 13)")
    add_equality_delete(bench, name, {"id": pa.array([5, 15], pa.int64())})
    rows = bench.sql(lineage)
    convert = ConvertDeletes(inputs=delete_paths(bench, name, 2))
    for number, kind in enumerate((convert, ApplyDeletes)):
        action = kind if kind is convert else bench.action(name, ApplyDeletes)
        held = bench.run(bench.request(name, action, plan=f"p-{number}", audit=WAITS))
        assert held.waiting == 1 and bench.sql(lineage) == rows
        done = bench.run(_publish(bench, name, plan=f"p-1{number}"))
        assert (done.commits, done.done) == (1, True)
        assert bench.sql(lineage) == rows
        assert delete_paths(bench, name, 2) == ()
    assert delete_paths(bench, name) == () and len(rows) == 16
    assert _refs(bench, name) == {"main"} and bench.leftovers(name) == []


def test_a_change_of_manifests_alone_does_not_wait(bench: Bench) -> None:
    name = bench.create("id BIGINT", "'commit.manifest-merge.enabled'='false'")
    for number in range(3):
        bench.append(name, {"id": [number]})
    action = RewriteManifests(bench.manifests(name), 1)
    done = bench.run(bench.request(name, action, audit=WAITS))
    assert (done.commits, done.done, done.waiting) == (1, True, 0)
    assert _refs(bench, name) == {"main"}


def test_a_new_column_voids_what_waits(bench: Bench) -> None:
    name = _table(bench)
    _held(bench, name)
    request = _publish(bench, name)
    bench.sql(f"ALTER TABLE {bench.full(name)} ADD COLUMN w INT")
    assert _states(bench.run(request)) == [Validity.LOST] * 2
    assert _refs(bench, name) == {"main"} and bench.leftovers(name) == []


def test_an_upgrade_voids_what_waits(bench: Bench) -> None:
    """Format 3 takes no position delete files, and readers know its rows by their ids."""
    name = _table(bench, 2, "'format-version'='2', 'write.delete.mode'='merge-on-read'")
    add_equality_delete(bench, name, {"id": pa.array([5, 15], pa.int64())})
    rows = bench.rows(name)
    convert = ConvertDeletes(inputs=delete_paths(bench, name, 2))
    assert bench.run(bench.request(name, convert, audit=WAITS)).waiting == 1
    request = _publish(bench, name)
    bench.table(name).updateProperties().set("format-version", "3").commit()
    assert _states(bench.run(request)) == [Validity.LOST]
    assert _refs(bench, name) == {"main"} and bench.leftovers(name) == []
    assert bench.run(bench.request(name, convert, plan="p-4")).done
    assert bench.rows(name) == rows and delete_paths(bench, name, 2) == ()


def test_what_is_dropped_leaves_no_file(bench: Bench) -> None:
    name = _table(bench)
    rows = bench.rows(name)
    _held(bench, name)
    assert bench.run(_discard(bench, name)).done
    assert _refs(bench, name) == {"main"}
    intact(bench, name, rows)


def test_a_branch_that_a_person_dropped_ends_the_publication(bench: Bench) -> None:
    name = _table(bench)
    rows = bench.rows(name)
    _held(bench, name)
    request = _publish(bench, name)
    bench.sql(f"ALTER TABLE {bench.full(name)} DROP BRANCH {BRANCH}")
    assert _states(bench.run(request)) == [Validity.LOST] * 2
    assert _waiting(bench, name) == ()
    assert bench.run(bench.request(name, *_halves(bench, name), plan="p-4")).done
    assert bench.rows(name) == rows


def test_a_tag_on_the_branch_keeps_its_files(bench: Bench) -> None:
    name = _table(bench)
    _held(bench, name)
    full = bench.full(name)
    bench.sql(
        f"ALTER TABLE {full} CREATE TAG kept AS OF VERSION {_waiting(bench, name)[-1].snapshot_id}"
    )
    assert bench.run(_discard(bench, name)).done
    assert _refs(bench, name) == {"main", "kept"}
    assert len(bench.sql(f"SELECT * FROM {full} VERSION AS OF 'kept'")) == 40
    intact(bench, name)


def test_nobodys_expiry_takes_what_waits(bench: Bench) -> None:
    name = _table(bench)
    rows = bench.rows(name)
    _held(bench, name)
    bench.append(name, {"id": [1000], "v": ["new"]})
    bench.expire(name)
    assert len(_waiting(bench, name)) == 2
    assert bench.run(_publish(bench, name)).done
    assert bench.rows(name) - rows == bench.rows(name) - rows
    assert bench.rows(name).total() == 41


def test_the_query_is_run_before_a_batch_waits_and_again_before_it_is_published(
    bench: Bench,
) -> None:
    name = _table(bench)
    failing = Audit(BRANCH, "SELECT 1 FROM {table}", "policy")
    with pytest.raises(AuditFailedError):
        _held(bench, name, failing)
    assert _refs(bench, name) == {"main"}
    intact(bench, name)
    passing = Audit(BRANCH, "SELECT 1 FROM {table} WHERE id < 0", "policy")
    assert _held(bench, name, passing).waiting == 2
    with pytest.raises(AuditFailedError):
        bench.run(_publish(bench, name, audit=failing))
    assert len(_waiting(bench, name)) == 2 and len(bench.paths(name)) == 4
    assert bench.run(_publish(bench, name, audit=passing)).done


def test_files_that_are_gone_are_not_published(bench: Bench) -> None:
    """Such as those of a commit to the branch that arrived after its run was cleaned up."""
    name = _table(bench)
    rows = bench.rows(name)
    _held(bench, name)
    request = _publish(bench, name)
    io = bench.table(name).io()
    for one in _waiting(bench, name):
        snapshot = bench.table(name).snapshot(one.snapshot_id)
        for file in iceberg.each(snapshot.addedDataFiles(io)):
            io.deleteFile(str(file.location()))
    assert _states(bench.run(request)) == [Validity.LOST] * 2
    assert bench.rows(name) == rows


HOLDING = [
    (audit, "_keep"),
    (fence, "closed"),
]
"""After a batch was committed to the branch: before its outcome is recorded, and after both were,
before the attempt is closed."""


@pytest.mark.parametrize(
    ("module", "step"), HOLDING, ids=lambda part: getattr(part, "__name__", part)
)
def test_a_kill_while_batches_are_put_on_the_branch(bench: Bench, module: Any, step: str) -> None:
    name = _table(bench)
    rows = bench.rows(name)
    with killed_at(module, step):
        _held(bench, name)
    assert _waiting(bench, name) != ()
    assert _held(bench, name).waiting == 2
    assert bench.run(_publish(bench, name)).done
    intact(bench, name, rows)


PUBLISHING = [
    (commit, "prepare", 0),
    (commit, "send", 0),
    (audited, "drop_waiting", 2),
    (audit, "drop", 2),
    (audited.cleanup, "remove_leftovers", 2),
]
"""Before anything is sent, when the batch is recorded, when both are on main, when the directories
are recorded, and when the branch is gone; with the commits that main has then."""


@pytest.mark.parametrize(("module", "step", "commits"), PUBLISHING)
def test_a_kill_while_batches_are_published(
    bench: Bench, module: Any, step: str, commits: int
) -> None:
    name = _table(bench)
    rows = bench.rows(name)
    _held(bench, name)
    request = _publish(bench, name)
    with killed_at(module, step):
        bench.run(request)
    assert len(_ours(bench, name)) == commits
    assert bench.run(request).done
    assert len(_ours(bench, name)) == 2
    if _waiting(bench, name):
        assert bench.run(_discard(bench, name)).done
    assert _refs(bench, name) == {"main"} and bench.leftovers(name) == []
    intact(bench, name, rows)


def _ours(bench: Bench, name: str) -> Sequence[Any]:
    main = iceberg.ancestors(bench.table(name))
    return [one for one in main if summary_keys.ATTEMPT_ID in one.summary]


def test_a_person_who_moves_main_to_the_branch_has_published_it(bench: Bench) -> None:
    """The plan is done, the branch goes, and the next plan can be carried out."""
    name = _table(bench)
    rows = bench.rows(name)
    assert _held(bench, name).waiting == 2
    (first, second), full = _waiting(bench, name), bench.full(name)
    procedure = f"{full.split('.')[0]}.system.fast_forward('jobs.{name}', 'main', '{BRANCH}')"
    bench.sql(f"CALL {procedure}")
    assert int(bench.table(name).currentSnapshot().snapshotId()) == second.snapshot_id
    assert _waiting(bench, name) == ()
    seen = observe_table(bench.config, ("jobs", name), Path(bench.directory / "cache"))
    done = {pair for one in seen.ancestry for pair in carried_out(one.summary)}
    assert {plan for plan, _ in done} == {"p-1"} and len(done) == 2
    assert all(one.ours for one in seen.ancestry if one.snapshot_id == first.snapshot_id)
    again = bench.action(name, BinPack, target_bytes=1 << 20)
    result = bench.run(bench.request(name, again, plan="p-4", audit=WAITS))
    assert result.waiting == 1 and bench.rows(name) == rows
    assert bench.run(_publish(bench, name)).done
    assert _refs(bench, name) == {"main"}
    intact(bench, name, rows)


def test_main_that_a_person_moved_part_of_the_way_leaves_the_rest_to_approve(
    bench: Bench,
) -> None:
    name = _table(bench)
    rows = bench.rows(name)
    assert _held(bench, name).waiting == 2
    first, second = _waiting(bench, name)
    full = bench.full(name)
    bench.sql(
        f"CALL {full.split('.')[0]}.system.set_current_snapshot('jobs.{name}', {first.snapshot_id})"
    )
    assert [one.snapshot_id for one in _waiting(bench, name)] == [second.snapshot_id]
    assert bench.run(_publish(bench, name)).done
    assert _refs(bench, name) == {"main"} and bench.rows(name) == rows
    intact(bench, name, rows)


def test_a_branch_of_others_on_a_batch_that_is_discarded_stays(bench: Bench) -> None:
    name = _table(bench)
    full = bench.full(name)
    _held(bench, name)
    head = _waiting(bench, name)[-1].snapshot_id
    bench.sql(f"ALTER TABLE {full} CREATE BRANCH theirs AS OF VERSION {head}")
    assert {one.branch for one in _waiting(bench, name)} == {BRANCH}
    assert bench.run(replace(_discard(bench, name), allow_live_branches=True)).done
    assert _refs(bench, name) == {"main", "theirs"}
    assert len(bench.sql(f"SELECT * FROM {full} VERSION AS OF 'theirs'")) == 40


def test_a_branch_of_others_on_a_batch_that_a_person_published_stays(bench: Bench) -> None:
    name = _table(bench)
    rows = bench.rows(name)
    full = bench.full(name)
    _held(bench, name)
    procedure = f"{full.split('.')[0]}.system.fast_forward('jobs.{name}', 'main', '{BRANCH}')"
    bench.sql(f"CALL {procedure}")
    bench.sql(f"ALTER TABLE {full} CREATE BRANCH mine")
    again = bench.action(name, BinPack, target_bytes=1 << 20)
    request = bench.request(name, again, plan="p-9", audit=WAITS)
    assert bench.run(replace(request, allow_live_branches=True)).waiting == 1
    assert _refs(bench, name) == {"main", "mine", BRANCH}
    assert bench.rows(name) == rows
