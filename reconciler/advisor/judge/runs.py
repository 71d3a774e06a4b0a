"""Keeps bytes from being rewritten again for every append (size-tiered merges of an LSM tree).

A run is what one plan of ours wrote: its files are in the order of a key, and every new file
overlaps all of them. Sorting new files into the run saves a query one reading of each, but only
until the next files arrive. A run is therefore sorted again by its own key only if the result is at
least GROWTH times as large as the run. A byte is then rewritten O(log n) times, and a query reads
O(log n) runs. See the logarithmic method of Bentley and Saxe, "Decomposable searching problems I:
static-to-dynamic transformation", section 2, and size-tiered compaction.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reconciler.advisor.choose.slices import in_one
from reconciler.advisor.situation import Situation
from reconciler.plan.drift import declared_drift
from reconciler.plan.execution import plan_of_file, plans_of_files
from reconciler.plan.leaf_drift import leaves_met, meets
from reconciler.plan.ordering import Ordering
from reconciler.table.cut_tree import Tree
from reconciler.table.filetable import UNKNOWN, Array, FileTable, Int64
from reconciler.table.overlap_depth import depth_of, ranges_of

GROWTH = 8.0
"""A run is sorted again if the result is at least so many times as large."""

GATHERED = 3.0
"""New files are sorted beside a run if they are so many times as large as the largest of them."""

SETTLED = 64.0
"""Multiple of its cost that a rewrite saves if queries cannot wait for the growth: it pays back
within hours."""

SEVERAL = 1.5
"""Mean number of files that hold a key from which on they are several runs, and not one whose
slices meet in some files."""

ALIKE = 1.5
"""Leaves that the files of a run meet at most, of the root of all leaves, to be in a tree like the
one that was found now."""

BANDS_ALIKE = 3.0
"""Files of a run that hold a value of the column that sorts bands, at most, for each band that the
run has rows of: half and twice as many bands are alike."""

MOST_TIERS = 6
"""Sets of runs that are tried, the largest first."""


def merged_runs(situation: Situation, rows: Int64, ordering: Ordering) -> list[Int64]:
    """Return the runs among the files that are in the order of the key already."""
    return [run for run in runs_of(situation, rows) if _in_order(situation, run, ordering)]


def grows(situation: Situation, rows: Int64, runs: Sequence[Int64]) -> bool:
    """Whether a rewrite of these files of one partition, of which `runs` are in its order already,
    merges enough data."""
    table = situation.table
    mine = table.partition == table.partition[rows[0]]
    if not (situation.facts.present & mine).any():
        return True
    total = _bytes(situation, rows)
    fresh = rows[~situation.facts.present[rows]]
    if len(fresh) and total < GATHERED * float(table.bytes[fresh].max()):
        return False
    return all(total >= GROWTH * _bytes(situation, run) for run in runs)


def nothing_new(situation: Situation, rows: Int64, ordering: Ordering) -> bool:
    """Whether these files of one partition are the result of the same queries and settings already.

    The plan that wrote them knew what is known now. Another order for some of them would correct
    its estimate at the cost of a second rewrite of the same bytes. Only what a plan that a budget
    cut into slices could not do is left for the next one: to merge the runs that its slices became.
    """
    table, bases = situation.table, situation.settings.bases
    mine = np.flatnonzero(table.partition == table.partition[rows[0]])
    if not in_one(situation, mine) and _overlapping(table.take(rows), ordering):
        return False
    plans = authors(table, rows)
    return bool(plans) and all(situation.expected.basis in bases.get(plan, ()) for plan in plans)


def authors(table: FileTable, rows: Int64) -> set[str]:
    """Return the plans that wrote these files, "" for files of others. Empty: deletes came since,
    so the files are no longer what was written."""
    if table.position_deleted[rows].any() or table.equality_deletes[rows].any():
        return set()
    return set(_writers(table)[rows].tolist())


def _writers(table: FileTable) -> Array:
    """The plan that wrote each file, "" for another writer's, object[files]."""
    known: Array | None = table.derived.get("writers")
    if known is None:
        known = np.array(plans_of_files(table.path.tolist()), dtype=object)
        table.derived["writers"] = known
    return known


