"""Files removed from the storage that nobody refers to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from reconciler.plan.actions.base import Action
from reconciler.plan.actions.state import ActionState, Facts, Validity
from reconciler.table.catalog_policies import ORPHANS
from reconciler.table.schema import PartitionSpec, Schema


@dataclass(frozen=True, slots=True)
class RemoveOrphans(Action):
    """Remove these files and no others."""

    files: tuple[str, ...] = ()
    """Paths of the files, sorted."""
    older_than_ms: int = 0
    """Age from which files were chosen, in milliseconds."""

    kind: ClassVar[str] = "RemoveOrphans"
    verb: ClassVar[str] = "remove orphans"
    bound_by: ClassVar[tuple[str, ...]] = (ORPHANS,)

    def canonical(self) -> dict[str, Any]:
        return {
            "type": self.kind,
            "files": list(self.files),
            "olderThanMs": self.older_than_ms,
        }

    @classmethod
    def from_canonical(cls, body: Mapping[str, Any]) -> Self:
        return cls(tuple(sorted(body.get("files", []))), body.get("olderThanMs", 0))

    @property
    def orphan_age_ms(self) -> int:
        return self.older_than_ms

    def judge(self, facts: Facts) -> ActionState:
        """Judge by what was found on the storage: files that are gone need not be removed by us."""
        metadata = facts.metadata
        orphans, done = metadata.orphans, "the files are gone, or are referred to"
        if facts.done:
            return ActionState(Validity.DONE, why=done)
        if metadata.removes_nothing:
            return ActionState(Validity.LOST, why=f"the table has {metadata.removes_nothing}")
        if metadata.bounds.orphan_age_ms > self.older_than_ms:
            why = "a policy of the catalog keeps younger files by now"
            return ActionState(Validity.LOST, why=why)
        if metadata.orphans_refused:
            return ActionState(Validity.LOST, why=metadata.orphans_refused)
        if orphans is not None and not orphans.intersection(self.files):
            return ActionState(Validity.DONE, why=done)
        return ActionState(Validity.PENDING)

    def label(self, schema: Schema, specs: Mapping[int, PartitionSpec]) -> str:
        files = "1 orphan file" if len(self.files) == 1 else f"{len(self.files):,} orphan files"
        return f"remove {files}"
