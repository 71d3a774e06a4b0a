"""A real Flink job is killed beside maintenance of its table, and goes on from its last checkpoint.

`python -m bench.flink_kills [SECONDS [FORMAT...]]` has a job of parallelism 2 upsert for SECONDS
into a table of a REST catalog, with a checkpoint every second, while plans are made and applied one
after the other. Once its second checkpoint is in the table, its process is killed (SIGKILL) and a
new one is started from the last checkpoint, twice. Exits 1 where a job failed by itself, where the
rows are not those of the source of truth, or where the table is not Converged afterwards.
Needs Flink's jars (make flink); bench/RESULTS.md.
"""

from __future__ import annotations

import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from bench.results import write_section
from reconciler.api.catalog_config import CatalogConfig
from reconciler.loop.step import CONVERGED
from reconciler.spark.session import session
from tests.conftest import SMALL_SESSION, rest_spark_conf
from tests.flink.job import UpsertJob, checkpoints, create_table, on_rest, source_of_truth
from tests.flink.maintained import Maintained
from tests.rest_server import RestServer
from tests.spark.tables import Bench

SECONDS = 60
PER_SECOND = 200
KILLS = 2
VERSIONS = (2, 3)
HEAD = (
    "format", "jobs killed", "Flink's commits", "our commits", "after a checkpoint", "conflicts",
    "equality deletes, most and at the end", "held",
)  # fmt: skip


def play(bench: Bench, server: RestServer, root: Path, version: int, seconds: int) -> Any:
    """The line of one table, and whether everything held."""
    name, events = create_table(bench, version), seconds * PER_SECOND
    held = Maintained(bench, name, root / name, "0s")
    (root / name / "state").mkdir(parents=True)
    killed, ended = 0, -signal.SIGKILL
    while ended == -signal.SIGKILL:
        job = UpsertJob(
            on_rest(server.uri), bench.full(name), root / f"{name}-{killed}.log",
            events=events, per_second=PER_SECOND, checkpoint_ms=1_000, parallelism=2,
            state=root / name / "state",
        )  # fmt: skip
        if killed < KILLS:
            threading.Thread(target=_kill, args=(job, held), daemon=True).start()
        try:
            held.beside(job)
            ended = job.wait()
        finally:
            job.stop()
        killed += ended == -signal.SIGKILL
    if ended:
        print(job.log.read_text()[-2_000:])
    return _line(held, version, killed, ended, source_of_truth(events))


def _kill(job: UpsertJob, held: Maintained) -> None:
    """Kill the job's process once two of its checkpoints are in the table."""
    known = len(checkpoints(held.table))
    while job.running and len(checkpoints(held.table)) < known + 2:
        time.sleep(0.1)
    if job.running:
        job.process.kill()


def _line(held: Maintained, version: int, killed: int, ended: int, truth: dict[int, int]) -> Any:
    keys = [int(one.summary["total-equality-deletes"] or 0) for one in held.snapshots()]
    numbers = [checkpoint.number for checkpoint in checkpoints(held.table)]
    ours = sum(step.result.commits for step in held.steps if step.result)
    same, once = held.rows() == truth, numbers == sorted(set(numbers))
    state = held.converge()
    same = same and held.rows() == truth
    good = same and once and not ended and killed == KILLS and state.state == CONVERGED
    told = "rows, checkpoints, Converged" if good else (
        f"rows {same}, checkpoints {once}, job {ended}, killed {killed}, {state.state}"
    )  # fmt: skip
    line = (
        str(version), str(killed), str(len(numbers)), str(ours), str(held.overtaken),
        str(held.conflicts + held.stale), f"{max(keys):,}, {keys[-1]:,}", told,
    )  # fmt: skip
    print(" | ".join(line), dict(held.kinds), flush=True)
    return line, good


def main(arguments: list[str]) -> int:
    seconds = int(arguments[0]) if arguments else SECONDS
    versions = [int(number) for number in arguments[1:]] or VERSIONS
    with tempfile.TemporaryDirectory() as path:
        root = Path(path)
        server = RestServer(root, "rest")
        config = CatalogConfig("rest", "rest", {"type": "rest", "uri": server.uri}, source="bench")
        conf = {**SMALL_SESSION, **rest_spark_conf(server, "rest")}
        spark = session.start(conf, app="flink", master="local[2]")
        bench = Bench(spark, config, root / "bench")
        played = [play(bench, server, root, version, seconds) for version in versions]
        session.stop(spark)
        server.stop()
    notes = (
        "Flink 2.1.1 with Iceberg 1.11.0, parallelism 2, on a REST catalog; the events of Upserts "
        f"by Flink, {PER_SECOND} a second for {seconds} s; deletes and data files are maintained "
        f"without a quiet period. The job's process was killed {KILLS} times, and each time a new "
        "one went on from the last checkpoint, beside plans that were being applied. Held: the "
        "rows are those of the source of truth before and after the table converges, and no "
        "checkpoint was committed twice. The machine was shared with other work."
    )
    command = " ".join(["python -m bench.flink_kills", str(seconds), *arguments[1:]])
    lines = [line for line, _ in played]
    print(write_section("Kills of a Flink job beside maintenance", command, [HEAD, *lines], notes))
    return 0 if all(good for _, good in played) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
