"""Carries out actions without content files one after another, each judged right before.

Each is recorded as one batch. An action that is not carried out leaves no files: after a crash,
nothing of it needs to be settled.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

from reconciler.engines.actions.base import Executor, SomeAction
from reconciler.engines.commit import standing
from reconciler.plan.actions.state import ActionState, Facts, Validity
from reconciler.plan.execution import COMMITTED, Outcome


@dataclass(frozen=True, slots=True)
class Begun:
    """An action that has begun."""

    attempt_id: str
    """Id of the attempt."""
    base: int
    """The table's snapshot at the beginning, 0 if it has none."""
    started: float
    """Start, in monotonic seconds."""


class OneByOneExecutor(Executor[SomeAction], ABC):
    @abstractmethod
    def commit(self, key: str, action: SomeAction) -> None:
        """Carry out an action that is pending, and record it."""

    def may_begin(self) -> bool:
        """Whether another pending action may begin. Raises BlockedError if the lease was lost."""
        self.run.require_lease()
        return True

    def state(self, action: SomeAction, facts: Facts) -> ActionState:
        """Return how the action stands on the table as last refreshed."""
        return action.judge(facts)

    def with_log(self, facts: Facts) -> Facts:
        """Return the facts with the table's snapshots, which take a call of their own."""
        return replace(facts, metadata=replace(facts.metadata, log=self.run.table.log()))

    def judge(self) -> dict[str, ActionState]:
        self.run.table.refresh()
        now = self.run.table.facts()
        return {key: self._state(key, action, now) for key, action in self.items}

    def carry_out(self) -> None:
        for key, action in self.items:
            self.run.table.refresh()
            standing.refuse_paused(self.run.table, self.run.shown)
            state = self._state(key, action, self.run.table.facts())
            if state.validity is not Validity.PENDING:
                self.say_skipped(key, action, state)
            elif self.may_begin():
                self.commit(key, action)

    def _state(self, key: str, action: SomeAction, now: Facts) -> ActionState:
        return self.state(action, replace(now, done=key in self.run.done_ids))

    def say_skipped(self, key: str, action: SomeAction, state: ActionState) -> None:
        if state.validity is Validity.LOST:
            self.run.say("skipped", f"{action.verb}  SKIPPED: {state.why}", key)

    def begin(self) -> Begun:
        started, base = time.monotonic(), self.run.table.head() or 0
        return Begun(self.run.begin_attempt(), base, started)

    def record(self, begun: Begun, key: str, detail: str, inputs: tuple[str, ...] = ()) -> None:
        """Record what was carried out. inputs: the content files that left the table by it."""
        run, attempt_id = self.run, begun.attempt_id
        intent = run.intent(attempt_id, 1, (key,), begun.base, inputs=inputs)
        run.ledger.record_intent(intent)
        seconds = time.monotonic() - begun.started
        outcome = Outcome(attempt_id, 1, key, COMMITTED, None, 0, 0, 0, 0, 0, 0.0, seconds, detail)
        run.record(intent, (outcome,))
