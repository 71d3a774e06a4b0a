"""Observes a table: its metadata and its file table, with manifests decoded once and cached.

Reads the catalog's pointer, the metadata file, the manifest list and the manifests that the cache
does not hold; no data file. Every decision about a table starts from the `Observation` returned
here.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog.assemble import FileTableParts, assemble
from reconciler.catalog.avro import Container, CorruptContainer, decode_together, parse_container
from reconciler.catalog.deletes import apply_deletes
from reconciler.catalog.failures import said
from reconciler.catalog.load import connect, load_table, translate_io
from reconciler.catalog.manifest import (
    Entries,
    concatenate,
    entries_of,
    entry_schema,
    partition_columns,
)
from reconciler.catalog.metadata import (
    ancestry_of,
    refs_of,
    schema_of,
    sort_order_of,
    sort_terms_of,
    specs_of,
)
from reconciler.catalog.network import carried
from reconciler.catalog.recent import recent_writes
from reconciler.catalog.segment import Key, ManifestCache
from reconciler.errors import FileMissingError, TableDamagedError
from reconciler.table.observation import Observation
from reconciler.table.values import BOUND_BYTES

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.io import FileIO, InputFile
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table

HOUR_MS = 3_600_000
READERS = 8
"""Manifests fetched in parallel: on an object store the time is latency."""

LOOKS = 3
"""Times that a table is read at most when another writer expires what is being read."""

UNCUT = 1 << 16

ROWS_AT_ONCE = 16_384
"""Entries decoded together: bounds the memory of observing a very large table."""


def observe_table(
    config: CatalogConfig,
    identifier: tuple[str, ...],
    cache_dir: Path,
    *,
    timeout: float = 30.0,
    recent_ms: int = HOUR_MS,
    now_ms: int | None = None,
) -> Observation:
    """Return the table at its current snapshot.

    cache_dir: root of the manifest cache. timeout: seconds for the catalog to answer. recent_ms:
    how far back other writers' overwrites and deletes are searched, from now_ms (default: the
    clock).
    """
    return observe_with(
        connect(config, timeout), config, identifier, cache_dir,
        timeout=timeout, recent_ms=recent_ms, now_ms=now_ms,
    )  # fmt: skip


def observe_with(
    catalog: Catalog,
    config: CatalogConfig,
    identifier: tuple[str, ...],
    cache_dir: Path,
    *,
    timeout: float = 30.0,
    recent_ms: int = HOUR_MS,
    now_ms: int | None = None,
) -> Observation:
    """As `observe_table`, over a connection that is there.

    A manifest that was removed after the table's metadata was read is no damage if the metadata has
    a successor: the table is read again.
    """
    table = load_table(catalog, config, identifier, timeout)
    for last in (False,) * (LOOKS - 1) + (True,):
        try:
            return observe_loaded(
                table, config.name, identifier, cache_dir, recent_ms=recent_ms, now_ms=now_ms
            )
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
    recent_ms: int = HOUR_MS,
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
    files, deletes = assemble(parts, entries)
    files, load = apply_deletes(files, deletes, specs)
    since = (int(time.time() * 1000) if now_ms is None else now_ms) - recent_ms
    writes = recent_writes(reader, ancestry, specs, since)
    reader.tidy()
    order, order_text = sort_order_of(metadata, schema)
    snapshot = ancestry[0] if ancestry else None
    return Observation(
        catalog=catalog,
        identifier=identifier,
        uuid=str(metadata.table_uuid),
        format_version=int(metadata.format_version),
        location=metadata.location,
        metadata_location=table.metadata_location,
        properties=dict(metadata.properties),
        snapshot_id=snapshot.snapshot_id if snapshot else None,
        snapshot_ms=snapshot.timestamp_ms if snapshot else int(metadata.last_updated_ms),
        sequence_number=int(getattr(metadata, "last_sequence_number", 0) or 0),
        sort_order_id=metadata.default_sort_order_id,
        sort_order=order,
        sort_order_text=order_text,
        sort_terms=sort_terms_of(metadata),
        refs=refs_of(metadata),
        ancestry=ancestry,
        other_snapshots=others,
        files=files,
        deletes=load,
        recent_writes=writes,
        manifests=len(manifests),
        manifests_read=reader.read,
        bytes_read=reader.bytes_read,
        seconds=time.perf_counter() - started,
    )


def manifest_info(manifest: ManifestFile) -> tuple[int, int, int]:
    """Return (spec id, sequence number, snapshot id) that entries inherit from their manifest."""
    return (
        int(manifest.partition_spec_id),
        int(manifest.sequence_number or 0),
        int(manifest.added_snapshot_id or 0),
    )


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
        with translate_io(f'the manifest list "{snapshot.manifest_list}"', CORRUPT_LIST):
            return list(snapshot.manifests(cast("FileIO", _CheckedInputs(self._io))))

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
                data = bytes(stream.read())
            self.bytes_read += len(data)
            return data


def _parse(path: str, data: bytes) -> Container:
    """Parse outside the readers' threads: many tiny decompressions would only compete for the
    lock."""
    with translate_io(f'the manifest "{path}"', CORRUPT_MANIFEST):
        return parse_container(data)


class _CheckedInputs:
    """Avro files for pyiceberg whose containers were checked before.

    pyiceberg's decoder is native code, and random bytes can end the process.
    """

    def __init__(self, io: FileIO) -> None:
        self._io = io

    def new_input(self, location: str) -> _CheckedInput:
        return _CheckedInput(self._io.new_input(location))


@dataclass(frozen=True)
class _CheckedInput:
    file: InputFile

    def open(self, seekable: bool = True) -> BytesIO:
        with self.file.open(seekable) as stream:
            data = bytes(stream.read())
        parse_container(data)
        return BytesIO(data)


CORRUPT_MANIFEST = (
    "restore the file from a backup or a replica, or roll the table back to a snapshot that does "
    "not need it; nothing was changed"
)
CORRUPT_LIST = "restore the file, or roll the table back to another snapshot; nothing was changed"


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
