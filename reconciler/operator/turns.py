"""Turns at work that uses memory and CPU, which nobody keeps by waiting for a silent server."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class Turns:
    """So many at once. Who takes longer than `patience` seconds goes on and makes room for another:
    it most likely waits for a network that does not answer."""

    def __init__(self, limit: int, patience: float):
        self._free = threading.Semaphore(limit)
        self._patience = patience

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        self._free.acquire()
        given_back = threading.Lock()

        def give_back() -> None:
            if given_back.acquire(blocking=False):
                self._free.release()

        timer = threading.Timer(self._patience, give_back)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            give_back()
