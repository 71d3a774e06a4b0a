"""A thousand commits of other writers beside maintenance of deletes: each is kept.

`python -m bench.busy_deletes [COMMITS]` runs three writers side by side, half of the commits on a
table of format 2 and half on one of format 3: one appends, one deletes by position and updates with
copy-on-write, one deletes by equality. Meanwhile every kind of maintenance and rewriting runs in
turn, on whatever the table holds. Each writer deletes and updates only its own rows, so that what
must be live is known without asking Iceberg. bench/RESULTS.md; the suite has a short form
(tests/spark/test_busy_writers.py).
"""

from __future__ import annotations

import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException

from bench.results import write_section
from reconciler.demo import witness
from reconciler.errors import StalePlanError
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.delete_maintenance import (
    CompactDeletes,
    ConvertDeletes,
    RemoveDanglingDeletes,
)
from reconciler.plan.actions.rewrite import ApplyDeletes, BinPack
from reconciler.spark.session import session
from tests.conftest import sqlite_catalog, sqlite_spark_conf
from tests.spark.equality import add_equality_delete, delete_paths
from tests.spark.tables import Bench

COMMITS = 1_000
FIRST = 3_000
"""Rows at the start, a third for each writer: id % 3 says whose."""
APPENDER, POSITIONS, EQUALITY = 0, 1, 2
SHARES = (4, 2, 4)
"""Tenths of the commits, by writer: one by Spark takes ten times as long as the others."""
PAUSE_SECONDS = 0.25


@dataclass
class Report:
    """refused: commits of a writer that failed first and were sent again, by writer."""

    version: int
    commits: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    rounds: Counter[str] = field(default_factory=Counter)
    conflicts: int = 0
    ours: int = 0
    read_bytes: int = 0
    wasted_bytes: int = 0
    problems: list[str] = field(default_factory=list)


