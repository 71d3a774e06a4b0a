"""Kills executions at their phases while another writer appends; no row may be lost or doubled.

`python -m bench.faults --kills 30 [--work KIND]` prints one line a kill and a summary. Kills fall
before, in and after a commit in turn: at progress lines, under a held catalog lock, and at random
moments around the sending. The test suite runs a short form of the same
(tests/spark/test_faults.py).
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from bench.results import write_section
from reconciler.demo import witness
from tests.conftest import sqlite_catalog
from tests.spark.ledger import FileLedger

ROOT = Path(__file__).resolve().parent.parent
PHASES = ("before", "in", "after")
RECLUSTER, APPLY, CONVERT, COMPACT = "recluster", "apply", "convert", "compact"
ORPHANS, EXPIRE = "orphans", "expire"
WORKS = {
    RECLUSTER: "Kills of apply", APPLY: "Kills of ApplyDeletes", CONVERT: "Kills of convert",
    COMPACT: "Kills of compact", ORPHANS: "Kills of RemoveOrphans",
    EXPIRE: "Kills of ExpireSnapshots",
}  # fmt: skip
"""By name, the title of its results. What is killed: a rewrite of data files with a commit a file,
without or with deleted rows, a replacement of delete files with one commit, a removal of files that
nobody refers to, or an expiry of all snapshots but the newest."""
BY_FILE = (RECLUSTER, APPLY)
DELETES = (APPLY, CONVERT, COMPACT)
UPKEEP = (ORPHANS, EXPIRE)
"""These say nothing between their begin ("ready") and their end ("property")."""
PROPERTIES = {
    "format-version": "2",
    "write.delete.mode": "merge-on-read",
    "write.delete.granularity": "partition",
}
TABLE = "faults"
FILES = 5
ROWS_PER_APPEND = 20
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "s", StringType(), required=False),
)


@dataclass
class Report:
    """kills: by phase. Problems must be empty. deleted: ids that the processes deleted first."""

    kills: Counter[str] = field(default_factory=Counter)
    commits: int = 0
    appends: int = 0
    problems: list[str] = field(default_factory=list)
    work: str = RECLUSTER
    deleted: set[int] = field(default_factory=set)


class Appender:
    """Appends rows with new ids every `pause` seconds until stopped; knows what it committed."""

    def __init__(self, catalog: Any, pause: float) -> None:
        self._catalog, self._pause = catalog, pause
        self._stop = threading.Event()
        self.next_id = 0
        self.appends = 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def append(self) -> None:
        ids = list(range(self.next_id, self.next_id + ROWS_PER_APPEND))
        rows = pa.table({"id": ids, "s": [f"row {i}" for i in ids]})
        while True:
            try:
                self._catalog.load_table(f"jobs.{TABLE}").append(rows)
                break
            except CommitFailedException:
                continue
        self.next_id += ROWS_PER_APPEND
        self.appends += 1

    def _run(self) -> None:
        while not self._stop.wait(self._pause):
            self.append()

    def __enter__(self) -> Appender:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()


def run(
    kills: Sequence[str],
    directory: Path,
    seed: int = 7,
    pause: float = 2.0,
    work: str = RECLUSTER,
) -> Report:
    """One kill per entry of `kills` (phases), then a run to the end, then the books."""
    (directory / "warehouse").mkdir(parents=True, exist_ok=True)
    catalog = SqlCatalog("rec", **dict(sqlite_catalog(directory).properties))
    catalog.create_namespace("jobs")
    catalog.create_table(f"jobs.{TABLE}", SCHEMA, properties=PROPERTIES)
    report, chance = Report(work=work), random.Random(seed)
    appender = Appender(catalog, pause)
    for _ in range(FILES):
        appender.append()
    with appender:
        for phase in kills:
            _kill_once(phase, directory, chance, report)
            _check_rows(catalog, appender, report, f"after a kill {phase} a commit")
        _run_to_the_end(directory, chance, report)
    _check_rows(catalog, appender, report, "at the end", exact=True)
    _check_leftovers(catalog, directory, report)
    report.appends = appender.appends
    return report


def _start(directory: Path, chance: random.Random, report: Report) -> subprocess.Popen[str]:
    key = "id"
    if report.work in UPKEEP:
        key = f"{report.work}:"
    if report.work in DELETES:
        left = sorted(set(range(FILES * ROWS_PER_APPEND)) - report.deleted)
        ids = chance.sample(left, 2)
        report.deleted.update(ids)
        key = f"{report.work}:{ids[0]},{ids[1]}"
    command = [sys.executable, "-m", "tests.spark.driver", str(directory), TABLE, key, str(FILES)]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def _kill_once(phase: str, directory: Path, chance: random.Random, report: Report) -> None:
    """Starts an execution and kills its Python process with SIGKILL at the phase."""
    process = _start(directory, chance, report)
    number = chance.randrange(FILES - 1)
    passed = number if report.work in BY_FILE else 0  # so many commits go through first
    seen: Counter[str] = Counter()
    lines: list[str] = []
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line)
        word = line.split(" ", 1)[0].strip()
        seen[word] += 1
        if word in ("failed", "done"):
            break
        if report.work in UPKEEP and word == ("property" if phase == "after" else "ready"):
            time.sleep(chance.uniform(0.0, 4.0) if phase == "in" else 0.0)
            _kill(process)
            break
        if phase == "before" and word == chance_of_before(number) and seen[word] > passed:
            _kill(process)
            break
        if phase == "after" and word == "committed" and seen[word] > passed:
            _kill(process)
            break
        if phase == "in" and word == "commit" and seen[word] > passed:
            _kill_in_commit(process, directory, chance)
            break
    process.stdout.close()
    killed = process.wait() == -signal.SIGKILL
    if killed or (phase == "in" and report.work in UPKEEP):  # it may have ended before
        report.kills[phase] += 1
    else:
        report.problems.append(f"ended before it was killed: {''.join(lines)[-2000:]}")


def chance_of_before(passed: int) -> str:
    """The line that a kill before a commit waits for: while reading, or when verified."""
    return "start" if passed % 2 else "verified"


def _kill_in_commit(process: subprocess.Popen[str], directory: Path, chance: random.Random) -> None:
    """Half of the time under a held catalog lock, else at a random moment of the commit."""
    if chance.random() < 0.5:
        with _locked(directory):
            time.sleep(chance.uniform(0.1, 1.5))
            _kill(process)
            time.sleep(chance.uniform(0.0, 0.3))
    else:
        time.sleep(chance.uniform(0.0, 0.4))
        _kill(process)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Holds the catalog's write lock: commits wait, reads pass."""
    db = sqlite3.connect(directory / "catalog.db", timeout=30, isolation_level=None)
    try:
        db.execute("BEGIN IMMEDIATE")
        yield
        db.execute("ROLLBACK")
    finally:
        db.close()


