"""Expires snapshots, then deletes the files that only these referred to.

The commit removes the listed snapshots from exactly the metadata that was judged, and nothing else.
Iceberg's own operation would also drop what the table's properties let expire meanwhile. Files are
deleted only after the new metadata was read back: what it refers to stays, and so does what another
table or another metadata file refers to. A crash in between leaves files that nothing needs, which
the search for orphans finds.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from reconciler.errors import VerificationError
from reconciler.format import count, iec
from reconciler.plan.actions.expire_snapshots import ExpireSnapshots
from reconciler.plan.actions.state import ActionState, Facts, Validity
from reconciler.spark.actions.metadata_change import MetadataExecutor
from reconciler.spark.commit import metadata, reachable
from reconciler.spark.session import iceberg
from reconciler.table.block_ids import COLUMN, remembering
from reconciler.table.retention import Retention, kept


class ExpireExecutor(MetadataExecutor[ExpireSnapshots]):
    def state(self, action: ExpireSnapshots, facts: Facts) -> ActionState:
        """Judge on the live table, with the retention of a branch that was made since."""
        log = metadata.log_of(self.run.spark, self.run.table)
        state = action.judge(replace(facts, metadata=replace(facts.metadata, log=log)))
        if state.validity is not Validity.PENDING:
            return state
        retention = Retention(action.max_age_ms, action.least)
        young = set(action.snapshots) & kept(log, retention, int(time.time() * 1000))
        if young:
            why = f"{len(young)} of the snapshots are to be kept now"
            return ActionState(Validity.LOST, why=why)
        return state

    def changed(self, base: Any, action: ExpireSnapshots) -> Any:
        """Return the metadata without the snapshots. Raises VerificationError if more than these
        would go."""
        java = self.run.spark._jvm
        asked = [base.snapshot(one) for one in action.snapshots]
        found = [one for one in asked if one is not None]
        listed = iceberg.java_list(self.run.spark, found)
        builder = java.org.apache.iceberg.TableMetadata.buildFrom(base)
        metadata.hold(self.run.spark, base, builder, _refs(base))
        builder.setProperties(self._remembered(base, found))
        wanted = builder.removeSnapshots(listed).build()
        lost = _refs(base) != _refs(wanted)
        fewer = base.snapshots().size() - wanted.snapshots().size()
        if lost or fewer != listed.size():
            raise VerificationError(
                f"could not expire snapshots of {self.run.shown}: the change would remove more "
                "than was planned",
                details=("Nothing was changed.",),
                do="report this; expire the snapshots with another tool until it is fixed",
            )
        return wanted

    def _remembered(self, base: Any, expired: Sequence[Any]) -> Any:
        """Return the properties that keep what the snapshots prove of block ids."""
        properties = {str(name): str(value) for name, value in dict(base.properties()).items()}
        changes = self.run.spark._jvm.java.util.HashMap()
        if COLUMN in properties:
            infos = [iceberg.snapshot_info(one) for one in expired]
            summaries = [(one.id, one.summary) for one in infos]
            for name, value in remembering(properties, summaries).items():
                changes.put(name, value)
        return changes

    def values(self, metadata: Any, action: ExpireSnapshots) -> dict[str, str]:
        return {"snapshots": str(metadata.snapshots().size())}

    def before(self, action: ExpireSnapshots) -> Any:
        return reachable.frozen(self.run.spark, self.run.table)

    def after(self, action: ExpireSnapshots, before: Any, detail: str) -> str:
        """Delete what only the expired snapshots needed, by the table's present metadata."""
        run = self.run
        run.require_lease()
        run.table.refresh()
        now = reachable.frozen(run.spark, run.table)
        gone = reachable.unneeded(run.spark, before, now)
        mine = reachable.own(run.table, gone)
        free, refused = run.unclaimed(mine)
        files, size = reachable.delete(run.table, free)
        left = len(gone) - files
        text = f"{detail}; {count(files)} files removed ({iec(size)})"
        if refused:
            return f"{text}; {count(left)} files stay: {refused}"
        why = "elsewhere, of others too, or not removable, stay"
        return f"{text}; {count(left)} files {why}" if left else text


def _refs(metadata: Any) -> dict[str, int]:
    return {
        str(entry.getKey()): int(entry.getValue().snapshotId())
        for entry in iceberg.each(metadata.refs().entrySet())
    }