class Busy:
    """One table, its writers, and what they know to be live: v by id."""

    def __init__(self, bench: Bench, version: int, commits: int, report: Report) -> None:
        self.bench, self.commits, self.report = bench, commits, report
        self.name = bench.create(
            "id bigint, v bigint",
            f"'format-version'='{version}', 'write.delete.mode'='merge-on-read', "
            "'write.delete.granularity'='partition', 'write.update.mode'='copy-on-write', "
            "'commit.retry.num-retries'='20'",
        )
        self.full = bench.full(self.name)
        bench.sql(f"INSERT INTO {self.full} SELECT id, 0 FROM range(0, {FIRST}, 1, 6)")
        self.live = [dict.fromkeys(range(owner, FIRST, 3), 0) for owner in range(3)]
        self.next_id = 300_000
        self.catalog: Any = SqlCatalog(bench.config.name, **dict(bench.config.properties))
        self.version = version

    def write(self, owner: int) -> None:
        chance = random.Random(owner)
        acts: tuple[tuple[Callable[[random.Random], None], str], ...] = {
            APPENDER: ((self.append, "append"),),
            POSITIONS: ((self.delete, "position delete" if self.version == 2 else "vector"),
                        (self.update, "copy-on-write update")),
            EQUALITY: ((self.delete_by_key, "equality delete"),),
        }[owner]  # fmt: skip
        for _ in range(SHARES[owner] * self.commits // 10):
            act, title = acts[chance.random() < 0.3 and len(acts) > 1]
            while True:
                try:
                    act(chance)
                    break
                except Exception as error:
                    if not is_conflict(error):
                        self.report.problems.append(f"{title}: {error}"[:500])
                        return
                    self.report.refused[title] += 1
            self.report.commits[title] += 1
            time.sleep(PAUSE_SECONDS)

    def append(self, chance: random.Random) -> None:
        ids = [self.next_id + 3 * n for n in range(4)]
        rows = pa.table({"id": ids, "v": [0] * len(ids)})
        if self.version == 2:
            self.catalog.load_table(("jobs", self.name)).append(rows)
        else:  # pyiceberg does not write format 3
            values = ", ".join(f"({i}, 0)" for i in ids)
            self.bench.sql(f"INSERT INTO {self.full} VALUES {values}")
        self.next_id += 12
        self.live[APPENDER].update(dict.fromkeys(ids, 0))

    def delete(self, chance: random.Random) -> None:
        key = chance.choice(sorted(self.live[POSITIONS]))
        self.bench.sql(f"DELETE FROM {self.full} WHERE id = {key}")
        del self.live[POSITIONS][key]

    def update(self, chance: random.Random) -> None:
        key = chance.choice(sorted(self.live[POSITIONS]))
        self.bench.sql(f"UPDATE {self.full} SET v = v + 1 WHERE id = {key}")
        self.live[POSITIONS][key] += 1

    def delete_by_key(self, chance: random.Random) -> None:
        key = chance.choice(sorted(self.live[EQUALITY]))
        add_equality_delete(self.bench, self.name, {"id": pa.array([key], pa.int64())})
        del self.live[EQUALITY][key]

    def maintain(self, number: int) -> bool:
        """One round of one kind; False if the table holds nothing for it."""
        title, action = self._action(number)
        if action is None:
            return False
        request = self.bench.request(self.name, action, plan=f"p-{self.version}-{number}")
        try:
            result = self.bench.run(request)
        except StalePlanError:  # a writer replaced an input before the request was made
            return False
        self.report.rounds[title] += 1
        self.report.conflicts += result.conflicts
        self.report.ours += result.commits
        for outcome in result.outcomes:
            self.report.read_bytes += outcome.read_bytes
            self.report.wasted_bytes += outcome.read_bytes * (outcome.state != "committed")
        return True

    def _action(self, number: int) -> tuple[str, Action | None]:
        rows = self.bench.sql(
            f"SELECT file_path, content, file_format FROM {self.full}.delete_files"
        )
        kind = number % 5
        if kind in (0, 3):
            paths = tuple(sorted({row.file_path for row in rows if row.content == 2}))
            return "conversion", ConvertDeletes(inputs=paths) if paths else None
        if kind == 1:
            wanted = {r.file_path for r in rows if r.content == 1 and r.file_format != "PUFFIN"}
            paths = tuple(sorted(wanted))
            return "compaction", CompactDeletes(inputs=paths) if paths else None
        files = sorted(row.file_path for row in self.bench.files(self.name))
        if kind == 2:
            return "bin-pack of 30 files", BinPack(inputs=tuple(files[:30]))
        return "rewrite of 10 files without deleted rows", ApplyDeletes(inputs=tuple(files[-10:]))


def is_conflict(error: Exception) -> bool:
    """Whether the writer has to send its commit again, as an engine's job would."""
    text = f"{getattr(error, 'java_exception', '')} {error}"
    return isinstance(error, CommitFailedException) or any(
        word in text
        for word in ("ValidationException", "CommitFailedException", "SQLITE_BUSY", "is locked")
    )


def play(bench: Bench, version: int, commits: int) -> Report:
    report = Report(version)
    busy = Busy(bench, version, commits, report)
    threads = [threading.Thread(target=busy.write, args=(owner,)) for owner in range(3)]
    for thread in threads:
        thread.start()
    number = 0
    while any(thread.is_alive() for thread in threads):
        if not busy.maintain(number):
            time.sleep(0.1)
        number += 1
    for thread in threads:
        thread.join()
    for kind in range(5):
        busy.maintain(5 * number + kind)
    _check(busy)
    return report


def _check(busy: Busy) -> None:
    """Compare the rows with what the writers know, as Spark and as DuckDB read them."""
    wanted = Counter((i, v) for own in busy.live for i, v in own.items())
    report, bench = busy.report, busy.bench
    seen = {"Spark": Counter((r.id, r.v) for r in bench.sql(f"SELECT id, v FROM {busy.full}"))}
    location = str(bench.table(busy.name).operations().current().metadataFileLocation())
    with witness.connect() as connection:
        query = f"SELECT id, v FROM iceberg_scan('{location.removeprefix('file:')}')"
        seen["DuckDB"] = Counter(connection.execute(query).fetchall())
    for reader, rows in seen.items():
        if rows != wanted:
            lost, back = (wanted - rows).total(), (rows - wanted).total()
            report.problems.append(f"{reader} finds {lost} rows lost and {back} back or doubled")
    if delete_paths(bench, busy.name, 2):
        left = RemoveDanglingDeletes(inputs=delete_paths(bench, busy.name, 2))
        bench.run(bench.request(busy.name, left, plan="p-last"))
    if delete_paths(bench, busy.name, 2):
        report.problems.append("equality deletes stay that the last conversion did not replace")
    if leftovers := bench.leftovers(busy.name):
        report.problems.append(f"{len(leftovers)} files left behind")
    if sum(report.commits.values()) != busy.commits:
        report.problems.append(f"{report.commits.total()} of {busy.commits} commits were made")


def write(reports: list[Report], commits: int, seconds: float) -> str:
    head = ("what", *(f"format {one.version}" for one in reports))

    def row(title: str, value: Callable[[Report], object]) -> tuple[str, ...]:
        return (title, *(str(value(one)) for one in reports))

    rows = [head]
    for kind in sorted({kind for one in reports for kind in one.commits}):
        rows.append(row(f"commits kept, sent again: {kind}",
                        lambda one, k=kind: f"{one.commits[k]}, {one.refused[k]}"))  # fmt: skip
    for kind in sorted({kind for one in reports for kind in one.rounds}):
        rows.append(row(f"rounds of {kind}", lambda one, k=kind: one.rounds[k]))
    rows += [
        row("commits of ours", lambda one: one.ours),
        row("conflicts of ours", lambda one: one.conflicts),
        row("bytes read for nothing, %",
            lambda one: f"{100 * one.wasted_bytes / max(1, one.read_bytes):.0f}"),
        row("rows lost, back or doubled; files left; commits lost", lambda one: len(one.problems)),
    ]  # fmt: skip
    note = (
        f"{commits:,} commits by three writers at once, each on rows of its own; {seconds:.0f} s "
        "on a shared machine. Rows are compared with the writers' own books, read by Spark and by "
        "DuckDB. A commit is sent again where another commit, ours or a writer's, was first."
    )
    return write_section(
        "Commits beside maintenance of deletes", f"python -m bench.busy_deletes {commits}", rows,
        note,
    )  # fmt: skip


def main() -> int:
    commits = int(sys.argv[1]) if len(sys.argv) > 1 else COMMITS
    with tempfile.TemporaryDirectory() as path:
        directory = Path(path)
        (directory / "warehouse").mkdir()
        config = sqlite_catalog(directory)
        SqlCatalog(config.name, **dict(config.properties))
        conf = {**sqlite_spark_conf(directory), "spark.driver.memory": "2g"}
        spark = session.start(conf, app="bench", master="local[2]")
        bench = Bench(spark, config, directory / "bench")
        started = time.monotonic()
        reports = [play(bench, version, commits // 2) for version in (2, 3)]
        text = write(reports, commits, time.monotonic() - started)
        session.stop(spark)
    print(text)
    for one in reports:
        for problem in one.problems:
            print(f"format {one.version}: {problem}")
    return 1 if any(one.problems for one in reports) else 0


if __name__ == "__main__":
    sys.exit(main())
