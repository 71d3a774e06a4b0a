"""Manifests replaced by fewer, with the entries of a partition together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from reconciler.plan.actions.content import ContentAction, inputs_of
from reconciler.table.catalog_policies import METADATA
from reconciler.table.schema import PartitionSpec, Schema


@dataclass(frozen=True, slots=True)
class RewriteManifests(ContentAction):
    """Rewrite manifests of data files, which are its inputs."""

    manifests: int = 1
    """How many manifests take their place."""

    kind: ClassVar[str] = "RewriteManifests"
    verb: ClassVar[str] = "rewrite manifests"
    least_inputs: ClassVar[int] = 2
    bound_by: ClassVar[tuple[str, ...]] = (METADATA,)

    def canonical(self) -> dict[str, Any]:
        return {"type": self.kind, "inputs": sorted(self.inputs), "manifests": self.manifests}

    @classmethod
    def from_canonical(cls, body: Mapping[str, Any]) -> Self:
        return cls(inputs=inputs_of(body), manifests=body.get("manifests", 1))

    def label(self, schema: Schema, specs: Mapping[int, PartitionSpec]) -> str:
        return self.verb
