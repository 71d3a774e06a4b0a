"""Decides which files to recluster, and by which key (WAIR sections 3.3, 4.2 and 4.4).

Boundary files are ordered by their savings and cut by Algorithm 2; the chosen files are clustered
by savings signature; per cluster the what-if picks the best single column, Hilbert curve or sort by
two columns. The paper's formulas only propose: an action needs a what-if whose lower bound passes
the gate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from reconciler.advisor.advice import QD_TREE, Rejected
from reconciler.advisor.choose import keys
from reconciler.advisor.choose.slices import Slicing, oversized, slicings
from reconciler.advisor.judge.candidate import (
    FLOOR,
    Candidate,
    WhyNot,
    may_pass,
    refusal,
    rejected,
    spending_room,
)
from reconciler.advisor.judge.room import added_by, possible_loss, room_left
from reconciler.advisor.judge.runs import SETTLED, grows, merged_runs, nothing_new, tiers
from reconciler.advisor.measure import unprunable
from reconciler.advisor.measure.totals import amplification
from reconciler.advisor.situation import Situation, is_quiet
from reconciler.advisor.wair.cut import FilePrefix, best_prefix
from reconciler.advisor.wair.signature import cluster, signatures
from reconciler.plan import reasons
from reconciler.plan.sentence import Sentence, sentence
from reconciler.queries.demanded import predicate_columns
from reconciler.table.filetable import ColumnBounds, Float64, Int64

FRACTIONS = (1.0, 0.5, 0.25)
"""Prefixes of a cluster, best files first, that are tried until one passes."""

FITTING = 0.9
"""Share of the earned room that a prefix is meant to fill: its files are not all alike."""

SERVED = 1.25
"""Scan amplification up to which a layout counts as serving its queries."""

MAX_PARTITIONS = 48
"""Maximum partitions, or slices of them, that are judged once an action was found; the next plan
judges the others."""


@dataclass(frozen=True)
class Proposals:
    """Rewrites that recluster files, judged."""

    candidates: tuple[Candidate, ...]
    """The rewrites that pass, best first."""
    rejected: tuple[Rejected, ...]
    """The rewrites that do not pass, with their reasons."""

    @property
    def net(self) -> float:
        return sum(candidate.net for candidate in self.candidates)


def recluster(situation: Situation) -> Proposals:
    """Return the candidates that pass the gate; no two share a file. What the plan has chosen
    before counts against every limit."""
    saving = np.where(allowed(situation), situation.expected.savings.saving, 0.0)
    left = max(spending_room(situation) - situation.spent.cost, 0.0)
    chosen = best_prefix(saving, situation.cost, situation.settings.alpha, left)
    candidates: list[Candidate] = []
    rejections: list[Rejected] = []
    partitions = _partitions(situation, chosen.chosen, saving)
    judged, cuts = 0, slicings(situation, partitions, keys.wanted_columns(situation))
    for options in cuts:
        if candidates and judged >= MAX_PARTITIONS:
            break
        most = MAX_PARTITIONS - judged
        spent = situation.spent.cost + sum(candidate.cost for candidate in candidates)
        tried = [_in_slices(situation, option, saving, spent, most) for option in options]
        found = max(tried, key=lambda one: one.net)
        candidates += found.candidates
        rejections += found.rejected
        judged += len(options[0].parts)
        situation = exposing(situation, found.candidates)
    parts = [part for options in cuts for part in options[0].parts]
    rejections += oversized(situation, chosen.chosen, parts, "recluster")
    rejections += left_out(situation, chosen, saving)
    if not candidates:
        rejections = _nothing_to_gain(situation, rejections)
    return Proposals(tuple(candidates), tuple(rejections))


def _in_slices(
    situation: Situation, slicing: Slicing, saving: Float64, spent: float, most: int
) -> Proposals:
    """Return what passes of one partition's slices. most: how many are judged once one passes."""
    candidates: list[Candidate] = []
    rejections: list[Rejected] = []
    situation = situation.after(replace(situation.spent, sliced=slicing.sliced))
    for count, rows in enumerate(slicing.parts):
        if spent > situation.spent.cost and count >= most:
            break
        found, refused = _partition(situation, rows, saving, spent)
        candidates += found
        spent += sum(candidate.cost for candidate in found)
        rejections += refused
        situation = exposing(situation, found)
    return Proposals(tuple(candidates), tuple(rejections))


