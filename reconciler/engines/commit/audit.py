"""Audits a batch on a branch before it is committed to main (write, audit, publish).

The batch is committed to a branch that starts at main's head, the policy's query is run on that
snapshot, and the branch is dropped again, whatever the query returned. Only after that the same
files are committed to main, under all checks of `commit`: to fast-forward main instead would fail
after every append that came meanwhile. Where a person is to approve the batch, it stays on the
branch and this run ends; the action `Publish` commits the files to main later.

The snapshot on the branch carries AUDIT and none of the keys by which commits to main are found. A
crash leaves at most the branch, which the next run drops (`fence.resolve`).
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Collection, Mapping

from reconciler.api.check_query import refused
from reconciler.api.schema import AUDITED_TABLE, MAIN_TABLE
from reconciler.engines.answers import Answer, Kind
from reconciler.engines.commit import commit, history, metadata, metadata_files, standing
from reconciler.engines.commit.operations import Operation
from reconciler.engines.snapshots import SnapshotInfo
from reconciler.engines.table import PendingCommit, Table
from reconciler.errors import BlockedError, UnavailableError, UnknownCommitError
from reconciler.plan.execution import Audit, Intent
from reconciler.table.audits import (
    AUDIT,
    AUDIT_ACTIONS,
    AUDIT_BASE,
    AUDIT_BRANCH,
    AUDIT_FORMAT,
    AUDIT_PLAN,
    AUDIT_WAITS,
    waiting_batches,
    with_published,
)
from reconciler.table.retention import BRANCH, MAIN, Ref, SnapshotLog

log = logging.getLogger(__name__)


def prepare(table: Table, operation: Operation, audit: Audit) -> PendingCommit:
    """Return the commit to the branch. Its UUID is recorded before it writes a file."""
    return table.begin(operation, audit.branch)


def drop_or_refuse_branches(table: Table, audit: Audit | None, shown: str) -> None:
    """Drop the branches of audits that ended, and those that a person published.

    Raises BlockedError if batches wait for approval, or if the table has a branch of the audit's
    name which is not of an audit.
    """
    drop(table)
    drop_published(table)
    held = waiting_batches(log_of(table))
    if held:
        raise BlockedError(
            f"plan {held[0].plan_id} of {shown} waits on branch {held[0].branch} for approval",
            details=("Nothing was rewritten.",),
            do=f"layoutctl plan {shown} shows what is to be approved",
        )
    if audit is not None and _is_taken(table, audit, ()):
        raise BlockedError(
            f"{shown} already has a branch or tag {audit.branch}, which is not ours",
            details=("Nothing was rewritten.",),
            do="drop it, or name another branch in spec.safety.branch",
        )


def _is_taken(table: Table, audit: Audit, own: Collection[int]) -> bool:
    """Whether the branch exists, and is not at one of our own snapshots. Call it after `drop`."""
    ref = table.refs().get(audit.branch)
    return ref is not None and ref.snapshot_id not in own


def commit_to_branch(
    table: Table,
    operation: Operation,
    intent: Intent,
    prepared: PendingCommit,
    audit: Audit,
    own: Collection[int],
) -> commit.Refused | int:
    """Commit the batch to the branch, and run the audit's check on it, if it has one.

    Returns why the batch must not be committed to main, or the snapshot on the branch: it stays
    there if the audit waits for approval, and is dropped otherwise. own: waiting snapshots of this
    run, which may be on the branch already. Raises UnknownCommitError if the JVM was lost.
    """
    drop(table)
    drop_published(table)
    if _is_taken(table, audit, own):
        why = f"another writer made a branch {audit.branch}"
        return commit.Refused(why, conflict=False, audit=True)
    try:
        return _on_branch(table, operation, intent, prepared, audit)
    except Exception as error:
        if table.errors.lost(error):
            raise UnknownCommitError(
                f"the Spark process ended while it audited a batch of {table.name}",
                details=("Nothing of the batch is on main; its files were kept.",),
                do="run the command again: it checks, cleans up and continues",
            ) from error
        raise


def _on_branch(
    table: Table, operation: Operation, intent: Intent, prepared: PendingCommit, audit: Audit
) -> commit.Refused | int:
    snapshot, answer = _sent(table, operation, intent, prepared, audit)
    found: commit.Refused | int | None = None
    try:
        if snapshot is None:
            why = "the commit to the branch is not in the table"
            found = commit.Refused(answer.why or why, conflict=True)
        else:
            found = check(table, snapshot, audit) or snapshot.id
    finally:
        if not audit.waits or not isinstance(found, int):
            drop(table, attempt=intent.attempt_id, batch=intent.batch)
            metadata_files.remove_of_commits(table, (prepared.uuid,), prepared.base)
    if audit.waits and isinstance(found, int):
        metadata_files.tidy(table, prepared, answered=answer.kind is Kind.ACCEPTED)
        _keep(table, audit, intent.base_snapshot_id)
    return found


def _sent(
    table: Table, operation: Operation, intent: Intent, prepared: PendingCommit, audit: Audit
) -> tuple[SnapshotInfo | None, Answer]:
    """Return the snapshot on the branch, None if it is not there and cannot arrive late, and the
    answer to the commit."""
    mark = f"{intent.attempt_id}/{intent.batch}"
    notes = {**operation.notes, AUDIT: mark, AUDIT_BRANCH: audit.branch}
    if audit.waits:
        notes |= {
            AUDIT_PLAN: intent.plan_id,
            AUDIT_ACTIONS: ",".join(intent.action_ids),
            AUDIT_BASE: str(intent.base_snapshot_id),
            AUDIT_WAITS: audit.waits,
            AUDIT_FORMAT: str(table.format_version()),
        }
    answer = prepared.send(operation, intent.base_snapshot_id, notes, None)
    if answer.kind is Kind.LOST:
        assert answer.error is not None
        raise answer.error
    if answer.kind is not Kind.ACCEPTED and not answer.cannot_arrive:
        time.sleep(history.REQUEST_TIMEOUT_SECONDS)
    table.refresh()
    return _marked(table, mark), answer


def _keep(table: Table, audit: Audit, base: int) -> None:
    """Let nobody's expiry take the branch's snapshots, or the one that their rows were read from:
    each of them is needed to publish the branch."""
    number = 1
    snapshot = table.snapshot(table.refs()[audit.branch].snapshot_id)
    while snapshot is not None and snapshot.parent is not None and snapshot.id != base:
        snapshot, number = table.snapshot(snapshot.parent), number + 1
    try:
        table.keep_on_branch(audit.branch, number)
    except Exception as error:
        if table.errors.lost(error):
            raise  # otherwise an expiry may void what waits: it is planned again then
    table.refresh()


def _marked(table: Table, mark: str) -> SnapshotInfo | None:
    for snapshot in table.snapshots():
        if snapshot.summary.get(AUDIT) == mark:
            return snapshot
    return None


def check(table: Table, snapshot: SnapshotInfo, audit: Audit) -> commit.Refused | None:
    """Run the policy's query, if it has one: any row that it returns refuses the batch."""
    if not audit.check:
        return None
    where = f"the check of branch {audit.branch}"
    try:
        why = refused(audit.check)
        if not why:
            assert snapshot.parent is not None  # the branch starts at main's head
            versions = {AUDITED_TABLE: snapshot.id, MAIN_TABLE: snapshot.parent}
            found = table.query(audit.check, versions)
            why = found.beyond
        if why:
            return commit.Refused(f"{where} may not run: {why}", conflict=False, audit=True)
        passed = found.is_empty()
    except Exception as error:
        errors = table.errors
        if errors.lost(error):
            raise
        # What an engine says may hold values of rows (`raise_error`): for this log alone.
        log.warning("%s could not be run: %s", where, errors.message(error))
        kind = errors.error_class(error)
        return commit.Refused(f"{where} could not be run ({kind})", conflict=False, audit=True)
    return None if passed else commit.Refused(f"{where} returned rows", conflict=False, audit=True)


