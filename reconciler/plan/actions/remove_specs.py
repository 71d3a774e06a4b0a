"""Partition specs that nothing uses, removed from the metadata.

The spec with the highest id stays whoever uses it: Iceberg would give its id to the next new spec,
and files that a writer with old metadata commits under that id would be read as the new spec's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from reconciler.format import plural
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.partition_specs import fields_text
from reconciler.plan.actions.state import ActionState, Facts, Validity
from reconciler.table.schema import PartitionSpec, Schema


@dataclass(frozen=True, slots=True)
class RemoveSpecs(Action):
    """Partition specs without a use, removed from the metadata."""

    specs: tuple[int, ...] = ()
    """Ids of the specs to remove, sorted."""
    unused_ms: int = 0
    """Milliseconds without a use by which they were chosen."""

    kind: ClassVar[str] = "RemoveSpecs"
    verb: ClassVar[str] = "remove partition specs"

    def canonical(self) -> dict[str, Any]:
        return {"type": self.kind, "specs": list(self.specs), "unusedMs": self.unused_ms}

    @classmethod
    def from_canonical(cls, body: Mapping[str, Any]) -> Self:
        return cls(tuple(sorted(body.get("specs", []))), body.get("unusedMs", 0))

    def judge(self, facts: Facts) -> ActionState:
        known = facts.metadata
        left = known.specs.keys() & set(self.specs)
        if not left:
            return ActionState(Validity.DONE, why="the specs are gone")
        kept = left - set(known.old_specs)
        if kept:
            why = f"spec {min(kept)} is the newest one, or the one that writers follow"
            return ActionState(Validity.LOST, why=why)
        used = set() if known.unused_specs is None else left - known.unused_specs
        if used:
            why = f"a snapshot has files of spec {min(used)}"
            return ActionState(Validity.LOST, why=why)
        return ActionState(Validity.PENDING)

    def label(self, schema: Schema, specs: Mapping[int, PartitionSpec]) -> str:
        texts = [fields_text(specs[n].own_fields, schema) for n in self.specs if n in specs]
        return f"remove {plural(len(self.specs), 'unused partition spec')}: {'; '.join(texts)}"
