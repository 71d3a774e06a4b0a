"""The script of the demo: a table in arrival order, a plan, a verified rewrite, and again.

Every decision is made by the public verbs, run as a user runs them, and printed as they print it.
This module only provides data, queries, and tables of what was read before and after.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reconciler.api.catalog_config import CatalogConfig
from reconciler.demo import data, measure, reporting, tpch, witness
from reconciler.demo.measure import Reading
from reconciler.demo.reporting import QueryRun
from reconciler.demo.tpch import Query
from reconciler.errors import EXIT_OK, InternalError, UnavailableError
from reconciler.format import count, duration, iec, percent
from reconciler.plan.ledger import ReadCheck
from reconciler.table.schema import Schema

ROUND_SEED, SHIFT_SEED = 1, 2
DISK_BYTES = 3 << 30
ICEBERG_SORT = "lineitem_iceberg_sort"

POLICY = """\
apiVersion: layout.lakehouse.dev/v1alpha1
kind: TableLayoutPolicy
metadata: {{name: tpch-facts}}
spec:
  catalogRef: {{name: demo}}
  tables: {{include: [tpch.lineitem, tpch.orders]}}
  layout:
    clustering: {{mode: WorkloadAware}}
    files: {{targetSize: {target}}}
  approval:
    mode: Manual
"""
CATALOG_DOCUMENT = """\
apiVersion: layout.lakehouse.dev/v1alpha1
kind: IcebergCatalog
metadata: {{name: demo}}
spec:
  type: sql
  catalogName: demo
  properties: {{uri: "{uri}", warehouse: "{warehouse}"}}
"""


@dataclass
class Demo:
    """One run of the demo."""

    place: data.Place
    """The directories that the demo works in."""
    scale: data.Scale
    """How much data it makes."""
    say: Callable[[str], None]
    """Receives the demo's text, line by line."""
    started: float = field(default_factory=time.monotonic)
    """Monotonic time of the start, in seconds."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Numbers for bench/: planned bytes by layout, checksums that differ, seconds."""

    @property
    def config(self) -> CatalogConfig:
        properties = {"type": "sql", **data.catalog_properties(self.place)}
        return CatalogConfig(data.CATALOG, "sql", properties, "demo")

    @property
    def cache(self) -> Path:
        return self.place.state / "cache"

    def title(self, text: str) -> None:
        clock = duration(time.monotonic() - self.started)
        self.say(f"\n=== {text}   [{clock}]\n")


def run(demo: Demo) -> Mapping[str, Any]:
    """Run the whole demo. Raises ReconcilerError if a step cannot be carried out."""
    opening(demo)
    generated = arrival(demo)
    verb(demo, "observe", "demo.tpch.lineitem")
    others = {name: _schema(demo, name) for name in data.OTHERS}
    queries = tpch.draw(tpch.ROUND_ONE, ROUND_SEED, demo.scale.largest_order)
    before = first_round(demo, queries)
    first_plan(demo)
    layouts = {"before": _readings(demo, queries, others), "22 before": _all_22(demo, others)}
    stood = locations(demo)
    _copy_for_iceberg(demo)
    apply_first(demo)
    again(demo, queries, before, layouts, others)
    second_reader(demo, queries, (stood, layouts["before"]), (locations(demo), layouts["after"]))
    second_reconcile(demo, generated)
    ending(demo)
    return demo.facts


def opening(demo: Demo) -> None:
    free = shutil.disk_usage(demo.place.root).free
    demo.title("What will happen")
    demo.say(
        f"TPC-H at scale {demo.scale.scale_factor:g} arrives in an embedded Iceberg catalog in "
        "the order its generator makes it.\nA reporting team queries it with Spark. layoutctl "
        "reads the event log, plans, rewrites and checks itself.\n"
    )
    demo.say(f"Directory  {demo.place.root}  (all of it may be deleted afterwards)")
    demo.say(f"Disk       about {iec(DISK_BYTES * demo.scale.scale_factor)}; {iec(free)} free")
    demo.say(f"Versions   {_versions()}")


def _versions() -> str:
    from importlib.metadata import version

    from reconciler.spark.session import runtime

    runtime.check_java()
    parts = [f"{name} {version(name)}" for name in ("pyspark", "pyiceberg", "tpchgen-cli")]
    return ", ".join([*parts, f"Iceberg {runtime.ICEBERG_RUNTIME.revision}"])


def arrival(demo: Demo) -> Path:
    demo.title("Data arrives")
    generated = data.generate(demo.place, demo.scale)
    catalog = data.open_catalog(demo.place)
    data.create_tables(catalog, generated)
    data.arrive(catalog, generated, demo.scale.first_parts)
    write_documents(demo)
    parts = len(demo.scale.first_parts)
    demo.say(
        f"orders and lineitem: {parts} appends each, in the generator's order (by order key); "
        f"{len(demo.scale.last_parts)} more are kept back."
    )
    return generated


