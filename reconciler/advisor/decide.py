"""The entry of the advisor: runs an ordered tuple of decisions over one frozen input.

Each decision is a pure function that proposes candidates and reports what it rejected. A later
decision sees which files an earlier one took, so that no two actions share an input. The same input
gives the same advice, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from reconciler.advisor.advice import Advice, AdviceInput, Rejected, ScoredAction
from reconciler.advisor.binpack import (
    bin_pack_candidates,
    forced_by_objectives,
    small_files_mask,
)
from reconciler.advisor.declared import declared_candidates
from reconciler.advisor.judge import Candidate, rejected
from reconciler.advisor.properties import set_properties, set_sort_order
from reconciler.advisor.recluster import is_quiet, recluster
from reconciler.advisor.situation import REFUSED_FILES, Situation, look, refused_files
from reconciler.advisor.sketching import files_to_sketch
from reconciler.advisor.totals import (
    amplification,
    amplification_after,
    amplification_label,
    judge_objectives,
    shape_effects,
    totals,
    window_bytes,
)
from reconciler.plan import reasons
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.bin_pack import BinPack
from reconciler.plan.actions.cluster import Cluster
from reconciler.plan.actions.recluster import Recluster
from reconciler.plan.actions.rewrite import Rewrite
from reconciler.plan.execution import plan_of_file
from reconciler.plan.prediction_interval import FilesTold, Interval, files_after

HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Chosen:
    """A candidate with its action type and the evidence for it."""

    candidate: Candidate
    kind: type[Rewrite]
    evidence: str
    reason: str


@dataclass(frozen=True)
class Verdict:
    chosen: tuple[Chosen, ...]
    rejected: tuple[Rejected, ...]


Decision = Callable[[Situation], Verdict]


def decide(given: AdviceInput) -> Advice:
    """Return everything that a plan of this table needs."""
    situation = look(given)
    # Includes files that an action takes below: without a sample the action was chosen by bounds
    # alone.
    wanted = files_to_sketch(situation)
    verdict, situation = _decided(situation)
    turned = (*_refused_whole(situation), *_held_back(situation), *verdict.rejected)
    return replace(_advice(situation, verdict.chosen, turned), wanted_sketches=wanted)


def _decided(situation: Situation) -> tuple[Verdict, Situation]:
    """Run every decision in order; return the verdict, and the situation with files taken and cost
    spent.
    """
    chosen: list[Chosen] = []
    turned: list[Rejected] = []
    for decision in DECISIONS:
        verdict = _without_repeats(situation, decision(situation))
        chosen += verdict.chosen
        turned += verdict.rejected
        taken = situation.taken.copy()
        for item in verdict.chosen:
            taken[item.candidate.rows] = True
        spent = situation.spent + sum(item.candidate.cost for item in verdict.chosen)
        situation = replace(situation, taken=taken, spent=spent)
    return Verdict(tuple(chosen), tuple(turned)), situation


def _refused_whole(situation: Situation) -> list[Rejected]:
    """Return the files that no decision considers, by reason."""
    if situation.refused:
        every = np.arange(len(situation.table), dtype=np.int64)
        return [rejected(situation, "rewrite", reasons.NOT_REWRITABLE, situation.refused, every)]
    turned = []
    for why, mask in zip(REFUSED_FILES, refused_files(situation.table), strict=True):
        rows = np.flatnonzero(mask)
        if len(rows):
            files = "1 file" if len(rows) == 1 else f"{len(rows):,} files"
            message = f"{files} {why}: not supported yet"
            turned.append(rejected(situation, "rewrite", reasons.NOT_REWRITABLE, message, rows))
    return turned


def _held_back(situation: Situation) -> list[Rejected]:
    """Return what would be planned now without the quiet period."""
    quiet = is_quiet(situation)
    if not quiet.any():
        return []
    settings = replace(situation.settings, quiet_partitions=frozenset())
    given = replace(situation.given, settings=settings)
    verdict, _ = _decided(replace(situation, given=given, taken=situation.taken | ~quiet))
    return [_waits(situation, item) for item in verdict.chosen]


def _waits(situation: Situation, item: Chosen) -> Rejected:
    made = item.candidate
    text = item.kind.title(made.ordering, situation.table.schema)
    title = f"{text}, {len(made.rows)} file" + "s" * (len(made.rows) != 1)
    return rejected(situation, title, reasons.QUIET_PERIOD, "", made.rows, made)


def _without_repeats(situation: Situation, verdict: Verdict) -> Verdict:
    """Drop rewrites of exactly the files that the same rewrite produced: they would change
    nothing."""
    chosen: list[Chosen] = []
    turned = list(verdict.rejected)
    for item in verdict.chosen:
        if _repeats(situation, item):
            made, schema = item.candidate, situation.table.schema
            title = item.kind.title(made.ordering, schema)
            turned.append(rejected(situation, title, reasons.SAME_AGAIN, "", made.rows, made))
        else:
            chosen.append(item)
    return Verdict(tuple(chosen), tuple(turned))


def _repeats(situation: Situation, item: Chosen) -> bool:
    table, rows = situation.table, item.candidate.rows
    if not table.layout_written[rows].all() or table.position_deleted[rows].any():
        return False
    plans = {plan_of_file(str(path)) for path in table.path[rows]}
    done = situation.settings.written.get(plans.pop(), frozenset()) if len(plans) == 1 else ()
    return _action(situation, item).layout() in done


def workload_aware(situation: Situation) -> Verdict:
    """Recluster files where it pays back under the recorded workload (WAIR)."""
    if situation.settings.mode != "WorkloadAware":
        return Verdict((), ())
    nothing = np.zeros(0, dtype=np.int64)
    if not situation.demands:
        return Verdict((), (rejected(situation, "recluster", reasons.NO_WORKLOAD, "", nothing),))
    if not situation.trusted:
        share = f"the fragments explain {100 * situation.settings.coverage:.0f} % of the bytes"
        message = f"{share}, and {100 * situation.settings.min_coverage:.0f} % are needed"
        low = rejected(situation, "recluster", reasons.LOW_COVERAGE, message, nothing)
        return Verdict((), (low,))
    found = recluster(situation)
    chosen = tuple(
        Chosen(c, Recluster, "workload", reasons.times_cost(c.saving_low, c.cost))
        for c in found.candidates
    )
    return Verdict(chosen, found.rejected)


def declared(situation: Situation) -> Verdict:
    """Cluster files that have drifted from the Declared key."""
    if situation.settings.mode != "Declared" or not situation.settings.ordering.key:
        return Verdict((), ())
    found, turned = declared_candidates(situation)
    chosen = tuple(Chosen(c, Cluster, "drift", why) for c, why in found)
    return Verdict(chosen, tuple(turned))


def bin_pack(situation: Situation) -> Verdict:
    """Merge small files that no other action rewrites."""
    forced = forced_by_objectives(situation)
    found, turned = bin_pack_candidates(situation, forced, situation.spent)
    evidence = "objective" if forced else ("workload" if situation.trusted else "drift")
    chosen = tuple(Chosen(c, BinPack, evidence, why) for c, why in found)
    return Verdict(chosen, tuple(turned))


DECISIONS: tuple[Decision, ...] = (declared, workload_aware, bin_pack)
"""Declared keys first, then what pays back, then the remaining small files."""


def _advice(situation: Situation, chosen: Sequence[Chosen], turned: Sequence[Rejected]) -> Advice:
    candidates = [item.candidate for item in chosen]
    sums = totals(situation, candidates)
    read_now = window_bytes(situation, sums.bytes_now)
    read_after = window_bytes(situation, sums.bytes_after)
    files = _files_after(situation, candidates)
    scored = sorted(
        (_scored(situation, item) for item in chosen),
        key=lambda s: (-s.net_per_cost, s.action.kind, s.action.inputs),
    )
    scored = _timed(situation, scored)
    actions = (*_metadata(situation), *scored)
    amplification_now = amplification(situation, sums.bytes_now)
    amplified = _around(
        amplification_now,
        amplification_after(situation, sums.bytes_after, candidates),
        bool(candidates),
        situation,
    )
    cost = sum(c.cost for c in candidates)
    saving = sum(c.saving for c in candidates)
    return Advice(
        actions=actions,
        rejected=tuple(turned),
        shapes=shape_effects(situation, sums),
        read_now=read_now,
        read_after=_around(read_now, read_after, bool(candidates), situation),
        files_now=len(situation.table),
        files_after=files,
        storage_now=situation.table.total_bytes,
        storage_after=situation.table.total_bytes + sum(s.bytes_out for s in scored),
        amplification_now=amplification_now,
        amplification_after=amplified,
        amplification_label=amplification_label(situation),
        objectives=judge_objectives(
            situation,
            amplification_now,
            amplified,
            *_small_percent(situation, int(files.mid)),
            int(files.mid),
        ),
        payback_hours=_payback(situation, cost, saving),
        cost=cost,
        cpu_seconds=sum(s.cpu_seconds for s in scored),
        seconds=sum(s.seconds for s in scored),
        yearly_read=situation.yearly,
        wanted_sketches=np.zeros(0, dtype=np.int64),
    )


def _small_percent(situation: Situation, files_after: int) -> tuple[float, float]:
    """Return the percentage of files that are small and mergeable, now and after the actions."""
    small = small_files_mask(situation)
    left = small & ~situation.taken
    now = 100.0 * float(small.sum()) / max(len(small), 1)
    return now, 100.0 * float(left.sum()) / max(files_after, 1)


def _around(now: float, after: float, changed: bool, situation: Situation) -> Interval:
    """Return the interval around `after`: the unchanged part is certain, the rest has the
    calibrated width.
    """
    if not changed:
        return Interval(now, now, now, "exact")
    return situation.settings.calibration.around(after)


def _files_after(situation: Situation, candidates: Sequence[Candidate]) -> Interval:
    told = [
        FilesTold(len(c.rows), c.files_out, c.groups, by_size=c.written_share == 1.0)
        for c in candidates
    ]
    return files_after(len(situation.table), told)


def _metadata(situation: Situation) -> tuple[ScoredAction, ...]:
    settings = situation.settings
    if situation.refused:
        return ()
    declared = set_properties(settings) + set_sort_order(settings)
    return tuple(_unscored(action) for action in declared)


def _unscored(action: Action) -> ScoredAction:
    return ScoredAction(
        action=action, files_in=0, files_out=0, groups=0, bytes_in=0, bytes_out=0, rows=0,
        cost=0.0, saving=0.0, saving_low=0.0, cpu_seconds=0.0, seconds=0.0, read_now=0.0,
        read_after=0.0, shapes=(), evidence="drift", label="none", reason="declared by the policy",
    )  # fmt: skip


def _timed(situation: Situation, scored: Sequence[ScoredAction]) -> list[ScoredAction]:
    """Set the actions' times in this order: the first of a kind also warms up the JVM."""
    model, seen = situation.settings.throughput, set[str]()
    timed = []
    for item in scored:
        kind = item.action.work
        assert kind is not None
        work = (kind, item.bytes_in, item.files_in, kind not in seen)
        seen.add(kind)
        timed.append(
            replace(item, cpu_seconds=model.cpu_seconds(*work), seconds=model.seconds(*work))
        )
    return timed


