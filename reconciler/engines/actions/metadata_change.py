"""Carries out actions that change only metadata: a commit each, recorded with the old value."""

from __future__ import annotations

from typing import Any

from reconciler.engines.actions.base import SomeAction
from reconciler.engines.actions.one_by_one import OneByOneExecutor
from reconciler.engines.commit import metadata
from reconciler.plan.actions.state import Validity


class MetadataExecutor(OneByOneExecutor[SomeAction]):
    """The table's present metadata decides if an action is done, pending or lost."""

    def before(self, action: SomeAction) -> Any:
        """Return what `after` needs to know of the table as it is before the commit."""
        return None

    def after(self, action: SomeAction, before: Any, detail: str) -> str:
        """Do what follows the commit; return the detail for the ledger."""
        return detail

    def commit(self, key: str, action: SomeAction) -> None:
        begun, table = self.begin(), self.run.table
        before = self.before(action)
        state, detail = metadata.apply(
            table, lambda facts: self.state(action, facts), lambda: table.change(action)
        )
        if state.validity is not Validity.PENDING:
            self.say_skipped(key, action, state)
            return
        detail = self.after(action, before, detail)
        self.record(begun, key, detail, action.inputs)
        self.run.say("property", f"{action.verb} {detail}", key)
