"""Changes of a table's metadata without a JVM: what each kind of action asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reconciler.commit import metadata as metadata_of
from reconciler.commit import request, updates
from reconciler.commit.backend import Table, answer_of
from reconciler.commit.history import snapshot_info
from reconciler.commit.request import Requirement
from reconciler.commit.snapshot import Names
from reconciler.commit.table import State
from reconciler.engines.answers import Answer
from reconciler.errors import VerificationError
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.expire_snapshots import ExpireSnapshots
from reconciler.plan.actions.roll_back import RollBack
from reconciler.plan.actions.set_properties import SetProperties
from reconciler.plan.actions.set_sort_order import SetSortOrder
from reconciler.table.block_ids import COLUMN, remembering


@dataclass(frozen=True)
class MetadataChange:
    """A change of the metadata as `backend.MetadataChange`."""

    table: Table
    """Whose metadata it changes."""
    base: State
    """The state that it was made for."""
    updates: tuple[metadata_of.Update, ...]
    """What changes, as the REST specification writes it."""
    held: tuple[Requirement, ...]
    """What must hold besides the requirements of every request."""
    before: Mapping[str, str]
    """What it changes, by name, as people write it."""
    after: Mapping[str, str]
    """The same after it."""

    def send(self) -> Answer:
        required = (*request.requirements(self.base), *self.held)
        asked = request.Request(self.base, self.updates, required, Names().uuid)
        return answer_of(request.send(self.table.table, asked))


def _properties(table: Table, action: SetProperties) -> MetadataChange:
    now, wanted = table.properties(), dict(action.new)
    before = {name: now.get(name) or "(unset)" for name in wanted}
    made = tuple(updates.set_properties(wanted))
    return MetadataChange(table, table.state, made, (), before, {**before, **wanted})


def _sort_order(table: Table, action: SetSortOrder) -> MetadataChange:
    wanted = [
        {
            "transform": "identity",
            "source-id": part.field_id,
            "direction": "desc" if part.direction == "desc" else "asc",
            "null-order": "nulls-last" if part.direction == "desc" else "nulls-first",
        }
        for part in action.key
    ]
    state, names = table.state, _names(table.schema())
    default = state.metadata["default-sort-order-id"]
    order = next(one for one in state.metadata["sort-orders"] if one["order-id"] == default)
    made = tuple(updates.set_sort_order(state, wanted))
    before, after = _shown(order["fields"], names), _shown(wanted, names)
    return MetadataChange(table, state, made, (), {"sort order": before}, {"sort order": after})


def _expiry(table: Table, action: ExpireSnapshots) -> MetadataChange:
    state = table.state
    gone = [one for one in action.snapshots if one in state.snapshots]
    kept = {int(ref["snapshot-id"]) for ref in state.refs.values()}
    if kept.intersection(gone):
        raise VerificationError(
            f"could not expire snapshots of {table.shown}: a branch or tag has one of them",
            details=("Nothing was changed.",),
            do="plan again",
        )
    remembered: dict[str, str] = {}
    if COLUMN in state.properties:
        summaries = [(one, snapshot_info(state.snapshots[one]).summary) for one in gone]
        remembered = dict(remembering(state.properties, summaries))
    made = tuple(updates.expire(gone, remembered))
    held = tuple(updates.hold(state, state.refs))
    before, after = len(state.snapshots), len(state.snapshots) - len(gone)
    return MetadataChange(
        table, state, made, held, {"snapshots": str(before)}, {"snapshots": str(after)}
    )


def _roll_back(table: Table, action: RollBack) -> MetadataChange:
    state = table.state
    made = tuple(updates.set_branch(state, metadata_of.MAIN, action.snapshot_id))
    before, after = (f"snapshot {one}" for one in (action.over, action.snapshot_id))
    return MetadataChange(table, state, made, (), {"main": before}, {"main": after})


CHANGES: Mapping[type[Action], Callable[[Table, Any], MetadataChange]] = {
    SetProperties: _properties,
    SetSortOrder: _sort_order,
    ExpireSnapshots: _expiry,
    RollBack: _roll_back,
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


def _names(schema: Mapping[str, Any], prefix: str = "") -> dict[int, str]:
    """Return the dotted names of the columns outside of lists and maps."""
    found: dict[int, str] = {}
    for one in schema["fields"]:
        found[int(one["id"])] = f"{prefix}{one['name']}"
        if isinstance(one["type"], dict) and one["type"].get("type") == "struct":
            found |= _names(one["type"], f"{prefix}{one['name']}.")
    return found
