"""Files of an old partition spec, rewritten into the partitions of the declared one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from reconciler.plan import grouping
from reconciler.plan.actions.partition_specs import (
    fields_canonical,
    fields_from_canonical,
    fields_text,
    same_spec,
)
from reconciler.plan.actions.rewrite import Rewrite
from reconciler.plan.actions.state import ActionState, Facts, Validity
from reconciler.plan.grouping import Extents, Grouping
from reconciler.table.schema import PartitionSpec, Schema, SpecField, lead_field


@dataclass(frozen=True, slots=True)
class Migrate(Rewrite):
    """Data files moved from one partition spec to another."""

    output_spec_id: int = 0
    """Id of the spec that its outputs get. Its inputs may be of any partition of `spec_id`."""
    fields: tuple[SpecField, ...] = ()
    """Fields of the outputs' spec."""

    kind: ClassVar[str] = "Migrate"
    verb: ClassVar[str] = "migrate"

    def canonical(self) -> dict[str, Any]:
        body = super(Migrate, self).canonical()
        return body | {
            "outputSpecId": self.output_spec_id,
            "fields": fields_canonical(self.fields),
        }

    @classmethod
    def from_canonical(cls, body: Mapping[str, Any]) -> Self:
        spec_id, fields = body.get("outputSpecId", 0), fields_from_canonical(body)
        made = super(Migrate, cls).from_canonical(body)
        return replace(made, output_spec_id=spec_id, fields=fields)

    @property
    def into(self) -> int:
        return self.output_spec_id

    @property
    def moves_by(self) -> tuple[SpecField, ...] | None:
        return self.fields

    @property
    def grouped_by(self) -> SpecField | None:
        return lead_field(self.fields)

    def groups(self, files: Extents, *, target_bytes: int, merge_bytes: int | None) -> Grouping:
        merge = grouping.PACK_TARGETS * target_bytes if merge_bytes is None else merge_bytes
        return grouping.by_target_partition(files, merge)

    def judge(self, facts: Facts) -> ActionState:
        known = facts.metadata.specs.get(self.output_spec_id)
        if known is not None and not same_spec(known, self.fields):
            return ActionState(Validity.LOST, why=f"spec {self.output_spec_id} is another one now")
        return super(Migrate, self).judge(facts)

    def label(self, schema: Schema, specs: Mapping[int, PartitionSpec]) -> str:
        old = specs.get(self.spec_id)
        was = fields_text(old.own_fields, schema) if old is not None else f"spec {self.spec_id}"
        order = self.ordering.text(schema)
        by = f", sorted by {order}" if order else ""
        return f"{self.verb} {was} to {fields_text(self.fields, schema)}{by}"
