"""Carries out what becomes of batches that wait on a branch: to be published, or dropped.

Nothing is read or written again to publish one: its files are those of the branch's snapshot, and
they go to main by the same operation, under the same checks, as if they had just been written. If
main has changed so that they do not fit, the branch is dropped and the work is planned again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from reconciler.engines.snapshots import short
from reconciler.plan.actions.audited import Discard, Publish
from reconciler.plan.actions.state import ActionState, Facts, Validity
from reconciler.plan.execution import COMMITTED, Event, Outcome
from reconciler.spark.actions.base import Executor
from reconciler.spark.commit import audit, batch, cleanup, commit, fence, metadata, specs, standing
from reconciler.spark.commit.batch import Part
from reconciler.spark.commit.operations import (
    MoveFiles,
    Operation,
    RemoveDeletes,
    RewriteFiles,
    RowDelta,
)
from reconciler.spark.deletes import delete_files
from reconciler.spark.schedule import scan, witnessing
from reconciler.spark.schedule.attempt import Attempt
from reconciler.spark.schedule.run import Run
from reconciler.spark.schedule.vanished import may_have_vanished
from reconciler.spark.session import iceberg
from reconciler.table import summary_keys
from reconciler.table.audits import AUDIT_BASE, AUDIT_FORMAT, WaitingBatch, waiting_batches
from reconciler.table.metadata import TableMetadata


class PublishExecutor(Executor[Publish]):
    """refused: why an action's batch does not fit main any more, by the action's id."""

    def __init__(self, run: Run, items: Sequence[tuple[str, Publish]]) -> None:
        super().__init__(run, items)
        self.refused: dict[str, str] = {}

    def judge(self) -> dict[str, ActionState]:
        run = self.run
        run.table.refresh()
        log = metadata.log_of(run.spark, run.table)
        done = standing.actions_in_history(run.table, run.request) | run.done_ids
        states = {}
        for key, action in self.items:
            facts = Facts(key in done, frozenset(action.inputs), metadata=TableMetadata(log=log))
            states[key] = action.judge(facts)  # whether its inputs fit is asked at the commit
            if key in self.refused:
                states[key] = ActionState(Validity.LOST, why=self.refused[key])
        return states

    def carry_out(self) -> None:
        """Publish the batches in their order, then drop the branch.

        It stays if a batch was refused for another reason than the table's changes: the next run
        publishes that one.
        """
        run = self.run
        attempt_id = run.begin_attempt()
        for number, (key, action) in enumerate(self.items, start=1):
            if run.stopping():
                return
            if self.judge()[key].validity is Validity.PENDING:
                self._publish(attempt_id, number, key, action)
        if all(one.validity is not Validity.PENDING for one in self.judge().values()):
            drop_waiting(run, [key for key, _ in self.items], _branches(a for _, a in self.items))

    def _publish(self, attempt_id: str, number: int, key: str, action: Publish) -> None:
        run = self.run
        snapshot = run.table.snapshot(action.snapshot_id)
        base = int(snapshot.summary().get(AUDIT_BASE))
        part = self._part(key, action, snapshot)
        why = self._unfit(snapshot, base, part)
        if why:
            self.refused[key] = why
            run.conflicts += 1
            run.say("conflict", f"{part.title}  CONFLICT: {why}", key)
            return
        table = iceberg.load(run.spark, run.name)
        sequence = int(table.snapshot(base).sequenceNumber())
        attempt = Attempt(
            run.spark, attempt_id, run.shown, table, base, sequence, "", run.request.verify,
            run.request.catalog.name,
            lambda: witnessing.opening_of(run.request.catalog, run.request.table),
        )  # fmt: skip
        self._check(snapshot)
        operation = operation_of(run.spark, table, snapshot, base)
        refused = batch.publish(run, attempt, number, operation, part)
        if refused is not None and refused.conflict:
            self.refused[key] = refused.why

    def _check(self, snapshot: Any) -> None:
        """Run the policy's query once more: a run that was killed may have left the batch without
        it."""
        if self.run.request.audit is None:
            return
        refused = audit.check(self.run.live, snapshot, self.run.request.audit)
        if refused is not None:
            raise batch.audit_failed(self.run.shown, refused.why)

    def _unfit(self, snapshot: Any, base: int, part: Part) -> str:
        """Return why the batch cannot be published, before anything is sent."""
        run = self.run
        if run.table.snapshot(base) is None:
            return f"the snapshot {base} that it was made from has expired"
        schema = int(run.table.operations().current().currentSchemaId())
        if snapshot.schemaId() is None or int(snapshot.schemaId()) != schema:
            return "the table's schema was changed"
        if snapshot.summary().get(AUDIT_FORMAT) != str(iceberg.format_version(run.table)):
            return commit.upgraded(run.table)
        io = run.table.io()
        missing = [path for path in part.outputs if not io.newInputFile(path).exists()]
        return f"{len(missing)} of its files are missing" if missing else ""

    def _part(self, key: str, action: Publish, snapshot: Any) -> Part:
        """Return the batch as the ledger records it: nothing is read or written."""
        io = self.run.table.io()
        added = _added(snapshot, io)
        title = f"{action.verb} snapshot {short(action.snapshot_id)}"
        paths = dict.fromkeys(str(file.location()) for file in added)
        return Part(key, title, Event("verified", title, key), action.inputs, tuple(paths),
                    0, 0, 0, 0.0, 0.0, 0.0)  # fmt: skip


def operation_of(spark: Any, table: Any, snapshot: Any, base: int) -> Operation:
    """Return the operation that committed the snapshot to its branch, from what it added and
    removed. base: the snapshot of main that it was made from."""
    io = table.io()
    added = list(iceberg.each(snapshot.addedDataFiles(io)))
    removed = [str(file.location()) for file in iceberg.each(snapshot.removedDataFiles(io))]
    if removed:
        named = snapshot.summary().get(summary_keys.BLOCK_TREES)
        made = _rewrite(spark, table, added, removed, base)
        return replace(made, trees=tuple(str(named).split(",")) if named else ())
    new = delete_files.written(spark, table, list(iceberg.each(snapshot.addedDeleteFiles(io))))
    gone = delete_files.written(spark, table, list(iceberg.each(snapshot.removedDeleteFiles(io))))
    if not new:
        return RemoveDeletes(gone)
    under = scan.tasks_under(spark, table, base, [file.path for file in gone])
    named = {file.data_file for file in new}
    return RowDelta(scan.scan_tasks(spark, table, base, {*under, *named}), new, gone)


def _rewrite(
    spark: Any, table: Any, added: Sequence[Any], removed: Sequence[str], base: int
) -> RewriteFiles:
    tasks = scan.scan_tasks(spark, table, base, removed)
    sequence = int(table.snapshot(base).sequenceNumber())
    target = {int(file.specId()) for file in added}
    if target <= {file.spec_id for file in tasks.values()}:
        return RewriteFiles(tasks, added, sequence)
    (spec_id,) = target
    return MoveFiles(tasks, added, sequence, spec_id, specs.fields_of(table.specs().get(spec_id)))


class DiscardExecutor(Executor[Discard]):
    def judge(self) -> dict[str, ActionState]:
        self.run.table.refresh()
        log = metadata.log_of(self.run.spark, self.run.table)
        facts = Facts(metadata=TableMetadata(log=log))
        return {key: action.judge(facts) for key, action in self.items}

    def carry_out(self) -> None:
        run, started = self.run, time.monotonic()
        keys = [key for key, state in self.judge().items() if state.validity is Validity.PENDING]
        for key, action in self.items:
            if key not in keys or run.stopping():
                continue
            snapshot = run.table.currentSnapshot()
            base = 0 if snapshot is None else int(snapshot.snapshotId())
            files = drop_waiting(run, [key], {action.branch})
            intent = run.intent(run.begin_attempt(), 1, (key,), base)
            run.ledger.record_intent(intent)
            run.record(intent, (Outcome(
                intent.attempt_id, 1, key, COMMITTED, None, 0, 0, 0, 0, 0, 0.0,
                time.monotonic() - started, f"{files} files removed",
            ),))  # fmt: skip
            run.say("property", f"{action.verb} branch {action.branch}", key)


def _added(snapshot: Any, io: Any) -> list[Any]:
    """Return the content files that the snapshot added."""
    return [
        *iceberg.each(snapshot.addedDataFiles(io)),
        *iceberg.each(snapshot.addedDeleteFiles(io)),
    ]


def _branches(actions: Any) -> set[str]:
    return {action.branch for action in actions}


def drop_waiting(run: Run, keys: Sequence[str], branches: set[str]) -> int:
    """Drop the waiting batches of the branches, and remove the files that only they need; return
    the number of files.

    The directories are recorded before the branch is dropped: after a crash the next run removes
    what is left in them.
    """
    run.require_lease()
    run.table.refresh()
    log = metadata.log_of(run.spark, run.table)
    found = [one for one in waiting_batches(log) if one.branch in branches]
    opened = []
    for prefix, one in _directories(run, found).items():
        opened.append(run.intent(run.begin_attempt(), 0, tuple(keys), one.base, prefix))
        run.ledger.record_intent(opened[-1])
    audit.drop(run.live, snapshots=[one.snapshot_id for one in found])
    removed = 0
    for intent in opened:
        removed += cleanup.remove_leftovers(
            run.spark, run.table, run.name, intent.prefix,
            others=(run.request.catalog, run.request.table),
        ).files  # fmt: skip
        run.ledger.record_outcomes(intent, (fence.closed(intent),))
    return removed


def _directories(run: Run, waiting: Sequence[WaitingBatch]) -> dict[str, WaitingBatch]:
    """Return the directories that hold the files of the batches, each with one of them."""
    found: dict[str, WaitingBatch] = {}
    io = run.table.io()
    for one in waiting:
        marker = f"/layout-{one.attempt_id}"
        try:
            added = _added(run.table.snapshot(one.snapshot_id), io)
        except Exception as error:
            if not may_have_vanished(error):
                raise
            continue  # settled before its commit reached the branch: nothing is left of it
        for file in added:
            start, own, _ = str(file.location()).partition(marker + "/")
            if own:
                found.setdefault(start + marker, one)
    return found
