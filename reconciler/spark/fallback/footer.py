"""The footer of a Parquet file, read by the driver through the table's own FileIO."""

from __future__ import annotations

from typing import Any

from reconciler.table.parquet_schema import TRAILER_BYTES

TAIL_BYTES = 1 << 18
"""Bytes at a file's end that are read first: most footers are shorter."""


def footer_of(table: Any, path: str, size: int) -> Any:
    """Return pyarrow's FileMetaData of a file of so many bytes; None if it is no Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    end = tail_of(table, path, size, TAIL_BYTES)
    needed = TRAILER_BYTES + int.from_bytes(end[-TRAILER_BYTES : -TRAILER_BYTES // 2], "little")
    if len(end) < needed <= size:
        end = tail_of(table, path, size, needed)
    try:
        return pq.read_metadata(pa.BufferReader(end))
    except (pa.ArrowException, OSError):
        return None


def tail_of(table: Any, path: str, size: int, wanted: int) -> bytes:
    """Return the file's last `wanted` bytes, or all of it."""
    stream = table.io().newInputFile(path).newStream()
    try:
        stream.seek(max(0, size - wanted))
        return bytes(stream.readAllBytes())
    finally:
        stream.close()
