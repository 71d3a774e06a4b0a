"""Carries out actions that change only metadata: a commit each, recorded with the old value."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from reconciler.plan.actions.state import Validity
from reconciler.spark.actions.base import SomeAction
from reconciler.spark.actions.one_by_one import OneByOneExecutor
from reconciler.spark.commit import metadata
from reconciler.spark.commit.metadata import Change


class MetadataExecutor(OneByOneExecutor[SomeAction], ABC):
    """The table's present metadata decides if an action is done, pending or lost."""

    @abstractmethod
    def changed(self, base: Any, action: SomeAction) -> Any:
        """Return the metadata (org.apache.iceberg.TableMetadata) after the action."""

    @abstractmethod
    def values(self, metadata: Any, action: SomeAction) -> dict[str, str]:
        """Return what the action changes, by name, as people write it."""

    def before(self, action: SomeAction) -> Any:
        """Return what `after` needs to know of the table as it is before the commit."""
        return None

    def after(self, action: SomeAction, before: Any, detail: str) -> str:
        """Do what follows the commit; return the detail for the ledger."""
        return detail

    def commit(self, key: str, action: SomeAction) -> None:
        begun = self.begin()
        change = Change(
            lambda facts: self.state(action, facts),
            lambda base: self.changed(base, action),
            lambda found: self.values(found, action),
        )
        before = self.before(action)
        state, detail = metadata.apply(self.run.spark, self.run.table, change)
        if state.validity is not Validity.PENDING:
            self.say_skipped(key, action, state)
            return
        detail = self.after(action, before, detail)
        self.record(begun, key, detail)
        self.run.say("property", f"{action.verb} {detail}", key)