def allowed(situation: Situation) -> npt.NDArray[np.bool_]:
    """bool[files]: not taken, rewritable, outside the quiet period's partitions, and not waiting
    for a migration."""
    return movable(situation) & ~situation.facts.moving


def movable(situation: Situation) -> npt.NDArray[np.bool_]:
    """bool[files]: what a decision may rewrite if it migrates files as well."""
    return situation.facts.rewritable & ~situation.spent.taken & ~is_quiet(situation)


def _partitions(situation: Situation, chosen: Int64, saving: Float64) -> Iterator[Int64]:
    """Yield the chosen files per (spec, partition): partitions by net saving, files best first."""
    if not len(chosen):
        return
    partition = situation.table.partition[chosen]
    net = saving[chosen] - situation.alpha[chosen] * situation.cost[chosen]
    numbers, inverse = np.unique(partition, return_inverse=True)
    inverse = inverse.reshape(-1)
    total = np.bincount(inverse, net, len(numbers))
    for number in np.lexsort((numbers, -total)):
        yield chosen[inverse == number]


def _partition(
    situation: Situation, rows: Int64, saving: Float64, spent: float
) -> tuple[list[Candidate], list[Rejected]]:
    """Return the better of one action for all chosen files and one action per savings signature."""
    vectors, columns = _signatures(situation, rows)
    labels = cluster(vectors)
    together = _best_of(situation, rows, vectors, columns, spent)
    if labels.max(initial=0) == 0:
        return together
    found: list[Candidate] = []
    refused: list[Rejected] = []
    for number in range(int(labels.max()) + 1):
        members = labels == number
        mine, other = _best_of(
            situation, rows[members], vectors[members], columns,
            spent + sum(candidate.cost for candidate in found),
        )  # fmt: skip
        found += mine
        refused += other
        situation = exposing(situation, mine)
    if not found and not together[0]:  # also report what would pay but brings nothing new
        known = [item for item in refused if item.reason == reasons.NOTHING_NEW]
        return [], [*together[1], *known]
    apart_net = sum(candidate.net for candidate in found)
    together_net = sum(candidate.net for candidate in together[0])
    return together if together_net >= apart_net else (found, refused)


def exposing(situation: Situation, chosen: Sequence[Candidate]) -> Situation:
    """Return the situation with what these rewrites add to the exposure of the table."""
    spent = situation.spent
    return situation.after(replace(spent, exposed=spent.exposed + added_by(situation, chosen)))


def _signatures(situation: Situation, rows: Int64) -> tuple[Float64, list[int]]:
    used = [
        predicate_columns(demand.predicate, situation.table.schema)
        for demand in situation.expected.demands
    ]
    columns = varying_columns(situation, rows)
    return signatures(situation.expected.savings.by_shape[:, rows], used, columns), columns


def varying_columns(situation: Situation, rows: Int64) -> list[int]:
    """Return the filtered columns of which these files, of one partition, may hold two values."""
    files = situation.part(np.sort(rows)).known
    return [
        column
        for column in keys.wanted_columns(situation)
        if column in files.columns and _varies(files.columns[column])
    ]


def _varies(column: ColumnBounds) -> bool:
    """Whether files of one partition, with these bounds, may hold two values of the column.

    Rows cannot be ordered by a column that an identity partition holds constant.
    """
    bounded = column.bounded
    if not bounded.any():
        return False
    if (column.nulls != 0).any() or not bounded.all() or column.truncated.any():
        return True
    return bool((column.lower[:1] != column.lower).any() or (column.upper != column.lower).any())


def _best_of(
    situation: Situation, rows: Int64, vectors: Float64, columns: list[int], spent: float
) -> tuple[list[Candidate], list[Rejected]]:
    """Return the best key for all of the files, where none passes for those without the largest
    runs (`tiers`), or for files that we never sorted, if that brings more.

    What new files could save can be saved. At the ends of a run it cannot: two slices of it meet in
    a file whatever the cut, and such files may hide that the new ones pay.
    """
    first: tuple[list[Candidate], list[Rejected]] | None = None
    sets = tiers(situation, rows) if columns else []
    for files in sets:
        kept = np.isin(rows, files)
        found = _best_prefix(
            situation, rows[kept], vectors[kept], columns, spent, silent=first is not None
        )
        first = first or found
        if found[0]:
            first = found
            break
    new = ~situation.table.layout_written[rows]
    if not sets or not 1 < new.sum() < len(rows):
        return first or ([], [])
    alone = _best_prefix(situation, rows[new], vectors[new], columns, spent, silent=True)
    return max(first or ([], []), alone, key=lambda one: sum(made.net for made in one[0]))


