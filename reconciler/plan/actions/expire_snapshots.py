"""Old snapshots removed from the metadata, with the files that no other snapshot needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from reconciler.plan.actions.base import Action
from reconciler.plan.actions.state import ActionState, Facts, Validity
from reconciler.table.catalog_policies import EXPIRY
from reconciler.table.retention import Retention, kept, of_table
from reconciler.table.schema import PartitionSpec, Schema

FOREVER_MS = 1 << 62


@dataclass(frozen=True, slots=True)
class ExpireSnapshots(Action):
    """Removes exactly the listed snapshots from the table's metadata."""

    snapshots: tuple[int, ...] = ()
    """Ids of the snapshots, sorted."""
    max_age_ms: int = 0
    """Age in milliseconds beyond which snapshots were chosen."""
    least: int = 1
    """Number of newest snapshots of each branch that were kept, whatever their age."""

    kind: ClassVar[str] = "ExpireSnapshots"
    verb: ClassVar[str] = "expire"
    bound_by: ClassVar[tuple[str, ...]] = (EXPIRY,)

    def canonical(self) -> dict[str, Any]:
        """Ids are texts: JSON numbers do not hold them."""
        return {
            "type": self.kind,
            "snapshots": [str(one) for one in self.snapshots],
            "retention": {"maxAgeMs": self.max_age_ms, "least": self.least},
        }

    @classmethod
    def from_canonical(cls, body: Mapping[str, Any]) -> Self:
        retention = body.get("retention", {})
        return cls(
            tuple(sorted(int(one) for one in body.get("snapshots", []))),
            retention.get("maxAgeMs", 0),
            retention.get("least", 1),
        )

    def judge(self, facts: Facts) -> ActionState:
        """Refs, and the number that the table's properties ask for, may change after the plan. Ages
        are judged at the execution."""
        log = facts.metadata.log
        left = set(self.snapshots) & log.by_id.keys()
        if not left:
            return ActionState(Validity.DONE, why="the snapshots are gone")
        if facts.metadata.removes_nothing:
            return ActionState(Validity.LOST, why=f"the table has {facts.metadata.removes_nothing}")
        asked = Retention(self.max_age_ms, self.least)
        if facts.metadata.bounds.retention(asked) != asked:
            return ActionState(Validity.LOST, why="a policy of the catalog keeps more by now")
        least = of_table(Retention(0, self.least), facts.metadata.properties).least
        needed = left & kept(log, Retention(0, least), FOREVER_MS)
        if needed:
            why = f"a branch or a tag needs {len(needed)} of the {len(left)} snapshots"
            return ActionState(Validity.LOST, why=why)
        return ActionState(Validity.PENDING)

    def label(self, schema: Schema, specs: Mapping[int, PartitionSpec]) -> str:
        snapshots = "1 snapshot" if len(self.snapshots) == 1 else f"{len(self.snapshots)} snapshots"
        return f"{self.verb} {snapshots}"
