"""Position delete files as columns; a test of `test_delete_maintenance` has Spark read them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reconciler.spark.deletes import position_files

PATHS = ["file:/t/data/b.parquet", "file:/t/data/a.parquet"]
IDS = (position_files.PATH_ID, position_files.POSITION_ID)


def _file(paths: Any, positions: Any, ids: tuple[int, int] = IDS, **options: Any) -> bytes:
    """A file of another writer: its own names, and paths in any encoding."""
    fields = [
        pa.field(name, kind, metadata={position_files.FIELD_ID: str(number)})
        for name, kind, number in zip(("p", "r"), (pa.string(), pa.int64()), ids, strict=True)
    ]
    table = pa.Table.from_arrays([paths, positions], schema=pa.schema(fields))
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return bytes(sink.getvalue())


def _lists(found: Any) -> dict[str, list[int]]:
    return {path: rows.tolist() for path, rows in found.items()}


@pytest.mark.parametrize("options", [{}, {"use_dictionary": False}, {"row_group_size": 2}])
def test_rows_in_any_order_are_found_by_path(options: dict[str, Any]) -> None:
    body = _file(
        pa.array([PATHS[i] for i in (0, 1, 0, 1, 1)]), pa.array([7, 3, 7, 1, 2]), **options
    )
    found = position_files._decoded(body, 5)
    assert _lists(found) == {PATHS[0]: [7, 7], PATHS[1]: [3, 1, 2]}
    assert _lists(position_files.merged([found or {}])) == {PATHS[0]: [7], PATHS[1]: [1, 2, 3]}


def test_a_dictionary_may_hold_paths_that_no_row_has() -> None:
    codes = pa.array([0, 1, 0], pa.int32())
    dictionary = pa.array([*PATHS, "file:/t/data/c.parquet"])
    fields = [
        pa.field(name, kind, metadata={position_files.FIELD_ID: str(number)})
        for name, kind, number in zip(
            ("p", "r"), (pa.dictionary(pa.int32(), pa.string()), pa.int64()), IDS, strict=True
        )
    ]
    rows = pa.Table.from_arrays(
        [pa.DictionaryArray.from_arrays(codes, dictionary), pa.array([4, 5, 6])],
        schema=pa.schema(fields),
    )
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, store_schema=False)
    found = position_files._decoded(bytes(sink.getvalue()), 3)
    assert _lists(found) == {PATHS[0]: [4, 6], PATHS[1]: [5]}


def test_a_file_that_is_no_plain_one_is_left_to_iceberg() -> None:
    paths, rows = pa.array(PATHS), pa.array([1, 2])
    body = _file(paths, rows)
    damaged = body[:20] + bytes(8) + body[28:]
    assert position_files._decoded(body, 2) is not None
    for other in (
        b"PARE" + body[4:],  # its footer is encrypted
        body[:-1],
        _file(paths, rows, (1, 2)),  # its columns are named only
        _file(paths, pa.array([1, None])),
        _file(paths, rows, write_page_checksum=True).replace(b"a.parquet", b"c.parquet"),
    ):
        assert position_files._decoded(other, 2) is None
    assert position_files._decoded(body, 3) is None  # the manifest says otherwise
    assert position_files._decoded(damaged, 2) is None


def test_what_is_written_is_one_path_of_small_pages() -> None:
    rows = np.arange(0, 200_000, 2, dtype=np.int64)
    body = position_files.encoded({"a": "b"}, PATHS[0], rows, "zstd")
    assert _lists(position_files._decoded(body, len(rows))) == {PATHS[0]: rows.tolist()}
    footer = pq.read_metadata(pa.BufferReader(body))
    group = footer.row_group(0)
    assert (footer.num_row_groups, footer.metadata[b"a"]) == (1, b"b")
    path = group.column(0)
    assert path.statistics.min == path.statistics.max == PATHS[0]
    assert path.total_compressed_size < 2_000
    assert set(group.column(1).encodings) == {"PLAIN", "RLE"}
