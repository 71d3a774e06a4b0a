"""Batches that wait on a branch until a person approves them (spec.safety.approval).

All that is needed to publish or to drop them is in the table: the branch, and the summaries of its
snapshots. So they do not depend on the machine, or on the state, of the run that wrote them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from reconciler.table.retention import BRANCH, MAIN, Snapshot, SnapshotLog, line
from reconciler.table.summary_keys import ACTION_IDS, PLAN_ID

AUDIT = "layout.audit"
"""Key in the summary of a snapshot that an audit of ours committed to its branch: attempt/batch."""
AUDIT_BRANCH = "layout.audit.branch"
"""The branch that it was committed to: other branches and tags on it are somebody's own."""
AUDIT_PLAN = "layout.audit.plan-id"
AUDIT_BASE = "layout.audit.base"
AUDIT_WAITS = "layout.audit.waits"
AUDIT_FORMAT = "layout.audit.format-version"
AUDIT_ACTIONS = "layout.audit.action-ids"
"""Keys of a snapshot that waits for approval: the plan it is a part of, the snapshot that its rows
were read from, the hash of the policy that asked for it, the table's format version, which its
files were written for, and the plan's actions that it carries out."""


@dataclass(frozen=True, slots=True)
class WaitingBatch:
    """A snapshot that waits on a branch for approval."""

    branch: str
    """The branch."""
    snapshot_id: int
    """Id of the snapshot."""
    base: int
    """The snapshot of main that its rows were read from."""
    plan_id: str
    """The plan that it belongs to."""
    attempt_id: str
    """The attempt that wrote its files."""
    policy: str
    """Hash of the part of the policy that the plan was made from."""
    at_ms: int
    """When it was committed, in epoch milliseconds."""
    inputs: tuple[str, ...] = ()
    """Paths of the content files that it replaces, if its manifests were read."""
    outputs: tuple[str, ...] = ()
    """Paths of the content files that it adds, if its manifests were read."""
    missing: bool = False
    """Whether its manifests are gone, and so are its files."""


def waits(summary: Mapping[str, str]) -> bool:
    """Whether the snapshot with this summary was committed to wait for approval."""
    base = summary.get(AUDIT_BASE, "")
    return base.isdecimal() and {AUDIT, AUDIT_PLAN, AUDIT_WAITS} <= summary.keys()


def is_own(summary: Mapping[str, str], branch: str) -> bool:
    """Whether an audit committed the snapshot to this branch; of earlier versions, which did not
    record it, any branch may be the one."""
    return AUDIT in summary and summary.get(AUDIT_BRANCH, branch) == branch


def carried_out(summary: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    """Return the (plan id, action id) pairs that a snapshot of main carries out: of our commit, or
    of a batch that a person published by moving main to it."""
    pairs = ((PLAN_ID, ACTION_IDS), (AUDIT_PLAN, AUDIT_ACTIONS))
    return frozenset(
        (summary[plan], action)
        for plan, actions in pairs
        if plan in summary
        for action in summary.get(actions, "").split(",")
        if action
    )


def waiting_batches(log: SnapshotLog) -> tuple[WaitingBatch, ...]:
    """Return the batches on the branches of a table, those of each branch oldest first.

    None of a branch that main was fast-forwarded to: those are published.
    """
    by_id, on_main = log.by_id, log.published.union(snapshot.id for snapshot in log.main)
    found: list[WaitingBatch] = []
    for ref in log.refs:
        if ref.name == MAIN or ref.type != BRANCH:
            continue
        own: list[WaitingBatch] = []
        for snapshot in line(by_id, ref.snapshot_id):
            if snapshot.id in on_main or not waits(snapshot.summary):
                break
            if not is_own(snapshot.summary, ref.name):
                break
            own.append(_batch(ref.name, snapshot))
        found += reversed(own)
    return tuple(found)


def with_published(log: SnapshotLog, added_by: Callable[[int], Iterable[int]]) -> SnapshotLog:
    """Return the log, with what main published before the snapshot at which its line ends.

    Another engine's expiry may cut main between its head and a published batch, which a branch
    keeps. added_by: returns the ids of the snapshots that added the manifests of a snapshot; it is
    asked only where main's line is cut and a batch seems to wait.
    """
    main = log.main
    if not main or main[-1].parent is None or not waiting_batches(log):
        return log
    return replace(log, published=frozenset(added_by(main[0].id)))


def _batch(branch: str, snapshot: Snapshot) -> WaitingBatch:
    summary = snapshot.summary
    return WaitingBatch(
        branch=branch,
        snapshot_id=snapshot.id,
        base=int(summary[AUDIT_BASE]),
        plan_id=summary[AUDIT_PLAN],
        attempt_id=summary[AUDIT].rpartition("/")[0],
        policy=summary[AUDIT_WAITS],
        at_ms=snapshot.timestamp_ms,
    )
