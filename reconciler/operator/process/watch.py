"""The watch layer: kopf delivers events, which fill the index and make keys due.

kopf decides nothing and writes nothing: only event handlers, no finalizer, no annotation, no
Kubernetes events, storages that store nothing. Its loop runs in a thread of its own and is
restarted when it gives up (rights revoked, credentials refused) and when the API server did not
name all our kinds; the re-list finds what it missed meanwhile (`relist`).
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from reconciler.api.conditions import ConditionType
from reconciler.api.version import GROUP
from reconciler.kube.kinds import CATALOG, JOB, POD, POLICY, TABLE_LAYOUT, Kind
from reconciler.kube.pods import LAYOUT_LABEL, ended
from reconciler.operator.conditions import condition_of
from reconciler.operator.index import REQUESTED_AT, Index, Object, policy_of
from reconciler.operator.process.listing import Pace, paced
from reconciler.operator.work import GATHER_SECONDS, LAUNCH_KEY, Key, Trigger, Work, spread

if TYPE_CHECKING:
    from kopf._cogs.structs.references import Insights

    from reconciler.kube.connection import Connection

log = logging.getLogger(__name__)

WATCHED = (CATALOG, POLICY, TABLE_LAYOUT, JOB, POD)
KINDS = {kind.kind: kind for kind in WATCHED}
LABELLED = (JOB, POD)
"""Kinds of which only objects with a layout's label are listed and watched."""

SERVER_SECONDS = 300
WORKERS = 64
LISTING_SECONDS = 60.0
PULSE_SECONDS = 0.5
LOGIN_SECONDS = 5.0
"""Seconds between two logins of the watches, and between two attempts at one."""
RESTART_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0)

Enqueue = Callable[[Key, float | None], None]


def triggers(
    kind: Kind, before: Object | None, now: Object | None, index: Index
) -> Iterator[Trigger]:
    """Yield the keys that a change makes due. before: None for a new object; now: None for a
    deleted one.

    A change of our own status does not make a key of that object due, or it would never rest.
    """
    body = now or before
    if body is None:
        return
    namespace, name = body["metadata"].get("namespace", ""), body["metadata"]["name"]
    if kind == POLICY and _asked(before, now):
        yield Key(Work.POLICY, namespace, name), 0.0
        if now is None or _requested(before) != _requested(now):
            yield from spread(Work.LAYOUT, index.layouts_of_policy(namespace, name))
    elif kind == TABLE_LAYOUT:
        yield from _layout(before, now, body)
    elif kind == CATALOG:
        yield from _catalog(before, now, body, index)
    elif kind in LABELLED and _moved(kind, before, now):
        layout = (body["metadata"].get("labels") or {}).get(LAYOUT_LABEL)
        if layout:
            yield Key(Work.LAYOUT, namespace, layout), 0.0
            if kind == JOB:
                yield LAUNCH_KEY, 0.0


def _layout(before: Object | None, now: Object | None, body: Object) -> Iterator[Trigger]:
    namespace, name = body["metadata"].get("namespace", ""), body["metadata"]["name"]
    if _asked(before, now):
        yield Key(Work.LAYOUT, namespace, name), 0.0
    changed = now is None or before is None or _of_policy(before) != _of_policy(now)
    policy = policy_of(body)
    if changed and policy:
        yield Key(Work.POLICY, namespace, policy), GATHER_SECONDS


def _of_policy(layout: Object) -> tuple[Any, ...]:
    """Return what a policy summarises, and what it writes and so restores after an edit by
    others."""
    spec = layout["spec"]
    owners = layout["metadata"].get("ownerReferences")
    return layout["status"], spec.get("policyRef"), spec.get("layoutHash"), owners


def _catalog(
    before: Object | None, now: Object | None, body: Object, index: Index
) -> Iterator[Trigger]:
    namespace, name = body["metadata"].get("namespace", ""), body["metadata"]["name"]
    asked = _asked(before, now)
    if asked:
        yield Key(Work.CATALOG, namespace, name), 0.0
    if asked or _ready(before) != _ready(now):
        yield from dependents(namespace, name, index)


def dependents(namespace: str, catalog: str, index: Index) -> Iterator[Trigger]:
    """Yield all keys that a change of a catalog, or of its Secret, affects."""
    yield from spread(Work.POLICY, index.policies_of_catalog(namespace, catalog))
    yield from spread(Work.LAYOUT, index.layouts_of_catalog(namespace, catalog))


