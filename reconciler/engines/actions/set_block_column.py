"""Adds the column of block ids, and sets the properties of its trees, in one commit."""

from __future__ import annotations

from dataclasses import replace

from reconciler.engines.actions.metadata_change import MetadataExecutor
from reconciler.plan.actions.set_block_column import SetBlockColumn
from reconciler.plan.actions.state import ActionState, Facts


class BlockColumnExecutor(MetadataExecutor[SetBlockColumn]):
    def state(self, action: SetBlockColumn, facts: Facts) -> ActionState:
        return action.judge(
            replace(facts, metadata=facts.metadata.with_schema(self.run.table.schema()))
        )
