"""Finds other writers' recent overwrites and deletes, by partition, for the quiet period.

Appends, the table's creation and our own commits do not count
(docs/design/definitions.md#quiet-period). The changes of a snapshot are in the manifests that it
wrote itself: files it added and files it removed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reconciler.catalog.assemble import FileTableParts, partition_values
from reconciler.catalog.entries import NULL
from reconciler.catalog.manifest_reader import ManifestReader
from reconciler.table.filetable import Partition
from reconciler.table.observation import RecentWrite, SnapshotInfo
from reconciler.table.values import partition_identity


def recent_writes(
    reader: ManifestReader,
    ancestry: Sequence[SnapshotInfo],
    parts: FileTableParts,
    since_ms: int,
) -> tuple[RecentWrite, ...]:
    """Return overwrites and deletes of others at or after since_ms, newest first."""
    writes = []
    for snapshot in ancestry:
        if snapshot.timestamp_ms < since_ms:
            break
        if snapshot.ours or snapshot.operation not in ("overwrite", "delete"):
            continue
        changed = _changed_partitions(reader, snapshot, parts)
        writes.append(
            RecentWrite(snapshot.snapshot_id, snapshot.timestamp_ms, snapshot.operation, changed)
        )
    return tuple(writes)


def _changed_partitions(
    reader: ManifestReader, snapshot: SnapshotInfo, parts: FileTableParts
) -> tuple[tuple[int, Partition], ...]:
    """Return (spec id, partition) of every file that the snapshot added or removed, in a fixed
    order."""
    own = [
        manifest
        for manifest in reader.manifests_of(snapshot.snapshot_id)
        if manifest.added_snapshot_id == snapshot.snapshot_id
    ]
    entries = reader.entries(own)
    if entries is None:
        return ()
    spec_of = {manifest.manifest_path: int(manifest.partition_spec_id) for manifest in own}
    touched = (entries.snapshot_id == snapshot.snapshot_id) | (entries.snapshot_id == NULL)
    touched &= entries.status != 0
    pairs = np.unique(
        np.stack((entries.manifest[touched], entries.partition[touched]), axis=1), axis=0
    )
    changed: dict[tuple[int, tuple[object, ...]], tuple[int, Partition]] = {}
    for manifest, partition in pairs.tolist():
        spec = spec_of[entries.manifests[manifest][0]]
        values = partition_values(parts.specs[spec], entries.partitions[partition], parts.schema)
        changed.setdefault((spec, partition_identity(values)), (spec, values))
    return tuple(changed.values())
