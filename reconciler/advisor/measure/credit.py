"""Measures what later queries did not read because files were rewritten (WAIR section 4.3).

Room and debt (Eq. 2 and 5) are earned by queries that ran after a commit, never by the commit. Each
later query is replayed against the files that a rewrite replaced and against those that it wrote.
What cannot be known is a bound: the ledger's lower one is what decisions spend.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from reconciler.queries.pruning import simplify
from reconciler.queries.read_cost import read_shape
from reconciler.queries.shape import Shape
from reconciler.queries.table_view import OPEN_BYTES, TableView, table_view
from reconciler.table.filetable import Bool, FileTable, Float64, Int64

NEVER = np.iinfo(np.int64).max
"""The time at which a file stops being live that is live now."""


@dataclass(frozen=True)
class PastRewrite:
    """One commit of ours that replaced data files. Arrays have shape [files of `after`]."""

    plan_id: str
    """Id of the plan that it belongs to."""
    since_ms: int
    """When it was committed, in epoch milliseconds; only later queries earn a saving."""
    before: tuple[FileTable, ...]
    """The files that it replaced, a table for each of its actions."""
    after: FileTable
    """The files that it wrote."""
    replaced_ms: Int64
    """int64[files]: when a later rewrite of ours replaced the file, in epoch milliseconds; NEVER if
    none did."""
    lost_after_ms: Int64
    """int64[files]: time after which another writer removed the file, or what replaced it, in epoch
    milliseconds; NEVER if none did."""
    lost_by_ms: Int64
    """int64[files]: time by which that writer had removed it, in epoch milliseconds; NEVER if none
    did."""


@dataclass(frozen=True, slots=True)
class Credit:
    """What later queries did not read, in bytes of reading, with the cost of opening files.

    A value is negative if queries read more. The two bounds are equal where everything is known.
    """

    least: float
    """Lower bound of what was saved while the written files were live."""
    most: float
    """Upper bound of what was saved while the written files were live."""
    table_least: float
    """Lower bound that also counts the time after later rewrites of ours replaced these files. The
    sum over all rewrites is what was saved against the table that nobody rewrote."""
    table_most: float
    """Upper bound of the same."""
    queries: float
    """Number of executions that were replayed."""
    unknown: float
    """Number of executions whose conditions are not known, which earn nothing."""
    since_ms: int
    """Time after which queries count, in epoch milliseconds."""
    until_ms: int
    """Time of the last counted query, in epoch milliseconds; `since_ms` without any."""

    @property
    def exact(self) -> bool:
        return self.least == self.most and not self.unknown

    @property
    def table_exact(self) -> bool:
        return self.table_least == self.table_most and not self.unknown

    @property
    def none_ran(self) -> bool:
        """Whether no query has run since, which is not a saving of 0."""
        return not self.queries and not self.unknown

    def plus(self, other: Credit) -> Credit:
        return Credit(
            self.least + other.least, self.most + other.most,
            self.table_least + other.table_least, self.table_most + other.table_most,
            self.queries + other.queries, self.unknown + other.unknown,
            min(self.since_ms, other.since_ms), max(self.until_ms, other.until_ms),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Price:
    """The prices by which reading is counted."""

    open_bytes: int = OPEN_BYTES
    """Cost of opening a file, in bytes of reading."""
    row_group_bytes: int = 128 << 20
    """Bytes of a row group in files whose footer is not known."""


def written(
    plan_id: str, since_ms: int, before: tuple[FileTable, ...], after: FileTable
) -> PastRewrite:
    """Return a rewrite whose files are all live."""
    never = np.full(len(after), NEVER, dtype=np.int64)
    return PastRewrite(plan_id, since_ms, before, after, never, never, never)


def credit_of(rewrite: PastRewrite, shapes: Sequence[Shape], price: Price) -> Credit:
    """Return what the queries after the commit did not read because of it.

    For itself, a rewrite earns while its files are live. For the table it also counts when a later
    rewrite of ours has replaced them: that one was measured against them, so that only both
    together give what was saved, and spoiling and repairing a layout earns nothing.
    """
    total = Credit(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, rewrite.since_ms, rewrite.since_ms)
    for start, end in _spans(rewrite):
        inside = [part for one in shapes if len(part := one.since(start + 1, end))]
        if inside:
            total = total.plus(_span_credit(rewrite, inside, start, price))
    return total


def _spans(rewrite: PastRewrite) -> list[tuple[int, int]]:
    """Return the times between which the same of the written files are live: (after, until]."""
    changes = np.concatenate([rewrite.replaced_ms, rewrite.lost_after_ms, rewrite.lost_by_ms])
    inner = np.unique(changes[(changes > rewrite.since_ms) & (changes < NEVER)]).tolist()
    edges = [rewrite.since_ms, *inner, NEVER]
    return list(pairwise(edges))


def _span_credit(
    rewrite: PastRewrite, queries: Sequence[Shape], start: int, price: Price
) -> Credit:
    """Return what the queries of a time in which the same files were live did not read."""
    lost = rewrite.lost_by_ms <= start
    doubtful = (rewrite.lost_after_ms <= start) & ~lost
    live = rewrite.replaced_ms > start
    known = [one for one in queries if not one.full_scan and one.unbound is None]
    own, table = np.zeros(2), np.zeros(2)
    for demand in _demands(known, rewrite.after):
        own += _bounds(rewrite, demand, live & ~lost, doubtful, price)
        table += _bounds(rewrite, demand, ~lost, doubtful, price)
    counted = float(sum(one.weight.sum() for one in known))
    unknown = float(sum(one.weight.sum() for one in queries)) - counted
    last = max(int(one.event_ms.max()) for one in queries)
    (least, most), (table_least, table_most) = own.tolist(), table.tolist()
    return Credit(least, most, table_least, table_most, counted, unknown, rewrite.since_ms, last)


def _demands(queries: Sequence[Shape], files: FileTable) -> list[Shape]:
    """Return the queries by the columns that they read and by shape, none merged or left out."""
    found = [
        (fields, one.shape_id, replace(part, predicate=simplify(one.predicate, files.schema)))
        for one in queries
        for fields, part in one.by_columns()
    ]
    return [part for *_, part in sorted(found, key=lambda item: item[:2])]


def _bounds(
    rewrite: PastRewrite, demand: Shape, kept: Bool, doubtful: Bool, price: Price
) -> Float64:
    """Return bounds of what the queries did not read because of the kept files: float64[2].

    doubtful: bool[files], those of which it is not known whether they were still live.
    """
    least, most = _saved(rewrite, demand, kept, price)
    if (kept & doubtful).any():
        low, high = _saved(rewrite, demand, kept & ~doubtful, price)
        least, most = np.minimum(least, low), np.maximum(most, high)
    return np.array([demand.weight @ least, demand.weight @ most])


def _saved(
    rewrite: PastRewrite, demand: Shape, kept: Bool, price: Price
) -> tuple[Float64, Float64]:
    """Return bounds of what each query reads less of the kept files than of the replaced files that
    held their rows.

    Which of the replaced files held the rows of the kept ones is not known: all of those that the
    query read, or as few as the other rows leave.
    """
    if len(kept) and not kept.any():
        nothing = np.zeros(len(demand))
        return nothing, nothing
    now = _cost(rewrite.after.take(kept), demand, price)
    then = _costs(rewrite.before, demand, price)
    if kept.all():
        return then - now, then - now
    rows = rewrite.after.records
    gone = 1.0 - float(rows[kept].sum()) / max(float(rows.sum()), 1.0)
    whole = _costs(rewrite.before, replace(demand, full_scan=True), price)
    return np.maximum(then - gone * whole, 0.0) - now, then - now


def _costs(parts: Sequence[FileTable], demand: Shape, price: Price) -> Float64:
    total = np.zeros(len(demand))
    for files in parts:
        total += _cost(files, demand, price)
    return total


def _cost(files: FileTable, demand: Shape, price: Price) -> Float64:
    if not len(files):
        return np.zeros(len(demand))
    view: TableView = table_view(files, None, None, price.row_group_bytes, price.open_bytes)
    return read_shape(view, demand).cost
