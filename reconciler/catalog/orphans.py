"""Finds files below a table that nobody refers to: neither the table nor anybody else.

For plans, and again right before files are removed (`Proof`). Nothing is deleted here. Every
manifest of every snapshot is read, most of them from the cache.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog.chains import PATH_PROPERTIES, Chain, chain_of
from reconciler.catalog.listing import Resolver, files_below
from reconciler.catalog.load import connect, load_table
from reconciler.catalog.manifest_reader import ManifestReader
from reconciler.catalog.registered import PlacesKnown
from reconciler.catalog.sharers import Sharers, Unasked
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
"""Of plans; right before a removal everything is asked again."""


@dataclass(frozen=True, slots=True)
class Unclaimed:
    """paths: those of the asked files that nobody refers to. refused: why none is, "" otherwise."""

    paths: frozenset[str] = frozenset()
    refused: str = ""
    asked: Asked = NOBODY


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
    listed = list(files_below(table.io, location))
    table = load_table(catalog, config, identifier, timeout)
    if table.metadata.table_uuid != uuid or str(table.metadata.location) != location:
        return Orphans(refused="the table was created again, or moved, during the search")
    old = old_files(listed, location, search, now_ms, under_way)
    left = Candidates(old, location)
    Resolver().strike(left, _referenced(table, cache_dir))
    asked, refused = _ask(config, catalog, table, identifier, left, listed, cache_dir, timeout)
    if refused:
        return Orphans(refused=refused)
    files = left.oldest()
    more = max(0, len(files) - MOST_FILES)
    return Orphans(tuple(files[:MOST_FILES]), asked=asked, left=more)


def unclaimed(
    config: CatalogConfig,
    identifier: tuple[str, ...],
    table_uuid: str,
    files: Sequence[str],
    cache_dir: Path,
    *,
    timeout: float = 30.0,
) -> Unclaimed:
    """Return those of the files that no other table and no other metadata file refers to, by what
    they say now.

    The table's own references are not looked at: the caller knows them.
    """
    catalog = connect(config, timeout)
    table = load_table(catalog, config, identifier, timeout)
    left = Candidates([Listed(path, 0, 0) for path in files], *_roots(table))
    if str(table.metadata.table_uuid) != table_uuid:
        Resolver().strike(left, _referenced(table, cache_dir))
    listed = [file for root in _outermost(_roots(table)) for file in files_below(table.io, root)]
    asked, refused = _ask(
        config, catalog, table, identifier, left, listed, cache_dir, timeout, again=True
    )
    if refused:
        return Unclaimed(refused=refused, asked=asked)
    return Unclaimed(frozenset(file.path for file in left.oldest()), asked=asked)


def _ask(
    config: CatalogConfig,
    catalog: Any,
    table: Any,
    identifier: tuple[str, ...],
    left: Candidates,
    listed: Iterable[Listed],
    cache_dir: Path,
    timeout: float,
    *,
    again: bool = False,
) -> tuple[Asked, str]:
    """Strike out what others refer to; return who was asked, and why nothing may be removed."""
    sharers = Sharers(
        config, catalog, identifier, table.io, cache_dir, timeout, None if again else _KNOWN
    )
    metadata = [file.path for file in listed if is_metadata(file.path)]
    own = _chain(table)
    try:
        asked = sharers.strike(left, _roots(table), metadata, own, str(table.metadata_location))
    except Unasked as error:
        return Asked(), str(error)
    return asked, ""


def _chain(table: Any) -> Chain:
    """Return what the table's present metadata needs; the log is all that is asked for."""
    log = tuple(str(entry.metadata_file) for entry in table.metadata.metadata_log)
    return replace(
        chain_of({"format-version": table.metadata.format_version, "location": ""}), log=log
    )


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
