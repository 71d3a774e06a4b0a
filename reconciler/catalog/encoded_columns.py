"""Encodes columns as the Parquet writer stores them, in memory: what an order of rows costs.

Values come from a column's domain (`domain_array`) and are written in the type in which Iceberg
stores the column. Page headers count as data; the dictionary does not, as no order changes it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from reconciler.table.filetable import Array, Bool, Int64
from reconciler.table.row_group_bytes import PAGE_ROWS
from reconciler.table.sample import DataBytes, RowSample
from reconciler.table.schema import Field
from reconciler.table.values import Kind

LEVEL = 3
"""Level of zstd, Iceberg's default codec, in the Java writer."""


def encoder(rows: RowSample, fields: Sequence[Field]) -> DataBytes:
    """Return what encodes these rows of the fields in any order."""
    names = {field.field_id: str(field.field_id) for field in fields}
    table = pa.table(
        {
            names[field.field_id]: _stored_as(
                field, rows.values[field.field_id], rows.null[field.field_id]
            )
            for field in fields
        }
    )

    def data_bytes(order: Int64, wanted: Sequence[int], plain: frozenset[int]) -> dict[int, int]:
        coded = [names[field_id] for field_id in wanted if field_id not in plain]
        columns = table.select([names[field_id] for field_id in wanted])
        sink = pa.BufferOutputStream()
        pq.write_table(
            columns.take(pa.array(order)), sink, compression="zstd", compression_level=LEVEL,
            use_dictionary=coded, write_statistics=False, row_group_size=max(len(order), 1),
            store_schema=False, max_rows_per_page=PAGE_ROWS, write_page_checksum=True,
        )  # fmt: skip
        group = pq.ParquetFile(pa.BufferReader(sink.getvalue())).metadata.row_group(0)
        return {
            field_id: _data_bytes(group.column(number))
            for number, field_id in enumerate(wanted)
        }  # fmt: skip

    return data_bytes


def _data_bytes(chunk: pq.ColumnChunkMetaData) -> int:
    dictionary = 0
    if chunk.has_dictionary_page and chunk.dictionary_page_offset is not None:
        dictionary = chunk.data_page_offset - chunk.dictionary_page_offset
    return int(chunk.total_compressed_size - dictionary)


def _stored_as(field: Field, values: Array, null: Bool) -> pa.Array:
    mask = np.ascontiguousarray(null)
    if field.type == "boolean":
        return pa.array(values.astype(bool), mask=mask)
    if field.type == "float":
        return pa.array(values.astype(np.float32), mask=mask)
    if field.kind is Kind.FLOAT:
        return pa.array(values, mask=mask)
    if field.kind is Kind.INT:
        digits = int(field.type[8:].partition(",")[0]) if field.type.startswith("decimal") else 18
        short = field.type in ("int", "date") or digits <= 9
        return pa.array(values.astype(np.int32 if short else np.int64), mask=mask)
    return pa.array(values.tolist(), type=pa.binary(), mask=mask)
