"""The table's format version raised, which no writer can take back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from reconciler.plan.actions.base import Action
from reconciler.plan.actions.state import ActionState, Facts, Validity
from reconciler.table.schema import PartitionSpec, Schema


@dataclass(frozen=True, slots=True)
class UpgradeFormat(Action):
    """The table's format version, which is raised."""

    old: int = 2
    """The format version before."""
    new: int = 3
    """The wanted format version."""

    kind: ClassVar[str] = "UpgradeFormat"
    needs_spark: ClassVar[bool] = True
    verb: ClassVar[str] = "upgrade"

    def canonical(self) -> dict[str, Any]:
        return {"type": self.kind, "formatVersion": {"old": self.old, "new": self.new}}

    @classmethod
    def from_canonical(cls, body: Mapping[str, Any]) -> Self:
        versions = body.get("formatVersion", {})
        return cls(versions.get("old", 2), versions.get("new", 3))

    def judge(self, facts: Facts) -> ActionState:
        now = facts.metadata.format_version
        if now >= self.new:
            return ActionState(Validity.DONE, why=f"the table has format version {now}")
        if now != self.old:
            return ActionState(Validity.LOST, why=f"the table has format version {now}")
        return ActionState(Validity.PENDING)

    def label(self, schema: Schema, specs: Mapping[int, PartitionSpec]) -> str:
        return f"{self.verb} from format version {self.old} to {self.new} (cannot be undone)"
