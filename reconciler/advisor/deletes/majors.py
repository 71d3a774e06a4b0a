"""Decides which data files to rewrite without their deleted rows (a major compaction).

Per partition, the files whose deleted rows cost their readers more than a rewrite are taken
together with small files that updates left beside them. Where no queries are known, a share of
deleted rows decides; an objective on deleted rows takes the densest files until it holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from reconciler.advisor.advice import Rejected
from reconciler.advisor.choose.binpack import merge_what_if, packing_order
from reconciler.advisor.choose.recluster import MAX_PARTITIONS, allowed
from reconciler.advisor.choose.slices import oversized, places_of, slices
from reconciler.advisor.deletes.apply_cost import POSITION_SECONDS
from reconciler.advisor.deletes.burden import read_bytes_of
from reconciler.advisor.deletes.limits import beyond_conversion, outrun
from reconciler.advisor.judge.candidate import Candidate, WhyNot, refusal, rejected
from reconciler.advisor.situation import Situation
from reconciler.plan import reasons
from reconciler.plan.grouping import SMALL_SHARE
from reconciler.plan.ordering import ARRIVAL
from reconciler.plan.sentence import Sentence, sentence
from reconciler.table.deletes import members_of
from reconciler.table.filetable import Bool, Float64, Int64

DENSE = 0.3
"""Share of deleted rows from which a file is rewritten where no queries are known, as Iceberg's
rewrite_data_files does."""


@dataclass(frozen=True)
class Major:
    """A rewrite of data files that applies their deletes."""

    candidate: Candidate
    """The rewrite."""
    why: str
    """Why it is planned, for people."""
    evidence: str
    """What justifies it: "deletes", "objective" or "workload"."""


def major_candidates(situation: Situation) -> tuple[list[Major], list[Rejected]]:
    """Return the rewrites of files with deleted rows, and what is left alone."""
    burden, table = situation.expected.burden, situation.table
    free = allowed(situation) & (burden.dead > 0)
    if not free.any() or not situation.settings.deletes.majors:
        return [], _left_to_minors(situation, free)
    beyond = beyond_conversion(situation)
    forced = forced_files(situation, free, beyond)
    spared = _spared(situation, beyond)
    found: list[Major] = []
    rejections: list[Rejected] = []
    spent = situation.spent.cost
    for rows, must in _partitions(situation, free, forced, spared, beyond):
        parts = slices(situation, rows)
        rejections += oversized(situation, rows, parts, "apply deletes")
        for part in parts:
            passed, refused = _pieces(situation, np.sort(part), free, must, spent, spared)
            rejections += refused
            for made in passed:
                found.append(Major(made, _why(situation, made.rows), _evidence(situation, must)))
                spent += made.cost
    chosen = np.zeros(len(table), dtype=np.bool_)
    for item in (*(m.candidate.rows for m in found), *(_rows_of(situation, r) for r in rejections)):
        chosen[item] = True
    return found, rejections + _too_few(situation, free & ~chosen, spared)


def _rows_of(situation: Situation, item: Rejected) -> Int64:
    row_of = situation.table.row_of
    return np.array([row_of[path] for path in item.inputs], dtype=np.int64)


def forced_files(situation: Situation, free: Bool, beyond: Bool) -> Bool:
    """Return bool[files]: those whose rewrite the objective on deleted rows needs.

    Under equality deletes the share is unknown: where the policy or every budget (beyond:
    bool[files]) does not let them be converted, their files are rewritten. Where new ones come
    sooner than the budgets admit that, it would never be known, however much is spent; so these
    files count with the estimate. The densest files go until the objective holds: deleted rows and
    stored rows both fall by what a rewrite drops, and what earlier decisions rewrite counts as
    dropped.
    """
    table, limit = situation.table, situation.settings.objectives.max_deleted_rows_percent
    if limit is None:
        return np.zeros(len(table), dtype=np.bool_)
    unknown = beyond if situation.settings.deletes.minors else table.equality_deletes > 0
    estimated = unknown & outrun(situation)
    forced = free & unknown & ~estimated
    gone = np.where(estimated, situation.expected.burden.dead, table.position_deleted)
    left = ~(situation.spent.taken | forced)
    deleted = float(gone[left].sum())
    stored = float(table.total_records) - float(gone[~left].sum())
    order = np.argsort(-situation.expected.burden.density(table), kind="stable")
    for row in order[(free & left)[order]].tolist():
        if 100.0 * deleted <= limit * stored:
            break
        forced[row] = gone[row] > 0
        deleted, stored = deleted - float(gone[row]), stored - float(gone[row])
    return forced


def _partitions(
    situation: Situation, free: Bool, forced: Bool, spared: Float64, beyond: Bool
) -> Iterator[tuple[Int64, bool]]:
    """Yield, per partition, the files to rewrite together and whether an objective needs it.

    beyond: bool[files], what equality deletes apply to whose conversion no budget can admit. Where
    the policy declares their conversion at a number of delete files, it is these that are
    rewritten.
    """
    table, settings = situation.table, situation.settings
    pays = _gain(situation, spared) > situation.alpha * situation.cost
    dense = situation.expected.burden.density(table) >= DENSE
    worth = pays if _judged_by_queries(situation) else dense
    if settings.deletes.declared:
        worth = worth | dense | (beyond & (table.equality_deletes >= settings.min_input_files))
    wanted = free & (worth | forced)
    small = allowed(situation) & (table.bytes < SMALL_SHARE * settings.target_bytes)
    for rows in members_of(table).values():
        chosen = rows[wanted[rows]]
        if len(chosen):
            beside = rows[(small & ~wanted)[rows]]
            yield np.union1d(chosen, beside), bool(forced[chosen].any())


def _judged_by_queries(situation: Situation) -> bool:
    return bool(situation.trusted and situation.expected.burden.reads.any())


def _gain(situation: Situation, spared: Float64) -> Float64:
    """Return the bytes of reading that a rewrite of each file alone saves over the horizon.

    Optimistic, as every estimate that orders candidates: the what-if decides.
    """
    table, burden = situation.table, situation.expected.burden
    read = sum((r.read for r in situation.expected.savings.readings), start=np.zeros(len(table)))
    dropped = read * burden.density(table)
    opened = burden.reads * (
        table.delete_files * float(situation.settings.open_bytes) + table.delete_bytes
    )
    return dropped + opened + spared


def _spared(situation: Situation, beyond: Bool) -> Float64:
    """Return what readers save if the deletes of each file are applied: float64[files], bytes of
    reading over the horizon.

    What a conversion of equality deletes would save is left to the conversion, unless no budget can
    admit it. beyond: bool[files], the files of which that holds.
    """
    seconds = situation.expected.burden.seconds * situation.expected.burden.reads
    applied: Float64 = read_bytes_of(situation.settings, seconds)
    return applied - np.where(beyond, 0.0, _left_to_conversions(situation))


def _left_to_conversions(situation: Situation) -> Float64:
    """Return what a conversion of the equality deletes saves the readers of each file already:
    float64[files].

    It costs a fraction of a rewrite, so a rewrite has to pay for itself by what is left then:
    positions instead of keys, in one delete file.
    """
    table, burden, settings = situation.table, situation.expected.burden, situation.settings
    if not settings.deletes.minors:
        return np.zeros(len(table))
    hit = table.equality_deletes > 0
    positions = POSITION_SECONDS * (burden.positions + burden.hidden)
    opened = np.maximum(table.equality_deletes - 1, 0) * float(settings.open_bytes)
    each = read_bytes_of(settings, burden.seconds - positions)
    return hit * (each + opened + burden.key_bytes) * burden.reads


def _pieces(
    situation: Situation, rows: Int64, free: Bool, forced: bool, spent: float, spared: Float64
) -> tuple[list[Candidate], list[Rejected]]:
    """Return the rewrites of these files of one partition: all together, or neighbours only.

    Files that are not neighbours become files that span others, which queries then open in vain.
    """
    whole = _what_if(situation, rows, spared)
    why_not = _refusal(situation, whole, forced, spent)
    runs = _neighbours(situation, rows)
    if len(runs) == 1 or (why_not is None and whole.saving >= 0.0):
        if why_not is None:
            return [whole], []
        return [], [rejected(situation, _title(rows), *why_not, rows, whole)]
    runs = [run for run in runs if free[run].any()][:MAX_PARTITIONS]
    parts = [_what_if(situation, run, spared) for run in runs]
    together = sum(max(0.0, made.saving_low) for made in parts)
    passed: list[Candidate] = []
    rejections: list[Rejected] = []
    for made in parts:
        why_not = _refusal(situation, made, forced, spent, together)
        if why_not is None:
            passed.append(made)
            spent += made.cost
        else:
            rejections.append(rejected(situation, _title(made.rows), *why_not, made.rows, made))
    return passed, rejections


def _neighbours(situation: Situation, rows: Int64) -> list[Int64]:
    """Return the runs of files that are next to each other in the order of their partition."""
    table = situation.table
    members = members_of(table)[int(table.partition[rows[0]])]
    key = [column.field_id for column in packing_order(situation).key]
    in_order = members[np.argsort(places_of(situation, members, key))]
    inside = np.isin(in_order, rows)
    ends = np.flatnonzero(np.diff(np.flatnonzero(inside)) > 1) + 1
    return [np.sort(run) for run in np.split(in_order[inside], ends)]


def _what_if(situation: Situation, rows: Int64, spared: Float64) -> Candidate:
    """Return the rewrite in the order of a key, if the files have one and queries gain by it."""
    orders = dict.fromkeys((packing_order(situation), ARRIVAL))
    made = max((merge_what_if(situation, rows, one) for one in orders), key=lambda c: c.saving)
    extra = float(spared[rows].sum())
    return replace(made, saving=made.saving + extra, saving_low=made.saving_low + extra)


def _refusal(
    situation: Situation, made: Candidate, forced: bool, spent: float, together: float = 0.0
) -> WhyNot | None:
    """Return why queries speak against it; an objective and a declared compaction outvote them."""
    declared = situation.settings.deletes.declared
    if forced or declared or not _judged_by_queries(situation):
        return None
    return refusal(situation, made, spent, together)


def _evidence(situation: Situation, forced: bool) -> str:
    if forced:
        return "objective"
    return "workload" if _judged_by_queries(situation) else "deletes"


def _why(situation: Situation, rows: Int64) -> str:
    table, dead = situation.table, situation.expected.burden.dead
    share = float(dead[rows].sum()) / max(float(table.records[rows].sum()), 1.0)
    at_most = "up to " if (situation.expected.burden.hidden[rows] > 0).any() else ""
    return f"{at_most}{100 * share:.3g} % of their rows are deleted"


def _title(rows: Int64) -> Sentence:
    if len(rows) == 1:
        return sentence("apply deletes, 1 file")
    return sentence("apply deletes, ", str(len(rows)), " files")


def _too_few(situation: Situation, left: Bool, spared: Float64) -> list[Rejected]:
    """Return the files with deletes whose rewrite was not worth a what-if."""
    rows = np.flatnonzero(left)
    if not len(rows):
        return []
    density = situation.expected.burden.density(situation.table)[rows]
    if _judged_by_queries(situation):
        gain, cost = _gain(situation, spared)[rows], situation.cost[rows]
        why = reasons.times_cost(float(gain.sum()), float(cost.sum()))
        return [rejected(situation, _title(rows), reasons.BELOW_COST, why, rows)]
    why = sentence(
        "at most ", f"{100 * float(density.max()):.3g}",
        f" % of a file's rows are deleted; {100 * DENSE:.0f} % are needed where no queries are "
        "known",
    )  # fmt: skip
    return [rejected(situation, _title(rows), reasons.FEW_DELETED, why, rows)]


def _left_to_minors(situation: Situation, left: Bool) -> list[Rejected]:
    rows = np.flatnonzero(left)
    if not len(rows):
        return []
    asked = situation.settings.deletes.compaction
    why = f"spec.deletes.compaction is {asked}"
    return [rejected(situation, _title(rows), reasons.COMPACTION_OFF, why, rows)]
