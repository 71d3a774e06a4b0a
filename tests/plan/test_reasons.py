"""Partitions and keys as plans print them."""

import pytest

from reconciler.plan.ordering import Hilbert, Lexicographic
from reconciler.plan.reasons import partition_text
from reconciler.table.schema import Field, PartitionField, PartitionSpec, Schema, SortColumn

SCHEMA = Schema(0, (Field(1, "ts", "timestamptz"), Field(2, "country", "string")))


@pytest.mark.parametrize(
    ("transform", "source", "value", "text"),
    [
        ("year", 1, 56, "p=2026"),
        ("month", 1, 680, "p=2026-09"),
        ("day", 1, 20_777, "p=2026-11-20"),
        ("hour", 1, 498_648, "p=2026-11-20T00:00:00Z"),
        ("bucket[16]", 2, 3, "p=3"),
        ("truncate[2]", 2, b"de", "p=de"),
        ("identity", 2, None, "p=null"),
    ],
)
def test_a_partition_value_prints_as_its_transform_means_it(transform, source, value, text):
    spec = PartitionSpec(0, (PartitionField(source, 1000, transform, "p"),))
    assert partition_text(spec, (value,), SCHEMA) == text


def test_void_fields_and_unpartitioned_specs_print_nothing():
    void = PartitionSpec(1, (PartitionField(1, 1000, "void", "p"),))
    assert partition_text(void, (None,), SCHEMA) == ""
    assert partition_text(PartitionSpec(0), (), SCHEMA) == ""


def test_keys_name_their_curve_only_when_it_is_one():
    key = (SortColumn(1), SortColumn(2, "desc"))
    assert Lexicographic(key).text(SCHEMA) == "ts, country desc"
    assert Hilbert(key[:2]).text(SCHEMA) == "Hilbert(ts, country desc)"
