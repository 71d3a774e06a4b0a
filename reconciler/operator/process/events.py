"""Takes events of catalogs: each makes one table due, and can do nothing else.

A request is answered at once. Names wait in a bounded set, which the process's regular round turns
into due keys. A table is due by events at most once in `due.LEAST_INTERVAL`; what comes earlier is
due then. Whether anything is done to it is decided as always.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path

from reconciler.errors import UserError
from reconciler.kube.kinds import TABLE_LAYOUT
from reconciler.operator.cloud_events import Refused, Secrets, key_of, proved, told
from reconciler.operator.due import LEAST_INTERVAL
from reconciler.operator.index import Index, table_names
from reconciler.operator.work import Key, Work

RATE, BURST = 20.0, 200.0
"""Requests in a second that are looked at, and how many at once after a quiet time."""
MOST_WAITING = 10_000
"""Names that wait for the next round."""
MOST_KNOWN = 20_000
"""Ids of events that are remembered, so that a repetition does nothing."""
MOST_SECRET = 4096
"""Bytes of a file with a secret that are read."""
NAMES_SECONDS = 10.0
"""Seconds for which the names of all tables are kept."""
Enqueue = Callable[[Key, float | None], None]


class SecretFiles:
    """Files of the token and the key, which are read for each request: they may be replaced."""

    def __init__(self, token: str, key: str) -> None:
        """Paths, "" for none. Raises UserError if neither has a secret."""
        self._token, self._key = token, key
        read = self.read()
        if not (read.token or key_of(read.key)):
            raise UserError(
                "events are taken on a port, but there is neither a token nor a key for them",
                details=(f"token: {token or 'not set'}", f"key: {key or 'not set'}"),
                do="name a file with a secret by LAYOUTCTL_OPERATOR_EVENTS_TOKEN_FILE or "
                "_EVENTS_KEY_FILE, or leave the port out",
            )

    def read(self) -> Secrets:
        return Secrets(_secret(self._token), _secret(self._key))


def _secret(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(MOST_SECRET).strip() if path else b""
    except OSError:
        return b""


class Events:
    """Thread-safe. counted: called with a word for what became of each event."""

    def __init__(
        self,
        index: Index,
        enqueue: Enqueue,
        leads: Callable[[], bool],
        secrets: Callable[[], Secrets],
        counted: Callable[[str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._index, self._enqueue, self._leads = index, enqueue, leads
        self._secrets, self._counted, self._clock = secrets, counted, clock
        self._lock = threading.Lock()
        self._left, self._filled = BURST, clock()
        self._waiting: dict[str, None] = {}
        self._known: OrderedDict[bytes, None] = OrderedDict()
        self._asked: dict[Key, float] = {}
        self._names: tuple[float, dict[str, list[Key]]] = (float("-inf"), {})

    def take(self, headers: Mapping[str, str], body: bytes) -> int:
        """Return the status of the answer to a request. headers: by lower-case name."""
        try:
            return self._taken(headers, body)
        except Refused as refused:
            self._counted(refused.why)
            return refused.status

    def _taken(self, headers: Mapping[str, str], body: bytes) -> int:
        now = self._clock()
        signed = proved(headers, body, self._secrets(), now)  # strangers use up nobody's rate
        with self._lock:
            self._left = min(BURST, self._left + RATE * max(0.0, now - self._filled))
            self._filled = now
            if self._left < 1:
                raise Refused(429, "limited")
            self._left -= 1
        found = told(headers, body, signed=signed)  # what is above the rate is not even parsed
        if not self._leads():
            raise Refused(503, "not_leading")  # the sender tries again, and finds the other one
        with self._lock:
            for event in found:
                if event.id in self._known:
                    self._counted("duplicate")
                    continue
                if len(self._waiting) >= MOST_WAITING and event.table not in self._waiting:
                    raise Refused(503, "full")
                self._waiting[event.table] = None
                self._known[event.id] = None
                if len(self._known) > MOST_KNOWN:
                    self._known.popitem(last=False)
                self._counted("taken")
        return 202

    def deliver(self) -> None:
        """Make the tables due that events have named since the last call."""
        with self._lock:
            names, self._waiting = list(self._waiting), {}
        if not names:
            return
        now = self._clock()
        keys = self._keys(now)
        self._asked = {key: at for key, at in self._asked.items() if at > now - LEAST_INTERVAL}
        for name in names:
            if name not in keys:
                self._counted("unknown_table")
            for key in keys.get(name, ()):
                at = max(now, self._asked.get(key, float("-inf")) + LEAST_INTERVAL)
                if self._asked.get(key, float("-inf")) <= now:
                    self._asked[key] = at
                    self._enqueue(key, at if at > now else None)

    def _keys(self, now: float) -> dict[str, list[Key]]:
        """Return the keys of the tables by their names, with and without that of the catalog."""
        made, found = self._names
        if now - made >= NAMES_SECONDS:
            found = {}
            for namespace, name in self._index.names(TABLE_LAYOUT):
                body = self._index.layout(namespace, name)
                for text in table_names(body) if body else ():
                    found.setdefault(text, []).append(Key(Work.LAYOUT, namespace, name))
            self._names = now, found
        return found
