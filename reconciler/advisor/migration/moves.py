"""Decides how a table gets to the declared partition spec: which files move, and when writers do.

The spec is added first, then files move into its partitions, then the writers are switched. Files
that writers add under the old spec meanwhile are found by the next observation. A file moves once,
to the declared spec, whatever older spec it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from reconciler.advisor.advice import QD_TREE, Migration, ObjectiveJudgement, Rejected
from reconciler.advisor.choose.binpack import packing_order
from reconciler.advisor.choose.keys import FULL_ROWS, wanted_columns
from reconciler.advisor.choose.recluster import movable
from reconciler.advisor.choose.sizes import left_to_read
from reconciler.advisor.choose.slices import oversized, slices
from reconciler.advisor.choose.trees import cut_columns, tree_ordering, tries_trees
from reconciler.advisor.judge.candidate import Candidate, readings_of, rejected, weigh
from reconciler.advisor.migration.risks import hindrances, other_specs
from reconciler.advisor.migration.targets import target_extents
from reconciler.advisor.migration.trial import trial_part
from reconciler.advisor.simulate.layout import UNKNOWN_FILES, Layout, Outcome, Written
from reconciler.advisor.simulate.pool import build_pool
from reconciler.advisor.simulate.target import number_of_partitions, target_partitions
from reconciler.advisor.simulate.whatif import simulate
from reconciler.advisor.situation import Situation
from reconciler.format import iec, plural
from reconciler.plan import grouping, reasons
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.partition_specs import AddSpec, SwitchSpec, fields_text
from reconciler.plan.ordering import ARRIVAL, Ordering
from reconciler.queries import transforms
from reconciler.queries.table_view import TableView
from reconciler.table.filetable import FileTable, Int64
from reconciler.table.schema import PartitionField, PartitionSpec, SpecField, lead_field

OBJECTIVE = "partitioning"
"""The name under which a declared spec is judged like an objective: it is met once no file has
another spec."""
DECLARED = "the policy declares the partition spec"
"""Why files move; more than this is shown with the action."""
MANY = 1 << 20
"""Partitions are not counted beyond it."""


def added_specs(situation: Situation) -> tuple[Action, ...]:
    """Return the action that adds the declared spec, if the table does not have it."""
    migration = _wanted(situation)
    if migration is None or migration.exists or _untriable(situation, migration):
        return ()
    accepted = tuple(sorted(migration.accepted))
    return (AddSpec(migration.spec_id, migration.fields, migration.present, accepted),)


def switches(situation: Situation) -> tuple[Action, ...]:
    """Return the action after which writers follow the declared spec; it ends its plan."""
    migration = _wanted(situation)
    if migration is None or migration.present == migration.spec_id:
        return ()
    if _trial_first(situation, migration):
        return ()
    accepted = tuple(sorted(migration.accepted))
    return (SwitchSpec(migration.spec_id, migration.fields, migration.present, accepted),)


def _wanted(situation: Situation) -> Migration | None:
    """Return the migration if it may be carried out."""
    migration = situation.settings.migration
    if migration is None or situation.facts.refused or hindrances(situation.facts.risks, migration):
        return None
    return migration


def _trial_first(situation: Situation, migration: Migration) -> bool:
    """Whether the files that are left wait for a trial."""
    return migration.trial and migration.tried is None and bool(situation.facts.moving.any())


def _untriable(situation: Situation, migration: Migration) -> bool:
    """Whether a trial is to come first, and no part of the files could be tried."""
    if not _trial_first(situation, migration):
        return False
    return trial_part(situation, migration, np.flatnonzero(situation.facts.moving)) is None


def move_candidates(situation: Situation) -> tuple[list[tuple[Candidate, str]], list[Rejected]]:
    """Return (candidate, why) per old spec, or slice of it, and why the others do not move."""
    migration = situation.settings.migration
    if migration is None:
        return [], []
    title = f"migrate to {fields_text(migration.fields, situation.table.schema)}"
    against = hindrances(situation.facts.risks, migration)
    rows = np.flatnonzero(other_specs(situation.table, migration)).astype(np.int64)
    pending = len(rows) or migration.present != migration.spec_id
    if against and pending:
        why = [
            rejected(situation, title, reasons.MIGRATION_REFUSED, risk.text(), rows)
            for risk in against
        ]
        return [], why
    free = np.flatnonzero(situation.facts.moving & movable(situation)).astype(np.int64)
    if _trial_first(situation, migration):
        return _trial(situation, migration, title, free)
    found: list[tuple[Candidate, str]] = []
    rejections: list[Rejected] = []
    lead = lead_field(migration.fields)
    for own in _by_spec(situation.table, free):
        parts = slices(situation, own, [lead.source_id] if lead is not None else [])
        rejections += oversized(situation, own, parts, title)
        for part in parts:
            made = move_what_if(situation, np.sort(part), migration)
            found.append((made, _why(situation, migration)))
    return found, rejections


def _trial(
    situation: Situation, migration: Migration, title: str, free: Int64
) -> tuple[list[tuple[Candidate, str]], list[Rejected]]:
    """Return the moves of a trial; the other files wait for what it finds."""
    if not len(free):
        return [], []
    part = trial_part(situation, migration, free)
    if part is None:
        return [], [rejected(situation, title, reasons.NO_TRIAL, "", free)]
    found = [
        (move_what_if(situation, rows, migration), part.why)
        for rows in _by_spec(situation.table, part.rows)
    ]
    rest = np.setdiff1d(free, part.rows)
    return found, [rejected(situation, title, reasons.TRIAL_FIRST, "", rest)]


def _by_spec(table: FileTable, rows: Int64) -> Iterator[Int64]:
    for spec_id in np.unique(table.spec_id[rows]).tolist():
        yield rows[table.spec_id[rows] == spec_id]


def _why(situation: Situation, migration: Migration) -> str:
    """Return the reason, with the risks that somebody accepted."""
    accepted = [risk for risk in situation.facts.risks if risk.name in migration.accepted]
    notes = "".join(f"; accepted {risk.name}: {risk.evidence}" for risk in accepted)
    notes += f"; {migration.tried.text()}" if migration.tried is not None else ""
    return f"{DECLARED}{notes}"


def move_what_if(situation: Situation, rows: Int64, migration: Migration) -> Candidate:
    """Return the move with what each shape reads afterwards, as far as a sample shows it: along a
    tree, where the policy wants trees and it reads less than the order of bin-packing."""
    plain = _moved(situation, rows, migration, packing_order(situation))
    tree = _tree(situation, rows)
    if tree is None:
        return plain
    made = _moved(situation, rows, migration, tree)
    return min((plain, made), key=lambda one: left_to_read(situation, one))


def _tree(situation: Situation, rows: Int64) -> Ordering | None:
    """Return a tree for the rows of the files; None where the policy does not want trees alone, or
    none spares reading."""
    settings, filtered = situation.settings, wanted_columns(situation)
    if settings.mode != QD_TREE or not situation.trusted or not tries_trees(
        situation, rows, filtered
    ):  # fmt: skip
        return None
    pool = build_pool(situation.part(rows), cut_columns(situation, filtered), FULL_ROWS)
    return None if pool is None else tree_ordering(situation, pool)


def _moved(
    situation: Situation, rows: Int64, migration: Migration, ordering: Ordering
) -> Candidate:
    part, settings = situation.part(rows), situation.settings
    spec = declared_spec(migration)
    groups = grouping.by_target_partition(
        target_extents(part.files, lead_field(migration.fields)),
        grouping.PACK_TARGETS * settings.target_bytes,
    )
    layout = Layout(
        ordering, settings.target_bytes, settings.row_group_bytes, groups.number,
        settings.open_bytes, int(part.files.partition[0]), spec,
    )  # fmt: skip
    outcome = _by_sample(situation, part, layout, migration)
    if outcome is None:
        by_size = int(layout.files_of(part.files.live_bytes.sum()))
        files = max(by_size, partitions(part.files, migration))
        outcome = Outcome(readings_of(situation, rows), Written((part,), files, UNKNOWN_FILES))
    return weigh(situation, rows, layout, readings_of(situation, rows), outcome)


def _by_sample(
    situation: Situation, part: TableView, layout: Layout, migration: Migration
) -> Outcome | None:
    """Return what the sampled rows become, None if no sample has all columns.

    The rows that were sampled show which values occur together. Each partition of which no row was
    sampled adds a file, as far as the bounds leave room for it.
    """
    spec, key = layout.spec, [column.field_id for column in layout.ordering.key]
    asked = {*wanted_columns(situation), *migration.columns}
    pool = build_pool(part, sorted({*asked, *key}), FULL_ROWS)
    if pool is None or spec is None or not asked <= pool.columns.keys():
        return None
    if not pool.columns.keys() >= set(key):
        if situation.expected.demands:
            return None
        layout = replace(layout, ordering=ARRIVAL)  # nobody reads: the order decides on no file
    outcome = simulate(layout, pool, situation.expected.demands)
    if outcome is None:
        return None
    target = target_partitions(pool, spec)
    most = min(number_of_partitions(pool, target), room(part.files, migration))
    files = max(1, outcome.written.files + round(most) - len(target.values))
    return replace(outcome, written=replace(outcome.written, files=files))


def declared_spec(migration: Migration) -> PartitionSpec:
    """Return the spec as simulations know it; Iceberg gives field ids and names."""
    fields = (
        PartitionField(field.source_id, 1000 + number, field.transform, field.term)
        for number, field in enumerate(migration.fields)
    )
    return PartitionSpec(migration.spec_id, tuple(fields))


def partitions(files: FileTable, migration: Migration) -> int:
    """Return about how many target partitions the rows have, from the bounds of the columns: where
    these leave any number, as many as there are bounds."""
    return _combined(files, migration, lambda field: _ends(files, field))


def room(files: FileTable, migration: Migration) -> int:
    """Return the most target partitions that the bounds of the columns and the rows leave room
    for."""
    return _combined(files, migration, lambda _: MANY)


def _combined(
    files: FileTable, migration: Migration, of_any_number: Callable[[SpecField], int]
) -> int:
    """Return how many combinations of values the fields have, at most one for each row.

    of_any_number: how many values a field counts of which the bounds leave room for any number.
    """
    number = 1
    for field in migration.fields:
        known = _room(files, field)
        number = min(MANY, number * (of_any_number(field) if known is None else known))
    return min(number, max(1, files.total_records))


def _room(files: FileTable, field: SpecField) -> int | None:
    """Return the most values that a partition field may have, NULL among them; None for any
    number."""
    function, width = transforms.parse(field.transform)
    column, source = files.columns.get(field.source_id), files.schema.by_id[field.source_id].type
    null = 1 if column is None or (column.nulls != 0).any() else 0
    if function == "void":
        return 1
    if function == "bucket":
        return width + null
    if source == "boolean":
        return 2 + null
    void = None if column is None else ~column.bounded & (column.nulls < files.records)
    if column is None or void is None or void.any():
        return None
    if source == "string" or not transforms.groupable(source):
        return None
    known = column.bounded
    if not known.any():
        return 1
    low = transforms.apply(field.transform, source, column.lower[known]).min()
    high = transforms.apply(field.transform, source, column.upper[known]).max()
    step = width if function == "truncate" else 1
    return (int(high) - int(low)) // step + 1 + null


def _ends(files: FileTable, field: SpecField) -> int:
    """Return how many partition values the bounds are in; 1 if they do not show it."""
    column, source = files.columns.get(field.source_id), files.schema.by_id[field.source_id].type
    if column is None or not column.bounded.any() or not transforms.groupable(source):
        return 1
    known = column.bounded
    ends = [
        transforms.apply(field.transform, source, values[known])
        for values in (column.lower, column.upper)
    ]
    return len(np.unique(np.concatenate(ends)))


def judged(situation: Situation, moved: Int64) -> tuple[ObjectiveJudgement, ...]:
    """Return how far the table is from the declared spec. moved: files that the plan moves."""
    migration = situation.settings.migration
    if migration is None:
        return ()
    old = other_specs(situation.table, migration)
    left = old.copy()
    left[moved] = False
    size = situation.table.bytes
    now, after = (100.0 * float(size[m].sum()) / max(size.sum(), 1) for m in (old, left))
    against = hindrances(situation.facts.risks, migration)
    pending = bool(old.any()) or migration.present != migration.spec_id
    if against and pending:
        why = "; ".join(risk.text() for risk in against)
        return (ObjectiveJudgement(OBJECTIVE, 0.0, now, after, "unreachable", f"refused: {why}"),)
    if not len(moved) and _untriable(situation, migration):
        why = reasons.SENTENCES[reasons.NO_TRIAL]
        return (ObjectiveJudgement(OBJECTIVE, 0.0, now, after, "unreachable", f"refused: {why}"),)
    if not left.any():
        return (ObjectiveJudgement(OBJECTIVE, 0.0, now, after, "met", ""),)
    files = plural(int(left.sum()), "file")
    why = f"{files} ({iec(int(size[left].sum()))}) of other partition specs have to wait"
    return (ObjectiveJudgement(OBJECTIVE, 0.0, now, after, "failing", why),)
