"""Random small tables and predicates for the laws of pruning, with three views of each.

A world's rows are Python scalars in their column's domain. From them come the numpy zone maps that
the reconciler reads, pyiceberg's data files with serialized metrics, and a plain evaluator that
looks at one row at a time.
"""

from __future__ import annotations

import math
import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
from hypothesis import strategies as st

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
    Ref,
    StartsWith,
)
from reconciler.table.filetable import ColumnBounds, FileTable
from reconciler.table.schema import Field, PartitionSpec, Schema
from reconciler.table.values import Kind, decode_wide_decimal, encode_wide_decimal, kind_of

DAY_US = 86_400_000_000
INTS = [-3, -1, 0, 1, 2, 3, 7]
DAYS = [-400, -32, -1, 0, 1, 30, 31, 364, 365, 20_000]
TEXTS = ["", "a", "ab", "abc", "abd", "b", "ba", "é", "éa", "日本", "zz"]
BLOBS = [b"", b"a", b"a\x01", b"ab", b"b\xff", b"\xff", b"\xff\xff", b"\x80"]

DOMAINS: dict[str, list[Any]] = {
    "boolean": [0, 1],
    "int": INTS,
    "long": [*INTS, 2**40],
    "float": [-1.5, -0.0, 0.0, 1.0, 2.5],
    "double": [-1.5, 0.0, 1.0, 2.5, 1e300],
    "date": DAYS,
    "time": [0, 1, DAY_US - 1],
    "timestamp": [day * DAY_US + extra for day in DAYS for extra in (0, -1)],
    "timestamptz": [day * DAY_US + 3_600_000_000 for day in DAYS],
    "timestamp_ns": [day * DAY_US * 1000 + extra for day in DAYS for extra in (0, -1)],
    "string": [text.encode() for text in TEXTS],
    "binary": BLOBS,
    "fixed[2]": [b"aa", b"ab", b"b\x01", b"\xff\xff"],
    "uuid": [uuid.UUID(int=i * 2**100 + 1).bytes for i in (1, 2, 3, 9)],
    "decimal(9, 2)": [-150, -1, 0, 1, 99, 100, 12_345],
    "decimal(25, 3)": [encode_wide_decimal(10**21 * k + 1) for k in (-2, -1, 0, 1, 2)],
}


@dataclass(frozen=True)
class World:
    """files: per file its rows, each a tuple of scalars or None in field order."""

    schema: Schema
    files: list[list[tuple[Any, ...]]]
    missing: list[dict[int, frozenset[str]]]
    truncate: bool


METRICS = ("lower", "upper", "nulls", "nans", "values")


@st.composite
def worlds(draw: st.DrawFn, types: tuple[str, ...] = tuple(DOMAINS)) -> World:
    chosen = draw(st.lists(st.sampled_from(types), min_size=1, max_size=3))
    fields = tuple(Field(i + 1, f"c{i + 1}", kind, required=False) for i, kind in enumerate(chosen))
    cells = [st.one_of(st.none(), value_of(kind)) for kind in chosen]
    files = draw(
        st.lists(st.lists(st.tuples(*cells), min_size=0, max_size=4), min_size=1, max_size=5)
    )
    absent = st.one_of(st.just(frozenset()), st.frozensets(st.sampled_from(METRICS)))
    missing = [{f.field_id: draw(absent) for f in fields} for _ in files]
    return World(Schema(0, fields), files, missing, draw(st.booleans()))


def value_of(kind: str) -> st.SearchStrategy[Any]:
    values = st.sampled_from(DOMAINS[kind])
    return st.one_of(values, st.just(math.nan)) if kind in ("float", "double") else values


def leaves(schema: Schema) -> st.SearchStrategy[tuple[str, int]]:
    """(operation, field id) pairs that are legal for the column's type."""
    pairs = []
    for field in schema.fields:
        ops = ["<", "<=", "=", "!=", ">", ">=", "in", "null"]
        if field.type == "string":
            ops.append("starts")
        if field.type in ("float", "double"):
            ops.append("nan")
        pairs += [(op, field.field_id) for op in ops]
    return st.sampled_from(pairs)


