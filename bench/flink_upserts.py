"""A real Flink job upserts into tables while their deletes are maintained.

`python -m bench.flink_upserts [SECONDS]` has the job write for SECONDS into each table, with a
checkpoint every second. Until it ends, plans are made and applied one after the other; a commit
with verified files waits for a checkpoint of Flink. The job stops at the first checkpoint or commit
that fails. Exits 1 where that happened, where the rows are not those of the source of truth, or
where the table is not Converged afterwards. Needs Flink's jars (make flink); bench/RESULTS.md.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog

from bench.results import write_section
from reconciler.loop.step import CONVERGED
from reconciler.spark.session import session
from tests.conftest import SMALL_SESSION, sqlite_catalog, sqlite_spark_conf
from tests.flink.job import UpsertJob, checkpoints, create_table, on_sqlite, source_of_truth
from tests.flink.maintained import Maintained
from tests.spark.tables import Bench

SECONDS = 120
PER_SECOND = 1_000


@dataclass(frozen=True)
class Case:
    """quiet: the policy's quiet period; "" for no maintenance while the job runs."""

    title: str
    version: int
    quiet: str
    partitioned: str = ""


CASES = (
    Case("no maintenance, format 2", 2, ""),
    Case("deletes maintained, format 2", 2, "15m"),
    Case("data files rewritten too, format 2, 2 buckets", 2, "0s", "bucket(2, id)"),
    Case("deletes maintained, format 3", 3, "15m"),
    Case("data files rewritten too, format 3", 3, "0s"),
)

HEAD = (
    "case", "Flink's commits", "between two, median and longest, s", "our commits",
    "after a checkpoint", "conflicts", "delete files, most and at the end",
    "equality deletes, most and at the end", "held",
)  # fmt: skip


def play(bench: Bench, root: Path, case: Case, events: int) -> tuple[tuple[str, ...], bool]:
    """The line of one case, and whether everything held."""
    name = create_table(bench, case.version, case.partitioned)
    held = Maintained(bench, name, root / name, case.quiet or "15m")
    held.root.mkdir(exist_ok=True)
    job = UpsertJob(
        on_sqlite(root), bench.full(name), root / f"{name}.log",
        events=events, per_second=PER_SECOND, checkpoint_ms=1_000,
    )  # fmt: skip
    try:
        if case.quiet:
            held.beside(job)
        exit_code = job.wait()
    finally:
        job.stop()
    if exit_code:
        print(job.log.read_text()[-2_000:])
    truth = source_of_truth(events)
    ours = sum(step.result.commits for step in held.steps if step.result)
    deletes, keys = (
        [int(snapshot.summary[f"total-{what}"] or 0) for snapshot in held.snapshots()]
        for what in ("delete-files", "equality-deletes")
    )
    at = [checkpoint.at_ms / 1_000 for checkpoint in checkpoints(held.table)]
    gaps = [later - earlier for earlier, later in pairwise(at)]
    same = held.rows() == truth
    state = held.converge()
    same = same and held.rows() == truth
    good = same and not exit_code and state.state == CONVERGED
    line = (
        case.title,
        str(len(at)),
        f"{statistics.median(gaps):.1f}, {max(gaps):.1f}",
        str(ours),
        str(held.overtaken),
        str(held.conflicts + held.stale),
        f"{max(deletes)}, {deletes[-1]}",
        f"{max(keys):,}, {keys[-1]:,}",
        "rows, job, Converged" if good else f"rows {same}, job {exit_code}, {state.state}",
    )
    print(" | ".join(line), dict(held.kinds), flush=True)
    return line, good


def start(root: Path) -> tuple[Any, Bench]:
    (root / "warehouse").mkdir()
    config = sqlite_catalog(root)
    SqlCatalog(config.name, **dict(config.properties))
    conf = {**SMALL_SESSION, **sqlite_spark_conf(root)}
    spark = session.start(conf, app="flink", master="local[2]")
    return spark, Bench(spark, config, root / "bench")


def main(arguments: list[str]) -> int:
    seconds = int(arguments[0]) if arguments else SECONDS
    with tempfile.TemporaryDirectory() as path:
        spark, bench = start(Path(path))
        played = [play(bench, Path(path), case, seconds * PER_SECOND) for case in CASES]
        session.stop(spark)
    notes = (
        f"Flink 2.1.1 with Iceberg 1.11.0, {PER_SECOND:,} events a second for {seconds} s: three "
        "quarters about 997 rows, one quarter about a row each of its own, a tenth of all deletes "
        "the row. A catalog on SQLite; plans by `Auto`, one after the other. Once its files are "
        "verified, a commit of ours is held back until Flink has committed a checkpoint, while the "
        'job runs: "after a checkpoint" counts those. Deletes are counted until the job ended. The '
        "machine was shared with other work."
    )
    command = f"python -m bench.flink_upserts {seconds}"
    print(write_section("Upserts by Flink", command, [HEAD, *(line for line, _ in played)], notes))
    return 0 if all(good for _, good in played) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
