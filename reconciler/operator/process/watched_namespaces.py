"""Which watched namespaces can be read: each alone, so that a broken one stops no other.

A namespace whose RoleBinding its owner deleted, or that was deleted itself, refuses the operator's
lists. It is set aside: its objects leave the index, nothing of it is reconciled, and it is asked
again with growing pauses. A metric, an event beside the Lease, the log, and Ready of its policies,
if they can still be written, name it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

log = logging.getLogger(__name__)

FIRST_PAUSE = 15.0
LAST_PAUSE = 300.0
DOUBT_SECONDS = 20.0
"""Least seconds between two questions about a namespace that is served: a refusal of one request,
which its owner may cause at will, is mostly one of that request alone."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A namespace that cannot be read."""

    why: str
    """The API server's refusal."""
    again: float
    """When it is asked again, by the monotonic clock."""
    pause: float
    """Seconds between the last two questions."""


@dataclass
class WatchedNamespaces:
    """The watched namespaces. Thread-safe."""

    namespaces: Sequence[str] | None
    """None for every namespace of the cluster: then none is set aside."""
    clock: Callable[[], float] = time.monotonic
    """Returns monotonic seconds."""
    _broken: dict[str, Broken] = field(default_factory=dict)
    """The namespaces that are set aside."""
    _doubted: set[str] = field(default_factory=set)
    """Namespaces in which something was refused, to be asked soon."""
    _asked: dict[str, float] = field(default_factory=dict)
    """When each namespace was last asked, in monotonic seconds."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    """Guards the other fields."""

    def scopes(self) -> tuple[str | None, ...]:
        """Return the namespaces to list that are not set aside; (None,) for all at once."""
        if self.namespaces is None:
            return (None,)
        with self._lock:
            return tuple(name for name in self.namespaces if name not in self._broken)

    def doubt(self, namespace: str) -> None:
        """Note that something in the namespace was refused: it is asked soon whether it can be
        read."""
        if self.namespaces is not None and namespace in self.namespaces:
            with self._lock:
                self._doubted.add(namespace)

    def to_ask(self) -> list[str]:
        """Return the namespaces that are to be asked now, each once."""
        now = self.clock()
        with self._lock:
            found = {
                name for name in self._doubted - self._broken.keys()
                if now - self._asked.get(name, -DOUBT_SECONDS) >= DOUBT_SECONDS
            }  # fmt: skip
            self._asked |= dict.fromkeys(found, now)
            self._doubted -= found
            found |= {name for name, known in self._broken.items() if known.again <= now}
        return sorted(found)

    def broke(self, namespace: str, why: str) -> bool:
        """Set the namespace aside; return whether it was not before."""
        with self._lock:
            known = self._broken.get(namespace)
            pause = FIRST_PAUSE if known is None else min(known.pause * 2, LAST_PAUSE)
            self._broken[namespace] = Broken(why, self.clock() + pause, pause)
        if known is None:
            log.warning("namespace %s is set aside: %s", namespace, why)
        return known is None

    def mended(self, namespace: str) -> bool:
        """Serve the namespace again; return whether it was set aside."""
        with self._lock:
            known = self._broken.pop(namespace, None)
        if known is not None:
            log.info("namespace %s can be read again", namespace)
        return known is not None

    def broken(self) -> Mapping[str, str]:
        """Return why each namespace that is set aside cannot be read."""
        with self._lock:
            return {name: known.why for name, known in self._broken.items()}

    def serves(self, namespace: str) -> bool:
        """Whether objects of the namespace are reconciled."""
        with self._lock:
            return namespace not in self._broken
