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

from reconciler.engines.actions.base import Executor
from reconciler.engines.commit import audit, batch, cleanup, commit, fence, standing
from reconciler.engines.commit.batch import Part
from reconciler.engines.commit.operations import (
    MoveFiles,
    Operation,
    RemoveDeletes,
    RewriteFiles,
    RowDelta,
)
from reconciler.engines.manifests import WrittenFile
from reconciler.engines.schedule.attempt import Attempt
from reconciler.engines.schedule.opening import opening_of
from reconciler.engines.schedule.run import Run
from reconciler.engines.schedule.vanished import may_have_vanished
from reconciler.engines.snapshots import SnapshotInfo, short
from reconciler.engines.table import Table
from reconciler.plan.actions.audited import Discard, Publish
from reconciler.plan.actions.state import ActionState, Facts, Validity
from reconciler.plan.execution import COMMITTED, Event, Outcome
from reconciler.table import summary_keys
from reconciler.table.audits import AUDIT_BASE, AUDIT_FORMAT, WaitingBatch, waiting_batches
from reconciler.table.metadata import TableMetadata


class PublishExecutor(Executor[Publish]):
    """Commits to main what was approved on a branch."""

    def __init__(self, run: Run, items: Sequence[tuple[str, Publish]]) -> None:
        super().__init__(run, items)
        self.refused: dict[str, str] = {}
        """Why an action's batch does not fit main any more, by the action's id."""

    def judge(self) -> dict[str, ActionState]:
        run = self.run
        run.table.refresh()
        log = audit.log_of(run.table)
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
        assert snapshot is not None  # it was judged to wait
        base = int(snapshot.summary[AUDIT_BASE])
        part = self._part(key, action, snapshot)
        why = self._unfit(snapshot, base, part)
        if why:
            self.refused[key] = why
            run.conflicts += 1
            run.say("conflict", f"{part.title}  CONFLICT: {why}", key)
            return
        table = run.table.fresh()
        attempt = Attempt(
            run.backend, attempt_id, run.shown, table, base, _sequence(table, base), "",
            run.request.verify, lambda: opening_of(run.request.catalog, run.request.table),
        )  # fmt: skip
        self._check(snapshot)
        operation = operation_of(table, snapshot, base)
        refused = batch.publish(run, attempt, number, operation, part)
        if refused is not None and refused.conflict:
            self.refused[key] = refused.why

    def _check(self, snapshot: SnapshotInfo) -> None:
        """Run the policy's query once more: a run that was killed may have left the batch without
        it."""
        if self.run.request.audit is None:
            return
        refused = audit.check(self.run.table, snapshot, self.run.request.audit)
        if refused is not None:
            raise batch.audit_failed(self.run.shown, refused.why)

    def _unfit(self, snapshot: SnapshotInfo, base: int, part: Part) -> str:
        """Return why the batch cannot be published, before anything is sent."""
        run = self.run
        if run.table.snapshot(base) is None:
            return f"the snapshot {base} that it was made from has expired"
        if snapshot.schema_id != run.table.schema_id():
            return "the table's schema was changed"
        if snapshot.summary.get(AUDIT_FORMAT) != str(run.table.format_version()):
            return commit.upgraded(run.table)
        missing = [path for path in part.outputs if not run.table.has_file(path)]
        return f"{len(missing)} of its files are missing" if missing else ""

    def _part(self, key: str, action: Publish, snapshot: SnapshotInfo) -> Part:
        """Return the batch as the ledger records it: nothing is read or written."""
        title = f"{action.verb} snapshot {short(action.snapshot_id)}"
        paths = dict.fromkeys(self.run.table.added_paths(snapshot.id))
        return Part(key, title, Event("verified", title, key), action.inputs, tuple(paths),
                    0, 0, 0, 0.0, 0.0, 0.0)  # fmt: skip


def operation_of(table: Table, snapshot: SnapshotInfo, base: int) -> Operation:
    """Return the operation that committed the snapshot to its branch, from what it added and
    removed. base: the snapshot of main that it was made from."""
    made = table.content_of(snapshot.id)
    if made.removed:
        named = snapshot.summary.get(summary_keys.BLOCK_TREES)
        rewrite = _rewrite(table, made.added, made.removed, base)
        return replace(rewrite, trees=tuple(named.split(",")) if named else ())
    new, gone = made.added_deletes, made.removed_deletes
    if not new:
        return RemoveDeletes(gone)
    under = table.tasks_under(base, [file.path for file in gone])
    return RowDelta(table.tasks(base, {*under, *(file.data_file for file in new)}), new, gone)


def _rewrite(
    table: Table, added: Sequence[WrittenFile], removed: Sequence[str], base: int
) -> RewriteFiles:
    tasks, sequence = table.tasks(base, removed), _sequence(table, base)
    target = {file.partition_key.spec_id for file in added}
    if target <= {file.spec_id for file in tasks.values()}:
        return RewriteFiles(tasks, added, sequence)
    (spec_id,) = target
    return MoveFiles(tasks, added, sequence, spec_id, table.spec_fields(spec_id) or ())


def _sequence(table: Table, base: int) -> int:
    """Return the sequence number of the snapshot that a batch was made from."""
    snapshot = table.snapshot(base)
    assert snapshot is not None  # otherwise the batch is unfit
    return snapshot.sequence_number


class DiscardExecutor(Executor[Discard]):
    def judge(self) -> dict[str, ActionState]:
        self.run.table.refresh()
        log = audit.log_of(self.run.table)
        facts = Facts(metadata=TableMetadata(log=log))
        return {key: action.judge(facts) for key, action in self.items}

    def carry_out(self) -> None:
        run, started = self.run, time.monotonic()
        keys = [key for key, state in self.judge().items() if state.validity is Validity.PENDING]
        for key, action in self.items:
            if key not in keys or run.stopping():
                continue
            base = run.table.head() or 0
            files = drop_waiting(run, [key], {action.branch})
            intent = run.intent(run.begin_attempt(), 1, (key,), base)
            run.ledger.record_intent(intent)
            run.record(intent, (Outcome(
                intent.attempt_id, 1, key, COMMITTED, None, 0, 0, 0, 0, 0, 0.0,
                time.monotonic() - started, f"{files} files removed",
            ),))  # fmt: skip
            run.say("property", f"{action.verb} branch {action.branch}", key)


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
    log = audit.log_of(run.table)
    found = [one for one in waiting_batches(log) if one.branch in branches]
    opened = []
    for prefix, one in _directories(run, found).items():
        opened.append(run.intent(run.begin_attempt(), 0, tuple(keys), one.base, prefix))
        run.ledger.record_intent(opened[-1])
    audit.drop(run.table, snapshots=[one.snapshot_id for one in found])
    removed = 0
    for intent in opened:
        removed += cleanup.remove_leftovers(
            run.table, intent.prefix,
            others=(run.request.catalog, run.request.table),
        ).files  # fmt: skip
        run.ledger.record_outcomes(intent, (fence.closed(intent),))
    return removed


def _directories(run: Run, waiting: Sequence[WaitingBatch]) -> dict[str, WaitingBatch]:
    """Return the directories that hold the files of the batches, each with one of them."""
    found: dict[str, WaitingBatch] = {}
    for one in waiting:
        marker = f"/layout-{one.attempt_id}"
        try:
            added = run.table.added_paths(one.snapshot_id)
        except Exception as error:
            if not may_have_vanished(run.table.errors, error):
                raise
            continue  # settled before its commit reached the branch: nothing is left of it
        for path in added:
            start, own, _ = path.partition(marker + "/")
            if own:
                found.setdefault(start + marker, one)
    return found
