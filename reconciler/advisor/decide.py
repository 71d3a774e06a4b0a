"""The entry of the advisor: runs an ordered tuple of decisions over one frozen input.

Each decision is a pure function that proposes candidates and reports what it rejected. A later
decision sees which files an earlier one took, so that no two actions share an input. The same input
gives the same advice, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from reconciler.advisor import sizes, slices
from reconciler.advisor.advice import Advice, AdviceInput, Audited, Rejected, ScoredAction
from reconciler.advisor.binpack import (
    bin_pack_candidates,
    forced_by_objectives,
    small_files_mask,
)
from reconciler.advisor.declared import declared_candidates, footers_to_read, resized
from reconciler.advisor.deletes.majors import major_candidates
from reconciler.advisor.deletes.minors import Minor, minor_candidates
from reconciler.advisor.deletes.writes import Writes, planned_writes
from reconciler.advisor.judge import Candidate, rejected
from reconciler.advisor.migration.moves import (
    DECLARED,
    added_specs,
    judged,
    move_candidates,
    switches,
)
from reconciler.advisor.properties import set_properties, set_sort_order
from reconciler.advisor.publication import once_published
from reconciler.advisor.recluster import recluster
from reconciler.advisor.room import added_by
from reconciler.advisor.runs import authors
from reconciler.advisor.situation import (
    REFUSED_FILES,
    Situation,
    is_quiet,
    look,
    refused_files,
)
from reconciler.advisor.sketching import files_to_sketch
from reconciler.advisor.totals import (
    amplification,
    amplification_after,
    amplification_label,
    judge_objectives,
    saved_by_density,
    saved_by_opening,
    shape_effects,
    totals,
    window_bytes,
)
from reconciler.advisor.upkeep import Upkeep, housekeeping
from reconciler.format import plural
from reconciler.plan import reasons
from reconciler.plan.actions.apply_deletes import ApplyDeletes
from reconciler.plan.actions.base import Action, Consent
from reconciler.plan.actions.bin_pack import BinPack
from reconciler.plan.actions.cluster import Cluster
from reconciler.plan.actions.migrate import Migrate
from reconciler.plan.actions.recluster import Recluster
from reconciler.plan.actions.rewrite import Rewrite
from reconciler.plan.prediction import DELETE_FILES, Prediction, millis, total, whole
from reconciler.plan.prediction_interval import Interval, files_after
from reconciler.plan.sentence import sentence
from reconciler.plan.trial import TRIAL
from reconciler.queries.rewrite_cost import Rows
from reconciler.table.filetable import Int64
from reconciler.table.row_group_bytes import plain_row_of

HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Chosen:
    """A candidate with its action type and the evidence for it."""

    candidate: Candidate
    kind: type[Rewrite]
    evidence: str
    reason: str
    moved: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the action in which it differs from a rewrite within a partition."""
    shows_reason: bool = False
    """Whether the plan shows the reason with the action."""


@dataclass(frozen=True)
class Verdict:
    """chosen: rewrites of data files; minors: maintenance of delete files."""

    chosen: tuple[Chosen, ...]
    rejected: tuple[Rejected, ...]
    minors: tuple[Minor, ...] = ()


Decide = Callable[[Situation], Verdict]


def decide(given: AdviceInput) -> Advice:
    """Return everything that a plan of this table needs."""
    situation = look(given)
    if given.settings.audited is not None:
        return _audited(situation, given.settings.audited)
    # Includes files that an action takes below: without a sample the action was chosen by bounds
    # alone.
    wanted, footers = files_to_sketch(situation), footers_to_read(situation)
    verdict, situation = _decided(situation)
    writes = Writes() if situation.refused else planned_writes(situation)
    upkeep = housekeeping(situation)
    turned = (
        *_refused_whole(situation), *_held_back(situation), *verdict.rejected, *writes.rejected,
        *upkeep.rejected,
    )  # fmt: skip
    advice = _advice(situation, verdict, turned, writes, upkeep)
    return replace(
        advice,
        wanted_sketches=wanted,
        wanted_footers=footers,
        modes=writes.choices,
        notes=writes.notes,
    )


def _audited(situation: Situation, found: Audited) -> Advice:
    """Return what becomes of the batches on a branch; the rest is decided on the table after it."""
    nothing = Verdict((), ())
    why = "a branch holds work that waits for approval, or is to be dropped"
    every = np.zeros(0, dtype=np.int64)
    turned = rejected(situation, "anything else", reasons.BRANCH_WAITS, why, every)
    advice = _advice(situation, nothing, (turned,), Writes(), Upkeep())
    after = situation.given.published
    if after is not None and any(one.action.consent is Consent.PERSON for one in found.actions):
        then = look(after)
        advice = once_published(
            situation, advice, then, _advice(then, nothing, (), Writes(), Upkeep())
        )
    return replace(advice, actions=found.actions)


