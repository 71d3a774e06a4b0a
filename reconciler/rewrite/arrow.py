"""The table's columns as Arrow types, and the columns of a file brought into them.

Columns are found by field id, as the specification says ("Column Projection", "Schema Evolution"):
a column that a file lacks has its initial default or is NULL, a narrower type is widened. All
fields are optional, for a file may lack a column that became required later.
"""

from __future__ import annotations

import datetime as dt
import re
import uuid
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconciler.rewrite.columns import FIELD_ID, LIST, MAP, STRUCT, Column, Unreadable

_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)", re.IGNORECASE)
_FIXED = re.compile(r"fixed\[(\d+)\]", re.IGNORECASE)
UUID_BYTES = 16
UNKNOWN = "unknown"
LONG_DIGITS = 18
"""Most digits of a decimal that an integer of 8 bytes holds."""
OFFSET_BYTES = 1 << 28
"""Bytes of values, with as many bits as 32-bit offsets can count: no nested value is smaller."""
_PRIMITIVES: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "timestamp_ns": pa.timestamp("ns"),
    "timestamptz_ns": pa.timestamp("ns", "UTC"),
    "string": pa.string(),
    "binary": pa.binary(),
    "uuid": pa.binary(UUID_BYTES),
    UNKNOWN: pa.null(),
}
_WIDENED: Mapping[str, tuple[pa.DataType, ...]] = {
    "int": (pa.int8(), pa.int16()),
    "long": (pa.int8(), pa.int16(), pa.int32()),
    "double": (pa.float32(),),
    "timestamp": (pa.date32(),),
    "timestamp_ns": (pa.date32(),),
    "binary": (pa.string(),),
}
"""Other types in which a file may have a column, by Iceberg's type: before it was widened, or
annotated as signed integers of fewer bits."""


class Unsupported(Exception):
    """A column whose values Arrow cannot hold as Iceberg's type has them."""


def type_of(column: Column) -> pa.DataType:
    """Return the Arrow type of a column. Raises Unsupported."""
    if column.type == STRUCT:
        return pa.struct([field_of(child) for child in held(column.children)])
    if column.type == LIST:
        return pa.list_(field_of(column.children[0]))
    if column.type == MAP:
        key, value = column.children
        return pa.map_(field_of(key, optional=False), field_of(value))
    decimal, fixed = _DECIMAL.fullmatch(column.type), _FIXED.fullmatch(column.type)
    if decimal:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    if fixed:
        return pa.binary(int(fixed[1]))
    if column.type not in _PRIMITIVES:
        raise Unsupported(f"{column.name} ({column.type})")
    return _PRIMITIVES[column.type]


def field_of(column: Column, *, optional: bool = True) -> pa.Field:
    metadata = {FIELD_ID: str(column.field_id).encode()}
    return pa.field(column.name, type_of(column), nullable=optional, metadata=metadata)


def held(columns: Sequence[Column]) -> tuple[Column, ...]:
    """Return the columns that files hold: those of type unknown are NULL without being stored."""
    return tuple(column for column in columns if column.type != UNKNOWN)


def schema_of(columns: Sequence[Column]) -> pa.Schema:
    """Return the schema of the files of a table. Raises Unsupported."""
    return pa.schema([_annotated(field_of(column), column) for column in held(columns)])


def _annotated(field: pa.Field, column: Column) -> pa.Field:
    """Return the field with Arrow's type of UUIDs, which a Parquet file marks as such; readers get
    their bytes."""
    kind = field.type
    if column.type == "uuid":
        kind = pa.uuid()
    elif column.type == STRUCT:
        inside = zip(kind, held(column.children), strict=True)
        kind = pa.struct([_annotated(own, child) for own, child in inside])
    elif column.type == LIST:
        kind = pa.list_(_annotated(kind.value_field, column.children[0]))
    elif column.type == MAP:
        key, value = column.children
        kind = pa.map_(_annotated(kind.key_field, key), _annotated(kind.item_field, value))
    return field.with_type(kind)


def id_of(field: pa.Field) -> int | None:
    known = (field.metadata or {}).get(FIELD_ID)
    return None if known is None else int(known)


