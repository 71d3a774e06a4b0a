"""Which rows have equal values, as Iceberg compares the keys of equality deletes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reconciler.rewrite import arrow
from reconciler.rewrite.deletes import Positions

MOST_CODES = 1 << 62
"""Numbers that combinations of values may have before they are numbered anew: 64 bits hold them."""
Mask = npt.NDArray[np.bool_]


def equal_to(values: Sequence[pa.ChunkedArray], keys: Sequence[pa.ChunkedArray]) -> Mask:
    """Return which rows have a key: NULL is equal to NULL, NaN to NaN, a zero to one of the same
    sign, as in Iceberg's Java readers."""
    rows = len(values[0])
    both = [[*own.chunks, *key.chunks] for own, key in zip(values, keys, strict=True)]
    codes = numbers_of_rows(both, rows + len(keys[0]))
    return np.isin(codes[:rows], codes[rows:])


def numbers_of_rows(columns: Iterable[Sequence[pa.Array]], rows: int) -> Positions:
    """Return a number for each row, equal for rows with equal values in all columns."""
    codes, size = np.zeros(rows, dtype=np.int64), 1
    for chunks in columns:
        numbers, found = _numbered(chunks)
        if size * found >= MOST_CODES:
            _, codes = np.unique(codes, return_inverse=True)
            size = int(codes.max(initial=0)) + 1
        codes, size = codes * found + numbers, size * found
    return codes


def _numbered(chunks: Sequence[pa.Array]) -> tuple[Positions, int]:
    """Return a number for each value, equal for equal values, and how many there are."""
    if not chunks:
        return np.zeros(0, dtype=np.int64), 1
    if any(pa.types.is_dictionary(chunk.type) for chunk in chunks):
        encoded = arrow.one_piece(pa.chunked_array(map(_encoded, chunks)))
    else:
        encoded = arrow.one_piece(pa.chunked_array(map(_comparable, chunks))).dictionary_encode()
    numbers = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy(zero_copy_only=False)
    return numbers.astype(np.int64), len(encoded.dictionary) + 1


def _encoded(chunk: pa.Array) -> pa.Array:
    return chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()


def _comparable(chunk: pa.Array) -> pa.Array:
    """Return floats as their bits, one NaN for all of them: zeros of different signs differ."""
    if not pa.types.is_floating(chunk.type):
        return chunk
    wide = chunk.type.bit_width == 64
    values = chunk.fill_null(0.0).to_numpy(zero_copy_only=False).copy()
    values[np.isnan(values)] = np.nan
    bits = values.view(np.int64 if wide else np.int32).astype(np.int64)
    return pa.array(bits, mask=chunk.is_null().to_numpy(zero_copy_only=False))
