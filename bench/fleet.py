"""How long the first insight into a catalog takes: `top`, `observe` and `report` on many tables.

    python -m bench.fleet [tables]        default 1000

Makes a SQLite catalog of small tables that exist only in metadata (one to sixty files each, in up
to four commits), and runs the program as a user does, in a process of its own: cold, with an empty
cache, warm, and with recorded queries of every table. The figures stand beside pyiceberg's own
loading of the same tables and reading of their manifests, which is the least that any tool on it
must do. The first insight of a user is timed apart: a virtual environment with nothing in it,
`pip install .` of this checkout, and a cold `top`. The page of 5,000 made-up tables is opened in
Chromium, where it is installed.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from bench.cpu import cpu_seconds
from bench.results import write_section

TABLES = 1000
COLUMNS = 8
NAMESPACES = 10
QUERIES = 10


def build(directory: Path, tables: int) -> dict[str, str]:
    """Make the catalog; return the variables by which the program finds it."""
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.schema import Schema
    from pyiceberg.types import LongType, NestedField

    uri = f"sqlite:///{directory}/c.db"
    catalog = SqlCatalog("lake", uri=uri, warehouse=f"file://{directory}/warehouse")
    schema = Schema(
        *(NestedField(n + 1, f"c{n}", LongType(), required=False) for n in range(COLUMNS))
    )
    draw = random.Random(20260101)
    for number in range(NAMESPACES):
        catalog.create_namespace(f"team{number}")
    for number in range(tables):
        table = catalog.create_table(f"team{number % NAMESPACES}.t{number:05d}", schema)
        _fill(table, draw)
    return {"PYICEBERG_CATALOG__LAKE__TYPE": "sql", "PYICEBERG_CATALOG__LAKE__URI": uri}


def _fill(table: Any, draw: random.Random) -> None:
    for commit in range(draw.randint(1, 4)):
        with table.transaction() as transaction:  # noqa: SIM117
            with transaction.update_snapshot().fast_append() as update:
                for number in range(draw.randint(1, 16)):
                    update.append_data_file(_file(table, commit * 100 + number, draw))


def _file(table: Any, number: int, draw: random.Random) -> Any:
    import struct

    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    ids = range(1, COLUMNS + 1)
    low = {i: draw.randrange(1 << 20) for i in ids}
    size = draw.choice((64 << 10, 1 << 20, 8 << 20, 200 << 20))
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{table.location()}/data/00000-{number}-3f9a1c0b-77de.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1 + size // 64,
        file_size_in_bytes=size,
        column_sizes=dict.fromkeys(ids, size // COLUMNS),
        value_counts=dict.fromkeys(ids, 1 + size // 64),
        null_value_counts=dict.fromkeys(ids, 0),
        nan_value_counts={},
        lower_bounds={i: struct.pack("<q", low[i]) for i in ids},
        upper_bounds={i: struct.pack("<q", low[i] + draw.randrange(1 << 18)) for i in ids},
        key_metadata=None,
        split_offsets=None,
        equality_ids=None,
        sort_order_id=None,
    )
    file.spec_id = 0
    return file


def run(directory: Path, env: dict[str, str], *arguments: str) -> tuple[float, float, str]:
    """Run the program; return seconds, CPU seconds and what it printed."""
    variables = {
        **{k: v for k, v in os.environ.items() if not k.startswith("PYICEBERG_")}, **env,
        "LAYOUTCTL_STATE": str(directory / "state"),
        "LAYOUTCTL_CACHE": str(directory / "cache"),
        "PYTHONPATH": str(Path(__file__).parent.parent),
    }  # fmt: skip
    return _timed([sys.executable, "-m", "reconciler.cli.main", *arguments], directory, variables)


def _timed(
    command: list[str], directory: Path, variables: dict[str, str]
) -> tuple[float, float, str]:
    before, began = cpu_seconds(), time.perf_counter()
    done = subprocess.run(
        command, cwd=directory, env=variables, capture_output=True, text=True, check=True
    )
    return time.perf_counter() - began, cpu_seconds() - before, done.stdout


PLAIN = """
from pyiceberg.catalog import load_catalog
catalog = load_catalog("lake")
for namespace in catalog.list_namespaces():
    for name in catalog.list_tables(namespace):
        table = catalog.load_table(name)
        for manifest in table.current_snapshot().manifests(table.io):
            manifest.fetch_manifest_entry(table.io)
