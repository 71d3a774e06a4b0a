"""Holds a table's lease while work on the table runs, and renews it in a thread."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from reconciler.errors import BlockedError, ReconcilerError
from reconciler.plan.execution import Lease

RENEW_SECONDS = 20.0
LEASE_SECONDS = 60.0
"""Seconds until a lease expires that is not renewed (docs/design/definitions.md#lease)."""


@contextlib.contextmanager
def holding(lease: Lease, uuid: str, attempt_id: str) -> Iterator[Callable[[], str]]:
    """Hold the lease and renew it; yield a function that returns why it was lost, "" if it is
    held."""
    lease.acquire(uuid, attempt_id)
    lost: list[str] = []
    ended = threading.Event()

    def renew() -> None:
        renewed = time.monotonic()
        while not ended.wait(RENEW_SECONDS):
            try:
                lease.renew()
                renewed = time.monotonic()
            except BlockedError as error:
                lost.append(error.what)
                return
            except Exception as error:  # e.g. a locked state directory
                if time.monotonic() - renewed > LEASE_SECONDS:
                    why = error.what if isinstance(error, ReconcilerError) else repr(error)
                    lost.append(f"the lease could not be renewed: {why}")
                    return

    thread = threading.Thread(target=renew, name="lease", daemon=True)
    thread.start()
    try:
        yield lambda: lost[0] if lost else ""
    finally:
        ended.set()
        thread.join()
        if not lost:
            lease.release()
