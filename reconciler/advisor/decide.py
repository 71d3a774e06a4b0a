"""The entry of the advisor: runs an ordered tuple of decisions over one frozen input.

Each decision is a pure function that proposes candidates and reports what it rejected. A later
decision sees which files an earlier one took, so that no two actions share an input. The same input
gives the same advice, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from reconciler.advisor.advice import Advice, AdviceInput, Audited, Rejected
from reconciler.advisor.choose.arrival_order import WHY, back_to_arrival_order
from reconciler.advisor.choose.beside import with_small_files
from reconciler.advisor.choose.binpack import bin_pack_candidates, forced_by_objectives
from reconciler.advisor.choose.blocks import refused_blocks
from reconciler.advisor.choose.declared import (
    declared_candidates,
    footers_to_read,
    resized,
    waiting,
)
from reconciler.advisor.choose.literal import limit_left, literal
from reconciler.advisor.choose.recluster import recluster
from reconciler.advisor.choose.replica import replica
from reconciler.advisor.choose.sketching import files_to_sketch
from reconciler.advisor.choose.upkeep import Upkeep, housekeeping
from reconciler.advisor.deletes.majors import major_candidates
from reconciler.advisor.deletes.minor import Minor
from reconciler.advisor.deletes.minors import minor_candidates
from reconciler.advisor.deletes.writes import Writes, planned_writes
from reconciler.advisor.judge.candidate import Candidate, rejected, spending_room
from reconciler.advisor.judge.room import added_by, reserve_is_due, room_left
from reconciler.advisor.judge.runs import authors
from reconciler.advisor.measure.predicted import advice_of
from reconciler.advisor.measure.publication import once_published
from reconciler.advisor.migration.moves import DECLARED, move_candidates
from reconciler.advisor.situation import Situation, is_quiet, situation_of, unfit_files
from reconciler.advisor.spent import Left
from reconciler.advisor.verdict import Chosen, Verdict, action_of
from reconciler.plan import reasons
from reconciler.plan.actions.base import Consent
from reconciler.plan.actions.migrate import Migrate
from reconciler.plan.actions.rewrite import ApplyDeletes, BinPack, Cluster, Recluster
from reconciler.plan.sentence import sentence
from reconciler.plan.trial import TRIAL
from reconciler.table.catalog_policies import COMPACTION

Decide = Callable[[Situation], Verdict]


def decide(given: AdviceInput) -> Advice:
    """Return everything that a plan of this table needs."""
    situation = situation_of(given)
    if given.settings.audited is not None:
        return _audited(situation, given.settings.audited)
    # Includes files that an action takes below: without a sample the action was chosen by bounds
    # alone.
    wanted, footers = files_to_sketch(situation), footers_to_read(situation)
    room = _room(situation)
    verdict, situation = _decided(situation)
    writes = Writes() if situation.facts.refused else planned_writes(situation)
    upkeep = replica(situation, rewrites=bool(verdict.chosen)) + housekeeping(situation)
    orderings = [item.candidate.ordering for item in verdict.chosen]
    rejections = (
        *_unread(situation), *_refused_whole(situation), *_held_back(situation), *verdict.rejected,
        *refused_blocks(situation, orderings), *writes.rejected, *upkeep.rejected,
    )  # fmt: skip
    advice = advice_of(situation, verdict, rejections, writes, upkeep)
    return replace(
        advice,
        room=room,
        wanted_sketches=wanted,
        wanted_footers=footers,
        modes=writes.choices,
        notes=writes.notes,
        wanted_trees=tuple(
            training for item in verdict.chosen if (training := item.candidate.training) is not None
        ),
    )


def _room(situation: Situation) -> float:
    """Return what rewrites for the queries may cost now: the least of all limits."""
    by_debt = limit_left if situation.settings.literal else spending_room
    return min(by_debt(situation), room_left(situation, 0.0))


def _audited(situation: Situation, found: Audited) -> Advice:
    """Return what becomes of the batches on a branch; the rest is decided on the table after it."""
    nothing = Verdict((), ())
    why = "a branch holds work that waits for approval, or is to be dropped"
    files = np.zeros(0, dtype=np.int64)
    rejections = rejected(situation, "anything else", reasons.BRANCH_WAITS, why, files)
    advice = advice_of(situation, nothing, (rejections,), Writes(), Upkeep())
    after = situation.given.published
    if after is not None and any(one.action.consent is Consent.PERSON for one in found.actions):
        then = situation_of(after)
        advice = once_published(
            situation, advice, then, advice_of(then, nothing, (), Writes(), Upkeep())
        )
    return replace(advice, actions=found.actions)


def _decided(situation: Situation) -> tuple[Verdict, Situation]:
    """Run every decision in order; return the verdict, and the situation with files taken and cost
    spent.
    """
    forbidden = situation.settings.metadata.bounds.forbids((COMPACTION,))
    if forbidden:
        every = np.arange(len(situation.table), dtype=np.int64)
        why = rejected(situation, "rewrite", reasons.CATALOG_POLICY, forbidden, every)
        return Verdict((), (why,)), situation
    chosen: list[Chosen] = []
    rejections: list[Rejected] = []
    minors: list[Minor] = []
    for decision in DECISIONS:
        verdict = _without_repeats(situation, decision(situation))
        chosen += verdict.chosen
        rejections += verdict.rejected
        minors += verdict.minors
        taken = situation.spent.taken.copy()
        for item in verdict.chosen:
            taken[item.candidate.rows] = True
        spent = situation.spent.cost + sum(item.candidate.cost for item in verdict.chosen)
        exposed = situation.spent.exposed + added_by(
            situation, (i.candidate for i in verdict.chosen)
        )
        saved = situation.spent.saved + tuple(
            (int(situation.table.partition[made.rows[0]]), made.saving)
            for made in (item.candidate for item in verdict.chosen)
        )
        left = situation.spent.left + tuple(_left(situation, item) for item in verdict.chosen)
        after = replace(
            situation.spent, taken=taken, cost=spent, exposed=exposed, saved=saved, left=left
        )
        situation = situation.after(after)
    return Verdict(tuple(chosen), tuple(rejections), tuple(minors)), situation


def _left(situation: Situation, item: Chosen) -> Left:
    left = item.candidate.left(situation.settings.target_bytes)
    return left.elsewhere() if item.moved else left


def _unread(situation: Situation) -> list[Rejected]:
    """Return that the catalog's policies could not be read: they bound nothing then."""
    why, nothing = situation.settings.metadata.bounds.unread, np.zeros(0, dtype=np.int64)
    what = "read the catalog's policies"
    return [rejected(situation, what, reasons.CATALOG_POLICY, why, nothing)] if why else []


