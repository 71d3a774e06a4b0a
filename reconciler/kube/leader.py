"""Decides which of several operators works: the one that holds a Lease on the API server.

`held()` is pessimistic: true only while the last renewal that the server confirmed, counted from
when it was sent, is younger than two thirds of the duration. Another instance takes the Lease over
only after it has seen it unchanged for a whole duration by its own clock, so that no two clocks are
ever compared.
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from reconciler.kube.api import Api
from reconciler.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from reconciler.kube.kinds import LEASE

log = logging.getLogger(__name__)


class LeaderLease:
    """One instance's part in the election. `identity` must be unique among instances."""

    def __init__(
        self,
        api: Api,
        namespace: str,
        name: str,
        identity: str,
        duration: float = 15.0,
        renew_every: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._api = api
        self._namespace = namespace
        self._name = name
        self.identity = identity
        self._duration = duration
        self._renew_every = renew_every
        self._clock = clock
        self._lock = threading.Lock()
        self._confirmed: float | None = None
        self._mine: dict[str, Any] | None = None
        self._seen: tuple[Any, ...] = ()
        self._seen_at = clock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.beat = time.monotonic()
        """Time at which the last round began."""

    def start(self) -> None:
        """Start to acquire and renew the Lease, in a thread of its own."""
        self._thread = threading.Thread(target=self._run, name="leader-lease", daemon=True)
        self._thread.start()

    def stop(self, release: bool = True) -> None:
        """Give up the lead. release: let another instance take over at once, not only when the
        Lease has expired."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=self._duration)
        led = self._confirmed is not None
        with self._lock:
            self._confirmed = None
        if led and release:
            self._release()

    def held(self) -> bool:
        """Whether this instance certainly leads now."""
        with self._lock:
            confirmed = self._confirmed
        return confirmed is not None and self._clock() - confirmed < self._duration * 2 / 3

    def attempt(self) -> bool:
        """Run one round: acquire or renew. Return whether the server confirmed it."""
        sent = self._clock()
        try:
            confirmed = self._acquire(sent)
        except (Conflict, AlreadyExists, NotFound):
            # Somebody wrote since we read it: the next round shows whether the lead is lost.
            confirmed = False
        except ApiError as error:
            log.warning("the Lease %s could not be renewed: %s", self._name, error.what)
            return False
        with self._lock:
            self._confirmed = sent if confirmed else None
        return confirmed

    def _run(self) -> None:
        led = False
        while not self._stop.is_set():
            self.beat = time.monotonic()
            self.attempt()
            if self.held() != led:
                led = not led
                log.info("%s leads: %s", self.identity, "yes" if led else "no")
            self._stop.wait(self._renew_every)

    def _acquire(self, now: float) -> bool:
        mine, self._mine = self._mine, None
        if mine is not None:
            # No read is needed first: if somebody wrote since our last renewal, this is refused.
            self._take(mine)
            return True
        try:
            lease = self._api.get(LEASE, self._namespace, self._name)
        except NotFound:
            body = {"metadata": {"name": self._name}, "spec": self._spec(transitions=0)}
            self._mine = self._api.create(LEASE, self._namespace, body)
            return True
        if not self._free(lease, now):
            return False
        self._take(lease)
        return True

    def _free(self, lease: dict[str, Any], now: float) -> bool:
        """Whether the Lease is ours, released, or unchanged for a whole duration of our own
        clock."""
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        record = (holder, spec.get("renewTime"), lease["metadata"]["resourceVersion"])
        if record != self._seen:
            self._seen, self._seen_at = record, now
        return holder in ("", self.identity) or now - self._seen_at >= _duration(spec, self)

    def _take(self, lease: dict[str, Any]) -> None:
        spec = lease.get("spec") or {}
        ours = spec.get("holderIdentity") == self.identity
        transitions = int(spec.get("leaseTransitions") or 0) + (not ours)
        lease["spec"] = self._spec(transitions, spec.get("acquireTime") if ours else None)
        self._mine = self._api.replace(LEASE, self._namespace, lease)

    def _spec(self, transitions: int, acquired: str | None = None) -> dict[str, Any]:
        now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": max(1, round(self._duration)),
            "acquireTime": acquired or now,
            "renewTime": now,
            "leaseTransitions": transitions,
        }

    def _release(self) -> None:
        try:
            lease = self._api.get(LEASE, self._namespace, self._name)
            if (lease.get("spec") or {}).get("holderIdentity") == self.identity:
                lease["spec"]["holderIdentity"] = ""
                self._api.replace(LEASE, self._namespace, lease)
        except ApiError as error:
            log.info("the Lease %s was not released: %s", self._name, error.what)


def _duration(spec: dict[str, Any], lease: LeaderLease) -> float:
    """Return the holder's duration; for an invalid record our own."""
    promised = spec.get("leaseDurationSeconds")
    return float(promised) if isinstance(promised, int) and promised > 0 else lease._duration
