"""Tables that Spark writes: v1, v2 and v3, deletes and vectors, mixed with pyiceberg's files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog.footers import read_row_groups
from reconciler.catalog.observe import observe_table
from reconciler.state.sketch import SketchedFiles, sample_rows
from reconciler.table.observation import Observation
from reconciler.table.operations import Kind
from tests.catalog.reference import assert_same

pytestmark = pytest.mark.spark

COLUMNS = """
  id BIGINT, small INT, f FLOAT, d DOUBLE, n DECIMAL(9,2), wide DECIMAL(30,4), day DATE,
  ts TIMESTAMP, ntz TIMESTAMP_NTZ, s STRING, b BINARY, flag BOOLEAN,
  place STRUCT<lat: DOUBLE, town: STRING>, tags ARRAY<STRING>, m MAP<STRING, INT>
"""
ROWS = """
  SELECT id, CAST(id - 50 AS INT), CAST(id / 3 AS FLOAT),
    CASE WHEN id % 10 = 0 THEN DOUBLE('NaN') ELSE -id / 7 END,
    CAST(id / 4 AS DECIMAL(9,2)), CAST(-id * 100000000000 AS DECIMAL(30,4)),
    DATE_ADD(DATE '1969-12-01', CAST(id AS INT)),
    TIMESTAMP '1969-12-31 23:00:00' + MAKE_INTERVAL(0, 0, 0, CAST(id AS INT)),
    TIMESTAMP_NTZ '2024-01-01 00:00:00' + MAKE_INTERVAL(0, 0, 0, 0, CAST(id AS INT)),
    CASE WHEN id % 7 = 0 THEN NULL ELSE CONCAT('värde med lång text ', id) END,
    UNHEX(CONCAT('FF', LPAD(HEX(id), 4, '0'))), id % 2 = 0,
    NAMED_STRUCT('lat', id / 9, 'town', CONCAT('t', id)), ARRAY(CONCAT('x', id)), MAP('k', 1)
  FROM RANGE({start}, {end})
