"""Decides about a replica: a second table with the same rows in another tree's leaves, for the
queries that the table serves worst (Yang et al., "Qd-tree", section 6.3).

A whole build has to pay by what routed queries then do not read. What is appended to the table is
appended to the replica, until that is a quarter of it. Nothing is planned beside rewrites of the
table: the replica is for the queries that these leave badly served.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from reconciler.advisor.advice import Rejected, ScoredAction
from reconciler.advisor.choose.keys import FULL_ROWS, wanted_columns
from reconciler.advisor.choose.unseen import read_by_halves
from reconciler.advisor.choose.upkeep import Upkeep
from reconciler.advisor.judge.candidate import rejected
from reconciler.advisor.judge.room import room_left
from reconciler.advisor.measure.totals import window_bytes
from reconciler.advisor.qdtree.building import least_rows, problem_for, tree_of_nodes
from reconciler.advisor.qdtree.halves import Half
from reconciler.advisor.qdtree.two_trees import second_tree
from reconciler.advisor.simulate.layout import Layout
from reconciler.advisor.simulate.pool import Pool, build_pool
from reconciler.advisor.simulate.whatif import simulate
from reconciler.advisor.situation import Situation
from reconciler.format import iec
from reconciler.plan import reasons
from reconciler.plan.actions.build_replica import BuildReplica
from reconciler.plan.ordering import by_tree
from reconciler.plan.prediction import Prediction
from reconciler.plan.sentence import Sentence
from reconciler.queries.read_cost import ShapeReading
from reconciler.table.cut_tree import Tree
from reconciler.table.filetable import Float64
from reconciler.table.replica import (
    Replica,
    Standing,
    WantedReplica,
    hindrance,
    replica_of,
    standing,
)
from reconciler.table.row_group_bytes import output_files
from reconciler.table.schema import PartitionSpec
from reconciler.table.times import HOUR_MS

MOST_APPENDED = 0.25
"""Share of the replica in files of appended rows from which on it is built anew: they are sorted by
leaf, but each has rows of many leaves."""
LOOK_MS = HOUR_MS
"""Time after which a fresh replica is looked at again: nothing in the table shows that somebody has
dropped it."""
LEAST_FRESH_MS = float(HOUR_MS)
"""Mean time between changes of the table below which a replica would seldom be fresh."""


@dataclass(frozen=True, slots=True)
class _Gain:
    """What a replica brings."""

    read_after: tuple[Float64, ...]
    """Per shape, float64[queries]: bytes that a query reads of the better copy."""
    saving: float
    """Bytes of reading saved over the horizon, openings included."""


def replica(situation: Situation, *, rewrites: bool) -> Upkeep:
    """Return what is to be done for the replica of the policy, and why not more. rewrites: whether
    files of the table are rewritten by the same plan."""
    wanted = situation.settings.replica
    if wanted is None or situation.facts.refused or not len(situation.table):
        return Upkeep()
    metadata, live = situation.settings.metadata, int(situation.table.live_bytes.sum())
    record = replica_of(metadata.properties)
    if record is not None and record.table != wanted.table:
        record = None
    why = hindrance(situation.table.schema, metadata)
    if why:
        return _not(situation, wanted, reasons.NO_REPLICA, why)
    if wanted.changed_ms < LEAST_FRESH_MS:
        return _not(situation, wanted, reasons.NO_REPLICA, "the table changes too often")
    look = Upkeep(due_ms=situation.settings.now_ms + LOOK_MS)
    if wanted.foreign:
        why = f"table {wanted.table}: {wanted.foreign}"
        return look + _not(situation, wanted, reasons.NO_REPLICA, why)
    if record is not None and not wanted.lost:
        found = standing(record, metadata)
        if found.standing is Standing.FRESH:
            return look
        if found.standing is Standing.BEHIND and not rewrites:
            more = _appended(situation, wanted, record, live)
            if more is not None:
                return more
    if rewrites:
        return _not(situation, wanted, reasons.REPLICA_WAITS, "")
    if live > wanted.budget_bytes:
        why = f"its rows take {iec(live)}, and budgetBytes is {iec(wanted.budget_bytes)}"
        return _not(situation, wanted, reasons.NO_REPLICA, why)
    most = situation.settings.most_bytes
    if most is not None and live > most:
        return _not(situation, wanted, reasons.LARGER_THAN_BUDGET, "")
    lost = record.snapshot_id if record is not None and wanted.lost else 0
    return _whole(situation, wanted, live, lost)


def _appended(
    situation: Situation, wanted: WantedReplica, record: Replica, live: int
) -> Upkeep | None:
    """Return the action that appends new rows; None where the replica is to be built anew."""
    table = situation.table
    head = situation.settings.metadata.log.main[0].id
    grown = max(live - record.bytes, 0)
    if record.bytes + grown - record.built_bytes > MOST_APPENDED * record.built_bytes:
        return None
    most = situation.settings.most_bytes
    if record.bytes + grown > wanted.budget_bytes or (most is not None and grown > most):
        return None
    action = BuildReplica(
        wanted.table, record.tree, head, wanted.budget_bytes, situation.settings.target_bytes,
        True, wanted.kept_ms,
    )  # fmt: skip
    label = action.label(table.schema, table.specs)
    return Upkeep((ScoredAction(action, _predicted(situation, label, grown, "it is behind")),))


def _whole(situation: Situation, wanted: WantedReplica, live: int, lost: int) -> Upkeep:
    """Return the whole build. lost: snapshot of a replica that is not there any more, 0 for
    none."""
    settings, table = situation.settings, situation.table
    pool = build_pool(situation.facts.view, wanted_columns(situation), FULL_ROWS)
    tree = None if pool is None else _tree(situation, pool)
    if pool is None or tree is None:
        return _not(situation, wanted, reasons.NO_REPLICA, "no tree helps, or no sample is known")
    why = hindrance(table.schema, settings.metadata, tree)
    gain = None if why else _gain(situation, pool, tree)
    if gain is None:
        return _not(situation, wanted, reasons.NO_REPLICA, why or "no sample shows what it brings")
    cost = settings.rho.value * float(table.bytes.sum())
    share = min(1.0, wanted.rebuilt_ms / settings.horizon_ms)
    if gain.saving * share <= settings.alpha * cost:
        text = reasons.short_of(gain.saving * share, cost, settings.alpha)
        return _not(situation, wanted, reasons.BELOW_COST, text)
    room = room_left(situation, situation.spent.cost)
    if cost > room:
        return _not(situation, wanted, reasons.NOT_EARNED, reasons.not_earned(cost, room, cost))
    head = settings.metadata.log.main[0].id
    action = BuildReplica(
        wanted.table, tree, head, wanted.budget_bytes, settings.target_bytes,
        kept_ms=wanted.kept_ms, lost=lost,
    )  # fmt: skip
    now = [reading.bytes for reading in situation.expected.savings.readings]
    before, after = window_bytes(situation, now), window_bytes(situation, gain.read_after)
    reason = f"routed queries read {iec(after)} instead of {iec(before)}"
    if lost:
        reason = f"{reason}; of the last replica: {wanted.lost}"
    label = action.label(table.schema, table.specs)
    made = replace(
        _predicted(situation, label, live, reason), estimate="sampled", cost=round(cost),
        read_now=round(before), read_after=round(after),
        saving=round(gain.saving), saving_low=round(gain.saving * share),
    )  # fmt: skip
    return Upkeep((ScoredAction(action, made),))


def _tree(situation: Situation, pool: Pool, half: Half | None = None) -> Tree | None:
    """Return the second tree of the table's rows; None where none spares reading. half: queries
    without which it is grown, and not improved."""
    settings = situation.settings
    demands = situation.expected.demands
    others = demands if half is None else half.others(demands)
    problem = problem_for(pool, others, situation.facts.unbounded)
    if problem is None:
        return None
    now = [reading.bytes for reading in situation.expected.savings.readings]
    if half is not None:
        now = [read[~own] for read, own in zip(now, half.own, strict=True)]
    first = np.concatenate(
        [demand.executions * read for demand, read in zip(others, now, strict=True)]
    )
    least = least_rows(pool, settings.target_bytes, settings.trees.least_rows)
    steps = settings.trees.steps if settings.trees.climbs and half is None else 0
    found = second_tree(problem, first, least, steps, settings.seed)
    return None if found is None else tree_of_nodes(problem, found.root)


def _gain(situation: Situation, pool: Pool, tree: Tree) -> _Gain | None:
    """Return what routed queries read less, each in the copy that costs it less, and each of a tree
    that was grown without it (`choose.unseen`)."""
    demands, after, saving = situation.expected.demands, list[Float64](), 0.0
    now: tuple[ShapeReading, ...] = situation.expected.savings.readings
    read = _read(situation, pool, tree)
    if read is None:
        return None

    def without(half: Half) -> Sequence[ShapeReading]:
        other = _tree(situation, pool, half)
        return (None if other is None else _read(situation, pool, other)) or now

    read = read_by_halves(situation, read, without)
    for demand, first, second in zip(demands, now, read, strict=True):
        better = second.cost < first.cost
        after.append(np.where(better, second.bytes, first.bytes))
        saving += float(demand.executions @ np.where(better, first.cost - second.cost, 0.0))
    return _Gain(tuple(after), saving)


def _read(situation: Situation, pool: Pool, tree: Tree) -> tuple[ShapeReading, ...] | None:
    """Return what all queries read of a replica by a tree; None if no sample shows it."""
    settings = situation.settings
    layout = Layout(
        by_tree(tree), settings.target_bytes, settings.row_group_bytes,
        np.zeros(len(pool.files), dtype=np.int64), settings.open_bytes,
        spec=PartitionSpec(max(situation.table.specs) + 1), unbounded=situation.facts.unbounded,
    )  # fmt: skip
    outcome = simulate(layout, pool, situation.expected.demands)
    return None if outcome is None else outcome.readings


def _predicted(situation: Situation, label: str, size: int, reason: str) -> Prediction:
    """Return the prediction of writing so many bytes."""
    model = situation.settings.throughput
    return Prediction(
        label=label, reason=reason, kind=BuildReplica.kind, evidence="workload",
        files_in=len(situation.table), groups=1, bytes_in=size, bytes_out=size,
        files_out=int(output_files(np.array(size), situation.settings.target_bytes)),
        cpu_millis=round(1000 * model.cpu_seconds("sort", size)),
        millis=round(1000 * model.seconds("sort", size)),
        by_spark="a replica is another table",
    )  # fmt: skip


def _not(situation: Situation, wanted: WantedReplica, reason: str, why: Sentence | str) -> Upkeep:
    nothing = np.zeros(0, dtype=np.int64)
    found: Rejected = rejected(situation, f'build replica "{wanted.table}"', reason, why, nothing)
    return Upkeep(rejected=(found,))
