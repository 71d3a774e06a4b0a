"""What a Parquet file may hold for an Iceberg column; each kind was read by Spark's two readers,
DuckDB and pyarrow, and what is accepted is what all of them read alike."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from reconciler.table.parquet_schema import Node
from reconciler.table.physical import (
    POSITION_DELETES,
    RLE,
    Expected,
    Fault,
    FileForm,
    WrongRows,
    WrongSize,
    fault_of,
    mapping_of,
    only,
)
from reconciler.table.refusals import NO_FIELD_IDS, PHYSICAL_SCHEMA, WRONG_ROWS, WRONG_SIZE

FLBA = "FIXED_LEN_BYTE_ARRAY"


def leaf(
    physical: str, annotation: str = "", *, length: int = 0, field_id: int | None = 1,
    name: str = "v", repetition: str = "optional",
) -> Node:  # fmt: skip
    return Node(name, field_id, repetition, physical, length, annotation)


def group(
    name: str, field_id: int | None, *children: Node, annotation: str = "",
    repetition: str = "optional",
) -> Node:  # fmt: skip
    return Node(name, field_id, repetition, "", 0, annotation, children)


def column(kind: Any, field_id: int = 1, name: str = "v") -> dict[str, Any]:
    return {"id": field_id, "name": name, "type": kind, "required": False}


def table(*fields: dict[str, Any], mapping: Any = None) -> Expected:
    text = None if mapping is None else json.dumps(mapping)
    return Expected({"type": "struct", "fields": list(fields)}, text)


def fault(expected: Expected, *columns: Node) -> Fault | None:
    return fault_of(FileForm(group("root", None, *columns)), expected)


SOUND = [
    ("boolean", leaf("BOOLEAN")),
    ("int", leaf("INT32")),
    ("int", leaf("INT32", "INTEGER(8,signed)")),
    ("long", leaf("INT64", "INTEGER(64,signed)")),
    ("long", leaf("INT32")),
    ("float", leaf("FLOAT")),
    ("double", leaf("FLOAT")),
    ("date", leaf("INT32", "DATE")),
    ("timestamp", leaf("INT64", "TIMESTAMP(MICROS,local)")),
    ("timestamptz", leaf("INT64", "TIMESTAMP(MICROS,UTC)")),
    ("timestamp_ns", leaf("INT64", "TIMESTAMP(NANOS,local)")),
    ("string", leaf("BYTE_ARRAY", "STRING")),
    ("string", leaf("BYTE_ARRAY", "ENUM")),
    ("binary", leaf("BYTE_ARRAY")),
    ("fixed[4]", leaf(FLBA, length=4)),
    ("uuid", leaf(FLBA, "UUID", length=16)),
    ("uuid", leaf(FLBA, length=16)),
    ("decimal(9, 2)", leaf("INT32", "DECIMAL(9,2)")),
    ("decimal(18, 2)", leaf("INT32", "DECIMAL(9,2)")),
    ("decimal(38, 2)", leaf("INT64", "DECIMAL(18,2)")),
    ("decimal(9, 2)", leaf(FLBA, "DECIMAL(8,2)", length=16)),
]
UNSOUND = [
    ("int", leaf("INT64")),
    ("int", leaf("INT32", "INTEGER(8,unsigned)")),
    ("int", leaf("INT32", "DATE")),
    ("long", leaf("INT32", "INTEGER(32,unsigned)")),
    ("long", leaf("INT64", "INTEGER(64,unsigned)")),
    ("long", leaf("INT64", "TIMESTAMP(MICROS,UTC)")),
    ("long", leaf("INT64", "DECIMAL(18,0)")),
    ("float", leaf("DOUBLE")),
    ("float", leaf(FLBA, "FLOAT16", length=2)),
    ("date", leaf("INT32")),
    ("timestamp", leaf("INT64", "TIMESTAMP(MILLIS,local)")),
    ("timestamp", leaf("INT64", "TIMESTAMP(NANOS,local)")),
    ("timestamp", leaf("INT64", "TIMESTAMP(MICROS,UTC)")),
    ("timestamp", leaf("INT64", "TIMESTAMP(MICROS,local) and TIMESTAMP(MILLIS,UTC)")),
    ("timestamp", leaf("INT64")),
    ("timestamp", leaf("INT32", "DATE")),
    ("timestamp", leaf("INT96")),
    ("timestamptz", leaf("INT64", "TIMESTAMP(MICROS,local)")),
    ("timestamptz", leaf("INT64", "TIMESTAMP(MILLIS,UTC)")),
    ("timestamptz", leaf("INT96")),
    ("time", leaf("INT32", "TIME(MILLIS,local)")),
    ("string", leaf("BYTE_ARRAY")),
    ("string", leaf("BYTE_ARRAY", "JSON")),
    ("string", leaf(FLBA, length=3)),
    ("binary", leaf("BYTE_ARRAY", "STRING")),
    ("binary", leaf(FLBA, length=4)),
    ("fixed[4]", leaf(FLBA, length=5)),
    ("fixed[4]", leaf("BYTE_ARRAY")),
    ("uuid", leaf("BYTE_ARRAY", "STRING")),
    ("decimal(9, 2)", leaf("INT32")),
    ("decimal(9, 2)", leaf("BYTE_ARRAY", "DECIMAL(9,2)")),
    ("decimal(9, 2)", leaf("INT32", "DECIMAL(9,3)")),
    ("decimal(9, 2)", leaf("INT64", "DECIMAL(18,2)")),
    ("decimal(38, 2)", leaf(FLBA, "DECIMAL(38,2)", length=17)),
    ("long", leaf("INT64", repetition="repeated")),
    ("long", group("v", 1, leaf("INT64", field_id=2))),
]


def nested(kind: Any, node: Node) -> list[tuple[Any, Node, str]]:
    """The column within a struct, a list and a map's value, and deeper."""
    inner = replace(node, field_id=9, name="element")
    value = replace(node, field_id=9, name="value")
    three = group("list", None, inner, repetition="repeated")
    key = leaf("BYTE_ARRAY", "STRING", field_id=8, name="key")
    pairs = group("key_value", None, key, value, repetition="repeated")
    of_list = {"type": "list", "element-id": 9, "element": kind, "element-required": False}
    of_map = {
        "type": "map", "key-id": 8, "key": "string", "value-id": 9, "value": kind,
        "value-required": False,
    }  # fmt: skip
    struct = {"type": "struct", "fields": [column(of_list, 7, "l")]}
    member = group("l", 7, three, annotation="LIST")
    return [
        ({"type": "struct", "fields": [column(kind, 9, "m")]},
         group("v", 1, replace(node, field_id=9, name="m")), "v.m"),
        (of_list, group("v", 1, three, annotation="LIST"), "v.element"),
        (of_map, group("v", 1, pairs, annotation="MAP"), "v.value"),
        (struct, group("v", 1, member), "v.l.element"),
    ]  # fmt: skip


