"""Actions that replace or remove delete files and leave every data file in place: the common part.

Their inputs are delete files, so that deletes which others add to the same data files meanwhile
change nothing about them: the executor finds the data files on the head.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from reconciler.plan.actions.content import ContentAction, inputs_of
from reconciler.plan.reasons import partition_text
from reconciler.table.schema import PartitionSpec, Schema
from reconciler.table.values import Scalar, decode_partition_value, encode_partition_value


@dataclass(frozen=True, slots=True)
class DeleteMaintenance(ContentAction, ABC):
    """inputs: delete files. spec_id, partition: of all of them, values in their domain; () where
    unpartitioned, as for equality deletes that apply to every partition."""

    spec_id: int = 0
    partition: tuple[Scalar | None, ...] = ()

    def without_files(self) -> Self:
        return type(self)(spec_id=self.spec_id)

    def canonical(self) -> dict[str, Any]:
        body: dict[str, Any] = {"type": self.kind, "specId": self.spec_id}
        if self.partition:
            body["partition"] = [encode_partition_value(v) for v in self.partition]
        body["inputs"] = sorted(self.inputs)
        return body

    @classmethod
    def from_canonical(cls, body: Mapping[str, Any]) -> Self:
        return cls(
            spec_id=body.get("specId", 0),
            partition=tuple(decode_partition_value(v) for v in body.get("partition", [])),
            inputs=inputs_of(body),
        )

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


@dataclass(frozen=True, slots=True)
class ConvertDeletes(DeleteMaintenance):
    """Equality delete files become the positions that they delete, one delete file per data
    file."""

    kind: ClassVar[str] = "ConvertDeletes"
    verb: ClassVar[str] = "convert equality deletes"
    work: ClassVar[str | None] = "convert-deletes"


@dataclass(frozen=True, slots=True)
class RemoveDanglingDeletes(DeleteMaintenance):
    """Delete files that apply to no live data file are removed from the metadata."""

    kind: ClassVar[str] = "RemoveDanglingDeletes"
    verb: ClassVar[str] = "remove dangling deletes"
    touched: ClassVar[str] = "{} inputs apply to data files again"