def write_documents(demo: Demo) -> None:
    """Write the catalog as a document and as pyiceberg's file, and the policy."""
    properties = data.catalog_properties(demo.place)
    target = f"{demo.scale.target_bytes >> 10}Ki"
    if demo.scale.target_bytes % (1 << 20) == 0:
        target = f"{demo.scale.target_bytes >> 20}Mi"
    (demo.place.layouts / "catalog.yaml").write_text(CATALOG_DOCUMENT.format(**properties))
    (demo.place.layouts / "tpch.yaml").write_text(POLICY.format(target=target))
    lines = "".join(f"    {key}: {value}\n" for key, value in properties.items())
    (demo.place.root / ".pyiceberg.yaml").write_text(
        f"catalog:\n  {data.CATALOG}:\n    type: sql\n{lines}"
    )


def first_round(demo: Demo, queries: Sequence[Query]) -> tuple[QueryRun, ...]:
    demo.title("A day of queries, in Spark")
    runs, log = reporting.run_round(demo.place, queries, "reporting")
    by_name = _by_name(runs)
    rows = [
        (name, count(len(group)), _mean_files(group), iec(sum(run.bytes for run in group)))
        for name, group in by_name.items()
    ]
    _table(demo, ("TEMPLATE", "RUNS", "FILES OPENED / RUN", "SPARK bytesRead"), rows)
    demo.say(
        "Spark's bytesRead is a rough measure: it misses column chunks that Iceberg reads on\n"
        "threads of its own, and counts gaps read along. Planned bytes, from footers, lead below.\n"
    )
    verb(demo, "workload", "import", str(log))
    return runs


def first_plan(demo: Demo) -> None:
    demo.title("The policy and the plan")
    demo.say((demo.place.layouts / "tpch.yaml").read_text())
    verb(demo, "plan", "-f", "layouts", "demo.tpch.lineitem", "--out", "plan.json")
    verb(demo, "plan", "-f", "layouts", "demo.tpch.orders")


def _copy_for_iceberg(demo: Demo) -> None:
    """Create a second table over the present files, for Iceberg's own procedure."""
    data.copy_of(data.open_catalog(demo.place), "lineitem", ICEBERG_SORT)


def apply_first(demo: Demo) -> None:
    demo.title("Apply: read, sort, write, verify, commit")
    started = time.monotonic()
    verb(demo, "apply", "-f", "layouts", "--until-converged", "--auto-approve")
    demo.facts["apply seconds"] = time.monotonic() - started
    demo.facts["checks"] = _checks(demo)


def _checks(demo: Demo) -> list[ReadCheck]:
    """Return the ledger's predicted and measured reading of both fact tables."""
    from reconciler.catalog.observe import observe_table
    from reconciler.state.state import StateStore

    store = StateStore(demo.place.state)
    found: list[ReadCheck] = []
    for name in data.FACTS:
        seen = observe_table(demo.config, (data.NAMESPACE, name), demo.cache)
        found += store.read_checks(seen.uuid)
    return found


def again(
    demo: Demo,
    queries: Sequence[Query],
    before: tuple[QueryRun, ...],
    layouts: dict[str, list[Reading]],
    others: Mapping[str, Schema],
) -> None:
    demo.title("The same queries in another order, and Iceberg's own sort of a copy")
    layouts["after"] = _readings(demo, queries, others)
    layouts["22 after"] = _all_22(demo, others)
    shuffled = tpch.reordered(queries, ROUND_SEED + 100)
    after, _ = reporting.run_round(demo.place, shuffled, "reporting", (_iceberg_sort(demo),))
    copies = {"lineitem": ICEBERG_SORT}
    layouts["iceberg"] = _readings(demo, queries, others, copies)
    layouts["22 iceberg"] = _all_22(demo, others, copies)
    _checksums(demo, before, after)
    _compare(demo, queries, before, after, layouts)
    _compare_22(demo, layouts)


def _iceberg_sort(demo: Demo) -> str:
    table, target = f"{data.NAMESPACE}.{ICEBERG_SORT}", demo.scale.target_bytes
    return (
        f"call {data.CATALOG}.system.rewrite_data_files(table => '{table}', strategy => 'sort', "
        "sort_order => 'l_shipdate', options => map('rewrite-all', 'true', "
        f"'target-file-size-bytes', '{target}'))"
    )


