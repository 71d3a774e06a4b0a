"""Plans that come true: kinds of tables, predicted, found, chosen and best.

`python -m bench.tables [--seed N] [--tables N] [--kinds a,b] [--no-brute] [--log FILE]` plays a
table of every kind by one Spark session and appends a line for each to the log; those that the log
holds already are not played again, so that a run can be stopped and resumed. Whatever the log then
holds goes to bench/RESULTS.md. Seconds are those of the first table of a run: it has a JVM of its
own. Exits 1 if rows changed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench.results import logged
from bench.tables import brute, report
from bench.tables.compare import compared
from bench.tables.drawn import Drawn
from bench.tables.kinds import KINDS
from bench.tables.play import NAMESPACE, Place, play, without_spark
from bench.tables.witness import watch
from reconciler.demo import witness
from reconciler.spark.session import session
from tests.conftest import SMALL_SESSION, sqlite_spark_conf

LOG = Path("build/bench-tables.jsonl")


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    options.log.parent.mkdir(parents=True, exist_ok=True)
    wanted = [(name, options.seed) for name in _names(options)]
    done = {(line["kind"], line["seed"]) for line in logged(options.log)}
    left = [KINDS[name](seed) for name, seed in wanted if (name, seed) not in done]
    if left:
        with tempfile.TemporaryDirectory(prefix="bench-tables-") as directory:
            run(Path(directory), left, options.log, options.brute)
    every = logged(options.log)
    print(report.write(every, _command(every), options.loaded))
    return 0 if all(line["rows_equal"] for line in every) else 1


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.tables")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tables", type=int, default=len(KINDS))
    parser.add_argument("--kinds", default="", help="names, separated by commas")
    parser.add_argument("--no-brute", dest="brute", action="store_false")
    parser.add_argument("--log", type=Path, default=LOG)
    parser.add_argument("--loaded", default="", help="what is to be said of the machine's load")
    return parser.parse_args(arguments)


def _names(options: argparse.Namespace) -> list[str]:
    named = options.kinds.split(",") if options.kinds else list(KINDS)
    return named[: options.tables]


def _command(lines: Sequence[dict[str, Any]]) -> str:
    """Return the seeds of the log, and how many tables have a brute force beside them."""
    seeds = ", ".join(str(seed) for seed in sorted({line["seed"] for line in lines}))
    tried = sum("tried" in line for line in lines)
    return f"python -m bench.tables --seed N, N of {seeds}; brute force on {tried} tables"


def run(root: Path, tables: Sequence[Drawn], log: Path, with_brute: bool) -> None:
    place = start(root)
    try:
        for drawn in tables:
            line = line_of(place, drawn, with_brute)
            place.started = None
            with log.open("a") as out:
                out.write(json.dumps(line) + "\n")
            print(report.short(line), flush=True)
    finally:
        session.stop(place.spark)


def start(root: Path) -> Place:
    place = without_spark(root)
    config, catalog = place.config, place.catalog
    calendar = pa.table({"k": pa.array(range(5_000)), "day": [k % 300 for k in range(5_000)]})
    catalog.create_table(f"{NAMESPACE}.calendar", calendar.schema).append(calendar)
    conf = {**SMALL_SESSION, **sqlite_spark_conf(root), "spark.sql.session.timeZone": "UTC"}
    begun = time.monotonic()
    spark = session.start(conf, app="tables", master="local[2]")
    return Place(spark, config, catalog, root, time.monotonic() - begun)


def line_of(place: Place, drawn: Drawn, with_brute: bool) -> dict[str, Any]:
    """Play one table; return its line of the log."""
    duckdb = witness.connect()
    played, watched = play(place, drawn, lambda name: watch(place, drawn, duckdb, name))
    line = compared(place, played)
    line["witness"] = [[asdict(one) for one in found] for found in watched]
    if with_brute and drawn.columns:
        tried = brute.best(place, drawn, line["cost"]["rho"], brute.row_groups_of(played))
        line["tried"] = [asdict(one) for one in tried]
    return line


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
