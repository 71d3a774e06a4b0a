"""Reads from the plans in Trino's events what joins asked of a table while a query ran.

Trino hands the values of a join's smaller side over to the scan of the other side, which skips
files and row groups by them (a dynamic filter). An event's plan names the column of each filter,
and the first and last value that came. So a query without any condition on a table counts as the
range of it that was read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from reconciler.workload_log.scans import Scan, folded

MOST_TEXT = 4 << 20
"""Characters of a plan that are read; a longer one is left out."""

_SCAN = re.compile(
    r"\b(?:Table)?Scan(?:Filter)?(?:Project)?\[table = [^:\s]{1,256}:(?P<table>\S{1,512}?)\$data\b"
)
_FILTERS = re.compile(r"\bdynamicFilters = \{(?P<filters>[^{}]{1,8192})\}")
_FILTER = re.compile(r"(?P<symbol>[^\s,]{1,256}) (?P<op>=|>=|<=|>|<) #(?P<id>df_\d{1,18})")
_SYMBOL = re.compile(
    r"[\s\u2502]*(?P<symbol>\S{1,256}) := (?P<field>\d{1,9}):(?P<column>[^\s:]{1,256}):"
)
_VALUE = r"[^\[\](){},]{1,256}"
_DOMAIN = re.compile(
    r"[\s\u2502]*- (?P<id>df_\d{1,18}), \[ SortedRangeSet\[type=(?P<type>[a-z]{1,20})[^,{}]{0,40}"
    r"(?:,\d{1,2}\))?, ranges=(?P<ranges>\d{1,9}), \{"
    rf"(?:\[(?P<first>{_VALUE})\](?:(?P<more>, \.\.\.)?, \[(?P<last>{_VALUE})\])?"
    rf"|[\[(](?P<from>{_VALUE}), ?(?P<to>{_VALUE})[\])])\}}\] \]"
)
"""Single values, of which Trino prints the first and the last, or one range. Their number shows
whether a text looks like several values."""

_KINDS = {
    **dict.fromkeys(("tinyint", "smallint", "integer", "bigint"), (re.compile(r"-?\d{1,19}"), "")),
    "decimal": (re.compile(r"-?\d{1,38}(?:\.\d{1,38})?"), ""),
    "date": (re.compile(r"\d{4}-\d\d-\d\d"), "DATE"),
    "timestamp": (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,9})?"), "TIMESTAMP"),
    "varchar": (re.compile(r"[\w .:/@+-]{1,256}"), "VARCHAR"),
}
"""By type, how a value is written, and the type that its literal is cast to; "" for a number."""


@dataclass(frozen=True, slots=True)
class JoinRange:
    """What a join asked of one column of one scan."""

    table: str
    """The schema and the table, in lower case."""
    column: str
    """Name of the column."""
    op: str
    """How the column compares with the join's values: =, <, <=, > or >=."""
    type: str
    """Type of the values, by its name in Trino without parameters."""
    low: str
    """The least of the values, as Trino prints it."""
    high: str
    """The greatest of the values."""
    alone: bool
    """Whether these two are all values."""


def join_ranges(plan: str) -> list[JoinRange]:
    """Return what joins asked of the tables of a plan, as far as their values are known. Of a table
    that the plan reads twice, of which one may be by a view, nobody knows which scan it was."""
    if len(plan) > MOST_TEXT or "dynamicFilters" not in plan:
        return []
    filters: list[tuple[str, int, str, str, str]] = []
    columns: dict[tuple[int, str], str] = {}
    domains: dict[str, tuple[str, str, str, bool]] = {}
    read: Counter[str] = Counter()
    number = 0
    for line in plan.splitlines():
        if (scan := _SCAN.search(line)) is not None:
            number += 1
            read[scan["table"].lower()] += 1
            asked = _FILTERS.search(line, scan.end())
            for one in _FILTER.finditer(asked["filters"]) if asked else ():
                filters.append((scan["table"].lower(), number, one["symbol"], one["op"], one["id"]))
        elif (symbol := _SYMBOL.match(line)) is not None:
            columns[number, symbol["symbol"]] = symbol["column"]
        elif (domain := _DOMAIN.match(line)) is not None:
            found = _domain(domain)
            if found is not None:
                domains[domain["id"]] = found
    return [
        JoinRange(table, columns[scan, symbol], op, *domains[name])
        for table, scan, symbol, op, name in filters
        if read[table] == 1 and (scan, symbol) in columns and name in domains
    ]


def _domain(found: re.Match[str]) -> tuple[str, str, str, bool] | None:
    """Return the type, the least and greatest value, and whether these are all; None if they are
    not sure."""
    kind = _KINDS.get(found["type"])
    low, high = found["first"] or found["from"], found["last"] or found["to"] or found["first"]
    shown = 1 if found["last"] is None else 3 if found["more"] else 2
    count = int(found["ranges"])
    if kind is None or (count if count < 3 else 3) != shown:
        return None
    if not all(kind[0].fullmatch(value) for value in (low, high)):
        return None
    return found["type"], low, high, found["from"] is None and shown < 3


def with_ranges(
    scans: Sequence[tuple[Scan, tuple[int, ...]]], joined: Sequence[JoinRange]
) -> Sequence[tuple[Scan, tuple[int, ...]]]:
    """Return the scans of a statement with what joins asked of them. Where the statement reads a
    table twice, nobody knows which of the scans it was."""
    if not joined:
        return scans
    read = Counter(scan.table.uuid for scan, _ in scans)
    found = []
    for scan, columns in scans:
        name = ".".join(scan.table.name.replace("`", "").lower().split(".")[-2:])
        own = [one for one in joined if one.table == name]
        if own and read[scan.table.uuid] == 1:
            asked = tuple(condition for one in own for condition in _conditions(one))
            scan = replace(scan, conditions=(*scan.conditions, *asked), elsewhere=False, first=None)
        found.append((scan, columns))
    return found


def _conditions(asked: JoinRange) -> list[exp.Expr]:
    column = exp.column(exp.to_identifier(folded((asked.column,))[0], quoted=True))
    low, high = (_literal(asked.type, value) for value in (asked.low, asked.high))
    if asked.op == "=" and asked.low == asked.high:
        return [exp.EQ(this=column, expression=low)]
    if asked.op == "=" and asked.alone:
        return [exp.In(this=column, expressions=[low, high])]
    found: list[exp.Expr] = []
    if asked.op in ("=", ">=", ">"):
        above = exp.GT if asked.op == ">" else exp.GTE
        found.append(above(this=column, expression=low))
    if asked.op in ("=", "<=", "<"):
        below = exp.LT if asked.op == "<" else exp.LTE
        found.append(below(this=column.copy(), expression=high))
    return found


def _literal(type_: str, value: str) -> exp.Expr:
    cast = _KINDS[type_][1]
    if cast:
        literal = exp.Literal.string(value)
        return literal if cast == "VARCHAR" else exp.Cast(this=literal, to=exp.DataType.build(cast))
    number = exp.Literal.number(value.removeprefix("-"))
    return exp.Neg(this=number) if value.startswith("-") else number
