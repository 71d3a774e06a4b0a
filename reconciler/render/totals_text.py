"""Values of a plan's totals, as every format of a plan prints them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reconciler.format import count, iec


def total_text(line: Mapping[str, Any], key: str) -> str:
    """Return one value of a line of `evidence.totals`; "-" if it is unknown."""
    value = line.get(key)
    if value is None or value < 0:
        return "-"
    if line["unit"] == "bytes":
        return iec(value)
    if line["unit"] == "milli":
        return f"{value / 1000:.2f}"
    if line["unit"] == "percent":
        return f"{'at least ' if line.get('atLeast') else ''}{value} %"
    return count(value)
