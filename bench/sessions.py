"""People exploring a table over six columns: rows read after, chosen against the best in hindsight.

    python -m bench.sessions [--seeds 1,2,3]

The load is synthetic, because no recorded sessions are stored here. It is modelled on linked
dashboards: a person starts from a range of one column, narrows it, adds a condition on another
column or drops one, and looks at the rest at every step. Tables differ in the columns that their
people care about. The advisor sees 14 days of sessions; what is reported are the sessions of the
7 days after them, by other people of the same kind. The best in hindsight is the least, by those
later sessions, of the whole table sorted by every column and along the curve of every set of
columns. What is chosen where no tree is grown for the queries shows what keys, curves and bands of
two columns leave. Beside both stands what the log can tell: chosen against the best key of the
recorded queries, and what that key reads of the later ones.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from unittest import mock

import numpy as np

from bench.replay.table import SimulatedTable, empty_table
from bench.results import write_section
from reconciler.advisor.advice import HORIZON_MS, Settings
from reconciler.advisor.choose import trees
from reconciler.advisor.simulate.layout import Layout
from reconciler.plan.ordering import Ordering, best_of
from reconciler.queries.demanded import demands
from reconciler.queries.fragments import Fragment, workload_of_fragments
from reconciler.queries.predicate import And, Comparison, Ref
from reconciler.queries.pruning import may_match, prune
from reconciler.queries.rewrite_cost import Rho
from reconciler.queries.shape import Workload
from reconciler.replay.policies.ours import ours
from reconciler.replay.run import carry_out
from reconciler.table.schema import Field, Schema, SortColumn
from reconciler.table.times import DAY_MS

NAMES = ("departure_delay", "arrival_delay", "distance", "air_time", "departure_hour", "fare")
SCHEMA = Schema(1, tuple(Field(n, name, "int") for n, name in enumerate(NAMES, 1)))
FILES, ROWS_PER_FILE = 128, 1_000
RECORDED_DAYS, LATER_DAYS = 14, 7
SESSIONS_A_DAY = 12
MOST_CONDITIONS = 4
PARTS = 4, 8
"""Row groups of a file in which the table is also written."""

Random = np.random.Generator


def flights(random: Random, rows_per_file: int = ROWS_PER_FILE) -> SimulatedTable:
    """Six columns, of which delays go together, and distance with the time in the air."""
    rows = FILES * rows_per_file
    late = random.gamma(0.6, 30.0, rows) - 8.0
    distance = random.gamma(2.0, 420.0, rows) + 80.0
    values = {
        1: late,
        2: late + random.normal(-3.0, 12.0, rows),
        3: distance,
        4: distance / 7.5 + random.normal(20.0, 8.0, rows),
        5: np.clip(random.normal(830.0, 280.0, rows), 0, 1_439),  # minutes of the day
        6: 40.0 + distance * random.gamma(4.0, 0.03, rows),
    }
    whole = {field: np.rint(column).astype(np.int64) for field, column in values.items()}
    return empty_table(SCHEMA).append(whole, rows_per_file, 0, rows_per_file)


@dataclass(frozen=True)
class People:
    """interest: share of the conditions that fall on each column, float64[6]. sorted_values: of
    each column, from which ranges are taken at even shares of the rows."""

    interest: np.ndarray
    sorted_values: Mapping[int, np.ndarray]

    def sessions(self, random: Random, first_day: int, days: int) -> list[Fragment]:
        log: list[Fragment] = []
        for day in range(first_day, first_day + days):
            for _ in range(int(random.poisson(SESSIONS_A_DAY))):
                at = day * DAY_MS + int(random.integers(8, 18) * 3_600_000)
                for step, ranges in enumerate(self._session(random)):
                    log.append(self._query(len(log), ranges, at + step * 20_000))
        return log

    def _session(self, random: Random) -> Iterator[dict[int, tuple[float, float]]]:
        """Yield the conditions of each step: (place, width) of a range in shares of the rows."""
        active = {self._column(random, ()): (random.uniform(), random.uniform(0.1, 0.4))}
        for _ in range(3 + int(random.geometric(0.2))):
            yield dict(active)
            column = random.choice(list(active))
            place, width = active[int(column)]
            move = random.uniform()
            if move < 0.45:  # narrow the range, or slide it
                shrunk = max(width * random.uniform(0.5, 1.0), 0.02)
                active[int(column)] = (place + random.normal(0.0, width / 4), shrunk)
            elif move < 0.85 and len(active) < MOST_CONDITIONS:
                added = self._column(random, tuple(active))
                active[added] = (random.uniform(), random.uniform(0.1, 0.4))
            elif len(active) > 1:
                del active[int(column)]

    def _column(self, random: Random, known: Sequence[int]) -> int:
        share = self.interest.copy()
        share[[column - 1 for column in known]] = 0.0
        return 1 + int(random.choice(len(share), p=share / share.sum()))

    def _query(self, position: int, ranges: dict[int, tuple[float, float]], at: int) -> Fragment:
        columns, literals = sorted(ranges), list[int]()
        for column in columns:
            place, width = ranges[column]
            values, top = self.sorted_values[column], len(self.sorted_values[column]) - 1
            start = min(max(place, 0.0), 1.0) * (1.0 - width)
            literals += [int(values[round(start * top)]), int(values[round((start + width) * top)])]
        slots = itertools.count()
        bounds = [Comparison(Ref(c), op, next(slots)) for c in columns for op in (">=", "<=")]
        return Fragment(
            source="bench", position=position, table_uuid="t", predicate=And(tuple(bounds)),
            literals=tuple(literals), moving=(None,) * len(literals), projection=tuple(range(1, 7)),
            weight=1.0, event_ms=at, engine="bench",
        )  # fmt: skip


def rows_read(table: SimulatedTable, work: Workload) -> float:
    """Return the rows of the files that the queries open, summed over the queries."""
    files = table.file_table()
    return sum(
        float(demand.weight @ (prune(demand, files) @ files.records))
        for demand in demands(work, table.schema, HORIZON_MS)
    )


def rows_in_groups(table: SimulatedTable, work: Workload) -> float:
    """Return the same of row groups."""
    groups = table.row_groups()
    return sum(
        float(demand.weight @ (alive @ groups.records))
        for demand in demands(work, table.schema, HORIZON_MS)
        for alive in [may_match(demand.predicate, demand.literals, groups.columns, groups.records)]
    )


def every_ordering() -> Iterator[Ordering]:
    for size in range(1, len(NAMES) + 1):
        for columns in itertools.combinations(range(1, len(NAMES) + 1), size):
            yield best_of(tuple(SortColumn(column) for column in columns))


def settings_of(table: SimulatedTable) -> Settings:
    size = table.row_width * ROWS_PER_FILE
    return Settings(
        now_ms=RECORDED_DAYS * DAY_MS, target_bytes=size, row_group_bytes=size,
        open_bytes=size // 50, rho=Rho(3.0, "measured"),
    )  # fmt: skip


def measured(seed: int) -> list[str]:
    """Return one row of the result: a table, its people, what was chosen and what is best."""
    random = np.random.default_rng(seed)
    table = flights(random)
    people = People(
        random.dirichlet(np.full(len(NAMES), random.uniform(2.0, 10.0))),
        {field: np.sort(column) for field, column in table.values.items()},
    )
    asked = people.sessions(random, 0, RECORDED_DAYS)
    recorded = workload_of_fragments(asked)
    later = workload_of_fragments(people.sessions(random, RECORDED_DAYS, LATER_DAYS))
    settings = settings_of(table)
    actions = ours(table, recorded, settings)
    chosen, *_ = carry_out(table, actions, settings, [])
    with mock.patch.object(trees, "tries_trees", lambda *_: False):
        ungrown = ours(table, recorded, settings)
    plain, *_ = carry_out(table, ungrown, settings, [])
    every = np.arange(len(table.files), dtype=np.int64)
    together = np.zeros(len(every), dtype=np.int64)
    tried, known = {}, {}
    for ordering in every_ordering():
        layout = Layout(ordering, settings.target_bytes, settings.row_group_bytes, together)
        written = table.laid_out(layout, every, settings.now_ms)
        label = ordering.text(SCHEMA)
        tried[label] = rows_read(written, later) / rows_read(table, later)
        known[label] = rows_read(written, recorded) / rows_read(table, recorded)
    best, recalled = (min(found, key=found.__getitem__) for found in (tried, known))
    read = rows_read(chosen, later) / rows_read(table, later)
    again = rows_read(chosen, recorded) / rows_read(table, recorded)
    within = []
    for parts in PARTS:
        smaller = replace(settings, row_group_bytes=settings.row_group_bytes // parts)
        parted, *_ = carry_out(table, ours(table, recorded, smaller), smaller, [])
        shares = [rows_read(parted, later), rows_in_groups(parted, later)]
        within += [f"{share / rows_read(table, later):.3f}" for share in shares]
    return [
        str(seed), f"{len(asked)}", _keys(actions), f"{read:.3f}",
        _keys(ungrown), f"{rows_read(plain, later) / rows_read(table, later):.3f}",
        best, f"{tried[best]:.3f}", f"{read / tried[best]:.2f}",
        f"{again / known[recalled]:.2f}", f"{tried[recalled] / tried[best]:.2f}", *within,
    ]  # fmt: skip


def _keys(actions: Sequence[object]) -> str:
    return " + ".join(map(_key, actions)) or "nothing"


def _key(action: object) -> str:
    ordering = getattr(action, "ordering", None)
    return ordering.text(SCHEMA) if ordering is not None else type(action).__name__


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.sessions")
    parser.add_argument("--seeds", default="1,2,3")
    seeds = [int(seed) for seed in parser.parse_args(arguments).seeds.split(",")]
    head = ["seed", "recorded queries", "chosen", "rows read / before",
            "chosen without a grown tree", "rows read / before", "best in hindsight",
            "rows read / before", "chosen / best", "of the recorded queries",
            "best of the recorded queries / best",
            *(f"in {parts} row groups a file, {of}" for parts in PARTS
              for of in ("by files", "by row groups"))]  # fmt: skip
    rows = [head]
    for seed in seeds:
        rows.append(measured(seed))
        print(" | ".join(rows[-1]), flush=True)
    notes = (
        "Synthetic sessions: no recorded ones are stored here. 128,000 rows of six columns in 128 "
        "files, about 12 sessions a day; what is read is counted over 7 days of sessions that no "
        "decision saw. Without a grown tree: keys, curves and bands of two columns. Best in "
        "hindsight: the least of all 63 keys by those later sessions. Of "
        "the recorded queries: chosen / best of the 63 by these, which is all that a "
        "decision can know, and what that key reads of the later ones / best in hindsight. Last "
        "columns: what is chosen where row groups are a quarter or an eighth of a file, of the "
        "rows read before."
    )
    print(write_section("Sessions of people", f"python -m bench.sessions --seeds "
                        f"{','.join(map(str, seeds))}", rows, notes))  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