def _decided(situation: Situation) -> tuple[Verdict, Situation]:
    """Run every decision in order; return the verdict, and the situation with files taken and cost
    spent.
    """
    chosen: list[Chosen] = []
    turned: list[Rejected] = []
    minors: list[Minor] = []
    for decision in DECISIONS:
        verdict = _without_repeats(situation, decision(situation))
        chosen += verdict.chosen
        turned += verdict.rejected
        minors += verdict.minors
        taken = situation.taken.copy()
        for item in verdict.chosen:
            taken[item.candidate.rows] = True
        spent = situation.spent + sum(item.candidate.cost for item in verdict.chosen)
        exposed = situation.exposed + added_by(situation, (i.candidate for i in verdict.chosen))
        situation = replace(situation, taken=taken, spent=spent, exposed=exposed)
    return Verdict(tuple(chosen), tuple(turned), tuple(minors)), situation


def _refused_whole(situation: Situation) -> list[Rejected]:
    """Return the files that no decision considers, by reason."""
    if situation.refused:
        every = np.arange(len(situation.table), dtype=np.int64)
        return [rejected(situation, "rewrite", reasons.NOT_REWRITABLE, situation.refused, every)]
    turned = []
    for why, mask in zip(REFUSED_FILES, refused_files(situation.table), strict=True):
        rows = np.flatnonzero(mask)
        if len(rows):
            files = plural(len(rows), "file")
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
    what = sentence(f"{text}, 1 file")
    if len(made.rows) != 1:
        what = sentence(f"{text}, ", str(len(made.rows)), " files")
    return rejected(situation, what, reasons.QUIET_PERIOD, "", made.rows, made)


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
    return Verdict(tuple(chosen), tuple(turned), verdict.minors)


def _repeats(situation: Situation, item: Chosen) -> bool:
    table, rows = situation.table, item.candidate.rows
    plans = authors(table, rows)
    if not table.layout_written[rows].all() or len(plans) != 1:
        return False
    done = situation.settings.written.get(plans.pop(), frozenset())
    return _action(situation, item).layout() in done


def migrate(situation: Situation) -> Verdict:
    """Move files of other partition specs to the declared one."""
    found, turned = move_candidates(situation)
    wanted = situation.settings.migration
    moved: dict[str, Any] = {"partition": ()}
    if wanted is not None:
        moved |= {"output_spec_id": wanted.spec_id, "fields": wanted.fields}
    first = wanted is not None and wanted.trial and wanted.tried is None
    evidence = TRIAL if first else "drift"
    chosen = tuple(
        Chosen(c, Migrate, evidence, why, moved, shows_reason=why != DECLARED) for c, why in found
    )
    return Verdict(chosen, tuple(turned))


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
        Chosen(c, Recluster, "workload", str(reasons.times_cost(c.saving_low, c.cost)))
        for c in found.candidates
    )
    return Verdict(chosen, found.rejected)


def declared(situation: Situation) -> Verdict:
    """Cluster files that have drifted from the Declared key."""
    if situation.settings.mode != "Declared" or not situation.settings.ordering.key:
        return Verdict((), ())
    found, turned = declared_candidates(situation)
    chosen = [Chosen(c, Cluster, "drift", why) for c, why in found]
    chosen += [Chosen(c, Cluster, "workload", why) for c, why in resized(situation)]
    return Verdict(tuple(chosen), tuple(turned))


def bin_pack(situation: Situation) -> Verdict:
    """Merge small files that no other action rewrites."""
    forced = forced_by_objectives(situation)
    found, turned = bin_pack_candidates(situation, forced, situation.spent)
    evidence = "objective" if forced else ("workload" if situation.trusted else "drift")
    chosen = tuple(Chosen(c, BinPack, evidence, why) for c, why in found)
    return Verdict(chosen, tuple(turned))


def apply_deletes(situation: Situation) -> Verdict:
    """Rewrite files without the many rows of them that are deleted."""
    if situation.refused:
        return Verdict((), ())
    found, turned = major_candidates(situation)
    chosen = tuple(Chosen(m.candidate, ApplyDeletes, m.evidence, m.why) for m in found)
    return Verdict(chosen, tuple(turned))


def maintain_deletes(situation: Situation) -> Verdict:
    """Compact, convert and remove delete files, beside the rewrites of the plan."""
    if situation.refused:
        return Verdict((), ())
    found, turned = minor_candidates(situation)
    return Verdict((), tuple(turned), tuple(found))