"""


def plain(directory: Path, env: dict[str, str]) -> tuple[float, float]:
    """Return the seconds and CPU seconds that pyiceberg takes to load the tables and read their
    manifests."""
    seconds, spent, _ = _timed([sys.executable, "-c", PLAIN], directory, {**os.environ, **env})
    return seconds, spent


def record(directory: Path, tables: int) -> None:
    """Store queries of every table, as an import does."""
    from pyiceberg.catalog.sql import SqlCatalog

    from reconciler.queries.fragments import Fragment
    from reconciler.queries.predicate import Comparison, Ref
    from reconciler.state.state import StateStore

    catalog = SqlCatalog("lake", uri=f"sqlite:///{directory}/c.db")
    above = Comparison(Ref(1), ">=", 0)
    fragments = []
    for table in range(tables):
        name = f"team{table % NAMESPACES}.t{table:05d}"
        uuid = str(catalog.load_table(name).metadata.table_uuid)
        fragments += [
            Fragment("log", query, uuid, above, (query << 16,), (None,), (1,), 1.0,
                     1_795_000_000_000 + 3_600_000 * query, "x")
            for query in range(QUERIES)
        ]  # fmt: skip
    StateStore(directory / "state").append_fragments(fragments)


LOOK = """
document.body.offsetHeight;
const drawn = performance.now();
document.querySelectorAll("#tables thead button")[4].click();
document.body.offsetHeight;
return [drawn, performance.now() - drawn];
"""


def installed(directory: Path, env: dict[str, str]) -> tuple[float, float]:
    """Return the seconds of `pip install` into an empty environment, and of its first `top`."""
    import venv

    venv.create(directory / "venv", with_pip=True)
    programs, variables = directory / "venv/bin", {"PATH": "/usr/bin:/bin", **env}
    variables |= {k: str(directory / k) for k in ("LAYOUTCTL_STATE", "LAYOUTCTL_CACHE", "HOME")}
    variables |= {k: v for k, v in os.environ.items() if k.startswith("PIP_")}
    checkout = str(Path(__file__).parent.parent)
    install = [str(programs / "pip"), "install", "-q", checkout]
    seconds, _, _ = _timed(install, directory, variables)
    first, _, _ = _timed([str(programs / "layoutctl"), "top"], directory, variables)
    return seconds, first


PAGES = 5
"""How often the page is opened."""


def page_of(tables: int, directory: Path) -> str:
    """Return what Chromium takes to draw the page of a fleet, and to sort it."""
    import pytest

    from reconciler.render.fleet_html import render_fleet
    from tests.browser import asked, browser
    from tests.render.fleets import fleet

    text = render_fleet(fleet(tables))
    try:
        browser()
    except pytest.skip.Exception:
        return f"The page of {tables:,} tables has {len(text.encode()) / 1e6:.2f} MB; no Chromium."
    drawn, sorting = zip(*(asked(text, LOOK, directory) for _ in range(PAGES)), strict=True)
    return (
        f"The page of {tables:,} tables has {len(text.encode()) / 1e6:.2f} MB; Chromium has drawn "
        f"it after {median(drawn):.0f} ms (median of {PAGES}, {min(drawn):.0f} to "
        f"{max(drawn):.0f}) and sorts it in {median(sorting):.0f} ms."
    )


def main() -> None:
    tables = int(sys.argv[1]) if len(sys.argv) > 1 else TABLES
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        env = build(directory, tables)
        least, work = plain(directory, env)
        rows = [["", "s", "CPU s", "of pyiceberg's own seconds", "of its CPU seconds"]]
        rows.append(
            ["pyiceberg: load, read manifests", f"{least:.1f}", f"{work:.1f}", "1.00", "1.00"]
        )
        for what, arguments in (
            ("top, cold", ("top",)),
            ("top, warm", ("top",)),
            ("observe, warm", ("observe",)),
            ("report --all, warm", ("report", "--all")),
            (f"top, {tables * QUERIES:,} recorded queries", ("top",)),
        ):
            if "recorded" in what:
                record(directory, tables)
            seconds, spent, _ = run(directory, env, *arguments)
            rows.append(
                [what, f"{seconds:.1f}", f"{spent:.1f}", f"{seconds / least:.2f}",
                 f"{spent / work:.2f}"]
            )  # fmt: skip
        install, first = installed(directory, env)
        notes = (
            f"{tables:,} tables, one process each. In an empty virtual environment `pip install .` "
            f"takes {install:.0f} s and the first `layoutctl top` {first:.0f} s. "
            f"{page_of(5_000, directory)}"
        )
        print(write_section("First insight", f"python -m bench.fleet {tables}", rows, notes))


if __name__ == "__main__":
    main()
