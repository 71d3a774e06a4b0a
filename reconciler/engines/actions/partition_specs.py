"""Adds the declared partition spec, and switches the writers to it."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from typing import TypeVar

from reconciler.engines.actions.metadata_change import MetadataExecutor
from reconciler.engines.snapshots import until
from reconciler.plan.actions.partition_specs import AddSpec, SpecChange, SwitchSpec
from reconciler.plan.actions.state import ActionState, Facts, Validity
from reconciler.table import summary_keys

SomeChange = TypeVar("SomeChange", bound=SpecChange)


class _SpecExecutor(MetadataExecutor[SomeChange], ABC):
    """Judges also what other writers committed since the plan: it may be a danger that the plan's
    reviewer did not see."""

    def state(self, action: SomeChange, facts: Facts) -> ActionState:
        state = action.judge(facts)
        if state.validity is not Validity.PENDING:
            return state
        danger = action.danger(self._since())
        return ActionState(Validity.LOST, why=danger) if danger else state

    def _since(self) -> list[Mapping[str, str]]:
        """Return the summaries of other writers' snapshots since the plan."""
        base = self.run.request.base_snapshot_id
        newer = [] if base is None else until(self.run.table.ancestors(), base)[0]
        return [s.summary for s in newer if summary_keys.ATTEMPT_ID not in s.summary]


class AddSpecExecutor(_SpecExecutor[AddSpec]):
    """Adds the spec; writers keep theirs."""


class SwitchSpecExecutor(_SpecExecutor[SwitchSpec]):
    """Runs after the migrations of its plan."""

    def state(self, action: SwitchSpec, facts: Facts) -> ActionState:
        state = super().state(action, facts)
        if state.validity is Validity.PENDING and action.spec_id not in facts.metadata.specs:
            return ActionState(Validity.LOST, why=f"spec {action.spec_id} does not exist")
        return state

    def carry_out(self) -> None:
        if not self.run.stopping():
            super().carry_out()
