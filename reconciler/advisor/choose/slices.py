"""Cuts files that are too many for any budget into slices that the tightest budget admits
(docs/design/definitions.md#slices-of-a-budget).

Files of a partition come in, slices of them go out; each slice becomes an action with its own
what-if. Slices follow the column that orders the table best now, else the order of arrival. Files
that are neighbours in that order share values, so that sorting slices gives nearly what sorting all
files would.

If every file holds all values of the key, each slice becomes a sorted run over the whole range of
the key, and a query reads all runs. Later plans merge the runs range by range where that pays:
their slices follow the key. Each run has a multiple of as many files as there are ranges, so that
every range ends at the end of a file in every run (docs/design/slices.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from reconciler.advisor.advice import Rejected
from reconciler.advisor.judge.candidate import rejected
from reconciler.advisor.situation import Situation
from reconciler.advisor.spent import Sliced
from reconciler.plan import reasons
from reconciler.plan.grouping import arrivals, filled
from reconciler.plan.prediction import BY_ARRIVAL
from reconciler.queries.predicate import bounded_fields_of
from reconciler.queries.rewrite_cost import NO_ROWS, Rows
from reconciler.table.filetable import FileTable, Float64, Int64
from reconciler.table.overlap_depth import depth_of, ranges_of
from reconciler.table.permutations import inverse_permutation
from reconciler.table.schema import Schema
from reconciler.table.stable_order import order_of, ranks

NATURAL = 0.33
"""A column orders the table if its values are in at most this share of the files on average."""

IN_RANGES = 0.5
"""Slices may follow a column that queries ask for if its values are in at most this share of the
files on average: in more, no slice could be a range of it."""

MOST_ASKED = 2
"""Such columns that are tried, the best ordered first."""

SORT = "sort"
"""The dearer kind of work, in whose CPU seconds slices are measured."""


@dataclass(frozen=True)
class Slicing:
    """Files of a partition, cut into slices that a budget can admit."""

    parts: tuple[Int64, ...]
    """The files of each slice as rows of the file table, in the order of the uncut files."""
    sliced: Sliced
    """How the budget cuts them."""


def slicings(
    situation: Situation, partitions: Iterable[Int64], asked: Sequence[int]
) -> list[list[Slicing]]:
    """Return, for the files of each partition, the ways to cut them.

    One way follows the order that the files have now. Another one follows each of the asked columns
    (field ids of columns that queries filter on) of which a slice can be a range. If a budget
    admits all files at once, the only way is one slice.
    """
    table = situation.table
    every = np.arange(len(table), dtype=np.int64)
    whole = np.bincount(table.partition, _shares(situation, every))
    return [
        _ways(situation, rows, asked, float(whole[table.partition[rows[0]]])) for rows in partitions
    ]


def _ways(situation: Situation, rows: Int64, asked: Sequence[int], whole: float) -> list[Slicing]:
    if in_one(situation, rows):
        return [Slicing((rows,), Sliced(1, whole, BY_ARRIVAL))]
    found = []
    for column in dict.fromkeys((_best_ordered(situation), *_ranged(situation, rows, asked))):
        parts = tuple(slices(situation, rows, [column]))
        found.append(Slicing(parts, Sliced(len(parts), whole, column)))
    return found


def slices(
    situation: Situation, rows: Int64, key: Sequence[int] = (), least: int = 1
) -> list[Int64]:
    """Return the files of each slice, in the order they have in `rows`; one slice if all fit.

    key: field ids whose first the slices shall follow. least: files that make a useful slice. What
    the budget admits in no such slice is left out (`oversized`).
    """
    share = _shares(situation, rows)
    if share.sum() <= 1.0:
        return [rows]
    rows, share = rows[share <= 1.0], share[share <= 1.0]
    if not len(rows):
        return []
    order = np.argsort(places_of(situation, rows, key), kind="stable")
    number = np.empty(len(rows), dtype=np.int64)
    number[order] = filled(share[order])
    parts = [rows[number == part] for part in range(int(number.max()) + 1)]
    return [part for part in parts if len(part) >= least]


def in_words(sliced: Sliced, schema: Schema) -> str:
    """Return `, one of 4 slices along k`; "" where all is one action."""
    if sliced.parts < 2:
        return ""
    order = "in order of arrival"
    if sliced.along != BY_ARRIVAL:
        order = f"along {schema.name_of(sliced.along)}"
    return f", one of {sliced.parts} slices {order}"


def oversized(
    situation: Situation, rows: Int64, parts: Sequence[Int64], title: str
) -> list[Rejected]:
    """Return the files of `rows` that are in no slice because no budget can admit them."""
    admitted = np.zeros(len(situation.table), dtype=np.bool_)
    admitted[np.concatenate([rows[:0], *parts])] = True
    alone = np.sort(rows[~admitted[rows]])
    if not len(alone):
        return []
    return [rejected(situation, title, reasons.LARGER_THAN_BUDGET, "", alone)]


def in_one(situation: Situation, rows: Int64) -> bool:
    """Whether every budget can admit one action on all of these files."""
    return budgets_needed(situation, rows) <= 1.0


def budgets_needed(situation: Situation, rows: Int64) -> float:
    """Return how many times the tightest budget has to be spent to rewrite these files; 0 without
    one, infinity where it is 0."""
    return float(_shares(situation, rows).sum())


def _shares(situation: Situation, rows: Int64) -> Float64:
    """Return the share of the tightest budget that each file takes, float64[rows]; 0 without
    one."""
    settings, time = situation.settings, situation.settings.throughput
    size = situation.table.bytes[rows].astype(np.float64)
    share = np.zeros(len(rows))
    if settings.most_bytes is not None:
        with np.errstate(divide="ignore"):  # a budget of 0 admits no file
            share = size / settings.most_bytes
    if settings.most_cpu_seconds is not None:
        text = situation.text_row_bytes(_comparable(situation))
        none = None if text is None else NO_ROWS
        fixed = time.cpu_seconds(SORT, 0, first=False, rows=none)  # of each action
        opening = time.cpu_seconds(SORT, 0, files=1, first=False, rows=none) - fixed
        left = settings.most_cpu_seconds - time.cpu_seconds(SORT, 0)
        share = np.maximum(share, (opening + _cpu(situation, rows, text)) / max(left, 1e-9))
    return share


def _comparable(situation: Situation) -> frozenset[int]:
    """Return the columns that may be of the key, which is not known yet: those that are asked for,
    and those declared."""
    asked = (bounded_fields_of(demand.predicate) for demand in situation.expected.demands)
    return frozenset(chain(*asked, (one.field_id for one in situation.settings.ordering.key)))


def _cpu(situation: Situation, rows: Int64, text: float | None) -> Float64:
    """Return the CPU seconds of sorting the rows of each file, float64[rows], in proportion to its
    rows; where the text of a row is not known (text: None), to its bytes."""
    time, many = situation.settings.throughput, 1 << 40
    if text is None:
        amount, work = situation.table.bytes[rows], time.cpu_seconds(SORT, many, first=False)
    else:
        amount = np.maximum(situation.table.records[rows], 0)
        columns = len(situation.table.schema.fields)
        work = time.cpu_seconds(SORT, 0, first=False, rows=Rows(many, many * text, columns))
    return amount.astype(np.float64) * (work - time.cpu_seconds(SORT, 0, first=False)) / many


def places_of(situation: Situation, rows: Int64, key: Sequence[int]) -> Int64:
    """Return the place of each file in the order that slices follow."""
    table = situation.table
    arrival = arrivals(table)[rows]
    column = table.columns.get(key[0] if key else _best_ordered(situation))
    if column is None or not column.bounded[rows].all():
        return arrival
    bounds = np.concatenate((column.lower[rows], column.upper[rows]))
    low, high = np.split(ranks(bounds), 2)
    return inverse_permutation(order_of(low + high, last=arrival))


def _best_ordered(situation: Situation) -> int:
    """Return the column whose values are in the fewest files on average, BY_ARRIVAL if none orders
    them."""
    table = situation.table
    ordered = _ordered(table, sorted(table.columns), NATURAL)
    return ordered[0] if ordered else BY_ARRIVAL


def _ranged(situation: Situation, rows: Int64, asked: Sequence[int]) -> list[int]:
    """Return the asked columns of which slices of these files can be ranges, the best first."""
    known = [column for column in asked if column in situation.table.columns]
    return _ordered(situation.table.take(rows), known, IN_RANGES)[:MOST_ASKED]


def _ordered(table: FileTable, columns: Sequence[int], most: float) -> list[int]:
    """Return the columns whose values are in at most this share of the files on average, those in
    the fewest first."""
    rows, every = np.maximum(table.records, 0), np.arange(len(table), dtype=np.int64)
    found = []
    for field in columns:
        ranges = ranges_of(table, field)
        if ranges.known.all():
            mean = depth_of(ranges, every, rows).mean
            found.append((mean, field))
    return [field for mean, field in sorted(found) if mean < most * len(table)]