DECISIONS: tuple[Decide, ...] = (
    migrate, declared, workload_aware, apply_deletes, bin_pack, maintain_deletes,
)  # fmt: skip
"""Another partition spec first, then declared keys, then what pays back, then deleted rows, the
remaining small files, and the delete files that no rewrite drops."""


def _advice(
    situation: Situation,
    verdict: Verdict,
    turned: Sequence[Rejected],
    writes: Writes,
    upkeep: Upkeep,
) -> Advice:
    candidates = [item.candidate for item in verdict.chosen]
    effects: list[Candidate | Minor] = [*candidates, *verdict.minors]
    sums = totals(situation, effects)
    read_now = window_bytes(situation, sums.bytes_now)
    read_after = window_bytes(situation, sums.bytes_after)
    rewrites = _scored(situation, verdict.chosen)
    scored = (*rewrites, *_maintained(situation, verdict.minors))
    predicted = [item.predicted for item in scored]
    files = files_after(len(situation.table), predicted)
    amplification_now = amplification(situation, sums.bytes_now)
    amplified = _around(
        amplification_now,
        amplification_after(situation, sums.bytes_after, candidates),
        bool(effects),
        situation,
    )
    cost_now = window_bytes(situation, sums.cost_now)
    cost_after = window_bytes(situation, sums.cost_after)
    cost = sum(e.cost for e in effects)
    saving = sum(e.saving for e in effects)
    work = total(predicted)
    return Advice(
        actions=(
            *_metadata(situation, writes),
            *scored,
            *_switched(situation),
            *upkeep.actions,
        ),
        rejected=tuple(turned),
        shapes=shape_effects(situation, sums),
        read_now=read_now,
        read_after=_around(read_now, read_after, bool(effects), situation),
        cost_now=cost_now,
        cost_after=_around(cost_now, cost_after, bool(effects), situation),
        files_now=len(situation.table),
        files_after=files,
        storage_now=situation.table.total_bytes,
        storage_after=situation.table.total_bytes + total(predicted).bytes_out,
        amplification_now=amplification_now,
        amplification_after=amplified,
        amplification_label=amplification_label(situation),
        objectives=(
            *judge_objectives(
                situation,
                amplification_now,
                amplified,
                *_small_percent(situation, int(files.mid)),
                int(files.mid),
            ),
            *judged(situation, _moved(verdict)),
        ),
        payback_hours=_payback(situation, cost, saving),
        cost=cost,
        cpu_seconds=work.cpu_seconds,
        seconds=situation.settings.throughput.plan_seconds(work.millis / 1000, work.groups),
        yearly_read=situation.yearly,
        wanted_sketches=np.zeros(0, dtype=np.int64),
        outlook=situation.outlook,
        upkeep_due_ms=upkeep.due_ms,
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


def _metadata(situation: Situation, writes: Writes) -> tuple[ScoredAction, ...]:
    settings = situation.settings
    if situation.refused:
        return ()
    properties = set_properties(settings, plain_row_of(situation.table))
    declared = properties + set_sort_order(settings) + added_specs(situation)
    return (*_declared(situation, declared), *_explained(situation, writes.actions))


def _switched(situation: Situation) -> tuple[ScoredAction, ...]:
    """Return what ends the plan: writers change once its files have moved."""
    return _declared(situation, switches(situation))


def _declared(situation: Situation, actions: Sequence[Action]) -> tuple[ScoredAction, ...]:
    return _explained(situation, [(action, "declared by the policy") for action in actions])


def _explained(
    situation: Situation, pairs: Sequence[tuple[Action, str]]
) -> tuple[ScoredAction, ...]:
    return tuple(ScoredAction(a, _in_words(situation, a, why)) for a, why in pairs)


def _moved(verdict: Verdict) -> Int64:
    """Return the files that the plan moves to another spec."""
    rows = [item.candidate.rows for item in verdict.chosen if item.moved]
    return np.concatenate([np.zeros(0, dtype=np.int64), *rows])


def _in_words(situation: Situation, action: Action, reason: str) -> Prediction:
    """Return the part of a prediction that every kind of action has."""
    label = action.label(situation.table.schema, situation.table.specs)
    return Prediction(label=label, reason=reason, kind=action.kind)


def _scored(situation: Situation, chosen: Sequence[Chosen]) -> tuple[ScoredAction, ...]:
    """Return the actions by net saving per cost.

    Times depend on the place in the plan: the first action of a kind of work also warms up the JVM.
    """
    pairs = sorted(
        ((_action(situation, item), item) for item in chosen),
        key=lambda pair: (-pair[1].candidate.net_per_cost, pair[0].kind, pair[0].inputs),
    )
    model, begun = situation.settings.throughput, set[str]()
    scored = []
    for action, item in pairs:
        predicted, kind = _predicted(situation, action, item), action.work
        assert kind is not None
        text = situation.text_row_bytes(column.field_id for column in action.ordering.key)
        count, columns = predicted.rows or 0, len(situation.table.schema.fields)
        rows = None if text is None else Rows(count, text * count, columns)
        work = (kind, predicted.rewrite_bytes, len(action.inputs), kind not in begun, rows)
        begun.add(kind)
        cpu, time = model.cpu_seconds(*work), model.seconds(*work)
        if rows is not None:
            predicted = replace(predicted, text_bytes=whole(rows.text), columns=rows.columns)
        predicted = replace(predicted, cpu_millis=millis(cpu), millis=millis(time))
        scored.append(ScoredAction(action, predicted))
    return tuple(scored)


def _maintained(situation: Situation, minors: Sequence[Minor]) -> tuple[ScoredAction, ...]:
    """Return the maintenance of delete files, conversions first as they are executed."""
    model, begun = situation.settings.throughput, set[str]()
    scored = []
    for made in minors:
        action = made.action(situation.given.deletes)
        cpu, time, work = 0.0, 0.0, made.kind.work
        if made.bytes_in:
            assert work is not None  # what reads files is timed
            facts = (work, made.bytes_in, len(action.inputs), work not in begun)
            begun.add(work)
            cpu, time = model.cpu_seconds(*facts), model.seconds(*facts)
        sums = totals(situation, [made])
        predicted = replace(
            _in_words(situation, action, made.why),
            files_in=len(action.inputs),
            files_out=made.files_out,
            groups=1,
            bytes_in=made.bytes_in,
            bytes_out=made.bytes_out,
            rows=made.positions,
            cpu_millis=millis(cpu),
            millis=millis(time),
            read_now=whole(window_bytes(situation, sums.bytes_now)),
            read_after=whole(window_bytes(situation, sums.bytes_after)),
            saving=whole(made.saving),
            saving_low=whole(made.saving),
            cost=whole(made.cost),
            estimate="bound" if situation.demands else "none",
            evidence=made.evidence,
            unit=DELETE_FILES,
        )
        scored.append(ScoredAction(action, predicted))
    return tuple(scored)


def _predicted(situation: Situation, action: Rewrite, item: Chosen) -> Prediction:
    """Return the prediction without its times."""
    table, made = situation.table, item.candidate
    rows = made.rows
    sums = totals(situation, [made])
    words = _in_words(situation, action, item.reason)
    how = sizes.in_words(made) + slices.in_words(made.sliced, table.schema)
    why = f" ({item.reason})" if item.shows_reason else ""
    # Sizes of what was declared follow from the queries, too.
    follows = situation.trusted and item.evidence in ("workload", "drift")
    return replace(
        words,
        label=f"{words.label}{how}{why}",
        target_bytes=made.target_configured or None,
        layout=action.layout(),
        files_in=len(rows),
        files_out=made.files_out,
        groups=made.groups,
        bytes_in=int(table.bytes[rows].sum()),
        bytes_out=int(table.live_bytes[rows].sum() * made.written_share),
        written_milli=whole(made.written_share * 1000),
        rows=int((table.records[rows] - table.position_deleted[rows]).sum()),
        read_now=whole(window_bytes(situation, sums.bytes_now)),
        read_after=whole(window_bytes(situation, sums.bytes_after)),
        saving=whole(made.saving),
        saving_low=whole(made.saving_low),
        saving_opening=whole(saved_by_opening(situation, made)),
        saving_denser=whole(saved_by_density(situation, made)),
        cost=whole(made.cost),
        estimate=made.label if situation.demands else "none",
        evidence=item.evidence,
        basis=situation.basis if follows else None,
    )


def _action(situation: Situation, item: Chosen) -> Rewrite:
    table, settings, rows = situation.table, situation.settings, item.candidate.rows
    spec_id, values = table.partitions[int(table.partition[rows[0]])]
    given: dict[str, Any] = {
        "spec_id": spec_id,
        "partition": values,
        "ordering": item.candidate.ordering,
        "target_bytes": item.candidate.target_configured or settings.target_bytes,
        "row_group_bytes": item.candidate.row_group_configured or settings.row_group_bytes,
        "inputs": tuple(sorted(str(path) for path in table.path[rows])),
    }
    return item.kind(**{**given, **item.moved})


def _payback(situation: Situation, cost: float, saving: float) -> float | None:
    """Return the hours until the savings at the workload's rates equal the cost."""
    if cost <= 0.0 or saving <= 0.0:
        return None
    return cost / (saving / (situation.settings.horizon_ms * situation.life)) / HOUR_MS
