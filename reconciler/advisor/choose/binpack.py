"""Decides which small files to merge with neighbours in key order
(docs/design/definitions.md#small-file).

Size tiers come from plan.small_files. If fragments are known, a merge is vetoed when queries would
read more and fewer opened files do not make up for it. With a trusted workload it also has to pay
back, unless an objective on file count or size forces it, and the files are sorted instead where a
key of the queries saves more than sorting adds. Without a workload, it is drift.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from reconciler.advisor.advice import Rejected
from reconciler.advisor.choose.declared import declared_what_if
from reconciler.advisor.choose.keys import wanted_columns
from reconciler.advisor.choose.next_merges import then
from reconciler.advisor.choose.recluster import allowed, sorted_together
from reconciler.advisor.choose.slices import oversized, slices
from reconciler.advisor.judge.candidate import (
    Candidate,
    WhyNot,
    planned_layout,
    readings_of,
    refusal,
    rejected,
    weigh,
)
from reconciler.advisor.judge.room import added_by
from reconciler.advisor.simulate.whatif import simulate
from reconciler.advisor.situation import Situation
from reconciler.plan import reasons
from reconciler.plan.drift import Drift
from reconciler.plan.ordering import ARRIVAL, Lexicographic, Ordering
from reconciler.plan.sentence import sentence
from reconciler.plan.small_files import LARGEST_SHARE, small_files, small_mask
from reconciler.queries.rewrite_cost import MORE_TO_SORT
from reconciler.table.filetable import Bool, FileTable, Int64
from reconciler.table.overlap_depth import depth_of, ranges_of
from reconciler.table.schema import SortColumn

ORDERED = 0.5
"""A column orders the files if at most this share of them contains a given value."""

WITH_REWRITTEN = "they do not pay for a place in the rewrite of their neighbours"
"""Why small files are not merged that could be merged with what another action leaves."""


@dataclass(frozen=True)
class Packed:
    """What becomes of the small files."""

    merged: tuple[tuple[Candidate, str], ...]
    """Sets of files to merge, each with the reason for people."""
    in_order: tuple[Candidate, ...]
    """Sets of files that are sorted instead."""
    rejected: tuple[Rejected, ...]
    """Sets of files that stay as they are."""


def bin_pack_candidates(situation: Situation, forced: bool, spent: float) -> Packed:
    """Return what becomes of the small files. forced: by an objective."""
    ordering, decisions = _sets(situation, forced)
    found: list[tuple[Candidate, str]] = []
    in_order: list[Candidate] = []
    rejections: list[Rejected] = []
    for decision in decisions:
        if not decision.rewrite:
            continue
        lead = [column.field_id for column in ordering.key]
        parts = slices(situation, decision.files, lead, min(2, len(decision.files)))
        rejections += oversized(situation, decision.files, parts, "bin-pack")
        for part in parts:
            candidate, why_not = _best(situation, np.sort(part), ordering, forced, spent)
            better = _sorted_instead(situation, candidate, why_not, spent)
            if better is not None:
                in_order.append(better)
                exposed = situation.spent.exposed + added_by(situation, [better])
                situation = situation.after(replace(situation.spent, exposed=exposed))
                saved = reasons.times_cost(candidate.saving_low, candidate.cost)
                why_not = why_not or WhyNot(reasons.OTHER_KEY, saved)
                spent += better.cost
            if why_not is None:
                found.append((candidate, decision.reason))
                spent += candidate.cost
            else:
                title = sentence("bin-pack ", str(len(part)), " files")
                rejections.append(rejected(situation, title, *why_not, part, candidate))
    rejections += _left_alone(situation, [d for d in decisions if not d.rewrite])
    return Packed(tuple(found), tuple(in_order), tuple(rejections))


def _sets(situation: Situation, forced: bool) -> tuple[Ordering, list[Drift]]:
    """Return the order in which small files are merged, and the sets of them, as the table is once
    the actions that were chosen before are done."""
    settings, after = situation.settings, then(situation, situation.spent.left)
    ordering, free = packing_order(after.situation), allowed(situation)
    waiting = free.copy()
    for left in situation.spent.left:
        waiting[left.rows] = True  # what is left of them is small or not
    found: list[Drift] = []
    for one in small_files(
        after.situation.table, settings.target_bytes, settings.min_input_files, key=ordering.key,
        taken=np.flatnonzero(~waiting[after.row_of]),
        largest_share=1.0 if forced else LARGEST_SHARE, aimed=after.aimed,
    ):  # fmt: skip
        files = after.row_of[one.files]
        own = np.sort(files[free[files]])
        if len(own) == len(files):
            found.append(replace(one, files=own))
        elif len(own):
            why = WITH_REWRITTEN if one.rewrite else one.reason
            found.append(replace(one, files=own, rewrite=False, reason=why))
    return ordering, found


def _sorted_instead(
    situation: Situation, merged: Candidate, why_not: WhyNot | None, spent: float
) -> Candidate | None:
    """Return a sort of the same files that passes, if it is worth more than the merge.

    What reclustering counts of a file is the bytes that queries may skip, because large files gain
    nothing else by a sort. Small ones become fewer as well.
    """
    if not situation.settings.by_workload or not situation.trusted:
        return None
    skipped = float(situation.expected.savings.saving[merged.rows].sum())
    if skipped <= MORE_TO_SORT * merged.cost:
        return None
    better = sorted_together(situation, merged.rows, spent)
    if better is None or why_not is not None:
        return better
    more = better.saving_low - merged.saving_low
    return better if more > MORE_TO_SORT * merged.cost else None


def packing_order(situation: Situation) -> Ordering:
    """By the Declared key, else by the filtered (or any) column that orders the files best."""
    settings = situation.settings
    if settings.mode == "Declared" and settings.ordering.key:
        return settings.ordering
    table = situation.table
    columns = [c for c in wanted_columns(situation) if c in table.columns] or sorted(table.columns)
    depth, best = min(((_depth(table, column), column) for column in columns), default=(np.inf, 0))
    if depth >= ORDERED * max(len(table), 1):
        return ARRIVAL
    return Lexicographic((SortColumn(best),))


def _depth(table: FileTable, column: int) -> float:
    """Return how many files hold a value of the column on average, found once for a table;
    infinite where not all ranges are known."""
    known: dict[int, float] = table.derived.setdefault("packing depths", {})
    if column not in known:
        ranges = ranges_of(table, column)
        judged = np.flatnonzero(ranges.known)
        known[column] = np.inf
        if len(judged) == len(table):
            known[column] = depth_of(ranges, judged, np.maximum(table.records, 0)).mean
    return known[column]


def _best(
    situation: Situation,
    rows: Int64,
    ordering: Ordering,
    forced: bool,
    spent: float,
) -> tuple[Candidate, WhyNot | None]:
    """Merge in key order, or in the files' own order if only that passes."""
    first: tuple[Candidate, WhyNot | None] | None = None
    for wanted in dict.fromkeys((ordering, ARRIVAL)):
        candidate = merge_what_if(situation, rows, wanted)
        why_not = _veto(situation, candidate, forced, spent)
        if why_not is None:
            return candidate, None
        first = first or (candidate, why_not)
    assert first is not None
    return first


