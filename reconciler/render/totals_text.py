"""Values of a plan's totals, as every format of a plan prints them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reconciler.format import count, iec, plural
from reconciler.plan.prediction import Prediction


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


def without_rewrite(predicted: Prediction) -> str:
    """Return what an action that rewrites no file does: `removes 340 files, 1.2 GiB`."""
    files = predicted.removed_files
    if files is None:
        return "metadata only"
    bound = "at most " if predicted.estimate == "at most" else ""
    return f"removes {bound}{plural(files, 'file')}, {iec(predicted.removed_bytes or 0)}"
