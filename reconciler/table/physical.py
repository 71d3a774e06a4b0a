"""Judges whether a Parquet file holds what the Iceberg specification allows for a table's columns.

A file outside it is read by one reader and misread or refused by another, so a rewrite would change
what somebody sees, whichever reading is right. Accepted is what the specification allows (Apache
Iceberg table specification, "Parquet", "Schema Evolution" and "Column Projection"), and what
Spark's two readers, DuckDB and pyarrow all read alike beyond it: integers of fewer bits, decimals
of fewer digits in any of the integer and fixed forms, an ENUM as a string, a UUID without its
annotation, lists whose parts have other names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from reconciler.table.deletes import PATH_ID, POSITION_ID
from reconciler.table.parquet_schema import LOCAL, UTC, Node
from reconciler.table.refusals import NO_FIELD_IDS, PHYSICAL_SCHEMA, WRONG_ROWS, WRONG_SIZE

NAME_MAPPING = "schema.name-mapping.default"
"""The table property of the name mapping."""

RLE = "RLE"
SPLIT = "BYTE_STREAM_SPLIT"
CODECS = ("BROTLI", "LZO")
"""Compressions that Spark does not decode as it is shipped."""

_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")
_FIXED = re.compile(r"fixed\[(\d+)\]")
_ANNOTATED_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
MOST_DECIMAL_BYTES = 16
_ANY: tuple[str, ...] = ("",)

Type = Any
"""A type as the specification writes it in JSON ("Appendix C"): a text, or an object of a nested
type."""


@dataclass(frozen=True, slots=True)
class FileForm:
    """What a Parquet file's footer says about its columns."""

    schema: Node
    """The root of its schema."""
    stored: tuple[tuple[int, str], ...] = ()
    """(column number, RLE, SPLIT or one of CODECS) of the columns stored in a way that not every
    reader reads."""


@dataclass(frozen=True, slots=True)
class WrongSize:
    """A file whose size is not the one that the table's metadata has: readers look for its footer
    elsewhere."""

    stated: int
    """Its size in bytes by the table's metadata."""
    actual: int
    """Its size in bytes in the storage."""


@dataclass(frozen=True, slots=True)
class WrongRows:
    """A data file with another number of rows than the table's metadata has: readers that count by
    metadata see others than readers of the file, and Iceberg commits no replacement with more rows
    than it replaces."""

    stated: int
    """Its rows by the table's metadata."""
    actual: int
    """Its rows by its footer."""


Form = FileForm | WrongSize | WrongRows


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a file is not rewritten; see `refusals.Refusal`."""

    reason: str
    """PHYSICAL_SCHEMA, NO_FIELD_IDS, WRONG_SIZE or WRONG_ROWS."""
    column: str
    """Dotted name in the table, "" if it concerns the file as a whole."""
    detail: str
    """What the file holds."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What a table says about the columns of its files."""

    body: Mapping[str, Any]
    """Its schema, or one of these columns of it, in the JSON form of the specification."""
    mapping: str | None = None
    """Its property schema.name-mapping.default."""


NO_COLUMNS = Expected({"fields": []})

POSITION_DELETES = Expected(
    {
        "fields": [
            {"id": PATH_ID, "name": "file_path", "type": "string"},
            {"id": POSITION_ID, "name": "pos", "type": "long"},
        ]
    }
)
"""The columns of a position delete file ("Reserved Field IDs")."""


def only(table: Expected, ids: Collection[int]) -> Expected:
    """Return the table's columns of these field ids, as an equality delete file has them; a column
    that was dropped is not known any more."""
    return replace(table, body=_only(table.body, ids))


def _only(body: Mapping[str, Any], ids: Collection[int]) -> Mapping[str, Any]:
    kept = []
    for field in body["fields"]:
        kind = field["type"]
        if field["id"] in ids:
            kept.append(field)
        elif not isinstance(kind, str) and kind["type"] == "struct":
            within = _only(kind, ids)
            if within["fields"]:
                kept.append({**field, "type": within})
    return {**body, "fields": kept}


def fault_of(file: Form, table: Expected) -> Fault | None:
    """Return the first fault of a file, None for a sound one."""
    if isinstance(file, WrongSize):
        sizes = f"{file.actual:,} bytes, where the table's metadata says {file.stated:,}"
        return Fault(WRONG_SIZE, "", sizes)
    if isinstance(file, WrongRows):
        rows = f"{file.actual:,} rows, where the table's metadata says {file.stated:,}"
        return Fault(WRONG_ROWS, "", rows)
    return next(_faults(file, table), None)


def _faults(file: FileForm, table: Expected) -> Iterator[Fault]:
    root = file.schema
    if not any(node.field_id is not None for node in root.walk()):
        mapping = mapping_of(table.mapping)
        if mapping is None:
            yield Fault(
                NO_FIELD_IDS, "", "no field ids, and the table has no usable name mapping, so that "
                "its columns are not known",
            )  # fmt: skip
            return
        root = _numbered(root, mapping)
    yield from _twice(root)
    yield from _struct(table.body, root, "")
    yield from _stored(file, root, table.body)