def _checksums(demo: Demo, before: Sequence[QueryRun], after: Sequence[QueryRun]) -> None:
    results = {run.label: run.checksum for run in after}
    differing = [run.label for run in before if results[run.label] != run.checksum]
    demo.facts["differing results"] = differing
    if differing:
        raise InternalError(
            f"{len(differing)} of {len(before)} results changed after the rewrite",
            details=tuple(differing[:5]),
        )
    demo.say(f"Results: all {len(before)} checksums equal.\n")


def _compare(
    demo: Demo,
    queries: Sequence[Query],
    before: Sequence[QueryRun],
    after: Sequence[QueryRun],
    layouts: Mapping[str, list[Reading]],
) -> None:
    """Print planned bytes per template in three layouts, and the files that Spark opened."""
    runs_before, runs_after = _by_name(before), _by_name(after)
    rows: list[Sequence[str]] = []
    for name in runs_before:
        mine = [number for number, query in enumerate(queries) if query.name == name]
        now, later, theirs = (
            sum(layouts[key][number].bytes for number in mine)
            for key in ("before", "after", "iceberg")
        )
        files = f"{_mean_files(runs_before[name])} -> {_mean_files(runs_after[name])}"
        worse = "worse" if later > 1.01 * now else ""
        rows.append((name, files, iec(now), iec(later), iec(theirs), worse))
    totals = {key: sum(r.bytes for r in layouts[key]) for key in ("before", "after", "iceberg")}
    rows.append(("all", "", *(iec(totals[key]) for key in ("before", "after", "iceberg")), ""))
    heads = ("TEMPLATE", "FILES OPENED / RUN", "PLANNED BEFORE", "AFTER", "ICEBERG SORT", "")
    _table(demo, heads, rows, text=(0, 5))
    opened = [sum(run.bytes for run in runs) for runs in (before, after)]
    demo.say(
        f"After / before: {percent(totals['after'] / totals['before'])} of the planned bytes; "
        f"Iceberg's sort, given the column: {percent(totals['iceberg'] / totals['before'])}.\n"
        f"Spark's own bytesRead fell from {iec(opened[0])} to {iec(opened[1])}."
    )
    demo.facts |= {f"planned {key}": value for key, value in totals.items()}
    demo.facts["spark before"], demo.facts["spark after"] = opened
    demo.facts["files agree"] = _files_agree(queries, before, layouts["before"]) and _files_agree(
        queries, after, layouts["after"]
    )


Planned = tuple[Mapping[str, str], Sequence[Reading]]
"""Where tables' metadata is, by name, and what each query was planned to read there."""


def locations(demo: Demo) -> dict[str, str]:
    catalog = data.open_catalog(demo.place)
    return {
        name: catalog.load_table((data.NAMESPACE, name)).metadata_location
        for name in (*data.FACTS, *data.OTHERS)
    }


def second_reader(demo: Demo, queries: Sequence[Query], *layouts: Planned) -> None:
    """Print how many files DuckDB opens for one query of each template, in layouts of the same
    rows."""
    try:
        connection = witness.connect()
    except UnavailableError as error:
        demo.say(f"No second reader: {error.what}.")
        return
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
    demo.say(
        f"DuckDB, which shares no code with Spark or layoutctl, ran a query of each template on\n"
        f"both layouts. It opened {opened_files}; {same} of {len(rows)} returned the same rows."
    )
    demo.facts["second reader"] = {"files": counts, "same rows": same, "queries": len(rows)}


def _files_agree(
    queries: Sequence[Query], runs: Sequence[QueryRun], planned: Sequence[Reading]
) -> bool:
    """Whether Spark opened exactly the data files that were planned, in every execution.

    Spark may skip more: it filters by values that a join finds at run time.
    """
    expected = {
        query.label: round(plan.files) for query, plan in zip(queries, planned, strict=True)
    }
    return all(run.files <= expected[run.label] for run in runs)


def _compare_22(demo: Demo, layouts: Mapping[str, list[Reading]]) -> None:
    """Print the planned bytes of all 22 TPC-H queries, whether or not a layout can help them."""
    demo.say("\nAll 22 TPC-H queries, planned bytes of lineitem and orders (not executed):")
    cells = []
    for number, query in enumerate(tpch.all_22()):
        now, later, theirs = (
            layouts[f"22 {key}"][number].bytes for key in ("before", "after", "iceberg")
        )
        if now:
            cells.append(f"{query.name} {later / now:.2f}/{theirs / now:.2f}")
    for start in range(0, len(cells), 6):
        demo.say("  " + "  ".join(cell.ljust(14) for cell in cells[start : start + 6]).rstrip())
    sums = {
        key: sum(reading.bytes for reading in layouts[f"22 {key}"])
        for key in ("before", "after", "iceberg")
    }
    demo.say(
        f"  after / before and, behind the slash, Iceberg's sort / before; all 22 together "
        f"{sums['after'] / sums['before']:.2f}/{sums['iceberg'] / sums['before']:.2f}"
    )
    demo.facts |= {f"planned 22 {key}": value for key, value in sums.items()}