@st.composite
def predicates(draw: st.DrawFn, schema: Schema) -> tuple[Predicate, list[tuple[str, int]]]:
    """A tree and, per slot in order, the operation and field id that it belongs to."""
    slots: list[tuple[str, int]] = []

    def node(depth: int) -> Predicate:
        shape = draw(st.sampled_from(["leaf"] * 3 + (["and", "or", "not"] if depth else [])))
        if shape == "not":
            return Not(node(depth - 1))
        if shape in ("and", "or"):
            children = tuple(node(depth - 1) for _ in range(draw(st.integers(2, 3))))
            return And(children) if shape == "and" else Or(children)
        if draw(st.integers(0, 19)) == 0:
            return Always(draw(st.booleans()))
        return leaf(*draw(leaves(schema)))

    def leaf(op: str, field_id: int) -> Predicate:
        ref = Ref(field_id)
        if op == "null":
            return IsNull(ref)
        if op == "nan":
            return IsNaN(ref)
        slots.append((op, field_id))
        if op == "in":
            return In(ref, len(slots) - 1)
        if op == "starts":
            return StartsWith(ref, len(slots) - 1)
        return Comparison(ref, op, len(slots) - 1)

    return node(2), slots


@st.composite
def settings_of(draw: st.DrawFn, schema: Schema, slots: list[tuple[str, int]]) -> list[list[Any]]:
    """A few literal settings: per query, per slot, a scalar or a tuple of distinct scalars."""

    def literal(op: str, field_id: int) -> Any:
        kind = schema.by_id[field_id].type
        one = st.sampled_from(DOMAINS[kind])
        if op == "in":
            return tuple(draw(st.lists(one, min_size=0, max_size=4, unique=True)))
        if op == "starts":
            return draw(st.sampled_from(["", "a", "ab", "é", "日", "zzz"])).encode()
        return draw(one)

    count = draw(st.integers(1, 4))
    return [[literal(*slot) for slot in slots] for _ in range(count)]


def batched(queries: list[list[Any]], schema: Schema, slots: list[tuple[str, int]]) -> list[Any]:
    """Literals as a Shape holds them."""
    columns: list[Any] = []
    for place, (op, field_id) in enumerate(slots):
        items = [query[place] for query in queries]
        if op == "in":
            columns.append(tuple(items))
        elif any(isinstance(item, bytes) and item.endswith(b"\0") for item in items):
            array = np.empty(len(items), dtype=object)
            array[:] = items
            columns.append(array)
        else:
            columns.append(np.array(items, dtype=dtype_of(schema.by_id[field_id].type)))
    return columns


def dtype_of(kind: str) -> type:
    return {Kind.INT: np.int64, Kind.FLOAT: np.float64, Kind.BYTES: np.bytes_}[kind_of(kind)]


def column_values(world: World, place: int, file: int) -> list[Any]:
    return [row[place] for row in world.files[file]]


@dataclass(frozen=True)
class Metrics:
    """One column of one file; None where missing."""

    lower: Any
    upper: Any
    nulls: int | None
    nans: int | None
    values: int | None
    truncated: bool


def metrics(world: World, place: int, file: int) -> Metrics:
    field = world.schema.fields[place]
    rows = column_values(world, place, file)
    missing = world.missing[file][field.field_id]
    present = [v for v in rows if v is not None and v == v]
    lower = min(present) if present and "lower" not in missing else None
    upper = max(present) if present and "upper" not in missing else None
    truncated = False
    if world.truncate and field.type == "string":
        short_lower, short_upper = shorten(lower), lengthen(upper)
        truncated = (short_lower, short_upper) != (lower, upper)
        lower, upper = short_lower, short_upper
    floats = field.type in ("float", "double")
    return Metrics(
        lower,
        upper,
        None if "nulls" in missing else sum(v is None for v in rows),
        None if "nans" in missing or not floats else sum(v is not None and v != v for v in rows),
        None if "values" in missing else len(rows),
        truncated,
    )


def shorten(lower: bytes | None) -> bytes | None:
    return None if lower is None else lower.decode()[:1].encode()


def lengthen(upper: bytes | None) -> bytes | None:
    """Iceberg's truncated upper bound: the first code point incremented."""
    if upper is None or len(upper.decode()) <= 1:
        return upper
    return chr(ord(upper.decode()[0]) + 1).encode()


def column_bounds(world: World, place: int) -> ColumnBounds:
    field = world.schema.fields[place]
    items = [metrics(world, place, file) for file in range(len(world.files))]
    zero: Any = {Kind.INT: 0, Kind.FLOAT: 0.0, Kind.BYTES: b""}[field.kind]
    dtype = dtype_of(field.type)

    def array(values: list[Any]) -> Any:
        return np.array([zero if v is None else v for v in values], dtype=dtype)

    def counts(values: list[int | None]) -> Any:
        return np.array([-1 if v is None else v for v in values], dtype=np.int64)

    return ColumnBounds(
        field.field_id,
        field.kind,
        array([m.lower for m in items]),
        array([m.upper for m in items]),
        np.array([m.lower is not None for m in items]),
        np.array([m.upper is not None for m in items]),
        counts([m.nulls for m in items]),
        counts([m.nans for m in items]),
        counts([m.values for m in items]),
        counts([None] * len(items)),
        np.array([m.truncated for m in items]),
    )


