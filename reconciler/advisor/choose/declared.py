"""Decides which files to cluster by the Declared key
(docs/design/definitions.md#declared-drift).

Drift decides, between files and between the row groups of one file; the what-if only shows which
queries lose. Each drifted set is its own action, or neighbours are one that would be small files
apart (`joined`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from reconciler.advisor.advice import Rejected
from reconciler.advisor.choose.joined import joined
from reconciler.advisor.choose.keys import FULL_ROWS, wanted_columns
from reconciler.advisor.choose.recluster import allowed
from reconciler.advisor.choose.sizes import Simulated, sized
from reconciler.advisor.choose.slices import oversized, slices
from reconciler.advisor.judge.candidate import (
    Candidate,
    planned_layout,
    readings_of,
    refusal,
    rejected,
    weigh,
    what_if,
)
from reconciler.advisor.judge.runs import nothing_new
from reconciler.advisor.simulate.layout import UNKNOWN_FILES, Layout, Outcome, Written
from reconciler.advisor.simulate.pool import Pool, build_pool
from reconciler.advisor.situation import Situation
from reconciler.format import plural
from reconciler.plan import reasons
from reconciler.plan.drift import Drift
from reconciler.plan.ordering import Ordering
from reconciler.queries.table_view import TableView
from reconciler.table.filetable import Int64

MIN_FILES = 2

MOST_FOOTERS = 128
"""Footers that one plan reads to see whether files are sorted inside."""


def declared_candidates(
    situation: Situation,
) -> tuple[list[tuple[Candidate, str]], list[Rejected]]:
    """Return (candidate, why) per drifted set, and what is too large to be sorted."""
    settings = situation.settings
    found: list[tuple[Candidate, str]] = []
    rejections: list[Rejected] = []
    free = allowed(situation)
    title = f"cluster by {settings.ordering.text(situation.table.schema)}"
    drifted: list[Drift] = []
    for decision in situation.facts.drifts.between:
        rows = decision.files[free[decision.files]]
        if decision.rewrite and len(rows) >= MIN_FILES:  # else it is reported elsewhere why
            drifted.append(replace(decision, files=rows))
    lead = [column.field_id for column in settings.ordering.key]
    sets = joined(situation, drifted)
    for rows in _unsorted_inside(situation, [decision.files for decision in sets]):
        parts = slices(situation, rows)
        rejections += oversized(situation, rows, parts, title)
        for part in parts:
            why = f"the row groups of {plural(len(part), 'file')} overlap"
            found.append((declared_what_if(situation, np.sort(part), settings.ordering), why))
    for decision in sets:
        parts = slices(situation, decision.files, lead, MIN_FILES)
        rejections += oversized(situation, decision.files, parts, title)
        for part in parts:
            made = declared_what_if(situation, np.sort(part), settings.ordering)
            found.append((made, decision.reason))
    return found, rejections


def waiting(situation: Situation) -> list[Rejected]:
    """Return the drifted files that wait for more of them, one entry for each reason. A file that
    the plan rewrites does not wait, whichever action has it."""
    free = allowed(situation)
    files: dict[str, list[Int64]] = {}
    for decision in situation.facts.drifts.between:
        rows = decision.files[free[decision.files]]
        if not decision.rewrite and len(rows):
            files.setdefault(decision.reason, []).append(rows)
    title = f"cluster by {situation.settings.ordering.text(situation.table.schema)}"
    return [
        rejected(situation, title, reasons.DRIFT_WAITS, why, np.unique(np.concatenate(rows)))
        for why, rows in files.items()
    ]


def resized(situation: Situation) -> list[tuple[Candidate, str]]:
    """Return (candidate, why) for files that follow the key, but whose sizes or row groups cost the
    recorded queries more than another rewrite. The rules are those of reclustering.

    Files with deletes are left to the maintenance of deletes: a rewrite would save those as well,
    and pass for one that other sizes pay for.
    """
    settings, view = situation.settings, situation.facts.view
    if view.group_file is None or not situation.trusted:
        return []
    rows = _alone(situation, np.setdiff1d(view.group_file, situation.facts.drifts.inside))
    rows = rows[situation.table.delete_files[rows] + situation.table.equality_deletes[rows] == 0]
    partition, spent = situation.table.partition[rows], situation.spent.cost
    found: list[tuple[Candidate, str]] = []
    for number in np.unique(partition):
        for part in slices(situation, rows[partition == number]):
            made = declared_what_if(situation, np.sort(part), settings.ordering)
            known = nothing_new(situation, made.rows, settings.ordering)
            if known or made.label == "bound" or refusal(situation, made, spent) is not None:
                continue
            spent += made.cost
            found.append((made, str(reasons.times_cost(made.saving_low, made.cost))))
    return found


def footers_to_read(situation: Situation) -> Int64:
    """Return files that may be unsorted inside, of which no footer is known: those of other writers
    first, then the largest. In a table of many files only those larger than a row group."""
    settings, table = situation.settings, situation.table
    if settings.mode != "Declared" or not settings.ordering.key or situation.facts.refused:
        return np.zeros(0, dtype=np.int64)
    view = situation.facts.view
    known = np.zeros(0, dtype=np.int64) if view.group_file is None else view.group_file
    least = view.row_group_bytes if len(table) > MOST_FOOTERS else 0
    large = np.flatnonzero(table.bytes > least)
    rows = np.setdiff1d(_alone(situation, large), known)
    order = np.lexsort((rows, -table.bytes[rows], table.layout_written[rows]))
    return np.sort(rows[order[:MOST_FOOTERS]])


def _unsorted_inside(situation: Situation, sets: Sequence[Int64]) -> list[Int64]:
    """Return, per partition, the files that no other file overlaps and whose own row groups do not
    follow the key. Only footers show it. sets: files that are sorted together, small ones beside
    overlapping ones among them."""
    rows = _alone(situation, situation.facts.drifts.inside)
    rows = np.setdiff1d(rows, np.concatenate([rows[:0], *sets]))
    partition = situation.table.partition[rows]
    return [rows[partition == number] for number in np.unique(partition)]


def _alone(situation: Situation, rows: Int64) -> Int64:
    """Return those of the files that may be rewritten and that no drift between files concerns."""
    named = [decision.files for decision in situation.facts.drifts.between]
    rows = rows[allowed(situation)[rows]]
    return np.setdiff1d(rows, np.concatenate([rows[:0], *named]))


def declared_what_if(
    situation: Situation, rows: Int64, ordering: Ordering, files: bool = True
) -> Candidate:
    """The rewrite with what each shape reads afterwards, as far as sample or bounds tell. files:
    whether it may choose the size of files."""
    layout = planned_layout(situation, rows, ordering)
    before = readings_of(situation, rows)
    pool = _pool(situation, rows, ordering)
    outcome = what_if(situation, rows, layout, pool)
    if outcome is None:
        outcome = _unchanged(situation, rows, layout)
    made = weigh(situation, rows, layout, before, outcome)
    if pool is not None and outcome.written.label != "bound":
        simulated = Simulated(made, layout, outcome)
        made = sized(situation, simulated, pool, files=files).candidate
    return made


def _pool(situation: Situation, rows: Int64, ordering: Ordering) -> Pool | None:
    if not situation.expected.demands:
        return None
    asked = {*wanted_columns(situation), *situation.expected.guarded}
    columns = sorted({*asked, *(column.field_id for column in ordering.key)})
    return build_pool(situation.part(rows), columns, FULL_ROWS)


def _unchanged(situation: Situation, rows: Int64, layout: Layout) -> Outcome:
    """Assume unchanged reads and files by size alone, because nothing shows the order of rows."""
    part: TableView = situation.part(rows)
    count = int(layout.files_of(part.files.live_bytes.sum()))
    return Outcome(readings_of(situation, rows), Written((part,), count, UNKNOWN_FILES))
