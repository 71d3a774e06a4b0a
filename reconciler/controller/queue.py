"""The queue of keys: when each is due, which may run now, and the loop that hands them to threads.

`Schedule` is the pure core: it never loses a key, never runs one twice at once or in a hot loop,
and a flood of one kind does not delay another. `DueQueue` adds a clock, an event loop and an
executor.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass

from reconciler.controller.work import Key, Result, Work

log = logging.getLogger(__name__)

MIN_INTERVAL = 1.0
"""A key starts no more often than this, however many events name it."""
BACKOFF_BASE = 1.0
BACKOFF_MAX = 900.0
IMPATIENCE = 10.0
"""An event may shorten a longer back-off to this: it may have repaired what failed."""
SWEEP_SECONDS = 60.0
MOST_URGENT = 8
"""Of this many runs of a kind in a row at least one is for a key that is not urgent."""


@dataclass(slots=True)
class _State:
    """State of one key.

    due: when it waits to run, None if it does not wait. asked: when the run was requested, for the
    age of the queue. floor: it does not start before. urgent: something changed, so it runs before
    keys that are only due.
    """

    due: float | None = None
    asked: float = 0.0
    floor: float = 0.0
    impatient_floor: float = 0.0
    failures: int = 0
    running: bool = False
    urgent: bool = False


class Schedule:
    """Times are seconds of one monotonic clock, given by the caller. Not thread-safe.

    limits: maximum keys of a kind that run at once; without an entry the kind has no limit of its
    own.
    """

    def __init__(self, limits: Mapping[Work, int] | None = None):
        self._limits = dict(limits or {})
        self._states: dict[Key, _State] = {}
        self._heaps: dict[tuple[Work, bool], list[tuple[float, int, Key]]] = {}
        self._in_a_row: dict[Work, int] = {}
        self._order = itertools.count()
        self._running: dict[Work, int] = {}
        self._served: dict[Work, int] = {}
        self._turn = itertools.count(1)

    def add(self, key: Key, due: float, now: float, *, urgent: bool = False) -> None:
        """Run the key at `due`, or earlier if it was already due earlier.

        A running key runs again afterwards. Back-off and rate limit still apply. urgent: before
        those that are not.
        """
        floor = self._state(key).impatient_floor
        self._want(key, max(due, floor), asked=max(due, now), urgent=urgent)

    def pop(self, now: float) -> Key | None:
        """Return a key to run now, of the kind that has waited longest for its turn; None if none
        may."""
        kinds = {kind for kind, _ in self._heaps}
        candidates = [kind for kind in kinds if self._has_room(kind) and self._due(kind, now)]
        if not candidates:
            return None
        kind = min(candidates, key=lambda kind: (self._served.get(kind, 0), kind))
        _, _, key = heapq.heappop(self._heaps[kind, self._choose(kind, now)])
        state = self._states[key]
        state.due, state.running, state.urgent = None, True, False
        state.floor = state.impatient_floor = now + MIN_INTERVAL
        self._running[kind] = self._running.get(kind, 0) + 1
        self._served[kind] = next(self._turn)
        return key

    def done(self, key: Key, now: float, *, failed: bool = False, due: float | None = None) -> None:
        """Record the end of the key's run. failed: run it again after a back-off. due: next regular
        run.

        A key that was added meanwhile waits already.
        """
        state = self._states[key]
        state.running = False
        self._running[key.kind] -= 1
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
            self._push(key, state.due)
        elif now >= state.floor:
            del self._states[key]

    def failures(self, key: Key) -> int:
        """Return the number of failed runs in a row."""
        state = self._states.get(key)
        return 0 if state is None else state.failures

    def wake_at(self, now: float) -> float | None:
        """Return when `pop` may next return a key, None: not before a call of `add` or `done`."""
        times = [
            heap[0][0]
            for kind, urgent in self._heaps
            if self._has_room(kind) and (heap := self._clean(kind, urgent))
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

    def running(self) -> dict[Work, int]:
        return {kind: count for kind, count in self._running.items() if count}

    def __len__(self) -> int:
        """Return the number of keys that wait or run."""
        return sum(state.running or state.due is not None for state in self._states.values())

    def sweep(self, now: float) -> None:
        """Forget keys whose rate limit has passed and that were not requested since."""
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
            self._push(key, due)

    def _push(self, key: Key, due: float) -> None:
        heap = self._heaps.setdefault((key.kind, self._states[key].urgent), [])
        heapq.heappush(heap, (due, next(self._order), key))

    def _has_room(self, kind: Work) -> bool:
        limit = self._limits.get(kind)
        return limit is None or self._running.get(kind, 0) < limit

    def _due(self, kind: Work, now: float) -> list[bool]:
        """Return the urgencies with a key to run now, urgent ones first."""
        return [
            urgent
            for urgent in (True, False)
            if (heap := self._clean(kind, urgent)) and heap[0][0] <= now
        ]

    def _choose(self, kind: Work, now: float) -> bool:
        """Return the urgency that is served next; some turns go to the others, so that none
        starves."""
        found = self._due(kind, now)
        patient = len(found) == 2 and self._in_a_row.get(kind, 0) >= MOST_URGENT - 1
        urgent = found[-1] if patient else found[0]
        self._in_a_row[kind] = self._in_a_row.get(kind, 0) + 1 if urgent else 0
        return urgent

    def _clean(self, kind: Work, urgent: bool) -> list[tuple[float, int, Key]]:
        """Return a heap with a valid entry on top: one whose key still waits for that time."""
        heap = self._heaps.get((kind, urgent), [])
        while heap:
            due, _, key = heap[0]
            state = self._states.get(key)
            live = state is not None and not state.running
            if live and state is not None and (state.due, state.urgent) == (due, urgent):
                break
            heapq.heappop(heap)
        return heap


class DueQueue:
    """A Schedule that runs. `add` is for any thread; `run` belongs to one event loop.

    workers: keys at once over all kinds. reporter: called with each run's key, result and seconds.
    active: called before each start; while it returns False, keys wait.
    """

    def __init__(
        self,
        workers: int,
        limits: Mapping[Work, int],
        *,
        active: Callable[[], bool] = lambda: True,
        reporter: Callable[[Key, Result, float], None] = lambda key, result, seconds: None,
    ):
        self._workers = workers
        self._schedule = Schedule(limits)
        self._active = active
        self._reporter = reporter
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False
        self.beat = time.monotonic()
        """When the loop last ran; it does so at least every second."""

    def add(self, key: Key, due: float | None = None) -> None:
        """Add a key. due: Unix time of its turn; None for now, before all that are only due."""
        now = time.monotonic()
        with self._lock:
            at = now if due is None else _monotonic(due, now)
            self._schedule.add(key, at, now, urgent=due is None)
            loop = self._loop
        self._notify(loop)

    def waiting(self) -> dict[Work, tuple[int, float]]:
        """Return, by kind, overdue keys, and the age in seconds of the oldest."""
        with self._lock:
            return self._schedule.waiting(time.monotonic())

    def running(self) -> dict[Work, int]:
        with self._lock:
            return self._schedule.running()

    async def run(self, reconcile: Callable[[Key], Result], executor: Executor) -> None:
        """Run until `stop`. Then wait for the running keys."""
        with self._lock:
            self._loop = asyncio.get_running_loop()
        swept = time.monotonic()
        while not self._stopping:
            self._wake.clear()
            self._start_due(reconcile, executor)
            self.beat = now = time.monotonic()
            if now - swept > SWEEP_SECONDS:
                swept = now
                with self._lock:
                    self._schedule.sweep(now)
            try:
                await asyncio.wait_for(self._wake.wait(), timeout=self._pause(now))
            except TimeoutError:
                continue
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def stop(self) -> None:
        """Start nothing more. May be called from any thread."""
        self._stopping = True
        with self._lock:
            loop = self._loop
        self._notify(loop)

    def _notify(self, loop: asyncio.AbstractEventLoop | None) -> None:
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._wake.set)

    def _pause(self, now: float) -> float:
        if len(self._tasks) >= self._workers or not self._active():
            return 1.0
        with self._lock:
            wake = self._schedule.wake_at(now)
        return 1.0 if wake is None else max(0.0, min(wake - now, 1.0))

    def _start_due(self, reconcile: Callable[[Key], Result], executor: Executor) -> None:
        while len(self._tasks) < self._workers and not self._stopping and self._active():
            with self._lock:
                key = self._schedule.pop(time.monotonic())
            if key is None:
                return
            task = asyncio.create_task(self._work(key, reconcile, executor))
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._wake.set()

    async def _work(self, key: Key, reconcile: Callable[[Key], Result], executor: Executor) -> None:
        started = time.monotonic()
        result = Result(failed=True)
        try:
            loop = asyncio.get_running_loop()
            result = await loop.run_in_executor(executor, _contained, reconcile, key)
        except Exception:
            log.exception("the reconcile of %s %s/%s failed", *key)
        finally:
            now = time.monotonic()
            due = None if result.due is None else _monotonic(result.due, now)
            with self._lock:
                self._schedule.done(key, now, failed=result.failed, due=due)
            self._reporter(key, result, now - started)


def _contained(reconcile: Callable[[Key], Result], key: Key) -> Result:
    """Return the result of one reconcile, in a worker thread: nothing that it raises ends the
    process.

    SystemExit and the panics of native code are not an Exception and would end the event loop. A
    user's Ctrl-C never arrives here: Python raises it in the main thread.
    """
    try:
        return reconcile(key)
    except BaseException:
        log.exception("the reconcile of %s %s/%s failed", *key)
        return Result(failed=True)


def _monotonic(due: float, now: float) -> float:
    """Return a Unix time on the monotonic clock, which does not jump when the wall clock is set."""
    return now + (due - time.time())