def drop(
    table: Table,
    *,
    attempts: Collection[str] = (),
    attempt: str = "",
    batch: int = 0,
    snapshots: Collection[int] = (),
) -> None:
    """Drop the branches and snapshots of audits, with the metadata files that only they need.

    Of those that wait for approval only the ones named: by their attempts, by one batch of an
    attempt, or by their ids. What was on the branch before one of them stays there. A snapshot
    stays if somebody made a branch or a tag on it.
    """

    def wanted(snapshot: SnapshotInfo) -> bool:
        mark = snapshot.summary.get(AUDIT)
        if mark is None or not snapshot.summary.get(AUDIT_WAITS):
            return mark is not None
        named = mark == f"{attempt}/{batch}" or mark.rpartition("/")[0] in attempts
        return named or snapshot.id in snapshots

    files: dict[int, list[str]] = {}
    parents: dict[int, int] = {}

    def change() -> tuple[dict[str, int | None], list[int]]:
        heads, gone = _of_audits(table, wanted)
        files.update({one.id: metadata_files.own_files(table, one) for one in gone})
        parents.update({one.id: one.parent or 0 for one in gone})
        return heads, [one.id for one in gone]

    _changed(table, change)
    dropped = [one for one in files if table.snapshot(one) is None]
    if dropped:
        paths = itertools.chain.from_iterable(files[one] for one in dropped)
        roots = {parents[one] for one in dropped}.difference(dropped)
        metadata_files.delete_unneeded(table, paths, roots.pop() if len(roots) == 1 else 0)


