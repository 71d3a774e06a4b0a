"""Reads the manifests of a table: from the cache, else through its FileIO, decoded together."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconciler.catalog import bounds
from reconciler.catalog.avro import Container, CorruptContainer, decode_together, parse_container
from reconciler.catalog.checked_avro import CheckedInput
from reconciler.catalog.entries import Entries, concatenate
from reconciler.catalog.failures import said
from reconciler.catalog.load import translate_io
from reconciler.catalog.manifest import entries_of, entry_schema, partition_columns
from reconciler.catalog.network import carried
from reconciler.catalog.segment import Key, ManifestCache
from reconciler.errors import TableDamagedError
from reconciler.table.values import BOUND_BYTES

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table

READERS = 8
"""Manifests fetched in parallel: on an object store the time is latency."""

UNCUT = 1 << 16

ROWS_AT_ONCE = 16_384
"""Entries decoded together: bounds the memory of observing a very large table."""

CORRUPT_MANIFEST = (
    "restore the file from a backup or a replica, or roll the table back to a snapshot that does "
    "not need it; nothing was changed"
)
CORRUPT_LIST = "restore the file, or roll the table back to another snapshot; nothing was changed"


class ManifestReader:
    """Reads manifests of one table through its FileIO and the cache, and counts what it read."""

    def __init__(self, table: Table, cache_dir: Path):
        self._io = table.io
        self._metadata = table.metadata
        self._cache = ManifestCache(cache_dir, str(table.metadata.table_uuid))
        self.read = 0
        self.bytes_read = 0

    def manifests_of(self, snapshot_id: int | None) -> list[ManifestFile]:
        """Return the snapshot's manifest list, [] for a table without snapshots."""
        if snapshot_id is None or snapshot_id == -1:
            return []
        snapshot = self._metadata.snapshot_by_id(snapshot_id)
        if snapshot is None:
            return []
        return self.manifests_in(snapshot.manifest_list)

    def manifests_in(self, path: str) -> list[ManifestFile]:
        """Return the manifests that a manifest list names, whichever table's it is."""
        from reconciler.catalog.manifest_list import manifests_in

        with translate_io(f'the manifest list "{path}"', CORRUPT_LIST):
            return manifests_in(CheckedInput(self._io.new_input(path)))

    def entries(self, manifests: Sequence[ManifestFile]) -> Entries | None:
        """Return all entries of the manifests, those of status 2 (deleted) included; None without
        any."""
        keys = [(m.manifest_path, int(m.manifest_length)) for m in manifests]
        if not keys:
            return None
        cached = self._cache.load(keys)
        known = set(cached.manifests) if cached else set()
        fresh = self._decode([key for key in keys if key not in known])
        parts = [part for part in (cached, fresh) if part is not None]
        live = concatenate(parts)
        if fresh is not None:
            self._cache.store(fresh)
        return live

    def tidy(self) -> None:
        """Keep the cache small; called once per observation, when all its manifests are known."""
        if self.read:
            self._cache.tidy()

    def _decode(self, keys: Sequence[Key]) -> Entries | None:
        """Decode manifests that are not cached, grouped by schema and decoded together."""
        if not keys:
            return None
        with ThreadPoolExecutor(min(READERS, len(keys))) as pool:
            files = list(pool.map(carried(self._fetch), keys))
        self.read += len(keys)
        groups: dict[tuple[str, Any, bool], list[tuple[Key, Container]]] = {}
        for key, data in zip(keys, files, strict=True):
            container = _parse(key[0], data)
            deletes = container.metadata.get("content") == b"deletes"
            shape = (entry_schema(container), partition_columns(container), deletes)
            groups.setdefault(shape, []).append((key, container))
        parts = [
            _decode_group(schema, columns, deletes, batch)
            for (schema, columns, deletes), members in groups.items()
            for batch in _batches(members)
        ]
        return concatenate(parts)

    def _fetch(self, key: Key) -> bytes:
        path = key[0]
        with translate_io(f'the manifest "{path}"', CORRUPT_MANIFEST):
            with self._io.new_input(path).open() as stream:
                data = bounds.read(stream, f'the manifest "{path}"')
            self.bytes_read += len(data)
            return data


def _parse(path: str, data: bytes) -> Container:
    """Parse outside the readers' threads: many tiny decompressions would only compete for the
    lock."""
    with translate_io(f'the manifest "{path}"', CORRUPT_MANIFEST):
        return parse_container(data, f'the manifest "{path}"')


def _batches(members: list[tuple[Key, Container]]) -> list[list[tuple[Key, Container]]]:
    """Return runs of manifests with about ROWS_AT_ONCE entries together."""
    batches: list[list[tuple[Key, Container]]] = [[]]
    rows = 0
    for member in members:
        if rows and rows + member[1].rows > ROWS_AT_ONCE:
            batches.append([])
            rows = 0
        batches[-1].append(member)
        rows += member[1].rows
    return batches


def _decode_group(
    schema: str, columns: Any, deletes: bool, members: list[tuple[Key, Container]]
) -> Entries:
    """Return manifests of one schema as arrays; if that fails, raise an error that names the bad
    one.

    Delete files are matched by their exact path bounds, so their bounds are not cut.
    """
    keys, containers = [key for key, _ in members], [container for _, container in members]
    rows = [container.rows for container in containers]
    cap = UNCUT if deletes else BOUND_BYTES
    try:
        table = decode_together(schema, containers)
        if table.num_rows != sum(rows):
            raise CorruptContainer(f"{table.num_rows} of {sum(rows)} entries could be decoded")
        return entries_of(table, keys, rows, columns, cap)
    except Exception as error:
        if len(members) > 1:
            return concatenate(
                [_decode_group(schema, columns, deletes, [member]) for member in members]
            )
        raise TableDamagedError(
            f'the manifest "{keys[0][0]}" cannot be decoded',
            details=(said(error),),
            do=CORRUPT_MANIFEST,
        ) from error
