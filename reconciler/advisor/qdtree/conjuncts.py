"""Recorded queries as unions of boxes: per box an interval of places for every column.

A place is a position in the order of a column's sampled values and the queries' literals together,
NULL first and NaN last, so that literals that no sampled row has keep their own place. What bounds
cannot express (functions of a column, conditions between columns) leaves a box as wide as it is:
such a box may read more, never less.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from reconciler.advisor.simulate.pool import Pool
from reconciler.queries.literal_ranges import prefix_successors, scalar_literals
from reconciler.queries.predicate import (
    Always,
    And,
    Comparison,
    First,
    In,
    IsNaN,
    IsNull,
    Not,
    Or,
    Predicate,
    StartsWith,
    push_not,
)
from reconciler.queries.predicate_batch import SlotLiterals
from reconciler.queries.shape import Shape
from reconciler.table.cut_tree import Cut
from reconciler.table.filetable import Array, Bool, Float64, Int64

MOST_MEMBERS = 16
"""Members of an IN list that become boxes of their own; a longer one is one range from its least to
its greatest."""

MOST_BOXES = 32
"""Boxes of a query, on the mean of a shape. An OR that would make more counts as true."""


@dataclass(frozen=True)
class Axis:
    """The order of one column: sampled values and literals together."""

    values: Array
    """The distinct values, ascending. The value number i has place i + 1; NULL has 0."""
    places: Int64
    """int64[rows], the place of each sampled row."""
    literal: Bool
    """bool[values], whether queries name the value."""

    @property
    def end(self) -> int:
        """Return the place after all values: NaN's."""
        return len(self.values) + 1


@dataclass(frozen=True)
class Boxes:
    """The queries as boxes over the columns. Arrays have shape [boxes] or [boxes, columns]."""

    columns: tuple[int, ...]
    """Field ids, ascending."""
    axes: tuple[Axis, ...]
    """The order of each column."""
    query: Int64
    """int64[boxes], ascending: the query of each box."""
    low: Int64
    """int64[boxes, columns], the first place of each interval."""
    high: Int64
    """int64[boxes, columns], the place after its last."""
    weight: Float64
    """float64[queries]: what reading all rows once costs each query over the horizon."""


def boxes_of(
    pool: Pool,
    demands: Sequence[Shape],
    weights: Sequence[Float64],
    unbounded: frozenset[int] = frozenset(),
) -> Boxes:
    """Return the queries of a workload as boxes over a pool's columns.

    weights: per demand, float64[queries]. unbounded: columns of which files will have no bounds, by
    field id; nothing is gained by cutting them.
    """
    columns = tuple(sorted(set(pool.columns) - unbounded))
    axes = tuple(_axis(pool, field, demands) for field in columns)
    at = {field: number for number, field in enumerate(columns)}
    query, low, high, before = [], [], [], 0
    for demand in demands:
        found = _boxes(demand, axes, at)
        query.append(found.query + before)
        low.append(found.low)
        high.append(found.high)
        before += len(demand)
    none = np.zeros((0, len(columns)), dtype=np.int64)
    return Boxes(
        columns, axes,
        np.concatenate([np.zeros(0, dtype=np.int64), *query]),
        np.concatenate([none, *low]), np.concatenate([none, *high]),
        np.concatenate([np.zeros(0), *weights]),
    )  # fmt: skip


def _axis(pool: Pool, field: int, demands: Sequence[Shape]) -> Axis:
    column = pool.columns[field]
    found = [column.distinct]
    for demand in demands:
        for leaf in _leaves(demand.predicate):
            if leaf.ref.field_id == field and leaf.ref.transform == "identity":
                found += [*_literals(leaf, demand.literals)]
    parts = [part for part in found if part.dtype.kind == column.distinct.dtype.kind and len(part)]
    values = np.unique(np.concatenate(parts))
    named = np.unique(np.concatenate(parts[1:])) if len(parts) > 1 else values[:0]
    if values.dtype.kind == "f":
        values = values[~np.isnan(values)]
    placed = np.searchsorted(values, column.distinct) + 1
    ranks = column.sort_ranks
    places = np.where(ranks < 0, 0, np.append(placed, len(values) + 1)[np.maximum(ranks, 0)])
    return Axis(values, places.astype(np.int64), np.isin(values, named))


def _leaves(node: Predicate) -> Iterator[Comparison | In | StartsWith]:
    match node:
        case And() | Or():
            for child in node.children:
                yield from _leaves(child)
        case Not():
            yield from _leaves(node.child)
        case Comparison() | In() | StartsWith():
            yield node


