"""Decides which Kubernetes events to write: the first of a kind at once, repeats as a growing
count.

An unchanged (object, reason, message) is patched at most once a minute, so that a table that waits
for days costs few writes. Pure except for the clock; `Api.event` sends what this decides.
"""

from __future__ import annotations

import datetime as dt
import os
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.kube.kinds import OPERATOR_MANAGER

KEPT = 4096
SERIES_SECONDS = 3600.0
"""After this time a repeat is written as a new event (the server forgets events after an hour)."""
PATCH_SECONDS = 60.0

_Key = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class Write:
    """One request to the API server about an event."""

    key: _Key
    """UID of the object, type, reason and message: the same for repeats of an event."""
    namespace: str
    """Namespace of the event."""
    name: str
    """Name of the event."""
    body: dict[str, Any]
    """The event to create, or the fields to merge into it."""
    patch: bool
    """Whether `body` is merged into an existing event instead of creating one."""


@dataclass(slots=True)
class _Series:
    name: str
    count: int
    first: float
    written: float


class EventLog:
    """Remembers recently written events. Thread-safe, bounded."""

    def __init__(self, clock: Callable[[], float] = time.time):
        self._clock = clock
        self._lock = threading.Lock()
        self._known: OrderedDict[_Key, _Series] = OrderedDict()
        self._instance = os.environ.get("HOSTNAME") or "local"

    def record(
        self, regarding: Mapping[str, Any], reason: str, message: str, type_: str
    ) -> Write | None:
        """Return the write that this occurrence needs, None while a repeat is only counted."""
        meta = regarding["metadata"]
        key = (str(meta.get("uid")), type_, reason, message)
        now = self._clock()
        with self._lock:
            series = self._known.get(key)
            if series is None or now - series.first > SERIES_SECONDS:
                return self._news(key, regarding, now)
            series.count += 1
            if now - series.written < PATCH_SECONDS:
                return None
            series.written = now
            body = {"series": {"count": series.count, "lastObservedTime": _micro_time(now)}}
            return Write(key, meta["namespace"], series.name, body, patch=True)

    def forget(self, write: Write) -> None:
        """Forget a write that failed: the next occurrence is written as a new event."""
        with self._lock:
            self._known.pop(write.key, None)

    def _news(self, key: _Key, regarding: Mapping[str, Any], now: float) -> Write:
        meta = regarding["metadata"]
        _, type_, reason, message = key
        name = f"{meta['name'][:200].rstrip('.-')}.{uuid.uuid4().hex[:16]}"
        self._known[key] = _Series(name, 1, now, now)
        while len(self._known) > KEPT:
            self._known.popitem(last=False)
        body = {
            "metadata": {"name": name, "namespace": meta["namespace"]},
            "eventTime": _micro_time(now),
            "reportingController": OPERATOR_MANAGER,
            "reportingInstance": self._instance[:128],
            "action": "Reconcile",
            "reason": reason,
            "note": message[:1000],
            "type": type_,
            "regarding": {
                "apiVersion": regarding.get("apiVersion"),
                "kind": regarding.get("kind"),
                "name": meta["name"],
                "namespace": meta["namespace"],
                "uid": meta.get("uid"),
                "resourceVersion": meta.get("resourceVersion"),
            },
        }
        return Write(key, meta["namespace"], name, body, patch=False)


def _micro_time(now: float) -> str:
    return dt.datetime.fromtimestamp(now, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
