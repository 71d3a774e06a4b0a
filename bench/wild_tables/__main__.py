"""Wild tables: random ones by Spark, Java and pyiceberg, and plans carried out without a JVM.

`python -m bench.wild_tables [FIRST] [COUNT]` plays that many seeds and prints a line for each, and
every difference with the steps that led to it. Exits 1 if there was one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

from bench.wild_tables.checks import afterwards, differences, record
from bench.wild_tables.policy import catalog_document, policy_document
from bench.wild_tables.table import Wild
from reconciler.spark.session import session
from tests.conftest import SHORT_LIVED, SMALL_SESSION, sqlite_catalog, sqlite_spark_conf
from tests.spark.tables import Bench

SETTINGS = {
    **SMALL_SESSION,
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",  # a query runs once: compiling it costs more
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}


def main(first: int, count: int) -> int:
    bad = 0
    os.environ.setdefault("JDK_JAVA_OPTIONS", SHORT_LIVED)
    directory = Path(tempfile.mkdtemp(prefix="wild-"))
    (directory / "warehouse").mkdir()
    config = sqlite_catalog(directory)
    from pyiceberg.catalog.sql import SqlCatalog

    SqlCatalog(config.name, **dict(config.properties))
    running = session.start({**SETTINGS, **sqlite_spark_conf(directory)}, "wild", "local[2]")
    try:
        bench = Bench(running, config, directory)
        for seed in range(first, first + count):
            started = time.monotonic()
            wild, found = play(bench, seed)
            bad += bool(found)
            plans = "; ".join(line for line in wild.log if line.startswith("apply"))
            seconds = time.monotonic() - started
            print(f"seed {seed}: {len(found)} differences, {seconds:.0f} s; {plans}", flush=True)
            (directory / f"{seed}.log").write_text("\n".join(map(str, wild.log)))
            for one in found:
                print(f"  !! {one}", flush=True)
        print(f"{bad} of {count} seeds differ; {directory}")
    finally:
        session.stop(running)
    return 1 if bad else 0


def play(bench: Bench, seed: int) -> tuple[Wild, list[str]]:
    """Return the table and the differences that were found."""
    wild = Wild(bench, seed)
    found: list[str] = []
    try:
        wild.create()
        for number in range(1 + (seed % 3 == 0)):
            wild.insert()
            wild.wander(wild.chance.randint(2, 9))
            wild.insert()
            before = record(wild)
            found += apply(wild, number)
            found += differences(wild, before)
            if found:
                return wild, found
        if seed % 2:
            found += afterwards(wild)
    except Exception:
        found.append(traceback.format_exc())
    return wild, found


def apply(wild: Wild, number: int) -> list[str]:
    """Carry a random policy out in a process of its own, as a user does."""
    directory: Path = wild.bench.directory
    file = directory / f"{wild.name}-{number}.json"
    documents = [catalog_document(wild.bench.config), policy_document(wild)]
    file.write_text("\n---\n".join(map(json.dumps, documents)))
    kept = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("PYICEBERG_", "LAYOUTCTL_", "SPARK_"))
    }
    places = {f"LAYOUTCTL_{one.upper()}": str(directory / one) for one in ("state", "cache")}
    environment = {**kept, **places, "COLUMNS": "200", "JAVA_HOME": "/nowhere"}
    command = [sys.executable, "-m", "reconciler.cli.main", "apply", wild.full, "-f", str(file),
               "--auto-approve", "--until-converged", "--engine", "Local"]  # fmt: skip
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    (directory / f"{wild.name}-{number}.out").write_text(done.stdout + done.stderr)
    mine = wild.bench.sql(f"SELECT operation, summary FROM {wild.full}.snapshots")
    ours = sum("layout.plan-id" in row.summary for row in mine)
    wild.log.append(f"apply {number}: exit {done.returncode}, {ours} snapshots of ours")
    if done.returncode not in (0, 2, 3):
        return [f"apply ended with {done.returncode}: {done.stdout[-1500:]} {done.stderr[-2500:]}"]
    return []


if __name__ == "__main__":
    numbers = [int(text) for text in sys.argv[1:]]
    sys.exit(main(*(numbers + [1, 10][len(numbers) :])))
