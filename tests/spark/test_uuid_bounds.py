"""Bounds of UUID columns, by which readers in signed and in unsigned order must skip no file that
holds the row: Iceberg's Java library has the one order, DuckDB and pyiceberg the other."""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StructType, UUIDType

from reconciler.demo import witness
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.delete_maintenance import ConvertDeletes
from reconciler.plan.actions.rewrite import BinPack, Cluster, Rewrite
from reconciler.plan.ordering import ARRIVAL, Lexicographic
from reconciler.spark.fallback import uuid_bounds
from reconciler.table.schema import SortColumn
from tests.spark.equality import add_equality_delete, delete_paths
from tests.spark.tables import Bench

ROWS = 12_000
SCHEMA = Schema(
    NestedField(1, "u", UUIDType()),
    NestedField(2, "v", LongType()),
    NestedField(3, "s", StructType(NestedField(5, "inner", UUIDType()))),
    NestedField(4, "p", LongType()),
)
BY_P = PartitionSpec(PartitionField(4, 1000, IdentityTransform(), "p"))
NESTED = 5


@pytest.fixture(scope="module")
def duckdb() -> Iterator[Any]:
    with witness.connect() as connection:
        yield connection


def _filled(catalog: Any, name: str, keys: list[bytes], files: int = 3) -> Any:
    table = catalog.create_table(("jobs", name), SCHEMA, partition_spec=BY_P)
    for part in range(files):
        own = pa.array(keys[part::files], pa.uuid())
        schema = table.schema().as_arrow()
        nested = pa.StructArray.from_arrays([own], fields=list(schema.field("s").type))
        same, every = pa.array([7] * len(own)), pa.array(range(len(own)))
        table.append(pa.table([own, every, nested, same], schema=schema))
    return table


def _files(table: Any) -> list[Any]:
    return [task.file for task in table.refresh().scan().plan_files()]


def _held(file: Any) -> tuple[list[bytes], int]:
    """The UUIDs of a file, and its number of row groups."""
    parquet = pq.ParquetFile(file.file_path.removeprefix("file:"))
    column = parquet.read(columns=["u"]).column("u").to_pylist()
    return [getattr(value, "bytes", value) for value in column], parquet.num_row_groups


def _hits(table: Any, duckdb: Any, key: bytes) -> tuple[int, int]:
    """How many rows pyiceberg and DuckDB find by the UUID. Spark is no witness: it also skips row
    groups in signed order."""
    location = table.refresh().metadata_location.removeprefix("file://")
    query = f"SELECT u FROM iceberg_scan('{location}') WHERE u = UUID '{uuid.UUID(bytes=key)}'"
    by_pyiceberg = table.scan(EqualTo("u", uuid.UUID(bytes=key).bytes)).to_arrow()
    return len(by_pyiceberg), len(duckdb.execute(query).fetchall())


