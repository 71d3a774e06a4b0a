"""Reads the row groups of chosen data files from their Parquet footers, and nothing else of a
file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog.load import data_file_io, translate_io
from reconciler.catalog.network import carried
from reconciler.catalog.parquet import (
    Leaf,
    chunk_sizes,
    dictionary_sizes,
    domain_bound,
    leaves_by_id,
    open_parquet,
    unit_of,
)
from reconciler.table.filetable import UNKNOWN, ColumnBounds, FileTable, Int64
from reconciler.table.sample import RowGroups
from reconciler.table.schema import Field, Schema
from reconciler.table.values import BOUND_BYTES, Kind, Scalar

if TYPE_CHECKING:
    import pyarrow.parquet as pq
    from pyiceberg.io import FileIO

READERS = 16
MISSING_DATA_FILE = (
    "restore the file, or remove it from the table with the engine that writes it; "
    "nothing was changed"
)


@dataclass(frozen=True, slots=True)
class ChunkStats:
    """The footer's statistics of one column chunk."""

    lower: Scalar | None
    """Lower bound in the column's domain; None if the footer has none."""
    upper: Scalar | None
    """Upper bound in the column's domain; None if the footer has none."""
    nulls: int
    """Number of NULL values."""
    values: int
    """Number of values, NULL included."""
    cut: bool
    """Whether a bound is as long as bounds are kept, and may be cut off."""


@dataclass(frozen=True, slots=True)
class GroupStats:
    """The footer's facts of one row group."""

    records: int
    """Number of rows."""
    sizes: dict[int, int]
    """Compressed bytes of the column chunk, by field id."""
    dictionaries: dict[int, int]
    """Stored bytes of the dictionary page, by field id."""
    chunks: dict[int, ChunkStats]
    """Statistics of the column chunk, by field id."""


@dataclass(frozen=True, slots=True)
class Footer:
    """The footer of one file."""

    size: int
    """Its bytes, with length and magic number."""
    groups: tuple[GroupStats, ...]
    """Statistics of each row group."""


def read_row_groups(
    config: CatalogConfig,
    files: FileTable,
    rows: Int64,
    *,
    identifier: tuple[str, ...] | None = None,
    timeout: float = 30.0,
) -> RowGroups:
    """Return the row groups of the files at `rows` (row numbers of the file table, any order).

    Files that are not Parquet are left out: they have no row groups to skip. identifier: the table,
    if its files need credentials of their own.
    """
    chosen = np.unique(np.asarray(rows, dtype=np.int64))
    chosen = chosen[files.parquet[chosen]]
    io = data_file_io(config, identifier, timeout)
    if not len(chosen):
        return _assemble(files, [], [])
    with ThreadPoolExecutor(min(READERS, len(chosen))) as pool:
        footers = list(
            pool.map(
                carried(lambda row: read_footer(io, str(files.path[row]), files.schema)), chosen
            )
        )
    return _assemble(files, chosen.tolist(), footers)


def read_footer(io: FileIO, path: str, schema: Schema) -> Footer:
    """Return one file's footer, with statistics of the schema's columns only."""
    with translate_io(f'the data file "{path}"', MISSING_DATA_FILE), open_parquet(io, path) as file:
        return footer_of(file, leaves_by_id(file.schema_arrow, schema), schema.fields)


def footer_of(file: pq.ParquetFile, leaves: Mapping[int, Leaf], fields: Sequence[Field]) -> Footer:
    """Return the footer of an open file: sizes of the given leaves, statistics of the given
    fields."""
    metadata = file.metadata
    judged = [
        (field, leaves[field.field_id], unit_of(file.schema.column(leaves[field.field_id].index)))
        for field in fields
        if field.kind is not None
        and field.field_id in leaves
        and not leaves[field.field_id].repeated
    ]
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    return Footer(
        metadata.serialized_size + 8,
        tuple(
            GroupStats(
                group.num_rows,
                chunk_sizes(group, leaves),
                dictionary_sizes(group, leaves),
                {field.field_id: _chunk(group, field, leaf, unit) for field, leaf, unit in judged},
            )
            for group in groups
        ),
    )