def second_reconcile(demo: Demo, generated: Path) -> None:
    demo.title("A new batch, and people ask for something else")
    catalog = data.open_catalog(demo.place)
    data.arrive(catalog, generated, demo.scale.last_parts)
    queries = tpch.draw(tpch.ROUND_TWO, SHIFT_SEED, demo.scale.largest_order)
    runs, log = reporting.run_round(demo.place, queries, "reporting")
    rows = [(name, count(len(group)), _mean_files(group)) for name, group in _by_name(runs).items()]
    _table(demo, ("TEMPLATE", "RUNS", "FILES OPENED / RUN"), rows)
    verb(demo, "workload", "import", str(log))
    verb(demo, "plan", "-f", "layouts", "demo.tpch.lineitem")
    verb(demo, "apply", "-f", "layouts", "--until-converged", "--auto-approve")
    demo.title("And now?")
    verb(demo, "plan", "-f", "layouts", "-o", "wide")
    verb(demo, "history", "demo.tpch.lineitem")


def ending(demo: Demo) -> None:
    demo.title("The report")
    verb(demo, "report", "-f", "layouts", "demo.tpch.lineitem", "--out", "report.html")
    demo.facts["seconds"] = time.monotonic() - demo.started
    demo.say(f"\nDone in {duration(demo.facts['seconds'])}. Open {demo.place.root}/report.html.")
    demo.say("\nThree commands to try:")
    demo.say(f"  cd {demo.place.root} && export LAYOUTCTL_STATE=$PWD/state")
    demo.say("  layoutctl status -f layouts")
    demo.say("  layoutctl explain -f layouts demo.tpch.lineitem")
    demo.say("  layoutctl observe demo.tpch.orders")


def verb(demo: Demo, *arguments: str) -> str:
    """Run a verb of layoutctl as a user would, print its output as it comes, and return it."""
    shown = " ".join(_shorter(demo, argument) for argument in arguments)
    demo.say(f"$ layoutctl {shown}")
    command = [sys.executable, "-m", "reconciler.cli.main", *arguments]
    process = subprocess.Popen(
        command,
        cwd=demo.place.root,
        env=environment(demo.place),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines = []
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line)
        demo.say(line.rstrip("\n"))
    if process.wait() != EXIT_OK:
        raise InternalError(
            f"layoutctl {shown} ended with exit code {process.returncode}",
            do=f"look at its message above; the demo's files are in {demo.place.root}",
        )
    demo.say("")
    return "".join(lines)


def environment(place: data.Place) -> dict[str, str]:
    """Return the user's environment, with only the demo's state and catalogs."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("PYICEBERG_", "LAYOUTCTL_CATALOG"))
    }
    return {
        **kept,
        "LAYOUTCTL_STATE": str(place.state),
        "PYICEBERG_HOME": str(place.root),
        "PYTHONUNBUFFERED": "1",
        "NO_COLOR": "1",
    }


def _shorter(demo: Demo, argument: str) -> str:
    return argument.replace(f"{demo.place.root}/", "")


def _readings(
    demo: Demo,
    queries: Sequence[Query],
    others: Mapping[str, Schema],
    copies: Mapping[str, str] | None = None,
) -> list[Reading]:
    tables = {name: (data.NAMESPACE, (copies or {}).get(name, name)) for name in data.FACTS}
    views = measure.views_of(demo.config, tables, demo.cache)
    return measure.readings(views, queries, others)


def _all_22(
    demo: Demo, others: Mapping[str, Schema], copies: Mapping[str, str] | None = None
) -> list[Reading]:
    return _readings(demo, tpch.all_22(), others, copies)


def _schema(demo: Demo, name: str) -> Schema:
    from reconciler.catalog.observe import observe_table

    return observe_table(demo.config, (data.NAMESPACE, name), demo.cache).schema


def _by_name(runs: Sequence[QueryRun]) -> dict[str, list[QueryRun]]:
    """Return the runs by template, in the order of the mixes."""
    order = list(dict.fromkeys(name for name, _ in (*tpch.ROUND_ONE, *tpch.ROUND_TWO)))
    grouped: dict[str, list[QueryRun]] = {}
    for run in sorted(runs, key=lambda run: (order.index(run.name), run.label)):
        grouped.setdefault(run.name, []).append(run)
    return grouped


def _mean_files(runs: Sequence[QueryRun]) -> str:
    opened = sum(run.files for run in runs) / len(runs)
    held = max(run.scanned for run in runs)
    return f"{opened:,.0f} of {count(held)}"


def _table(
    demo: Demo,
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
        demo.say("  ".join(cells).rstrip())
    demo.say("")
