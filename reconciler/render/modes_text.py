"""Renders the write modes of a table: what each way to write an operation costs, and advice.

Reads only the document (`advisor.deletes.mode_document`), which plans, explanations and
observations share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reconciler.format import plural
from reconciler.render.terminal import tabulate, wrapped

INDENT = "  "
UNIT = (
    "CPU s of one operation, with its share of later reading and maintenance (range of what is "
    "uncertain)."
)


def modes_section(document: Mapping[str, Any] | None, width: int) -> list[str]:
    """Return the lines of WRITE MODES, none where nothing is known."""
    if not document:
        return []
    lines: list[str] = []
    kinds: Sequence[Mapping[str, Any]] = document["kinds"]
    if kinds:
        rows = [["WRITE MODES", "PER DAY", "CPU S EACH", ""]]
        rows += [row for one in kinds for row in _rows(one)]
        lines += tabulate(rows, "lrrl", width, gap="  ")
        if any(one["costs"] for one in kinds):
            lines += wrapped(f"{UNIT} {_speed(document)}", width)
    for text in (*(_unknown(one) for one in kinds), *document["notes"]):
        lines += wrapped(text, width) if text else []
    return lines


def _speed(document: Mapping[str, Any]) -> str:
    """Say what the costs were scaled by, and what that rests on; "" in a plan of an older
    version."""
    speed = document.get("speed")
    if speed is None:
        return ""
    if not speed["actions"] and not speed["runs"]:
        return "No measurement scales them."
    measured = (
        f"{plural(speed['actions'], 'action')} on this table"
        if speed["actions"]
        else f"{plural(speed['runs'], 'run')} on other tables"
    )
    return f"Scaled by {range_text(speed)} after {measured}."


def _rows(one: Mapping[str, Any]) -> list[list[str]]:
    per_day = f"{one['perDayMilli'] / 1000:,.1f}"
    if not one["costs"]:
        return [[f"{INDENT}{one['kind']}: {one['present']}", per_day, "-", "now"]]
    return [
        [
            f"{INDENT}{one['kind']}: {cost['way']}",
            per_day if not number else "",
            range_text(cost),
            _mark(one, cost["way"]),
        ]
        for number, cost in enumerate(one["costs"])
    ]


def _mark(one: Mapping[str, Any], way: str) -> str:
    if way == one["present"]:
        return "now"
    if way != one["best"]:
        return ""
    return "better" if one["changes"] else "perhaps better"


def _unknown(one: Mapping[str, Any]) -> str:
    even = one.get("readingsUpTo")
    if one["costs"]:
        return ""
    unknown = f"{one['kind']}: no queries are known, so the mode stays"
    if even is None:
        return f"{unknown}."
    return (
        f"{unknown}; merge-on-read costs less up to {range_text(even)} readings of the table "
        "between two operations."
    )


def range_text(value: Mapping[str, Any]) -> str:
    """Return `9.7 (8.1 - 11)`; three digits from a hundred up are kept."""
    low, mid, high = (value[name] / 1000 for name in ("lowMilli", "milli", "highMilli"))
    return f"{_digits(mid)} ({_digits(low)} - {_digits(high)})"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2g}"
