"""The queue of keys: hands those that are due to threads, by a clock and an event loop.

`schedule.Schedule` decides which may run.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor

from reconciler.operator.process.schedule import PATIENCE, Schedule
from reconciler.operator.work import Key, Result, Work

log = logging.getLogger(__name__)

SWEEP_SECONDS = 60.0


class DueQueue:
    """A Schedule that runs its keys. `add` is for any thread; `run` belongs to one event loop."""

    def __init__(
        self,
        workers: int,
        limits: Mapping[Work, int],
        *,
        active: Callable[[], bool] = lambda: True,
        reporter: Callable[[Key, Result, float], None] = lambda key, result, seconds: None,
        lane_of: Callable[[Key], str] = lambda key: "",
        free: Collection[Work] = (),
        patience: float = PATIENCE,
    ):
        """active: is asked before each start; while it returns False, keys wait. reporter: is
        called with each run's key, result and seconds. The others are those of Schedule."""
        self._schedule = Schedule(
            limits, workers=workers, lane_of=lane_of, free=free, patience=patience
        )
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

    def stuck(self) -> list[str]:
        """What does not move although it may."""
        if not self._active():
            return []
        with self._lock:
            return self._schedule.stuck(time.monotonic())

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
        if not self._active():
            return 1.0
        with self._lock:
            wake = self._schedule.wake_at(now)
        return 1.0 if wake is None else max(0.0, min(wake - now, 1.0))

    def _start_due(self, reconcile: Callable[[Key], Result], executor: Executor) -> None:
        with self._lock:
            self._schedule.set_slow_aside(time.monotonic())
        while not self._stopping and self._active():
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
