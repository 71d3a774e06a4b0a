"""A second table with the same rows in the leaves of another tree of cuts, built anew or brought up
to date (Yang et al., "Qd-tree", section 6.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from reconciler.plan.actions.base import Action
from reconciler.plan.actions.state import ActionState, Facts, Validity, with_columns, with_cuts
from reconciler.plan.ordering import by_tree
from reconciler.table.cut_tree import LEAF, Tree, tree_of
from reconciler.table.metadata import TableMetadata
from reconciler.table.replica import KEPT_MS, Replica, Standing, covers, replica_of, standing
from reconciler.table.schema import PartitionSpec, Schema


def _has_them(record: Replica, source: int, metadata: TableMetadata) -> bool:
    """Whether the replica has the rows of a snapshot of the source, or later ones."""
    fresh = standing(record, metadata).standing is Standing.FRESH
    return fresh or covers(record, source, metadata)


ONE_LEAF = Tree((), (LEAF,), (0,))


@dataclass(frozen=True, slots=True)
class BuildReplica(Action):
    """Writes the rows of the source to the replica, compares them, and records that in a property
    of the source."""

    table: str = ""
    """Name of the replica, in the source's namespace."""
    tree: Tree = ONE_LEAF
    """The tree of cuts that lays out its rows."""
    source: int = 0
    """Snapshot of the source that the plan was made for: the replica gets its rows or later
    ones."""
    budget_bytes: int = 0
    """Bytes of storage that the replica may take."""
    target_bytes: int = 0
    """Bytes of a data file."""
    appends: bool = False
    """Whether only rows are written that were appended to the source since the last build."""
    kept_ms: int = KEPT_MS
    """Milliseconds for which the rows that it replaces stay for queries that read them."""
    lost: int = 0
    """Snapshot of the replica that the source's record names and that is not there any more, so
    that the record counts for nothing; 0 if there is none."""

    kind: ClassVar[str] = "BuildReplica"
    verb: ClassVar[str] = "build replica"
    needs_spark: ClassVar[bool] = True

    @property
    def trees(self) -> tuple[Tree, ...]:
        return () if self.tree == ONE_LEAF else (self.tree,)

    def canonical(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "type": self.kind, "replica": self.table, "source": str(self.source),
            "budgetBytes": self.budget_bytes, "targetBytes": self.target_bytes,
            "keptMs": self.kept_ms,
        }  # fmt: skip
        if self.trees:
            body["tree"] = self.tree.name
        if self.lost:
            body["lost"] = str(self.lost)
        return {**body, "appends": True} if self.appends else body

    @classmethod
    def from_canonical(cls, body: Mapping[str, Any]) -> Self:
        return cls(
            table=body.get("replica", ""),
            tree=tree_of(body["tree"]) if "tree" in body else ONE_LEAF,
            source=int(body.get("source", 0)),
            budget_bytes=body.get("budgetBytes", 0),
            target_bytes=body.get("targetBytes", 0),
            appends=body.get("appends", False),
            kept_ms=body.get("keptMs", KEPT_MS),
            lost=int(body.get("lost", 0)),
        )

    def judge(self, facts: Facts) -> ActionState:
        metadata = facts.metadata
        record = replica_of(metadata.properties)
        mine = record is not None and self._is_mine(record)
        if record is not None and mine and _has_them(record, self.source, metadata):
            return ActionState(Validity.DONE, why="the replica has these rows")
        if self.source not in {one.id for one in metadata.log.main}:
            return ActionState(Validity.LOST, why="the snapshot that it was planned for is gone")
        if self.appends:
            if record is None or not mine:
                return ActionState(Validity.LOST, why="the replica that it extends is not there")
            found = standing(record, metadata)
            if found.standing is Standing.STALE:
                return ActionState(Validity.LOST, why=found.why)
        state = with_columns(ActionState(Validity.PENDING), facts, self.tree.columns)
        return with_cuts(state, facts, (self.tree,))

    def _is_mine(self, record: Replica) -> bool:
        same = (record.table, record.tree) == (self.table, self.tree)
        return same and record.snapshot_id != self.lost

    def label(self, schema: Schema, specs: Mapping[int, PartitionSpec]) -> str:
        if self.appends:
            return f'append new rows to replica "{self.table}"'
        return f'{self.verb} "{self.table}" by {by_tree(self.tree).text(schema)}'
