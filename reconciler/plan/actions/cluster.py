"""Files sorted by the key that the policy declares, where they have drifted from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from reconciler.plan.actions.rewrite import Rewrite


@dataclass(frozen=True, slots=True)
class Cluster(Rewrite):
    kind: ClassVar[str] = "Cluster"
    verb: ClassVar[str] = "cluster"