@pytest.mark.spark
@pytest.mark.parametrize("kind", [Cluster, BinPack])
def test_every_row_is_found_by_its_uuid_after_a_rewrite(
    bench: Bench, iceberg_catalog: Any, duckdb: Any, kind: type[Rewrite]
) -> None:
    random = np.random.default_rng(3)
    keys = [uuid.UUID(bytes=random.bytes(16), version=4).bytes for _ in range(ROWS)]
    table = _filled(iceberg_catalog, f"found_{kind.__name__.lower()}", keys)
    if kind is Cluster:
        bench.sql(
            f"ALTER TABLE {bench.full(table.name()[1])} SET TBLPROPERTIES ('format-version'='3')"
        )
    before, rows = _files(table), bench.rows(table.name()[1])
    ordering = Lexicographic((SortColumn(1),)) if kind is Cluster else ARRIVAL
    action = kind(
        ordering=ordering,
        inputs=tuple(sorted(file.file_path for file in before)),
        target_bytes=sum(file.file_size_in_bytes for file in before) // 5,
        row_group_bytes=20_000,
    )
    bench.run(bench.request(table.name()[1], action))
    assert bench.rows(table.name()[1]) == rows
    after = _files(table)
    assert not {file.file_path for file in after} & {file.file_path for file in before}
    narrow = 0
    for file in after:
        held, groups = _held(file)
        assert groups == len(file.split_offsets) > 1
        assert file.partition[0] == 7 and file.nan_value_counts == {}
        assert set(file.lower_bounds) == set(file.upper_bounds)
        for column in (1, NESTED):
            if column in file.lower_bounds:
                ends = file.lower_bounds[column], file.upper_bounds[column]
                assert ends == (min(held), max(held))
                narrow += 1
        assert file.value_counts[1] == len(held) and 2 in file.lower_bounds
    both = 2 * len(after)
    assert both - 2 <= narrow < both if kind is Cluster else narrow == 0
    for key in keys[:: ROWS // 8]:
        assert _hits(table, duckdb, key) == (1, 1)


class _Stored:
    """A table's FileIO in Java, as far as a file's end is read by it."""

    def __init__(self) -> None:
        self.read: list[int] = []

    def io(self) -> _Stored:
        return self

    def newInputFile(self, path: str) -> _Stored:
        self.path = path
        return self

    def newStream(self) -> _Stored:
        self.file = io.BytesIO(Path(self.path).read_bytes())
        return self

    def seek(self, at: int) -> None:
        self.file.seek(at)

    def readAllBytes(self) -> bytes:
        found = self.file.read()
        self.read.append(len(found))
        return found

    def close(self) -> None:
        self.file.close()


@pytest.mark.parametrize("columns", [1, 2_000])
def test_a_footer_is_read_through_the_tables_own_io(tmp_path: Path, columns: int) -> None:
    path, stored = tmp_path / "f.parquet", _Stored()
    pq.write_table(pa.table({f"c{number}": [number] * 9 for number in range(columns)}), path)
    size = path.stat().st_size
    found = uuid_bounds._footer(stored, str(path), size)
    assert (found.num_columns, found.num_rows) == (columns, 9)
    assert len(stored.read) == (1 if columns == 1 else 2) and max(stored.read) <= size
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(pa.ArrowInvalid):
        uuid_bounds._footer(stored, str(path), size - 1)


@pytest.mark.spark
def test_footers_are_read_only_where_bounds_may_stay(
    bench: Bench, iceberg_catalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []
    footer_in = uuid_bounds.footer_in
    monkeypatch.setattr(
        uuid_bounds, "footer_in", lambda *asked: read.append(asked) or footer_in(*asked)
    )
    plain = bench.create("id bigint, v string")
    bench.fill(plain, 2, 10, "n, 'uuid'")
    bench.run(bench.request(plain, bench.action(plain, Cluster, "id")))
    half = [b"\x01" + number.to_bytes(15, "big") for number in range(2_000)]
    name = "one_row_group"
    table = _filled(iceberg_catalog, name, half)
    paths = tuple(sorted(file.file_path for file in _files(table)))
    bench.run(bench.request(name, Cluster(ordering=Lexicographic((SortColumn(1),)), inputs=paths)))
    (file,) = _files(table)
    assert (file.lower_bounds[1], file.upper_bounds[1]) == (half[0], half[-1])
    assert read == []


def _deleted_by_uuid(
    bench: Bench, catalog: Any, name: str
) -> tuple[Any, list[bytes], tuple[str, ...]]:
    """A table with an equality delete by UUID that Spark does not apply: the data files have UUIDs
    of both halves. Returns the deleted UUIDs and the data files, too."""
    random = np.random.default_rng(5)
    keys = [uuid.UUID(bytes=random.bytes(16), version=4).bytes for _ in range(600)]
    table = _filled(catalog, name, keys)
    gone = sorted(keys)[40:48]
    column = pa.array(gone, pa.uuid())
    paths = tuple(sorted(file.file_path for file in _files(table)))
    bounds = {"u": (gone[0], gone[-1])}
    add_equality_delete(bench, name, {"u": column}, like=paths[0], bounds=bounds)
    assert sum(bench.rows(name).values()) == len(keys)  # Iceberg's fault
    return table, gone, paths


def _uuids(table: Any, duckdb: Any) -> set[bytes]:
    location = table.refresh().metadata_location.removeprefix("file://")
    rows = duckdb.execute(f"SELECT u FROM iceberg_scan('{location}')").fetchall()
    assert len(rows) == len({row[0] for row in rows})
    return {row[0].bytes for row in rows}


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["rewrite", "convert"])
def test_no_row_that_is_deleted_by_its_uuid_comes_back(
    bench: Bench, iceberg_catalog: Any, duckdb: Any, kind: str
) -> None:
    name = f"gone_{kind}"
    table, gone, paths = _deleted_by_uuid(bench, iceberg_catalog, name)
    live = _uuids(table, duckdb)
    assert len(live) == 592 and live.isdisjoint(gone)
    action: Action = ConvertDeletes(inputs=delete_paths(bench, name, 2), partition=(7,))
    if kind == "rewrite":
        action = Cluster(ordering=Lexicographic((SortColumn(2),)), inputs=paths)
    assert bench.run(bench.request(name, action)).done
    assert _uuids(table, duckdb) == live
    seen = bench.sql(f"SELECT u FROM {bench.full(name)}")
    assert {uuid.UUID(row.u).bytes for row in seen} == live