def drop_published(table: Table) -> None:
    """Drop branches whose batches a person published by moving main to them."""

    def change() -> tuple[dict[str, int | None], list[int]]:
        found = [
            name
            for name, ref in table.refs().items()
            if name != MAIN
            and ref.type == BRANCH
            and _was_put_on(table, ref)
            and _is_on_main(table, ref.snapshot_id)
        ]
        return dict.fromkeys(found), []

    _changed(table, change)


def _was_put_on(table: Table, ref: Ref) -> bool:
    """Whether the ref's snapshot is a waiting batch that was committed to this very branch."""
    snapshot = table.snapshot(ref.snapshot_id)
    summary = {} if snapshot is None else snapshot.summary
    return bool(summary.get(AUDIT_WAITS)) and summary.get(AUDIT_BRANCH) == ref.name


def _changed(
    table: Table, change: Callable[[], tuple[Mapping[str, int | None], Collection[int]]]
) -> None:
    """Move or drop branches and remove snapshots until there is nothing to change; the table is
    refreshed then. change: returns the new head of each branch, None to drop it, and the
    snapshots to remove, by the metadata as last refreshed."""
    for _ in range(metadata.RESENDS):
        table.refresh()
        heads, gone = change()
        if not heads and not gone:
            return
        answer = table.without(heads, gone).send()
        if answer.kind is Kind.LOST:
            assert answer.error is not None
            raise answer.error
        if answer.kind is not Kind.ACCEPTED:
            time.sleep(metadata.PAUSE_SECONDS)  # it may have arrived: the table says so
    raise UnavailableError(
        f"the branch of an audit of {table.name} could not be dropped",
        details=("The catalog accepted none of the commits.",),
        do="run the command again when the catalog works",
    )


def _of_audits(
    table: Table, wanted: Callable[[SnapshotInfo], bool]
) -> tuple[dict[str, int | None], list[SnapshotInfo]]:
    """Return the branches whose head is to go, each with the head that it gets, None for none; and
    the snapshots that only they hold."""
    marked = [one for one in table.snapshots() if wanted(one)]
    ids = {snapshot.id for snapshot in marked}
    refs = table.refs()
    own = {
        name
        for name, ref in refs.items()
        if ref.type == BRANCH
        and name != MAIN
        and ref.snapshot_id in ids
        and standing.is_of_audit(table, ref.snapshot_id, name)
    }
    heads = {name: _left(table, refs[name].snapshot_id, ids) for name in own}
    others = [ref.snapshot_id for name, ref in refs.items() if name not in heads]
    others += [head for head in heads.values() if head is not None]
    gone = [one for one in marked if not any(table.is_ancestor(head, one.id) for head in others)]
    return heads, gone


def _left(table: Table, head: int, gone: Collection[int]) -> int | None:
    """Return the newest snapshot of the branch that stays on it; None if there is none: what is
    under the batches belongs to main, also a batch that a person published there."""
    snapshot = table.snapshot(head)
    while snapshot is not None and snapshot.id in gone:
        snapshot = None if snapshot.parent is None else table.snapshot(snapshot.parent)
    if snapshot is None or not snapshot.summary.get(AUDIT_WAITS):
        return None
    return None if _is_on_main(table, snapshot.id) else snapshot.id


def _is_on_main(table: Table, snapshot_id: int) -> bool:
    main = table.head()
    if main is None:
        return False
    return table.is_ancestor(main, snapshot_id) or snapshot_id in log_of(table).published


def log_of(table: Table) -> SnapshotLog:
    """Return the log of the table as last refreshed, with the batches that main has although its
    line was cut."""
    return with_published(table.log(), lambda head: table.manifests(head).values())
