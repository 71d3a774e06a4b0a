"""Actions that replace content files (data files, delete files): the common part."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from reconciler.plan.actions.base import Action
from reconciler.plan.actions.state import PARTLY, ActionState, Facts, Validity
from reconciler.table.catalog_policies import COMPACTION
from reconciler.table.filetable import Partition
from reconciler.table.values import decode_partition_value, encode_partition_value


def inputs_of(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the inputs of a canonical form, sorted. Raises ValueError if one is named twice: two
    plans that do the same would differ in their ids."""
    inputs = body.get("inputs", [])
    if len(set(inputs)) < len(inputs):
        raise ValueError("an input is named twice")
    return tuple(sorted(inputs))


@dataclass(frozen=True, slots=True)
class ContentAction(Action, ABC):
    """Work on content files."""

    inputs: tuple[str, ...] = ()
    """Paths of its input files, as the manifests spell them, sorted."""

    least_inputs: ClassVar[int] = 1
    """Files without which nothing is left to do."""
    why_changed: ClassVar[str] = "rows of {} inputs were deleted since"
    """Why inputs in `Facts.changed` are not valid any more; {}: their number."""
    bound_by: ClassVar[tuple[str, ...]] = (COMPACTION,)

    def on(self, inputs: tuple[str, ...]) -> Self:
        return replace(self, inputs=inputs)

    def judge(self, facts: Facts) -> ActionState:
        standing = tuple(
            sorted(p for p in self.inputs if p in facts.live and p not in facts.changed)
        )
        gone = sum(path not in facts.live for path in self.inputs)
        changed = len(self.inputs) - gone - len(standing)
        too_few = len(standing) < self.least_inputs
        if len(standing) == len(self.inputs):
            return ActionState(Validity.PENDING, standing)
        if facts.done and not changed:
            if too_few:
                return ActionState(Validity.DONE, why="committed")
            return ActionState(Validity.PENDING, standing, PARTLY)
        replaced = gone and not facts.done
        why = [f"{gone} of {len(self.inputs)} inputs were replaced"] if replaced else []
        why += [self.why_changed.format(changed)] if changed else []
        return ActionState(Validity.LOST, () if too_few else standing, ", ".join(why))


@dataclass(frozen=True, slots=True)
class PartitionAction(ContentAction, ABC):
    """Work on content files of one partition."""

    spec_id: int = 0
    """Id of the partition spec."""
    partition: Partition = ()
    """Values of the spec's fields in their domain, () when unpartitioned."""

    def without_files(self) -> Self:
        return type(self)(spec_id=self.spec_id)

    def canonical(self) -> dict[str, Any]:
        body: dict[str, Any] = {"type": self.kind, "specId": self.spec_id}
        if self.partition:
            body["partition"] = [encode_partition_value(v) for v in self.partition]
        return body | {"inputs": sorted(self.inputs)}

    @classmethod
    def from_canonical(cls, body: Mapping[str, Any]) -> Self:
        return cls(
            spec_id=body.get("specId", 0),
            partition=tuple(decode_partition_value(v) for v in body.get("partition", [])),
            inputs=inputs_of(body),
        )