def _refused_whole(situation: Situation) -> list[Rejected]:
    """Return the files that no decision considers, by reason."""
    if situation.facts.refused:
        every = np.arange(len(situation.table), dtype=np.int64)
        return [
            rejected(situation, "rewrite", reasons.NOT_REWRITABLE, situation.facts.refused, every)
        ]
    return [
        rejected(situation, "rewrite", unfit.reason, unfit.why, unfit.rows)
        for unfit in unfit_files(situation.given)
    ]


def _held_back(situation: Situation) -> list[Rejected]:
    """Return what would be planned now without the quiet period."""
    quiet = is_quiet(situation)
    if not quiet.any():
        return []
    settings = replace(situation.settings, quiet_partitions=frozenset())
    given = replace(situation.given, settings=settings)
    unquiet = replace(situation, given=given).after(
        replace(situation.spent, taken=situation.spent.taken | ~quiet)
    )
    verdict, _ = _decided(unquiet)
    return [_waits(situation, item) for item in verdict.chosen]


def _waits(situation: Situation, item: Chosen) -> Rejected:
    made = item.candidate
    text = item.kind.title(made.ordering, situation.table.schema)
    what = sentence(f"{text}, 1 file")
    if len(made.rows) != 1:
        what = sentence(f"{text}, ", str(len(made.rows)), " files")
    return rejected(situation, what, reasons.QUIET_PERIOD, "", made.rows, made)


def _without_repeats(situation: Situation, verdict: Verdict) -> Verdict:
    """Drop rewrites of exactly the files that the same rewrite produced: they would change
    nothing."""
    chosen: list[Chosen] = []
    rejections = list(verdict.rejected)
    for item in verdict.chosen:
        if _repeats(situation, item):
            made, schema = item.candidate, situation.table.schema
            title = item.kind.title(made.ordering, schema)
            rejections.append(rejected(situation, title, reasons.SAME_AGAIN, "", made.rows, made))
        else:
            chosen.append(item)
    return Verdict(tuple(chosen), tuple(rejections), verdict.minors)


def _repeats(situation: Situation, item: Chosen) -> bool:
    table, rows = situation.table, item.candidate.rows
    plans = authors(table, rows)
    if not table.layout_written[rows].all() or len(plans) != 1:
        return False
    done = situation.settings.written.get(plans.pop(), frozenset())
    return action_of(situation, item).layout() in done


