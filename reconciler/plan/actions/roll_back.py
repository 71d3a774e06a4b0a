"""A plan taken back by the table's history: the snapshot before it is current again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from reconciler.plan.actions.content import ContentAction, inputs_of
from reconciler.plan.actions.state import ActionState, Facts, Validity
from reconciler.table.retention import SnapshotLog
from reconciler.table.schema import PartitionSpec, Schema
from reconciler.table.summary_keys import PLAN_ID


@dataclass(frozen=True, slots=True)
class RollBack(ContentAction):
    """inputs: the files that the plan added, which leave the table."""

    snapshot_id: int = 0
    """Id of the snapshot that becomes the current one."""
    over: int = 0
    """Id of the snapshot that has to be the current one: the last commit of the plan."""
    restored: tuple[str, ...] = ()
    """Paths of the files that the plan replaced, which come back; sorted."""

    kind: ClassVar[str] = "RollBack"
    verb: ClassVar[str] = "roll back"
    rewrites_data: ClassVar[bool] = True
    bound_by: ClassVar[tuple[str, ...]] = ()

    def without_files(self) -> Self:
        return replace(self, inputs=(), restored=())

    def canonical(self) -> dict[str, Any]:
        """Ids are texts: JSON numbers do not hold them."""
        return {
            "type": self.kind,
            "snapshots": [str(self.snapshot_id), str(self.over)],
            "inputs": sorted(self.inputs),
            "restored": sorted(self.restored),
        }

    @classmethod
    def from_canonical(cls, body: Mapping[str, Any]) -> Self:
        snapshot, over = body.get("snapshots", ["0", "0"])
        restored = tuple(sorted(body.get("restored", [])))
        return cls(inputs_of(body), int(snapshot), int(over), restored)

    def judge(self, facts: Facts) -> ActionState:
        """It takes back what the plan did and nothing else, so that no other commit may follow."""
        log = facts.metadata.log
        line = [one.id for one in log.main]
        if self.snapshot_id not in log.by_id:
            why = f"the snapshot {self.snapshot_id} has expired"
            return ActionState(Validity.LOST, why=why)
        if self.snapshot_id not in line:
            why = f"the snapshot {self.snapshot_id} is not in the table's history"
            return ActionState(Validity.LOST, why=why)
        if self.over not in line:
            return self._after(log)
        if line[0] != self.over:
            return ActionState(Validity.LOST, why="something else was committed since the plan")
        return ActionState(Validity.PENDING, self.inputs)

    def _after(self, log: SnapshotLog) -> ActionState:
        """Return the state once the plan's last commit is not in the table's history any more."""
        last = log.by_id.get(self.over)
        plan = None if last is None else last.summary.get(PLAN_ID)
        if plan is not None and any(one.summary.get(PLAN_ID) == plan for one in log.main):
            return ActionState(Validity.LOST, why="someone else took back a part of the plan")
        return ActionState(Validity.DONE, why="the plan's commits left the table's history")

    def label(self, schema: Schema, specs: Mapping[int, PartitionSpec]) -> str:
        return f"{self.verb} to snapshot {self.snapshot_id}"