def _overlapping(files: FileTable, ordering: Ordering) -> bool:
    """Whether the files are several runs over the same range of the key; of a curve, whose range
    files do not show, whatever they are."""
    if ordering.lead is None:
        return True
    return _depth(files, ordering.lead.field_id) >= SEVERAL


def tiers(situation: Situation, rows: Int64) -> list[Int64]:
    """Return the sets of files that may be merged, the largest first: all, then the new files with
    the smaller runs.

    A set whose largest run would not grow enough is left out, other than the whole.
    """
    runs = sorted(runs_of(situation, rows), key=lambda run: (_bytes(situation, run), run.tolist()))
    found = [rows]
    kept = rows
    for place in range(len(runs) - 1, -1, -1):
        kept = np.setdiff1d(kept, runs[place])
        largest = _bytes(situation, runs[place - 1]) if place else 0.0
        if len(kept) > 1 and _bytes(situation, kept) >= GROWTH * largest:
            found.append(kept)
    return found[:MOST_TIERS]


def runs_of(situation: Situation, rows: Int64) -> list[Int64]:
    """Return those of the files that we wrote for the present queries, by the plan that did."""
    mine = rows[situation.facts.present[rows]]
    names = _plans(situation, mine)
    return [mine[names == name] for name in np.unique(names)]


def _plans(situation: Situation, rows: Int64) -> Int64:
    """Return a number for the plan that wrote each file. Files of one commit have one plan;
    their time shows the commit where their path does not."""
    table, number = situation.table, dict[str, int]()
    times, first, inverse = np.unique(table.added_ms[rows], return_index=True, return_inverse=True)
    of_time = np.zeros(len(times), dtype=np.int64)
    for place, (at, row) in enumerate(zip(times.tolist(), rows[first].tolist(), strict=True)):
        plan = plan_of_file(str(table.path[row])) or f"at {at}"
        of_time[place] = number.setdefault(plan, len(number))
    found: Int64 = of_time[inverse.reshape(-1)]
    for place in np.flatnonzero(table.added_ms[rows] == UNKNOWN).tolist():
        plan = plan_of_file(str(table.path[rows[place]]))
        found[place] = number.setdefault(plan, len(number))
    return found


def _in_order(situation: Situation, run: Int64, ordering: Ordering) -> bool:
    """Whether the files of a run are in the order of the key already.

    A tree is found again at each plan, with other cuts: a run is in its order if it is in that of a
    tree like it, so that its files meet few leaves. One that is sorted by a column meets most. In
    bands, the files have to be sorted by their other column too.
    """
    tree = ordering.tree
    if tree is not None:
        met = leaves_met(situation.table, tree, run)
        each = np.average(met, weights=np.maximum(situation.table.records[run], 1))
        alike = float(each) <= ALIKE * float(np.sqrt(tree.leaves))
        return alike and (
            tree.bands is None or _sorted_in_bands(situation, run, tree, tree.bands[1])
        )
    drift = declared_drift(situation.table.take(run), ordering, 2)
    return not any(found.rewrite for found in drift)


def _sorted_in_bands(situation: Situation, run: Int64, tree: Tree, sorted_by: int) -> bool:
    """Whether about as many files of the run hold a value of the column that sorts bands as bands
    have files of the run."""
    bands = int(np.count_nonzero(meets(situation.table, tree, run).any(axis=0)))
    return _depth(situation.table.take(run), sorted_by) <= BANDS_ALIKE * bands


def _depth(files: FileTable, field_id: int) -> float:
    """Return the mean number of files that hold a value of the column."""
    ranges = ranges_of(files, field_id)
    judged = np.flatnonzero(ranges.known)
    return float(depth_of(ranges, judged, np.maximum(files.records, 0)).mean)


def _bytes(situation: Situation, rows: Int64) -> float:
    return float(situation.table.bytes[rows].sum())
