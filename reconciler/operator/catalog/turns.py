"""A limit on concurrent work. Work that takes long (mostly a silent server) stops counting."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class Turns:
    """At most `limit` at once. Work that takes longer than `patience` seconds goes on and makes
    room for another: it most likely waits for a network that does not answer."""

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
