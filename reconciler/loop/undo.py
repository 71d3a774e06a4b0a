"""Makes the plan that takes another plan back: a rollback, or a rewrite where one is not possible.

The table and the ledger are read here. `plan.undo` says which way is open, and
`advisor.choose.earlier_order` how rows lay before. The result is approved and carried out as any
plan.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from reconciler.advisor.advice import Advice, ScoredAction
from reconciler.advisor.choose.earlier_order import (
    EarlierLayout,
    back_to_earlier_order,
    older_ordering,
)
from reconciler.catalog.load import data_file_io
from reconciler.engines.actions.roll_back import missing
from reconciler.errors import UserError
from reconciler.format import plural
from reconciler.loop.advised import Advised, advised
from reconciler.loop.evidence import total_lines
from reconciler.loop.measure import WindowReading, window_read
from reconciler.loop.propose import PlanRequest, Proposal, freeze_advice, looked_at, proposal_of
from reconciler.loop.reader import Reader
from reconciler.loop.recommend import by_spark
from reconciler.plan.actions.rewrite import Rewrite, as_rewrite
from reconciler.plan.actions.roll_back import RollBack
from reconciler.plan.execution import plan_of_file
from reconciler.plan.ordering import Ordering
from reconciler.plan.plan import Plan, PlannedAction
from reconciler.plan.prediction import Prediction, total
from reconciler.plan.prediction_interval import Interval, files_after
from reconciler.plan.totals import Quantity, is_of
from reconciler.plan.undo import Carried, Way, carried, last_to_undo, undone_by, way_back
from reconciler.table.damage import damage_of
from reconciler.table.filetable import FileTable, Int64
from reconciler.table.joined import row_groups_at
from reconciler.table.sample import RowGroups
from reconciler.table.unwritable import unwritable
from reconciler.table.values import partition_identity

PartitionId = tuple[int, tuple[object, ...]]
"""Id of a partition spec, and what tells a partition of it from others."""


@dataclass(frozen=True, slots=True)
class Undo:
    """What takes a plan back."""

    actions: tuple[ScoredAction, ...]
    """The actions."""
    why: str
    """Why it is taken back so, as a clause."""
    old: tuple[FileTable, ...] | None
    """The files as they will be in place of those that leave; None if their bounds are not
    known."""
    base: int | None = None
    """The snapshot that is rolled back to, on which the plan rests before and after: it must not
    expire while the plan stands. None for a rewrite."""


def propose_undo(
    wanted: PlanRequest, actor: Reader, now: dt.datetime, plan_id: str | None
) -> Proposal:
    """Return the plan that takes a plan of the table back. plan_id: None for the last one.

    Raises UserError if there is no such plan, or if nothing of it can be taken back.
    """
    found = advised(looked_at(wanted), wanted.policy, actor, now)
    seen, entries = found.observation, found.history.entries
    chosen = plan_id or last_to_undo(entries)
    past = carried(chosen or "", entries, actor.store.intents(seen.uuid))
    if found.settings.audited is not None:
        raise UserError(
            f"{seen.name} has a branch with work that waits for approval",
            details=("It is published or dropped before a plan is taken back.",),
            do=f"layoutctl apply {seen.name}",
        )
    _refuse_unknown(seen.name, chosen, past, undone_by(entries))
    way = _with_files(way_back(past, seen.metadata.log), past, wanted, actor)
    make = _laid_back if way.to is None else _rolled_back
    made = make(found, past, way, actor)
    made = replace(made, actions=tuple(_marked(one, past, wanted) for one in made.actions))
    found = replace(found, advice=_advice(found, made))
    plan = freeze_advice(wanted, found, now, _evidence(found, past, made))
    if made.base is not None:
        plan = replace(plan, base_snapshot_id=made.base)
    return proposal_of(wanted, found, plan, now)


def _refuse_unknown(
    name: str, chosen: str | None, past: Carried, undone: Mapping[str, str]
) -> None:
    again = f"layoutctl history {name}"
    if chosen is None:
        raise UserError(f"{name}: no plan that could be taken back is recorded here", do=again)
    if chosen in undone:
        raise UserError(
            f"plan {chosen} of {name} was taken back already, by plan {undone[chosen]}", do=again
        )
    if not past.batches:
        raise UserError(
            f"plan {chosen} of {name} changed no content file of the table",
            details=("Only commits that replaced data files or delete files are taken back.",),
            do=again,
        )


def _marked(one: ScoredAction, past: Carried, wanted: PlanRequest) -> ScoredAction:
    """Return the action as the ledger has to know it."""
    predicted = replace(one.predicted, undoes=past.plan_id, held_under=wanted.policy_hash)
    return replace(one, predicted=predicted)


def _with_files(way: Way, past: Carried, wanted: PlanRequest, actor: Reader) -> Way:
    """Return the way, which is no rollback if a file that would come back cannot be found."""
    if way.to is None:
        return way
    io = data_file_io(wanted.target.catalog, wanted.target.identifier, actor.timeout)
    gone = missing(sorted(past.replaced), lambda path: bool(io.new_input(path).exists()))
    if not gone:
        return way
    why = f"{plural(len(gone), 'file')} of the older snapshot are missing"
    return replace(way, to=None, why=why)


def _rolled_back(found: Advised, past: Carried, way: Way, actor: Reader) -> Undo:
    seen = found.observation
    live = seen.files.row_of.keys() | seen.deletes.paths
    assert way.to is not None
    action = RollBack(
        inputs=tuple(sorted(past.added & live)),
        snapshot_id=way.to, over=way.over, restored=tuple(sorted(past.replaced)),
    )  # fmt: skip
    label = action.label(seen.schema, seen.files.specs)
    predicted = Prediction(
        label=f"{label}, which takes plan {past.plan_id} back", reason=way.why, kind=action.kind,
        estimate="exact", evidence="undo",
    )  # fmt: skip
    old = actor.store.old_zone_maps_of({past.plan_id})
    rewritten = {
        (one.plan_id, one.outcome.action_id) for one in past.entries if one.predicted.rewrites_data
    }
    known = rewritten <= old.keys()
    files = tuple(old[key] for key in sorted(rewritten)) if known else None
    return Undo((ScoredAction(action, predicted),), way.why, files, way.to)


def _laid_back(found: Advised, past: Carried, way: Way, actor: Reader) -> Undo:
    """Return the rewrite of the plan's files that are still in the table."""
    seen, store = found.observation, actor.store
    plan = store.get_plan(past.plan_id)
    refused = damage_of(seen) or unwritable(seen.schema, seen.properties)
    if plan is None or refused:
        raise _no_way(past, way, refused or "its plan is not kept any more")
    old = store.old_zone_maps_of({past.plan_id})
    done = {entry.outcome.action_id for entry in past.entries}
    rewrites = [(one, what) for one in plan.actions if (what := _rewritten(one)) is not None]
    together: dict[PartitionId, list[EarlierLayout]] = {}
    for item, rewrite in rewrites:
        if item.id in done:
            partition = (rewrite.spec_id, partition_identity(rewrite.partition))
            before = EarlierLayout(rewrite, old.get((past.plan_id, item.id)), item.predicted)
            together.setdefault(partition, []).append(before)
    why, orderings = by_spark(seen), _orderings(old.values(), actor)
    actions, known, befores = [], list[FileTable](), 0
    rows_of = _rows_by_partition(seen.files, past)
    for partition in [one for one in together if one in rows_of]:
        rows, own = rows_of.pop(partition), together[partition]
        ordering, *more = {older_ordering(one, orderings) for one in own}
        if more or ordering is None:  # which rows lay in which of the orders is not known
            continue
        actions.append(
            back_to_earlier_order(seen.files, rows, own[0], ordering, found.settings, why)
        )
        befores += len(own)
        known += [one.files for one in own if one.files is not None]
    if not actions:
        raise _no_way(past, way, "no file of it is left of which the older order of rows is known")
    whole = len(actions) == len(together) and not rows_of and len(known) == befores
    return Undo(tuple(actions), f"no rollback: {way.why}", tuple(known) if whole else None)


