"""How times, sizes, durations and texts are written in a status.

Numbers are rounded so that a status changes only with a real change.
"""

from __future__ import annotations

import datetime as dt
import re

from reconciler.api.quantities import format_duration, parse_bytes


def utc(moment: dt.datetime) -> str:
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str | None) -> dt.datetime | None:
    """Return a time as the API server prints it, with or without fractions; None for none."""
    return None if not text else dt.datetime.fromisoformat(text)


def short_bytes(value: float) -> str:
    """Return a size with two or three digits: 3.4Ti, 42Gi, 412Gi; never 0 for something."""
    size, unit = float(value), ""
    for larger in ("Ki", "Mi", "Gi", "Ti", "Pi"):
        if size < 1023.5:
            break
        size, unit = size / 1024, larger
    if unit and size < 9.95:
        return f"{size:.1f}".removesuffix(".0") + unit
    return f"{size:.0f}{unit}"


def most_bytes(text: str) -> int:
    """Return the most bytes that `short_bytes` prints so; 0 for another text."""
    found = re.fullmatch(r"(\d{1,4})(?:\.(\d))?([KMGTP]i)?", text)
    if found is None:
        return 0
    whole, tenth, unit = found.groups()
    if unit is None:
        return int(whole)
    size = int(whole) * 20 + int(tenth or 0) * 2
    rounded = 1 if tenth or int(whole) < 10 else 10
    return (size + rounded) * parse_bytes(f"1{unit}") // 20


def short_duration(seconds: float) -> str:
    """Return a duration in its two largest units: 12h, 3h5m, 40s."""
    whole = round(seconds)
    if whole >= 36_000:
        whole = round(whole / 3600) * 3600
    elif whole >= 600:
        whole = round(whole / 60) * 60
    return format_duration(whole)


def cut(text: str, length: int) -> str:
    """Return one line of at most `length` characters."""
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1] + "…"
