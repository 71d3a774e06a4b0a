"""What the executors of one plan's run share: its table, its records and its progress."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping

from reconciler.engines.backend import Backend
from reconciler.engines.commit import cleanup, locations
from reconciler.engines.schedule import attempt, processes
from reconciler.errors import BlockedError
from reconciler.plan.execution import (
    UNKNOWN_OUTCOME,
    Event,
    ExecutionRequest,
    Intent,
    Ledger,
    Outcome,
    Used,
)
from reconciler.rewrite.decoded import DecodedSizes

OnEvent = Callable[[Event], None]


class Reading:
    """How many bytes a run may read, and will have read. They are reserved before they are read, so
    that a run that is killed has read no more. May be used by several threads.

    reserve: as of `ExecutionRequest`.
    """

    def __init__(self, reserve: Callable[[Used, int], str] | None = None) -> None:
        self._limit: int | None = None
        self._reserve, self._used = reserve, Used()
        self._foreseen, self._lock = 0, threading.Lock()
        self.later = 0
        """Bytes that are reserved for the executors that have not begun."""

    def foresee(self, used: Used, wanted: int) -> str:
        """Count what an attempt reads as read, if nothing is read twice; return why the budgets do
        not cover it, "" if they do. used: by recorded outcomes."""
        with self._lock:
            self._used, self._foreseen = used, used.read_bytes + wanted
            return self._covered(self._foreseen)

    def limit(self, size: int | None) -> None:
        """size: bytes that the budgets leave for the whole run; None without a limit."""
        with self._lock:
            self._limit = size

    def affords(self, size: int) -> bool:
        """Whether the budgets cover reading so many bytes once more.

        If so, the bytes are reserved and count as read. Of CPU time a byte takes what was
        predicted, or what earlier attempts measured if that is more.
        """
        with self._lock:
            if self._covered(self._foreseen + size):
                return False
            self._foreseen += size
            return True

    def _covered(self, size: int) -> str:
        if self._limit is not None and size > self._limit:
            return "too little was left when the run began"
        return self._reserve(self._used, size + self.later) if self._reserve is not None else ""


class Run:
    """The state of one plan's run."""

    roots: list[str]
    """Locations below which the table's files lie."""
    metadata_directory: str
    """Directory of the table's metadata files."""
    writer: str
    """Names this process and the one that sends commits, for records."""
    attempts: list[str]
    """Ids of its attempts."""
    outcomes: list[Outcome]
    """Outcomes that are certain."""
    own: set[int]
    """Snapshots that it committed."""
    own_since_read: set[int]
    """Those of them that are newer than the snapshot that the attempt reads."""
    committed: set[str]
    """Paths of the content files that its commits added."""
    done_ids: set[str]
    """Ids of the actions that its commits carry."""
    waiting: list[int]
    """Snapshots that it left on a branch for approval."""
    held: set[str]
    """Paths of the inputs of these."""
    in_doubt: bool
    """Whether a batch was sent whose outcome is not recorded."""
    decoded: DecodedSizes
    """Memory of the inputs, by their footers."""
    conflicts: int
    """Number of conflicts with other writers."""
    stopped: bool
    """Whether somebody asked it to stop."""
    lease_lost: Callable[[], str]
    """Returns why the lease was lost, "" while it is held."""
    reading: Reading
    """What the budgets leave for files that are read once more."""

    def __init__(
        self,
        request: ExecutionRequest,
        backend: Backend,
        ledger: Ledger,
        on_event: OnEvent,
        should_stop: Callable[[], bool],
    ) -> None:
        self.request, self.backend, self.ledger = request, backend, ledger
        self.on_event, self.should_stop = on_event, should_stop
        self.shown = ".".join((request.catalog.name, *request.table))
        self.table = backend.load(request.catalog, request.table)
        self.roots = locations.roots(self.table.location(), self.table.properties())
        self.metadata_directory = self.table.metadata_directory()
        self.writer = processes.own_identity(backend.process_id())
        self.attempts = []
        self.outcomes = []
        self.own = set()
        self.own_since_read = set()
        self.committed = set()
        self.done_ids = set()
        self.waiting = []
        self.held = set()
        self.in_doubt = False
        self.decoded = DecodedSizes()
        self.conflicts = 0
        self.stopped = False
        self.lease_lost = lambda: ""
        self.reading = Reading(request.reserve)

    def attempt_id(self) -> str:
        return attempt.new_id(self.request.plan_id, self.table)

    def used(self) -> Used:
        """Return what the recorded outcomes have measured."""
        return Used(
            sum(outcome.read_bytes for outcome in self.outcomes),
            sum(outcome.cpu_seconds for outcome in self.outcomes),
        )

    def begin_attempt(self) -> str:
        """Return the id of a new attempt on the table as last refreshed."""
        self.attempts.append(self.attempt_id())
        self.own_since_read = set()
        return self.attempts[-1]

    def require_lease(self) -> None:
        if self.lease_lost():
            raise BlockedError(
                self.lease_lost(),
                details=("Uncommitted work was dropped.",),
                do="see who else works on the table, then run the command again",
            )

    def unclaimed(
        self, files: Mapping[str, int], commits: Collection[str] = ()
    ) -> tuple[dict[str, int], str]:
        """Return what `cleanup.unclaimed` does, for files of this table."""
        request, roots = self.request, self.roots
        return cleanup.unclaimed(
            request.catalog, request.table, request.table_uuid, roots, files, commits
        )

    def stopping(self) -> bool:
        self.require_lease()
        if self.should_stop() and not self.stopped:
            self.stopped = True
            self.say("stopped", "stopping: dropping what is not committed")
        return self.stopped

    def intent(
        self,
        attempt_id: str,
        batch: int,
        actions: tuple[str, ...],
        base_snapshot_id: int,
        prefix: str = "",
        inputs: tuple[str, ...] = (),
    ) -> Intent:
        """Return the record of a batch without new files that is about to be sent, or of an attempt
        (batch 0)."""
        return Intent(
            self.request.table_uuid, self.request.table, self.request.plan_id, attempt_id, batch,
            actions, base_snapshot_id, prefix, inputs, (), self.writer,
        )  # fmt: skip

    def record(self, intent: Intent, outcomes: tuple[Outcome, ...]) -> None:
        self.ledger.record_outcomes(intent, outcomes)
        if outcomes[0].state != UNKNOWN_OUTCOME:
            self.in_doubt = False
            self.outcomes.extend(outcomes)

    def say(self, phase: str, text: str, action_id: str = "") -> None:
        self.on_event(Event(phase, text, action_id))
