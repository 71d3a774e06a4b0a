"""When each key is due, and which may run now. Pure: its clock is an argument.

It never loses a key, and never runs one twice at once or in a hot loop. A flood of one kind does
not delay another.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from reconciler.operator.work import Key, Work

MIN_INTERVAL = 1.0
"""A key starts no more often than this, however many events name it."""
BACKOFF_BASE = 1.0
BACKOFF_MAX = 900.0
IMPATIENCE = 10.0
"""An event may shorten a longer back-off to this: it may have repaired what failed."""
PATIENCE = 15.0
"""A run on one catalog that takes longer gives its place back: it waits for that catalog, and
others need not."""
SLOW_LIMIT = 2
"""Runs of a kind that a slow catalog has for itself, beside the places of all others."""
SLOW_SECONDS = 600.0
"""Seconds for which a catalog counts as slow after its last slow run."""
STUCK_SECONDS = 300.0
"""Keys that are due for so long while none of their kind starts: that is not one slow catalog."""
STUCK_RUN_SECONDS = 1800.0
"""The same for a run that belongs to no catalog."""
MOST_URGENT = 8
"""At least one of this many runs of a kind in a row is for a key that is not urgent."""

Line = tuple[Work, str]
"""A kind of work, and the catalog whose keys of that kind wait by themselves, "" for all others."""


@dataclass(slots=True)
class _State:
    """State of one key. Times are seconds of the schedule's clock."""

    due: float | None = None
    """When the key runs next; None if it does not wait."""
    asked: float = 0.0
    """When the run was requested, from which the age of the queue is measured."""
    floor: float = 0.0
    """The key does not start before this time, which a failure moves by its back-off."""
    impatient_floor: float = 0.0
    """An event may move the start forward to this time, and no further."""
    failures: int = 0
    """Number of failed runs in a row."""
    running: bool = False
    """Whether the key runs now."""
    urgent: bool = False
    """Whether something changed, so that it runs before keys that are only due."""
    line: Line = (Work.LAUNCH, "")
    """The line in which the key waits."""
    started: float = 0.0
    """When the present or the last run started."""

    def waits_as(self, due: float, urgent: bool, line: Line) -> bool:
        return not self.running and (self.due, self.urgent, self.line) == (due, urgent, line)