def ids_of(schema: pa.Schema, mapping: Sequence[Mapping[str, Any]] | None) -> dict[Any, int]:
    """Return the field id of each column of a file that has one, by its path of names.

    mapping: the table's name mapping, for files without any id. Raises Unreadable without both.
    """
    found: dict[Any, int] = {}
    for field in schema:
        _own_ids(field, (field.name,), found)
    if found:
        return found
    if mapping is None:
        raise Unreadable("", "columns without field ids, and the table has no name mapping")
    for field in schema:
        _mapped_ids(field, (field.name,), mapping, found)
    return found


def parts_of(field: pa.Field) -> list[tuple[str, pa.Field]]:
    """Return what a nested field holds, each with its name in a path; [] of a primitive."""
    kind = field.type
    if pa.types.is_struct(kind):
        return [(kind.field(i).name, kind.field(i)) for i in range(kind.num_fields)]
    if pa.types.is_map(kind):
        return [("key", kind.key_field), ("value", kind.item_field)]
    if hasattr(kind, "value_field"):
        return [("element", kind.value_field)]
    return []


def _own_ids(field: pa.Field, path: tuple[str, ...], found: dict[Any, int]) -> None:
    own = id_of(field)
    if own is not None:
        found[path] = own
    for name, part in parts_of(field):
        _own_ids(part, (*path, name), found)


def _mapped_ids(
    field: pa.Field,
    path: tuple[str, ...],
    mapping: Sequence[Mapping[str, Any]],
    found: dict[Any, int],
) -> None:
    entry = next((one for one in mapping if path[-1] in one.get("names", ())), None)
    if entry is None:
        return
    if entry.get("field-id") is not None:
        found[path] = int(entry["field-id"])
    for name, part in parts_of(field):
        _mapped_ids(part, (*path, name), entry.get("fields") or (), found)


def fitted(
    array: pa.Array, column: Column, ids: Mapping[Any, int], path: tuple[str, ...]
) -> pa.Array:
    """Return a file's values of a column in the table's type. path: of names in the file.

    Raises Unreadable for values that the specification does not allow under that type.
    """
    wanted = type_of(column)
    array = plain(_as_stored(array, wanted))
    if column.type == STRUCT:
        return _struct(array, column, ids, path, wanted)
    if column.type == LIST:
        return _list(array, column, ids, path, wanted)
    if column.type == MAP:
        return _map(array, column, ids, path, wanted)
    if pa.types.is_decimal(array.type):
        _require_digits(array, path)
    if array.type == wanted:
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), wanted)
    if not _is_narrower(column, array.type, wanted):
        raise Unreadable(".".join(path), f"{array.type} in the file")
    return array.cast(wanted)


