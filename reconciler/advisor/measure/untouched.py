"""What queries would read of a table that nobody had rewritten.

Harm is measured against such a table, which does not exist and is estimated. Files that a writer
added and we did not touch show it in part: columns in whose order rows arrive are those whose
values are in few of these files. What queries of other columns read of these files, they would read
of the rest as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reconciler.queries.predicate import And, Comparison, Ref, fields_of
from reconciler.queries.read_cost import ShapeReading, read_shape
from reconciler.queries.shape import Shape, asked
from reconciler.queries.table_view import TableView, projected_bytes
from reconciler.table.filetable import Array, Float64, Int64
from reconciler.table.overlap_depth import depth_of, ranges_of

NATURAL = 0.33
"""Rows arrive in the order of a column if a file's range of it holds at most this share of the
table on average."""

MOST_NATURAL = 2
"""Columns in the order of arrival that are guarded, those in the best order first."""

RANGES, WIDTH = 16, 0.03
"""Ranges that represent the queries of a column, and the share of the rows that each covers."""


@dataclass(frozen=True)
class Asked:
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

    @property
    def loss(self) -> float:
        """What an execution reads more than of the untouched table; negative if it reads less."""
        return self.now - self.untouched


def asked_of(
    view: TableView, demands: Sequence[Shape], readings: Sequence[ShapeReading]
) -> tuple[Asked, ...]:
    """Return the recorded queries by the columns of their conditions, and the guarded ranges."""
    if not len(view.files) or not demands:
        return ()
    natural = natural_columns(view)
    own = np.flatnonzero(~view.files.layout_written)
    rest = view.take(own) if 0 < len(own) < len(view.files) else None
    by_columns: dict[tuple[int, ...], list[int]] = {}
    for number, demand in enumerate(demands):
        by_columns.setdefault(tuple(sorted(fields_of(demand.predicate))), []).append(number)
    found = []
    for columns, members in sorted(by_columns.items()):
        weight = sum(float(demands[number].weight.sum()) for number in members)
        if weight <= 0.0:
            continue
        ordered = any(column in natural for column in columns)
        now = untouched = 0.0
        for number in members:
            demand, reading = demands[number], readings[number]
            now += float(demand.weight @ reading.cost)
            untouched += float(demand.weight @ _untouched(view, rest, demand, reading, ordered))
        found.append(Asked(tuple(members), None, weight, now / weight, untouched / weight))
    for column in natural[:MOST_NATURAL]:
        guard = _ranges(view, demands, column)
        reading = read_shape(view, guard)
        left = _untouched(view, rest, guard, reading, True)
        mean = float(reading.cost.mean()), float(left.mean())
        found.append(Asked((), guard, 0.0, *mean))
    return tuple(found)


def _untouched(
    view: TableView, rest: TableView | None, demand: Shape, reading: ShapeReading, ordered: bool
) -> Float64:
    """Return the cost of each query of the untouched table. rest: the files that we did not write,
    None if these are all or none: of such a table the present reading is all that is known.

    Had the files that we wrote been left in the order of arrival, a query of a natural column would
    read the rows that it wants of them, and a file at the end of its range. Any other query would
    read as much of them as it does of the rest.
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


def natural_columns(view: TableView) -> list[int]:
    """Return the columns in whose order rows arrive, those whose files hold the least first.

    It shows in the files that we did not write; if there are none, in all of them.
    """
    files = view.files
    own = np.flatnonzero(~files.layout_written)
    arrived = files.take(own) if 0 < len(own) < len(files) else files
    rows = np.maximum(arrived.records, 0).astype(np.float64)
    held = []
    for field, column in sorted(arrived.columns.items()):
        if not column.bounded.all() or not len(arrived):
            continue
        values = _sampled(view, field)
        if len(values):
            first = np.searchsorted(values, column.lower, side="left")
            last = np.searchsorted(values, column.upper, side="right")
            share = float(np.average((last - first) / len(values), weights=np.maximum(rows, 1.0)))
        else:
            ranges = ranges_of(arrived, field)
            judged = np.flatnonzero(ranges.known)
            share = depth_of(ranges, judged, arrived.records).mean / len(arrived)
        if share <= NATURAL:
            held.append((share, field))
    return [field for _, field in sorted(held)]


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
    return asked(
        shape_id=f"range of {column}",
        predicate=And((Comparison(Ref(column), ">=", 0), Comparison(Ref(column), "<", 1))),
        column_sets=sets,
        literals=(values[first], values[last]),
        weight=np.zeros(RANGES),
        executions=np.ones(RANGES),
    )
