"""Files sorted by the key that pays back under the recorded queries (WAIR)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from reconciler.plan.actions.rewrite import Rewrite


@dataclass(frozen=True, slots=True)
class Recluster(Rewrite):
    kind: ClassVar[str] = "Recluster"
    verb: ClassVar[str] = "recluster"
    rests_on_workload: ClassVar[bool] = True
