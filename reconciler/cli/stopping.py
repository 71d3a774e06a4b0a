"""SIGINT and SIGTERM as a wish to stop at the next commit boundary; a second SIGINT insists."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def stop_at_boundary() -> Iterator[Callable[[], bool]]:
    """Yields should_stop(). The first signal sets it, a second one raises KeyboardInterrupt."""
    asked: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)
        sys.stderr.write("\nstopping at the next commit boundary; again to stop at once\n")

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