def _asked(before: Object | None, now: Object | None) -> bool:
    """Whether it is new, deleted, being deleted, of a new generation, or requested by a person."""
    if before is None or now is None:
        return True
    old, new = before["metadata"], now["metadata"]
    return (
        old.get("uid") != new.get("uid")
        or old.get("generation") != new.get("generation")
        or old.get("deletionTimestamp") != new.get("deletionTimestamp")
        or _requested(before) != _requested(now)
    )


def _requested(body: Object | None) -> str | None:
    return None if body is None else (body["metadata"].get("annotations") or {}).get(REQUESTED_AT)


def _ready(catalog: Object | None) -> str | None:
    status = None if catalog is None else catalog["status"]
    return condition_of(status, ConditionType.READY).get("status")


def _moved(kind: Kind, before: Object | None, now: Object | None) -> bool:
    """Whether the change matters: any status of a job; of a pod only the begin of its end and the
    end.

    Executor pods come and go by the dozen.
    """
    if before is None or now is None:
        return kind == JOB or now is None or ended(now)
    if before["metadata"].get("deletionTimestamp") != now["metadata"].get("deletionTimestamp"):
        return True
    if kind == JOB:
        return bool(before["status"] != now["status"])
    return ended(now) and not ended(before)


class Watch:
    """Runs kopf in a thread until `stop`. namespaces: None for every namespace."""

    def __init__(
        self,
        connection: Connection,
        index: Index,
        enqueue: Enqueue,
        namespaces: Sequence[str] | None,
        restarted: Callable[[], None],
        listed: Callable[[Kind], None],
        refused: Callable[[str], None] = lambda namespace: None,
    ):
        """restarted: called if kopf started again. listed: earlier deletions may have been
        missed. refused: called with a namespace whose objects may not be listed."""
        self._connection = connection
        self._index = index
        self._enqueue = enqueue
        self._namespaces = namespaces
        self._restarted = restarted
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self.beat = time.monotonic()
        """When kopf's loop last ran."""
        self.running = False
        self._logins, self._logged_in = 0, float("-inf")
        self._listed = listed
        self._pace = Pace(self._through, refused)
        self._started = time.monotonic()

    def start(self) -> None:
        self._started = time.monotonic()
        self._thread.start()

    def caught_up(self, known: Mapping[str, int]) -> bool:
        """Whether kopf has finished its own first listing: until then changes wait behind it.

        known: objects by kind before it began; some may be gone, so waiting is limited.
        """
        if time.monotonic() - self._started > LISTING_SECONDS:
            return True
        return all(self._pace.handled[kind] >= count for kind, count in known.items())

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=15)

    def observe(self, kind: Kind, event: str | None, body: Mapping[str, Any]) -> None:
        """Handle one event: put it into the index, and the keys that it makes due into the
        queue."""
        if event is None:
            self._pace.handled[kind.kind] += 1
        if event == "DELETED":
            before = self._index.remove(kind, body)
            self._due(kind, before, None)
        else:
            change = self._index.put(kind, body)
            if change is not None:
                self._due(kind, *change)

    def _through(self, name: str) -> None:
        kind = KINDS.get(name)
        if kind is not None:
            self._listed(kind)

    def _due(self, kind: Kind, before: Object | None, now: Object | None) -> None:
        for key, delay in triggers(kind, before, now, self._index):
            self._enqueue(key, time.time() + delay if delay else None)

    def _run(self) -> None:
        failures = 0
        while not self._stop.is_set():
            started = time.monotonic()
            try:
                asyncio.run(self._kopf())
            except Exception as error:
                log.warning("the watches ended: %s: %s", type(error).__name__, error)
            self.running = False
            if self._stop.is_set():
                return
            failures = 1 if time.monotonic() - started > 60 else failures + 1
            pause = RESTART_SECONDS[min(failures, len(RESTART_SECONDS)) - 1]
            deadline = time.monotonic() + pause
            while time.monotonic() < deadline and not self._stop.wait(0.5):
                self.beat = time.monotonic()
            self._restarted()

    async def _kopf(self) -> None:
        import kopf
        from kopf._cogs.structs.references import Insights

        # Not `self._stop`: kopf waits for that in a thread of the loop's own, which the end of the
        # loop joins, so that nobody would notice kopf's end before the operator stops.
        stop, found = asyncio.Event(), Insights()
        pulse = asyncio.create_task(self._pulse(stop, found))
        try:
            with paced(self._pace):
                await kopf.operator(
                    registry=self._registry(),
                    settings=_settings(),
                    insights=found,
                    standalone=True,
                    clusterwide=self._namespaces is None,
                    namespaces=self._namespaces or (),
                    stop_flag=stop,
                )
        finally:
            pulse.cancel()

    async def _pulse(self, stop: asyncio.Event, found: Insights) -> None:
        self.running = True
        while True:
            self.beat = time.monotonic()
            missing = _unserved(found)
            if missing and not stop.is_set():
                log.warning("the API server does not serve %s yet", ", ".join(missing))
            if missing or self._stop.is_set():
                stop.set()
            await asyncio.sleep(PULSE_SECONDS)

    def _registry(self) -> Any:
        import kopf

        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry, backoff=LOGIN_SECONDS)(self._login)
        for kind in WATCHED:
            kopf.on.event(kind.group, kind.version, kind.plural, registry=registry)(
                _handler(kind, self.observe)
            )
        return registry

    def _login(self, **_: Any) -> Any:
        """Return credentials; kopf calls it at the start and whenever the server refused the last
        ones.

        It returns only credentials that the server accepts, however long that takes: with refused
        ones kopf stops its watches and may then wait for one of them forever. The same token may be
        accepted later, so each answer has a priority of its own, or kopf would not try it.
        """
        import kopf

        early = self._logged_in + LOGIN_SECONDS - time.monotonic()
        if early > 0:  # accepted here and refused there: the servers disagree
            raise kopf.TemporaryError("the API server refuses the watches", delay=early)
        self._connection.renew(self._connection.generation)
        if not self._connection.accepted():
            self.running = False
            raise kopf.TemporaryError("the credentials are refused", delay=LOGIN_SECONDS)
        if not self.running:
            self.running = True
            self._restarted()
        self._logins += 1
        self._logged_in = time.monotonic()
        found = self._connection.credentials()
        parts = (found.pop("authorization") or "").split(" ", 1)
        scheme, token = parts if len(parts) == 2 else (None, None)
        return kopf.ConnectionInfo(**found, scheme=scheme, token=token, priority=self._logins)


