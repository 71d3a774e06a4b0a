"""Why delete files stay as they are."""

from __future__ import annotations

import numpy as np

from reconciler.advisor.deletes.limits import under
from reconciler.advisor.deletes.minor import Minor
from reconciler.advisor.judge.candidate import WhyNot
from reconciler.advisor.situation import Situation, unfit_files
from reconciler.plan import reasons
from reconciler.plan.sentence import sentence


def refusal(situation: Situation, made: Minor) -> WhyNot | None:
    """Return why the maintenance waits, None if it is to be done now."""
    settings, table = situation.settings, situation.table
    if _reads_refused(situation, made):
        return WhyNot(reasons.REFUSED_FILES, sentence("it would read files that are refused"))
    why_not = unnamed_refusal(situation)
    if why_not is not None:
        return why_not
    for unfit in unfit_files(situation.given):
        if made.converts and not unfit.readable and np.isin(unfit.rows, made.rows).any():
            return WhyNot(unfit.reason, sentence(f"it would read {unfit.why}"))
    conflicting = np.isin(table.partition[made.rows], sorted(settings.deletes.conflicting))
    if conflicting.any():
        return WhyNot.plain(reasons.QUIET_PERIOD)
    if needed_by_objective(situation, made) or _crowded(situation, made):
        return None
    if not (situation.trusted and situation.expected.burden.reads[made.rows].any()):
        return WhyNot(reasons.FEW_DELETE_FILES, sentence(
            "at most ", str(most_per_file(situation, made)), " delete files for a data file; "
            f"minInputFiles {settings.min_input_files} are needed where no queries are known",
        ))  # fmt: skip
    if made.saving <= settings.alpha * made.cost:
        return WhyNot(reasons.BELOW_COST, reasons.short_of(made.saving, made.cost, settings.alpha))
    if made.operations < made.due:
        return WhyNot(reasons.NOT_DUE, sentence(
            "", str(made.operations), " operations since the last maintenance; it costs least "
            "every ", f"{made.due:.3g}",
        ))  # fmt: skip
    return None


def unnamed_refusal(situation: Situation) -> WhyNot | None:
    """Return why a path does not name what is replaced: entries of several files have it."""
    for unfit in unfit_files(situation.given):
        if unfit.unnamed:
            return WhyNot(unfit.reason, sentence(f"it would read {unfit.why}"))
    repeated = situation.given.deletes.repeated
    if repeated.any():
        path = situation.given.deletes.path[repeated][0]
        why = f"delete file {path} is in two manifest entries: not supported yet"
        return WhyNot(reasons.NOT_REWRITABLE, sentence(why))
    return None


def _reads_refused(situation: Situation, made: Minor) -> bool:
    """Whether it reads a refused file: a delete file of its data files, which are taken together,
    or, to find the rows of equality deletes, one of the data files."""
    given = situation.given
    data = {str(path) for path in given.table.path[made.rows]} if made.converts else set()
    if not data.isdisjoint(given.refusals):
        return True
    refused = np.flatnonzero(situation.facts.refused_deletes)
    return bool(under(situation, refused)[made.rows].any()) or bool(
        np.isin(refused, made.inputs).any()
    )


def needed_by_objective(situation: Situation, made: Minor) -> bool:
    """Whether an objective on deleted rows cannot be judged before the conversion."""
    limit = situation.settings.objectives.max_deleted_rows_percent
    return limit is not None and made.converts


def _crowded(situation: Situation, made: Minor) -> bool:
    """Whether the number of delete files alone asks for it: where no queries are known, or where
    the policy declares the maintenance."""
    known = situation.trusted and bool(situation.expected.burden.reads[made.rows].any())
    if known and not situation.settings.deletes.declared:
        return False
    return most_per_file(situation, made) >= situation.settings.min_input_files


def most_per_file(situation: Situation, made: Minor) -> int:
    """Return the most delete files of the kind that apply to one data file."""
    table = situation.table
    counted = (
        table.equality_deletes if made.converts else (table.delete_files - table.equality_deletes)
    )
    return int(counted[made.rows].max(initial=0))