def migrate(situation: Situation) -> Verdict:
    """Move files of other partition specs to the declared one."""
    found, rejections = move_candidates(situation)
    wanted = situation.settings.migration
    moved: dict[str, Any] = {"partition": ()}
    if wanted is not None:
        moved |= {"output_spec_id": wanted.spec_id, "fields": wanted.fields}
    first = wanted is not None and wanted.trial and wanted.tried is None
    evidence = TRIAL if first else "drift"
    chosen = tuple(
        Chosen(c, Migrate, evidence, why, moved, shows_reason=why != DECLARED) for c, why in found
    )
    return Verdict(chosen, tuple(rejections))


def workload_aware(situation: Situation) -> Verdict:
    """Recluster files where it pays back under the recorded workload (WAIR), or put them back
    before they lose more than is promised."""
    if not situation.settings.by_workload:
        return Verdict((), ())
    nothing = np.zeros(0, dtype=np.int64)
    if not situation.expected.demands:
        return Verdict((), (rejected(situation, "recluster", reasons.NO_WORKLOAD, "", nothing),))
    due = back_to_arrival_order(situation) if reserve_is_due(situation) else ()
    back = [Chosen(c, Recluster, "workload", WHY, shows_reason=True) for c in due]
    back = [item for item in back if not _repeats(situation, item)]
    if back:
        return Verdict(tuple(back), ())
    if not situation.trusted:
        share = f"the fragments explain {100 * situation.settings.coverage:.0f} % of the bytes"
        message = f"{share}, and {100 * situation.settings.min_coverage:.0f} % are needed"
        low = rejected(situation, "recluster", reasons.LOW_COVERAGE, message, nothing)
        return Verdict((), (low,))
    if situation.settings.literal:
        found = literal(situation)
        return Verdict(tuple(map(_reclustered, found.candidates)), found.rejected)
    found = with_small_files(situation, recluster(situation))
    return Verdict(tuple(map(_reclustered, found.candidates)), found.rejected)


def _reclustered(made: Candidate) -> Chosen:
    return Chosen(made, Recluster, "workload", str(reasons.times_cost(made.saving_low, made.cost)))


def declared(situation: Situation) -> Verdict:
    """Cluster files that have drifted from the Declared key."""
    if situation.settings.mode != "Declared" or not situation.settings.ordering.key:
        return Verdict((), ())
    found, rejections = declared_candidates(situation)
    chosen = [Chosen(c, Cluster, "drift", why) for c, why in found]
    taken = situation.spent.taken.copy()
    taken[[row for item in chosen for row in item.candidate.rows.tolist()]] = True
    left = situation.after(replace(situation.spent, taken=taken))
    chosen += [Chosen(c, Cluster, "workload", why) for c, why in resized(left)]
    return Verdict(tuple(chosen), tuple(rejections))


def wait_for_more(situation: Situation) -> Verdict:
    """Leave files alone that have drifted too little from the Declared key."""
    if situation.settings.mode != "Declared" or not situation.settings.ordering.key:
        return Verdict((), ())
    return Verdict((), tuple(waiting(situation)))


def bin_pack(situation: Situation) -> Verdict:
    """Merge small files that no other action rewrites, or sort them where that saves more."""
    forced = forced_by_objectives(situation)
    found = bin_pack_candidates(situation, forced, situation.spent.cost)
    evidence = "objective" if forced else ("workload" if situation.trusted else "drift")
    merged = [Chosen(c, BinPack, evidence, why) for c, why in found.merged]
    return Verdict((*merged, *map(_reclustered, found.in_order)), found.rejected)


def apply_deletes(situation: Situation) -> Verdict:
    """Rewrite files without the many rows of them that are deleted."""
    if situation.facts.refused:
        return Verdict((), ())
    found, rejections = major_candidates(situation)
    chosen = tuple(Chosen(m.candidate, ApplyDeletes, m.evidence, m.why) for m in found)
    return Verdict(chosen, tuple(rejections))


def maintain_deletes(situation: Situation) -> Verdict:
    """Compact, convert and remove delete files, beside the rewrites of the plan."""
    if situation.facts.refused:
        return Verdict((), ())
    found, rejections = minor_candidates(situation)
    return Verdict((), tuple(rejections), tuple(found))


DECISIONS: tuple[Decide, ...] = (
    migrate, declared, workload_aware, apply_deletes, bin_pack, wait_for_more, maintain_deletes,
)  # fmt: skip
"""Another partition spec first, then declared keys, then what pays back, then deleted rows, the
remaining small files, what waits, and the delete files that no rewrite drops."""
