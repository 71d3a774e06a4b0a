"""What the written files look like inside, and what one group costs in jobs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, FixedType, LongType, NestedField, UUIDType

from reconciler.plan.actions.rewrite import BinPack, Cluster, Recluster, Rewrite
from reconciler.plan.ordering import Hilbert, Lexicographic, Ordering
from reconciler.table.schema import SortColumn
from tests.spark.tables import Bench

pytestmark = pytest.mark.spark

MIB = 1 << 20


def _wide(bench: Bench, properties: str = "") -> str:
    """Four files of incompressible rows, about 3 MiB each, all over the whole range."""
    name = bench.create("id bigint, s string, v bigint", properties)
    bench.sql(
        f"INSERT INTO {bench.full(name)} SELECT /*+ REPARTITION(4) */ id, "
        "concat(sha2(string(id), 256), sha2(string(-id), 256)), hash(id) FROM range(150000)"
    )
    return name


def _footers(bench: Bench, name: str) -> list[Any]:
    return [pq.read_metadata(f.file_path.removeprefix("file:")) for f in bench.files(name)]


@pytest.mark.parametrize("curve", [Lexicographic, Hilbert])
def test_target_and_row_group_size_are_met(bench: Bench, curve: type[Ordering]) -> None:
    name = _wide(bench)
    total = bench.size(name)
    action = bench.action(
        name, Cluster, "id", "v", curve=curve, target_bytes=3 * MIB,
        row_group_bytes=MIB,
    )  # fmt: skip
    bench.run(bench.request(name, action))
    sizes = [file.file_size_in_bytes for file in bench.files(name)]
    assert len(sizes) == pytest.approx(total / (3 * MIB), abs=1.5)
    assert min(sizes) > 0.8 * max(sizes)
    groups = [f.row_group(i).total_byte_size for f in _footers(bench, name)
              for i in range(f.num_row_groups)]  # fmt: skip
    assert len(groups) >= 2 * len(sizes)
    assert max(groups) < 2 * MIB


def test_a_small_target_is_met_where_row_groups_end_before_their_first_pages(bench: Bench) -> None:
    """What is open when a file is ended is a row group at most, not a page of 20,000 rows."""
    name = _wide(bench)
    action = bench.action(name, Cluster, "id", target_bytes=MIB // 2, row_group_bytes=MIB // 8)
    bench.run(bench.request(name, action))
    sizes = [file.file_size_in_bytes for file in bench.files(name)]
    assert max(sizes) < 1.25 * MIB / 2
    assert min(sizes) > 0.5 * MIB / 2
    assert min(footer.num_row_groups for footer in _footers(bench, name)) >= 3


SPLITS = (
    "'read.split.adaptive-size.enabled'='false', 'read.split.target-size'='60000', "
    "'read.split.open-file-cost'='1'"
)


def _arrivals(bench: Bench) -> str:
    """Fourteen appends of unequal sizes, in files whose names tell nothing, with counted rows. They
    are read in many splits."""
    name = bench.create("store bigint, shelf bigint, arrived bigint, note string", SPLITS)
    start = 0
    for number in range(14):
        ids = range(start, start + 600 + 500 * (number % 3))
        columns = {"store": [n % 3 for n in ids], "shelf": [n * 7 % 5 for n in ids]}
        bench.append(name, {**columns, "arrived": ids, "note": _notes(ids)})
        start = ids.stop
    return name


def _notes(ids: range) -> list[str]:
    return [hashlib.md5(str(n).encode()).hexdigest() for n in ids]


def _written(bench: Bench, name: str, *columns: str) -> list[list[Any]]:
    """The rows of each file in their order."""
    written = []
    for file in bench.files(name):
        read = pq.read_table(file.file_path.removeprefix("file:"))
        written.append(list(zip(*(read[column].to_pylist() for column in columns), strict=True)))
    return written


@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("direction", ["asc", "desc"])
def test_rows_of_equal_keys_stay_in_order_of_arrival(
    bench: Bench, parts: int, direction: str
) -> None:
    """So that a window of recent rows reads few row groups of each value, as the what-if tells."""
    name = _arrivals(bench)
    total = bench.size(name)
    key = f"store {direction}"
    action = bench.action(name, Cluster, key, target_bytes=total // parts)
    bench.run(bench.request(name, action))
    sign = -1 if direction == "desc" else 1
    written = [
        [(sign * store, arrived) for store, arrived in file]
        for file in _written(bench, name, "store", "arrived")
    ]
    assert len(written) >= (parts + 1) // 2
    rows = [row for file in sorted(written) for row in file]
    assert rows == sorted(rows)


def test_rows_of_one_cell_of_a_curve_stay_in_order_of_arrival(bench: Bench) -> None:
    name = _arrivals(bench)
    bench.run(bench.request(name, bench.action(
        name, Cluster, "store", "shelf", curve=Hilbert, target_bytes=8 * MIB
    )))  # fmt: skip
    (rows,) = _written(bench, name, "store", "shelf", "arrived")
    for cell in {row[:2] for row in rows}:
        arrived = [row[2] for row in rows if row[:2] == cell]
        assert arrived == sorted(arrived)


def test_files_merged_without_a_key_follow_each_other_as_they_arrived(bench: Bench) -> None:
    name = _arrivals(bench)
    total = bench.size(name)
    bench.run(bench.request(name, bench.action(
        name, BinPack, target_bytes=total // 5
    )))  # fmt: skip
    written = _written(bench, name, "arrived")
    assert len(written) >= 3
    rows = [row for file in sorted(written) for row in file]
    assert rows == sorted(rows)


def _by_one_append_each(bench: Bench, store: Callable[[int], int | None], *rows: int) -> str:
    """Files that are read in splits of at most two of them."""
    properties = SPLITS.replace("60000", "40000")
    name = bench.create("store bigint, arrived bigint, note string", properties)
    start = 0
    for count in rows:
        ids = range(start, start + count)
        columns = {"store": [store(n) for n in ids], "arrived": ids, "note": _notes(ids)}
        bench.append(name, columns)
        start = ids.stop
    return name


@pytest.mark.parametrize("kind", [BinPack, Cluster])
def test_a_large_file_does_not_overtake_a_small_one(bench: Bench, kind: type[Rewrite]) -> None:
    """Where both do not fit a split, Iceberg ends the heavier one first."""
    name = _by_one_append_each(bench, lambda n: 1, 600, 1600, 600, 1600)
    key = ("store",) if kind is Cluster else ()
    bench.run(bench.request(name, bench.action(name, kind, *key, target_bytes=8 * MIB)))
    (rows,) = _written(bench, name, "arrived")
    assert rows == sorted(rows)


@pytest.mark.parametrize("parts", [1, 3])
def test_nulls_do_not_disturb_the_order_of_arrival(bench: Bench, parts: int) -> None:
    name = _by_one_append_each(bench, lambda n: None if n % 4 == 3 else n % 2, 700, 900, 800)
    total = bench.size(name)
    bench.run(bench.request(name, bench.action(
        name, Cluster, "store", target_bytes=total // parts
    )))  # fmt: skip
    files = _written(bench, name, "store", "arrived")
    for store in (None, 0, 1):
        for file in files:
            arrived = [row[1] for row in file if row[0] == store]
            assert arrived == sorted(arrived)
    assert sum(map(len, files)) == 2400


@pytest.mark.parametrize(("shares", "files"), [((), 4), ((0.5,), 2)])
def test_a_plan_s_share_decides_how_many_files_are_written(
    bench: Bench, shares: tuple[float, ...], files: int
) -> None:
    """Else a plan that knows how its rows compress foretells other files than are written."""
    name = _wide(bench)
    total = bench.size(name)
    action = bench.action(name, Cluster, "id", target_bytes=total // 4)
    bench.run(bench.request(name, action, written_shares=shares))
    assert len(bench.paths(name)) == files


@pytest.mark.parametrize("kind", [UUIDType(), BinaryType(), FixedType(16)], ids=str)
def test_a_curve_follows_what_comes_after_a_common_prefix(
    bench: Bench, iceberg_catalog: Any, kind: Any
) -> None:
    """Identifiers that begin with a time differ late, and a uuid is text to Spark."""
    random = np.random.default_rng(1)
    schema = Schema(NestedField(1, "u", kind), NestedField(2, "v", LongType()))
    name = f"prefix_{str(kind).partition('[')[0]}"
    table = iceberg_catalog.create_table(("jobs", name), schema)
    for _ in range(2):
        values = [b"\x01\x8f" + bytes(6) + random.bytes(8) for _ in range(20_000)]
        table.append(
            pa.table(
                {"u": values, "v": random.integers(0, 1 << 60, 20_000)},
                schema=table.schema().as_arrow(),
            )
        )
    inputs = sorted(task.file.file_path for task in table.scan().plan_files())
    total = sum(task.file.file_size_in_bytes for task in table.scan().plan_files())
    action = Cluster(ordering=Hilbert((SortColumn(1), SortColumn(2))),
        inputs=tuple(inputs), target_bytes=total // 4,
    )  # fmt: skip
    bench.run(bench.request(name, action))
    files = [task.file for task in table.refresh().scan().plan_files()]
    assert len(files) >= 4
    for file in files:  # by their values: not every uuid column has bounds
        read = pq.read_table(file.file_path.removeprefix("file:"))
        found = [int.from_bytes(value[8:10], "big") for value in _raw(read["u"])]
        assert max(found) - min(found) < 0.7 * (1 << 16)


def _raw(column: Any) -> list[bytes]:
    return [getattr(value, "bytes", value) for value in column.to_pylist()]


def test_a_uuid_column_gets_no_bounds_where_the_table_asks_for_none(
    bench: Bench, iceberg_catalog: Any
) -> None:
    schema = Schema(NestedField(1, "u", UUIDType()), NestedField(2, "v", LongType()))
    properties = {"write.metadata.metrics.column.u": "counts"}
    table = iceberg_catalog.create_table(("jobs", "no_bounds"), schema, properties=properties)
    random = np.random.default_rng(3)
    for _ in range(2):
        rows = {"u": [random.bytes(16) for _ in range(1_000)], "v": range(1_000)}
        table.append(pa.table(rows, schema=table.schema().as_arrow()))
    inputs = sorted(task.file.file_path for task in table.scan().plan_files())
    action = Cluster(
        ordering=Lexicographic((SortColumn(1),)), inputs=tuple(inputs), target_bytes=MIB
    )
    bench.run(bench.request("no_bounds", action))
    (file,) = (task.file for task in table.refresh().scan().plan_files())
    assert file.record_count == file.value_counts[1] == 2_000
    assert set(file.lower_bounds) == set(file.upper_bounds) == {2}


def test_rows_that_fit_one_small_file_become_one(bench: Bench) -> None:
    """A writer counts its open page before compression: here, ten times the file."""
    name = bench.create("id bigint, a bigint, b bigint, s string")
    for part in range(2):
        bench.sql(
            f"INSERT INTO {bench.full(name)} SELECT /*+ COALESCE(1) */ id, id * 3, id * 5, "
            f"concat('a-rather-long-prefix-of-every-value-', id % 50) "
            f"FROM range({part * 9_000}, {part * 9_000 + 9_000})"
        )
    action = bench.action(name, Recluster, "id", target_bytes=8 * MIB)
    bench.run(bench.request(name, action))
    assert [file.record_count for file in bench.files(name)] == [18_000]


def test_a_table_that_names_no_codec_is_written_with_zstd(bench: Bench) -> None:
    """As other libraries than Java's write and create tables."""
    name = bench.create("id bigint, s string")
    bench.sql(
        f"ALTER TABLE {bench.full(name)} UNSET TBLPROPERTIES ('write.parquet.compression-codec')"
    )
    bench.fill(name, 2, 100, "n, string(n)")
    assert {f.row_group(0).column(0).compression for f in _footers(bench, name)} == {"GZIP"}
    bench.run(bench.request(name, bench.action(name, BinPack)))
    assert {f.row_group(0).column(0).compression for f in _footers(bench, name)} == {"ZSTD"}


