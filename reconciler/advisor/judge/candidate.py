"""Scores one candidate rewrite by its what-if, and decides whether it passes the gate and the
floor.

See docs/design/definitions.md#gate-and-floor, and WAIR section 4.3, Eq. 2, 4 and 5. Every action
type is scored by the same function; each decision chooses which of the verdicts bind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from reconciler.advisor.advice import Rejected
from reconciler.advisor.judge.room import admitted, possible_loss, room_left
from reconciler.advisor.qdtree.woodblock import Training
from reconciler.advisor.simulate.layout import UNKNOWN_FILES, Layout, Outcome
from reconciler.advisor.simulate.pool import Pool
from reconciler.advisor.simulate.sampled import with_replicates
from reconciler.advisor.simulate.whatif import simulate
from reconciler.advisor.situation import Situation
from reconciler.advisor.spent import NOT_SLICED, Left, Sliced
from reconciler.advisor.wair.cut import allowance_credit, spending_limit
from reconciler.plan import reasons
from reconciler.plan.grouping import MAX_GROUP_BYTES, PACK_TARGETS
from reconciler.plan.ordering import Ordering
from reconciler.plan.sentence import Sentence, sentence
from reconciler.queries.read_cost import ShapeReading, read_shape
from reconciler.queries.rewrite_cost import rewrite_cost
from reconciler.queries.table_view import TableView
from reconciler.table.filetable import FileTable, Float64, Int64

TENTH_PERCENTILE = 1.2816
"""Number of standard errors between a mean and its 10th percentile."""

FLOOR = 0.001
"""An action must save at least this share of the yearly read cost of the partition it rewrites.

