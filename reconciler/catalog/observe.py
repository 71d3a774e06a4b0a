"""Observes a table: its metadata and its file table, with manifests decoded once and cached.

Reads the catalog's pointer, the metadata file, the manifest list and the manifests that the cache
does not hold; no data file. Every decision about a table starts from the `Observation` returned
here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog.assemble import FileTableParts, assemble
from reconciler.catalog.audits import published, read_waiting
from reconciler.catalog.deletes import AppliedDeletes, apply_deletes
from reconciler.catalog.entries import Entries
from reconciler.catalog.load import connect, load_table
from reconciler.catalog.manifest_reader import ManifestReader
from reconciler.catalog.metadata import (
    ancestry_of,
    columns_of,
    latest_ms_of,
    refs_of,
    schema_of,
    sort_order_text,
    specs_of,
    table_metadata_of,
)
from reconciler.catalog.operations import operations_of
from reconciler.catalog.policies import bounds_on
from reconciler.catalog.positions import PositionReader
from reconciler.catalog.recent import recent_writes
from reconciler.errors import FileMissingError
from reconciler.table.audits import WaitingBatch, with_published
from reconciler.table.flags import flag
from reconciler.table.manifests import NO_MANIFESTS, ManifestTable, manifest_table
from reconciler.table.observation import RECENT_MS, Observation
from reconciler.table.retention import DELETE_PROPERTY

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table

DELETED = 2
"""A manifest entry's status."""
LOOKS = 3
"""Times that a table is read at most when another writer expires what is being read."""


def observe_table(
    config: CatalogConfig,
    identifier: tuple[str, ...],
    cache_dir: Path,
    *,
    timeout: float = 30.0,
    recent_ms: int = RECENT_MS,
    now_ms: int | None = None,
) -> Observation:
    """Return the table at its current snapshot, with the bounds by the catalog's policies.

    cache_dir: root of the manifest cache. timeout: seconds for the catalog to answer. recent_ms:
    how far back other writers' overwrites and deletes are searched, from now_ms (default: the
    clock).
    """
    catalog = connect(config, timeout)

    def look(table: Table) -> Observation:
        seen = observe_loaded(
            table, config.name, identifier, cache_dir, recent_ms=recent_ms, now_ms=now_ms
        )
        bounds = bounds_on(catalog, config, identifier, timeout)
        return replace(seen, metadata=replace(seen.metadata, bounds=bounds))

    return observe_with(catalog, config, identifier, timeout, look)


def observe_with(
    catalog: Catalog,
    config: CatalogConfig,
    identifier: tuple[str, ...],
    timeout: float,
    look: Callable[[Table], Observation],
) -> Observation:
    """Return a look at a table, through an open connection.

    A manifest may be removed after the table's metadata was read. If the table has newer metadata
    by then, the table is read again; otherwise it is damaged.
    """
    table = load_table(catalog, config, identifier, timeout)
    for last in (False,) * (LOOKS - 1) + (True,):
        try:
            return look(table)
        except FileMissingError:
            newer = load_table(catalog, config, identifier, timeout)
            if last or newer.metadata_location == table.metadata_location:
                raise
            table = newer
    raise AssertionError("the last look returns or raises")