def columns_of(world: World) -> dict[int, ColumnBounds]:
    return {f.field_id: column_bounds(world, i) for i, f in enumerate(world.schema.fields)}


def records_of(world: World) -> Any:
    return np.array([len(rows) for rows in world.files], dtype=np.int64)


def file_table(world: World, spec: PartitionSpec, partitions: list[tuple[Any, ...]]) -> FileTable:
    """The world as a file table under one spec, with each file's partition values."""
    count = len(world.files)
    distinct = list(dict.fromkeys(partitions))
    zeros = np.zeros(count, dtype=np.int64)
    off = np.zeros(count, dtype=np.bool_)
    return FileTable(
        schema=world.schema,
        specs={spec.spec_id: spec},
        default_spec_id=spec.spec_id,
        path=np.array([f"f{i}" for i in range(count)], dtype=object),
        spec_id=np.full(count, spec.spec_id, dtype=np.int32),
        partition=np.array([distinct.index(p) for p in partitions], dtype=np.int32),
        partitions=tuple((spec.spec_id, p) for p in distinct),
        records=records_of(world),
        bytes=records_of(world) * 10,
        sequence=zeros,
        added_ms=zeros,
        layout_written=off,
        sort_order_id=zeros,
        parquet=~off,
        encrypted=off,
        position_deleted=zeros,
        delete_files=zeros,
        delete_bytes=zeros,
        equality_deletes=zeros,
        newest_delete=zeros - 1,
        columns=columns_of(world),
    )


def row_values(world: World) -> tuple[dict[int, Any], dict[int, Any], list[int]]:
    """All rows as columns, their nulls, and the file each row is in."""
    rows = [(file, row) for file, members in enumerate(world.files) for row in members]
    values, null = {}, {}
    for place, field in enumerate(world.schema.fields):
        zero: Any = {Kind.INT: 0, Kind.FLOAT: 0.0, Kind.BYTES: b""}[field.kind]
        cells = [row[place] for _, row in rows]
        values[field.field_id] = np.array(
            [zero if c is None else c for c in cells], dtype=dtype_of(field.type)
        )
        null[field.field_id] = np.array([c is None for c in cells], dtype=np.bool_)
    return values, null, [file for file, _ in rows]


def holds(node: Predicate, literals: list[Any], row: dict[int, Any], negate: bool = False) -> bool:
    """Whether the predicate is true of one row: plain Python, one leaf at a time."""
    if isinstance(node, Not):
        return holds(node.child, literals, row, not negate)
    if isinstance(node, (And, Or)):
        results = [holds(child, literals, row, negate) for child in node.children]
        return all(results) if isinstance(node, And) != negate else any(results)
    if isinstance(node, Always):
        return node.value != negate
    value = row[node.ref.field_id]
    if isinstance(node, IsNull):
        return (value is None) != negate
    if isinstance(node, IsNaN):
        return (value is not None and value != value) != negate
    if value is None:
        return False
    literal = literals[node.slot]
    if isinstance(node, In):
        return (value in literal) != negate
    if isinstance(node, StartsWith):
        return value.startswith(literal) != negate
    op = {"<": ">=", ">=": "<", ">": "<=", "<=": ">", "=": "!=", "!=": "="}[node.op]
    return compare(value, op if negate else node.op, literal)


def compare(value: Any, op: str, literal: Any) -> bool:
    return {
        "<": value < literal,
        "<=": value <= literal,
        "=": value == literal,
        "!=": value != literal,
        ">": value > literal,
        ">=": value >= literal,
    }[op]


def outward(kind: str, value: Any) -> Any:
    """A domain scalar as the Python value that pyiceberg works with."""
    if value is None:
        return None
    if kind == "boolean":
        return bool(value)
    if kind == "string":
        return value.decode()
    if kind == "uuid":
        return uuid.UUID(bytes=value)
    if kind == "decimal(9, 2)":
        return Decimal(value).scaleb(-2)
    if kind == "decimal(25, 3)":
        return Decimal(
            (lambda u: (int(u < 0), tuple(map(int, str(abs(u)))), -3))(decode_wide_decimal(value))
        )
    return value
