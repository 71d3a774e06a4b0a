"""Writes an Iceberg scan report as a statement that reads the same.

A report has the table, the columns read and the filter, whose literals the engine has replaced by a
description of them ("(2-digit-int)"). The statement has a parameter in each place, so that the
reader of SQL logs takes the columns of its conditions and knows that their values are unknown.
Source: Iceberg, REST specification, ScanReport and Expression.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DEEPEST = 100
_COMPARED = {"eq": "=", "not-eq": "<>", "lt": "<", "lt-eq": "<=", "gt": ">", "gt-eq": ">="}
_TESTED = {"is-null": "IS NULL", "not-null": "IS NOT NULL"}


def statement_of(record: Mapping[str, Any]) -> str:
    """Return a SELECT in Spark's dialect, "" if the report cannot be read."""
    report = record.get("report") if isinstance(record.get("report"), dict) else record
    if not isinstance(report, Mapping):
        return ""
    table, names = report.get("table-name"), report.get("projected-field-names")
    if not isinstance(table, str) or not table or not isinstance(names, list):
        return ""
    columns = ", ".join(_quoted(name) for name in names if isinstance(name, str)) or "1"
    where = _condition(report.get("filter"), 0)
    of = ".".join(f"`{level}`" for level in table.replace("`", "").split("."))
    return f"SELECT {columns} FROM {of}" + (f" WHERE {where}" if where else "")


def _quoted(name: str) -> str:
    return ".".join("`" + level.replace("`", "``") + "`" for level in name.split("."))


def _condition(node: Any, depth: int) -> str:
    """Return a condition, "" for one that holds for every row or cannot be written."""
    if not isinstance(node, dict) or depth > DEEPEST:
        return ""
    kind = node.get("type")
    if kind in ("and", "or"):
        sides = [_condition(node.get(side), depth + 1) for side in ("left", "right")]
        if kind == "or" and not all(sides):
            return ""  # one side may be every row
        kept = [f"({side})" for side in sides if side]
        return f" {kind.upper()} ".join(kept)
    if kind == "not":
        inner = _condition(node.get("child"), depth + 1)
        return f"NOT ({inner})" if inner else ""
    return _test(str(kind), node)


def _test(kind: str, node: Mapping[str, Any]) -> str:
    term = node.get("term")
    if isinstance(term, dict):  # a transform of the column: its value says where the rows are
        term = term.get("term")
    if not isinstance(term, str):
        return ""
    name = _quoted(term)
    if kind in _TESTED:
        return f"{name} {_TESTED[kind]}"
    if kind in _COMPARED:
        return f"{name} {_COMPARED[kind]} ?"
    values = node.get("values")
    if kind in ("in", "not-in") and isinstance(values, list) and values:
        marks = ", ".join("?" for _ in values[:1000])
        return f"{name} {'IN' if kind == 'in' else 'NOT IN'} ({marks})"
    return f"{name} LIKE ?" if kind == "starts-with" else ""
