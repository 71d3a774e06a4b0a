"""What the plan says of rows that go through Spark is what the engine can hold and write."""

from __future__ import annotations

import json

import pytest

from reconciler.engines.schedule.native import CODECS as ARROW_CODECS
from reconciler.rewrite import arrow
from reconciler.rewrite.columns import Column, columns_of, leaves
from reconciler.table.left_to_spark import CODEC, CODECS, OTHER_FORMAT, why_left_to_spark

TYPES = (
    "boolean int long float double date time timestamp timestamptz timestamp_ns timestamptz_ns "
    "string binary uuid decimal(38,10) fixed[12] variant geometry geometry(srid:4326) "
    "geography(srid:4326,karney) interval"
)


@pytest.mark.parametrize("kind", TYPES.split())
def test_the_question_knows_the_types_that_arrow_has(kind: str) -> None:
    try:
        arrow.type_of(Column(1, "c", kind))
        held = True
    except arrow.Unsupported:
        held = False
    assert (why_left_to_spark([("c", kind)], {}) == "") == held


def test_nothing_of_a_column_without_a_value_is_asked() -> None:
    assert why_left_to_spark([("c", "unknown")], {}) == ""


def test_types_inside_of_lists_and_maps_are_asked_too() -> None:
    inside = {"type": "map", "key-id": 3, "value-id": 4, "key": "string", "value": "variant",
              "value-required": False}  # fmt: skip
    fields = [{"id": 1, "name": "m", "required": False, "type": inside}]
    columns = columns_of(json.loads(json.dumps({"type": "struct", "fields": fields})))
    assert 'column "m.value"' in why_left_to_spark(leaves(columns), {})


def test_codecs_are_those_that_the_engine_writes() -> None:
    assert set(ARROW_CODECS) == CODECS
    for codec in ("lz4", "lz4_raw", "brotli", "LZO"):
        assert codec.lower() in why_left_to_spark([], {CODEC: codec})
    assert why_left_to_spark([], {CODEC: "ZSTD"}) == ""


def test_properties_of_the_writer_and_formats_of_deletes() -> None:
    odd = "write.parquet.stats-enabled.column.a"
    assert odd in why_left_to_spark([], {odd: "false"})
    assert why_left_to_spark([], {"write.parquet.bloom-filter-enabled.column.a": "true"}) == ""
    assert why_left_to_spark([], {}, ["PARQUET", "PUFFIN"]) == ""
    assert why_left_to_spark([], {}, ["PARQUET", "AVRO"]) == why_left_to_spark([], {}, ["ORC"])
    assert why_left_to_spark([], {}, [OTHER_FORMAT]) == why_left_to_spark([], {}, ["ORC"]) != ""