def _best_prefix(
    situation: Situation,
    rows: Int64,
    vectors: Float64,
    columns: list[int],
    spent: float,
    *,
    silent: bool,
) -> tuple[list[Candidate], list[Rejected]]:
    """Return the best key for all of the files, or for the best half or quarter of them.

    silent: what is refused is not reported, so that what cannot pass need not be judged.
    """
    refused: list[Rejected] = []
    fractions = list(FRACTIONS)
    while fractions:
        fraction = fractions.pop(0)
        count = int(np.ceil(len(rows) * fraction - 1e-9))
        if count < 1 or (fraction < 1.0 and count < 2):
            break
        part = np.sort(rows[:count])
        if silent and not may_pass(situation, part, floor_of(situation, part)):
            continue
        centroid = vectors[:count].mean(axis=0)
        ranked = keys.ranked(
            situation, part, centroid, columns,
            lambda made: _refusal(situation, made, spent) is None,
        )  # fmt: skip
        if not ranked:
            tree = situation.settings.mode == QD_TREE
            reason = reasons.NO_TREE if tree else reasons.NO_SAMPLE
            return [], [rejected(situation, "recluster", reason, "", part)]
        verdict = _refusal(situation, ranked[0], spent)
        if verdict is None:
            return [ranked[0]], _others(situation, ranked)
        by_key = ranked[0].ordering.tree is None
        why = verdict.reason
        if why == reasons.NOTHING_NEW or (why == reasons.GROWS_TOO_LITTLE and by_key):
            fractions = []  # less data of the same runs of a key grows no more
        elif why == reasons.NOT_EARNED and fraction == 1.0:
            fits = FITTING * _fitting(situation, ranked[0], spent)
            fits = np.floor(fits * len(rows)) / len(rows)  # files are whole
            fractions = [share for share in (fits, *FRACTIONS, fits / 2) if 0.0 < share <= fits]
        refused = refused or [_refused(situation, ranked[0], verdict)]
    return [], refused


def _refused(situation: Situation, best: Candidate, verdict: WhyNot) -> Rejected:
    reason, why = verdict
    if best.label == "bound":
        reason, why = reasons.NO_SAMPLE, sentence(reasons.SENTENCES[reasons.NO_SAMPLE])
    what = f"recluster by {_key_text(situation, best)}"
    return rejected(situation, what, reason, why, best.rows, best)


def _others(situation: Situation, ranked: Sequence[Candidate]) -> list[Rejected]:
    """Return the keys that the first one is better than."""
    return [
        rejected(
            situation, f"recluster by {_key_text(situation, other)}", reasons.OTHER_KEY,
            reasons.times_cost(other.saving_low, other.cost)
            + f"; {_key_text(situation, ranked[0])} saves {_compared(ranked[0], other)}",
            other.rows, other,
        )
        for other in ranked[1:]
    ]  # fmt: skip


def _refusal(situation: Situation, candidate: Candidate, spent: float) -> WhyNot | None:
    """Return why the candidate does not pass: `candidate.refusal`, or that it would sort runs again
    for little new data, or for what their plan knew already."""
    runs = merged_runs(situation, candidate.rows, candidate.ordering)
    recent = situation.facts.recent.copy()
    for run in runs:  # a run that grows is not rewritten against its own order
        recent[run] = False
    situation = replace(situation, facts=replace(situation.facts, recent=recent))
    together = candidate.saving_low * situation.spent.sliced.parts  # as if all slices saved as much
    floor = floor_of(situation, candidate.rows)
    if (why := refusal(situation, candidate, spent, together, floor)) is not None:
        return why
    if candidate.saving_low > SETTLED * situation.settings.alpha * candidate.cost:
        return None
    if nothing_new(situation, candidate.rows, candidate.ordering):
        return WhyNot.plain(reasons.NOTHING_NEW)
    if grows(situation, candidate.rows, runs):
        return None
    return WhyNot.plain(reasons.GROWS_TOO_LITTLE)


