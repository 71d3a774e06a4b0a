"""Tables under a DELETE every five seconds, maintained by plans: the delete load stays bounded.

`python -m bench.soak_deletes [SECONDS]` has a writer of its own delete 20 rows from each table
every five seconds, for SECONDS (600), while plans of the default policy are made and applied every
ten. Exits 1 if a row is lost or back, if the delete files of a data file pile up, or if more than
one in a hundred of the writers' commits failed because of ours. bench/RESULTS.md.
"""

from __future__ import annotations

import random
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.busy_deletes import is_conflict
from bench.results import write_section
from reconciler.errors import StalePlanError
from reconciler.loop.step import run_step
from reconciler.spark.session import session
from tests.flink.maintained import ALL, Maintained
from tests.spark.tables import Bench

SECONDS = 600
EVERY_SECONDS = 5.0
PLAN_SECONDS = 10.0
ROWS = 40_000
DELETED = 20
BOUND = 12
"""Most delete files of one data file that count as bounded: the policy compacts five, and two more
commits may come while that is planned, written and committed."""
FAILED_SHARE = 0.01


@dataclass(frozen=True)
class Case:
    title: str
    version: int
    granularity: str


CASES = (
    Case("format 2, per partition", 2, "partition"),
    Case("format 2, per file", 2, "file"),
    Case("format 3, vectors", 3, "file"),
)


@dataclass
class Soak:
    """One table with its writer. refused: commits of the writer that failed and were sent again;
    load: the most delete files of one data file, after each of our rounds."""

    bench: Bench
    case: Case
    root: Path
    commits: int = 0
    refused: int = 0
    load: list[int] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.name = self.bench.create(
            "id bigint, n bigint",
            f"'format-version'='{self.case.version}', 'write.delete.mode'='merge-on-read', "
            f"'write.delete.granularity'='{self.case.granularity}'",
            "bucket(2, id)",
        )
        self.full = self.bench.full(self.name)
        self.bench.sql(f"INSERT INTO {self.full} SELECT id, id FROM range({ROWS})")
        self.live = set(range(ROWS))
        self.held = Maintained(self.bench, self.name, self.root / self.name)

    def write(self, until: float) -> None:
        chance = random.Random(self.case.title)
        while time.monotonic() < until:
            started = time.monotonic()
            gone = chance.sample(sorted(self.live), DELETED)
            while True:
                try:
                    self.bench.sql(
                        f"DELETE FROM {self.full} WHERE id IN ({', '.join(map(str, gone))})"
                    )
                    break
                except Exception as error:
                    if not is_conflict(error):
                        self.errors.append(str(error)[:500])
                        return
                    self.refused += 1
            self.live.difference_update(gone)
            self.commits += 1
            time.sleep(max(0.0, EVERY_SECONDS - (time.monotonic() - started)))

    def maintain(self, until: float) -> None:
        while time.monotonic() < until:
            started = time.monotonic()
            try:
                step = run_step(
                    self.held.step(), self.held.actor, ALL, lambda event: None, lambda: False
                )
                self.held.note(step)
            except StalePlanError:
                self.held.stale += 1
            self.load.append(self._load())
            time.sleep(max(0.0, PLAN_SECONDS - (time.monotonic() - started)))

    def _load(self) -> int:
        """Delete files of a data file, as the reader applies them: of its partition, or of it."""
        rows = self.bench.sql(
            f"SELECT count(*) AS files FROM {self.full}.delete_files "
            "GROUP BY partition, referenced_data_file"
        )
        return max((row.files for row in rows), default=0)

    def problems(self) -> list[str]:
        found = list(self.errors)
        if set(self.held.rows()) != self.live:
            found.append("rows are not those of the writer")
        if self.refused > FAILED_SHARE * self.commits:
            found.append(f"{self.refused} of {self.commits} commits of the writer failed first")
        if max(self.load) > BOUND:
            found.append(f"{max(self.load)} delete files for one data file")
        return found


def play(bench: Bench, root: Path, cases: Sequence[Case], seconds: float) -> list[Soak]:
    """All tables at once."""
    soaks = [Soak(bench, case, root) for case in cases]
    until = time.monotonic() + seconds
    threads = [
        threading.Thread(target=act, args=(until,)) for soak in soaks
        for act in (soak.write, soak.maintain)
    ]  # fmt: skip
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return soaks


def main(arguments: list[str]) -> int:
    from bench.flink_upserts import start

    seconds = int(arguments[0]) if arguments else SECONDS
    with tempfile.TemporaryDirectory() as path:
        spark, bench = start(Path(path))
        soaks = play(bench, Path(path), CASES, seconds)
        problems = [soak.problems() for soak in soaks]
        head = ("table", "commits of the writer", "sent again", "rounds of ours", "conflicts",
                "delete files of a data file, median and most", "held")  # fmt: skip
        rows = [
            (
                soak.case.title, str(soak.commits), str(soak.refused),
                ", ".join(f"{n} {kind}" for kind, n in sorted(soak.held.kinds.items())) or "0",
                str(soak.held.conflicts),
                f"{sorted(soak.load)[len(soak.load) // 2]}, {max(soak.load)}",
                "; ".join(found) or "ok",
            )
            for soak, found in zip(soaks, problems, strict=True)
        ]  # fmt: skip
        session.stop(spark)
    notes = (
        f"A DELETE of {DELETED} rows every {EVERY_SECONDS:g} s, each table with a writer of its "
        f"own, for {seconds} s; a plan of the default policy every {PLAN_SECONDS:g} s. Held: the "
        f"rows are the writer's, at most {BOUND} delete files for a data file, at most 1 % of the "
        "writer's commits sent again."
    )
    command = f"python -m bench.soak_deletes {seconds}"
    print(write_section("Deletes every five seconds", command, [head, *rows], notes))
    return 1 if any(problems) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