def _scored(situation: Situation, item: Chosen) -> ScoredAction:
    """Return the scored action without its times, which depend on its place in the plan
    (`_timed`)."""
    table, candidate = situation.table, item.candidate
    rows = candidate.rows
    live = table.records[rows] - table.position_deleted[rows]
    bytes_in = int(table.bytes[rows].sum())
    sums = totals(situation, [candidate])
    return ScoredAction(
        action=_action(situation, item),
        files_in=len(rows),
        files_out=candidate.files_out,
        groups=candidate.groups,
        bytes_in=bytes_in,
        bytes_out=int(table.live_bytes[rows].sum() * candidate.written_share),
        rows=int(live.sum()),
        cost=candidate.cost,
        saving=candidate.saving,
        saving_low=candidate.saving_low,
        cpu_seconds=0.0,
        seconds=0.0,
        read_now=window_bytes(situation, sums.bytes_now),
        read_after=window_bytes(situation, sums.bytes_after),
        shapes=shape_effects(situation, sums),
        evidence=item.evidence,
        label=candidate.label if situation.demands else "none",
        reason=item.reason,
        written_share=candidate.written_share,
    )


def _action(situation: Situation, item: Chosen) -> Rewrite:
    table, settings, rows = situation.table, situation.settings, item.candidate.rows
    spec_id, values = table.partitions[int(table.partition[rows[0]])]
    return item.kind(
        spec_id=spec_id,
        partition=values,
        ordering=item.candidate.ordering,
        target_bytes=settings.target_bytes,
        row_group_bytes=settings.row_group_bytes,
        inputs=tuple(sorted(str(path) for path in table.path[rows])),
    )


def _payback(situation: Situation, cost: float, saving: float) -> float | None:
    """Return the hours until the savings at the workload's rates equal the cost."""
    if cost <= 0.0 or saving <= 0.0:
        return None
    return cost / (saving / (situation.settings.horizon_ms * situation.life)) / HOUR_MS
