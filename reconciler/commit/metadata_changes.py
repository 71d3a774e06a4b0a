"""Changes of a table's metadata without a JVM: what each kind of action asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reconciler.commit import request, specs, updates
from reconciler.commit.local_history import LocalHistory, snapshot_info
from reconciler.commit.metadata import FIRST_PARTITION_ID, MAIN, Update
from reconciler.commit.request import Requirement
from reconciler.commit.snapshot import CommitNames
from reconciler.commit.table import State
from reconciler.engines.answers import Answer
from reconciler.errors import VerificationError
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.expire_snapshots import ExpireSnapshots
from reconciler.plan.actions.partition_specs import AddSpec, SwitchSpec
from reconciler.plan.actions.remove_specs import RemoveSpecs
from reconciler.plan.actions.roll_back import RollBack
from reconciler.plan.actions.set_block_column import SetBlockColumn
from reconciler.plan.actions.set_properties import SetProperties
from reconciler.plan.actions.set_sort_order import SetSortOrder
from reconciler.table import block_ids
from reconciler.table.block_ids import COLUMN, remembering
from reconciler.table.metadata import dotted_names, tops_of
from reconciler.table.replica import kept_record


@dataclass(frozen=True)
class LocalMetadataChange:
    """A change of the metadata as `table.MetadataChange`."""

    table: LocalHistory
    """The table whose metadata it changes."""
    base: State
    """The state that it was made for."""
    updates: tuple[Update, ...]
    """What changes, as the REST specification writes it."""
    held: tuple[Requirement, ...]
    """What must hold besides the requirements of every request."""
    before: Mapping[str, str]
    """What it changes, as it is before, by name, as people write it."""
    after: Mapping[str, str]
    """The same as it is afterwards."""

    def send(self) -> Answer:
        required = (*request.requirements(self.base), *self.held)
        asked = request.Request(self.base, self.updates, required, CommitNames().uuid)
        return request.send(self.table.table, asked)


def _properties(table: LocalHistory, action: SetProperties) -> LocalMetadataChange:
    now, wanted = table.properties(), dict(action.new)
    before = {name: now.get(name) or "(unset)" for name in wanted}
    made = tuple(updates.set_properties(wanted))
    return LocalMetadataChange(table, table.state, made, (), before, {**before, **wanted})


def _sort_order(table: LocalHistory, action: SetSortOrder) -> LocalMetadataChange:
    wanted = [
        {
            "transform": "identity",
            "source-id": part.field_id,
            "direction": "desc" if part.direction == "desc" else "asc",
            "null-order": "nulls-last" if part.direction == "desc" else "nulls-first",
        }
        for part in action.key
    ]
    state, names = table.state, dotted_names(table.schema())
    default = state.metadata["default-sort-order-id"]
    order = next(one for one in state.metadata["sort-orders"] if one["order-id"] == default)
    made = tuple(updates.set_sort_order(state, wanted))
    before, after = _shown(order["fields"], names), _shown(wanted, names)
    return LocalMetadataChange(
        table, state, made, (), {"sort order": before}, {"sort order": after}
    )


def _expiry(table: LocalHistory, action: ExpireSnapshots) -> LocalMetadataChange:
    state = table.state
    gone = [one for one in action.snapshots if one in state.snapshots]
    kept = {int(ref["snapshot-id"]) for ref in state.refs.values()}
    if kept.intersection(gone):
        raise _not_as_planned(table, "expire snapshots", "a branch or tag has one of them")
    remembered: dict[str, str] = {}
    if COLUMN in state.properties:
        summaries = [(one, snapshot_info(state.snapshots[one]).summary) for one in gone]
        remembered = dict(remembering(state.properties, summaries))
    remembered |= kept_record(state.properties, table.log().main, gone)
    made = tuple(updates.expire(gone, remembered))
    held = tuple(updates.hold(state, state.refs))
    before, after = len(state.snapshots), len(state.snapshots) - len(gone)
    return LocalMetadataChange(
        table, state, made, held, {"snapshots": str(before)}, {"snapshots": str(after)}
    )


def _roll_back(table: LocalHistory, action: RollBack) -> LocalMetadataChange:
    state = table.state
    made = tuple(updates.set_branch(state, MAIN, action.snapshot_id))
    before, after = (f"snapshot {one}" for one in (action.over, action.snapshot_id))
    return LocalMetadataChange(table, state, made, (), {"main": before}, {"main": after})


def _added_spec(table: LocalHistory, action: AddSpec) -> LocalMetadataChange:
    state, name = table.state, f"spec {action.spec_id}"
    doing = "add a partition spec"
    try:
        spec = specs.added(state.metadata, action.fields)
    except specs.NameTaken as error:
        why = f'two of its fields would have the name "{error}"'
        do = "rename the field of the present spec, or declare another transform"
        raise _not_as_planned(table, doing, why, do) from error
    if spec["spec-id"] != action.spec_id:
        raise _not_as_planned(table, doing, f"it would be {spec['spec-id']}")
    numbers = [int(one["field-id"]) for one in spec["fields"]]
    if table.format_version() == 1 and numbers != _in_sequence(len(numbers)):
        do = "let a writer of the table set its property format-version to 2"
        raise _not_as_planned(table, doing, "format 1 cannot hold its field ids", do)
    held = updates.hold_counts(state)
    made = updates.add_spec(spec)
    before, after = {name: "none"}, {name: specs.text(spec)}
    return LocalMetadataChange(table, state, tuple(made), tuple(held), before, after)


def _in_sequence(fields: int) -> list[int]:
    """Return the ids of partition fields that format 1 asks for: its manifests hold none."""
    return [*range(FIRST_PARTITION_ID, FIRST_PARTITION_ID + fields)]


def _switched_spec(table: LocalHistory, action: SwitchSpec) -> LocalMetadataChange:
    body, name = table.state.metadata, "default spec"
    wanted = specs.spec_of(body, action.spec_id)
    if wanted is None:
        raise _not_as_planned(table, "switch writers", f"there is no spec {action.spec_id}")
    made = updates.set_spec(action.spec_id)
    before, after = {name: specs.text(specs.default_spec(body))}, {name: specs.text(wanted)}
    return LocalMetadataChange(table, table.state, tuple(made), (), before, after)


def _removed_specs(table: LocalHistory, action: RemoveSpecs) -> LocalMetadataChange:
    state = table.state
    known = sorted(int(one["spec-id"]) for one in state.metadata["partition-specs"])
    going = [one for one in action.specs if one in known]
    left = [one for one in known if one not in going]
    held = updates.hold(state, {MAIN, *state.refs})  # a commit may be under one of them
    made = updates.remove_specs(going)
    name = "partition specs"
    before, after = ({name: ", ".join(map(str, some))} for some in (known, left))
    return LocalMetadataChange(table, state, tuple(made), tuple(held), before, after)


def _block_column(table: LocalHistory, action: SetBlockColumn) -> LocalMetadataChange:
    state, schema = table.state, table.schema()
    present = {str(number) for number, _ in tops_of(schema).values()}
    made, wanted = list[Any](), dict[str, str]()
    absent = action.column not in tops_of(schema)
    if str(state.properties.get(COLUMN)) not in present:
        number = int(state.metadata["last-column-id"]) + 1
        made += updates.add_column(state, schema, action.column, number, block_ids.DOC)
        wanted[COLUMN] = str(number)
        wanted[block_ids.SINCE] = str(state.metadata.get("last-sequence-number") or 0)
        wanted[block_ids.METRICS + action.column] = "full"
    wanted |= block_ids.tree_properties(state.properties, schema, action.kept)
    gone = [
        begin + key for key in action.dropped for begin in (block_ids.TREE, block_ids.SNAPSHOTS)
    ]
    made += updates.set_properties(wanted, gone)
    held = [*updates.hold(state, [MAIN]), *updates.hold_counts(state)]
    trees = {name for name in state.properties if name.startswith(block_ids.TREE)}
    after = ({*trees, *(one for one in wanted if one.startswith(block_ids.TREE))}) - set(gone)
    column = f'column "{action.column}"'
    return LocalMetadataChange(
        table, state, tuple(made), tuple(held),
        {column: "absent" if absent else "int", "trees": str(len(trees))},
        {column: "int", "trees": str(len(after))},
    )  # fmt: skip


def _not_as_planned(
    table: LocalHistory, doing: str, why: str, do: str = "plan again"
) -> VerificationError:
    """Return the error of a change that cannot be made as the action says. doing: what could not be
    done. why: a clause. do: what a person does about it."""
    return VerificationError(
        f"could not {doing} of {table.shown}: {why}", details=("Nothing was changed.",), do=do
    )


CHANGES: Mapping[type[Action], Callable[[LocalHistory, Any], LocalMetadataChange]] = {
    SetProperties: _properties,
    SetSortOrder: _sort_order,
    ExpireSnapshots: _expiry,
    RollBack: _roll_back,
    SetBlockColumn: _block_column,
    AddSpec: _added_spec,
    SwitchSpec: _switched_spec,
    RemoveSpecs: _removed_specs,
}
"""What makes the change of each kind of action that changes metadata."""


def _shown(parts: Sequence[Mapping[str, Any]], names: Mapping[int, str]) -> str:
    """Return a sort order as people write it."""
    found = []
    for one in parts:
        column, transform = names.get(int(one["source-id"]), "?"), str(one["transform"])
        name = column if transform == "identity" else f"{transform}({column})"
        found.append(f"{name} {one['direction']}")
    return ", ".join(found) or "unsorted"
