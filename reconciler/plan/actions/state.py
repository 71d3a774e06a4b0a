"""How an action stands, and what that is judged by.

One judgement for the planner, the CLI, the operator, the driver and the executor: the planner's
side takes the facts from an observation, the executor from what the JVM reads of the live table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from reconciler.table.cut_tree import Tree
from reconciler.table.metadata import TableMetadata
from reconciler.table.values import Kind, kind_of


class Validity(StrEnum):
    PENDING = "pending"
    DONE = "done"
    LOST = "lost"


PARTLY = "partly committed"


@dataclass(frozen=True, slots=True)
class ActionState:
    """Whether an action can be carried out on the table as it is."""

    validity: Validity
    """Whether it is pending, done or lost."""
    standing: tuple[str, ...] = ()
    """The inputs that can still be rewritten, sorted: live, and without new deletes. An approval
    covers an action on a part of its inputs, so that an execution goes on with them although the
    action as planned is lost."""
    why: str = ""
    """Why, for people; "" for a pending action that nothing has touched."""

    @property
    def begun(self) -> bool:
        """Whether a commit of ours carries the action, completely or for a part of its inputs."""
        partly = self.validity is Validity.PENDING and self.why == PARTLY
        return self.validity is Validity.DONE or partly


@dataclass(frozen=True, slots=True)
class Facts:
    """What an action is judged by."""

    done: bool = False
    """Whether the head's ancestors carry the action's id."""
    live: Collection[str] = ()
    """Paths of content files of the head, at least those of the action."""
    changed: Collection[str] = ()
    """Paths of its inputs with deletes that the plan does not know."""
    applying: Collection[str] = ()
    """Paths of delete files that apply to a live data file."""
    metadata: TableMetadata = field(default_factory=TableMetadata)
    """The table's metadata as it is now."""


def with_columns(state: ActionState, facts: Facts, needed: Iterable[int]) -> ActionState:
    """Return the state; lost where a column was dropped that the rest of the work needs.

    needed: field ids.
    """
    gone = facts.metadata.dropped(needed)
    if state.validity is Validity.DONE or gone is None:
        return state
    return ActionState(Validity.LOST, why=f"the column with field id {gone} was dropped")


def with_cuts(state: ActionState, facts: Facts, trees: Iterable[Tree]) -> ActionState:
    """Return the state; lost where a column that a tree cuts has values of another domain now, as a
    decimal of more than 18 digits has: rows would go to other leaves than the plan says."""
    if state.validity is Validity.DONE:
        return state
    types = dict(facts.metadata.tops.values())
    for cut in (cut for tree in trees for cut in tree.cuts):
        kind = kind_of(types.get(cut.field_id, ""))
        if kind is not None and (kind is Kind.BYTES) != isinstance(cut.value, bytes):
            if cut.value is None or cut.place[0] > 0:  # NULL and NaN are of every domain
                continue
            why = f"the column with field id {cut.field_id} has another type than the tree's cuts"
            return ActionState(Validity.LOST, why=why)
    return state
