"""Predicates and literals as JSON texts, without loss, for the state tables.

A predicate is a compact JSON array per node; bytes are hex and floats are hexadecimal literals, so
that what is read back is equal to what was written. The form is persisted: change it only
additively (a new tag, never another meaning). Earlier versions stored a row for each fragment,
which is still read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from reconciler.queries.fragments import Fragment
from reconciler.queries.predicate import (
    Always,
    And,
    Comparison,
    First,
    In,
    IsNaN,
    IsNull,
    Literal,
    Not,
    Or,
    Predicate,
    Ref,
    StartsWith,
)
from reconciler.table.values import Scalar

ROW_TYPES: tuple[tuple[str, str], ...] = (
    ("source", "string"),
    ("position", "long"),
    ("table_uuid", "string"),
    ("shape_id", "string"),
    ("predicate", "string"),
    ("literals", "string"),
    ("moving", "string"),
    ("projection", "string"),
    ("weight", "double"),
    ("event_ms", "long"),
    ("engine", "string"),
    ("recorded_bytes", "long"),
    ("duration_ms", "long"),
    ("full_scan", "boolean"),
    ("unbound", "string"),
    ("elsewhere", "boolean"),
    ("grouped", "boolean"),
    ("merged", "boolean"),
)
"""Column names and Iceberg types of a fragment as earlier versions stored it."""


def fragment_from_row(row: dict[str, Any]) -> Fragment:
    """Return the fragment of a row. Raises ValueError or KeyError on a foreign row."""
    unbound = row.get("unbound")
    return Fragment(
        source=row["source"],
        position=row["position"],
        table_uuid=row["table_uuid"],
        predicate=predicate_from_json(row["predicate"]),
        literals=tuple(_literal_in(value) for value in json.loads(row["literals"])),
        moving=tuple(json.loads(row["moving"])),
        projection=fields_from_json(row["projection"]),
        weight=row["weight"],
        event_ms=row["event_ms"],
        engine=row["engine"],
        recorded_bytes=row["recorded_bytes"],
        duration_ms=row["duration_ms"],
        full_scan=row["full_scan"],
        unbound=None if unbound is None else predicate_from_json(unbound),
        elsewhere=bool(row.get("elsewhere")),
        grouped=bool(row.get("grouped")),
        merged=bool(row.get("merged")),
    )


@lru_cache(maxsize=4096)
def predicate_to_json(predicate: Predicate) -> str:
    return _dumps(_node_out(predicate))


@lru_cache(maxsize=4096)
def predicate_from_json(text: str) -> Predicate:
    """Return the predicate of a JSON text; fragments of one shape share it, since it is
    immutable."""
    return _node_in(json.loads(text))


@lru_cache(maxsize=4096)
def fields_to_json(fields: tuple[int, ...]) -> str:
    return _dumps(list(fields))


@lru_cache(maxsize=4096)
def fields_from_json(text: str) -> tuple[int, ...]:
    return tuple(json.loads(text))


def members_to_json(members: tuple[Scalar, ...]) -> str:
    """Return the members of an In list."""
    return _dumps([_scalar_out(member) for member in members])


def members_from_json(texts: Sequence[str]) -> list[tuple[Scalar, ...]]:
    """Return the members of each of the In lists."""
    lists = json.loads(f"[{','.join(texts)}]")
    return [
        tuple(members) if all(type(m) is int for m in members) else tuple(map(_scalar_in, members))
        for members in lists
    ]


def _dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _node_out(node: Predicate) -> list[Any]:
    if isinstance(node, Comparison):
        return ["cmp", *_ref_out(node.ref), node.op, node.slot]
    if isinstance(node, In):
        return ["in", *_ref_out(node.ref), node.slot]
    if isinstance(node, StartsWith):
        return ["starts", *_ref_out(node.ref), node.slot]
    if isinstance(node, IsNull):
        return ["null", *_ref_out(node.ref)]
    if isinstance(node, IsNaN):
        return ["nan", *_ref_out(node.ref)]
    if isinstance(node, First):
        return ["first", *_ref_out(node.ref), node.descending, node.rows]
    if isinstance(node, Not):
        return ["not", _node_out(node.child)]
    if isinstance(node, (And, Or)):
        tag = "and" if isinstance(node, And) else "or"
        return [tag, *(_node_out(child) for child in node.children)]
    return ["always", node.value]


def _node_in(body: list[Any]) -> Predicate:
    tag, *rest = body
    if tag == "cmp":
        return Comparison(Ref(rest[0], rest[1]), rest[2], rest[3])
    if tag == "in":
        return In(Ref(rest[0], rest[1]), rest[2])
    if tag == "starts":
        return StartsWith(Ref(rest[0], rest[1]), rest[2])
    if tag == "null":
        return IsNull(Ref(rest[0], rest[1]))
    if tag == "nan":
        return IsNaN(Ref(rest[0], rest[1]))
    if tag == "first":
        return First(Ref(rest[0], rest[1]), bool(rest[2]), int(rest[3]))
    if tag == "not":
        return Not(_node_in(rest[0]))
    if tag in ("and", "or"):
        children = tuple(_node_in(child) for child in rest)
        return And(children) if tag == "and" else Or(children)
    if tag == "always":
        return Always(bool(rest[0]))
    raise ValueError(f"not a stored predicate: {tag!r}")


def _ref_out(ref: Ref) -> tuple[int, str]:
    return ref.field_id, ref.transform


def _literal_in(value: Any) -> Literal:
    if isinstance(value, list):
        return tuple(_scalar_in(item) for item in value)
    return _scalar_in(value)


def _scalar_out(value: Scalar) -> Any:
    if isinstance(value, bytes):
        return "b" + value.hex()
    if isinstance(value, float):
        return "f" + value.hex()
    return int(value)


def _scalar_in(value: Any) -> Scalar:
    if isinstance(value, int):
        return value
    if value[0] == "b":
        return bytes.fromhex(value[1:])
    return float.fromhex(value[1:])
