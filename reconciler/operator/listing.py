"""Slows kopf's listings down to the speed of their handling, and reports when they end.

kopf lists in chunks, but queues listed objects faster than it handles them: after a restart with
ten thousand tables most of them were in its queues at once, each with its managed fields. kopf has
no setting for that. Here each chunk is passed on when the one before it was handled. That replaces
one function inside kopf, so kopf's version is pinned, and a test names what is relied on.

A listing also means that kopf missed what happened before it: at the start, and silently in
between, when the server no longer has the version from which a watch would continue. A listing
shows what is new, never what was deleted.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

AHEAD = 500
"""Maximum objects of a kind that wait in kopf's queues before more of them are listed."""
PATIENCE_SECONDS = 2.0
"""After this time without progress more are listed in any case: an event may replace a listed
object."""


class Pace:
    """Counts, by kind, listed and handled objects. Used in one event loop.

    through: called with the kind when a listing ends; from then on the watch misses nothing.
    """

    def __init__(self, through: Callable[[str], None]) -> None:
        self.through = through
        self.listed: Counter[str] = Counter()
        self.handled: Counter[str] = Counter()

    async def listed_more(self, kind: str, count: int) -> None:
        """Return when few enough objects of the kind wait."""
        self.listed[kind] += count
        handled, since = self.handled[kind], time.monotonic()
        while self.listed[kind] - self.handled[kind] > AHEAD:
            if time.monotonic() - since > PATIENCE_SECONDS:
                self.listed[kind] = self.handled[kind]
                return
            await asyncio.sleep(0.02)
            if self.handled[kind] != handled:
                handled, since = self.handled[kind], time.monotonic()


_PACE: ContextVar[Pace | None] = ContextVar("pace", default=None)


@contextmanager
def paced(pace: Pace) -> Iterator[None]:
    """Apply the pace to kopf's tasks that are started inside."""
    _patch()
    token = _PACE.set(pace)
    try:
        yield
    finally:
        _PACE.reset(token)


def _patch() -> None:
    """Patch kopf once per process. Without a pace kopf lists as usual."""
    from kopf._cogs.clients import fetching

    listing: Any = fetching.fetch_objs
    if hasattr(listing, "paced"):
        return

    async def fetch_objs(*, resource: Any, **more: Any) -> AsyncIterator[tuple[Any, str]]:
        async for chunk, version in listing(resource=resource, **more):
            pace = _PACE.get()
            if pace is not None:
                for item in chunk:
                    item["metadata"].pop("managedFields", None)
            yield chunk, version
            if pace is not None:
                await pace.listed_more(resource.kind, len(chunk))
        if (pace := _PACE.get()) is not None:
            pace.through(resource.kind)

    fetch_objs.paced = True  # type: ignore[attr-defined]
    fetching.fetch_objs = fetch_objs