def _no_way(past: Carried, way: Way, why: str) -> UserError:
    return UserError(
        f"plan {past.plan_id} cannot be taken back",
        details=(f"It cannot be rolled back: {way.why}.", f"Nor laid out again: {why}."),
        do="change what the policy asks for (spec.layout), and plan the table again",
    )


def _rewritten(item: PlannedAction) -> Rewrite | None:
    """Return the action if it rewrote data files within their partition."""
    rewrite = as_rewrite(item.action)
    return rewrite if rewrite is not None and rewrite.moves_by is None else None


def _rows_by_partition(files: FileTable, past: Carried) -> dict[PartitionId, Int64]:
    """Return the rows of the plan's live data files by spec id and partition."""
    found: dict[PartitionId, list[int]] = {}
    for path in past.added:
        row = files.row_of.get(path)
        if row is not None:
            spec_id, values = files.partitions[int(files.partition[row])]
            found.setdefault((spec_id, partition_identity(values)), []).append(row)
    return {key: np.array(sorted(rows), dtype=np.int64) for key, rows in found.items()}


def _orderings(parts: Iterable[FileTable], actor: Reader) -> dict[str, Ordering]:
    """Return the order that each plan of ours wrote, of those whose files these are."""
    plans = {plan_of_file(str(path)) for files in parts for path in files.path}
    known = {one: actor.store.get_plan(one) for one in plans if one}
    return {
        name: orders[0]
        for name, plan in known.items()
        if plan is not None and (orders := _orders(plan)) and orders.count(orders[0]) == len(orders)
    }