def _as_stored(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return the values as Parquet holds them: Arrow gives them back in the type from which an
    Arrow writer stored them, if the file's metadata name it."""
    kind, types = array.type, pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _as_stored(array.storage, wanted)
    if types.is_dictionary(kind):
        values = _as_stored(array.dictionary, wanted)
        if values.type == wanted:
            return pa.DictionaryArray.from_arrays(array.indices.cast(pa.int32()), values)
        return _as_stored(array.dictionary_decode(), wanted)
    if types.is_string_view(kind) or types.is_large_string(kind):
        return array.cast(pa.string())
    if types.is_binary_view(kind) or types.is_large_binary(kind):
        return array.cast(pa.binary())
    if types.is_list_view(kind) or types.is_large_list_view(kind) or types.is_large_list(kind):
        return array.cast(pa.list_(kind.value_field))
    if types.is_fixed_size_list(kind):
        return array.cast(pa.list_(kind.value_field))
    if types.is_duration(kind):
        return array.view(pa.int64())
    if types.is_date64(kind):
        return array.cast(pa.date32())
    if types.is_decimal(kind) and not types.is_decimal128(kind):
        return array.cast(pa.decimal128(kind.precision, kind.scale))
    if (
        types.is_timestamp(kind)
        and kind.tz is not None
        and types.is_timestamp(wanted)
        and wanted.tz
    ):
        return array.cast(pa.timestamp(kind.unit, wanted.tz))
    return array


def plain(array: pa.Array) -> pa.Array:
    """Return values without a dictionary."""
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def encoded(array: pa.Array, column: Column, ids: Mapping[Any, int], path: Any) -> pa.Array:
    """Return a file's values of a text column as a dictionary; as `fitted` otherwise."""
    stored = _as_stored(array, type_of(column))
    if pa.types.is_dictionary(stored.type):
        return stored
    return fitted(array, column, ids, path).dictionary_encode()


def _is_narrower(column: Column, kind: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_decimal(wanted):
        same_scale = pa.types.is_decimal(kind) and kind.scale == wanted.scale
        return bool(same_scale and kind.precision <= wanted.precision)
    return bool(kind in _WIDENED.get(column.type, ()))


def _require_digits(array: pa.Array, path: tuple[str, ...]) -> None:
    """Raise Unreadable for decimals of more digits than their type has: no reader takes them, and
    narrower bytes may not hold them."""
    ends = pc.min_max(array)
    try:
        pa.array([ends["min"].as_py(), ends["max"].as_py()], array.type).validate(full=True)
    except (pa.ArrowInvalid, ArithmeticError) as error:
        detail = f"values of more digits than {array.type} has"
        raise Unreadable(".".join(path), detail) from error


def _require(holds: bool, array: pa.Array, path: tuple[str, ...]) -> None:
    if not holds:
        raise Unreadable(".".join(path), f"{array.type} in the file")


def _struct(
    array: pa.Array, column: Column, ids: Mapping[Any, int], path: tuple[str, ...], wanted: Any
) -> pa.Array:
    _require(pa.types.is_struct(array.type), array, path)
    by_id = {ids.get((*path, array.type.field(i).name)): i for i in range(array.type.num_fields)}
    flat, inside = array.flatten(), []
    absent = pc.is_null(array)
    for child in held(column.children):
        at = by_id.get(child.field_id)
        if at is None:
            filled = constant(child, child.default, len(array))
            inside.append(pc.if_else(absent, pa.scalar(None, filled.type), filled))
        else:
            inside.append(fitted(flat[at], child, ids, (*path, array.type.field(at).name)))
    fields = [wanted.field(i) for i in range(wanted.num_fields)]
    if not inside:
        return pa.nulls(len(array), wanted) if absent.false_count == 0 else _empty(absent, wanted)
    return pa.StructArray.from_arrays(inside, fields=fields, mask=absent)


def _empty(absent: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return structs without a field, some of them NULL."""
    return pa.array([None if one else {} for one in absent.to_pylist()], wanted)


def _list(
    array: pa.Array, column: Column, ids: Mapping[Any, int], path: tuple[str, ...], wanted: Any
) -> pa.Array:
    _require(pa.types.is_list(array.type), array, path)
    whole = pa.concat_arrays([array]) if array.offset else array
    values = fitted(whole.values, column.children[0], ids, (*path, "element"))
    absent = whole.is_null() if whole.null_count else None
    return pa.ListArray.from_arrays(whole.offsets, values, wanted, mask=absent)


def _map(
    array: pa.Array, column: Column, ids: Mapping[Any, int], path: tuple[str, ...], wanted: Any
) -> pa.Array:
    _require(pa.types.is_map(array.type), array, path)
    whole = pa.concat_arrays([array]) if array.offset else array
    key, value = column.children
    keys = fitted(whole.keys, key, ids, (*path, "key"))
    items = fitted(whole.items, value, ids, (*path, "value"))
    absent = whole.is_null() if whole.null_count else None
    return pa.MapArray.from_arrays(whole.offsets, keys, items, wanted, mask=absent)


def child_of(values: Any, name: str) -> Any:
    """Return a field of structs, NULL where they are: a name that begins with a dot or a bracket
    would be taken for a path."""
    return pc.struct_field(values, [[field.name for field in values.type].index(name)])


# Whole columns


class Whole:
    """Rows of a table that are gathered at random: each column is in one piece."""

    def __init__(self, table: pa.Table) -> None:
        self._schema = table.schema
        self._columns = [one_piece(column) for column in table.columns]

    def take(self, order: Any) -> pa.Table:
        """Return the rows of these numbers, in the table's types. order: int64[rows]."""
        at = pa.array(order)
        pairs = zip(self._columns, self._schema, strict=True)
        columns = [
            pa.chunked_array(_gathered(values, at, field.type), field.type)
            for values, field in pairs
        ]
        return pa.table(columns, schema=self._schema)


def gathered(column: pa.ChunkedArray, order: pa.Array) -> pa.ChunkedArray:
    """Return a column's values in an order of the rows."""
    kind, whole = column.type, one_piece(column)
    del column  # its pieces are freed before they are there a third time
    return pa.chunked_array(_gathered(whole, order, kind), kind)


def narrowed(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return decimals that files store as integers in 64 bits, not in 128, and others as they are:
    there is half as much to gather, and the same bytes are written."""
    kind = column.type
    if not pa.types.is_decimal128(kind) or kind.precision > LONG_DIGITS:
        return column
    return column.cast(pa.decimal64(kind.precision, kind.scale))


def one_piece(column: pa.ChunkedArray) -> pa.Array:
    """Return a column's values as one array, with one dictionary if they have some.

    Where 32-bit offsets may not do for all of them, the array's type is that with 64-bit offsets.
    """
    if column.num_chunks == 1:
        return column.chunk(0)
    if not column.num_chunks:
        return pa.nulls(0, column.type)
    column = column.unify_dictionaries()
    if column.nbytes > OFFSET_BYTES:
        column = column.cast(wide(column.type))
    return pa.concat_arrays(column.chunks)


def wide(kind: pa.DataType) -> pa.DataType:
    """Return the type with 64-bit offsets (of a map, inside it: it has none)."""
    types = pa.types
    if types.is_string(kind) or types.is_binary(kind):
        return pa.large_string() if types.is_string(kind) else pa.large_binary()
    if types.is_struct(kind):
        return pa.struct([field.with_type(wide(field.type)) for field in kind])
    if types.is_list(kind):
        return pa.large_list(kind.value_field.with_type(wide(kind.value_type)))
    if types.is_map(kind):
        key, item = kind.key_field, kind.item_field
        return pa.map_(key.with_type(wide(key.type)), item.with_type(wide(item.type)))
    return kind


def _gathered(values: pa.Array, at: pa.Array, wanted: pa.DataType) -> list[pa.Array]:
    """Return values in a type with 32-bit offsets, in as many pieces as these need."""
    found = values.take(at)
    if found.type == wanted:
        return [found]
    if found.nbytes <= OFFSET_BYTES or len(at) == 1:
        return [found.cast(wanted)]
    rows = -(-len(at) // (found.nbytes // OFFSET_BYTES + 1))
    parts = [at.slice(first, rows) for first in range(0, len(at), rows)]
    del found
    return [piece for part in parts for piece in _gathered(values, part, wanted)]


# Values that are not stored


def constant(column: Column, value: Any, rows: int) -> pa.Array:
    """Return rows of one value, as the specification writes it in JSON ("JSON single-value
    serialization"); None is NULL."""
    wanted = type_of(column)
    if value is None or column.type in (STRUCT, LIST, MAP):
        return pa.nulls(rows, wanted)
    return pa.repeat(pa.scalar(_value(column.type, value), wanted), rows)


def _value(kind: str, value: Any) -> Any:
    if kind == "boolean":
        return bool(value)
    if kind in ("int", "long"):
        return int(value)
    if kind in ("float", "double"):
        return float(value)
    if kind == "uuid":
        return uuid.UUID(str(value)).bytes
    if kind == "binary" or kind.startswith("fixed"):
        return bytes.fromhex(str(value))
    if _DECIMAL.fullmatch(kind):
        return Decimal(str(value))
    if kind == "date":
        return dt.date.fromisoformat(value) if isinstance(value, str) else int(value)
    if kind == "time":
        return dt.time.fromisoformat(value) if isinstance(value, str) else int(value)
    if kind.startswith("timestamp"):
        return _timestamp(kind, value)
    return str(value)


def _timestamp(kind: str, value: Any) -> int:
    """Return a timestamp's number in the unit of its type."""
    if not isinstance(value, str):
        return int(value)
    nanos = kind.endswith("_ns")
    text = value.removesuffix("Z").removesuffix("+00:00")
    return int(np.datetime64(text, "ns" if nanos else "us").astype(np.int64))
