"""Raises the table's format version.

Iceberg's own compaction of position deletes commits as a rewrite, which does not look for deletion
vectors: a DELETE beside it gives a data file two vectors once the table has format 3, and then no
engine reads the table. So the upgrade keeps away from tables that another engine compacts, and
arrives only at the head on which it was judged.
"""

from __future__ import annotations

from reconciler.engines.actions.metadata_change import MetadataExecutor
from reconciler.engines.snapshots import until
from reconciler.plan.actions.state import ActionState, Facts, Validity
from reconciler.plan.actions.upgrade_format import UpgradeFormat
from reconciler.table import summary_keys

REPLACE = "replace"


class UpgradeExecutor(MetadataExecutor[UpgradeFormat]):
    def state(self, action: UpgradeFormat, facts: Facts) -> ActionState:
        state = action.judge(facts)
        if state.validity is not Validity.PENDING or not self._compacted_since():
            return state
        return ActionState(Validity.LOST, why="another engine compacted the table since")

    def _compacted_since(self) -> bool:
        base = self.run.request.base_snapshot_id
        if base is None:
            return False
        newer, _ = until(self.run.table.ancestors(), base)
        return any(
            s.operation == REPLACE and summary_keys.ATTEMPT_ID not in s.summary for s in newer
        )
