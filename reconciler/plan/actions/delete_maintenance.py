"""Actions that replace or remove delete files and leave every data file in place: the common part.

Their inputs are delete files, so that deletes which others add to the same data files meanwhile
change nothing about them: the executor finds the data files on the head.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from reconciler.plan.actions.content import PartitionAction
from reconciler.plan.actions.state import ActionState, Facts, Validity
from reconciler.plan.reasons import partition_text
from reconciler.table.schema import PartitionSpec, Schema


@dataclass(frozen=True, slots=True)
class DeleteMaintenance(PartitionAction, ABC):
    """inputs: delete files. partition: () also for equality deletes that apply to every
    partition."""

    def label(self, schema: Schema, specs: Mapping[int, PartitionSpec]) -> str:
        spec = specs.get(self.spec_id)
        place = partition_text(spec, self.partition, schema) if spec and self.partition else ""
        return self.verb + (f", {place}" if place else "")


@dataclass(frozen=True, slots=True)
class CompactDeletes(DeleteMaintenance):
    """Position delete files become one per data file: files on format 2, vectors on format 3.

    No data file is opened (a "minor" compaction: "Petabyte-Scale Row-Level Operations
    in Data Lakehouses", section 5).
    """

    kind: ClassVar[str] = "CompactDeletes"
    verb: ClassVar[str] = "compact deletes"
    work: ClassVar[str | None] = "compact-deletes"
    reads_deletes: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class ConvertDeletes(DeleteMaintenance):
    """Equality delete files become the positions that they delete, one delete file per data
    file."""

    kind: ClassVar[str] = "ConvertDeletes"
    verb: ClassVar[str] = "convert equality deletes"
    work: ClassVar[str | None] = "convert-deletes"
    reads_deletes: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class RemoveDanglingDeletes(DeleteMaintenance):
    """Delete files that apply to no live data file are removed from the metadata."""

    kind: ClassVar[str] = "RemoveDanglingDeletes"
    verb: ClassVar[str] = "remove dangling deletes"
    why_changed: ClassVar[str] = "{} inputs apply to data files again"

    def judge(self, facts: Facts) -> ActionState:
        """Done once the files are gone, whoever removed them: Iceberg may drop them in another
        commit, such as that of a rewrite in the same plan."""
        left = tuple(path for path in self.inputs if path in facts.live)
        if not left:
            return ActionState(Validity.DONE, why="the files are gone")
        facts = replace(facts, changed=facts.applying)
        return super(RemoveDanglingDeletes, self.on(left)).judge(facts)
