"""Searches for a commit of ours before anything of it is cleaned up or sent again.

Our snapshots carry their batch in the summary. The search covers all snapshots that were added
after the one the batch was made from, on main or not, so that a rollback does not hide it. If
snapshots have expired since, it searches for the manifests that its commits wrote, and for the
content files themselves, which stay when manifests are merged.
"""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.engines.commit import metadata_files
from reconciler.engines.table import Table
from reconciler.plan.execution import Intent
from reconciler.table import summary_keys
from reconciler.table.audits import AUDIT, AUDIT_WAITS

REQUEST_TIMEOUT_SECONDS = 60.0
"""After this time no catalog still works on a request whose sender gave up."""


@dataclass(frozen=True, slots=True)
class Committed:
    """snapshot_id: the snapshot that carries the batch; it may have expired since."""

    snapshot_id: int


def search(table: Table, intent: Intent) -> Committed | None:
    """Return the batch's snapshot, on freshly read metadata.

    None means certainty that no file of the batch is in the table.
    """
    table.refresh()
    found = carrying(table, intent)
    if found is not None or _is_complete(table, intent.base_snapshot_id):
        return found
    return _search_manifests(table, intent) or _search_files(table, intent)


def carrying(table: Table, intent: Intent) -> Committed | None:
    """Return the snapshot that carries the batch, in the metadata as last refreshed."""
    for snapshot in table.added_since(intent.base_snapshot_id):
        if snapshot.summary.get(summary_keys.ATTEMPT_ID) != intent.attempt_id:
            continue
        if snapshot.summary.get(summary_keys.BATCH) == str(intent.batch):
            return Committed(snapshot.id)
    return None


def _is_complete(table: Table, base: int) -> bool:
    """Whether every snapshot from the head of main back to `base` still exists."""
    head = table.head()
    if head is None or table.snapshot(base) is None:
        return False
    return table.is_ancestor(head, base)


def _search_manifests(table: Table, intent: Intent) -> Committed | None:
    """Return the snapshot that one of the batch's commits added, not one of its audit."""
    for one in metadata_files.added_by(table, intent.commits, intent.base_snapshot_id):
        snapshot = table.snapshot(one)
        if snapshot is None or not snapshot.summary.get(AUDIT):
            return Committed(one)
    return None


def _search_files(table: Table, intent: Intent) -> Committed | None:
    """Return the snapshot that added the batch's files, by the manifests of all snapshots."""
    if not intent.outputs:
        return None
    on_branches = _on_branches(table)
    for one in table.added_by(set(intent.outputs)):
        if one not in on_branches:
            return Committed(one)
    return None


def _on_branches(table: Table) -> set[int]:
    """Return the snapshots that wait for approval. A batch that publishes one has its files, and
    is not in the table because these are on the branch."""
    head = table.head()
    found = {one.id for one in table.snapshots() if one.summary.get(AUDIT_WAITS)}
    return {one for one in found if head is None or not table.is_ancestor(head, one)}
