"""Sorts that cost nothing and are chosen in hindsight: bounds with which policies are compared
(WAIR, section 6.6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from reconciler.advisor.advice import Settings
from reconciler.plan.ordering import Lexicographic
from reconciler.queries.shape import Shape
from reconciler.replay.policies.fixed import sorts
from reconciler.replay.run import Replay, Step, Table, reading
from reconciler.table.schema import SortColumn


def sorted_for_free(
    table: Table,
    steps: Sequence[Step[Table]],
    settings: Settings,
    columns: Sequence[int],
    *,
    before: bool,
    done: Callable[[int], None] = lambda _: None,
) -> Replay[Table]:
    """Sort the whole table at each step by the column of which the step's queries read least.

    before: whether the sort comes before the queries, which only an oracle could do; else after
    them, so that new rows are read once as they arrived. No rewrite is charged.
    """
    twin = table
    read, sizes, untouched, files = [], [], [], []
    for number, step in enumerate(steps, start=1):
        if step.arrive is not None:
            table, twin = step.arrive(table), step.arrive(twin)
        best = _best(table, step.queries, settings, columns)
        table, seen = best, best if before else table
        size, cost = reading(seen, step.queries, settings)
        read.append(cost)
        sizes.append(size)
        untouched.append(reading(twin, step.queries, settings)[1])
        files.append(len(table.file_table()))
        done(number)
    nothing = np.zeros(len(steps))
    return Replay(
        np.array(read), np.array(sizes), nothing, nothing, nothing.astype(np.int64),
        np.array(files, dtype=np.int64), np.array(untouched), table,
    )  # fmt: skip


def _best(
    table: Table, queries: Sequence[Shape], settings: Settings, columns: Sequence[int]
) -> Table:
    """Return the table sorted by the best column, as it is if no order reads less."""
    best, least = table, reading(table, queries, settings)[1]
    for column in columns:
        made, files = table, table.file_table()
        every = np.arange(len(files), dtype=np.int64)
        for action in sorts(files, every, Lexicographic((SortColumn(column),)), settings):
            made = made.after(action, settings)
        cost = reading(made, queries, settings)[1]
        if cost < least:
            best, least = made, cost
    return best
