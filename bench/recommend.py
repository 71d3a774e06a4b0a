"""How fast candidates are labelled, and how fast cluster sizes are estimated.

    python -m bench.recommend

360 candidates (4 partitionings, 3 orderings, 30 sizes) on 600,000 sampled rows, and the 255 subsets
of 8 columns of a table of 6 million rows by each estimator: time, and error against the clusters of
the whole table. One process, two threads. Then how much more the choice of each method costs than
the best of all simulated candidates, by three seeds, in a space of 4 partitionings and 3 of the
paper's sort schemes, whose regressions train on 12 labels.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np

from bench.cluster_estimators import ESTIMATORS, sizes
from reconciler.advisor.pto.cluster_size import subsets
from reconciler.advisor.pto.methods.registry import METHODS
from reconciler.advisor.pto.objective import LOCAL
from reconciler.advisor.pto.partitionings import text_of
from reconciler.advisor.pto.recommend import RecommendInput, search_space
from reconciler.advisor.pto.space import best
from reconciler.advisor.simulate.arrangement import row_order_of
from reconciler.advisor.simulate.grid import Grid, in_any_size, simulate_sizes
from reconciler.advisor.simulate.layout import Sizes
from reconciler.advisor.simulate.pool import build_pool
from reconciler.advisor.simulate.target import target_partitions
from reconciler.plan.ordering import Hilbert, Lexicographic
from reconciler.queries.demanded import demands
from reconciler.queries.table_view import table_view
from reconciler.table.schema import PartitionField, PartitionSpec, SortColumn
from tests.advisor.worlds import (
    DATE,
    DAY,
    KEY,
    PART,
    ROW_BYTES,
    SCHEMA,
    arrived,
    claiming,
    range_workload,
    workload,
)

ROWS, FILES, CLAIMED = 600_000, 60, 100
MOST_JUDGED = 3
"""Columns of the largest subsets whose true clusters are counted."""

TRANSFORMS = ((DATE, "month"), (PART, "bucket[16]"), (DATE, "year"))


def main() -> None:
    _candidates()
    _subsets()
    _regret()


def _candidates() -> None:
    random = np.random.default_rng(1)
    table = arrived(random, ROWS, ROWS // FILES, days=2_500, jitter=300)
    work = workload(
        range_workload(random, DATE, 20, 40, 2_500),
        range_workload(random, PART, 20, 1_500, 100_000, start=100),
        range_workload(random, KEY, 10, 3_000, ROWS, start=200),
    )
    wanted = demands(work, SCHEMA, 7 * DAY)
    sample = table.sample(np.arange(FILES), ROWS // FILES)
    view = table_view(table.file_table(), table.row_groups(), sample, 1 << 20)
    pool, thin = (build_pool(view, (KEY, DATE, PART), rows) for rows in (ROWS, 8_192))
    assert pool is not None and thin is not None
    whole = ROWS * ROW_BYTES
    sizes = [
        Sizes(whole // files, whole // files // groups)
        for files in (800, 400, 200, 100, 50)
        for groups in (1, 2, 4, 6, 8, 10)
    ]
    specs = [PartitionSpec(0)] + [
        PartitionSpec(number, (PartitionField(column, 1_000, transform, "p"),))
        for number, (column, transform) in enumerate(TRANSFORMS, 1)
    ]
    columns = [SortColumn(column) for column in (DATE, PART, KEY)]
    orderings = [Lexicographic((columns[0],)), Hilbert(tuple(columns[:2])), Hilbert(tuple(columns))]
    start, cpu = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(2) as executor:
        places = list(executor.map(lambda ordering: row_order_of(pool, ordering), orderings))
        targets = list(executor.map(lambda spec: target_partitions(pool, spec), specs))

        def one(pair: tuple[int, int]) -> Grid:
            spec, order = pair
            rows = in_any_size(
                pool, specs[spec], orderings[order], thin=thin,
                simulated=(sizes[5], sizes[-6]),
                row_order=places[order], target=targets[spec],
            )  # fmt: skip
            return simulate_sizes(rows, sizes, wanted)

        pairs = [(spec, order) for spec in range(len(specs)) for order in range(len(orderings))]
        grids = list(executor.map(one, pairs))
    seconds, used = time.perf_counter() - start, time.process_time() - cpu
    most = max(float(grid.row_groups.max()) for grid in grids)
    least = min(float(grid.sampled_rows.min()) for grid in grids)
    print(f"{len(pairs) * len(sizes)} candidates, {ROWS} rows: {seconds:.1f} s, {used:.1f} CPU s")
    print(f"  up to {most:.0f} row groups, at least {least:.0f} sampled rows in the smallest")


def _subsets() -> None:
    """Columns of one draw of 6 million rows, of which a tenth is sampled; half of the columns
    skewed, so that clusters differ in size."""
    from scipy.stats import spearmanr

    random = np.random.default_rng(2)
    domains = (7, 50, 100, 2_500, 10_000, 50_000, 200_000, 1_500_000)
    rows, sampled = 6_000_000, 600_000
    table = {
        number: _column(random, size, rows, skewed=number % 2 == 1)
        for number, size in enumerate(domains)
    }
    columns = {number: SimpleNamespace(ranks=ranks[:sampled]) for number, ranks in table.items()}
    pool = type("Rows", (SimpleNamespace,), {"__len__": lambda _: sampled})(
        columns=columns, weight=np.full(sampled, rows / sampled)
    )
    few = [chosen for chosen in subsets(tuple(table)) if len(chosen) <= MOST_JUDGED]
    true = {chosen: _average_size([table[number] for number in chosen]) for chosen in few}
    for name in ESTIMATORS:
        start, cpu = time.perf_counter(), time.process_time()
        found = sizes(pool, tuple(range(len(domains))), name)
        seconds, used = time.perf_counter() - start, time.process_time() - cpu
        print(f"{len(found)} subsets, {rows} rows, {name}: {seconds:.1f} s, {used:.1f} CPU s")
        for size in range(1, MOST_JUDGED + 1):
            ratios = [found[key] / true[key] for key in few if len(key) == size]
            off = [max(ratio, 1.0 / ratio) for ratio in ratios]
            print(f"  {size} columns: off by {np.median(off):.2f} (median), {max(off):.1f} (most)")
        order = spearmanr([found[key] for key in few], [true[key] for key in few]).statistic
        print(f"  order of these {len(few)} subsets: Spearman {order:.3f}")


def _column(random: np.random.Generator, size: int, rows: int, *, skewed: bool) -> np.ndarray:
    drawn = random.random(rows)
    return (size * (drawn**2 if skewed else drawn)).astype(np.int64)


def _average_size(columns: list[np.ndarray]) -> float:
    """The average distinct size of the clusters of all rows."""
    codes = np.zeros(len(columns[0]), dtype=np.int64)
    for ranks in columns:
        codes = codes * (int(ranks.max()) + 1) + ranks
    _, counts = np.unique(codes, return_counts=True)
    return float(np.unique(counts).mean())


def _regret() -> None:
    """20 files that claim 100 times their rows: 5.6 GB, enough for partitions."""
    random = np.random.default_rng(3)
    table = arrived(random, 2_000_000, 100_000, days=2_000, jitter=400)
    work = workload(
        range_workload(random, DATE, 40, 20, 2_000),
        range_workload(random, PART, 40, 3_000, 100_000, start=100),
    )
    files = claiming(table.file_table(), CLAIMED)
    view = table_view(files, None, table.sample(np.arange(20), 2_000), 128 << 20)
    wanted = demands(work, SCHEMA, 30 * DAY)
    given = RecommendInput(view, PartitionSpec(0), wanted, LOCAL, 4.0, 30 * DAY)
    pool, thin, screen = (build_pool(view, (KEY, DATE, PART), n) for n in (40_000, 8_192, 24_576))
    assert pool is not None and thin is not None and screen is not None
    space, _ = search_space(given, pool, thin, screen)
    labels = space.label(space.candidates)
    least = best(labels).total
    partitionings = [text_of(item.spec, SCHEMA) for item in space.partitionings]
    print(f"{len(labels)} candidates, partitioned by {', '.join(partitionings)}")
    print("cost above the best one's, by seed")
    for name in ("boosting", "forest", "tpe", "random", "expert", "default"):
        chosen = [METHODS[name](space, seed) for seed in range(3)]
        above = [space.label([c.candidate])[0].total / least - 1.0 for c in chosen]
        print(f"  {name}, {chosen[0].labelled} labels: {', '.join(f'{a:.0%}' for a in above)}")


if __name__ == "__main__":
    main()
