"""The best layout in hindsight: real rewrites of a copy by every key, priced by queries to come.

Single columns, pairs in both orders and as a curve; of the whole table, and of the files that the
queries to come read. Each rewrite is carried out by the executor and rolled back. The cost of a
layout is that of reading it for the horizon plus rho times the bytes rewritten, as in a plan.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bench.tables.drawn import Drawn
from bench.tables.play import Place, Seen, create, look, read_of, workload
from bench.tables.trial import arranged, carry_out, roll_back
from reconciler.advisor.advice import HORIZON_MS
from reconciler.advisor.simulate.demand import demands
from reconciler.plan.ordering import ARRIVAL, Hilbert, Lexicographic, Ordering
from reconciler.queries.exposure import files_to_read
from reconciler.queries.fragments import Workload
from reconciler.queries.rewrite_cost import Rho, rewrite_cost
from reconciler.table.filetable import Int64
from reconciler.table.schema import Schema, SortColumn

MOST_OF_TABLE = 0.8
"""If the files that are read hold more than this share of the bytes, they are not tried apart."""


@dataclass(frozen=True, slots=True)
class Tried:
    """One layout. cost: of reading for the horizon and of the rewrite, in bytes of reading."""

    label: str
    cost: float


def best(place: Place, drawn: Drawn, rho: float) -> list[Tried]:
    """Return every layout that was tried, the cheapest first."""
    name = f"{drawn.name}_copy"
    create(place, drawn, name)
    before = look(place, name)
    later = workload(place, name, drawn.later)
    tried = [Tried("nothing", read_of(before.view, later).cost)]
    schema = before.observation.schema
    every = np.arange(len(before.observation.files), dtype=np.int64)
    asked = _asked(before, later)
    share = before.observation.files.bytes[asked].sum() / before.observation.files.total_bytes
    parts = [("", every)] + ([("asked: ", asked)] if 0 < share < MOST_OF_TABLE else [])
    for number, (ordering, (where, rows)) in enumerate(
        itertools.product(orderings(drawn.columns, schema), parts)
    ):
        label = f"{where}{ordering.text(schema) or 'bin-pack'}"
        actions = arranged(before, rows, ordering, drawn.target, 128 << 20)
        carry_out(place, name, before, actions, f"p-{number:020x}")
        found = look(place, name)
        size = int(before.observation.files.bytes[rows].sum())
        cost = read_of(found.view, later).cost + rewrite_cost(Rho(rho), size)
        tried.append(Tried(label, cost))
        roll_back(place, name, before)
    return sorted(tried, key=lambda one: one.cost)


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
        needed |= files_to_read(files, demand).any(axis=0) if demand.prunable else True
    return np.flatnonzero(needed).astype(np.int64)