def mapping_of(text: str | None) -> list[Any] | None:
    """Return the name mapping, None if there is none or if it cannot be used."""
    try:
        found = json.loads(text) if text else None
        return found if isinstance(found, list) and _is_mapping(found) else None
    except (ValueError, RecursionError):
        return None


def _is_mapping(entries: Any) -> bool:
    """A name that two entries of one level have is read by one reader as one, by another as the
    other."""
    if not isinstance(entries, list) or not all(
        isinstance(entry, dict)
        and isinstance(entry.get("names", []), list)
        and all(isinstance(name, str) for name in entry.get("names", []))
        and isinstance(entry.get("field-id"), int | None)
        and _is_mapping(entry.get("fields") or [])
        for entry in entries
    ):
        return False
    names = [name for entry in entries for name in entry.get("names", ())]
    return len(set(names)) == len(names)


def _numbered(node: Node, entries: Sequence[Mapping[str, Any]]) -> Node:
    """Return the node with the ids that the mapping's entries give to what is below it.

    A list's and a map's repeated group has no name of its own in a mapping; their parts are named
    element, key and value there, whatever the file calls them.
    """
    if node.annotation in ("LIST", "MAP") and len(node.children) == 1:
        (middle,) = node.children
        names = ("element",) if node.annotation == "LIST" else ("key", "value")
        if len(middle.children) == len(names):
            parts = zip(middle.children, names, strict=True)
            inner = tuple(_named(part, name, entries) for part, name in parts)
            return _with(node, (_with(middle, inner),))
    return _with(node, tuple(_named(child, child.name, entries) for child in node.children))


def _named(node: Node, name: str, entries: Sequence[Mapping[str, Any]]) -> Node:
    entry = next((e for e in entries if name in e.get("names", ())), None)
    if entry is None:
        return node
    below = _numbered(node, entry.get("fields") or [])
    return Node(
        node.name, entry.get("field-id"), node.repetition, node.physical, node.length,
        node.annotation, below.children,
    )  # fmt: skip


def _with(node: Node, children: tuple[Node, ...]) -> Node:
    return Node(
        node.name, node.field_id, node.repetition, node.physical, node.length, node.annotation,
        children,
    )  # fmt: skip


def _twice(root: Node) -> Iterator[Fault]:
    seen: dict[int, str] = {}
    for node in root.walk():
        if node.field_id is None:
            continue
        if node.field_id in seen:
            names = f"{seen[node.field_id]} and {node.name}"
            yield Fault(NO_FIELD_IDS, "", f"field id {node.field_id} is that of {names}")
        seen[node.field_id] = node.name


def _struct(body: Mapping[str, Any], group: Node, within: str) -> Iterator[Fault]:
    """Yield the faults of a struct's fields; a field that the file does not have is NULL, or its
    default."""
    by_id = {node.field_id: node for node in group.children if node.field_id is not None}
    unnamed = {node.name.casefold(): node for node in group.children if node.field_id is None}
    for field in body["fields"]:
        name = f"{within}{field['name']}"
        node = by_id.get(field["id"])
        if node is not None:
            yield from _column(field["type"], node, name)
        elif str(field["name"]).casefold() in unnamed:
            yield Fault(
                NO_FIELD_IDS, name, f"a column {unnamed[field['name'].casefold()].name} without a "
                "field id beside others that have one, or that the name mapping does not name",
            )  # fmt: skip


def _column(kind: Type, node: Node, name: str) -> Iterator[Fault]:
    if node.repetition == "repeated":
        yield Fault(PHYSICAL_SCHEMA, name, f"a repeated {_shown(node)} outside a LIST or a MAP")
    elif isinstance(kind, str):
        if not _allowed(kind, node):
            yield Fault(PHYSICAL_SCHEMA, name, f"{_shown(node)} for the type {kind}")
    elif kind["type"] == "struct":
        if node.physical or node.annotation:
            yield Fault(PHYSICAL_SCHEMA, name, f"{_shown(node)} for a struct")
        else:
            yield from _struct(kind, node, f"{name}.")
    elif kind["type"] == "list":
        yield from _list(kind, node, name)
    elif kind["type"] == "map":
        yield from _map(kind, node, name)


def _list(kind: Type, node: Node, name: str) -> Iterator[Fault]:
    parts = _parts(node, "LIST", 1)
    if parts is None:
        yield Fault(PHYSICAL_SCHEMA, name, f"{_shown(node)} for a list, which has three levels")
    elif parts[0].field_id != kind["element-id"]:
        yield Fault(NO_FIELD_IDS, name, "its elements do not have the field id of the table's")
    else:
        yield from _column(kind["element"], parts[0], f"{name}.element")


