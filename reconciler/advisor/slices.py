"""Cuts a set of files that no budget could ever admit into slices that the tightest one can
(definitions: Budgets gate, and bound an action's size).

Each slice becomes an action with its own what-if. Slices are runs of files in the order of the
column that already orders the table best, else in order of arrival: neighbours in that order share
values, so that sorting a slice gives nearly what sorting everything would. The next plans merge
what slices left overlapping, where that pays.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reconciler.advisor.advice import Rejected
from reconciler.advisor.judge import rejected
from reconciler.advisor.situation import Situation
from reconciler.plan import reasons
from reconciler.plan.grouping import arrival_order, places
from reconciler.queries.rewrite_cost import WARMING, Rows
from reconciler.table.filetable import Float64, Int64
from reconciler.table.overlap_depth import depth_of, ranges_of

NATURAL = 0.33
"""A column orders the table if its values are in at most this share of the files on average."""

SORT = "sort"
"""The dearer kind of work, in whose CPU seconds slices are measured."""


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
    number[order] = _filled(share[order])
    parts = [rows[number == part] for part in range(int(number.max()) + 1)]
    return [part for part in parts if len(part) >= least]


def oversized(
    situation: Situation, rows: Int64, parts: Sequence[Int64], title: str
) -> list[Rejected]:
    """Return the files of `rows` that are in no slice because no budget can admit them."""
    alone = np.setdiff1d(rows, np.concatenate([rows[:0], *parts]))
    if not len(alone):
        return []
    return [rejected(situation, title, reasons.LARGER_THAN_BUDGET, "", alone)]


def in_one(situation: Situation, rows: Int64) -> bool:
    """Whether every budget can admit one action on all of these files."""
    return float(_shares(situation, rows).sum()) <= 1.0


def _shares(situation: Situation, rows: Int64) -> Float64:
    """Return the share of the tightest budget that each file takes, float64[rows]; 0 without
    one."""
    settings, time = situation.settings, situation.settings.throughput
    size = situation.table.bytes[rows].astype(np.float64)
    share = np.zeros(len(rows))
    if settings.most_bytes is not None:
        share = size / settings.most_bytes
    if settings.most_cpu_seconds is not None:
        fixed = time.cpu_seconds(SORT, 0, first=False)  # of each action
        opening = time.cpu_seconds(SORT, 0, files=1, first=False) - fixed
        left = settings.most_cpu_seconds - time.cpu_seconds(SORT, 0)
        # The key is not known yet: every text may be compared.
        text = situation.text_row_bytes(f.field_id for f in situation.table.schema.fields)
        if text is not None:  # a small action warms up less
            left = max(left, (settings.most_cpu_seconds - fixed) / (1.0 + WARMING))
        share = np.maximum(share, (opening + _cpu(situation, rows, text)) / max(left, 1e-9))
    return share


def _cpu(situation: Situation, rows: Int64, text: float | None) -> Float64:
    """Return the CPU seconds of sorting the rows of each file, float64[rows]."""
    time, many = situation.settings.throughput, 1 << 40
    if text is None:
        of, work = situation.table.bytes[rows], time.cpu_seconds(SORT, many, first=False)
    else:
        of = np.maximum(situation.table.records[rows], 0)
        work = time.cpu_seconds(SORT, 0, first=False, rows=Rows(many, many * text))
    return of.astype(np.float64) * (work - time.cpu_seconds(SORT, 0, first=False)) / many


def _filled(share: Float64) -> Int64:
    """Return the slice of each file: slices of about equal size, none above 1."""
    wanted = share.sum() / np.ceil(share.sum())
    number, held = 0, 0.0
    found = np.empty(len(share), dtype=np.int64)
    for place, own in enumerate(share.tolist()):
        if held and (held + own > 1.0 or held + own / 2.0 > wanted):
            number, held = number + 1, 0.0
        held += own
        found[place] = number
    return found


def places_of(situation: Situation, rows: Int64, key: Sequence[int]) -> Int64:
    """Return the place of each file in the order that slices follow."""
    table = situation.table
    arrival = places(arrival_order(table.path, table.sequence))[rows]
    column = table.columns.get(key[0] if key else _natural(situation))
    if column is None or not column.bounded[rows].all():
        return arrival
    bounds = np.concatenate((column.lower[rows], column.upper[rows]))
    low, high = np.split(np.unique(bounds, return_inverse=True)[1].reshape(-1), 2)
    return places(np.lexsort((arrival, low + high)))


def _natural(situation: Situation) -> int:
    """Return the column whose values are in the fewest files on average; -1 if none orders them."""
    table = situation.table
    best, least = -1, NATURAL * len(table)
    rows = np.maximum(table.records, 0)
    for field in sorted(table.columns):
        ranges = ranges_of(table, field)
        judged = np.flatnonzero(ranges.known)
        if len(judged) == len(table):
            mean = depth_of(ranges, judged, rows).mean
            best, least = (field, mean) if mean < least else (best, least)
    return best