def observe_loaded(
    table: Table,
    catalog: str,
    identifier: tuple[str, ...],
    cache_dir: Path,
    *,
    recent_ms: int = RECENT_MS,
    now_ms: int | None = None,
) -> Observation:
    """One look at a table that the catalog has answered for. Raises FileMissingError."""
    started = time.perf_counter()
    metadata = table.metadata
    reader = ManifestReader(table, cache_dir)
    manifests = reader.manifests_of(metadata.current_snapshot_id)
    entries = reader.entries(manifests)
    ancestry, others = ancestry_of(metadata)
    schema, specs = schema_of(metadata), specs_of(metadata)
    parts = FileTableParts(
        schema=schema,
        specs=specs,
        default_spec_id=metadata.default_spec_id,
        properties=metadata.properties,
        snapshots=(*ancestry, *others),
        manifests={m.manifest_path: manifest_info(m) for m in manifests},
    )
    positions = PositionReader(table.io, cache_dir / "positions" / str(metadata.table_uuid))
    applied = apply_deletes(*assemble(parts, entries), specs, positions)
    now_ms = int(time.time() * 1000) if now_ms is None else now_ms
    writes = recent_writes(reader, ancestry, parts, now_ms - recent_ms)
    table_metadata = table_metadata_of(metadata)
    by_main = {int(one.added_snapshot_id or 0) for one in manifests}
    table_metadata = replace(
        table_metadata,
        log=with_published(table_metadata.log, lambda _: by_main),
        delete_enabled=flag(table.io.properties, DELETE_PROPERTY, default=True),
    )
    waiting = read_waiting(reader, table_metadata.log)
    after = _published(parts, manifests, reader, waiting) if waiting else None
    reader.tidy()
    snapshot = ancestry[0] if ancestry else None
    return Observation(
        catalog=catalog,
        identifier=identifier,
        uuid=str(metadata.table_uuid),
        format_version=int(metadata.format_version),
        location=metadata.location,
        metadata_location=table.metadata_location,
        metadata=table_metadata,
        snapshot_id=snapshot.snapshot_id if snapshot else None,
        snapshot_ms=snapshot.timestamp_ms if snapshot else int(metadata.last_updated_ms),
        sequence_number=int(getattr(metadata, "last_sequence_number", 0) or 0),
        sort_order_id=metadata.default_sort_order_id,
        sort_order_text=sort_order_text(metadata, schema),
        refs=refs_of(metadata),
        ancestry=ancestry,
        other_snapshots=others,
        files=applied.files,
        deletes=applied.load,
        delete_files=applied.deletes,
        doubled_vectors=applied.doubled,
        operations=operations_of(ancestry),
        manifest_table=_manifest_table(manifests, entries),
        recent_writes=writes,
        waiting=waiting,
        published=None if after is None else after.files,
        published_deletes=None if after is None else after.deletes,
        columns=columns_of(metadata),
        ahead_ms=latest_ms_of(metadata) - now_ms,
        manifests=len(manifests),
        manifests_read=reader.read,
        bytes_read=reader.bytes_read,
        seconds=time.perf_counter() - started,
    )


def _published(
    parts: FileTableParts,
    manifests: Sequence[ManifestFile],
    reader: ManifestReader,
    waiting: Sequence[WaitingBatch],
) -> AppliedDeletes:
    """Return main's files as they would be if what waits on branches were published."""
    every, entries = published(manifests, reader, waiting)
    parts = replace(parts, manifests={m.manifest_path: manifest_info(m) for m in every})
    return apply_deletes(*assemble(parts, entries), parts.specs)


def _manifest_table(manifests: Sequence[ManifestFile], entries: Entries | None) -> ManifestTable:
    """Return how the live data files are spread over the manifests."""
    every = frozenset(str(one.manifest_path) for one in manifests)
    if entries is None:
        return replace(NO_MANIFESTS, every=every)
    sizes = dict(entries.manifests)
    rows = np.flatnonzero((entries.status != DELETED) & (entries.content == 0))
    numbers, manifest = np.unique(entries.manifest[rows], return_inverse=True)
    path = tuple(entries.manifests[number][0] for number in numbers)
    size = np.array([sizes[one] for one in path], dtype=np.int64)
    return manifest_table(path, size, every, manifest, entries.partition[rows])


def manifest_info(manifest: ManifestFile) -> tuple[int, int, int]:
    """Return (spec id, sequence number, snapshot id) that entries inherit from their manifest."""
    return (
        int(manifest.partition_spec_id),
        int(manifest.sequence_number or 0),
        int(manifest.added_snapshot_id or 0),
    )
