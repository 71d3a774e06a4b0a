"""Rows as Python values, with a judgement of its own of when two tables are equal."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import random
import string
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from reconciler.rewrite.columns import LIST, MAP, STRUCT, Column, every
from reconciler.rewrite.files import DataFile, TableShape

PRIMITIVES = (
    "boolean", "int", "long", "float", "double", "decimal(9,2)", "decimal(20,3)", "decimal(38,10)",
    "date", "time", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns", "string", "uuid",
    "fixed[3]", "binary",
)  # fmt: skip
EPOCH = dt.datetime(1970, 1, 1)
Row = list[Any]


def random_columns(chance: random.Random, number: int) -> tuple[Column, ...]:
    ids = iter(range(1, 10_000))
    return tuple(_random_column(chance, ids, f"c{i}", 0) for i in range(number))


def _random_column(chance: random.Random, ids: Iterator[int], name: str, depth: int) -> Column:
    kind = chance.choice(
        (*PRIMITIVES, STRUCT, LIST, MAP, STRUCT, LIST) if depth < 3 else PRIMITIVES
    )
    own = next(ids)
    if kind == STRUCT:
        inside = tuple(
            _random_column(chance, ids, f"f{i}", depth + 1) for i in range(chance.randint(1, 3))
        )
    elif kind == LIST:
        inside = (_random_column(chance, ids, "element", depth + 1),)
    elif kind == MAP:
        key = Column(next(ids), "key", chance.choice(("int", "string", "date")))
        inside = (key, _random_column(chance, ids, "value", depth + 1))
    else:
        inside = ()
    return Column(own, name, kind, inside)


def random_value(chance: random.Random, column: Column, null: float = 0.2) -> Any:
    if chance.random() < null:
        return None
    kind = column.type
    if kind == STRUCT:
        return {child.name: random_value(chance, child) for child in column.children}
    if kind == LIST:
        return [random_value(chance, column.children[0]) for _ in range(chance.randint(0, 3))]
    if kind == MAP:
        key, value = column.children
        keys = {random_value(chance, key, 0.0) for _ in range(chance.randint(0, 3))}
        return [(one, random_value(chance, value)) for one in sorted(keys, key=str)]
    return _primitive(chance, kind)


def _primitive(chance: random.Random, kind: str) -> Any:
    if kind == "boolean":
        return chance.random() < 0.5
    if kind in ("int", "long"):
        return chance.choice((0, 1, -1, 5, chance.randint(-(2**31), 2**31 - 1)))
    if kind in ("float", "double"):
        return chance.choice(
            (0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, chance.randint(0, 9) / 2)
        )
    if kind.startswith("decimal"):
        digits, scale = (int(part) for part in kind[8:-1].split(","))
        most = 10 ** min(digits, 9) - 1
        return decimal.Decimal(chance.choice((0, 1, 10, -most, most))).scaleb(-scale)
    if kind == "date":
        return dt.date(1, 1, 1) + dt.timedelta(days=chance.choice((0, 400_000, 719_162, 3_652_058)))
    if kind == "time":
        return dt.time(chance.randint(0, 23), 1, 2, chance.choice((0, 1, 999_999)))
    if kind.endswith("_ns"):
        return chance.choice((0, 1, -1, 1_767_225_600_123_456_789, 1_767_225_600_123_456_788))
    if kind.startswith("timestamp"):
        shift = dt.timedelta(microseconds=chance.choice((0, 1, -1, 1_767_225_600_123_456)))
        zone = dt.UTC if kind == "timestamptz" else None
        return (EPOCH + shift).replace(tzinfo=zone)
    if kind == "string":
        return chance.choice(
            ("", "a", "a ", "null", "é", "".join(chance.choices(string.printable, k=5)))
        )
    if kind == "uuid":
        return chance.randbytes(16)
    if kind.startswith("fixed"):
        return chance.choice((b"\0\0\0", b"abc", chance.randbytes(3)))
    return chance.choice((b"", b"\0", b"a", chance.randbytes(4)))


def canonical(column: Column, value: Any) -> Any:
    """Return what a value is to a reader, such that equal ones are equal and hash alike."""
    if value is None:
        return None
    if column.type == STRUCT:
        return tuple((c.name, canonical(c, value.get(c.name))) for c in column.children)
    if column.type == LIST:
        return ("list", *(canonical(column.children[0], one) for one in value))
    if column.type == MAP:
        key, held = column.children
        return frozenset(Counter((canonical(key, k), canonical(held, v)) for k, v in value).items())
    if column.type in ("float", "double"):
        return "nan" if math.isnan(value) else (value, math.copysign(1.0, value))
    return (type(value).__name__, value)


def same(columns: Sequence[Column], one: Iterable[Row], other: Iterable[Row]) -> bool:
    return _rows(columns, one) == _rows(columns, other)


def _rows(columns: Sequence[Column], rows: Iterable[Row]) -> Counter[Any]:
    return Counter(
        tuple(canonical(c, v) for c, v in zip(columns, row, strict=True)) for row in rows
    )


ARROW = {
    "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(),
    "double": pa.float64(), "date": pa.date32(), "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"), "timestamptz": pa.timestamp("us", tz="UTC"),
    "timestamp_ns": pa.timestamp("ns"), "timestamptz_ns": pa.timestamp("ns", tz="UTC"),
    "string": pa.string(), "uuid": pa.binary(16), "binary": pa.binary(),
}  # fmt: skip


def arrow_type(column: Column) -> pa.DataType:
    if column.type == STRUCT:
        return pa.struct([arrow_field(child) for child in column.children])
    if column.type == LIST:
        return pa.list_(arrow_field(column.children[0]))
    if column.type == MAP:
        key, value = column.children
        return pa.map_(arrow_field(key).with_nullable(False), arrow_field(value))
    if column.type.startswith("decimal"):
        digits, scale = column.type[8:-1].split(",")
        return pa.decimal128(int(digits), int(scale))
    if column.type.startswith("fixed"):
        return pa.binary(int(column.type[6:-1]))
    return ARROW[column.type]


def arrow_field(column: Column, kind: pa.DataType | None = None) -> pa.Field:
    marks = {"PARQUET:field_id": str(column.field_id)}
    return pa.field(column.name, kind or arrow_type(column), metadata=marks)


def write(path: Path, columns: Sequence[Column], rows: Sequence[Row], **options: Any) -> DataFile:
    schema = pa.schema([arrow_field(column) for column in columns])
    arrays = [pa.array([row[i] for row in rows], f.type) for i, f in enumerate(schema)]
    return write_table(path, pa.Table.from_arrays(arrays, schema=schema), **options)


def write_table(path: Path, table: pa.Table, **options: Any) -> DataFile:
    pq.write_table(table, path, store_schema=False, **options)
    return DataFile(f"file:{path}", table.num_rows, path.stat().st_size)


def table_of(
    columns: Sequence[Column], mapping: str | None = None, lineage: bool = False
) -> TableShape:
    ways = {way[-1].field_id: way for way in every(columns)}
    return TableShape(tuple(columns), ways, mapping, lineage)


def random_rows(chance: random.Random, count: int) -> tuple[tuple[Column, ...], list[Row]]:
    """Return three columns of any types and `arrival`, the number of the row, with rows."""
    kinds = [chance.choice(PRIMITIVES) for _ in range(3)]
    columns = tuple(Column(i, f"c{i}", kind) for i, kind in enumerate(kinds, 1))
    rows = [[*(random_value(chance, one) for one in columns), number] for number in range(count)]
    return (*columns, Column(4, "arrival", "int")), rows
