"""Data files with many deleted rows, rewritten without these rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from reconciler.plan.actions.rewrite import Rewrite
from reconciler.plan.actions.state import ActionState, Facts


@dataclass(frozen=True, slots=True)
class ApplyDeletes(Rewrite):
    """A major compaction: "Petabyte-Scale Row-Level Operations in Data Lakehouses", section 5."""

    kind: ClassVar[str] = "ApplyDeletes"
    verb: ClassVar[str] = "apply deletes"
    work: ClassVar[str | None] = "pack"
    by: ClassVar[str] = " in order of "

    def judge(self, facts: Facts) -> ActionState:
        """Deletes added since the plan are applied with the others."""
        return super(ApplyDeletes, self).judge(replace(facts, changed=()))
