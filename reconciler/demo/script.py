"""The script of the demo: a table in arrival order, a plan, a verified rewrite, and again.

Every decision is made by the public verbs, run as a user runs them, and printed as they print it.
This module only provides data, queries, and tables of what was read before and after.
"""

from __future__ import annotations

import contextlib
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
from reconciler.demo import compare, data, measure, tpch, witness
from reconciler.demo.measure import Reading
from reconciler.demo.team import QueryRun, Team
from reconciler.demo.tpch import Query
from reconciler.errors import EXIT_OK, InternalError
from reconciler.format import duration, iec
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
  tables: {{include: [{tables}]}}
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
    team: Team
    """Runs the queries."""
    why: str
    """Says why it is this team."""
    started: float = field(default_factory=time.monotonic)
    """Monotonic time of the start, in seconds."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Numbers for bench/: planned bytes by layout, results that stayed the same, seconds."""

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


@dataclass(frozen=True, slots=True)
class Layout:
    """What the queries read from the tables as they are laid out at one time."""

    round: list[Reading]
    """Of the first round's queries, in their order."""
    all_22: list[Reading]
    """Of all TPC-H queries, in their order."""


def run(demo: Demo) -> Mapping[str, Any]:
    """Run the whole demo. Raises ReconcilerError if a step cannot be carried out."""
    opening(demo)
    generated = arrival(demo)
    verb(demo, "observe", "demo.tpch.lineitem")
    others = {name: _schema(demo, name) for name in data.OTHERS}
    queries = tpch.draw(tpch.ROUND_ONE, ROUND_SEED, demo.scale.largest_order)
    before = first_round(demo, queries)
    first_plan(demo)
    layouts = {"before": _layout(demo, queries, others)}
    stood = locations(demo)
    sorting = _copy_for_iceberg(demo)
    apply_first(demo)
    again(demo, queries, before, layouts, others, sorting)
    if demo.team.engine != witness.ENGINE:
        places = (stood, locations(demo))
        planned = (layouts["before"].round, layouts["after"].round)
        demo.facts |= compare.second_reader(demo.say, queries, *zip(places, planned, strict=True))
    second_reconcile(demo, generated)
    ending(demo)
    return demo.facts


def opening(demo: Demo) -> None:
    free = shutil.disk_usage(demo.place.root).free
    demo.title("What will happen")
    demo.say(
        f"TPC-H at scale {demo.scale.scale_factor:g} arrives in an embedded Iceberg catalog in "
        f"the order its generator makes it.\nA reporting team queries it with {demo.team.engine}. "
        "layoutctl reads the query log, plans, rewrites and checks itself.\n"
    )
    demo.say(f"Directory  {demo.place.root}  (all of it may be deleted afterwards)")
    demo.say(f"Disk       about {iec(DISK_BYTES * demo.scale.scale_factor)}; {iec(free)} free")
    demo.say(f"Team       {demo.team.engine}: {demo.why}")
    demo.say(f"Versions   {_versions(demo.team)}")


def _versions(team: Team) -> str:
    from importlib.metadata import PackageNotFoundError, version

    parts = []
    for name in ("pyiceberg", "tpchgen-cli"):
        with contextlib.suppress(PackageNotFoundError):  # a tpchgen-cli that is no Python package
            parts.append(f"{name} {version(name)}")
    return ", ".join([*parts, *team.versions()])


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
    tables = ", ".join(f"{data.NAMESPACE}.{name}" for name in demo.scale.governed)
    (demo.place.layouts / "catalog.yaml").write_text(CATALOG_DOCUMENT.format(**properties))
    (demo.place.layouts / "tpch.yaml").write_text(POLICY.format(target=target, tables=tables))
    lines = "".join(f"    {key}: {value}\n" for key, value in properties.items())
    (demo.place.root / ".pyiceberg.yaml").write_text(
        f"catalog:\n  {data.CATALOG}:\n    type: sql\n{lines}"
    )


def first_round(demo: Demo, queries: Sequence[Query]) -> tuple[QueryRun, ...]:
    demo.title(f"A day of queries, in {demo.team.engine}")
    runs, log = demo.team.run_round(queries)
    compare.opened(demo.say, runs, demo.team.bytes_name)
    demo.say(demo.team.caution)
    _import(demo, log)
    return runs


def _import(demo: Demo, log: Path) -> None:
    verb(demo, "workload", "import", *demo.team.import_options, str(log))


