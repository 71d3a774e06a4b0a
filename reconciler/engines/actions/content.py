"""Carries out actions on content files (data files, delete files) in attempts.

An attempt reads the current head, writes below a directory of its own, and commits in batches. What
another writer's commit costs is done again in the next attempt, on the inputs that are still valid.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from reconciler.engines.actions.base import Executor
from reconciler.engines.commit import cleanup, fence, locations, standing
from reconciler.engines.schedule import vanished
from reconciler.engines.schedule.attempt import Attempt
from reconciler.engines.schedule.opening import opening_of
from reconciler.errors import ReconcilerError
from reconciler.format import plural
from reconciler.plan.actions.content import ContentAction
from reconciler.plan.actions.state import ActionState
from reconciler.plan.execution import Intent, Outcome
from reconciler.plan.standing import Fallen

POLL_SECONDS = 0.2

SomeContent = TypeVar("SomeContent", bound=ContentAction)


class ContentExecutor(Executor[SomeContent], ABC):
    """`judge` is called before each attempt, which then uses what was read of the head."""

    @abstractmethod
    def states(self, head: int, done: Collection[str]) -> dict[str, ActionState]:
        """Read what the actions need of the head, a snapshot id, and return how they stand on it.

        done: ids of the actions that the table's history or this run has carried out.
        """

    def judge(self) -> dict[str, ActionState]:
        """Once the plan's snapshot has left the history, what is not done is lost."""
        run = self.run
        run.table.refresh()
        head = run.table.head()
        if head is None:
            lost = standing.fallen_state(Fallen.ROLLED_BACK, run.request)
            return {key: lost for key, _ in self.items}
        done = standing.actions_in_history(run.table, run.request) | run.done_ids
        states = self.states(head, done)
        return standing.unless_fallen(run.table, run.request, states)

    @abstractmethod
    def input_bytes(self, paths: Sequence[str]) -> int:
        """Return the bytes that an attempt reads for these inputs of the head judged last."""

    @abstractmethod
    def work(self, attempt: Attempt, pending: Sequence[tuple[str, SomeContent]]) -> bool:
        """Carry out the actions on these inputs; return True if conflicts left something to do."""

    @abstractmethod
    def dropped(self, attempt: Attempt) -> tuple[Outcome, ...]:
        """Return outcomes for work that was begun and never sent: its reads count as spent."""

    @abstractmethod
    def needed(self, head: int, paths: Sequence[str]) -> Iterable[str]:
        """Return the files that the snapshot needs and that work on these inputs reads."""

    def require_files(self, paths: Sequence[str], error: BaseException) -> None:
        """Raise TableDamagedError if the current head needs a file that does not exist."""
        run = self.run
        vanished.require_files(run.table, lambda head: self.needed(head, paths), error, run.shown)

    def carry_out(self) -> None:
        run = self.run
        for number in range(run.request.max_attempts):
            pending = self._pending()
            if not pending or run.stopping() or not self._within_budget(pending):
                return
            if number:
                self._back_off(number, sum(len(action.inputs) for _, action in pending))
            if not self._attempt(pending):
                return

    def _pending(self) -> list[tuple[str, SomeContent]]:
        """Return the actions that are not done, with only their valid inputs; none that a batch
        on a branch replaces."""
        states = vanished.again(self.run.table.errors, self.judge)
        left = {
            key: tuple(path for path in states[key].standing if path not in self.run.held)
            for key, _ in self.items
        }
        return [(key, replace(action, inputs=left[key])) for key, action in self.items if left[key]]

    def _within_budget(self, pending: Sequence[tuple[str, SomeContent]]) -> bool:
        """Whether the budgets still cover an attempt, after what was read already."""
        run, used = self.run, self.run.used()
        wanted = self.input_bytes([path for _, action in pending for path in action.inputs])
        limit, cpu_limit = run.request.bytes_limit, run.request.cpu_limit_seconds
        room = [] if limit is None else [limit]
        if cpu_limit is not None and used.read_bytes > 0 and used.cpu_seconds > 0:
            room.append(int(cpu_limit * used.read_bytes / used.cpu_seconds))
        run.reading.limit(min(room, default=None))
        why = run.reading.foresee(used, wanted)
        if why:
            text = "the budget does not cover another attempt on what is left"
            run.say("stopped", f"{text}: {why}")
        return not why

    def _back_off(self, number: int, files: int) -> None:
        seconds = self.run.request.backoff_seconds * 2 ** (number - 1)
        self.run.say(
            "retry", f"planned again: {plural(files, 'file')}; next attempt in {seconds:.0f} s"
        )
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self.run.stopping():
            time.sleep(POLL_SECONDS)

    def _attempt(self, pending: Sequence[tuple[str, SomeContent]]) -> bool:
        """Run one attempt on the current head; return True if conflicts left something to do."""
        attempt = self._open()
        opened = self.run.intent(
            attempt.id, 0, tuple(key for key, _ in pending), attempt.snapshot_id, attempt.prefix
        )
        self.run.ledger.record_intent(opened)
        try:
            conflicts = self.work(attempt, pending)
        except BaseException as error:
            # An interrupted commit may still succeed: the next run settles the attempt.
            if self.run.in_doubt or self.run.table.errors.lost(error):
                raise
            self._give_up(attempt, opened)
            if not self._overtaken(error, pending):
                raise
            return True
        self._close(attempt, opened)
        return conflicts

    def _overtaken(self, error: BaseException, pending: Sequence[tuple[str, SomeContent]]) -> bool:
        """Whether metadata that the attempt reads was removed with the snapshot that needed it.

        Raises if a file is missing that the head needs.
        """
        if not vanished.may_have_vanished(self.run.table.errors, error):
            return False
        self.require_files([path for _, action in pending for path in action.inputs], error)
        self.run.conflicts += 1
        self.run.say("conflict", "CONFLICT: the snapshot it reads expired meanwhile")
        return True

    def _open(self) -> Attempt:
        run = self.run
        head = run.table.head()
        snapshot = None if head is None else run.table.snapshot(head)
        assert snapshot is not None  # what is pending was judged on it
        attempt_id = run.begin_attempt()
        return Attempt(
            backend=run.backend,
            id=attempt_id,
            name=run.shown,
            table=run.table.fresh(),
            snapshot_id=snapshot.id,
            sequence_number=snapshot.sequence_number,
            prefix=f"{locations.data_location(run.table)}/layout-{attempt_id}",
            verify=run.request.verify,
            asked_opening=lambda: opening_of(run.request.catalog, run.request.table),
            affords=run.reading.affords,
            decoded=run.decoded,
        )

    def _give_up(self, attempt: Attempt, opened: Intent) -> None:
        """Close the attempt after an error, which remains the one that is raised."""
        try:
            self._close(attempt, opened)
        except Exception as second:
            why = second.what if isinstance(second, ReconcilerError) else str(second)
            self.run.say("left", f"the files of this run stay until the next one: {why}")

    def _close(self, attempt: Attempt, opened: Intent) -> None:
        run = self.run
        cleanup.remove_leftovers(attempt.table, attempt.prefix, run.committed)
        dropped = self.dropped(attempt)
        run.outcomes.extend(dropped)
        run.ledger.record_outcomes(opened, (*dropped, fence.closed(opened)))
