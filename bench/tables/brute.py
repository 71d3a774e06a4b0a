"""The best layout in hindsight: real rewrites of a copy, priced by queries to come.

Single columns, pairs in both orders and as a curve; of the whole table, and of the files that the
queries to come read. All of them are written by pyarrow (`bench.tables.arrow_trial`), and the best
of these rewritten by the executor and rolled back. The cost of a layout is that of reading it for
the horizon plus rho times the bytes rewritten, as in a plan.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bench.tables.arrow_trial import parts_of, read_cost
from bench.tables.drawn import Drawn
from bench.tables.play import ROW_GROUP, Place, Played, Seen, create, look, read_of, workload
from bench.tables.trial import arranged, carry_out, roll_back
from reconciler.advisor.advice import HORIZON_MS
from reconciler.plan.actions.rewrite import Rewrite
from reconciler.plan.ordering import ARRIVAL, Hilbert, Lexicographic, Ordering
from reconciler.queries.demanded import demands
from reconciler.queries.pruning import prune
from reconciler.queries.rewrite_cost import Rho, rewrite_cost
from reconciler.queries.shape import Workload
from reconciler.table.filetable import Int64
from reconciler.table.schema import Schema, SortColumn

MOST_OF_TABLE = 0.8
"""If the files that are read hold more than this share of the bytes, they are not tried apart."""


REWRITTEN = 3
"""Layouts that Spark writes of those that pyarrow wrote."""


@dataclass(frozen=True, slots=True)
class Tried:
    """One layout. trial, cost: of reading for the horizon and of the rewrite, in bytes of reading,
    as pyarrow wrote it and as Spark did; cost None if Spark did not."""

    label: str
    trial: float
    cost: float | None


def best(place: Place, drawn: Drawn, rho: float, row_groups: int) -> list[Tried]:
    """Return every layout that was tried: those that Spark wrote by cost, then the others."""
    name = f"{drawn.name}_copy"
    create(place, drawn, name)
    before = look(place, name)
    later = workload(place, name, drawn.later)
    nothing = read_of(before.view, later).cost
    every = sorted(options(place, drawn, name, before, later, rho, row_groups),
                     key=lambda option: option.trial)  # fmt: skip
    tried = [Tried("nothing", nothing, nothing)]
    for number, option in enumerate(every):
        cost = None
        if number < REWRITTEN:
            actions = arranged(before, option.rows, option.ordering, drawn.target,
                               row_groups or ROW_GROUP)  # fmt: skip
            carry_out(place, name, before, actions, f"p-{number:020x}")
            cost = read_of(look(place, name).view, later).cost + option.rewriting
            roll_back(place, name, before)
        tried.append(Tried(option.label, option.trial, cost))
    return sorted(tried, key=lambda one: (one.cost is None, one.cost or one.trial))


def row_groups_of(played: Played) -> int:
    """Return the size of row groups of the plan's own rewrites, which the brute force adopts; 0 for
    one row group a file."""
    return max((item.action.row_group_bytes for item in played.plan.plan.actions
                if isinstance(item.action, Rewrite)), default=0)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Option:
    """A rewrite of the files `rows`. trial: its cost as pyarrow wrote it; rewriting: the part of it
    that the rewrite takes."""

    label: str
    ordering: Ordering
    rows: Int64
    rewriting: float
    trial: float


def options(
    place: Place,
    drawn: Drawn,
    name: str,
    before: Seen,
    later: Workload,
    rho: float,
    row_group_bytes: int,
) -> Iterator[Option]:
    schema, files = before.observation.schema, before.observation.files
    every = np.arange(len(files), dtype=np.int64)
    asked = _asked(before, later)
    share = files.bytes[asked].sum() / files.total_bytes
    for where, rows in [("", every), ("asked: ", asked)]:
        if where and not 0 < share < MOST_OF_TABLE:
            continue
        rewriting = rewrite_cost(Rho(rho), int(files.bytes[rows].sum()))
        parts = parts_of(place, drawn, name, before, rows)
        for ordering in orderings(drawn.columns, schema):
            read = read_cost(place, drawn, before, parts, ordering, row_group_bytes, later)
            label = f"{where}{ordering.text(schema) or 'bin-pack'}"
            yield Option(label, ordering, rows, rewriting, read + rewriting)


def orderings(columns: Sequence[str], schema: Schema) -> Iterator[Ordering]:
    ids = {field.name: field.field_id for field in schema.fields}
    yield ARRIVAL
    for name in columns:
        yield Lexicographic((SortColumn(ids[name]),))
    for first, second in itertools.permutations(columns, 2):
        yield Lexicographic((SortColumn(ids[first]), SortColumn(ids[second])))
    for first, second in itertools.combinations(columns, 2):
        yield Hilbert((SortColumn(ids[first]), SortColumn(ids[second])))


def _asked(seen: Seen, later: Workload) -> Int64:
    """Return the rows of the files that some query to come reads."""
    files = seen.view.files
    needed = np.zeros(len(files), dtype=bool)
    for demand in demands(later, files.schema, HORIZON_MS) if not later.empty else ():
        needed |= prune(demand, files).any(axis=0) if demand.prunable else True
    return np.flatnonzero(needed).astype(np.int64)
