"""Finds the partition specs that no snapshot of a table uses, by its manifest lists.

For plans. A live file, a delete file and an entry of a removed file count alike: readers of that
snapshot need the spec.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog.load import connect, load_table
from reconciler.catalog.manifest_reader import ManifestReader


def unused_specs(
    config: CatalogConfig,
    identifier: tuple[str, ...],
    cache_dir: Path,
    candidates: Collection[int],
    *,
    timeout: float = 30.0,
) -> frozenset[int]:
    """Return those of the candidates (spec ids) that no manifest of any snapshot has.

    Old snapshots come first, because they are the ones that hold old specs: no more lists are read
    once each candidate is in use.
    """
    table = load_table(connect(config, timeout), config, identifier, timeout)
    reader, left = ManifestReader(table, cache_dir), set(candidates)
    for snapshot in sorted(table.metadata.snapshots, key=lambda one: one.timestamp_ms):
        if not left:
            break
        manifests = reader.manifests_of(snapshot.snapshot_id)
        left -= {int(one.partition_spec_id) for one in manifests}
    return frozenset(left)
