"""Says what a field expects: its form with an example, the nearest allowed value, what a common
other spelling means.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from typing import Any

from reconciler.api.quantities import format_bytes
from reconciler.api.schema import quantity_kind
from reconciler.api.source import Path

Schema = Mapping[str, Any]


def quote(text: str) -> str:
    return json.dumps(short(text), ensure_ascii=False)


def short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def first_sentence(text: str) -> str:
    return re.split(r"(?<=[a-z0-9])\. ", text, maxsplit=1)[0].rstrip(".")


def closest(word: str, choices: list[str]) -> str | None:
    folded = {choice.lower(): choice for choice in choices}
    close = difflib.get_close_matches(word.lower(), list(folded), n=1, cutoff=0.6)
    return folded[close[0]] if close else None


def choose(value: str, choices: list[str]) -> str:
    close = closest(value, choices)
    listed = " | ".join(choices)
    return f"{listed}. Did you mean {close}?" if close and len(choices) > 1 else listed


def bound(schema: Schema, which: str) -> str:
    value = int(schema[which])
    return f"{format_bytes(value)} bytes" if quantity_kind(schema) == "bytes" else f"{value:,}"


def noun_of(path: Path, schema: Schema) -> str:
    """Return what a pattern or quantity describes, with its article."""
    kind = quantity_kind(schema)
    if kind == "bytes":
        return "a size"
    if kind == "duration":
        zero = "allOf" in schema
        return "a duration longer than zero" if zero else "a duration"
    if kind == "decimal":
        free = str(schema.get("pattern", "")).startswith("^(0|")
        return "a price of 0 or more" if free else "a decimal number of at least 1"
    pattern = schema.get("pattern", "")
    if "p-[0-9a-f]" in pattern:
        return "a plan id"
    if path[:2] == ("spec", "tables"):
        return "a table name or pattern"
    if path[-1:] == ("schedule",):
        return "a cron schedule"
    if path[-1:] == ("transform",):
        return "a partition transform"
    return "a valid name" if pattern.startswith("^[a-z") else "in the expected form"


def expected(path: Path, schema: Schema) -> str:
    """Return the expected form, with an example."""
    if "enum" in schema:
        return " | ".join(schema["enum"])
    noun = noun_of(path, schema)
    auto = "Auto, or " if str(schema.get("pattern", "")).startswith("^(Auto") else ""
    known = {
        "a size": f"{auto}a whole number of bytes, or one with Ki, Mi, Gi, Ti or Pi, as in 512Mi",
        "a duration": "hours, minutes, seconds, as in 1h30m",
        "a duration longer than zero": "hours, minutes, seconds, as in 1h30m",
        "a decimal number of at least 1": 'at most 4 decimals, in quotes, as in "1.5"',
        "a price of 0 or more": 'at most 4 decimals, in quotes, as in "0.05"',
        "a plan id": "p- and 20 hexadecimal digits, as plan prints it",
        "a table name or pattern": "levels joined by dots, as in sales.orders_*; "
        "backticks quote a level",
        "a cron schedule": 'minute hour day month weekday, as in "0 8 * * mon-fri"',
        "a partition transform": "identity | year | month | day | hour | bucket[N] | truncate[N]",
        "a valid name": "lower-case letters, digits and dashes",
    }
    if noun in known:
        return known[noun]
    if schema.get("type") == "boolean":
        return "true | false"
    if schema.get("type") == "integer" and "maximum" in schema:
        return f"{schema['minimum']:,} to {schema['maximum']:,}"
    return first_sentence(schema.get("description", ""))


_UNIT_HOURS = {"d": 24, "day": 24, "days": 24, "w": 168, "week": 168, "weeks": 168}
_LONG_UNITS = {"hour": "h", "hours": "h", "hr": "h", "min": "m", "mins": "m", "minute": "m"}
_LONG_UNITS |= {"minutes": "m", "sec": "s", "secs": "s", "second": "s", "seconds": "s"}


def meant_by(value: str, schema: Schema) -> str | None:
    """Return the quantity that a common other spelling means."""
    kind = quantity_kind(schema)
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", value)
    if match is None or kind not in ("bytes", "duration"):
        return None
    number, unit = match[1], match[2].lower()
    if kind == "duration" and "." not in number:
        if unit in _UNIT_HOURS:
            return f"{int(number) * _UNIT_HOURS[unit]}h"
        short = _LONG_UNITS.get(unit, unit if unit in ("h", "m", "s") else None)
        return f"{int(number)}{short}" if short and int(number) else None
    if kind == "bytes" and unit[:1] in tuple("kmgtp"):
        letter = unit[0]
        whole = float(number) * 1024
        if "." not in number:
            return f"{int(number)}{letter.upper()}i"
        smaller = {"m": "Ki", "g": "Mi", "t": "Gi", "p": "Ti"}.get(letter)
        return f"{int(whole)}{smaller}" if smaller and whole.is_integer() else None
    return None