class Schedule:
    """Which key runs when. Times are seconds of one monotonic clock, given by the caller. Not
    thread-safe.

    A run that takes longer than its patience gives its slot back, and its catalog is slow from then
    on: its keys have a line of their own, with few slots that no other catalog shares.
    """

    def __init__(
        self,
        limits: Mapping[Work, int] | None = None,
        *,
        workers: int | None = None,
        lane_of: Callable[[Key], str] = lambda key: "",
        free: Collection[Work] = (),
        patience: float = PATIENCE,
    ):
        """limits: maximum keys of a kind that run at once; a kind without an entry has no limit of
        its own. workers: maximum keys that run at once over all kinds but the `free` ones. lane_of:
        returns the catalog that a key's run waits for, "" for none. patience: seconds."""
        self._limits = dict(limits or {})
        self._workers = workers
        self._lane_of = lane_of
        self._free = frozenset(free)
        self._patience = patience
        self._slow_until: dict[Line, float] = {}
        self._states: dict[Key, _State] = {}
        self._active: set[Key] = set()
        self._heaps: dict[tuple[Line, bool], list[tuple[float, int, Key]]] = {}
        self._in_a_row: dict[Line, int] = {}
        self._order = itertools.count()
        self._running: dict[Line, int] = {}
        self._served: dict[Line, int] = {}
        self._started: dict[Line, float] = {}
        self._turn = itertools.count(1)

    def add(self, key: Key, due: float, now: float, *, urgent: bool = False) -> None:
        """Run the key at `due`, or earlier if it was already due earlier.

        A running key runs again afterwards. Back-off and rate limit still apply. urgent: before
        those that are not.
        """
        floor = self._state(key).impatient_floor
        self._want(key, max(due, floor), asked=max(due, now), urgent=urgent)

    def pop(self, now: float) -> Key | None:
        """A key to run now, of the kind that has waited longest for its turn; None if none may."""
        lines = {line for line, _ in self._heaps}
        candidates = [line for line in lines if self._has_room(line) and self._due(line, now)]
        if not candidates:
            return None
        line = min(candidates, key=lambda line: (self._served.get(line, 0), line))
        _, _, key = heapq.heappop(self._heaps[line, self._choose(line, now)])
        state = self._states[key]
        state.due, state.running, state.urgent, state.started = None, True, False, now
        state.floor = state.impatient_floor = now + MIN_INTERVAL
        self._active.add(key)
        self._running[line] = self._running.get(line, 0) + 1
        self._served[line] = next(self._turn)
        self._started[line] = now
        return key

    def set_slow_aside(self, now: float) -> None:
        """Move runs that outlast the patience to the slow line: others get their slots."""
        for key in list(self._active):
            state = self._states[key]
            if key.kind in self._free or state.line[1] or now - state.started <= self._patience:
                continue
            slow = (key.kind, self._lane_of(key))
            if slow[1]:
                self._running[state.line] -= 1
                self._running[slow] = self._running.get(slow, 0) + 1
                state.line = slow
                self._mark_slow(slow, now)

    def _mark_slow(self, line: Line, now: float) -> None:
        """From now on its keys wait in a line of their own, those that wait already as well."""
        was = self._slow_until.get(line, 0.0) > now
        self._slow_until[line] = now + SLOW_SECONDS
        if was:
            return
        for key, state in self._states.items():
            if state.running or state.due is None or key.kind != line[0] or state.line == line:
                continue
            if self._lane_of(key) == line[1]:
                self._push(key, state.due, now)

    def stuck(self, now: float) -> list[str]:
        """What does not move as a whole: one slow catalog is not that."""
        waited: dict[Line, list[float]] = {}
        for state in self._states.values():
            if not state.running and state.due is not None and not state.line[1]:
                waited.setdefault(state.line, []).append(now - max(state.asked, state.due))
        found = []
        for line, ages in sorted(waited.items()):
            idle = now - self._started.get(line, now - max(ages))
            if min(max(ages), idle) > STUCK_SECONDS:
                found.append(f"{line[0].value} keys are due and none is started")
        for key in sorted(self._active):
            state = self._states[key]
            whole = not state.line[1] and key.kind not in self._free
            if whole and now - state.started > STUCK_RUN_SECONDS:
                found.append(f"a {key.kind.value} reconcile does not end")
        return found

    def done(self, key: Key, now: float, *, failed: bool = False, due: float | None = None) -> None:
        """Record the end of the key's run. failed: run it again after a back-off. due: next regular
        run.

        A key that was added meanwhile waits already.
        """
        state = self._states[key]
        state.running = False
        self._active.discard(key)
        self._running[state.line] -= 1
        if state.line[1] and now - state.started > self._patience:
            self._slow_until[state.line] = now + SLOW_SECONDS
        state.failures = state.failures + 1 if failed else 0
        if failed:
            wait = min(BACKOFF_BASE * 2 ** (state.failures - 1), BACKOFF_MAX)
            state.floor = max(state.floor, now + wait)
            state.impatient_floor = max(state.impatient_floor, now + min(wait, IMPATIENCE))
            self._want(key, state.floor, asked=now)
        elif due is not None:
            self._want(key, max(due, state.floor), asked=max(due, now))
        if state.due is not None:
            if failed:
                state.due = max(state.due, state.impatient_floor)
            self._push(key, state.due, now)
        elif now >= state.floor:
            del self._states[key]

    def wake_at(self, now: float) -> float | None:
        """Return when `pop` may next return a key, None: not before a call of `add` or `done`."""
        times = [
            heap[0][0]
            for line, urgent in self._heaps
            if self._has_room(line) and (heap := self._clean(line, urgent))
        ]
        return max(min(times), now) if times else None

    def waiting(self, now: float) -> dict[Work, tuple[int, float]]:
        """Return, by kind, how many keys are overdue, and for how long the oldest of them is."""
        found: dict[Work, tuple[int, float]] = {}
        for key, state in self._states.items():
            if state.due is not None and state.due <= now:
                count, age = found.get(key.kind, (0, 0.0))
                found[key.kind] = (count + 1, max(age, now - state.asked))
        return found

    def sweep(self, now: float) -> None:
        """Forget keys whose rate limit has passed and that nobody asked for since, and catalogs
        that are slow no more."""
        self._slow_until = {line: at for line, at in self._slow_until.items() if at > now}
        for line, urgent in [at for at, heap in self._heaps.items() if at[0][1] and not heap]:
            del self._heaps[line, urgent]
        for key in [
            key
            for key, state in self._states.items()
            if not state.running and state.due is None and state.floor <= now
        ]:
            del self._states[key]

    def _state(self, key: Key) -> _State:
        return self._states.setdefault(key, _State())

    def _want(self, key: Key, due: float, *, asked: float, urgent: bool = False) -> None:
        state = self._state(key)
        if state.due is not None:
            if state.due <= due and (state.urgent or not urgent):
                return
            urgent = urgent or state.urgent
            due = min(due, state.due)
        state.due, state.asked, state.urgent = due, asked, urgent
        if not state.running:
            self._push(key, due, asked)

    def _push(self, key: Key, due: float, now: float) -> None:
        state = self._states[key]
        state.line = self._line(key, now)
        heap = self._heaps.setdefault((state.line, state.urgent), [])
        heapq.heappush(heap, (due, next(self._order), key))

    def _line(self, key: Key, now: float) -> Line:
        """The line of all keys of its kind, or of its catalog if that is slow."""
        lane = self._lane_of(key) if self._slow_until else ""
        slow = (key.kind, lane)
        return slow if lane and self._slow_until.get(slow, 0.0) > now else (key.kind, "")

    def _has_room(self, line: Line) -> bool:
        kind, lane = line
        if lane:
            return self._running.get(line, 0) < SLOW_LIMIT
        limit = self._limits.get(kind)
        if limit is not None and self._running.get(line, 0) >= limit:
            return False
        return kind in self._free or self._workers is None or self._taken() < self._workers

    def _taken(self) -> int:
        """Runs that count against the workers."""
        return sum(
            count
            for (kind, lane), count in self._running.items()
            if not lane and kind not in self._free
        )

    def _due(self, line: Line, now: float) -> list[bool]:
        """Of which urgency there is a key to run now, urgent ones first."""
        return [
            urgent
            for urgent in (True, False)
            if (heap := self._clean(line, urgent)) and heap[0][0] <= now
        ]

    def _choose(self, line: Line, now: float) -> bool:
        """The urgency that is served next; some turns go to the others, or they would starve."""
        found = self._due(line, now)
        patient = len(found) == 2 and self._in_a_row.get(line, 0) >= MOST_URGENT - 1
        urgent = found[-1] if patient else found[0]
        self._in_a_row[line] = self._in_a_row.get(line, 0) + 1 if urgent else 0
        return urgent

    def _clean(self, line: Line, urgent: bool) -> list[tuple[float, int, Key]]:
        """A heap with a live entry on top: one whose key still waits for that time and here."""
        heap = self._heaps.get((line, urgent), [])
        while heap:
            due, _, key = heap[0]
            state = self._states.get(key)
            if state is not None and state.waits_as(due, urgent, line):
                break
            heapq.heappop(heap)
        return heap
