"""How long a replay of a large table takes, and its memory.

    python -m bench.replay_scale [--files 100000] [--batches 72]

A table of many files that arrive over the batches, in order of one column and scattered by two
others; queries on all three. Footers and rows of 2,000 files are known, as `layoutctl replay` reads
them. The advisor decides after each batch.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Sequence

import numpy as np

from bench.decision import many_files
from bench.replay.lineitem import COMMIT, PART, SHIP, query
from bench.results import write_section
from reconciler.advisor.advice import Settings
from reconciler.loop.replaying import MOST_SAMPLED
from reconciler.queries.fragments import workload_of_fragments
from reconciler.replay.observed import ObservedTable
from reconciler.replay.policies.ours import ours
from reconciler.replay.run import Step, replay
from reconciler.table.joined import row_groups_at
from reconciler.table.sample import RowGroups
from reconciler.table.times import DAY_MS
from tests.advisor.worlds import claiming

PER_FILE, QUERIES = 20, 14
"""Rows of a file, each of which counts as many; queries of a batch."""


def table_of(files: int) -> ObservedTable:
    made = many_files(np.random.default_rng(0), files, PER_FILE)
    known = np.arange(min(files, MOST_SAMPLED)) * files // min(files, MOST_SAMPLED)
    groups = made.row_groups()
    part = row_groups_at(groups, known, files)
    assert part is not None
    read = np.isin(np.arange(files), known)
    groups = RowGroups(
        known[part.file], part.records, part.columns, part.column_sizes,
        np.where(read, groups.footer_bytes, -1), read,
    )  # fmt: skip
    return ObservedTable(claiming(made.file_table(), 50_000), groups, made.sample(known, PER_FILE))


def steps_of(table: ObservedTable, batches: int) -> list[Step[ObservedTable]]:
    random, steps = np.random.default_rng(1), []
    mix = [(SHIP, 30, 2_400), (PART, 1_000, 200_000), (COMMIT, 7, 2_400)]
    for batch in range(batches):
        asked = []
        for number in range(QUERIES):
            column, width, domain = mix[number % len(mix)]
            most = domain if column == PART else max(domain * (batch + 1) // batches, 1)
            at = batch * DAY_MS + number * 60_000
            low = int(random.integers(0, most))
            asked.append(query(batch * 100 + number, column, low, width, at, 1.0))
        own = table.at(
            np.arange(len(table) * batch // batches, len(table) * (batch + 1) // batches)
        )
        steps.append(
            Step(
                lambda now, new=own: now.with_files(new), workload_of_fragments(asked).shapes,
                batch * DAY_MS + DAY_MS // 2,
            )
        )  # fmt: skip
    return steps


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.replay_scale")
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--batches", type=int, default=72)
    options = parser.parse_args(arguments)
    table = table_of(options.files)
    settings = Settings(target_bytes=512 << 20)
    steps = steps_of(table, options.batches)
    wall, cpu = time.perf_counter(), time.process_time()
    found = replay(table.at(np.zeros(0, dtype=np.int64)), steps, ours, settings)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    rows = [
        ["files", "batches", "queries", "wall s", "CPU s", "peak GiB", "rewrites", "cost / none"],
        [
            f"{options.files:,}", str(options.batches), str(options.batches * QUERIES),
            f"{wall:.0f}", f"{cpu:.0f}", f"{peak:.1f}", str(int(found.actions.sum())),
            f"{found.ratio:.3f}",
        ],
    ]  # fmt: skip
    command = f"python -m bench.replay_scale --files {options.files} --batches {options.batches}"
    print(write_section("A replay of many files", command, rows, "Goal: 5 minutes, 4 GB."))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
