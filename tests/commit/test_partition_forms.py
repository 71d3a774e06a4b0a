"""Partition values of forms that manifests seldom have, read back by pyiceberg."""

from __future__ import annotations

import json
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
from reconciler.commit.partitions import Summary
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
    table.refresh()
    after = table.scan().to_arrow().sort_by([("id", "ascending"), ("p", "ascending")])
    assert after.to_pylist() == before.to_pylist()
    for value in values:
        term = "p IS NULL" if value is None else f"p = {value}"
        assert table.scan(row_filter=term).to_arrow().num_rows == 3


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
