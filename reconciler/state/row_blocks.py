"""Blocks of rows that are stored next to each other: read once, kept like sketches.

A few files show how far values repeat from one row to the next, and what another order costs. The
row group that is read is the smallest one of its file with enough rows, over all columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reconciler.catalog.encoded_columns import encoder
from reconciler.catalog.sketch_reader import Sketch, block_of
from reconciler.state.sketch import (
    SketchedFiles,
    decode_sketch,
    encode_sketch,
    pooled,
    sampled_files,
)
from reconciler.table.filetable import Int64
from reconciler.table.sample import RowBlocks, RowGroups
from reconciler.table.schema import Field

BLOCKS = 4
BLOCK_ROWS = 4_096
MOST_COLUMNS = 256
"""Columns of the blocks: further ones are taken to keep their bytes."""

MARK = "#block"
"""Added to a file's path where its block is kept beside its sketch."""


@dataclass(frozen=True)
class SampledBlocks:
    """Blocks of rows that were read or kept."""

    blocks: RowBlocks | None
    """The blocks; None if the budget does not pay for one."""
    bytes_read: int
    """Bytes of column chunks that were read now."""


def sample_blocks(
    table: SketchedFiles, columns: Sequence[int], *, budget: int, footers: RowGroups, now_ms: int
) -> SampledBlocks:
    """Return blocks of up to BLOCKS files, spread over the files that a sample reads. Blocks that
    are read now are kept.

    columns: the ones that matter most first. budget: most bytes of column chunks to read. footers:
    of the files of `sampled_files`.
    """
    files = table.files
    known = [files.schema.by_id[c] for c in columns if c in files.schema.by_id]
    fields = [field for field in known if field.kind is not None][:MOST_COLUMNS]
    chosen = _spread(sampled_files(files), footers)
    paths = {int(file): f"{files.path[file]}{MARK}" for file in chosen}
    kept = _kept(table, list(paths.values()), fields)
    blocks: dict[int, Sketch] = {}
    read, fresh = 0, {}
    for file, path in paths.items():
        if path in kept:
            blocks[file] = kept[path]
            continue
        number, size = _group_of(file, footers, fields)
        if read + size > budget:
            continue
        blocks[file] = block_of(
            table.io, str(files.path[file]), files.schema, fields, number, BLOCK_ROWS, now_ms
        )
        fresh[path] = encode_sketch(blocks[file])
        read += size
    if fresh and table.store is not None:
        table.store.put_sketches(table.table_uuid, fresh)
    if not blocks or not fields:
        return SampledBlocks(None, read)
    rows = pooled(files, np.array(list(blocks), dtype=np.int64), list(blocks.values()), fields)
    starts = np.flatnonzero(np.diff(rows.file, prepend=-1)).astype(np.int64)
    return SampledBlocks(RowBlocks(rows, starts, encoder(rows, fields)), read)


def _spread(files: Int64, footers: RowGroups) -> Int64:
    """Return up to BLOCKS of the files that have a row group with rows, spread evenly."""
    filled = np.unique(footers.file[footers.records > 0])
    known = files[np.isin(files, filled)]
    if len(known) <= BLOCKS:
        return known
    places = ((np.arange(BLOCKS) + 0.5) * len(known) / BLOCKS).astype(np.int64)
    return known[places]


def _group_of(file: int, footers: RowGroups, fields: Sequence[Field]) -> tuple[int, int]:
    """Return the file's smallest row group of at least BLOCK_ROWS rows, else its largest: its
    number in the file, and the bytes of the fields' chunks."""
    mine = np.flatnonzero(footers.file == file)
    enough = mine[footers.records[mine] >= BLOCK_ROWS]
    records = footers.records
    best = enough[np.argmin(records[enough])] if len(enough) else mine[np.argmax(records[mine])]
    size = sum(
        max(int(footers.column_sizes[field.field_id][best]), 0)
        for field in fields
        if field.field_id in footers.column_sizes
    )
    return int(best - mine[0]), size


def _kept(table: SketchedFiles, paths: Sequence[str], fields: Sequence[Field]) -> dict[str, Sketch]:
    found: dict[str, Sketch] = {}
    if table.store is None:
        return found
    for path, blobs in table.store.sketches(table.table_uuid, paths).items():
        for blob in blobs:
            sketch = decode_sketch(blob)
            if sketch is not None and all(
                sketch.types.get(field.field_id) == field.type for field in fields
            ):
                found[path] = sketch
    return found