def test_the_tables_own_properties_are_honoured(bench: Bench) -> None:
    name = _wide(
        bench,
        "'write.parquet.compression-codec'='snappy', 'write.target-file-size-bytes'='4194304', "
        "'write.parquet.row-group-size-bytes'='1048576'",
    )
    before = dict(bench.table(name).properties())
    bench.run(bench.request(name, bench.action(name, Cluster, "id")))
    footers = _footers(bench, name)
    assert {f.row_group(0).column(0).compression for f in footers} == {"SNAPPY"}
    assert max(f.num_row_groups for f in footers) >= 3
    assert 2 <= len(footers) <= 6
    assert dict(bench.table(name).properties()) == before


def test_a_group_needs_no_job_of_spark(bench: Bench) -> None:
    name = bench.create("id bigint")
    bench.fill(name, 3, 10, "n * 3 + file")
    size = bench.size(name)
    result = bench.run(bench.request(name, bench.action(name, Cluster, "id")))
    tracker = bench.spark.sparkContext.statusTracker()
    for step in ("write", "verify"):
        assert list(tracker.getJobIdsForGroup(f"{result.attempts[0]}/0/{step}")) == []
    assert [outcome.read_bytes for outcome in result.outcomes] == [size]


def test_groups_are_committed_in_at_most_max_commits_batches(bench: Bench) -> None:
    name = bench.create("id bigint")
    bench.fill(name, 7, 50, "n + 100 * file")
    before = bench.rows(name)
    action = bench.action(name, Recluster, "id desc")
    result = bench.run(bench.request(name, action, group_bytes=1, max_commits=3))
    assert (result.commits, result.done) == (3, True)
    assert bench.rows(name) == before
    assert sum(outcome.files_in for outcome in result.outcomes) == 7


def test_each_partition_keeps_its_files(bench: Bench) -> None:
    name = bench.create("id bigint, p int", partitioned="p")
    for number in range(3):
        bench.sql(
            f"INSERT INTO {bench.full(name)} SELECT id * 3 + {number}, cast(id % 2 AS int) "
            "FROM range(20)"
        )
    before = bench.rows(name)
    actions = [
        bench.action(
            name, Cluster, "id",
            inputs=tuple(sorted(f.file_path for f in bench.files(name) if f.partition.p == p)),
        )
        for p in (0, 1)
    ]  # fmt: skip
    result = bench.run(bench.request(name, *actions))
    assert result.done
    assert bench.rows(name) == before
    assert sorted(file.partition.p for file in bench.files(name)) == [0, 1]
    summary = dict(bench.table(name).currentSnapshot().summary())
    assert summary["layout.action-ids"] == "a02"
