"""How many files rows become, how many row groups a file has, and what texts take as they are.

A row group ends at the size that the table or the plan asks for, as stored: the engine is given the
rows that take it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from reconciler.table.filetable import Float64, Int64
from reconciler.table.sample import RowGroups
from reconciler.table.schema import Schema
from reconciler.table.values import BOUND_BYTES

SLACK = 1.1
"""A row group may exceed its size by this factor before another one is counted."""

UNBOUNDED_TEXT = 28.0
"""Bytes of a string whose bounds are cut or unknown: as of a short sentence or a hash."""

IN_DICTIONARY = 0.25
"""Stored bytes of a column's texts, of those in plain encoding, below which a dictionary holds
them: compression alone leaves more."""

PAGE_ROWS = 20_000
"""Rows of a data page by default."""


def output_files(size: npt.ArrayLike, target_bytes: float) -> Int64:
    """Return the number of files that `size` bytes become, int64: whole targets, rounded.

    Files are then 2/3 to 3/2 of the target, and at least 3/4 if there are several, so that the next
    plan does not count them as small.
    """
    targets = np.asarray(size, dtype=np.float64) / max(float(target_bytes), 1.0)
    return np.maximum(1, np.floor(targets + 0.5)).astype(np.int64)


def row_groups_of(size: npt.ArrayLike, row_group_bytes: float) -> npt.NDArray[np.int64]:
    """Return the number of row groups of files of these stored bytes, int64. row_group_bytes: 0 for
    one per file."""
    if not row_group_bytes:
        return np.ones_like(np.asarray(size), dtype=np.int64)
    wanted = np.ceil(np.asarray(size, dtype=np.float64) / max(row_group_bytes * SLACK, 1.0))
    return np.maximum(1, wanted).astype(np.int64)


def row_group_rows(row_group_bytes: float, stored_row: float) -> int:
    """Return the most rows of a row group, so that files are cut into `row_groups_of` them."""
    return max(1, int(SLACK * row_group_bytes / max(stored_row, 1e-9)))


def even_row_groups(rows: int, files: int, most: int) -> list[list[int]]:
    """Return the rows of each row group of each file: equal files, equal row groups of at most
    `most` rows. Files without a row are left out."""
    found = []
    for own in _even_parts(rows, files):
        if own:
            found.append(_even_parts(own, -(-own // max(1, most))))
    return found


def _even_parts(rows: int, parts: int) -> list[int]:
    return [rows * (n + 1) // parts - rows * n // parts for n in range(parts)]


def text_row_bytes(groups: RowGroups | None, schema: Schema) -> dict[int, float] | None:
    """Return, by field id, the bytes of a row's strings and binaries in plain encoding, without
    columns that a dictionary holds; None if that is not known."""
    texts = [field.field_id for field in schema.fields if field.type in ("string", "binary")]
    if not texts:
        return {}
    rows = 0.0 if groups is None else float(groups.records.sum())
    if groups is None or not rows:
        return None
    plain = {}
    for field in (each for each in texts if each in groups.column_sizes):
        size = _plain_bytes(groups, field)
        if _stored(groups, field) >= IN_DICTIONARY * size:
            plain[field] = size / rows
    return plain


def _plain_bytes(groups: RowGroups, field_id: int) -> float:
    """Return the bytes of a column's texts in plain encoding, by the lengths of their bounds."""
    stored, known = _stored(groups, field_id), groups.columns.get(field_id)
    present = groups.records.astype(np.float64)
    if known is not None:
        present = np.maximum(present - np.maximum(known.nulls, 0), 0.0)
    if known is None or known.lower.dtype.kind != "S":
        return max(UNBOUNDED_TEXT * float(present.sum()), stored)
    bounded = known.has_lower & known.has_upper & ~known.truncated
    lengths = (np.char.str_len(known.lower) + np.char.str_len(known.upper)) / 2.0
    return max(float(_text_width(lengths, bounded) @ present), stored)


def _stored(groups: RowGroups, field_id: int) -> float:
    return float(np.maximum(groups.column_sizes[field_id], 0).sum())


def _text_width(lengths: Float64, bounded: npt.NDArray[np.bool_]) -> Float64:
    """Return the bytes of one value with its length. bounded: bounds are known and whole."""
    long = ~bounded | (lengths >= BOUND_BYTES)
    return np.where(long, UNBOUNDED_TEXT, lengths) + 4.0
