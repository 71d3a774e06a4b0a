"""The bench's log as tables: one line a kind, and what all tables together say of the goals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from bench.results import write_section
from bench.tables.kinds import KINDS
from reconciler.format import iec

Line = dict[str, Any]
KIND_HEAD = (
    "kind, seed", "bytes, files", "chosen", "read a query, predicted", "found", "files, predicted",
    "found", "CPU s, predicted", "found", "cost / nothing", "best / nothing", "best", "next plan",
)  # fmt: skip
MOST_LABEL = 34


def write(lines: Sequence[Line], command: str, loaded: str = "") -> str:
    """Write both tables to bench/RESULTS.md; return them. loaded: a sentence on the machine."""
    kinds = [KIND_HEAD, *(_kind(line) for line in sorted(lines, key=_place))]
    notes = (
        "A table of each kind, drawn from its seed, planned from 14 days of queries and rewritten "
        "by Spark. Found: measured on the files written. Cost / nothing: reading 7 days of queries "
        "that no plan saw, the rewrite included, over leaving the table alone; best: the least of "
        "the real rewrites of a copy by the three best of every column, pair and curve, and of the "
        "files asked for alone, as ranked by files that pyarrow wrote of all rows. Next plan: "
        "share of the table that the plan after it would rewrite. CPU seconds: of Spark's tasks, "
        "verification included."
    )
    section = write_section("Kinds of tables", command, kinds, notes)
    rows = [("what", "goal", "found"), *goals(lines)]
    return section + write_section("Plans that come true", command, rows, loaded)


def _place(line: Line) -> tuple[int, int]:
    return list(KINDS).index(line["kind"]), line["seed"]


def short(line: Line) -> str:
    return " | ".join(_kind(line)) + _why(line)


def _why(line: Line) -> str:
    return "" if line["chosen"] else f" | {' '.join(line['reasons'][0]) if line['reasons'] else ''}"


def _kind(line: Line) -> tuple[str, ...]:
    cost, files, read = line["cost"], line["file_count"], line["per_query"]
    tried = line.get("tried")
    return (
        f"{line['kind']} {line['seed']}",
        f"{iec(line['bytes'])}, {line['files']}",
        _label(line["chosen"]),
        iec(read["predicted"]) if np.isfinite(read["predicted"]) else "-",
        iec(read["found"]),
        f"{files['predicted']}",
        f"{files['found']}",
        f"{line['cpu']['predicted']:.1f}",
        f"{line['cpu']['found']:.1f}",
        _ratio(cost["chosen"], cost["nothing"]),
        _ratio(tried[0]["cost"], cost["nothing"]) if tried else "-",
        tried[0]["label"] if tried else "-",
        f"{line['next'] / line['bytes']:.0%}",
    )


def _label(chosen: Sequence[str]) -> str:
    if not chosen:
        return "nothing"
    first = chosen[0] if len(chosen[0]) <= MOST_LABEL else chosen[0][: MOST_LABEL - 1] + "…"
    return first if len(chosen) == 1 else f"{first} and {len(chosen) - 1} more"


def _ratio(value: float, of: float) -> str:
    return f"{value / of:.3f}" if of else "-"


def goals(lines: Sequence[Line]) -> list[tuple[str, str, str]]:
    """Return what all tables say of the goals."""
    worked = [line for line in lines if line["chosen"]]
    placebos = [line for line in lines if line["kind"].startswith("placebo")]
    choices = [_choice(line) for line in lines if line.get("tried") and line["cost"]["nothing"]]
    shapes = [abs(e) for line in worked for e in line["shape_errors"]]
    outside = [line["outside"] for line in worked if line["outside"] is not None]
    fresh = [line for line in worked if line["seconds"]["found"] is not None]
    again = [line["next"] / line["bytes"] for line in worked]
    return [
        ("tables, of them with a plan", ">= 20", f"{len(lines)}, {len(worked)}"),
        ("rows changed", "0", str(sum(not line["rows_equal"] for line in lines))),
        ("bytes read, error, median and p90", "5 %, 15 %",
         _two(_errors(worked, lambda x: x["per_query"]))),
        ("of a shape, median and p90", "8 %, 25 %", _two(shapes)),
        ("bytes found inside their interval", "70 to 90 %", _inside(worked, "read")),
        ("file counts inside their interval", "all", _inside(worked, "file_count")),
        ("bytes written, error, median and p90", "-",
         _two(_errors(worked, lambda x: x["written"]))),
        ("CPU seconds, error, median and p90", "20 %", _two(_errors(worked, lambda x: x["cpu"]))),
        (f"seconds of {len(fresh)} plans, each with the start of a JVM, error, median and p90",
         "20 %", _two(_errors(fresh, lambda x: x["seconds"]))),
        ("cost chosen / best of brute force, median and worst", "1.03, 1.15",
         _median_worst(choices)),
        ("of these rewrites, Spark's cost / pyarrow's, median, least and most", "-",
         _agreement(lines)),
        ("tables worse than left alone", "0",
         str(sum(x["cost"]["chosen"] > 1.005 * x["cost"]["nothing"] for x in worked))),
        ("share of bytes that the next plan rewrites, median and worst", "5 %",
         _median_worst(again)),
        ("rows rewritten outside all windows to come, median and worst", "10 %",
         _median_worst([share["rows"] for share in outside])),
        ("of these in files that no window to come asks for, worst", "-",
         f"{max(share['files'] for share in outside):.2f}" if outside else "-"),
        ("days until no work was left under a budget, share of the table rewritten, and most of a "
         "day's budget that was used", "1.00", _budgets(lines)),
        ("placebos empty with the right reason", "all",
         f"{sum(_right(line) for line in placebos)} of {len(placebos)}"),
        ("queries for which Spark opened the planned files", "all", _witness(lines, "spark")),
        ("and that Spark answered from manifests without opening one", "-", _from_manifests(lines)),
        ("for which DuckDB did, which also opens files whose asked column is all NULL", "all",
         _witness(lines, "duckdb")),
        ("for which both returned the same rows, before as after", "all", _same_rows(lines)),
    ]  # fmt: skip


def _errors(lines: Iterable[Line], pair: Callable[[Line], Line]) -> list[float]:
    pairs = [pair(line) for line in lines]
    return [abs(p["found"] / p["predicted"] - 1.0) for p in pairs if p["predicted"]]


def _two(errors: Sequence[float]) -> str:
    if not errors:
        return "-"
    median, high = np.quantile(errors, [0.5, 0.9])
    return f"{median:.1%}, {high:.1%}"


def _median_worst(values: Sequence[float]) -> str:
    return f"{np.median(values):.2f}, {max(values):.2f}" if values else "-"


def _budgets(lines: Iterable[Line]) -> str:
    held = [line for line in lines if line.get("most_of_budget") is not None]
    return "; ".join(
        f"{line['days']}, {line['rewritten'] / line['bytes']:.2f}, {line['most_of_budget']:.2f}"
        for line in held
    ) or "-"  # fmt: skip


def _inside(lines: Iterable[Line], name: str) -> str:
    known = [line[name] for line in lines if line[name]["low"] is not None]
    hits = sum(one["low"] <= one["found"] <= one["high"] for one in known)
    return f"{hits} of {len(known)}"


def _choice(line: Line) -> float:
    """Return the cost of what was chosen over the least of all that was tried, itself included."""
    chosen = line["cost"]["chosen"]
    return float(chosen / min(chosen, line["tried"][0]["cost"]))


def _agreement(lines: Iterable[Line]) -> str:
    pairs = [one for line in lines for one in line.get("tried", ()) if one["cost"] is not None]
    ratios = [one["cost"] / one["trial"] for one in pairs if one["label"] != "nothing"]
    if not ratios:
        return "-"
    return f"{np.median(ratios):.2f}, {min(ratios):.2f}, {max(ratios):.2f}"


def _right(line: Line) -> bool:
    made = KINDS[line["kind"]](line["seed"])
    return not line["chosen"] and any(
        reason == made.reason and made.why in why for reason, why in line["reasons"]
    )


def _watched(lines: Iterable[Line]) -> list[Line]:
    return [one for line in lines for found in line["witness"] for one in found]


def _answered(one: Line) -> bool:
    """Whether Spark answered from the bounds and counts in manifests: an aggregate of whole
    files, in whose executed plan no scan is left."""
    return bool(one["spark"] == 0 and one["planned"] and one["spark_rows"] == one["duckdb_rows"])


def _from_manifests(lines: Iterable[Line]) -> str:
    return str(sum(_answered(one) for one in _watched(lines)))


def _witness(lines: Iterable[Line], engine: str) -> str:
    every = [one for one in _watched(lines) if engine != "spark" or not _answered(one)]
    planned = "by_duckdb" if engine == "duckdb" else "planned"
    return f"{sum(one[engine] == one[planned] for one in every)} of {len(every)}"


def _same_rows(lines: Iterable[Line]) -> str:
    pairs = [
        (first, second) for line in lines for first, second in zip(*line["witness"], strict=True)
    ]
    same = sum(
        len({one[key] for one in pair for key in ("spark_rows", "duckdb_rows")}) == 1
        for pair in pairs
    )
    return f"{same} of {len(pairs)}"
