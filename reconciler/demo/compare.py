"""Compares layouts of the same rows, and prints the tables of the demo's comparison.

A layout is measured by the planned bytes of the queries (`measure`). Beside them stand the files
that the team's engine opened, and those that DuckDB opened as a second reader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from reconciler.demo import data, measure, tpch, witness
from reconciler.demo.measure import Reading
from reconciler.demo.team import QueryRun
from reconciler.demo.tpch import Query
from reconciler.errors import InternalError, UnavailableError
from reconciler.format import count, iec, percent

Say = Callable[[str], None]
Layouts = Mapping[str, Sequence[Reading]]
"""What each query reads, by layout: before, after and, where Iceberg sorted a copy, iceberg."""

HEADS = {"before": "PLANNED BEFORE", "after": "AFTER", "iceberg": "ICEBERG SORT"}


def opened(say: Say, runs: Sequence[QueryRun], bytes_name: str = "") -> None:
    """Print per template how many files a run opened, and the engine's bytes if they are named."""
    rows = []
    for name, group in by_name(runs).items():
        row = [name, count(len(group)), mean_files(group)]
        rows.append([*row, iec(sum(run.bytes or 0 for run in group))] if bytes_name else row)
    heads = ("TEMPLATE", "RUNS", "FILES OPENED / RUN", bytes_name)
    table(say, heads if bytes_name else heads[:-1], rows)


def same_results(before: Sequence[QueryRun], after: Sequence[QueryRun]) -> int:
    """Return how many executions were compared. Raises InternalError unless each returned the same
    rows in both rounds."""
    results = {run.label: run.checksum for run in after}
    differing = [run.label for run in before if results[run.label] != run.checksum]
    if differing:
        raise InternalError(
            f"{len(differing)} of {len(before)} results changed after the rewrite",
            details=tuple(differing[:5]),
        )
    return len(before)


def templates(
    say: Say,
    queries: Sequence[Query],
    runs: tuple[Sequence[QueryRun], Sequence[QueryRun]],
    layouts: Layouts,
) -> dict[str, Any]:
    """Print planned bytes per template in each layout, and the files opened before and after;
    return the totals. runs: before and after."""
    before, after = (by_name(part) for part in runs)
    rows: list[Sequence[str]] = []
    for name in before:
        mine = [number for number, query in enumerate(queries) if query.name == name]
        sizes = {key: sum(read[n].bytes for n in mine) for key, read in layouts.items()}
        files = f"{mean_files(before[name])} -> {mean_files(after[name])}"
        worse = "worse" if sizes["after"] > 1.01 * sizes["before"] else ""
        rows.append((name, files, *(iec(size) for size in sizes.values()), worse))
    totals = _totals(layouts)
    rows.append(("all", "", *(iec(size) for size in totals.values()), ""))
    heads = ("TEMPLATE", "FILES OPENED / RUN", *(HEADS[key] for key in layouts), "")
    table(say, heads, rows, text=(0, len(heads) - 1))
    theirs = ""
    if "iceberg" in totals:
        share = percent(totals["iceberg"] / totals["before"])
        theirs = f"; Iceberg's sort, given the column: {share}"
    say(
        f"After / before: {percent(totals['after'] / totals['before'])} of the planned bytes"
        f"{theirs}."
    )
    return {f"planned {key}": size for key, size in totals.items()}


def _totals(layouts: Layouts) -> dict[str, float]:
    return {key: sum(reading.bytes for reading in read) for key, read in layouts.items()}


def files_agree(
    queries: Sequence[Query], runs: Sequence[QueryRun], planned: Sequence[Reading]
) -> bool:
    """Whether every execution opened no data file but those that were planned.

    An engine may skip more: it filters by values that a join finds at run time.
    """
    expected = {
        query.label: round(plan.files) for query, plan in zip(queries, planned, strict=True)
    }
    return all(run.files <= expected[run.label] for run in runs)


def all_22(say: Say, layouts: Layouts) -> dict[str, Any]:
    """Print the planned bytes of all 22 TPC-H queries, whether or not a layout can help them;
    return the totals."""
    say("\nAll 22 TPC-H queries, planned bytes of lineitem and orders (not executed):")
    later = [key for key in layouts if key != "before"]
    cells = []
    for number, query in enumerate(tpch.all_22()):
        now = layouts["before"][number].bytes
        if now:
            ratios = "/".join(f"{layouts[key][number].bytes / now:.2f}" for key in later)
            cells.append(f"{query.name} {ratios}")
    for start in range(0, len(cells), 6):
        say("  " + "  ".join(cell.ljust(14) for cell in cells[start : start + 6]).rstrip())
    totals = _totals(layouts)
    behind = " and, behind the slash, Iceberg's sort / before" if "iceberg" in layouts else ""
    ratios = "/".join(f"{totals[key] / totals['before']:.2f}" for key in later)
    say(f"  after / before{behind}; all 22 together {ratios}")
    return {f"planned 22 {key}": size for key, size in totals.items()}


Planned = tuple[Mapping[str, str], Sequence[Reading]]
"""Where tables' metadata is, by name, and what each query was planned to read there."""


def second_reader(say: Say, queries: Sequence[Query], *layouts: Planned) -> dict[str, Any]:
    """Print how many files DuckDB opens for one query of each template, in layouts of the same
    rows, and return these numbers; {} where DuckDB cannot read Iceberg tables."""
    try:
        connection = witness.connect()
    except UnavailableError as error:
        say(f"No second reader: {error.what}.")
        return {}
    first = {query.name: number for number, query in reversed(list(enumerate(queries)))}
    rows: list[set[str]] = [set() for _ in first]
    counts = []
    for tables, planned in layouts:
        opened = 0
        for number, seen in zip(sorted(first.values()), rows, strict=True):
            found = witness.opened(connection, queries[number].sql, measure.DIALECT, tables)
            opened += sum(found.files[name] for name in data.FACTS)
            seen.add(found.checksum)
        expected = sum(round(planned[number].files) for number in first.values())
        counts.append((opened, expected))
    same = sum(len(checksums) == 1 for checksums in rows)
    opened_files = ", then ".join(
        f"{opened} files where {plan} were planned" for opened, plan in counts
    )
    say(
        "DuckDB's own reader of Iceberg tables, which layoutctl does not use, ran a query of\n"
        f"each template on both layouts. It opened {opened_files};\n"
        f"{same} of {len(rows)} returned the same rows."
    )
    return {"second reader": {"files": counts, "same rows": same, "queries": len(rows)}}


def by_name(runs: Sequence[QueryRun]) -> dict[str, list[QueryRun]]:
    """Return the runs by template, in the order of the mixes."""
    order = list(dict.fromkeys(name for name, _ in (*tpch.ROUND_ONE, *tpch.ROUND_TWO)))
    grouped: dict[str, list[QueryRun]] = {}
    for run in sorted(runs, key=lambda run: (order.index(run.name), run.label)):
        grouped.setdefault(run.name, []).append(run)
    return grouped


def mean_files(runs: Sequence[QueryRun]) -> str:
    opened = sum(run.files for run in runs) / len(runs)
    held = max(run.scanned for run in runs)
    return f"{opened:,.0f} of {count(held)}"


def table(
    say: Say,
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    text: Sequence[int] = (0,),
) -> None:
    """Print aligned columns; those in `text` to the left."""
    every = [heads, *rows]
    widths = [max(len(row[column]) for row in every) for column in range(len(heads))]
    for row in every:
        cells = [
            cell.ljust(width) if column in text else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        say("  ".join(cells).rstrip())
    say("")