def _veto(situation: Situation, candidate: Candidate, forced: bool, spent: float) -> WhyNot | None:
    if not situation.expected.demands:
        return None
    if candidate.saving < 0.0:
        return WhyNot.plain(reasons.RAISES_READS)
    if not situation.settings.by_workload or not situation.trusted or forced:
        return None
    return refusal(situation, candidate, spent)


def merge_what_if(situation: Situation, rows: Int64, ordering: Ordering) -> Candidate:
    """Return the files merged in the order of a key, or concatenated in order of arrival.

    They get the table's own size: their neighbours, which stay, have it.
    """
    if ordering.key:
        return declared_what_if(situation, rows, ordering, files=False)
    layout = planned_layout(situation, rows, ARRIVAL)
    outcome = simulate(layout, situation.part(rows), situation.expected.demands)
    assert outcome is not None  # whole files can always be merged
    return weigh(situation, rows, layout, readings_of(situation, rows), outcome)


def _left_alone(situation: Situation, refused: Sequence[Drift]) -> list[Rejected]:
    """Return the small files that are not merged, one entry per reason."""
    rejections = []
    for why in dict.fromkeys(drift.reason for drift in refused):
        group = [drift for drift in refused if drift.reason == why]
        rows = np.sort(np.concatenate([drift.files for drift in group]))
        title = f"{len(rows)} small files in {len(group)} partition" + "s" * (len(group) > 1)
        rejections.append(rejected(situation, title, reasons.TOO_FEW_FILES, why, rows))
    return rejections


def small_files_mask(situation: Situation) -> Bool:
    """bool[files]: small and mergeable, as the objectives count them."""
    settings = situation.settings
    key = packing_order(situation).key
    return small_mask(
        situation.table, settings.target_bytes, settings.min_input_files, key=key,
        aimed=situation.aimed,
    )  # fmt: skip


def forced_by_objectives(situation: Situation) -> bool:
    """Whether an objective on file count or on small files fails now."""
    wanted = situation.settings.objectives
    count = len(situation.table)
    if wanted.max_file_count is not None and count > wanted.max_file_count:
        return True
    if wanted.max_small_file_percent is None or not count:
        return False
    small = 100.0 * float(small_files_mask(situation).sum()) / count
    return small > wanted.max_small_file_percent
