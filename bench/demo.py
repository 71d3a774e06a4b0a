"""The demo's goals: bytes read after against before, predicted against found, Iceberg's own sort.

    python -m bench.demo [--quick] [--dir DIR]

Runs `layoutctl demo` as it is and writes its numbers to RESULTS.md. Bytes are planned bytes from
the footers, over the same executions in every layout.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.results import write_section
from reconciler.demo import choose, data, script
from reconciler.format import duration, iec


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--dir", type=Path, default=Path("layoutctl-demo"))
    asked = parser.parse_args()
    scale = data.QUICK if asked.quick else data.FULL
    place = data.prepare(asked.dir)
    demo = script.Demo(place, scale, print, *choose.team_of(place, asked.quick))
    facts = script.run(demo)
    before, after, theirs = _planned(facts, "planned")
    rows = [
        ["what", "goal", "layoutctl", "Iceberg's own sort"],
        ["planned bytes of the workload before", "-", iec(before), iec(before)],
        ["planned bytes after", "-", iec(after), iec(theirs) if theirs else "-"],
        ["after / before", "<= 0.35", f"{after / before:.3f}", _share(theirs, before)],
    ]
    complete = [check for check in facts["checks"] if check.complete and check.predicted]
    for check in complete:
        error = f"{check.actual / check.predicted - 1:+.1%}"
        rows.append([f"found against predicted, {check.plan_id[:10]}", "-", error, "-"])
    found, foreseen = (sum(getattr(c, key) for c in complete) for key in ("actual", "predicted"))
    rows.append(["both tables together", "within 10 %", f"{found / foreseen - 1:+.1%}", "-"])
    all_22 = _planned(facts, "planned 22")
    rows += [
        ["all 22 TPC-H queries, after / before", "-",
         f"{all_22[1] / all_22[0]:.3f}", _share(all_22[2], all_22[0])],
        *_counted(demo),
        ["results that stayed the same", "all", str(facts["same results"]), "-"],
        [f"{demo.team.engine} opened at most the planned files", "yes",
         "yes" if facts["files agree"] else "no", "-"],
        *_second_reader(facts),
        ["first apply", "-", duration(facts["apply seconds"]), "-"],
        ["the whole demo", "5 min", duration(facts["seconds"]), "-"],
    ]  # fmt: skip
    print(
        write_section(
            "Demo",
            "python -m bench.demo" + (" --quick" if asked.quick else ""),
            rows,
            f"Queries in {demo.team.engine}. TPC-H scale {scale.scale_factor:g}, lineitem "
            f"and orders in arrival order, target size {iec(scale.target_bytes)}. "
            "Iceberg's sort is `rewrite_data_files` of a copy of lineitem by "
            "l_shipdate, a column that someone has to name.",
        )
    )


def _planned(facts: Mapping[str, Any], what: str) -> list[float]:
    """Return the bytes before, after, and by Iceberg's sort: 0 without that comparison."""
    return [facts.get(f"{what} {key}", 0.0) for key in ("before", "after", "iceberg")]


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.3f}" if part else "-"


def _counted(demo: script.Demo) -> list[list[str]]:
    """Return the row of the bytes that the engine itself counts, if it does."""
    if "counted" not in demo.facts:
        return []
    before, after = demo.facts["counted"]
    return [[f"{demo.team.bytes_name}, after / before", "-", f"{after / before:.3f}", "-"]]


def _second_reader(facts: Mapping[str, Any]) -> list[list[str]]:
    found = facts.get("second reader")
    if found is None:
        return []
    files = ", ".join(f"{opened} of {plan}" for opened, plan in found["files"])
    return [["files that DuckDB opened, of those planned, before and after", "all", files, "-"]]


if __name__ == "__main__":
    main()
