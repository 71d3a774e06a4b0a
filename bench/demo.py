"""The demo's goals: bytes read after against before, predicted against found, Iceberg's own sort.

    python -m bench.demo [--quick] [--dir DIR]

Runs `layoutctl demo` as it is and writes its numbers to RESULTS.md. Bytes are planned bytes from
the footers, over the same executions in every layout.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.results import write_section
from reconciler.demo import data, script
from reconciler.format import duration, iec


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--dir", type=Path, default=Path("layoutctl-demo"))
    asked = parser.parse_args()
    scale = data.QUICK if asked.quick else data.FULL
    facts = script.run(script.Demo(data.prepare(asked.dir), scale, print))
    before, after, theirs = (facts[f"planned {key}"] for key in ("before", "after", "iceberg"))
    rows = [
        ["what", "goal", "layoutctl", "Iceberg's own sort"],
        ["planned bytes of the workload before", "-", iec(before), iec(before)],
        ["planned bytes after", "-", iec(after), iec(theirs)],
        ["after / before", "<= 0.35", f"{after / before:.3f}", f"{theirs / before:.3f}"],
    ]
    complete = [check for check in facts["checks"] if check.complete and check.predicted]
    for check in complete:
        error = f"{check.actual / check.predicted - 1:+.1%}"
        rows.append([f"found against predicted, {check.plan_id[:10]}", "-", error, "-"])
    found, foreseen = (sum(getattr(c, key) for c in complete) for key in ("actual", "predicted"))
    rows.append(["both tables together", "within 10 %", f"{found / foreseen - 1:+.1%}", "-"])
    all_22 = [facts[f"planned 22 {key}"] for key in ("before", "after", "iceberg")]
    rows += [
        ["all 22 TPC-H queries, after / before", "-",
         f"{all_22[1] / all_22[0]:.3f}", f"{all_22[2] / all_22[0]:.3f}"],
        ["Spark's bytesRead, after / before", "-",
         f"{facts['spark after'] / facts['spark before']:.3f}", "-"],
        ["results that changed", "0", str(len(facts["differing results"])), "-"],
        ["Spark opened at most the planned files", "yes",
         "yes" if facts["files agree"] else "no", "-"],
        ["files that DuckDB opened, of those planned, before and after", "all",
         ", ".join(f"{opened} of {plan}" for opened, plan in facts["second reader"]["files"]), "-"],
        ["first apply, JVM start included", "-", duration(facts["apply seconds"]), "-"],
        ["the whole demo", "5 min", duration(facts["seconds"]), "-"],
    ]  # fmt: skip
    print(
        write_section(
            "Demo",
            "python -m bench.demo" + (" --quick" if asked.quick else ""),
            rows,
            f"TPC-H scale {scale.scale_factor:g}, lineitem and orders in arrival order, target "
            f"size {iec(scale.target_bytes)}. Iceberg's sort is `rewrite_data_files` of a copy of "
            "lineitem by l_shipdate, a column that someone has to name.",
        )
    )


if __name__ == "__main__":
    main()