def floor_of(situation: Situation, rows: Int64) -> float:
    """Return the share of a year's reading that sorting these files has to save.

    The floor keeps files from being sorted again for little. Beside sorted files, those that we
    never wrote are sorted for the first time, once, and wait until they are several (`grows`).
    """
    table = situation.table
    written = table.layout_written
    beside = (table.partition == table.partition[rows[0]]) & written if len(rows) else written
    return 0.0 if beside.any() and not written[rows].any() else FLOOR


def _fitting(situation: Situation, candidate: Candidate, spent: float) -> float:
    """Return the share of a rewrite that the room admits, if its parts were all alike."""
    possible = possible_loss(situation, candidate)
    free = room_left(situation, spent) - possible.standing
    return max(free, 0.0) / max(possible.total - possible.standing, 1e-9)


def sorted_together(situation: Situation, rows: Int64, spent: float) -> Candidate | None:
    """Return the rewrite of these files by the best key of the queries; None if none passes."""
    vectors, columns = _signatures(situation, rows)
    if not columns:
        return None
    ranked = keys.ranked(
        situation, rows, vectors.mean(axis=0), columns,
        lambda made: _refusal(situation, made, spent) is None,
    )  # fmt: skip
    return ranked[0] if ranked and _refusal(situation, ranked[0], spent) is None else None


def _compared(best: Candidate, other: Candidate) -> str:
    return "more" if best.net >= other.net else "nearly as much without a curve"


def _key_text(situation: Situation, candidate: Candidate) -> str:
    return candidate.ordering.text(situation.table.schema)


def left_out(situation: Situation, chosen: FilePrefix, saving: Float64) -> list[Rejected]:
    """Return the boundary files beyond the cut, with their saving relative to their cost."""
    rest = np.sort(chosen.order[len(chosen.chosen) :])
    if not len(rest):
        return []
    total, cost = float(saving[rest].sum()), float(situation.cost[rest].sum())
    alpha = situation.settings.alpha
    why = reasons.times_cost(total, cost)
    why += f" by what queries skip, at the recorded rates (WAIR Eq. 4, alpha {alpha:g})"
    reason = reasons.DEBT if chosen.truncated else reasons.BELOW_COST
    if reason != reasons.BELOW_COST:
        why += f"; {reasons.SENTENCES[reason]}"
    more = "more " if len(chosen.chosen) else ""
    title = f"{len(rest)} {more}boundary file" + "s" * (len(rest) != 1)
    return [rejected(situation, title, reason, why, np.sort(rest))]


def _window_moved(situation: Situation) -> bool:
    """Whether most of the possible saving belongs to moving windows that leave the data.

    Moving queries read these files in the recorded window but will not over the horizon, and they
    account for most of what a layout could have saved the recorded queries.
    """
    recorded = expected = spared = spared_moving = 0.0
    for demand, reading in situation.expected.readings:
        needless = max(float(demand.weight @ (reading.bytes - reading.matching)), 0.0)
        spared += needless if demand.prunable else 0.0
        if demand.moving:
            spared_moving += needless
            share = float(demand.executions.sum()) / max(float(demand.weight.sum()), 1e-9)
            recorded += float(demand.weight @ reading.bytes) * share
            expected += float(demand.executions @ reading.bytes)
    return spared_moving > 0.5 * spared and recorded > 0.0 and expected < 0.5 * recorded


def _nothing_to_gain(situation: Situation, rejections: list[Rejected]) -> list[Rejected]:
    """Return the rejections, preceded by the reason that explains them all: the queries need all
    they read, their window has moved past the data, or the layout already serves them.
    """
    if situation.facts.refused:
        return rejections
    useless = unprunable.why_nothing_helps(situation)
    message: Sentence | str = ""
    if _window_moved(situation):
        reason = reasons.WINDOW_MOVED
    elif useless:
        reason, message = reasons.NOT_PRUNABLE, useless
    elif _served(situation) or not (rejections or is_quiet(situation).any()):
        reason = reasons.WELL_CLUSTERED
    else:
        return rejections
    nothing = np.zeros(0, dtype=np.int64)
    return [rejected(situation, "recluster", reason, message, nothing), *rejections]


def _served(situation: Situation) -> bool:
    return amplification(situation, _bytes_now(situation)) <= SERVED


def _bytes_now(situation: Situation) -> list[Float64]:
    return [reading.bytes for reading in situation.expected.savings.readings]
