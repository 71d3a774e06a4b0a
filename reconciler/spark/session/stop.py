"""Turns SIGINT and SIGTERM into a function: `should_stop` returns True from the first signal on."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def stop_signals(on_first: Callable[[], None] = lambda: None) -> Iterator[Callable[[], bool]]:
    """Yield should_stop.

    The first signal requests a stop at the next commit boundary and calls `on_first`; a second
    SIGINT interrupts at once.
    """
    received: list[int] = []

    def handle(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        if len(received) == 1:
            on_first()
        elif number == signal.SIGINT:
            raise KeyboardInterrupt

    previous = {n: signal.signal(n, handle) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C interrupt while a person is asked: there is no commit boundary to wait for."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