def _orders(plan: Plan) -> Sequence[Ordering]:
    rewrites = (as_rewrite(item.action) for item in plan.actions)
    return [one.ordering for one in rewrites if one is not None]


def _advice(found: Advised, undo: Undo) -> Advice:
    """Return the advice of the undo alone. Queries are measured by the row groups of live files
    whose footers are known, and by the bounds of the other files and of those that come back."""
    seen, settings, was = found.observation, found.settings, found.advice
    predicted = [one.predicted for one in undo.actions]
    work, leaving = total(predicted), {p for one in undo.actions for p in one.action.inputs}
    stay = np.array([str(path) not in leaving for path in seen.files.path], dtype=np.bool_)
    now = _read(seen.files, found, found.row_groups)
    after = _read_after(found, undo.old, np.flatnonzero(stay))
    files = files_after(len(seen.files), predicted)
    storage = seen.files.total_bytes + work.bytes_out
    if undo.old is not None and not work.files_in:
        count = int(stay.sum()) + sum(len(one) for one in undo.old)
        files = Interval.exactly(count)
        storage = sum(one.total_bytes for one in (seen.files.take(stay), *undo.old))
    return replace(
        was,
        actions=undo.actions,
        rejected=(),
        shapes=(),
        read_now=now.bytes,
        read_after=Interval.exactly(after.bytes),
        cost_now=now.cost,
        cost_after=Interval.exactly(after.cost),
        files_after=files,
        storage_after=storage,
        objectives=(),
        payback_hours=None,
        cost=float(work.cost),
        cpu_seconds=work.cpu_seconds,
        seconds=work.seconds(settings.throughput),
        modes=(),
        notes=(),
        files_unchecked=0,
    )


def _read_after(found: Advised, old: tuple[FileTable, ...] | None, stay: Int64) -> WindowReading:
    """Return what is read of the files that stay and of those that come back, NaN if these are not
    known."""
    if old is None:
        return WindowReading(float("nan"), float("nan"))
    files = found.observation.files
    groups = row_groups_at(found.row_groups, stay, len(files))
    parts = [_read(files.take(stay), found, groups), *(_read(one, found) for one in old)]
    return WindowReading(sum(one.bytes for one in parts), sum(one.cost for one in parts))


def _read(files: FileTable, found: Advised, row_groups: RowGroups | None = None) -> WindowReading:
    """Return what the recorded queries read of these files. row_groups: those that are known."""
    settings = found.settings
    return window_read(
        files, found.queries.workload, row_groups, settings.row_group_bytes, settings.open_bytes
    )


def _evidence(found: Advised, past: Carried, undo: Undo) -> dict[str, Any]:
    """Return what is taken back, why so, and what of the plan stays."""
    lines = total_lines(found.advice, found.queries.workload)
    left_out = [Quantity.AMPLIFICATION]
    if undo.old is None:
        left_out += [Quantity.READ, Quantity.COST]
    if undo.old is None and undo.base is not None:  # the files that come back are not known
        left_out += [Quantity.FILES, Quantity.STORAGE]
    stays = {
        entry.predicted.label or entry.action_type
        for entry in past.entries
        if not entry.predicted.rewrites
    }
    return {
        "undo": {"plan": past.plan_id, "why": undo.why, "stays": sorted(stays)},
        "totals": [line for line in lines if not any(is_of(line, one) for one in left_out)],
    }
