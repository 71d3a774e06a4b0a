"""Table properties set to what the policy declares; each records the value that it replaces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from reconciler.plan.actions.base import Action
from reconciler.plan.actions.state import ActionState, Facts, Validity
from reconciler.table.schema import PartitionSpec, Schema


@dataclass(frozen=True, slots=True)
class SetProperties(Action):
    """Properties of the table that are set."""

    old: tuple[tuple[str, str | None], ...] = ()
    """Name and value of each property before, None where it is not set."""
    new: tuple[tuple[str, str], ...] = ()
    """Name and wanted value of each property."""

    kind: ClassVar[str] = "SetProperties"
    verb: ClassVar[str] = "set"

    def canonical(self) -> dict[str, Any]:
        old = dict(self.old)
        changes = {name: {"old": old.get(name), "new": value} for name, value in self.new}
        return {"type": self.kind, "properties": changes}

    @classmethod
    def from_canonical(cls, body: Mapping[str, Any]) -> Self:
        changes = body.get("properties", {})
        return cls(
            old=tuple(sorted((name, change["old"]) for name, change in changes.items())),
            new=tuple(sorted((name, change["new"]) for name, change in changes.items())),
        )

    def judge(self, facts: Facts) -> ActionState:
        now = facts.metadata.properties
        if all(now.get(name) == value for name, value in self.new):
            return ActionState(Validity.DONE, why="the properties have the wanted values")
        old = dict(self.old)
        for name, _ in self.new:
            if now.get(name) != old.get(name):
                how = f"set to {now[name]!r}" if name in now else "unset"
                return ActionState(Validity.LOST, why=f"{name} was {how} by someone else")
        return ActionState(Validity.PENDING)

    def label(self, schema: Schema, specs: Mapping[int, PartitionSpec]) -> str:
        old = dict(self.old)
        changes = (f"{name} {old.get(name) or '(unset)'} -> {value}" for name, value in self.new)
        return f"{self.verb} " + ", ".join(changes)
