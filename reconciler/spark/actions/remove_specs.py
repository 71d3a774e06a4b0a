"""Removes partition specs that no snapshot uses.

Whether one does is read again for every attempt of the commit, from the manifest lists of all
snapshots of exactly the metadata that the commit replaces. Snapshots are not expired for it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from reconciler.errors import VerificationError
from reconciler.plan.actions.remove_specs import RemoveSpecs
from reconciler.plan.actions.state import ActionState, Facts, Validity
from reconciler.spark.actions.metadata_change import MetadataExecutor
from reconciler.spark.commit import metadata, reachable
from reconciler.spark.fallback import stage
from reconciler.spark.session import iceberg


class RemoveSpecsExecutor(MetadataExecutor[RemoveSpecs]):
    def state(self, action: RemoveSpecs, facts: Facts) -> ActionState:
        """Judge with the specs that the live table's snapshots use, read only where it matters."""
        state = action.judge(facts)
        if state.validity is not Validity.PENDING:
            return state
        unused = frozenset(facts.metadata.specs) - self._used()
        return action.judge(replace(facts, metadata=replace(facts.metadata, unused_specs=unused)))

    def _used(self) -> frozenset[int]:
        """Return the ids of the specs that a manifest of any snapshot has."""
        run = self.run
        now = reachable.frozen(run.spark, run.table)
        manifests = stage.metadata_table(run.spark, now, "ALL_MANIFESTS")
        rows = manifests.select("partition_spec_id").distinct().collect()
        return frozenset(int(row.partition_spec_id) for row in rows)

    def changed(self, base: Any, action: RemoveSpecs) -> Any:
        """Return the metadata without the specs. Raises VerificationError if other specs would
        change."""
        java = self.run.spark._jvm
        known = {str(spec.specId()): str(spec) for spec in iceberg.each(base.specs())}
        going = [number for number in action.specs if str(number) in known]
        ids = java.java.util.HashSet(iceberg.java_list(self.run.spark, going))
        builder = java.org.apache.iceberg.TableMetadata.buildFrom(base)
        metadata.hold(self.run.spark, base, builder)  # a commit to main may be under one of them
        update = java.org.apache.iceberg.MetadataUpdate.RemovePartitionSpecs(ids)
        update.applyTo(builder)
        wanted = builder.build()
        left = {str(spec.specId()): str(spec) for spec in iceberg.each(wanted.specs())}
        kept = {number: text for number, text in known.items() if int(number) not in action.specs}
        if left != kept or wanted.defaultSpecId() != base.defaultSpecId():
            raise VerificationError(
                f"could not remove partition specs of {self.run.shown}: the change would remove "
                "others than planned",
                details=("Nothing was changed.",),
                do="report this; remove spec.maintenance.removeSpecs until it is fixed",
            )
        return wanted

    def values(self, metadata: Any, action: RemoveSpecs) -> dict[str, str]:
        ids = sorted(int(spec.specId()) for spec in iceberg.each(metadata.specs()))
        return {"partition specs": ", ".join(map(str, ids))}
