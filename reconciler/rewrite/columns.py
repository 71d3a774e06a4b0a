"""The columns of a table, and those that a Parquet file holds, found by field id.

The witness reads files without Iceberg's library, so it needs the rules of the specification
("Column Projection", "Schema Evolution") in its own words: ids first, else the table's name
mapping.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from reconciler.table.deletes import PATH_ID, POSITION_ID

STRUCT, LIST, MAP = "struct", "list", "map"
FIELD_ID = b"PARQUET:field_id"
"""Arrow's name of a field id, where it reads and writes Parquet."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table's schema, or a part of one."""

    field_id: int
    """The column's id in the table's schemas."""
    name: str
    """Its name, of this level alone."""
    type: str
    """Iceberg's name of a primitive type, or STRUCT, LIST, MAP."""
    children: tuple[Column, ...] = ()
    """The fields of a struct, the element of a list, key and value of a map."""
    default: Any = None
    """Value of rows in files without the column, as the specification writes it in JSON."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A column that a file holds, or a part of one."""

    field_id: int | None
    """Its Iceberg field id, None if the file has none."""
    name: str
    """Its name in the file."""
    type: str
    """DuckDB's name of a leaf's type, or STRUCT, LIST, MAP."""
    children: tuple[Stored, ...] = ()
    """Its parts: members of a struct, the element of a list, key and value of a map."""


PATH_COLUMN = Column(PATH_ID, "file_path", "string")
POSITION_COLUMN = Column(POSITION_ID, "pos", "long")
POSITION_COLUMNS = (PATH_COLUMN, POSITION_COLUMN)
POSITION_MAPPING = [{"field-id": one.field_id, "names": [one.name]} for one in POSITION_COLUMNS]
"""Name mapping of position delete files that were written without field ids."""


class Unreadable(Exception):
    """A file holds what a reader of this package cannot take for a column of the table: to the
    engine it is damaged, to the witness it cannot be compared.

    column: dotted name, "" if it concerns the file as a whole. detail: a clause without values.
    """

    def __init__(self, column: str, detail: str) -> None:
        super().__init__(column, detail)
        self.column, self.detail = column, detail


def columns_of(schema: Mapping[str, Any]) -> tuple[Column, ...]:
    """Return the columns of a schema as the specification writes it in JSON."""
    return tuple(_field(body) for body in schema["fields"])


def _field(body: Mapping[str, Any]) -> Column:
    made = _column(int(body["id"]), str(body["name"]), body["type"])
    return replace(made, default=body.get("initial-default"))


def _column(field_id: int, name: str, kind: Any) -> Column:
    if isinstance(kind, str):
        return Column(field_id, name, kind)
    if kind["type"] == STRUCT:
        return Column(field_id, name, STRUCT, columns_of(kind))
    if kind["type"] == LIST:
        return Column(
            field_id, name, LIST, (_column(int(kind["element-id"]), "element", kind["element"]),)
        )
    key = _column(int(kind["key-id"]), "key", kind["key"])
    value = _column(int(kind["value-id"]), "value", kind["value"])
    return Column(field_id, name, MAP, (key, value))


def every(
    columns: Sequence[Column], within: tuple[Column, ...] = ()
) -> Iterator[tuple[Column, ...]]:
    """Yield the way to each column that is not inside a list or a map."""
    for column in columns:
        way = (*within, column)
        yield way
        if column.type == STRUCT:
            yield from every(column.children, way)


def leaves(columns: Sequence[Column], within: str = "") -> Iterator[tuple[str, str]]:
    """Yield dotted name and type of each column that holds values, in lists and maps too."""
    for column in columns:
        name = f"{within}{column.name}"
        if column.type in (STRUCT, LIST, MAP):
            yield from leaves(column.children, f"{name}.")
        else:
            yield name, column.type


def stored_columns(rows: Sequence[Mapping[str, Any]]) -> tuple[Stored, ...]:
    """Return the columns of a file from DuckDB's `parquet_schema`, in the order of its rows."""
    root, end = _stored(rows, 0, "")
    assert end == len(rows)
    return root.children


def _stored(rows: Sequence[Mapping[str, Any]], at: int, within: str) -> tuple[Stored, int]:
    row, children, end = rows[at], [], at + 1
    name = str(row["name"])
    path = f"{within}.{name}" if within else name if at else ""
    for _ in range(int(row["num_children"] or 0)):
        child, end = _stored(rows, end, path)
        children.append(child)
    field_id = None if row["field_id"] is None else int(row["field_id"])
    if not children:
        kind = STRUCT if row["type"] is None else str(row["duckdb_type"])
        return Stored(field_id, name, kind), end
    marks = f"{row['converted_type']} {row['logical_type']}"
    if "MAP" in marks or "Map" in marks:
        return Stored(field_id, name, MAP, _inside(children, path, 2)), end
    if "LIST" in marks or "List" in marks:
        return Stored(field_id, name, LIST, _inside(children, path, 1)), end
    return Stored(field_id, name, STRUCT, tuple(children)), end


def _inside(children: Sequence[Stored], path: str, number: int) -> tuple[Stored, ...]:
    """Return what the repeated group of a list or a map holds."""
    if len(children) != 1 or len(children[0].children) != number:
        raise Unreadable(path, "a list or a map of another form than three levels")
    return children[0].children


def with_ids(stored: Sequence[Stored], mapping: str | None) -> tuple[Stored, ...]:
    """Return the columns with the ids of the table's name mapping if the file has none."""
    if any(_has_id(column) for column in stored):
        return tuple(stored)
    if mapping is None:
        raise Unreadable("", "columns without field ids, and the table has no name mapping")
    return _mapped(stored, json.loads(mapping))


def _has_id(column: Stored) -> bool:
    return column.field_id is not None or any(_has_id(child) for child in column.children)


def _mapped(stored: Sequence[Stored], mapping: Sequence[Mapping[str, Any]]) -> tuple[Stored, ...]:
    by_name = {name: entry for entry in mapping for name in entry.get("names", ())}
    found = []
    for column in stored:
        entry = by_name.get(column.name, {})
        inside: Sequence[Stored] = column.children
        if column.type == LIST:
            inside = [replace(inside[0], name="element")]
        elif column.type == MAP:
            inside = [replace(inside[0], name="key"), replace(inside[1], name="value")]
        field_id = entry.get("field-id")
        children = _mapped(inside, entry.get("fields") or ())
        found.append(replace(column, field_id=field_id, children=children))
    return tuple(found)