@pytest.mark.parametrize(("kind", "node"), SOUND)
def test_what_every_reader_reads_alike_is_sound(kind: str, node: Node) -> None:
    assert fault(table(column(kind)), node) is None
    for outer, within, _ in nested(kind, node):
        assert fault(table(column(outer)), within) is None


@pytest.mark.parametrize(("kind", "node"), UNSOUND)
def test_what_a_reader_may_misread_is_a_fault_at_any_depth(kind: str, node: Node) -> None:
    found = fault(table(column(kind)), node)
    assert found is not None and (found.reason, found.column) == (PHYSICAL_SCHEMA, "v")
    for outer, within, name in nested(kind, node):
        found = fault(table(column(outer)), within)
        assert found is not None and (found.reason, found.column) == (PHYSICAL_SCHEMA, name)


LIST = {"type": "list", "element-id": 2, "element": "long", "element-required": False}
MAP = {
    "type": "map", "key-id": 2, "key": "string", "value-id": 3, "value": "long",
    "value-required": False,
}  # fmt: skip
ELEMENT = leaf("INT64", field_id=2, name="array")
KEY = leaf("BYTE_ARRAY", "STRING", field_id=2, name="key", repetition="required")
VALUE = leaf("INT64", field_id=3, name="value")
PAIRS = group("key_value", None, KEY, VALUE, repetition="repeated")


