"""Removes partition specs that no snapshot uses.

Whether one does is read again for every attempt of the commit, from the manifest lists of all
snapshots of exactly the metadata that the commit replaces. Snapshots are not expired for it.
"""

from __future__ import annotations

from dataclasses import replace

from reconciler.engines.actions.metadata_change import MetadataExecutor
from reconciler.plan.actions.remove_specs import RemoveSpecs
from reconciler.plan.actions.state import ActionState, Facts, Validity


class RemoveSpecsExecutor(MetadataExecutor[RemoveSpecs]):
    def state(self, action: RemoveSpecs, facts: Facts) -> ActionState:
        """Judge with the specs that the live table's snapshots use, read only where it matters."""
        state = action.judge(facts)
        if state.validity is not Validity.PENDING:
            return state
        unused = frozenset(facts.metadata.specs) - self.run.table.used_specs()
        return action.judge(replace(facts, metadata=replace(facts.metadata, unused_specs=unused)))
