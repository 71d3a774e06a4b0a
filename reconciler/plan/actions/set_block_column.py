"""The column of block ids added to the table's schema, and the trees whose ids it will hold kept in
the table's properties, where every reader of the catalog finds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from reconciler.format import plural
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.state import ActionState, Facts, Validity, with_columns
from reconciler.table.block_ids import TREE, hindrance, holds, owned_column
from reconciler.table.cut_tree import Tree, tree_of
from reconciler.table.schema import PartitionSpec, Schema


@dataclass(frozen=True, slots=True)
class SetBlockColumn(Action):
    """Adds an optional int column if the table has none, and sets a property for each tree."""

    column: str = ""
    """Name of the column."""
    kept: tuple[Tree, ...] = ()
    """Trees whose ids rewrites are about to write."""
    dropped: tuple[str, ...] = ()
    """Keys of trees that no live file has ids of, whose properties go."""

    kind: ClassVar[str] = "SetBlockColumn"
    verb: ClassVar[str] = "set"

    @property
    def trees(self) -> tuple[Tree, ...]:
        return self.kept

    def canonical(self) -> dict[str, Any]:
        body: dict[str, Any] = {"type": self.kind, "blockColumn": self.column}
        if self.kept:
            body["trees"] = [tree.name for tree in self.kept]
        if self.dropped:
            body["treesDropped"] = list(self.dropped)
        return body

    @classmethod
    def from_canonical(cls, body: Mapping[str, Any]) -> Self:
        return cls(
            column=body.get("blockColumn", ""),
            kept=tuple(tree_of(text) for text in body.get("trees", [])),
            dropped=tuple(body.get("treesDropped", [])),
        )

    def judge(self, facts: Facts) -> ActionState:
        why = hindrance(facts.metadata, self.column)
        if why:
            return ActionState(Validity.LOST, why=why)
        present = facts.metadata.properties
        known = all(holds(present, tree) for tree in self.kept)
        gone = not any(TREE + key in present for key in self.dropped)
        if owned_column(facts.metadata) is not None and known and gone:
            return ActionState(Validity.DONE, why="the table has the column and its trees")
        needed = (one for tree in self.kept for one in tree.cut_columns)
        return with_columns(ActionState(Validity.PENDING), facts, needed)

    def label(self, schema: Schema, specs: Mapping[int, PartitionSpec]) -> str:
        trees = plural(len(self.kept), "tree")
        return f'{self.verb} column "{self.column}" for block ids of {trees}'
