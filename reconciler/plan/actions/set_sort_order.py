"""The table's sort order set to the declared key, by which every writer then sorts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from reconciler.plan.actions.base import Action
from reconciler.plan.actions.state import ActionState, Facts, Validity, with_columns
from reconciler.plan.ordering import Lexicographic, key_from_canonical
from reconciler.table.schema import PartitionSpec, Schema, SortColumn


@dataclass(frozen=True, slots=True)
class SetSortOrder(Action):
    """The table's default sort order, which is set."""

    key: tuple[SortColumn, ...] = ()
    """The wanted order."""
    old: tuple[str, ...] = ()
    """The order that it replaces, a term for each sort field (`sort_term`); () when unsorted."""

    kind: ClassVar[str] = "SetSortOrder"
    verb: ClassVar[str] = "set"

    def canonical(self) -> dict[str, Any]:
        body = {"type": self.kind, **Lexicographic(self.key).canonical()}
        if self.old:
            body["orderOld"] = list(self.old)
        return body

    @classmethod
    def from_canonical(cls, body: Mapping[str, Any]) -> Self:
        return cls(key=key_from_canonical(body), old=tuple(body.get("orderOld", [])))

    def judge(self, facts: Facts) -> ActionState:
        if has_order(facts.metadata.sort_terms, self.key):
            return ActionState(Validity.DONE, why="the sort order is set")
        if facts.metadata.sort_terms != self.old:
            return ActionState(Validity.LOST, why="the sort order was changed by someone else")
        needed = (column.field_id for column in self.key)
        return with_columns(ActionState(Validity.PENDING), facts, needed)

    def key_text(self, schema: Schema) -> str:
        return Lexicographic(self.key).text(schema)

    def label(self, schema: Schema, specs: Mapping[int, PartitionSpec]) -> str:
        key = self.key_text(schema)
        return f"{self.verb} sort order {key} (every writer will sort by it)"


def sort_term(transform: str, field_id: int, direction: str, null_order: str) -> str:
    """One field of a sort order in canonical form: "bucket[16](4) asc nulls-first".

    It holds no name of a column: renaming one changes no order.
    """
    nulls = null_order.lower().replace("_", "-").replace(" ", "-")
    return f"{transform}({field_id}) {direction.lower()} {nulls}"


def wanted_terms(key: Sequence[SortColumn]) -> tuple[str, ...]:
    """The terms of the sort order that the action sets: NULLs where Spark puts them."""
    return tuple(
        sort_term(
            "identity", column.field_id, column.direction,
            "nulls-last" if column.direction == "desc" else "nulls-first",
        )
        for column in key
    )  # fmt: skip


def identity_columns(terms: Sequence[str]) -> tuple[tuple[str, str], ...] | None:
    """Return (field id, direction) of each column of an order of plain columns; None where a column
    is transformed."""
    if not all(term.startswith("identity(") for term in terms):
        return None
    parts = (term.split(" ") for term in terms)
    return tuple((field, direction) for field, direction, _ in parts)


def has_order(terms: Sequence[str], key: Sequence[SortColumn]) -> bool:
    """Whether a table of these terms is sorted as wanted; NULLs may go anywhere."""
    return identity_columns(terms) == identity_columns(wanted_terms(key))