def _kill(process: subprocess.Popen[str]) -> None:
    os.kill(process.pid, signal.SIGKILL)


def _run_to_the_end(directory: Path, chance: random.Random, report: Report) -> None:
    process = _start(directory, chance, report)
    output, _ = process.communicate()
    done = any(line.startswith("done") for line in output.splitlines())
    if process.returncode != 0 or not done:
        report.problems.append(f"the last run did not converge: {output[-2000:]}")


def _ids(catalog: Any) -> list[int]:
    """By DuckDB: pyiceberg reads no equality deletes."""
    location = catalog.load_table(f"jobs.{TABLE}").metadata_location.removeprefix("file://")
    query = f"SELECT id FROM iceberg_scan('{location}') ORDER BY id"
    with witness.connect() as connection:
        return [row[0] for row in connection.execute(query).fetchall()]


def _check_rows(
    catalog: Any, appender: Appender, report: Report, when: str, exact: bool = False
) -> None:
    """Every appended row once; while the appender runs, its newest rows may be there already."""
    known = [i for i in range(appender.next_id) if i not in report.deleted]
    ids = _ids(catalog)
    if ids[: len(known)] != known or len(set(ids)) != len(ids):
        report.problems.append(f"rows lost, doubled or back {when}")
    if exact and len(ids) != len(known):
        report.problems.append(f"{len(ids)} rows {when}, {len(known)} are to be live")


def _check_leftovers(catalog: Any, directory: Path, report: Report) -> None:
    table = catalog.load_table(f"jobs.{TABLE}")
    referenced = {
        snapshot.manifest_list.rpartition("/")[2] for snapshot in table.metadata.snapshots
    }
    for snapshot in table.metadata.snapshots:
        for manifest in snapshot.manifests(table.io):
            entries = manifest.fetch_manifest_entry(table.io)
            paths = [manifest.manifest_path, *(e.data_file.file_path for e in entries)]
            referenced |= {path.rpartition("/")[2] for path in paths}
    patterns = ["layout-*/**/*.parquet", "data/orphan-*", "metadata/*.avro"]
    if report.work == EXPIRE:  # what a kill after its commit leaves is the next search's
        patterns.pop()
    on_disk = [
        path
        for pattern in patterns
        for path in (directory / "warehouse").rglob(pattern)
        if path.name not in referenced
    ]
    if on_disk:
        report.problems.append(f"{len(on_disk)} files left behind, e.g. {on_disk[0].name}")
    if FileLedger(directory / "ledger.db").open_intents(str(table.metadata.table_uuid)):
        report.problems.append("attempts are still open in the ledger")
    report.commits = sum(
        1
        for snapshot in table.metadata.snapshots
        if snapshot.summary and snapshot.summary.get("layout.attempt-id")
    )


def write(report: Report, kills: int, seconds: float) -> str:
    rows = [("what", "goal", "found")]
    rows += [
        (f"kill -9 {phase} a commit", "at least 3", str(report.kills[phase])) for phase in PHASES
    ]
    rows += [
        ("commits of ours", "-", str(report.commits)),
        ("appends of the other writer", "-", str(report.appends)),
        ("rows lost, doubled or changed; runs that did not resume; files left", "0",
         str(len(report.problems))),
        ("time", "-", f"{seconds:.0f} s"),
    ]  # fmt: skip
    note = "A commit is held by the catalog's lock for the kills in it; the others fall at progress"
    note += " lines and at random moments around the sending."
    command = f"python -m bench.faults --kills {kills} --work {report.work}"
    return write_section(WORKS[report.work], command, rows, note)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--work", choices=WORKS, default=RECLUSTER)
    arguments = parser.parse_args()
    kills = [PHASES[i % 3] for i in range(arguments.kills)]
    with tempfile.TemporaryDirectory(prefix="layout-faults-") as directory:
        started = time.monotonic()
        report = run(kills, Path(directory), arguments.seed, work=arguments.work)
    for problem in report.problems:
        print(problem)
    print(write(report, arguments.kills, time.monotonic() - started))
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
