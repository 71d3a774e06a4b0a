"""Returns what queries would read of the table if nobody had rewritten it: the untouched table.

Harm is measured against it (docs/design/no-harm.md). It has the files that writers added and that
we did not rewrite, and the files that our rewrites replaced, whose bounds the ledger keeps. Where
the ledger does not have all of these, the reading is estimated: of the missing files, queries read
the same share as of the files that we did not rewrite, and less if they filter on a column in whose
order rows arrive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import numpy.typing as npt

from reconciler.plan.drift import declared_drift, drift_inside
from reconciler.plan.execution import plan_of_file
from reconciler.plan.ordering import Lexicographic
from reconciler.plan.prediction import BY_ARRIVAL
from reconciler.queries.predicate import And, Comparison, Ref, bounded_fields_of
from reconciler.queries.read_cost import ShapeReading, read_shape
from reconciler.queries.shape import Shape, unrecorded_shape
from reconciler.queries.table_view import TableView, projected_bytes, table_view
from reconciler.table.filetable import Array, Bool, FileTable, Float64, Int64
from reconciler.table.joined import joined_files
from reconciler.table.overlap_depth import depth_of, ranges_of
from reconciler.table.schema import SortColumn

NATURAL = 0.33
"""Rows arrive in the order of a column if a file's range of it holds at most this share of the
table on average."""

MOST_NATURAL = 2
"""Columns in the order of arrival that are guarded, those in the best order first."""

RANGES, WIDTH = 16, 0.03
"""Ranges that represent the queries of a column, and the share of the rows that each covers."""


@dataclass(frozen=True)
class QueryGroup:
    """Queries with conditions on the same columns, and what they read of the table."""

    members: tuple[int, ...]
    """Indexes into the demands of which it consists; () for a guard."""
    guard: Shape | None
    """Ranges of a column that nobody may have asked for yet, instead of recorded queries; None for
    recorded ones."""
    weight: float
    """Number of recorded executions; 0 for a guard."""
    now: float
    """Mean cost of an execution on the present table, in bytes of reading."""
    untouched: float
    """Mean cost of an execution on the table that nobody had rewritten, in bytes of reading."""
    each: Float64
    """float64[queries]: what an execution of each query reads more than of the untouched table; the
    queries of the members, one after the other, or the ranges of a guard."""

    @property
    def loss(self) -> float:
        """What an execution reads more than of the untouched table, on average; negative if it
        reads less."""
        return self.now - self.untouched

    @property
    def worst(self) -> float:
        """What an execution of the query that loses most reads more than of the untouched table."""
        return float(self.each.max(initial=-np.inf))


@dataclass(frozen=True)
class Untouched:
    """The table that nobody had rewritten, as far as it is known."""

    rest: TableView | None
    """The files that we did not write; None if there are none."""
    replaced: tuple[TableView, ...]
    """The files that rewrites of ours replaced and that a writer had added; () where they are not
    all known."""
    natural: tuple[int, ...]
    """Field ids of the columns in whose order rows arrive, those whose files hold the least
    first."""
    displaced: Bool
    """bool[files]: those that we wrote and that are not in the order of the first of them."""

    @property
    def guarded(self) -> tuple[int, ...]:
        """The natural columns whose queries are guarded."""
        return self.natural[:MOST_NATURAL]

    def known_of(self, files: FileTable) -> bool:
        """Whether all of it is known, and not estimated, of the table of these files."""
        return bool(self.replaced) or not files.layout_written.any()


Leads = Mapping[str, Set[int | None]]
"""By plan id, the columns that lead the orders of its rewrites."""


def untouched_table(view: TableView, replaced: Sequence[FileTable], leads: Leads) -> Untouched:
    """Return what is known of it. replaced: the files that our rewrites replaced and that a writer
    had added; they count if they hold as many rows as the files that we wrote."""
    files = view.files
    ours = np.flatnonzero(files.layout_written)
    own = np.flatnonzero(~files.layout_written)
    rest = view.take(own) if len(own) else None
    same = sum(int(one.records.sum()) for one in replaced) == int(files.records[ours].sum())
    before = tuple(
        table_view(one, None, None, view.row_group_bytes, view.open_bytes)
        for one in (replaced if same and len(ours) else ())
    )
    arrived = [] if rest is None else [rest.files]
    arrived += [one.files for one in before]
    natural = _natural_columns(_together(arrived) if arrived else files, view)
    return Untouched(rest, before, natural, _displaced(view, ours, natural, leads))


def _together(parts: Sequence[FileTable]) -> FileTable:
    """Return the files of all parts, of whatever partitions."""
    plain = [
        replace(one, partitions=((0, ()),), partition=np.zeros_like(one.partition)) for one in parts
    ]
    return reduce(joined_files, plain)


def _displaced(view: TableView, ours: Int64, natural: Sequence[int], leads: Leads) -> Bool:
    """Return which of the files that we wrote are not in the order in which rows arrive.

    Their own row groups have to follow it as well: files that do not overlap may hold rows of any
    order. Files with several row groups of which no footer is known, or without bounds of the
    column, do not show their order: it is the one that their plan wrote.
    """
    files = view.files
    found = np.zeros(len(files), dtype=np.bool_)
    if not natural or not len(ours):
        return found
    order = Lexicographic((SortColumn(natural[0]),))
    part = view.take(ours)
    for drift in declared_drift(part.files, order, 2):
        found[ours[drift.files]] = drift.rewrite
    unknown = files.bytes[ours] > view.row_group_bytes
    if part.row_groups is not None and part.group_file is not None:
        found[ours[drift_inside(part.row_groups, part.group_file, order)]] = True
        unknown[part.group_file] = False
    bounds = part.known.columns.get(natural[0])
    unknown |= True if bounds is None else ~bounds.bounded
    for row in ours[unknown].tolist():
        wrote = leads.get(plan_of_file(str(files.path[row])), frozenset())
        found[row] |= not wrote or not wrote <= {natural[0], BY_ARRIVAL}
    return found


def query_groups(
    view: TableView,
    demands: Sequence[Shape],
    readings: Sequence[ShapeReading],
    untouched: Untouched,
) -> tuple[QueryGroup, ...]:
    """Return the recorded queries by the columns of their conditions, and the guarded ranges."""
    if not len(view.files) or not demands:
        return ()
    by_columns: dict[tuple[int, ...], list[int]] = {}
    for number, demand in enumerate(demands):
        by_columns.setdefault(tuple(sorted(bounded_fields_of(demand.predicate))), []).append(number)
    found = []
    for columns, members in sorted(by_columns.items()):
        weight = sum(float(demands[number].weight.sum()) for number in members)
        if weight <= 0.0:
            continue
        ordered = any(column in untouched.natural for column in columns)
        now = before = 0.0
        each = []
        for number in members:
            demand, reading = demands[number], readings[number]
            left = _cost(untouched, view, demand, reading, ordered)
            now += float(demand.weight @ reading.cost)
            before += float(demand.weight @ left)
            each.append(reading.cost - left)
        mean = now / weight, before / weight
        found.append(QueryGroup(tuple(members), None, weight, *mean, np.concatenate(each)))
    for column in untouched.guarded:
        guard = _ranges(view, demands, column)
        reading = read_shape(view, guard)
        left = _cost(untouched, view, guard, reading, True)
        mean = float(reading.cost.mean()), float(left.mean())
        found.append(QueryGroup((), guard, 0.0, *mean, reading.cost - left))
    return tuple(found)


def _cost(
    untouched: Untouched, view: TableView, demand: Shape, reading: ShapeReading, ordered: bool
) -> Float64:
    """Return the cost of each query of the untouched table. ordered: rows arrive in the order of a
    column of its conditions."""
    if not view.files.layout_written.any():
        return reading.cost
    if not untouched.replaced:
        return _estimated(view, untouched.rest, demand, reading, ordered)
    rest = () if untouched.rest is None else (untouched.rest,)
    total = np.zeros(len(demand))
    for part in (*rest, *untouched.replaced):
        total += read_shape(part, demand).cost
    return total


def _estimated(
    view: TableView, rest: TableView | None, demand: Shape, reading: ShapeReading, ordered: bool
) -> Float64:
    """Return the cost of each query of the untouched table where the ledger does not show it.

    The files that we wrote are taken to be in the order of arrival still. A query on a column in
    that order (ordered) would read its rows of them, and one file more at the end of its range. Any
    other query would read the same share of them as of the files that we did not write. If there
    are none of these, the present reading is all that is known.
    """
    if rest is None:
        return reading.cost
    here = read_shape(rest, demand)
    size = projected_bytes(view.files, demand.projection)
    whole = float(size.sum())
    left = max(whole - float(projected_bytes(rest.files, demand.projection).sum()), 0.0)
    if not ordered:
        return here.cost * (whole / max(whole - left, 1.0))
    wanted = np.maximum(reading.matching - here.matching, 0.0)
    file = float(size.mean()) + view.open_bytes
    files = wanted / max(float(size.mean()), 1.0)
    read = np.minimum(wanted + np.where(wanted > 0.0, file, 0.0), left) + view.open_bytes * files
    return np.minimum(here.cost + read, np.maximum(reading.cost, here.cost))


def _natural_columns(arrived: FileTable, view: TableView) -> tuple[int, ...]:
    """Return the columns in whose order these files arrived. view: the table, of which sampled rows
    show how much of it a file's range holds."""
    rows = np.maximum(arrived.records, 0).astype(np.float64)
    held = []
    for column_id, column in sorted(arrived.columns.items()):
        if not column.bounded.all() or not len(arrived):
            continue
        values = _sampled(view, column_id)
        if len(values):
            first = np.searchsorted(values, column.lower, side="left")
            last = np.searchsorted(values, column.upper, side="right")
            share = float(np.average((last - first) / len(values), weights=np.maximum(rows, 1.0)))
        else:
            ranges = ranges_of(arrived, column_id)
            judged = np.flatnonzero(ranges.known)
            share = depth_of(ranges, judged, arrived.records).mean / len(arrived)
        if share <= NATURAL:
            held.append((share, column_id))
    return tuple(column_id for _, column_id in sorted(held))