def test_lists_and_maps_have_the_form_that_every_reader_knows() -> None:
    bag = group("bag", None, ELEMENT, repetition="repeated")
    assert fault(table(column(LIST)), group("v", 1, bag, annotation="LIST")) is None
    assert fault(table(column(MAP)), group("v", 1, PAIRS, annotation="MAP")) is None
    repeated = replace(ELEMENT, repetition="repeated")
    wrong = [
        (LIST, group("v", 1, repeated, annotation="LIST")),
        (LIST, replace(ELEMENT, field_id=1, name="v", repetition="repeated")),
        (LIST, group("v", 1, bag)),
        (LIST, leaf("INT64")),
        (MAP, group("v", 1, PAIRS)),
        (MAP, group("v", 1, PAIRS, annotation="MAP_KEY_VALUE")),
        (MAP, group("v", 1, replace(PAIRS, children=(replace(KEY, name="k"), VALUE)),
                    annotation="MAP")),
    ]  # fmt: skip
    for kind, node in wrong:
        found = fault(table(column(kind)), node)
        assert found is not None and (found.reason, found.column) == (PHYSICAL_SCHEMA, "v")


def test_columns_that_the_file_or_the_table_lacks_are_no_fault() -> None:
    expected = table(column("long"), column("string", 2, "w"))
    assert fault(expected, leaf("INT64")) is None
    assert fault(expected, leaf("INT64"), leaf("INT96", field_id=3, name="dropped")) is None
    assert fault(expected, leaf("INT64"), leaf("INT96", field_id=None, name="other")) is None


NO_IDS = [leaf("INT64", field_id=None), leaf("INT64", field_id=None, name="w")]


def test_without_field_ids_the_name_mapping_says_what_the_columns_are() -> None:
    fields = column("long"), column("long", 2, "w")
    mapping = [{"field-id": 1, "names": ["v"]}, {"field-id": 2, "names": ["w", "old"]}]
    found = fault(table(*fields), *NO_IDS)
    assert found is not None and (found.reason, found.column) == (NO_FIELD_IDS, "")
    assert fault(table(*fields, mapping=mapping), *NO_IDS) is None
    assert fault(table(*fields, mapping=[*mapping, {"field-id": 3}]), *NO_IDS) is None
    renamed = NO_IDS[0], replace(NO_IDS[1], name="old")
    assert fault(table(*fields, mapping=mapping), *renamed) is None
    unit = leaf("INT64", "TIMESTAMP(MILLIS,UTC)", field_id=None)
    stamps = table(column("timestamptz"), mapping=mapping)
    found = fault(stamps, unit)
    assert found is not None and (found.reason, found.column) == (PHYSICAL_SCHEMA, "v")


@pytest.mark.parametrize(
    ("mapping", "nodes"),
    [
        ("not JSON", NO_IDS),
        ({"names": []}, NO_IDS),
        ([{"field-id": "1", "names": ["v"]}], NO_IDS),
        ([{"field-id": 1, "names": ["v"]}], NO_IDS),
        ([{"field-id": 1, "names": ["v"]}, {"field-id": 2, "names": ["W"]}], NO_IDS),
        ([{"field-id": 1, "names": ["v", "w"]}], NO_IDS),
        (None, [leaf("INT64"), leaf("INT64", field_id=None, name="w")]),
        (None, [leaf("INT64"), leaf("INT64", field_id=None, name="W")]),
        (None, [leaf("INT64"), leaf("INT64", name="w")]),
    ],
    ids=["unreadable", "no list", "no number", "lacks a column", "other case", "two of one id",
         "partly", "partly, other case", "one id twice"],
)  # fmt: skip
def test_columns_that_are_not_surely_known_are_a_fault(mapping: Any, nodes: list[Node]) -> None:
    expected = table(column("long"), column("long", 2, "w"), mapping=mapping)
    found = fault(expected, *nodes)
    assert found is not None and found.reason == NO_FIELD_IDS