It is not a share of the whole table's cost: in a table with a partition a day no action could save
that much, and the more days the table has, the less would be done for each.
"""

ROUNDING = 1e-9
"""Share by which sums of the same numbers in another order may differ."""


class WhyNot(NamedTuple):
    """Why something is not planned."""

    reason: str
    """A constant of `plan.reasons`."""
    why: Sentence
    """The reason for people, with the numbers of this case."""

    @classmethod
    def plain(cls, reason: str) -> WhyNot:
        """Return a reason whose sentence has no numbers."""
        return cls(reason, sentence(reasons.SENTENCES[reason]))


@dataclass(frozen=True)
class Candidate:
    """A rewrite of some files by a key, with what each shape reads of them before and after it."""

    rows: Int64
    """int64: rows of the file table that it rewrites, ascending."""
    ordering: Ordering
    """The order of rows in the files that it writes."""
    groups: int
    """Number of groups that it is executed in."""
    files_out: int
    """Number of files that it would write."""
    before: tuple[ShapeReading, ...]
    """What each shape reads of these files now."""
    after: tuple[ShapeReading, ...]
    """What each shape would read of the written files."""
    saving: float
    """Bytes of reading saved over the horizon, openings included."""
    saving_low: float
    """10th percentile of `saving`, by the errors of the sample and of the rates."""
    cost: float
    """Cost in bytes of reading: rho x input bytes."""
    label: str
    """How the written files are known (`Written.label`)."""
    views: tuple[TableView, ...]
    """The files and row groups that it would write."""
    row_group_bytes: int
    """Stored bytes of a full row group that it would write."""
    written_share: float
    """Bytes written for each live byte of its inputs."""
    row_group_configured: int = 0
    """Size of row groups in bytes that the writer is given; 0 for the table's own."""
    target_configured: int = 0
    """Size of files in bytes that the writer is given; 0 for the table's own."""
    sliced: Sliced = NOT_SLICED
    """How a budget cut the work of which it is a part."""
    training: Training | None = None
    """What Woodblock would have to search for a better tree of its rows; None if nothing."""

    @property
    def written(self) -> tuple[FileTable, ...]:
        return tuple(view.files for view in self.views)

    def left(self, target_bytes: int) -> Left:
        """Return what it leaves. target_bytes: size of files, where it has none of its own."""
        records = np.concatenate([files.records for files in self.written])
        size = np.concatenate([files.bytes for files in self.written])
        columns = self.written[0].columns if len(self.written) == 1 else {}
        if self.label == UNKNOWN_FILES:  # `written` has the files that are replaced
            count, columns = max(self.files_out, 1), {}
            records, size = (np.full(count, value.sum() // count) for value in (records, size))
        return Left(self.rows, records, size, self.target_configured or target_bytes, columns)

    @property
    def net(self) -> float:
        return self.saving - self.cost

    @property
    def net_per_cost(self) -> float:
        return self.net / self.cost if self.cost else float("inf")


def readings_of(situation: Situation, rows: Int64) -> tuple[ShapeReading, ...]:
    """Return what each shape reads from these files now."""
    if len(rows) == len(situation.table):
        return situation.expected.savings.readings
    part = situation.part(rows)
    return tuple(read_shape(part, demand) for demand in situation.expected.demands)


def planned_layout(
    situation: Situation, rows: Int64, ordering: Ordering, target_bytes: int = 0
) -> Layout:
    """Return the layout as the execution will run it: the same groups, in key order.

    target_bytes: size of files, 0 for the table's own.
    """
    settings = situation.settings
    target = target_bytes or settings.target_bytes
    files = situation.part(rows).files
    return Layout(
        ordering, target, settings.row_group_bytes, _group_of(files, ordering, target),
        settings.open_bytes, int(files.partition[0]) if len(files) else 0,
        unbounded=situation.facts.unbounded,
    )  # fmt: skip


def _group_of(files: FileTable, ordering: Ordering, target_bytes: int) -> Int64:
    """Return the group in which each file is rewritten, int64[files], found once for all orderings
    that group alike: by a tree, or by the first column of a key. What a curve or a tree orders is
    one group unless it is too large for one."""
    if not ordering.merges_small and int(files.bytes.sum()) <= MAX_GROUP_BYTES:
        return np.zeros(len(files), dtype=np.int64)
    first = tuple(column.field_id for column in ordering.key[:1])
    size = target_bytes if ordering.merges_small else 0
    key = ordering.name, first if ordering.tree is None else ordering.tree.name, size
    known: dict[object, Int64] = files.derived.setdefault("groups by ordering", {})
    if key not in known:
        extents = ordering.extents(files)
        merge = PACK_TARGETS * target_bytes
        known[key] = ordering.parts(extents, target_bytes, merge).number
    return known[key]


def what_if(situation: Situation, rows: Int64, layout: Layout, pool: Pool | None) -> Outcome | None:
    """Return the what-if from the sample, else from bounds, else None."""
    keyed = all(c.field_id in pool.columns for c in layout.ordering.key) if pool else False
    if pool is not None and keyed:
        return simulate(layout, pool, situation.expected.demands)
    return simulate(layout, situation.part(rows).known, situation.expected.demands)


def weigh(
    situation: Situation,
    rows: Int64,
    layout: Layout,
    before: tuple[ShapeReading, ...],
    outcome: Outcome,
) -> Candidate:
    """Return the candidate with its saving and the saving's 10th percentile over the bootstrap."""
    gains = shape_gains(situation, before, outcome.readings)
    saving = low = float(gains.sum())
    if outcome.replicates:
        drawn = [shape_gains(situation, before, r).sum() for r in outcome.replicates]
        low = min(saving, float(np.quantile(np.array(drawn), 0.1)))
    low -= TENTH_PERCENTILE * _rate_error(situation, gains)
    return Candidate(
        rows=rows,
        ordering=layout.ordering,
        groups=int(layout.groups.max()) + 1,
        files_out=outcome.written.files,
        before=before,
        after=outcome.readings,
        saving=saving,
        saving_low=low,
        cost=rewrite_cost(situation.settings.rho, int(situation.table.bytes[rows].sum())),
        label=outcome.written.label,
        views=outcome.written.views,
        row_group_bytes=layout.row_group_bytes,
        written_share=outcome.written.share,
        sliced=situation.spent.sliced,
    )


def sharpen(
    situation: Situation,
    candidate: Candidate,
    layout: Layout,
    outcome: Outcome,
    pool: Pool,
    grown: Outcome,
) -> Candidate:
    """Return the same candidate with the sample's own error included.

    grown: the outcome of the layout by the queries that it was made for, of which replicates are
    drawn. They are moved by as much as other queries read more, so that the error is beside what is
    expected of those.
    """
    demands, seed = situation.expected.demands, situation.settings.seed
    drawn = with_replicates(grown, pool, layout, demands, seed)
    moved = tuple(
        tuple(
            replace(read, cost=read.cost + (other.cost - own.cost))
            for read, other, own in zip(each, outcome.readings, grown.readings, strict=True)
        )
        for each in drawn.replicates
    )
    return weighed_again(situation, candidate, layout, replace(outcome, replicates=moved))


def weighed_again(
    situation: Situation, candidate: Candidate, layout: Layout, outcome: Outcome
) -> Candidate:
    """Return the same candidate with another outcome of its layout."""
    made = weigh(situation, candidate.rows, layout, candidate.before, outcome)
    return replace(
        made,
        row_group_configured=candidate.row_group_configured,
        target_configured=candidate.target_configured,
        training=candidate.training,
    )


def shape_gains(
    situation: Situation, before: tuple[ShapeReading, ...], after: tuple[ShapeReading, ...]
) -> Float64:
    """Return the saving of each shape over the horizon, float64[shapes]: its expected executions x
    (cost now - cost after).

    Shapes that nobody asks for any more are among them: the forecast expects the mix of the whole
    log for a part of the horizon.
    """
    gains = np.zeros(len(situation.expected.demands))
    for number, demand in enumerate(situation.expected.demands):
        gains[number] = float(demand.executions @ (before[number].cost - after[number].cost))
    return gains


def _rate_error(situation: Situation, gains: Float64) -> float:
    """Return the standard error of the summed gains that comes from the rates alone.

    n recorded executions of a shape estimate its rate to within 1 / sqrt(n).
    """
    counts = np.array([max(float(d.weight.sum()), 1.0) for d in situation.expected.demands])
    return float(np.sqrt((gains**2 / counts).sum())) if len(counts) else 0.0


def refusal(
    situation: Situation,
    candidate: Candidate,
    spent: float,
    together: float = 0.0,
    floor: float = FLOOR,
) -> WhyNot | None:
    """Return the reason and its sentence if the candidate does not pass, None if it does.

    spent: cost of the plan's actions already chosen. together: the saving of all the parts into
    which one piece of work was cut; the floor is for all of them. floor: the share of a year's
    reading of the partition that has to be saved.
    """
    settings = situation.settings
    alpha = float(np.average(situation.alpha[candidate.rows], weights=_sizes(situation, candidate)))
    low, cost = candidate.saving_low, candidate.cost
    if low <= settings.alpha * cost:
        if low < 0.0 < candidate.saving:
            return WhyNot(reasons.BELOW_COST, reasons.torn(low, candidate.saving, cost))
        return WhyNot(reasons.BELOW_COST, reasons.short_of(low, cost, settings.alpha))
    if low <= alpha * cost:
        why = reasons.SENTENCES[reasons.RECENTLY_WRITTEN]
        return WhyNot(reasons.RECENTLY_WRITTEN, reasons.short_of(low, cost, alpha) + f": {why}")
    yearly = _yearly_of_partition(situation, candidate.rows)
    if max(low, together) < floor * yearly:
        partition = situation.table.partition
        of_part = (partition != partition[candidate.rows[0]]).any()
        whole = "a year's reading" + (" of its partition" if of_part else "")
        return WhyNot(
            reasons.BELOW_FLOOR, reasons.below_floor(100.0 * low / max(yearly, 1.0), whole)
        )
    if cost > debt_room(situation) - spent:
        return WhyNot.plain(reasons.DEBT)
    if cost > spending_room(situation) - spent:
        return WhyNot.plain(reasons.ALLOWANCE)
    return not_earned(situation, candidate, spent)


def may_pass(situation: Situation, rows: Int64, floor: float = FLOOR) -> bool:
    """Return whether a rewrite of these files of one partition could pass the gate and the floor,
    if queries read nothing of them afterwards."""
    most = sum(
        float(demand.executions @ reading.cost)
        for demand, reading in zip(
            situation.expected.demands, readings_of(situation, rows), strict=True
        )
    )
    least = floor * _yearly_of_partition(situation, rows) if floor else 0.0
    gate = situation.settings.alpha * float(situation.cost[rows].sum())
    most *= 1.0 + ROUNDING
    return most > gate and most * situation.spent.sliced.parts >= least


def not_earned(situation: Situation, candidate: Candidate, spent: float) -> WhyNot | None:
    """Return the reason and its sentence if the candidate may lose more than is left to lose.

    spent: cost of the plan's actions already chosen.
    """
    room = room_left(situation, spent)
    if room == np.inf or admitted(possible := possible_loss(situation, candidate), room, spent):
        return None
    return WhyNot(reasons.NOT_EARNED, reasons.not_earned(possible.total, room, candidate.cost))


def _sizes(situation: Situation, candidate: Candidate) -> Float64:
    return np.maximum(situation.table.bytes[candidate.rows].astype(np.float64), 1.0)


def _yearly_of_partition(situation: Situation, rows: Int64) -> float:
    """Return the bytes-equivalent that a year of the workload reads of the one partition of `rows`
    once the plan's actions already chosen are done: what the next plan would see."""
    partition, expected = situation.table.partition, situation.expected
    number = partition[rows[0]]
    own = np.flatnonzero(partition == number)
    every = _over_horizon(situation, expected.savings.readings)
    part = every
    if len(own) < len(partition):
        part = _over_horizon(situation, readings_of(situation, own))
    saved = sum(saving for where, saving in situation.spent.saved if where == number)
    return expected.yearly * max(part - saved, 0.0) / max(every, 1e-300)


def _over_horizon(situation: Situation, readings: Sequence[ShapeReading]) -> float:
    return sum(
        float(demand.executions @ reading.cost)
        for demand, reading in zip(situation.expected.demands, readings, strict=True)
    )


def debt_room(situation: Situation) -> float:
    """Return the debt that reclustering may still take on (Eq. 2).

    The limit is a share of a year's reading: however the workload changes, the loss compared with
    doing nothing stays within that share.
    """
    settings = situation.settings
    return spending_limit(settings.debt.outstanding, cost_limit(situation), None)


def cost_limit(situation: Situation) -> float:
    """Return Eq. 2's limit: a share of a year's reading, at the lower of present and mean rate.

    A burst of queries must not raise the possible loss.
    """
    return situation.settings.debt_share * min(
        situation.expected.yearly, situation.expected.yearly_mean
    )


def spending_room(situation: Situation) -> float:
    """Return what Eq. 2 and, if the policy has an allowance, Eq. 5 leave to spend."""
    outstanding = situation.settings.debt.outstanding
    return spending_limit(outstanding, cost_limit(situation), credit_left(situation))


def credit_left(situation: Situation) -> float | None:
    """Return what Eq. 5 leaves to spend; None if the policy has no allowance."""
    settings = situation.settings
    if settings.allowance is None:
        return None
    queries = sum(float(demand.weight.sum()) for demand in situation.expected.demands)
    return allowance_credit(
        settings.debt.realised, settings.debt.spent, settings.allowance, queries,
        file_reading(situation),
    )  # fmt: skip


def file_reading(situation: Situation) -> float:
    """Return the mean cost of one file read by one query: the unit of Eq. 5's allowance c."""
    opened = cost = 0.0
    for demand, reading in situation.expected.readings:
        weight = demand.weight + demand.executions
        opened += float(weight @ reading.files)
        cost += float(weight @ reading.cost)
    return cost / opened if opened > 0.0 else 0.0


def rejected(
    situation: Situation,
    what: Sentence | str,
    reason: str,
    why: Sentence | str,
    rows: Int64,
    candidate: Candidate | None = None,
) -> Rejected:
    """Return the entry that "CONSIDERED, NOT DONE" shows for a candidate. why: "" where the
    reason's own sentence says all."""
    table = situation.table
    return Rejected(
        what=sentence(what) if isinstance(what, str) else what,
        reason=reason,
        why=sentence(why or reasons.SENTENCES[reason]) if isinstance(why, str) else why,
        files=len(rows),
        bytes=int(table.bytes[rows].sum()),
        saving=candidate.saving if candidate else float("nan"),
        saving_low=candidate.saving_low if candidate else float("nan"),
        cost=candidate.cost if candidate else float("nan"),
        read_after=_window_after(situation, candidate) if candidate else float("nan"),
        inputs=table.sorted_paths(rows),
    )


def _window_after(situation: Situation, candidate: Candidate) -> float:
    total = 0.0
    for number, demand in enumerate(situation.expected.demands):
        whole = situation.expected.savings.readings[number].bytes
        change = candidate.after[number].bytes - candidate.before[number].bytes
        total += float(demand.weight @ (whole + change))
    return total
