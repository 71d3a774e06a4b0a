"""How an action stands, and what that is judged by.

One judgement for the planner, the CLI, the operator, the driver and the executor: the planner's
side takes the facts from an observation, the executor from what the JVM reads of the live table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from reconciler.table.cut_tree import Cut, Tree
from reconciler.table.metadata import TableMetadata
from reconciler.table.values import Kind, kind_of

MOST_DAYS = 2_932_896
"""Days from 1970 to the end of the year 9999."""


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
    decimal of more than 18 digits has, or a date that became a timestamp: rows would go to other
    leaves than the plan says."""
    if state.validity is Validity.DONE:
        return state
    types = dict(facts.metadata.tops.values())
    for tree in trees:
        for field_id, cuts in tree.of_column.items():
            if _of_another_domain(types.get(field_id, ""), cuts):
                why = f"the column with field id {field_id} has another type than the tree's cuts"
                return ActionState(Validity.LOST, why=why)
    return state


def _of_another_domain(kind: str, cuts: Sequence[Cut]) -> bool:
    """Return whether cuts of one column are no values of a column of this type.

    A cut has no type. Days are whole numbers as microseconds are: cuts that all are within 3 s of
    1970 (within years 1 to 9999 as days), and not only at its first moment, are days.
    """
    values = [cut.value for cut in cuts if not cut.place[0]]  # NULL and NaN are of every domain
    domain = kind_of(kind)
    if domain is None or not values:
        return False
    if any((domain is Kind.BYTES) != isinstance(value, bytes) for value in values):
        return True
    days = [value for value in values if isinstance(value, int) and abs(value) <= MOST_DAYS]
    return kind.startswith("timestamp") and len(days) == len(values) and any(days)
