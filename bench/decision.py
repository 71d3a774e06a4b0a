"""One decision at full size, shifts, betrayal and steady ingest.

    python -m bench.decision [shifts|betrayal|ingest|seconds|speed --before DIR]...

Replays count what queries read plus rho times what was rewritten, against a table that nobody
touches. The protocol of the paper on WAIR is `bench.wair`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from bench.replay.lineitem import (
    COMMIT,
    ORDER,
    PART,
    PRICE,
    ROW_BYTES,
    SCHEMA,
    SHIP,
    query,
)
from bench.replay.table import SimulatedTable, arriving, empty_table
from bench.results import write_section
from reconciler.advisor.advice import EARLY_SHARE, AdviceInput, Settings
from reconciler.advisor.decide import decide
from reconciler.queries.fragments import Fragment, workload_of_fragments
from reconciler.queries.rewrite_cost import Rho
from reconciler.replay.policies.fixed import sort_everything
from reconciler.replay.policies.ours import ours
from reconciler.replay.run import Replay, Step, replay
from reconciler.table.times import DAY_MS
from tests.advisor.worlds import claiming

# One decision at full size.


TURNS = 3
"""Times that the decisions are measured, old and new code in turns; the least is shown."""


def many_files(random: np.random.Generator, files: int, per_file: int) -> SimulatedTable:
    """Files in order of ORDER, nearly in order of the dates, and scattered by PART."""
    count = files * per_file
    order = np.arange(count)
    return empty_table(SCHEMA).append(
        {
            ORDER: order,
            SHIP: order * 2_400 // count + random.integers(0, 300, count),
            COMMIT: order * 2_400 // count + random.integers(30, 90, count),
            PART: random.integers(0, 200_000, count),
            PRICE: random.random(count),
        },
        per_file, 0, per_file,
    )  # fmt: skip


def decisions() -> list[tuple[str, AdviceInput]]:
    """Return the decisions that are measured, each from an input of its own."""
    files, queries, per_file = 100_000, 1_000, 20
    random = np.random.default_rng(0)
    table, count = many_files(random, files, per_file), files * per_file
    scale = 50_000
    small = table.file_table()
    mix = [(SHIP, 30, 2_400), (PART, 1_000, 200_000), (COMMIT, 7, 2_400), (ORDER, 100, count)]
    log = [
        query(i, column, int(random.integers(0, domain)), width, i * DAY_MS // 100, 1.0)
        for i in range(queries)
        for column, width, domain in [mix[i % len(mix)]]
    ]
    often = [replace(one, weight=10.0) for n, one in enumerate(log) if n % len(mix) < 3]
    settings = Settings(now_ms=11 * DAY_MS, target_bytes=64 << 20)
    auto = replace(settings, target_auto=True, row_group_auto=True)

    def given(chosen: Settings, asked: Sequence[Fragment] = log) -> AdviceInput:
        """The input, without anything that an earlier decision derived from it."""
        return AdviceInput(claiming(small, scale), workload_of_fragments(asked), chosen)

    sample = table.sample(decide(given(settings)).wanted_sketches, 1_024)
    return [
        ("from bounds: which files to sketch", given(settings)),
        ("with the sample: what-ifs, bootstrap", replace(given(settings), sample=sample)),
        ("likewise, both sizes Auto", replace(given(auto), sample=sample)),
        ("three filtered columns, asked ten times as often: with a tree",
         replace(given(settings, often), sample=sample)),
    ]  # fmt: skip


def seconds() -> None:
    """Print the CPU seconds of each decision by its name, as JSON."""
    found = {}
    for name, given in decisions():
        cpu = time.process_time()
        decide(given)
        found[name] = time.process_time() - cpu
    print(json.dumps(found))


def speed(before: Path) -> None:
    """Compare the decisions of two checkouts, measured by this file. before: the older one."""
    checkouts = before, Path(__file__).parents[1]
    found: list[list[dict[str, float]]] = [[], []]
    for _ in range(TURNS):
        for runs, checkout in zip(found, checkouts, strict=True):
            # -P: what is imported is that of the checkout, not what lies beside this file.
            done = subprocess.run(
                [sys.executable, "-P", __file__, "seconds"], cwd=checkout, check=True,
                capture_output=True, text=True,
                env={**os.environ, "PYTHONPATH": str(checkout), "OPENBLAS_NUM_THREADS": "1"},
            )  # fmt: skip
            runs.append(json.loads(done.stdout))
    rows = [["decision over 100,000 files x 1,000 queries", "before, CPU s", "after, CPU s",
             "ratio"]]  # fmt: skip
    for name in found[0][0]:
        old, new = (min(run[name] for run in runs) for runs in found)
        rows.append([name, f"{old:.2f}", f"{new:.2f}", f"{new / old:.2f}"])
    note = f"Old and new code in turns, least of {TURNS}, one BLAS thread. Goal: 1.0 CPU s."
    command = "python -m bench.decision speed --before DIR"
    print(write_section("One decision, before and after", command, rows, note))


# Adversarial shifts.


def shift_steps(seed: int, days: int, period: int, weight: float) -> list[Step]:
    """The filtered column changes every `period` days among three, while rows keep arriving."""
    random = np.random.default_rng(seed)
    steps = []
    for day in range(days):
        column, width = ((SHIP, 10), (PART, 400), (ORDER, 400))[day // period % 3]
        rows = (day + 24) * 800
        domain = {SHIP: rows // 80 + 1_000, PART: 200_000, ORDER: rows}[column]
        queries = workload_of_fragments(
            query(day * 100 + i, column, int(random.integers(0, domain)), width,
                  day * DAY_MS + i * 60_000, weight)
            for i in range(20)
        ).shapes  # fmt: skip
        arrived = _arrived(random, day + 23, 800)
        steps.append(arriving(arrived, 800, queries, day * DAY_MS + DAY_MS // 2))
    return steps


def _arrived(random: np.random.Generator, batch: int, rows: int) -> dict[int, np.ndarray]:
    order = np.arange(batch * rows, (batch + 1) * rows)
    return {
        ORDER: order,
        SHIP: order // 80 + random.integers(0, 1_000, rows),
        COMMIT: order // 80 + random.integers(30, 91, rows),
        PART: random.integers(0, 200_000, rows),
        PRICE: random.random(rows),
    }


def shifts() -> None:
    settings = replace(daily_settings(), early_share=EARLY_SHARE)
    rows = [["days between shifts", "executions of a query a day", "cost / doing nothing",
             "worst on the way", "of it rewriting", "rewrites"]]  # fmt: skip
    for period in (1, 4, 8, 16):
        for weight in (0.1, 1.0):
            run = replay(grown(23), shift_steps(1, 96, period, weight), ours, settings)
            rows.append([
                str(period), f"{weight:g}", f"{run.ratio:.3f}", f"{worst_on_the_way(run):.3f}",
                f"{run.rewritten.sum() / run.untouched.sum():.3f}",
                str(int((run.rewritten > 0).sum())),
            ])  # fmt: skip
    note = (
        "96 days, 20 queries a day of one column, the next of three columns after each shift; "
        "plans run unattended. Worst on the way: greatest cost so far / doing nothing so far, from "
        "day 4 on. Goals: 1.10 on the way, 1.02 at the end."
    )
    print(write_section("Adversarial shifts", "python -m bench.decision shifts", rows, note))


def daily_settings() -> Settings:
    size = ROW_BYTES * 800
    return Settings(
        target_bytes=size, row_group_bytes=size, open_bytes=800, rho=Rho(4.0, "measured")
    )


def grown(batches: int) -> SimulatedTable:
    """A table in order of arrival, a file a day."""
    table = empty_table(SCHEMA)
    for batch in range(batches):
        table = table.append(_arrived(np.random.default_rng(batch), batch, 800), 800, 0, 800)
    return table


def worst_on_the_way(run: Replay, first: int = 4) -> float:
    so_far = np.cumsum(run.read + run.rewritten) / np.maximum(np.cumsum(run.untouched), 1.0)
    return float(so_far[first - 1 :].max())


# Betrayal: the queries go to another column, and come back.


def betrayal_steps(seed: int, days: Sequence[tuple[int, int]], each: int = 20) -> list[Step]:
    """(column, days) one after the other, `each` queries a day; no rows arrive."""
    random, steps, day = np.random.default_rng(seed), list[Step](), 0
    for column, count in days:
        width, domain = {PART: (400, 200_000), ORDER: (400, 24 * 800)}[column]
        for _ in range(count):
            queries = workload_of_fragments(
                query(day * 100 + i, column, int(random.integers(0, domain)), width,
                      day * DAY_MS + i * 60_000, 1.0)
                for i in range(each)
            ).shapes  # fmt: skip
            steps.append(arriving(None, 0, queries, day * DAY_MS + DAY_MS // 2))
            day += 1
    return steps


def betrayal() -> None:
    """History on a column that scatters, then on the one that rows arrive in, and back."""
    rows = [["days of history", "plans", "cost so far when the log shows it", "its day alone, cost",
             "back after one import: read / served before", "all days"]]  # fmt: skip
    for days in (7, 14, 28):
        steps = betrayal_steps(1, ((PART, days), (ORDER, 4), (PART, 4)))
        for name, share in (("approved", None), ("unattended", EARLY_SHARE)):
            run = replay(grown(24), steps, ours, replace(daily_settings(), early_share=share))
            so_far = (run.read + run.rewritten).cumsum() / run.untouched.cumsum()
            served = run.read[days - 1] / run.untouched[days - 1]
            back = run.read[days + 5] / run.untouched[days + 5]
            rows.append([
                str(days), name, f"{so_far[days]:.3f}",
                f"{run.read[days] / run.untouched[days]:.2f}", f"{back / served:.2f}",
                f"{run.ratio:.3f}",
            ])  # fmt: skip
    note = (
        "20 queries a day on a column that every file has all values of, 4 days on the column of "
        "arrival, 4 days back; a decision a day. Goal: at most 1.10 of doing nothing until the log "
        "shows the change, and the layout follows within one import."
    )
    print(write_section("Betrayal", "python -m bench.decision betrayal", rows, note))


# Steady ingest.


def ingest_steps(seed: int, batches: int, queries: int) -> list[Step]:
    """A file a day, and as many queries of one scattered column each day."""
    random = np.random.default_rng(seed)
    return [
        arriving(
            _arrived(random, batch, 800), 800,
            workload_of_fragments(
                query(batch * 1_000 + i, PART, int(random.integers(0, 199_600)), 400,
                      batch * DAY_MS + i * 60_000, 1.0)
                for i in range(queries)
            ).shapes,
            batch * DAY_MS + DAY_MS // 2,
        )
        for batch in range(batches)
    ]  # fmt: skip


def ingest() -> None:
    batches, rows = 60, [["queries a day", "plans", "bytes rewritten / ingested",
                          "cost / sorting everything", "cost / doing nothing"]]  # fmt: skip
    for queries in (5, 20, 80):
        steps = ingest_steps(1, batches, queries)
        whole = replay(empty_table(SCHEMA), steps, sort_everything(PART), daily_settings())
        least = float(whole.read.sum() + whole.rewritten.sum())
        for name, share in (("approved", None), ("unattended", EARLY_SHARE)):
            settings = replace(daily_settings(), early_share=share)
            run = replay(empty_table(SCHEMA), steps, ours, settings)
            ingested = settings.rho.value * batches * 800 * ROW_BYTES
            cost = float(run.read.sum() + run.rewritten.sum())
            rows.append([str(queries), name, f"{run.rewritten.sum() / ingested:.2f}",
                         f"{cost / least:.2f}", f"{run.ratio:.3f}"])  # fmt: skip
    note = (
        "60 batches of a file each, a decision after each; sorting everything is done after each. "
        "Goals: 2.0 bytes rewritten per byte ingested, 1.4 of the cost of sorting everything."
    )
    print(write_section("Steady ingest", "python -m bench.decision ingest", rows, note))


PARTS = {
    "seconds": seconds, "shifts": shifts, "betrayal": betrayal, "ingest": ingest,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["shifts", "betrayal", "ingest"])
    parser.add_argument("--before", type=Path, help="an older checkout, for speed")
    given = parser.parse_args()
    if "speed" in given.parts and given.before is None:
        parser.error("speed compares with another checkout: give --before DIR")
    for part in given.parts:
        if part == "speed":
            speed(given.before.resolve())
        else:
            PARTS[part]()


if __name__ == "__main__":
    main()