def _literals(leaf: Comparison | In | StartsWith, literals: Sequence[SlotLiterals]) -> list[Array]:
    values = literals[leaf.slot]
    if isinstance(leaf, In):
        flat = [one for row in values for one in (row if isinstance(row, tuple) else (row,))]
        return [np.array(flat, dtype=np.bytes_) if flat and isinstance(flat[0], bytes)
                else np.asarray(flat)]  # fmt: skip
    assert isinstance(values, np.ndarray)
    plain = scalar_literals(values)[0]
    if isinstance(leaf, StartsWith):
        after, exists = prefix_successors(plain)
        return [plain, after[exists]]
    return [plain]


@dataclass(frozen=True)
class _Part:
    """Boxes while they are made. Arrays as in `Boxes`."""

    query: Int64
    """int64[boxes]: the query of each box."""
    low: Int64
    """int64[boxes, columns]: as `Boxes.low`."""
    high: Int64
    """int64[boxes, columns]: as `Boxes.high`."""

    def take(self, index: Int64) -> _Part:
        return _Part(self.query[index], self.low[index], self.high[index])

    @property
    def alive(self) -> _Part:
        return self.take(np.flatnonzero((self.low < self.high).all(axis=1)))


def _boxes(demand: Shape, axes: Sequence[Axis], at: dict[int, int]) -> _Part:
    """Return the boxes of one shape's queries."""
    count = len(demand)
    ends = np.array([axis.end + 1 for axis in axes], dtype=np.int64)
    whole = _Part(
        np.arange(count), np.zeros((count, len(axes)), dtype=np.int64), np.tile(ends, (count, 1))
    )
    if not count or not demand.prunable:
        return whole
    found = _met(push_not(demand.predicate), whole, demand.literals, axes, at)
    order = np.argsort(found.query, kind="stable")
    return found.take(order)


def _met(
    node: Predicate,
    part: _Part,
    literals: Sequence[SlotLiterals],
    axes: Sequence[Axis],
    at: dict[int, int],
) -> _Part:
    """Return the boxes of `part` as far as they meet a condition."""
    match node:
        case Always():
            return part if node.value else part.take(np.zeros(0, dtype=np.int64))
        case And():
            for child in node.children:
                part = _met(child, part, literals, axes, at)
            return part
        case Or():
            parts = [_met(child, part, literals, axes, at) for child in node.children]
            joined = _Part(*(
                np.concatenate([getattr(one, name) for one in parts])
                for name in ("query", "low", "high")
            ))  # fmt: skip
            return joined if len(joined.query) <= MOST_BOXES * _queries(part) else part
        case First():
            return part
        case Not():
            leaf = node.child
            assert not isinstance(leaf, And | Or | Not | Always | First)  # `push_not` leaves none
            return _met_leaf(leaf, True, part, literals, axes, at)
        case _:
            return _met_leaf(node, False, part, literals, axes, at)


def _queries(part: _Part) -> int:
    return max(len(np.unique(part.query)), 1)


def _met_leaf(
    leaf: Comparison | In | StartsWith | IsNull | IsNaN,
    negated: bool,
    part: _Part,
    literals: Sequence[SlotLiterals],
    axes: Sequence[Axis],
    at: dict[int, int],
) -> _Part:
    number = at.get(leaf.ref.field_id)
    if number is None or leaf.ref.transform != "identity":
        return part
    axis, low, high = axes[number], part.low.copy(), part.high.copy()
    first, last = low[:, number], high[:, number]
    if isinstance(leaf, IsNull):
        np.maximum(first, 1 if negated else 0, out=first)
        np.minimum(last, axis.end + 1 if negated else 1, out=last)
    elif isinstance(leaf, IsNaN):
        np.minimum(last, axis.end if negated else axis.end + 1, out=last)
        np.maximum(first, 0 if negated else axis.end, out=first)
    elif negated or (isinstance(leaf, Comparison) and leaf.op == "!="):
        np.maximum(first, 1, out=first)
    elif isinstance(leaf, In):
        return _met_in(leaf, part, literals, axis, number)
    else:
        begin, end = _interval(leaf, literals, axis)
        np.maximum(first, begin[part.query], out=first)
        np.minimum(last, end[part.query], out=last)
    return replace(part, low=low, high=high).alive