"""


@pytest.fixture(scope="module", autouse=True)
def _namespace(spark: Any) -> None:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS rec.seen")


@pytest.fixture
def see(catalog_config: CatalogConfig, iceberg_catalog: Any, tmp_path: Path) -> Any:
    def look(name: str) -> tuple[Any, Observation]:
        table = iceberg_catalog.load_table(f"seen.{name}")
        return table, observe_table(catalog_config, ("seen", name), tmp_path / "cache")

    return look


def create(spark: Any, name: str, partitioning: str = "", **properties: str) -> None:
    listed = ", ".join(f"'{key.replace('_', '.')}'='{value}'" for key, value in properties.items())
    spark.sql(f"DROP TABLE IF EXISTS rec.seen.{name}")
    spark.sql(
        f"CREATE TABLE rec.seen.{name} ({COLUMNS}) USING iceberg {partitioning} "
        f"TBLPROPERTIES ({listed})"
    )


def insert(spark: Any, name: str, start: int, end: int) -> None:
    spark.sql(f"INSERT INTO rec.seen.{name} {ROWS.format(start=start, end=end)}")


@pytest.mark.parametrize("version", ["1", "2", "3"])
def test_spark_written_manifests_are_read_as_pyiceberg_reads_them(
    spark: Any, see: Any, version: str
) -> None:
    name = f"types{version}"
    create(spark, name, "PARTITIONED BY (bucket(4, id), flag, n)", **{"format-version": version})
    insert(spark, name, 0, 12)
    insert(spark, name, 12, 20)
    table, seen = see(name)
    assert seen.format_version == int(version)
    assert_same(table, seen)
    assert "place.town" in seen.schema.by_name
    assert seen.schema.by_name["tags.element"].kind is None


def test_evolution_by_spark_and_appends_by_pyiceberg_mix(
    spark: Any, see: Any, iceberg_catalog: Any
) -> None:
    create(spark, "mixed", **{"format-version": "2"})
    insert(spark, "mixed", 0, 10)
    spark.sql("ALTER TABLE rec.seen.mixed RENAME COLUMN small TO tiny")
    spark.sql("ALTER TABLE rec.seen.mixed ALTER COLUMN f TYPE DOUBLE")
    spark.sql("ALTER TABLE rec.seen.mixed ALTER COLUMN n TYPE DECIMAL(30,2)")
    spark.sql("ALTER TABLE rec.seen.mixed DROP COLUMN flag")
    spark.sql("ALTER TABLE rec.seen.mixed ADD COLUMN extra BIGINT")
    spark.sql("ALTER TABLE rec.seen.mixed ADD PARTITION FIELD days(ts)")
    spark.sql(
        "INSERT INTO rec.seen.mixed (id, ts, extra) VALUES (99, TIMESTAMP '2024-05-05 01:00:00', 5)"
    )
    table = iceberg_catalog.load_table("seen.mixed")
    schema = table.schema().as_arrow()
    values = {"id": 7, "extra": 3}
    table.append(pa.Table.from_pylist([{n: values.get(n) for n in schema.names}], schema=schema))
    table, seen = see("mixed")
    assert_same(table, seen)
    prefixes = {path.split("/", 1)[0] + path[5:8] for path in seen.files.path}
    assert len(prefixes) == 2, "file:/ and file:/// side by side, each verbatim"
    assert {spec for spec, _ in seen.files.partitions} == {0, 1}


def test_v2_position_deletes_are_loaded_onto_their_files(spark: Any, see: Any) -> None:
    create(
        spark, "deletes2", "PARTITIONED BY (flag)",
        **{"format-version": "2", "write.delete.mode": "merge-on-read"},
    )  # fmt: skip
    insert(spark, "deletes2", 0, 40)
    insert(spark, "deletes2", 40, 80)
    spark.sql("DELETE FROM rec.seen.deletes2 WHERE id IN (1, 2, 3, 5, 44)")
    table, seen = see("deletes2")
    assert_same(table, seen)
    assert seen.files.position_deleted.sum() == 5
    assert seen.deletes.position_rows == 5 and seen.deletes.vectors == 0
    assert len(seen.deletes.paths) == seen.deletes.files
    assert (seen.files.delete_files > 0).sum() == 3
    ids, flags = seen.files.columns[1], seen.files.columns[12]
    for row in range(len(seen.files)):
        mine = [i for i in (1, 2, 3, 5, 44) if ids.lower[row] <= i <= ids.upper[row]]
        inside = [i for i in mine if (i % 2 == 0) == bool(flags.lower[row])]
        assert seen.files.position_deleted[row] == len(inside)
    (write,) = seen.recent_writes
    assert set(write.partitions) == {(0, (0,)), (0, (1,))}


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_a_merge_says_how_many_rows_it_inserted(spark: Any, see: Any, mode: str) -> None:
    name = f"merged_{mode[:4]}"
    create(spark, name, **{"format-version": "2", "write.merge.mode": mode})
    insert(spark, name, 0, 40)
    merge = f"MERGE INTO rec.seen.{name} t USING (SELECT * FROM rec.seen.{name} WHERE id < 3) s"
    matched = "WHEN MATCHED THEN UPDATE SET small = 7"
    spark.sql(f"{merge} ON t.id = s.id {matched}")
    spark.sql(f"{merge} ON t.id = s.id + 38 {matched} WHEN NOT MATCHED THEN INSERT *")
    last, first = see(name)[1].operations.every
    assert [first.kind, last.kind] == [Kind.MERGE, Kind.MERGE]
    assert [(first.rows, first.inserted_rows), (last.rows, last.inserted_rows)] == [(3, 0), (2, 1)]


def test_v3_deletion_vectors_are_loaded_onto_their_files(spark: Any, see: Any) -> None:
    create(
        spark, "deletes3",
        **{"format-version": "3", "write.delete.mode": "merge-on-read"},
    )  # fmt: skip
    insert(spark, "deletes3", 0, 40)
    insert(spark, "deletes3", 40, 80)
    spark.sql("DELETE FROM rec.seen.deletes3 WHERE id IN (1, 2, 44)")
    _, first = see("deletes3")
    assert first.deletes.vectors == (first.files.delete_files > 0).sum() > 0
    assert first.files.position_deleted.sum() == 3
    assert 0 < first.files.delete_bytes.max() < 200
    spark.sql("DELETE FROM rec.seen.deletes3 WHERE id IN (4, 45)")
    _, seen = see("deletes3")
    assert seen.files.position_deleted.sum() == 5
    assert seen.files.delete_files.max() == 1


def test_footers_and_sketches_of_spark_files(
    spark: Any, see: Any, catalog_config: CatalogConfig
) -> None:
    create(spark, "feet", **{"format-version": "2"})
    insert(spark, "feet", 0, 500)
    _, seen = see("feet")
    rows = range(len(seen.files))
    groups = read_row_groups(catalog_config, seen.files, pa.array(rows).to_numpy())
    assert groups.records.sum() == 500
    for field_id, column in seen.files.columns.items():
        judged = groups.columns[field_id]
        for row in rows:
            mine = (groups.file == row) & judged.bounded
            if column.bounded[row] and not column.truncated[row] and mine.any():
                assert min(judged.lower[mine].tolist()) == column.lower[row], field_id
                assert max(judged.upper[mine].tolist()) == column.upper[row], field_id
    sample = sample_rows(
        SketchedFiles(catalog_config, seen.files), pa.array(rows).to_numpy(), [1, 7, 8]
    )
    assert sorted(sample.values[1].tolist()) == list(range(500))
    order = sample.values[1].argsort()
    assert (sample.values[7][order] == pa.array(range(500)).to_numpy() - 31).all()


def test_partitions_of_floats_are_distinguished_as_iceberg_does(spark: Any, see: Any) -> None:
    """NaN is one partition, and -0.0 is another than 0.0, also when read from the cache."""
    create(spark, "floats", "PARTITIONED BY (d)", **{"format-version": "2"})
    for start in (0, 100):
        spark.sql(
            f"INSERT INTO rec.seen.floats (id, d) SELECT {start} + id, element_at("
            "array(double('NaN'), -0.0d, 0.0d), CAST(id + 1 AS INT)) FROM range(3)"
        )
    for _ in range(2):
        _, seen = see("floats")
        assert [len(rows) for _, _, rows in seen.files.groups()] == [2, 2, 2]
        values = sorted(values[0].hex() for _, values in seen.files.partitions)
        assert values == ["-0x0.0p+0", "0x0.0p+0", "nan"]
