"""Searches for a commit of ours before anything of it is cleaned up or sent again.

Our snapshots carry their batch in the summary. The search covers all snapshots that were added
after the one the batch was made from, on main or not, so that a rollback does not hide it. If
snapshots have expired since, it searches for the manifests that its commits wrote, and for the
content files themselves, which stay when manifests are merged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reconciler.plan.execution import Intent
from reconciler.spark.commit import metadata_files
from reconciler.spark.fallback import stage
from reconciler.spark.session import iceberg
from reconciler.spark.session.iceberg import LiveTable
from reconciler.table import summary_keys
from reconciler.table.audits import AUDIT, AUDIT_WAITS

REQUEST_TIMEOUT_SECONDS = 60.0
"""After this time no catalog still works on a request whose sender gave up."""


@dataclass(frozen=True, slots=True)
class Committed:
    """snapshot_id: the snapshot that carries the batch; it may have expired since."""

    snapshot_id: int


def search(live: LiveTable, intent: Intent) -> Committed | None:
    """Return the batch's snapshot, on freshly read metadata.

    None means certainty that no file of the batch is in the table.
    """
    live.table.refresh()
    metadata = live.table.operations().current()
    found = carrying(metadata, intent)
    if found is not None or _is_complete(live, intent.base_snapshot_id):
        return found
    return _search_manifests(live, intent) or _search_files(live, intent)


def carrying(metadata: Any, intent: Intent) -> Committed | None:
    """Return the snapshot of this metadata that carries the batch."""
    for snapshot in iceberg.added_since(metadata, intent.base_snapshot_id):
        summary = snapshot.summary()
        if summary is None or summary.get(summary_keys.ATTEMPT_ID) != intent.attempt_id:
            continue
        if summary.get(summary_keys.BATCH) == str(intent.batch):
            return Committed(int(snapshot.snapshotId()))
    return None


def _is_complete(live: LiveTable, base: int) -> bool:
    """Whether every snapshot from the head of main back to `base` still exists."""
    head = live.table.currentSnapshot()
    if head is None or live.table.snapshot(base) is None:
        return False
    util = live.spark._jvm.org.apache.iceberg.util.SnapshotUtil
    return bool(util.isAncestorOf(live.table, int(head.snapshotId()), base))


def _search_manifests(live: LiveTable, intent: Intent) -> Committed | None:
    """Return the snapshot that one of the batch's commits added, not one of its audit."""
    for one in metadata_files.added_by(live, intent.commits, intent.base_snapshot_id):
        snapshot = live.table.snapshot(one)
        if snapshot is None or not (snapshot.summary() or {}).get(AUDIT):
            return Committed(one)
    return None


def _search_files(live: LiveTable, intent: Intent) -> Committed | None:
    """Return the snapshot that added the batch's files, by the manifests of all snapshots."""
    from pyspark.sql import functions as f

    if not intent.outputs:
        return None
    present = iceberg.load(live.spark, live.name)
    entries = stage.metadata_table(live.spark, present, "ALL_ENTRIES")
    added = entries.where(
        (f.col("status") != DELETED) & f.col("data_file.file_path").rlike(OUR_DIRECTORY)
    )
    outputs, on_branches = set(intent.outputs), _on_branches(live)
    for row in added.select("snapshot_id", "data_file.file_path").collect():
        if row.file_path in outputs and int(row.snapshot_id) not in on_branches:
            return Committed(int(row.snapshot_id))
    return None


def _on_branches(live: LiveTable) -> set[int]:
    """Return the snapshots that wait for approval. A batch that publishes one has its files, and
    is not in the table because these are on the branch."""
    head = live.table.currentSnapshot()
    is_ancestor = live.spark._jvm.org.apache.iceberg.util.SnapshotUtil.isAncestorOf
    found = {
        int(snapshot.snapshotId())
        for snapshot in iceberg.each(live.table.snapshots())
        if (snapshot.summary() or {}).get(AUDIT_WAITS)
    }
    return {
        one for one in found
        if head is None or not is_ancestor(live.table, int(head.snapshotId()), one)
    }  # fmt: skip


OUR_DIRECTORY = "/layout-[^/]+/"
"""In the path of every file that we wrote."""


DELETED = 2
"""A manifest entry's status: the file was removed by the entry's snapshot."""