def first_plan(demo: Demo) -> None:
    demo.title("The policy and the plan")
    demo.say((demo.place.layouts / "tpch.yaml").read_text())
    verb(demo, "plan", "-f", "layouts", "demo.tpch.lineitem", "--out", "plan.json")


def _copy_for_iceberg(demo: Demo) -> tuple[str, ...]:
    """Create a second table over the present files, for Iceberg's own procedure; return the
    statements that call it, () if the team's engine has none."""
    copy = f"{data.NAMESPACE}.{ICEBERG_SORT}"
    statements = demo.team.iceberg_sort(copy, demo.scale.target_bytes)
    if statements:
        data.copy_of(data.open_catalog(demo.place), "lineitem", ICEBERG_SORT)
    return statements


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
    layouts: dict[str, Layout],
    others: Mapping[str, Schema],
    sorting: Sequence[str],
) -> None:
    """Run the queries again and compare. sorting: statements by which Iceberg sorts the copy."""
    beside = ", and Iceberg's own sort of a copy" if sorting else ""
    demo.title(f"The same queries in another order{beside}")
    layouts["after"] = _layout(demo, queries, others)
    shuffled = tpch.reordered(queries, ROUND_SEED + 100)
    after, _ = demo.team.run_round(shuffled, sorting)
    if sorting:
        layouts["iceberg"] = _layout(demo, queries, others, {"lineitem": ICEBERG_SORT})
    demo.facts["same results"] = compare.same_results(before, after)
    demo.say(f"Results: all {demo.facts['same results']} checksums equal.\n")
    rounds = {key: layout.round for key, layout in layouts.items()}
    demo.facts |= compare.templates(demo.say, queries, (before, after), rounds)
    if demo.team.bytes_name:
        counted = [sum(run.bytes or 0 for run in runs) for runs in (before, after)]
        demo.say(f"{demo.team.bytes_name} went from {' to '.join(iec(n) for n in counted)}.")
        demo.facts["counted"] = counted
    demo.facts["files agree"] = compare.files_agree(
        queries, before, rounds["before"]
    ) and compare.files_agree(queries, after, rounds["after"])
    every = {key: layout.all_22 for key, layout in layouts.items()}
    demo.facts |= compare.all_22(demo.say, every)


def locations(demo: Demo) -> dict[str, str]:
    catalog = data.open_catalog(demo.place)
    return {
        name: catalog.load_table((data.NAMESPACE, name)).metadata_location
        for name in (*data.FACTS, *data.OTHERS)
    }


def second_reconcile(demo: Demo, generated: Path) -> None:
    demo.title("A new batch, and people ask for something else")
    catalog = data.open_catalog(demo.place)
    data.arrive(catalog, generated, demo.scale.last_parts)
    queries = tpch.draw(tpch.ROUND_TWO, SHIFT_SEED, demo.scale.largest_order)
    runs, log = demo.team.run_round(queries)
    compare.opened(demo.say, runs)
    _import(demo, log)
    verb(demo, "apply", "-f", "layouts", "--until-converged", "--auto-approve")
    demo.title("And now?")
    verb(demo, "plan", "-f", "layouts", "-o", "wide")


def ending(demo: Demo) -> None:
    demo.title("The report")
    verb(demo, "report", "-f", "layouts", "demo.tpch.lineitem", "--out", "report.html")
    demo.facts["seconds"] = time.monotonic() - demo.started
    demo.say(f"\nDone in {duration(demo.facts['seconds'])}. Open {demo.place.root}/report.html.")
    demo.say("\nThree commands to try:")
    demo.say(f"  cd {demo.place.root} && export LAYOUTCTL_STATE=$PWD/state")
    demo.say("  layoutctl history demo.tpch.lineitem")
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


def _layout(
    demo: Demo,
    queries: Sequence[Query],
    others: Mapping[str, Schema],
    copies: Mapping[str, str] | None = None,
) -> Layout:
    """Measure the tables as they are now. others: schemas that queries join; copies: name in
    queries -> the table that is measured in its place."""
    tables = {name: (data.NAMESPACE, (copies or {}).get(name, name)) for name in data.FACTS}
    views = measure.views_of(demo.config, tables, demo.cache)
    found = measure.readings(views, (*queries, *tpch.all_22()), others)
    return Layout(found[: len(queries)], found[len(queries) :])


def _schema(demo: Demo, name: str) -> Schema:
    from reconciler.catalog.observe import observe_table

    return observe_table(demo.config, (data.NAMESPACE, name), demo.cache).schema
