"""Partition values of forms that manifests seldom have, read back by pyiceberg."""

from __future__ import annotations

import json
import math
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField as Field
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DecimalType, LongType, NestedField

from reconciler.commit import fields
from reconciler.commit.entries import Entries
from reconciler.commit.local_table import LocalTable
from reconciler.commit.manifest import File
from reconciler.commit.partitions import Summary
from reconciler.commit.snapshot import AddedFile, SnapshotChange
from reconciler.commit.table import LiveTable
from reconciler.engines.answers import Kind
from tests.commit.committing import commit
from tests.commit.test_requests import merged
from tests.conftest import sqlite_catalog

NARROW, WIDE = "decimal(9, 2)", "decimal(18, 2)"


def test_a_manifest_of_a_decimal_that_was_widened_is_read_back(tmp_path: Path) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    (tmp_path / "warehouse").mkdir()
    config = sqlite_catalog(tmp_path)
    catalog = SqlCatalog("rec", **dict(config.properties))
    catalog.create_namespace("jobs")
    table = catalog.create_table(
        "jobs.t",
        Schema(NestedField(1, "id", LongType()), NestedField(2, "p", DecimalType(9, 2))),
        partition_spec=PartitionSpec(Field(2, 1000, IdentityTransform(), "p")),
    )
    values = [Decimal("-1.25"), Decimal("7.00"), None]

    def append(number: int, kind: Any) -> None:
        found = pa.table({"id": pa.array([number] * 3), "p": pa.array(values, kind)})
        table.refresh().append(found)

    append(0, pa.decimal128(9, 2))
    append(1, pa.decimal128(9, 2))
    with table.update_schema() as update:
        update.update_column("p", DecimalType(18, 2))
    append(2, pa.decimal128(18, 2))
    before = table.refresh().scan().to_arrow().sort_by([("id", "ascending"), ("p", "ascending")])
    live = LiveTable(config, ("jobs", "t"))
    assert commit(live, merged(live)) is Kind.ACCEPTED
    summary = table.refresh().current_snapshot().summary
    assert summary["changed-partition-count"] == "3"  # values of 4 and of 8 bytes are equal
    after = table.scan().to_arrow().sort_by([("id", "ascending"), ("p", "ascending")])
    assert after.to_pylist() == before.to_pylist()
    for value in values:
        term = "p IS NULL" if value is None else f"p = {value}"
        assert table.scan(row_filter=term).to_arrow().num_rows == 3


VALUES: dict[str, list[Any]] = {
    "boolean": [True, False],
    "int": [-(2**31), None],
    "long": [-(2**63), 2**63 - 1],
    "float": [-0.0, math.nan],
    "double": [0.1, -math.inf],
    "date": [-719_162, 2_932_896],
    "timestamp": [-62_135_596_800_000_000 + 1, 253_402_300_799_999_999],
    "timestamptz": [-1, None],
    "time": [0, 86_399_999_999],
    "string": ["", "\u00fc/=% \x00"],
    "binary": [b"", b"\xff\x00"],
    "uuid": [bytes(16), b"\xff" * 16],
    "decimal(9, 2)": [bytes(4), b"\xff" * 4],
    "decimal(38, 6)": [b"\xfe" * 16, None],
}
"""Values of a partition as Avro stores them, by type: the year 1, the year 9999, minus 0.01."""


def test_the_partition_of_a_new_file_is_that_of_its_inputs(tmp_path: Path) -> None:
    """Values go from a manifest through JSON into the entry of a new file."""
    from pyiceberg.catalog.sql import SqlCatalog

    (tmp_path / "warehouse").mkdir()
    config = sqlite_catalog(tmp_path)
    catalog = SqlCatalog("rec", **dict(config.properties))
    catalog.create_namespace("jobs")
    body = [{"id": n, "name": f"c{n}", "required": False, "type": kind}
            for n, kind in enumerate(VALUES, start=1)]  # fmt: skip
    schema = Schema.model_validate({"type": "struct", "schema-id": 0, "fields": body})
    by = (Field(n, 999 + n, IdentityTransform(), f"c{n}") for n in range(1, 1 + len(VALUES)))
    catalog.create_table("jobs.t", schema, partition_spec=PartitionSpec(*by))
    engine = LocalTable(LiveTable(config, ("jobs", "t")), tmp_path / "cache")
    wanted = {
        f"file:///{at}.parquet": {999 + n: own[at] for n, own in enumerate(VALUES.values(), 1)}
        for at in range(2)
    }
    added = [AddedFile(0, File({**PLAIN, fields.PATH: path, fields.PARTITION: values}))
             for path, values in wanted.items()]  # fmt: skip
    assert commit(engine.table, SnapshotChange("append", added)) is Kind.ACCEPTED
    engine.refresh()
    tasks = engine.tasks(engine.head() or 0, list(wanted))
    keys, made = engine.partition_keys(tasks), Entries(engine.state.metadata, {}, 0, 0)
    for path, values in wanted.items():
        moved = made.partition_of(tasks[path].partition)
        assert repr(moved) == repr(values)  # NaN, and a zero's sign
        assert (0, made.key(moved)) == keys[path]
    assert len(set(keys.values())) == 2


PLAIN = {fields.CONTENT: 0, fields.FORMAT: "PARQUET", fields.RECORDS: 1, fields.SIZE: 9}
"""Of an entry of a data file that nobody opens."""


def _field(number: int, kind: str) -> fields.PartitionField:
    return fields.PartitionField(1000 + number, f"f{number}", kind, "identity")


@pytest.mark.parametrize("kind", [NARROW, "uuid", "fixed[4]"])
def test_a_type_of_two_partition_fields_is_defined_once(kind: str) -> None:

    schema = json.loads(fields.entry_schema(2, (_field(0, kind), _field(1, kind))))
    found: list[str] = []

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            if node.get("type") in ("fixed", "record") and "name" in node:
                found.append(node["name"])
            for one in node.values():
                walk(one)
        elif isinstance(node, list):
            for one in node:
                walk(one)

    walk(schema)
    assert len(found) == len(set(found))


@pytest.mark.parametrize("order", [(0.0, -0.0), (-0.0, 0.0)])
def test_bounds_of_partitions_count_both_zeros(order: tuple[float, float]) -> None:
    summary = Summary([_field(0, "double")])
    for value in order:
        summary.update({1000: value})
    (found,) = summary.fields()
    assert found[fields.P_LOWER] == struct.pack("<d", -0.0)
    assert found[fields.P_UPPER] == struct.pack("<d", 0.0)
