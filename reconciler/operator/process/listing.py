"""Slows kopf's listings down to the speed of their handling, and reports when they end.

kopf lists in chunks, but queues listed objects faster than it handles them: after a restart with
ten thousand tables most of them were in its queues at once, each with its managed fields. kopf has
no setting for that. Here each chunk is passed on when the one before it was handled. And kopf ends
all watches when one namespace refuses one of them: here only that one waits. That replaces two
functions inside kopf, so kopf's version is pinned, and a test names what is relied on.

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
FIRST_REFUSED_SECONDS, LAST_REFUSED_SECONDS = 5.0, 60.0
"""Seconds between two questions to a namespace that refuses its lists."""
PATIENCE_SECONDS = 2.0
"""After this time without progress more are listed in any case: an event may replace a listed
object."""


class Pace:
    """Counts, by kind, listed and handled objects. Used in one event loop.

    through: called with the kind when a listing ends; from then on the watch misses nothing.
    refused: called with a namespace that the server does not let us list or watch.
    """

    def __init__(
        self, through: Callable[[str], None], refused: Callable[[str], None] = lambda name: None
    ) -> None:
        self.through, self.refused = through, refused
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
    from kopf._cogs.clients import errors, fetching, watching

    listing: Any = fetching.fetch_objs
    watch: Any = watching.watch_objs
    if not hasattr(listing, "paced"):
        fetching.fetch_objs = _listing(listing, errors.APIForbiddenError)
    if not hasattr(watch, "paced"):
        watching.watch_objs = _watching(watch, errors.APIForbiddenError)


def _listing(listing: Any, forbidden: type[Exception]) -> Any:
    """Return kopf's listing with our pace. A namespace that is refused is asked again and again:
    to kopf it would be the end of all watches."""

    async def fetch_objs(*, resource: Any, **more: Any) -> AsyncIterator[tuple[Any, str]]:
        pace, namespace = _PACE.get(), more.get("namespace")
        pause = FIRST_REFUSED_SECONDS
        while True:
            try:
                async for chunk, version in listing(resource=resource, **more):
                    if pace is not None:
                        for item in chunk:
                            item["metadata"].pop("managedFields", None)
                    yield chunk, version
                    if pace is not None:
                        await pace.listed_more(resource.kind, len(chunk))
                break
            except forbidden:
                if pace is None or namespace is None:
                    raise
            pace.refused(namespace)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LAST_REFUSED_SECONDS)
        if pace is not None:
            pace.through(resource.kind)

    fetch_objs.paced = True  # type: ignore[attr-defined]
    return fetch_objs


def _watching(watch: Any, forbidden: type[Exception]) -> Any:
    """Return kopf's watch, which lists again after a refusal instead of ending everything."""

    async def watch_objs(**asked: Any) -> AsyncIterator[Any]:
        pace, namespace = _PACE.get(), asked.get("namespace")
        try:
            async for event in watch(**asked):
                yield event
        except forbidden:
            if pace is None or namespace is None:
                raise
            pace.refused(namespace)
            yield {"type": "ERROR", "object": {"code": 410}}

    watch_objs.paced = True  # type: ignore[attr-defined]
    return watch_objs
