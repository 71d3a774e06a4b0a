"""Finds files below a table that nobody refers to: neither the table nor anybody else.

For plans, and again right before files are removed (`Proof`). Nothing is deleted here. Every
manifest of every snapshot is read, most of them from the cache.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog.chains import PATH_PROPERTIES
from reconciler.catalog.listing import Resolver, files_below
from reconciler.catalog.load import connect, data_file_io, load_table
from reconciler.catalog.manifest_reader import ManifestReader
from reconciler.catalog.registered import PlacesKnown
from reconciler.catalog.sharers import Sharers, Unasked
from reconciler.errors import TableNotFoundError
from reconciler.table.orphans import (
    MOST_FILES,
    NOBODY,
    Asked,
    Candidates,
    Listed,
    Orphans,
    Search,
    is_metadata,
    old_files,
)

_KNOWN = PlacesKnown()
"""What catalogs answered to plans. Right before a removal everything is asked again."""


@dataclass(frozen=True, slots=True)
class Unclaimed:
    """Which of some files nobody refers to."""

    paths: frozenset[str] = frozenset()
    """Paths of these files."""
    refused: str = ""
    """Why no file may be removed, "" if nothing prevents it."""
    asked: Asked = NOBODY
    """Who was asked."""


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
    location, uuid = str(table.metadata.location), table.metadata.table_uuid
    metadata: list[str] = []
    listed = _noting(metadata, files_below(table.io, location))
    old = old_files(listed, location, search, now_ms, under_way)
    table = load_table(catalog, config, identifier, timeout)
    if table.metadata.table_uuid != uuid or str(table.metadata.location) != location:
        return Orphans(refused="the table was created again, or moved, during the search")
    left = Candidates(old, location)
    Resolver().strike(left, _referenced(table, cache_dir))
    sharers = Sharers(config, catalog, identifier, table.io, cache_dir, timeout, _KNOWN)
    asked, refused = _ask(sharers, left, _roots(table), metadata, table)
    if refused:
        return Orphans(refused=refused)
    files = left.oldest()
    more = max(0, len(files) - MOST_FILES)
    return Orphans(tuple(files[:MOST_FILES]), asked=asked, left=more)


def unclaimed(
    config: CatalogConfig,
    identifier: tuple[str, ...],
    table_uuid: str,
    roots: Sequence[str],
    files: Sequence[str],
    cache_dir: Path,
    *,
    commits: Collection[str] = (),
) -> Unclaimed:
    """Return those of the files that no other table and no other metadata file refers to, by what
    they say now.

    The table's own references are not looked at: the caller knows them. Where its name names
    another table by now, or none, the table has no present state, and everybody is another. roots:
    locations that the files lie below. commits: UUIDs of commits that were never accepted; the
    metadata files that they wrote are returned too.
    """
    catalog = connect(config)
    left = Candidates([Listed(path, 0, 0) for path in files], *roots)
    try:
        table = load_table(catalog, config, identifier)
    except TableNotFoundError:
        table = None
    own = table is not None and str(table.metadata.table_uuid) == table_uuid
    io = data_file_io(config, None) if table is None else table.io
    below = (file for root in _outermost(roots) for file in files_below(io, root))
    metadata = [file.path for file in below if is_metadata(file.path)]
    name = identifier if own else ()
    # Without what was known before: everything is asked again.
    sharers = Sharers(config, catalog, name, io, cache_dir, commits=tuple(commits))
    asked, refused = _ask(sharers, left, roots, metadata, table if own else None)
    if refused:
        return Unclaimed(refused=refused, asked=asked)
    return Unclaimed(frozenset(file.path for file in left.oldest()), asked=asked)


def _ask(
    sharers: Sharers, left: Candidates, roots: Sequence[str], metadata: Sequence[str], table: Any
) -> tuple[Asked, str]:
    """Strike out what others refer to; return who was asked, and why nothing may be removed.

    metadata: the metadata files below the roots. table: whose files they are, None if it is no
    more.
    """
    log = () if table is None else (str(it.metadata_file) for it in table.metadata.metadata_log)
    history = [] if table is None else [*log, str(table.metadata_location)]
    try:
        return sharers.strike(left, roots, metadata, history), ""
    except Unasked as error:
        return NOBODY, str(error)


def _noting(metadata: list[str], listed: Iterable[Listed]) -> Iterator[Listed]:
    """Yield the files; add the paths of metadata files to the list. A table has so many files that
    all of them are not kept."""
    for file in listed:
        if is_metadata(file.path):
            metadata.append(file.path)
        yield file


def _roots(table: Any) -> list[str]:
    """Return the locations that the table writes files to."""
    paths = (table.metadata.properties.get(name) for name in PATH_PROPERTIES)
    return [str(table.metadata.location), *(str(path) for path in paths if path)]


def _outermost(roots: Sequence[str]) -> list[str]:
    """Return the locations without those that lie in another one."""
    found = [root.rstrip("/") for root in roots]
    return [
        one
        for number, one in enumerate(found)
        if not any(
            one.startswith(f"{other}/") or (one == other and other_number < number)
            for other_number, other in enumerate(found)
        )
    ]


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
    return frozenset(found)
