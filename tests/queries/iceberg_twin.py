"""The same world in pyiceberg's words: schema, expressions, data files with metrics, specs."""

from __future__ import annotations

from typing import Any

from pyiceberg import expressions as ex
from pyiceberg.conversions import to_bytes
from pyiceberg.expressions.literals import LongLiteral, literal
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.types import IcebergType, NestedField, TimestampNanoType

from reconciler.queries.predicate import (
    Always,
    And,
    Comparison,
    In,
    IsNaN,
    IsNull,
    Not,
    Or,
    Predicate,
    StartsWith,
)
from reconciler.table.schema import Schema
from tests.queries.worlds import World, metrics, outward

_OPS = {
    "<": ex.LessThan,
    "<=": ex.LessThanOrEqual,
    "=": ex.EqualTo,
    "!=": ex.NotEqualTo,
    ">": ex.GreaterThan,
    ">=": ex.GreaterThanOrEqual,
}


def iceberg_type(kind: str) -> IcebergType:
    if kind == "timestamp_ns":
        return TimestampNanoType()
    return NestedField.model_validate(
        {"id": 1, "name": "x", "type": kind, "required": False}
    ).field_type


def iceberg_schema(schema: Schema) -> IcebergSchema:
    return IcebergSchema(
        *(NestedField(f.field_id, f.name, iceberg_type(f.type), f.required) for f in schema.fields)
    )


def literal_of(kind: str, value: Any) -> Any:
    number = kind in ("int", "long", "date", "time", "timestamp", "timestamptz")
    return LongLiteral(value) if number else literal(outward(kind, value))


def expression(node: Predicate, literals: list[Any], schema: Schema) -> ex.BooleanExpression:
    if isinstance(node, Not):
        return ex.Not(expression(node.child, literals, schema))
    if isinstance(node, (And, Or)):
        parts = [expression(child, literals, schema) for child in node.children]
        return ex.And(*parts) if isinstance(node, And) else ex.Or(*parts)
    if isinstance(node, Always):
        return ex.AlwaysTrue() if node.value else ex.AlwaysFalse()
    field = schema.by_id[node.ref.field_id]
    if isinstance(node, IsNull):
        return ex.IsNull(field.name)
    if isinstance(node, IsNaN):
        return ex.IsNaN(field.name)
    value = literals[node.slot]
    if isinstance(node, In):
        return ex.In(field.name, [literal_of(field.type, item) for item in value])
    if isinstance(node, StartsWith):
        return ex.StartsWith(field.name, outward("string", value))
    assert isinstance(node, Comparison)
    return _OPS[node.op](field.name, literal_of(field.type, value))


def data_file(world: World, file: int) -> DataFile:
    counts: dict[str, dict[int, Any]] = {
        name: {} for name in ("values", "nulls", "nans", "lower", "upper")
    }
    for place, field in enumerate(world.schema.fields):
        mine = metrics(world, place, file)
        for name, container in counts.items():
            value = getattr(mine, name)
            if value is None:
                continue
            if name in ("lower", "upper"):
                value = to_bytes(iceberg_type(field.type), outward(field.type, value))
            container[field.field_id] = value
    return DataFile.from_args(
        record_count=len(world.files[file]),
        value_counts=counts["values"],
        null_value_counts=counts["nulls"],
        nan_value_counts=counts["nans"],
        lower_bounds=counts["lower"],
        upper_bounds=counts["upper"],
    )
