"""Expires snapshots, then deletes the files that only these referred to.

The commit removes the listed snapshots from exactly the metadata that was judged, and nothing else.
Iceberg's own operation would also drop what the table's properties let expire meanwhile. Files are
deleted only after the new metadata was read back: what it refers to stays, and so does what another
table or another metadata file refers to. A crash in between leaves files that nothing needs, which
the search for orphans finds.
"""

from __future__ import annotations

import time
from typing import Any

from reconciler.engines.actions.metadata_change import MetadataExecutor
from reconciler.engines.commit import cleanup, reachable, statistics
from reconciler.format import count, iec
from reconciler.plan.actions.expire_snapshots import ExpireSnapshots
from reconciler.plan.actions.state import ActionState, Facts, Validity
from reconciler.table.retention import Retention, kept, of_table


class ExpireExecutor(MetadataExecutor[ExpireSnapshots]):
    def state(self, action: ExpireSnapshots, facts: Facts) -> ActionState:
        """Judge on the live table, with what its properties and each branch ask for by now."""
        facts = self.with_log(facts)
        state = action.judge(facts)
        if state.validity is not Validity.PENDING:
            return state
        asked = Retention(action.max_age_ms, action.least)
        retention = of_table(asked, facts.metadata.properties)
        young = set(action.snapshots) & kept(facts.metadata.log, retention, int(time.time() * 1000))
        if young:
            why = f"{len(young)} of the snapshots are to be kept now"
            return ActionState(Validity.LOST, why=why)
        return state

    def before(self, action: ExpireSnapshots) -> Any:
        statistics.keep(
            self.run.table, action.snapshots, lambda text: self.run.say("statistics", text)
        )
        return self.run.table.frozen(action.snapshots)

    def after(self, action: ExpireSnapshots, before: Any, detail: str) -> str:
        """Delete what only the expired snapshots needed. The snapshots are gone, whatever fails
        here: files that stay are found by a search for orphans."""
        errors = self.run.table.errors
        try:
            return self._cleaned(before, detail)
        except Exception as error:
            if errors.lost(error):
                raise
            return f"{detail}; files stay: {errors.message(error)}"

    def _cleaned(self, before: Any, detail: str) -> str:
        """Delete the files by the table's present metadata; return the detail for the ledger."""
        run = self.run
        run.require_lease()
        run.table.refresh()
        gone = run.table.unneeded(before)
        mine = reachable.own(run.table, gone)
        free, refused = run.unclaimed(mine)
        files, size, _ = cleanup.discard(run.table, free)
        left = len(gone) - files
        text = f"{detail}; {count(files)} files removed ({iec(size)})"
        if refused:
            return f"{text}; {count(left)} files stay: {refused}"
        why = "elsewhere, of others too, or not removable, stay"
        return f"{text}; {count(left)} files {why}" if left else text
