"""Decides which files to cluster by the Declared key (definitions: Declared drift).

Drift decides; the what-if only shows which queries lose. Each drifted set is its own action: if two
sets were sorted together, output files could span the range between them.
"""

from __future__ import annotations

import numpy as np

from reconciler.advisor.advice import Rejected
from reconciler.advisor.judge import (
    Candidate,
    planned_layout,
    readings_of,
    rejected,
    weigh,
    what_if,
)
from reconciler.advisor.keys import FULL_ROWS, wanted_columns
from reconciler.advisor.recluster import allowed
from reconciler.advisor.simulate.layout import Layout, Outcome, Written
from reconciler.advisor.simulate.pool import Pool, build_pool
from reconciler.advisor.situation import Situation, is_quiet
from reconciler.advisor.sizes import sized
from reconciler.advisor.slices import oversized, slices
from reconciler.plan import reasons
from reconciler.plan.drift import declared_drift
from reconciler.plan.ordering import Ordering
from reconciler.queries.table_view import TableView
from reconciler.table.filetable import Int64

MIN_FILES = 2


def declared_candidates(
    situation: Situation,
) -> tuple[list[tuple[Candidate, str]], list[Rejected]]:
    """Return (candidate, why) per drifted set, and what is left alone."""
    settings = situation.settings
    found: list[tuple[Candidate, str]] = []
    turned: list[Rejected] = []
    free, quiet = allowed(situation), is_quiet(situation)
    moved = situation.moving | situation.taken
    title = f"cluster by {settings.ordering.text(situation.table.schema)}"
    for decision in declared_drift(situation.table, settings.ordering, settings.min_input_files):
        rows = decision.files[free[decision.files]]
        if not decision.rewrite:
            turned.append(rejected(situation, title, reasons.DRIFT_WAITS, decision.reason, rows))
        elif len(rows) < MIN_FILES:
            if not (quiet | moved)[decision.files].any():  # else it is reported elsewhere
                reason = reasons.NOT_REWRITABLE
                turned.append(rejected(situation, title, reason, "", decision.files))
        else:
            lead = [column.field_id for column in settings.ordering.key]
            parts = slices(situation, rows, lead, MIN_FILES)
            turned += oversized(situation, rows, parts, title)
            for part in parts:
                made = declared_what_if(situation, np.sort(part), settings.ordering)
                found.append((made, decision.reason))
    return found, turned


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
        made = sized(situation, (made, layout, outcome), pool, files=files)[0]
    return made


def _pool(situation: Situation, rows: Int64, ordering: Ordering) -> Pool | None:
    if not situation.demands:
        return None
    columns = sorted({*wanted_columns(situation), *(column.field_id for column in ordering.key)})
    return build_pool(situation.part(rows), columns, FULL_ROWS)


def _unchanged(situation: Situation, rows: Int64, layout: Layout) -> Outcome:
    """Assume unchanged reads and files by size alone, because nothing shows the order of rows."""
    part: TableView = situation.part(rows)
    count = int(layout.files_of(part.files.live_bytes.sum()))
    return Outcome(readings_of(situation, rows), Written((part,), count, "none"))
