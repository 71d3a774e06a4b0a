"""Names that Spark, as it starts, cannot tell apart."""

from __future__ import annotations

import json

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, LongType, MapType, NestedField, StructType

from reconciler.table.schema import names_alike

LONG = LongType()


def _struct(*names: str, kind: IcebergType = LONG) -> StructType:
    return StructType(*(NestedField(n, name, kind) for n, name in enumerate(names, 10)))


def _map(value: IcebergType) -> MapType:
    return MapType(2, LONG, 3, value)


@pytest.mark.parametrize(
    ("columns", "alike"),
    [
        ({"a": LONG, "b": LONG, "s": _struct("a")}, ()),
        ({"a": LONG, "A": LONG}, ("a", "A")),
        ({"s": _struct("a", "A"), "b": LONG}, ("s.a", "s.A")),
        ({"s": _struct("a"), "S": _struct("b")}, ("s", "S")),
        ({"t": ListType(2, LONG), "T": _map(LONG)}, ("t", "T")),
        ({"m": _map(_struct("x", "X"))}, ("m.value.x", "m.value.X")),
        ({"l": ListType(2, _struct("y", "Y"))}, ("l.element.y", "l.element.Y")),
        # What holds a value is no field, and a dot in a name makes no struct.
        ({"m": _map(_struct("Value", "Key"))}, ()),
        ({"l": ListType(2, _struct("Element"))}, ()),
        ({"a.b": LONG, "A": LONG}, ()),
        ({"a": _struct("b"), "A.b": LONG}, ()),
    ],
)
def test_names_that_differ_in_case_only_are_reported(
    columns: dict[str, IcebergType], alike: tuple[str, ...]
) -> None:
    fields = [NestedField(n, name, kind) for n, (name, kind) in enumerate(columns.items(), 100)]
    schema = Schema(*fields)
    assert names_alike(json.loads(schema.model_dump_json())) == alike
