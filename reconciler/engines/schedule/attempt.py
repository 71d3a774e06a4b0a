"""One attempt to carry out actions: the head that it reads, and the directory that it writes to."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from reconciler.engines.backend import Backend
from reconciler.engines.table import Table
from reconciler.rewrite.decoded import DecodedSizes
from reconciler.rewrite.storage import Opening

RENEWED_SECONDS = 300.0
"""Age from which how files are opened is asked for again: credentials of a catalog expire."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Attempt:
    """Values that all parts of an attempt share."""

    backend: Backend
    """What does the work."""
    id: str
    """Names the attempt in summaries and paths."""
    name: str
    """The table's name, for messages."""
    table: Table
    """The table as of the snapshot that is read."""
    snapshot_id: int
    """The snapshot that is read."""
    sequence_number: int
    """Its sequence number."""
    prefix: str
    """Directory of everything that the attempt writes."""
    verify: str
    """The policy's mode of verification."""
    asked_opening: Callable[[], Opening]
    """Asks the catalog how files of another store are opened."""
    affords: Callable[[int], bool] = lambda _: True
    """Takes so many bytes of repeated reading from the budgets; false, without effect, if they do
    not cover it."""
    decoded: DecodedSizes = field(default_factory=DecodedSizes)
    """Memory of inputs, by their footers."""
    cancelled: threading.Event = field(default_factory=threading.Event)
    """Is set when what runs is not needed any more."""
    repeated: dict[str, int] = field(default_factory=dict)
    """Bytes of inputs that were read once more, by what the names of the group's work begin
    with."""
    sent: set[int] = field(default_factory=set)
    """Numbers of the batches that were recorded as about to be sent: an outcome has their cost."""
    _known: dict[str, Any] = field(default_factory=dict)
    """What `once` returned, by name."""
    _lock: threading.RLock = field(default_factory=threading.RLock)
    """Guards what groups ask for at the same time."""

    def once(self, name: str, make: Callable[[], T]) -> T:
        """Return what `make` returned when it was first asked for by this name: all groups of an
        attempt are of one snapshot of one table."""
        with self._lock:
            if name not in self._known:
                self._known[name] = make()
            return self._known[name]  # type: ignore[no-any-return]

    def repeats(self, base: str, size: int) -> bool:
        """Record that the group of this name reads its inputs once more; false if the budgets do
        not cover that. size: bytes of the inputs."""
        if not self.affords(size):
            return False
        with self._lock:
            self.repeated[base] = self.repeated.get(base, 0) + size
        return True

    def opening(self) -> Opening:
        """Return how files of another store are opened, which is asked for again in time."""
        with self._lock:
            now = time.monotonic()
            made, opening = self._known.get("opening", (-RENEWED_SECONDS, None))
            if opening is None or now - made >= RENEWED_SECONDS or opening.is_due():
                opening = self.asked_opening()
                self._known["opening"] = now, opening
            return opening  # type: ignore[no-any-return]


def new_id(plan_id: str, table: Table) -> str:
    """Return planId + attempt + read snapshot; the attempt is a time, so that no id is used
    twice."""
    return f"{plan_id}-{time.time_ns() // 1000:x}-{table.head() or 0}"
