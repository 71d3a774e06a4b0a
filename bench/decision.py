"""One decision at full size, WAIR's protocol replayed at small scale, and adversarial shifts.

    python -m bench.decision [speed|protocol|shifts]...

The protocol is that of WAIR (section 6.2.1) on lineitem's dates in miniature: 72 monthly batches,
six periods, a pool of two, costs in bytes of reading with the given rho. Replays count what
queries read plus rho times what was rewritten, against a table that nobody touches.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bench.results import write_section
from reconciler.advisor.advice import DAY_MS, AdviceInput, Settings
from reconciler.advisor.decide import decide
from reconciler.advisor.policies.baseline import do_nothing, sort_everything
from reconciler.advisor.policies.literal_wair import literal_wair
from reconciler.advisor.policies.ours import ours
from reconciler.advisor.simulate.replay import Policy, Replay, Step, replay
from reconciler.advisor.simulate.table import SimulatedTable, empty_table
from reconciler.plan.actions.base import Action
from reconciler.queries.fragments import Fragment, Workload, batch_fragments
from reconciler.queries.predicate import And, Comparison, Ref
from reconciler.queries.rewrite_cost import Rho
from reconciler.table.schema import Field, Schema

ORDER, SHIP, COMMIT, PART, PRICE = 1, 2, 3, 4, 5
SCHEMA = Schema(
    1,
    (
        Field(ORDER, "l_orderkey", "long"),
        Field(SHIP, "l_shipdate", "date"),
        Field(COMMIT, "l_commitdate", "date"),
        Field(PART, "l_partkey", "long"),
        Field(PRICE, "l_extendedprice", "double"),
    ),
)
COLUMNS = (ORDER, SHIP, COMMIT, PART)
ROW_BYTES = 32
BETWEEN = {
    column: And((Comparison(Ref(column), ">=", 0), Comparison(Ref(column), "<=", 1)))
    for column in COLUMNS
}


def query(position: int, column: int, low: int, width: int, at_ms: int, weight: float) -> Fragment:
    return Fragment(
        source="bench", position=position, table_uuid="t", predicate=BETWEEN[column],
        literals=(low, low + width), moving=(None, None), projection=(column, PRICE),
        weight=weight, event_ms=at_ms, engine="bench",
    )  # fmt: skip


# One decision at full size.


def speed() -> None:
    files, queries = 100_000, 1_000
    random = np.random.default_rng(0)
    per_file = 20
    count = files * per_file
    order = np.arange(count)
    table = empty_table(SCHEMA).append(
        {
            ORDER: order,
            SHIP: order * 2_400 // count + random.integers(0, 300, count),
            COMMIT: order * 2_400 // count + random.integers(30, 90, count),
            PART: random.integers(0, 200_000, count),
            PRICE: random.random(count),
        },
        per_file, 0, per_file,
    )  # fmt: skip
    scale = 50_000
    small = table.file_table()
    metadata = replace(
        small,
        records=small.records * scale,
        bytes=small.bytes * scale,
        column_sizes={key: sizes * scale for key, sizes in small.column_sizes.items()},
    )
    mix = [(SHIP, 30, 2_400), (PART, 1_000, 200_000), (COMMIT, 7, 2_400), (ORDER, 100, count)]
    log = [
        query(i, column, int(random.integers(0, domain)), width, i * DAY_MS // 100, 1.0)
        for i in range(queries)
        for column, width, domain in [mix[i % len(mix)]]
    ]
    work = batch_fragments(log)
    settings = Settings(now_ms=11 * DAY_MS, target_bytes=64 << 20)
    rows = [["decision over 100,000 files x 1,000 queries", "CPU s", "wall s", "actions"]]
    bare = AdviceInput(metadata, work, settings)
    rows.append(timed("from bounds: which files to sketch", bare))
    sample = table.sample(decide(bare).wanted_sketches, 1_024)
    rows.append(timed("with the sample: what-ifs, bootstrap", replace(bare, sample=sample)))
    print(write_section("One decision", "python -m bench.decision speed", rows, "Goal: 1 s."))


def timed(name: str, given: AdviceInput) -> list[str]:
    wall, cpu = time.perf_counter(), time.process_time()
    advice = decide(given)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return [name, f"{cpu:.2f}", f"{wall:.2f}", str(len(advice.actions))]


# WAIR's protocol.


MONTHS, PERIOD, MONTH_DAYS = 72, 12, 30
ROWS_PER_MONTH, FILES_PER_MONTH, QUERIES = 2_400, 12, 16
PROJECTED = 12 / ROW_BYTES
BATCH_MS = 2 * DAY_MS
"""The protocol has no clock: rates and horizon see a batch as this long."""

SHIFT_RATE = {1: 0.25, 2: 0.25, 3: 0.75, 4: 0.75, 5: 0.75}


@dataclass(frozen=True)
class Template:
    """A query that is repeated from batch to batch until it is regenerated."""

    column: int
    low: int


def protocol_steps(seed: int) -> list[Step]:
    """72 batches: a month of rows, then 8 global and 8 local ranges of two months."""
    random = np.random.default_rng(seed)
    mix: list[Template] = []
    steps = []
    for month in range(MONTHS):
        period = month // PERIOD
        rate = SHIFT_RATE.get(period, 1.0) if mix else 1.0
        for slot in range(QUERIES):
            fresh = slot >= len(mix) or month % PERIOD == 0 or random.random() < rate
            if fresh:
                template = _template(random, month, period, slot)
                mix = [*mix[:slot], template, *mix[slot + 1 :]]
        at = month * BATCH_MS
        queries = tuple(
            query(month * 100 + i, t.column, t.low, 2 * MONTH_DAYS, at + i * 60_000, 1.0)
            for i, t in enumerate(mix)
        )
        steps.append(Step(_month(random, month), ROWS_PER_MONTH // FILES_PER_MONTH, queries,
                          at + BATCH_MS // 2))  # fmt: skip
    return steps


def _template(random: np.random.Generator, month: int, period: int, slot: int) -> Template:
    column = {4: COMMIT, 5: COMMIT if slot % 3 == 2 else SHIP}.get(period, SHIP)
    if slot < QUERIES // 2:
        low = int(random.integers(0, (month + 1) * MONTH_DAYS))
    else:
        back = min(int(random.zipf(2.0)) - 1, month)
        low = (month - back) * MONTH_DAYS
    return Template(column, low)


def _month(random: np.random.Generator, month: int) -> dict[int, np.ndarray]:
    """Rows in order-date order; ship dates up to 1,000 days later, commit dates 30 to 90."""
    ordered = month * MONTH_DAYS + np.sort(random.integers(0, MONTH_DAYS, ROWS_PER_MONTH))
    return {
        ORDER: np.arange(month * ROWS_PER_MONTH, (month + 1) * ROWS_PER_MONTH),
        SHIP: ordered + random.integers(1, 1_001, ROWS_PER_MONTH),
        COMMIT: ordered + random.integers(30, 91, ROWS_PER_MONTH),
        PART: random.integers(0, 200_000, ROWS_PER_MONTH),
        PRICE: random.random(ROWS_PER_MONTH),
    }


def in_pool(policy: Policy) -> Policy:
    """Reclustering starts with the third period."""

    def guarded(table: SimulatedTable, work: Workload, settings: Settings) -> Sequence[Action]:
        if settings.now_ms < 2 * PERIOD * BATCH_MS:
            return ()
        return policy(table, work, settings)

    return guarded


def protocol_settings(rho: float) -> Settings:
    size = ROW_BYTES * ROWS_PER_MONTH // FILES_PER_MONTH
    return Settings(
        target_bytes=size, row_group_bytes=size, open_bytes=0,
        rho=Rho(rho, "measured"),
    )  # fmt: skip


def protocol() -> None:
    policies: list[tuple[str, Policy]] = [
        ("no reclustering", do_nothing),
        ("everything sorted by ship date after each batch", in_pool(sort_everything(SHIP))),
        ("literal WAIR, W 16, k_max 128", in_pool(literal_wair(COLUMNS, 16, 128))),
        ("ours", in_pool(ours)),
    ]
    head = ["policy", "total", "P3", "P4", "P5", "P6", "rewriting"]
    rows = [head]
    priced = protocol_settings(3.0 * PROJECTED)
    for name, policy in policies:
        runs = [
            replay(empty_table(SCHEMA), protocol_steps(seed), policy, priced) for seed in (1, 2, 3)
        ]
        rows.append([name, *_periods(runs)])
    note = (
        "Cost from P3 on relative to no reclustering, mean of three seeds; rewriting a file costs "
        "three reads of it, a batch counts as two days. The oracle is not replayed here."
    )
    print(write_section("WAIR protocol", "python -m bench.decision protocol", rows, note))


def _periods(runs: Sequence[Replay]) -> list[str]:
    def ratio(of: Callable[[Replay], np.ndarray], first: int, last: int) -> float:
        part = slice(first * PERIOD, last * PERIOD)
        return float(np.mean([of(r)[part].sum() / r.untouched[part].sum() for r in runs]))

    def total(run: Replay) -> np.ndarray:
        return run.read + run.rewritten

    spans = [(2, 6), (2, 3), (3, 4), (4, 5), (5, 6)]
    return [f"{ratio(total, *span):.3f}" for span in spans] + [
        f"{ratio(lambda run: run.rewritten, 2, 6):.3f}"
    ]


# Adversarial shifts.


def shift_steps(seed: int, days: int, period: int, weight: float) -> list[Step]:
    """The filtered column changes every `period` days among three, while rows keep arriving."""
    random = np.random.default_rng(seed)
    steps = []
    for day in range(days):
        column, width = ((SHIP, 10), (PART, 400), (ORDER, 400))[day // period % 3]
        rows = (day + 24) * 800
        domain = {SHIP: rows // 80 + 1_000, PART: 200_000, ORDER: rows}[column]
        queries = tuple(
            query(day * 100 + i, column, int(random.integers(0, domain)), width,
                  day * DAY_MS + i * 60_000, weight)
            for i in range(20)
        )  # fmt: skip
        arrived = _arrived(random, day + 23, 800)
        steps.append(Step(arrived, 800, queries, day * DAY_MS + DAY_MS // 2))
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
    settings = replace(
        protocol_settings(4.0), target_bytes=ROW_BYTES * 800, row_group_bytes=ROW_BYTES * 800,
        open_bytes=800,
    )  # fmt: skip
    rows = [["days between shifts", "executions of a query a day", "cost / doing nothing",
             "of it rewriting", "rewrites"]]  # fmt: skip
    for period in (1, 4, 8, 16):
        for weight in (0.1, 1.0):
            start = empty_table(SCHEMA)
            for batch in range(23):
                start = start.append(
                    _arrived(np.random.default_rng(batch), batch, 800), 800, 0, 800
                )
            run = replay(start, shift_steps(1, 96, period, weight), ours, settings)
            rows.append([
                str(period), f"{weight:g}", f"{run.ratio:.3f}",
                f"{run.rewritten.sum() / run.untouched.sum():.3f}",
                str(int((run.rewritten > 0).sum())),
            ])  # fmt: skip
    note = "96 days, 20 queries a day of one column, the next of three columns after each shift."
    print(write_section("Adversarial shifts", "python -m bench.decision shifts", rows, note))


PARTS = {"speed": speed, "protocol": protocol, "shifts": shifts}


if __name__ == "__main__":
    for part in sys.argv[1:] or list(PARTS):
        PARTS[part]()