def test_a_mapping_that_gives_one_name_two_ids_says_nothing() -> None:
    fields = column("long"), column("long", 2, "w")
    mapping = [{"field-id": 1, "names": ["v"]}, {"field-id": 2, "names": ["w"]}]
    for again in ([{"field-id": 9, "names": ["w"]}, *mapping], [*mapping, {"names": ["w"]}]):
        found = fault(table(*fields, mapping=again), *NO_IDS)
        assert found is not None and found.reason == NO_FIELD_IDS


def test_nested_fields_need_ids_too() -> None:
    three = group("list", None, replace(ELEMENT, field_id=None), repetition="repeated")
    found = fault(table(column(LIST)), group("v", 1, three, annotation="LIST"))
    assert found is not None and (found.reason, found.column) == (NO_FIELD_IDS, "v")
    struct = {"type": "struct", "fields": [column("long", 2, "m")]}
    member = group("v", 1, leaf("INT64", field_id=None, name="m"))
    found = fault(table(column(struct)), member)
    assert found is not None and (found.reason, found.column) == (NO_FIELD_IDS, "v.m")


@pytest.mark.parametrize("text", ["", "no", "{}", "[" * 100_000, '[{"names": [["v"]]}]', "[1]"])
def test_a_text_that_is_no_mapping_says_nothing(text: str) -> None:
    assert mapping_of(text) is None
    found = fault(Expected(table(column("long")).body, text), *NO_IDS)
    assert found is not None and found.reason == NO_FIELD_IDS


def test_a_mapping_names_the_parts_of_lists_and_maps_as_the_specification_does() -> None:
    inner = [{"field-id": 2, "names": ["element"]}]
    mapping = [{"field-id": 1, "names": ["v"], "fields": inner}]
    three = group("bag", None, replace(ELEMENT, field_id=None), repetition="repeated")
    node = group("v", None, three, annotation="LIST")
    assert fault(table(column(LIST), mapping=mapping), node) is None
    found = fault(table(column(LIST), mapping=[{"field-id": 1, "names": ["v"]}]), node)
    assert found is not None and found.reason == NO_FIELD_IDS


def test_a_way_of_storing_that_not_every_reader_reads_is_a_fault_of_its_column() -> None:
    expected = table(column("long", 2, "id"), column("boolean"))
    root = group("root", None, leaf("INT64", field_id=2, name="id"), leaf("BOOLEAN"))
    assert fault_of(FileForm(root), expected) is None
    found = fault_of(FileForm(root, ((1, RLE),)), expected)
    assert found is not None and (found.reason, found.column) == (PHYSICAL_SCHEMA, "v")
    found = fault_of(FileForm(root, ((0, "BROTLI"),)), expected)
    assert found is not None and found.column == "id"


def test_delete_files_are_judged_by_the_columns_that_they_have() -> None:
    path = leaf("BYTE_ARRAY", "STRING", field_id=2147483546, name="file_path")
    pos = leaf("INT64", field_id=2147483545, name="pos")
    assert fault(POSITION_DELETES, path, pos) is None
    found = fault(POSITION_DELETES, replace(path, annotation=""), pos)
    assert found is not None and found.column == "file_path"
    struct = {"type": "struct", "fields": [column("timestamp", 4, "at"), column("long", 5, "n")]}
    every = table(column("long"), column(struct, 3, "s"))
    keys = only(every, (4,))
    stamp = leaf("INT64", "TIMESTAMP(MILLIS,local)", field_id=4, name="at")
    found = fault(keys, group("s", 3, stamp))
    assert found is not None and found.column == "s.at"
    assert fault(only(every, (1,)), group("s", 3, stamp), leaf("INT64")) is None


def test_a_file_of_another_number_of_rows_than_the_metadata_says_is_named_so() -> None:
    found = fault_of(WrongRows(500, 712), table(column("long")))
    assert found is not None and found.reason == WRONG_ROWS
    assert "500" in found.detail and "712" in found.detail


def test_a_file_of_another_size_than_the_metadata_says_is_named_so() -> None:
    found = fault_of(WrongSize(500, 712), table(column("long")))
    assert found is not None and found.reason == WRONG_SIZE
    assert "500" in found.detail and "712" in found.detail
