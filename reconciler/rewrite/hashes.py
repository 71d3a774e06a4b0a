"""SQL of DuckDB whose value shows what a row holds: equal for equal rows, whatever file holds them.

DuckDB's plain hash does not see an element that moves between neighbouring lists, a NULL struct
that becomes a struct of NULLs, or a zero's sign, and takes the order of a map's entries for a part
of its value. So the parts of a nested value are hashed one by one, with what is missing in between.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from reconciler.rewrite.columns import LIST, MAP, STRUCT, Column, Stored, Unreadable

Constants = Mapping[int, str]
"""SQL of the value that all rows of a file have in a column that it does not hold, by field id."""

_INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT", "UINTEGER")
_TIMESTAMPS = (
    "TIMESTAMP",
    "TIMESTAMP_S",
    "TIMESTAMP_MS",
    "TIMESTAMP_NS",
    "TIMESTAMP WITH TIME ZONE",
)
NO_LIST = "CAST(NULL AS UBIGINT[])"
"""SQL of a column that a file lacks: DuckDB hashes a NULL list to another number than other
NULLs."""
_TEXTS = ("VARCHAR", "BLOB", "JSON", "ENUM")
_READ_AS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "boolean": ("BOOLEAN", ("BOOLEAN",)),
    "int": ("INTEGER", _INTEGERS),
    "long": ("BIGINT", (*_INTEGERS, "BIGINT", "UBIGINT")),
    "float": ("FLOAT", ("FLOAT",)),
    "double": ("DOUBLE", ("DOUBLE", "FLOAT")),
    "date": ("DATE", ("DATE",)),
    "time": ("TIME", ("TIME", "TIME_NS", "TIME WITH TIME ZONE")),
    "timestamp": ("TIMESTAMP", (*_TIMESTAMPS, "DATE")),
    "timestamptz": ("TIMESTAMPTZ", _TIMESTAMPS),
    "timestamp_ns": ("TIMESTAMP_NS", (*_TIMESTAMPS, "DATE")),
    "timestamptz_ns": ("TIMESTAMP_NS", _TIMESTAMPS),
}
"""DuckDB's type that a value of Iceberg's type is compared in, and those that a file may have it
in."""
_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)", re.IGNORECASE)


def column_parts(column: Column, stored: Sequence[Stored], constants: Constants) -> list[str]:
    """Return SQL of values that together show what a top-level column holds."""
    found = _by_id(stored, column.field_id)
    value = None if found is None else named(found)
    return _parts(column, value, found, constants, column.name, 0)


def value_of(way: Sequence[Column], stored: Sequence[Stored], constants: Constants) -> str:
    """Return SQL of a primitive column that is not inside a list or a map, as it is compared."""
    value: str | None = None
    found: Stored | None = None
    name = ".".join(column.name for column in way)
    for depth, column in enumerate(way):
        inside = stored if not depth else () if found is None else found.children
        holder, found = value, _by_id(inside, column.field_id)
        if found is None and column.field_id in constants:
            return constants[column.field_id]
        if found is None:
            value = _default(column, holder)
        elif depth:
            value = f"struct_extract_at({holder}, {_place(inside, found)})"
        else:
            value = named(found)
    last = way[-1]
    return _read(last, value, found, name)


def named(column: Stored) -> str:
    """Return SQL of a top-level column of relation `r`."""
    return 'r."' + column.name.replace('"', '""') + '"'


def _by_id(stored: Sequence[Stored], field_id: int) -> Stored | None:
    return next((column for column in stored if column.field_id == field_id), None)


def _place(stored: Sequence[Stored], found: Stored) -> int:
    return next(i for i, column in enumerate(stored, start=1) if column is found)


def _default(column: Column, holder: str | None) -> str | None:
    """Return the initial default of a column that a file lacks; holder: the struct around it."""
    if column.default is None or column.type in (STRUCT, LIST, MAP):
        return None
    value = literal(column.type, column.default)
    return value if holder is None else f"CASE WHEN {holder} IS NOT NULL THEN {value} END"


def _parts(
    column: Column,
    value: str | None,
    stored: Stored | None,
    constants: Constants,
    name: str,
    depth: int,
    holder: str | None = None,
) -> list[str]:
    """Return the parts of a value. value: its SQL, None where a file lacks the column."""
    if stored is None and column.field_id in constants:
        return _of_primitive(column, constants[column.field_id])
    if column.type == STRUCT:
        return _of_struct(column, value, stored, constants, name, depth)
    if column.type in (LIST, MAP):
        if value is None or stored is None:
            return ["NULL", NO_LIST]
        _require(stored.type == column.type, name, stored)
        element, items = f"e{depth}", value
        inside = zip(column.children, stored.children, strict=True)
        if column.type == MAP:
            items = f"map_entries({value})"
            parts = [
                part
                for field, (child, held) in zip(("key", "value"), inside, strict=True)
                for part in _parts(
                    child, f"struct_extract({element}, '{field}')", held, {},
                    f"{name}.{field}", depth + 1,
                )
            ]  # fmt: skip
            hashed = f"list_sort(list_transform({items}, lambda {element}: {_hash(parts)}))"
            return [f"len({items})", hashed]
        ((child, held),) = inside
        parts = _parts(child, element, held, {}, f"{name}.element", depth + 1)
        return [f"len({value})", f"list_transform({items}, lambda {element}: {_hash(parts)})"]
    if value is None:
        value = _default(column, holder)
        return _of_primitive(column, value or "NULL")
    return _of_primitive(column, _read(column, value, stored, name))


def _of_struct(
    column: Column,
    value: str | None,
    stored: Stored | None,
    constants: Constants,
    name: str,
    depth: int,
) -> list[str]:
    if stored is not None:
        _require(stored.type == STRUCT, name, stored)
    inside = () if stored is None else stored.children
    parts = ["true" if value is None else f"{value} IS NULL"]
    for child in column.children:
        held = _by_id(inside, child.field_id)
        at = None if held is None else f"struct_extract_at({value}, {_place(inside, held)})"
        own = value if value is not None else "NULL"
        parts += _parts(child, at, held, constants, f"{name}.{child.name}", depth, own)
    return parts


def _hash(parts: Sequence[str]) -> str:
    return f"hash({', '.join(parts)})"


def _of_primitive(column: Column, value: str) -> list[str]:
    if column.type in ("float", "double") and value != "NULL":
        return [value, zero_sign(value)]
    if column.type in ("float", "double"):
        return ["NULL", "NULL"]
    return [value]


def zero_sign(value: str) -> str:
    """Return SQL that tells zeros of different signs apart, which DuckDB takes for equal."""
    return f"({value} = 0 AND signbit({value}))"


def _read(column: Column, value: str | None, stored: Stored | None, name: str) -> str:
    """Return a stored primitive value in the type in which it is compared."""
    if column.type == "unknown":
        return "NULL"
    if value is None or stored is None:
        return value or "NULL"
    kind = stored.type
    if kind == '"NULL"':
        return "NULL"
    decimal = _DECIMAL.fullmatch(column.type)
    if decimal:
        held = _DECIMAL.fullmatch(kind)
        _require(held is not None and held[2] == decimal[2], name, stored)
        return _cast(value, kind, f"DECIMAL({decimal[1]},{decimal[2]})")
    known = _READ_AS.get(column.type)
    if known is not None:
        _require(kind in known[1], name, stored)
        return _cast(value, kind, known[0])
    if kind == "UUID":  # an annotation of 16 bytes; files may lack it
        return f"CAST({value} AS BLOB)"
    if column.type == "variant" or column.type.startswith(("geometry", "geography")):
        return value
    _require(kind in _TEXTS, name, stored)
    return value if kind in ("VARCHAR", "BLOB") else f"CAST({value} AS VARCHAR)"


def _cast(value: str, kind: str, wanted: str) -> str:
    same = {kind, kind.replace("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ")}
    return value if wanted in same else f"CAST({value} AS {wanted})"


def _require(holds: bool, name: str, stored: Stored) -> None:
    if not holds:
        raise Unreadable(name, f"{stored.type} in the file")


def literal(kind: str, value: Any) -> str:
    """Return SQL of a value as the specification writes it in JSON ("JSON single-value
    serialization"), in the type in which columns of that type are compared."""
    if value is None:
        return "NULL"
    text = "'" + str(value).replace("'", "''") + "'"
    if kind in ("binary", "uuid") or kind.startswith("fixed"):
        return f"from_hex('{str(value).replace('-', '')}')"
    if kind == "string":
        return text
    if kind == "boolean":
        return "true" if value else "false"
    decimal = _DECIMAL.fullmatch(kind)
    if decimal:
        return f"CAST({text} AS DECIMAL({decimal[1]},{decimal[2]}))"
    if kind not in _READ_AS:
        raise Unreadable("", f"a constant of type {kind}")
    return f"CAST({text} AS {_READ_AS[kind][0]})"
