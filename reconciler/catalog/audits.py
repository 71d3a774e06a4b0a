"""Reads what the batches that wait on a branch replace and add, from their own manifests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from pyiceberg.manifest import ManifestFile

from reconciler.catalog.entries import Entries, select
from reconciler.catalog.manifest_reader import ManifestReader
from reconciler.errors import FileMissingError
from reconciler.table.audits import WaitingBatch, waiting_batches
from reconciler.table.retention import SnapshotLog

ADDED, DELETED = 1, 2
"""A manifest entry's status."""


def read_waiting(reader: ManifestReader, log: SnapshotLog) -> tuple[WaitingBatch, ...]:
    """Return the batches that wait, with their files. A table without any costs no request."""
    return tuple(_with_files(reader, batch) for batch in waiting_batches(log))


def own_manifests(reader: ManifestReader, batch: WaitingBatch) -> list[ManifestFile]:
    """Return the manifests that the commit of the batch wrote."""
    return [
        manifest
        for manifest in reader.manifests_of(batch.snapshot_id)
        if manifest.added_snapshot_id == batch.snapshot_id
    ]


def published(
    main: Sequence[ManifestFile], reader: ManifestReader, batches: Sequence[WaitingBatch]
) -> tuple[list[ManifestFile], Entries | None]:
    """Return the manifests and entries of main as if the batches were published.

    Left out is a batch of which main lost an input, or whose files are gone: it will not be
    published.
    """
    whole = [batch for batch in batches if not batch.missing]
    own = [manifest for batch in whole for manifest in own_manifests(reader, batch)]
    entries = reader.entries([*main, *own])
    if entries is None:
        return [], None
    on_main = {manifest.manifest_path for manifest in main}
    is_main = np.array([path in on_main for path, _ in entries.manifests])[entries.manifest]
    live = set(entries.path[is_main & (entries.status != DELETED)])
    fitting = [batch for batch in whole if live.issuperset(batch.inputs)]
    gone = {path for batch in fitting for path in batch.inputs}
    new = {path for batch in fitting for path in batch.outputs}
    kept = [
        (path in live if main_row else path in new and status == ADDED) and path not in gone
        for path, main_row, status in zip(entries.path, is_main, entries.status, strict=True)
    ]
    return [*main, *own], select(entries, np.flatnonzero(kept))


def _with_files(reader: ManifestReader, batch: WaitingBatch) -> WaitingBatch:
    """Return the batch with its files. They are gone if its commit reached the branch only after
    another run had settled it: only a catalog of a table without sequence numbers accepts that."""
    try:
        entries = reader.entries(own_manifests(reader, batch))
    except FileMissingError:
        return replace(batch, missing=True)
    if entries is None:
        return batch
    inputs, outputs = (
        tuple(sorted(set(map(str, entries.path[entries.status == status]))))
        for status in (DELETED, ADDED)
    )
    return replace(batch, inputs=inputs, outputs=outputs)
