"""Carries out actions that change only metadata: a commit each, recorded with the old value."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import Any

from reconciler.plan.actions.base import Action
from reconciler.plan.actions.state import ActionState, Facts, Validity
from reconciler.plan.execution import COMMITTED, Outcome
from reconciler.spark import metadata
from reconciler.spark.actions.base import Executor, SomeAction
from reconciler.spark.metadata import Change


class MetadataExecutor(Executor[SomeAction], ABC):
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

    def state(self, action: SomeAction, facts: Facts) -> ActionState:
        """Return how the action stands on the table as last refreshed."""
        return action.judge(facts)

    def judge(self) -> dict[str, ActionState]:
        self.run.table.refresh()
        now = metadata.facts(self.run.table)
        return {key: self.state(action, now) for key, action in self.items}

    def carry_out(self) -> None:
        for key, action in self.items:
            self.run.table.refresh()
            state = self.state(action, metadata.facts(self.run.table))
            if state.validity is Validity.PENDING:
                self._commit(key, action)
            else:
                self._say_skipped(key, action, state)

    def _say_skipped(self, key: str, action: Action, state: ActionState) -> None:
        if state.validity is Validity.LOST:
            self.run.say("skipped", f"{action.verb}  SKIPPED: {state.why}", key)

    def _commit(self, key: str, action: SomeAction) -> None:
        run, started = self.run, time.monotonic()
        snapshot = run.table.currentSnapshot()
        base = 0 if snapshot is None else int(snapshot.snapshotId())
        attempt_id = run.begin_attempt()
        change = Change(
            lambda facts: self.state(action, facts),
            lambda base: self.changed(base, action),
            lambda found: self.values(found, action),
        )
        before = self.before(action)
        state, detail = metadata.apply(run.spark, run.table, change)
        if state.validity is not Validity.PENDING:
            self._say_skipped(key, action, state)
            return
        detail = self.after(action, before, detail)
        intent = run.intent(attempt_id, 1, (key,), base)
        run.ledger.record_intent(intent)  # it leaves no files: nothing to settle after a crash
        seconds = time.monotonic() - started
        outcome = Outcome(attempt_id, 1, key, COMMITTED, None, 0, 0, 0, 0, 0, 0.0, seconds, detail)
        run.record(intent, (outcome,))
        run.say("property", f"{action.verb} {detail}", key)