def _chunk(group: Any, field: Field, leaf: Leaf, unit: str) -> ChunkStats:
    column = group.column(leaf.index)
    stats = column.statistics
    if stats is None:
        return ChunkStats(None, None, UNKNOWN, column.num_values, False)
    nulls = stats.null_count if stats.has_null_count else UNKNOWN
    if not stats.has_min_max:
        return ChunkStats(None, None, nulls, column.num_values, False)
    lower = domain_bound(field, stats.min_raw, unit, upper=False)
    upper = domain_bound(field, stats.max_raw, unit, upper=True)
    # Writers may shorten long values in statistics; short ones are exact.
    ends = (stats.min_raw, stats.max_raw)
    cut = any(isinstance(raw, bytes) and len(raw) >= BOUND_BYTES for raw in ends)
    return ChunkStats(lower, upper, nulls, column.num_values, cut)


def _assemble(files: FileTable, chosen: list[int], footers: Sequence[Footer]) -> RowGroups:
    groups = [group for footer in footers for group in footer.groups]
    counts = [len(footer.groups) for footer in footers]
    footer_bytes = np.full(len(files), UNKNOWN, dtype=np.int64)
    has_footer = np.zeros(len(files), dtype=bool)
    if chosen:
        footer_bytes[chosen] = [footer.size for footer in footers]
        has_footer[chosen] = True
    size_ids = sorted({field_id for group in groups for field_id in group.sizes})
    return RowGroups(
        file=np.repeat(np.array(chosen, dtype=np.int64), counts),
        records=np.array([group.records for group in groups], dtype=np.int64),
        columns={
            field.field_id: zone_map(field, groups)
            for field in files.schema.fields
            if field.kind is not None and any(field.field_id in group.chunks for group in groups)
        },
        column_sizes={
            field_id: np.array(
                [group.sizes.get(field_id, UNKNOWN) for group in groups], dtype=np.int64
            )
            for field_id in size_ids
        },
        dictionary={
            field_id: np.array(
                [group.dictionaries.get(field_id, UNKNOWN) for group in groups], dtype=np.int64
            )
            for field_id in size_ids
        },
        footer_bytes=footer_bytes,
        has_footer=has_footer,
    )


_FILLERS: dict[Kind, tuple[Scalar, type[np.generic]]] = {
    Kind.INT: (0, np.int64),
    Kind.FLOAT: (0.0, np.float64),
    Kind.BYTES: (b"", np.bytes_),
}
_ABSENT = ChunkStats(None, None, UNKNOWN, UNKNOWN, False)


def zone_map(field: Field, groups: Sequence[GroupStats]) -> ColumnBounds:
    """Return bounds and counts of one column by row group; what the footers lack is unknown."""
    chunks = [group.chunks.get(field.field_id, _ABSENT) for group in groups]
    kind = field.kind
    assert kind is not None
    filler, dtype = _FILLERS[kind]
    return ColumnBounds(
        field_id=field.field_id,
        kind=kind,
        lower=np.array([filler if c.lower is None else c.lower for c in chunks], dtype=dtype),
        upper=np.array([filler if c.upper is None else c.upper for c in chunks], dtype=dtype),
        has_lower=np.array([c.lower is not None for c in chunks], dtype=bool),
        has_upper=np.array([c.upper is not None for c in chunks], dtype=bool),
        nulls=np.array([c.nulls for c in chunks], dtype=np.int64),
        nans=np.full(len(chunks), UNKNOWN, dtype=np.int64),
        values=np.array([c.values for c in chunks], dtype=np.int64),
        sizes=np.array(
            [group.sizes.get(field.field_id, UNKNOWN) for group in groups], dtype=np.int64
        ),
        truncated=np.array([c.cut for c in chunks], dtype=bool),
    )
