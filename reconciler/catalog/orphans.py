"""Lists a table's directories, and compares what is there with what its metadata refers to.

For plans: nothing is deleted here. Every manifest of every snapshot is read, most of them from the
cache.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog.load import connect, load_table, translate_io
from reconciler.catalog.manifest_reader import ManifestReader
from reconciler.errors import UnsupportedError
from reconciler.table.orphans import DIRECTORIES, Listed, Orphans, Search, orphans_of, place_of


def find_orphans(
    config: CatalogConfig,
    identifier: tuple[str, ...],
    cache_dir: Path,
    search: Search,
    now_ms: int,
    *,
    under_way: Collection[str] = (),
    timeout: float = 30.0,
) -> Orphans:
    """Return the files that could be removed. under_way: directories of attempts not settled.

    The storage is listed before the metadata is read: what is committed in between is referred to.
    """
    catalog = connect(config, timeout)
    table = load_table(catalog, config, identifier, timeout)
    location = str(table.metadata.location)
    listed = [
        file for name in DIRECTORIES for file in _listed(table, f"{location.rstrip('/')}/{name}")
    ]
    table = load_table(catalog, config, identifier, timeout)
    return orphans_of(listed, location, _referenced(table, cache_dir), search, now_ms, under_way)


def _listed(table: Any, location: str) -> Iterator[Listed]:
    from pyarrow.fs import FileSelector, FileType
    from pyiceberg.io.pyarrow import PyArrowFileIO

    io = table.io
    if not isinstance(io, PyArrowFileIO):
        raise UnsupportedError(
            f"orphan files of {'.'.join(table.name())} cannot be searched: its storage is read by "
            f"{type(io).__name__}, which cannot list files",
            do="remove spec.maintenance.removeOrphans, or py-io-impl of the catalog",
        )
    scheme, netloc, path = io.parse_location(location)
    with translate_io(f'the directory "{location}"', "check that the storage can be listed"):
        selector = FileSelector(path, allow_not_found=True, recursive=True)
        found = io.fs_by_scheme(scheme, netloc).get_file_info(selector)
    for file in found:
        if file.type == FileType.File:
            below = file.path.partition(path)[2].lstrip("/")
            changed = int((file.mtime_ns or 0) // 1_000_000)
            yield Listed(f"{location}/{below}", int(file.size or 0), changed)


def _referenced(table: Any, cache_dir: Path) -> frozenset[str]:
    """Return all files that any snapshot, or the metadata itself, refers to."""
    metadata = table.metadata
    reader = ManifestReader(table, cache_dir)
    found = {str(table.metadata_location)}
    found |= {str(entry.metadata_file) for entry in metadata.metadata_log}
    for kind in ("statistics", "partition_statistics"):
        found |= {str(item.statistics_path) for item in getattr(metadata, kind, None) or ()}
    manifests: dict[str, Any] = {}
    for snapshot in metadata.snapshots:
        found.add(str(snapshot.manifest_list))
        manifests |= {one.manifest_path: one for one in reader.manifests_of(snapshot.snapshot_id)}
    found |= set(manifests)
    entries = reader.entries(list(manifests.values()))
    if entries is not None:
        found |= set(map(str, entries.path))
    return frozenset(map(place_of, found))
