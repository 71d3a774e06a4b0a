"""Adds the declared partition spec, and switches the writers to it."""

from __future__ import annotations

from typing import Any

from reconciler.plan.actions.partition_specs import AddSpec, SwitchSpec
from reconciler.plan.actions.state import ActionState, Facts, Validity
from reconciler.spark import specs
from reconciler.spark.actions.metadata_change import MetadataExecutor


class AddSpecExecutor(MetadataExecutor[AddSpec]):
    def changed(self, base: Any, action: AddSpec) -> Any:
        return specs.added(self.run.spark, self.run.table, base, action.fields)

    def values(self, metadata: Any, action: AddSpec) -> dict[str, str]:
        spec = metadata.spec(action.spec_id)
        return {f"spec {action.spec_id}": "none" if spec is None else specs.text(spec)}


class SwitchSpecExecutor(MetadataExecutor[SwitchSpec]):
    """Runs after the migrations of its plan."""

    def state(self, action: SwitchSpec, facts: Facts) -> ActionState:
        state = action.judge(facts)
        if state.validity is Validity.PENDING and action.spec_id not in facts.metadata.specs:
            return ActionState(Validity.LOST, why=f"spec {action.spec_id} does not exist")
        return state

    def carry_out(self) -> None:
        if not self.run.stopping():
            super().carry_out()

    def changed(self, base: Any, action: SwitchSpec) -> Any:
        core = self.run.spark._jvm.org.apache.iceberg
        return core.TableMetadata.buildFrom(base).setDefaultPartitionSpec(action.spec_id).build()

    def values(self, metadata: Any, action: SwitchSpec) -> dict[str, str]:
        return {"default spec": specs.text(metadata.spec())}
