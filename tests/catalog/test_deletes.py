"""Delete load follows the specification's rules on sequence numbers, scope and vectors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from reconciler.catalog.assemble import DeleteFiles, no_entries
from reconciler.catalog.deletes import AppliedDeletes, apply_deletes
from reconciler.catalog.entries import NULL, Entries, FieldStats, RawBounds
from reconciler.table.deletes import PATH_ID, LiveRows, equality_deleted, live_rows
from reconciler.table.filetable import FileTable
from reconciler.table.observation import DeleteLoad
from reconciler.table.schema import PartitionField, PartitionSpec, Schema

SPECS = {
    0: PartitionSpec(0),
    1: PartitionSpec(1, (PartitionField(1, 1000, "identity", "p"),)),
}


def texts(values: list[str]) -> Any:
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out


def data_files(*rows: tuple[str, int, Any, int, int]) -> FileTable:
    """(path, spec id, partition value, sequence number, records) per file."""
    partitions: dict[tuple[int, tuple[Any, ...]], int] = {}
    index = [
        partitions.setdefault((spec, () if spec == 0 else (value,)), len(partitions))
        for _, spec, value, _, _ in rows
    ]
    count = len(rows)
    zeros = np.zeros(count, dtype=np.int64)
    return FileTable(
        schema=Schema(0, ()),
        specs=SPECS,
        default_spec_id=0,
        path=texts([row[0] for row in rows]),
        spec_id=np.array([row[1] for row in rows], dtype=np.int32),
        partition=np.array(index, dtype=np.int32),
        partitions=tuple(partitions),
        records=np.array([row[4] for row in rows], dtype=np.int64),
        bytes=zeros,
        sequence=np.array([row[3] for row in rows], dtype=np.int64),
        added_ms=zeros,
        layout_written=zeros.astype(bool),
        sort_order_id=zeros,
        parquet=~zeros.astype(bool),
        encrypted=zeros.astype(bool),
        position_deleted=zeros,
        delete_files=zeros,
        delete_bytes=zeros,
        equality_deletes=zeros,
        newest_delete=zeros - 1,
    )


def delete_files(*rows: dict[str, Any]) -> DeleteFiles:
    """Keys: content, spec, value, sequence, records, bytes, referenced, vector (blob size), paths
    (lower and upper bound)."""
    count = len(rows)
    longest = max([len(p) for row in rows for p in row.get("paths", ())], default=1)

    def bounds(side: int) -> RawBounds:
        data = np.zeros((count, longest), dtype=np.uint8)
        length = np.full(count, -1, dtype=np.int32)
        for number, row in enumerate(rows):
            if "paths" in row:
                raw = row["paths"][side].encode()
                data[number, : len(raw)] = np.frombuffer(raw, dtype=np.uint8)
                length[number] = len(raw)
        return RawBounds(data, length)

    def longs(key: str, default: int) -> Any:
        return np.array([row.get(key, default) for row in rows], dtype=np.int64)

    empty = no_entries()
    entries: Entries = replace(
        empty,
        path=texts([f"delete-{n}" for n in range(count)]),
        content=longs("content", 1),
        parquet=np.ones(count, dtype=np.bool_),
        records=longs("records", 1),
        bytes=longs("bytes", 100),
        referenced=texts([row.get("referenced", "") for row in rows]),
        content_offset=longs("offset", NULL),
        content_bytes=longs("vector", NULL),
        stats={PATH_ID: FieldStats(lower=bounds(0), upper=bounds(1))},
    )
    return DeleteFiles(
        entries,
        spec_id=np.array([row.get("spec", 0) for row in rows], dtype=np.int32),
        sequence=longs("sequence", 5),
        snapshot=longs("snapshot", 1),
        partition=tuple((row["value"],) if row.get("spec") else () for row in rows),
    )


def applied(files: FileTable, deletes: DeleteFiles) -> tuple[FileTable, DeleteLoad]:
    found = apply_deletes(files, deletes, SPECS)
    _readers_rule(found)
    return found.files, found.load


def _readers_rule(found: AppliedDeletes) -> None:
    """Each delete file by itself says what the totals per data file say."""
    reached = [found.deletes.reaches(row, found.files) for row in range(len(found.deletes))]
    assert [not len(rows) for rows in reached] == found.deletes.dangling.tolist()
    equality = np.zeros(len(found.files), dtype=np.int64)
    for rows in (reached[row] for row in np.flatnonzero(found.deletes.equality)):
        equality[rows] += 1
    assert equality.tolist() == found.files.equality_deletes.tolist()


def test_position_deletes_reach_older_and_equally_old_files_of_their_partition() -> None:
    files = data_files(
        ("a", 1, 1, 4, 30), ("b", 1, 1, 5, 10), ("c", 1, 1, 6, 10), ("d", 1, 2, 4, 10),
        ("e", 0, None, 4, 10),
    )  # fmt: skip
    seen, load = applied(files, delete_files({"spec": 1, "value": 1, "sequence": 5, "records": 8}))
    assert seen.delete_files.tolist() == [1, 1, 0, 0, 0]
    assert seen.position_deleted.tolist() == [6, 2, 0, 0, 0]
    assert seen.delete_bytes.tolist() == [100, 100, 0, 0, 0]
    assert seen.equality_deletes.sum() == 0
    assert (load.position_files, load.position_rows, load.files) == (1, 8, 1)


def test_path_bounds_narrow_the_rows_of_a_position_delete_but_not_who_opens_it() -> None:
    """Equal bounds name one file."""
    files = data_files(*((name, 0, None, 1, 10) for name in "abcd"))
    seen, _ = applied(
        files,
        delete_files({"paths": ("b", "c"), "records": 4}, {"paths": ("d", "d"), "records": 3}),
    )
    assert seen.delete_files.tolist() == [1, 1, 1, 2]
    assert seen.newest_delete.tolist() == [5, 5, 5, 5]
    assert seen.position_deleted.tolist() == [0, 2, 2, 3]


def test_a_named_file_that_is_newer_or_gone_is_not_touched() -> None:
    files = data_files(("a", 0, None, 9, 10))
    seen, load = applied(
        files, delete_files({"referenced": "a"}, {"referenced": "gone", "sequence": 99})
    )
    assert seen.delete_files.tolist() == [0]
    assert load.position_files == 2


def test_a_vector_replaces_the_position_deletes_of_its_file() -> None:
    files = data_files(("a", 0, None, 1, 10), ("b", 0, None, 1, 10))
    seen, load = applied(
        files,
        delete_files(
            {"referenced": "a", "records": 2},
            {"paths": ("a", "b"), "records": 4},
            {"referenced": "a", "records": 5, "vector": 7, "bytes": 1000, "sequence": 6},
        ),
    )
    assert seen.position_deleted.tolist() == [5, 4]
    assert seen.delete_files.tolist() == [1, 1]
    assert seen.delete_bytes.tolist() == [7, 100]
    assert (load.vectors, load.vector_rows, load.position_files) == (1, 5, 2)
    assert load.partition_files == 1


def test_equality_deletes_reach_strictly_older_files_and_all_partitions_when_global() -> None:
    files = data_files(
        ("a", 1, 1, 4, 10), ("b", 1, 1, 5, 10), ("c", 1, 2, 4, 10), ("d", 0, None, 4, 10)
    )
    partitioned = {"content": 2, "spec": 1, "value": 1, "sequence": 5}
    seen, load = applied(files, delete_files(partitioned))
    assert seen.equality_deletes.tolist() == [1, 0, 0, 0]
    assert seen.position_deleted.sum() == 0
    everywhere = {"content": 2, "spec": 0, "sequence": 5}
    seen, load = applied(files, delete_files(partitioned, everywhere))
    assert seen.equality_deletes.tolist() == [2, 0, 1, 1]
    assert seen.delete_files.tolist() == [2, 0, 1, 1]
    assert load.equality_files == 2


def test_more_deleted_rows_than_rows_are_capped() -> None:
    files = data_files(("a", 0, None, 1, 3))
    seen, _ = applied(files, delete_files({"referenced": "a", "records": 9}))
    assert seen.position_deleted.tolist() == [3]


def test_deletes_that_no_live_file_matches_dangle() -> None:
    """Also where a file of the right partition is too new, and not where a delete is global."""
    files = data_files(("a", 1, 1, 7, 10), ("b", 1, 2, 4, 10), ("c", 0, None, 9, 10))
    found = apply_deletes(
        files,
        delete_files(
            {"referenced": "gone"},
            {"referenced": "a", "sequence": 6},
            {"referenced": "a", "sequence": 7},
            {"spec": 1, "value": 1, "sequence": 6},
            {"spec": 1, "value": 2, "sequence": 4},
            {"spec": 1, "value": 3, "sequence": 9},
            {"content": 2, "spec": 1, "value": 2, "sequence": 4},
            {"content": 2, "spec": 1, "value": 2, "sequence": 5},
            {"content": 2, "spec": 0, "sequence": 4},
            {"content": 2, "spec": 0, "sequence": 5},
        ),
        SPECS,
    )
    dangling = [True, True, False, True, False, True, True, False, True, False]
    assert found.deletes.dangling.tolist() == dangling
    assert found.load.dangling == sum(dangling)
    _readers_rule(found)
    nothing = apply_deletes(data_files(), delete_files({"content": 2}), SPECS)
    assert nothing.deletes.dangling.tolist() == [True]


def test_two_vectors_of_one_file_are_named() -> None:
    files = data_files(("a", 0, None, 1, 10), ("b", 0, None, 1, 10))
    vector = {"vector": 7, "sequence": 6}
    found = apply_deletes(
        files,
        delete_files(
            {"referenced": "a", **vector}, {"referenced": "a", **vector},
            {"referenced": "b", **vector}, {"referenced": "gone", **vector},
        ),
        SPECS,
    )  # fmt: skip
    assert found.doubled == ("a",)


def test_rows_under_equality_deletes_are_at_most_one_per_key_and_no_more_than_live_ones() -> None:
    files = data_files(("a", 0, None, 1, 30), ("b", 0, None, 1, 10), ("c", 0, None, 9, 10))
    found = apply_deletes(
        files,
        delete_files(
            {"referenced": "b", "records": 8, "vector": 7, "sequence": 2},
            {"content": 2, "records": 20, "sequence": 5},
        ),
        SPECS,
    )
    assert equality_deleted(found.files, found.deletes).tolist() == [15.0, 2.0, 0.0]
    # A key may be that of every row of `a` and `b`, or of none.
    assert live_rows(found.files, found.deletes) == LiveRows(least=10, estimate=25, most=42)


def test_a_delete_that_was_applied_to_what_we_wrote_counts_no_row_there() -> None:
    """Outputs of a rewrite have the sequence number of what was read: readers still open a delete
    file of their partition with that number, but it names files that are gone."""
    files = data_files(("a", 1, 7, 1, 100), ("m-out", 1, 7, 5, 300))
    delete = {"spec": 1, "value": 7, "sequence": 5, "records": 40, "paths": ("a", "z")}
    theirs = apply_deletes(files, delete_files(delete), SPECS)
    assert theirs.files.position_deleted.tolist() == [10, 30]
    ours = replace(files, layout_written=np.array([False, True]))
    found = apply_deletes(ours, delete_files(delete), SPECS)
    assert found.files.position_deleted.tolist() == [40, 0]
    assert found.files.delete_files.tolist() == [1, 1], "readers open it all the same"
    assert live_rows(found.files, found.deletes) == LiveRows(360, 360, 400), (
        "its other files may be gone"
    )
    assert live_rows(theirs.files, theirs.deletes) == LiveRows(360, 360, 400)
    later = apply_deletes(ours, delete_files({**delete, "sequence": 6}), SPECS)
    assert later.files.position_deleted.tolist() == [10, 30]
    assert live_rows(later.files, later.deletes) == LiveRows(360, 360, 400)


def test_rows_of_dangling_deletes_are_not_counted_as_deleted_rows() -> None:
    files = data_files(("a", 1, 7, 5, 300), ("b", 1, 7, 9, 300))
    named, gone, early = (
        {"referenced": path, "sequence": sequence, "records": records}
        for path, sequence, records in (("a", 6, 40), ("gone", 6, 500), ("b", 6, 70))
    )
    lost = {"referenced": "gone", "vector": 10, "records": 30}
    _, load = applied(files, delete_files(named, gone, early, lost))
    assert (load.position_files, load.dangling) == (3, 3)
    assert (load.position_rows, load.vectors, load.vector_rows) == (40, 1, 0)


def test_a_delete_that_names_no_live_file_is_spent_and_its_rows_are_not_counted() -> None:
    files = data_files(("m-out", 1, 7, 5, 300), ("m-out2", 1, 7, 5, 300))
    ours = replace(files, layout_written=np.array([True, True]))
    inside, outside = (
        {"spec": 1, "value": 7, "sequence": sequence, "records": 40, "paths": paths}
        for sequence, paths in ((5, ("a", "z")), (6, ("a", "b")))
    )
    found = apply_deletes(ours, delete_files(inside, outside), SPECS)
    assert found.deletes.spent.tolist() == [True, True]
    assert found.deletes.dangling.tolist() == [False, False], "readers open it all the same"
    assert found.files.position_deleted.tolist() == [0, 0]
    assert found.load.position_rows == 0 and found.load.position_files == 2
    assert live_rows(found.files, found.deletes) == LiveRows(600, 600, 600)