def _map(kind: Type, node: Node, name: str) -> Iterator[Fault]:
    parts = _parts(node, "MAP", 2)
    if parts is None or [part.name for part in parts] != ["key", "value"]:
        text = f"{_shown(node)} for a map, which is a MAP of groups of key and value"
        yield Fault(PHYSICAL_SCHEMA, name, text)
    elif [part.field_id for part in parts] != [kind["key-id"], kind["value-id"]]:
        yield Fault(NO_FIELD_IDS, name, "its keys or values do not have the table's field ids")
    else:
        yield from _column(kind["key"], parts[0], f"{name}.key")
        yield from _column(kind["value"], parts[1], f"{name}.value")


def _parts(node: Node, annotation: str, count: int) -> tuple[Node, ...] | None:
    """Return what a list's or a map's repeated group holds, None if it is of another form."""
    if node.physical or node.annotation != annotation or len(node.children) != 1:
        return None
    (middle,) = node.children
    sound = middle.repetition == "repeated" and not middle.physical
    return middle.children if sound and len(middle.children) == count else None


def _shown(node: Node) -> str:
    """Return what a node of a file is, as a person finds it with a tool for Parquet."""
    physical = node.physical or "a group"
    length = f"({node.length})" if node.length else ""
    annotation = f" annotated {node.annotation}" if node.annotation else ""
    if node.physical or len(node.children) != 1:
        return f"{physical}{length}{annotation}"
    return f"{physical}{annotation} of {_shown(node.children[0])}"


_INT32 = ("", "INTEGER(8,signed)", "INTEGER(16,signed)", "INTEGER(32,signed)")
_ALLOWED: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "boolean": {"BOOLEAN": _ANY},
    "int": {"INT32": _INT32},
    "long": {"INT64": ("", "INTEGER(64,signed)"), "INT32": _INT32},
    "float": {"FLOAT": _ANY},
    "double": {"DOUBLE": _ANY, "FLOAT": _ANY},
    "date": {"INT32": ("DATE",)},
    "time": {"INT64": (f"TIME(MICROS,{LOCAL})", f"TIME(MICROS,{UTC})")},
    "timestamp": {"INT64": (f"TIMESTAMP(MICROS,{LOCAL})",)},
    "timestamptz": {"INT64": (f"TIMESTAMP(MICROS,{UTC})",)},
    "timestamp_ns": {"INT64": (f"TIMESTAMP(NANOS,{LOCAL})",)},
    "timestamptz_ns": {"INT64": (f"TIMESTAMP(NANOS,{UTC})",)},
    "string": {"BYTE_ARRAY": ("STRING", "ENUM")},
    "binary": {"BYTE_ARRAY": _ANY},
}
"""Annotations by physical type by Iceberg type."""


def _allowed(kind: str, node: Node) -> bool:
    """Whether the column may hold a primitive type; a type that is not known here is not judged."""
    if kind == "uuid":
        return _fixed(node, 16) and node.annotation in ("UUID", "")
    if fixed := _FIXED.fullmatch(kind):
        return _fixed(node, int(fixed[1])) and not node.annotation
    if decimal := _DECIMAL.fullmatch(kind):
        return _holds_decimal(int(decimal[1]), int(decimal[2]), node)
    if kind in _ALLOWED:
        return node.annotation in _ALLOWED[kind].get(node.physical, ())
    return True


def _fixed(node: Node, length: int) -> bool:
    return node.physical == "FIXED_LEN_BYTE_ARRAY" and node.length == length


def _holds_decimal(precision: int, scale: int, node: Node) -> bool:
    """Fewer digits than the column's are a promotion; another scale is none."""
    found = _ANNOTATED_DECIMAL.fullmatch(node.annotation)
    if found is None or int(found[2]) != scale or int(found[1]) > precision:
        return False
    if node.physical == "FIXED_LEN_BYTE_ARRAY":
        return node.length <= MOST_DECIMAL_BYTES
    most = {"INT32": 9, "INT64": 18}.get(node.physical, 0)
    return int(found[1]) <= most


def _stored(file: FileForm, root: Node, body: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield the table's columns that are stored in a way that not every reader reads."""
    if not file.stored:
        return
    leaves = list(_top_leaves(root))
    names = {int(f["id"]): str(f["name"]) for f in body["fields"]}
    for number, how in file.stored:
        top, leaf, nested = leaves[number]
        if top.field_id not in names or (how == RLE and nested):
            continue
        verb = "compressed by" if how in CODECS else "in pages encoded by"
        detail = f"{leaf.physical} {verb} {how}, which not every reader reads"
        yield Fault(PHYSICAL_SCHEMA, names[top.field_id], detail)


def _top_leaves(root: Node) -> Iterator[tuple[Node, Node, bool]]:
    """Yield each leaf column in the file's order: its top-level column, itself, whether it is
    nested."""
    for top in root.children:
        if top.physical:
            yield top, top, False
        for node in top.walk():
            if node.physical:
                yield top, node, True