def _unserved(found: Insights) -> list[str]:
    """Return the kinds that the API server did not name when kopf asked which ones there are.

    kopf asks once, at its start, and never watches what is missing then. A server that has just
    started answers before it knows all its kinds.
    """
    if not found.ready_resources.is_set():
        return []
    served = {(each.group, each.version, each.plural) for each in found.watched_resources}
    asked = {(kind.group, kind.version, kind.plural): kind for kind in WATCHED}
    return sorted(kind.plural for key, kind in asked.items() if key not in served)


def _handler(kind: Kind, observe: Callable[[Kind, str | None, Mapping[str, Any]], None]) -> Any:
    async def on_event(event: Mapping[str, Any], **_: Any) -> None:
        observe(kind, event["type"], event["object"])

    on_event.__name__ = f"on_{kind.plural}"
    return on_event


def _settings() -> Any:
    """Return settings with which kopf writes nothing, keeps little, and limits every call's
    time."""
    import kopf

    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.persistence.finalizer = f"{GROUP}/unused"
    settings.persistence.progress_storage, settings.persistence.diffbase_storage = _no_storages()
    settings.process.ultimate_exiting_timeout = None
    settings.watching.server_timeout = SERVER_SECONDS
    settings.watching.client_timeout = SERVER_SECONDS + 30
    settings.watching.connect_timeout = 5
    settings.watching.chunk_size = 500
    settings.watching.reconnect_backoff = 1.0
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 5
    settings.queueing.worker_limit = WORKERS
    settings.queueing.idle_timeout = 0.05
    for kind in LABELLED:
        settings.watching.label_selectors[kind.group, kind.version, kind.plural] = LAYOUT_LABEL
    return settings


def _no_storages() -> tuple[Any, Any]:
    """Return storages without annotations, because kopf would compare each object with its own
    ones."""
    import kopf

    class NoProgress(kopf.ProgressStorage):
        def fetch(self, **_: Any) -> None:
            return None

        def store(self, **_: Any) -> None:
            return None

        def purge(self, **_: Any) -> None:
            return None

        def touch(self, **_: Any) -> None:
            return None

        def clear(self, *, essence: Any) -> Any:
            return essence

    class NoDiffBase(kopf.DiffBaseStorage):
        def build(self, **_: Any) -> Any:
            return {}

        def fetch(self, **_: Any) -> None:
            return None

        def store(self, **_: Any) -> None:
            return None

    return NoProgress(), NoDiffBase()