def _sampled(view: TableView, column: int) -> Array:
    """Return the sampled values of the column in order, none if it is not in the sample."""
    sample = view.sample
    if sample is None or column not in sample.values:
        return np.zeros(0)
    known: npt.NDArray[np.bool_] = ~sample.null[column]
    found: Array = np.sort(sample.values[column][known])
    return found


def _ranges(view: TableView, demands: Sequence[Shape], column: int) -> Shape:
    """Return RANGES ranges at even places of the column, read by the commonest projection."""
    values = _sampled(view, column)
    if not len(values):
        values = np.sort(view.files.columns[column].lower)
    place = (np.arange(RANGES) + 0.5) / RANGES * (len(values) - 1)
    reach = max(1.0, WIDTH * len(values)) / 2.0
    first: Int64 = np.clip(np.floor(place - reach), 0, len(values) - 1).astype(np.int64)
    last: Int64 = np.clip(np.floor(place + reach), 0, len(values) - 1).astype(np.int64)
    common = max(demands, key=lambda demand: float(demand.executions.sum()))
    sets = tuple((tuple(sorted({*own, column})), share) for own, share in common.column_sets)
    return unrecorded_shape(
        shape_id=f"range of {column}",
        predicate=And((Comparison(Ref(column), ">=", 0), Comparison(Ref(column), "<", 1))),
        column_sets=sets,
        literals=(values[first], values[last]),
        weight=np.zeros(RANGES),
        executions=np.ones(RANGES),
    )
