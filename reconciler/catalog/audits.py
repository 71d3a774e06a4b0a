"""Reads which content files the batches that wait on a branch replace, from their own manifests."""

from __future__ import annotations

from dataclasses import replace

from reconciler.catalog.manifest_reader import ManifestReader
from reconciler.table.audits import WaitingBatch, waiting_batches
from reconciler.table.retention import SnapshotLog

DELETED = 2
"""A manifest entry's status."""


def read_waiting(reader: ManifestReader, log: SnapshotLog) -> tuple[WaitingBatch, ...]:
    """Return the batches that wait, with their inputs. A table without any costs no request."""
    return tuple(
        replace(batch, inputs=_removed_by(reader, batch.snapshot_id))
        for batch in waiting_batches(log)
    )


def _removed_by(reader: ManifestReader, snapshot_id: int) -> tuple[str, ...]:
    own = [
        manifest
        for manifest in reader.manifests_of(snapshot_id)
        if manifest.added_snapshot_id == snapshot_id
    ]
    entries = reader.entries(own)
    if entries is None:
        return ()
    return tuple(sorted(set(map(str, entries.path[entries.status == DELETED]))))