def _interval(
    leaf: Comparison | StartsWith, literals: Sequence[SlotLiterals], axis: Axis
) -> tuple[Int64, Int64]:
    """Return the first place and the place after the last that meet a comparison, per query."""
    values = literals[leaf.slot]
    assert isinstance(values, np.ndarray)
    plain = scalar_literals(values)[0]
    below = np.searchsorted(axis.values, plain, side="left") + 1
    upto = np.searchsorted(axis.values, plain, side="right") + 1
    none, all_ = np.ones(len(plain), dtype=np.int64), np.full(len(plain), axis.end)
    if isinstance(leaf, StartsWith):
        after, exists = prefix_successors(plain)
        return below, np.where(exists, np.searchsorted(axis.values, after) + 1, axis.end)
    match leaf.op:
        case "<":
            return none, below
        case "<=":
            return none, upto
        case "=":
            return below, upto
        case ">":
            return upto, all_
        case _:
            return below, all_


def _met_in(
    leaf: In, part: _Part, literals: Sequence[SlotLiterals], axis: Axis, number: int
) -> _Part:
    """Return a box for each member, or one for the range of a long list."""
    values = literals[leaf.slot]
    begins, ends, counts = [], [], []
    for row in values:
        members = np.asarray(row if isinstance(row, tuple) else (row,))
        place = np.unique(np.searchsorted(axis.values, members) + 1)
        if not len(place):
            begins.append(np.ones(1, dtype=np.int64))
            ends.append(begins[-1])
        elif len(place) > MOST_MEMBERS:
            place = place[[0, -1]]
            begins.append(place[:1])
            ends.append(place[1:] + 1)
        else:
            begins.append(place)
            ends.append(place + 1)
        counts.append(len(begins[-1]))
    each = np.asarray(counts, dtype=np.int64)
    offset = np.concatenate(([0], np.cumsum(each)))
    if each[part.query].sum() > MOST_BOXES * _queries(part):  # of several lists: their ranges
        begins = [one[:1] for one in begins]
        ends = [one[-1:] for one in ends]
        offset = np.arange(len(each) + 1)
        each = np.ones_like(each)
    begin, end = np.concatenate(begins), np.concatenate(ends)
    times = each[part.query]
    made = part.take(np.repeat(np.arange(len(part.query)), times))
    inside = np.arange(len(made.query)) - np.repeat(np.cumsum(times) - times, times)
    member = offset[made.query] + inside
    made.low[:, number] = np.maximum(made.low[:, number], begin[member])
    made.high[:, number] = np.minimum(made.high[:, number], end[member])
    return made.alive


def thresholds(boxes: Boxes, number: int, most: int) -> Int64:
    """Return the places at which a column can be cut, ascending: the ends of the queries'
    intervals, the heaviest ones where there are too many.

    Of several that part the sampled rows alike one is kept (section 3.4: cuts are the queries' own
    predicates).
    """
    axis = boxes.axes[number]
    low, high = boxes.low[:, number], boxes.high[:, number]
    ends = np.concatenate((low[low > 0], high[high <= axis.end]))
    weight = boxes.weight[boxes.query]
    each = np.concatenate((weight[low > 0], weight[high <= axis.end]))
    places, index = np.unique(ends, return_inverse=True)
    heavy = np.bincount(index.reshape(-1), each, len(places))
    rows = np.sort(axis.places)
    below = np.searchsorted(rows, places, side="left")
    useful = (below > 0) & (below < len(rows))
    places, heavy, below = places[useful], heavy[useful], below[useful]
    kept = [
        begin + int(np.argmax(heavy[begin:end]))
        for begin, end in pairwise([*np.flatnonzero(np.diff(below, prepend=-1)), len(below)])
    ]
    places, heavy = places[kept], heavy[kept]
    if len(places) > most:
        places = np.sort(places[np.argsort(-heavy, kind="stable")[:most]])
    return places.astype(np.int64)


def cut_at(boxes: Boxes, number: int, place: int) -> Cut:
    """Return the cut of a column whose left side ends before a place.

    Values between two sampled ones may come later: of the literals on both sides of the place, the
    cut is at the one that a query names.
    """
    axis, field = boxes.axes[number], boxes.columns[number]
    if place == 1:
        return Cut(field, None)
    if place == axis.end:
        return Cut(field, float("nan"))  # only rows of floats are NaN
    above, below = place - 1, place - 2
    inclusive = bool(axis.literal[below]) and not bool(axis.literal[above])
    value = axis.values[below if inclusive else above].item()
    return Cut(field, value, inclusive)
