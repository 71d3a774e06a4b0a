"""The operator's process: wires lease, watches, queue, probes and reconciles, and ends cleanly.

Only the leader reconciles; a second instance keeps its index warm and waits. What is lost here (an
event, a process) costs time, never correctness: see docs/design/operator.md.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from reconciler.catalog import bounds
from reconciler.catalog.calls import allowed
from reconciler.errors import ReconcilerError
from reconciler.kube.api import Api
from reconciler.kube.errors import Forbidden
from reconciler.kube.kinds import POLICY, TABLE_LAYOUT, Kind
from reconciler.kube.leader import LeaderLease
from reconciler.operator import logs
from reconciler.operator.index import Index
from reconciler.operator.process import probes
from reconciler.operator.process.events import Events, SecretFiles
from reconciler.operator.process.metrics import Metrics
from reconciler.operator.process.notices import Notices
from reconciler.operator.process.queue import DueQueue
from reconciler.operator.process.relist import Relist
from reconciler.operator.process.watch import WATCHED, Watch
from reconciler.operator.process.watched_namespaces import WatchedNamespaces
from reconciler.operator.runtime import Build, Runtime
from reconciler.operator.settings import OperatorSettings
from reconciler.operator.work import Key, Reconcilers, Result, Work

log = logging.getLogger(__name__)

DRAIN_SECONDS = 45.0
"""Seconds for reconciles to end after SIGTERM; the pod's grace period is 60."""
STUCK_SECONDS = 120.0
"""A loop that has not run for this time is stuck, and the process must be restarted."""
MOST_THREADS = 4096
"""The queue decides how many reconciles run; this only has to be larger."""
FIRST_RETRY, LAST_RETRY = 1.0, 30.0


def run(settings: OperatorSettings, build: Build, stop: threading.Event | None = None) -> bool:
    """Run until SIGTERM, SIGINT or `stop`. Return whether everything that ran had ended by then."""
    metrics = Metrics()
    api = Api.from_environment(settings.kubeconfig or None)
    api.observer = metrics.called
    parts = _wire(settings, api, metrics, stop or threading.Event())
    pages = _pages(parts)
    try:
        with bounds.limited(settings.answer_limit):
            return asyncio.run(_serve(parts, build))
    finally:
        for page in pages:
            page.stop()


@dataclass(slots=True)
class _Parts:
    """The parts of the operator's process."""

    settings: OperatorSettings
    """The operator's settings."""
    api: Api
    """The Kubernetes API."""
    metrics: Metrics
    """The exported metrics."""
    index: Index
    """The objects as the watches know them."""
    queue: DueQueue
    """Decides which reconcile runs when."""
    lease: LeaderLease
    """The Lease of the leader."""
    watch: Watch
    """The watches of all kinds."""
    relist: Relist
    """Lists all objects again from time to time."""
    watched: WatchedNamespaces
    """The watched namespaces."""
    stop: threading.Event
    """Set when the process has to end."""
    events: Events | None
    """Takes events of catalogs; None if it has no port."""
    filled: threading.Event = field(default_factory=threading.Event)
    """Set once the index has every object."""
    stale: threading.Event = field(default_factory=threading.Event)
    """Set when a watch had to start again, so that events may be missing."""
    listed: set[Kind] = field(default_factory=set)
    """Kinds that the watches listed again: earlier deletions must still be found."""
    counts: dict[str, int] = field(default_factory=dict)
    """Number of objects of each kind when the index was first filled."""


def _wire(settings: OperatorSettings, api: Api, metrics: Metrics, stop: threading.Event) -> _Parts:
    own = settings.namespace or api.namespace
    scopes = None if settings.cluster_wide else (settings.namespaces or (own,))
    index, filled, stale = Index(), threading.Event(), threading.Event()
    listed: set[Kind] = set()
    lease = LeaderLease(api, own, settings.lease, settings.holder)

    def leads() -> bool:
        return filled.is_set() and lease.held()

    queue = DueQueue(
        settings.workers,
        _limits(settings),
        active=leads,
        reporter=lambda key, result, seconds: metrics.reconciled(key.kind, result.failed, seconds),
        lane_of=lambda key: _catalog_of(index, key),
        free=(Work.CATALOG,),
    )

    def restarted() -> None:
        stale.set()
        metrics.watch_restarted()

    watched = WatchedNamespaces(scopes)
    watch = Watch(api.connection, index, queue.add, scopes, restarted, listed.add, watched.doubt)
    relist = Relist(api, index, queue.add, watched, Notices(api, index, own, settings.lease).broken)
    metrics.show(index, queue.waiting, per_table=settings.per_table_metrics)
    metrics.show_namespaces(watched)
    events = None
    if settings.events_port:
        files = SecretFiles(settings.events_token_file, settings.events_key_file)
        events = Events(index, queue.add, leads, files.read, metrics.event)
    return _Parts(
        settings, api, metrics, index, queue, lease, watch, relist, watched, stop, events, filled,
        stale, listed,
    )  # fmt: skip


def _catalog_of(index: Index, key: Key) -> str:
    """The catalog that a reconcile waits for, "" for the launcher, which asks many."""
    kinds = {Work.POLICY: POLICY, Work.LAYOUT: TABLE_LAYOUT}
    if key.kind not in kinds:
        return ""
    return index.catalog_of(kinds[key.kind], key.namespace, key.name)


def _limits(settings: OperatorSettings) -> dict[Work, int]:
    """Return the limits per kind: layouts observe and plan, which is slow, so two workers are kept
    free. Catalogs have no limit: each waits for its own listing only."""
    spare = max(1, settings.workers - 2)
    return {
        Work.LAYOUT: min(settings.layout_workers, spare),
        Work.POLICY: spare,
        Work.LAUNCH: 1,
    }


async def _serve(parts: _Parts, build: Build) -> bool:
    _on_signals(parts.stop)
    executor = ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="reconcile")
    chores = ThreadPoolExecutor(1, thread_name_prefix="chores")
    loop = asyncio.get_running_loop()
    parts.lease.start()
    await _fill(parts, chores)
    parts.counts = {kind.kind: parts.index.counts()[kind.kind] for kind in WATCHED}
    parts.watch.start()
    reconcilers = build(_runtime(parts))
    reconcile = _dispatch(reconcilers, parts.settings.catalog_deadline, parts.watched)
    running = asyncio.create_task(parts.queue.run(reconcile, executor))
    log.info("the operator watches %s objects", sum(parts.index.counts().values()))
    done: set[asyncio.Task[None]] = set()
    try:
        await _tend(parts, chores)
        parts.queue.stop()
        done, _ = await asyncio.wait({running}, timeout=DRAIN_SECONDS)
    finally:
        parts.queue.stop()
        await loop.run_in_executor(chores, parts.watch.stop)
        # Another instance takes over when nothing of this one runs any more: after a reconcile that
        # did not end, only when the Lease has expired.
        await loop.run_in_executor(chores, partial(parts.lease.stop, release=bool(done)))
        chores.shutdown(wait=False)
        executor.shutdown(wait=False, cancel_futures=True)
    log.info("the operator ended%s", "" if done else ", a reconcile did not")
    return bool(done)


def _on_signals(stop: threading.Event) -> None:
    if threading.current_thread() is threading.main_thread():
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)


async def _fill(parts: _Parts, chores: ThreadPoolExecutor) -> None:
    """Repeat until it succeeds: the server may be down, the CRDs or rights may come later."""
    pause = FIRST_RETRY
    while not parts.stop.is_set():
        if await _chore(parts.relist.fill, chores) and await _chore(
            parts.relist.check_secrets, chores
        ):
            parts.filled.set()
            return
        await _sleep(parts.stop, pause)
        pause = min(pause * 2, LAST_RETRY)


async def _tend(parts: _Parts, chores: ThreadPoolExecutor) -> None:
    """Every second check leadership; at intervals run the re-list and check the Secrets. Until
    `stop`."""
    led = False
    pause = FIRST_RETRY
    relisted = looked = again = time.monotonic()
    while not parts.stop.is_set():
        held, now = parts.lease.held(), time.monotonic()
        parts.metrics.leads(held)
        stale = parts.stale.is_set() and now >= again
        if held and (not led or stale or now - relisted > parts.settings.relist):
            parts.stale.clear()
            relisted = now
            if await _chore(parts.relist.repair, chores):
                parts.relist.enqueue_all(parts.settings.relist / 2)
                pause = FIRST_RETRY
            else:
                parts.stale.set()
                again = time.monotonic() + pause
                pause = min(pause * 2, LAST_RETRY)
        elif held:
            await _repair_listed(parts, chores)
        await _chore(parts.relist.ask, chores)
        if held and parts.events is not None:
            await _chore(parts.events.deliver, chores)
        if held and now - looked > parts.settings.secret_interval:
            looked = now
            await _chore(parts.relist.check_secrets, chores)
        led = held
        await _sleep(parts.stop, 1.0)


async def _repair_listed(parts: _Parts, chores: ThreadPoolExecutor) -> None:
    """Find what the watches' new listings cannot show; the watches' thread may be adding kinds."""
    kinds: set[Kind] = set()
    while parts.listed:
        kinds.add(parts.listed.pop())
    if kinds and not await _chore(partial(parts.relist.repair, kinds), chores):
        parts.listed.update(kinds)


async def _chore(call: Callable[[], Any], chores: ThreadPoolExecutor) -> bool:
    """Return whether it succeeded; a failure is logged and retried in the caller's next round."""
    try:
        await asyncio.get_running_loop().run_in_executor(chores, call)
    except ReconcilerError as error:
        log.warning("%s", " ".join(error.render().split()))
        return False
    return True


async def _sleep(stop: threading.Event, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not stop.is_set() and time.monotonic() < deadline:
        await asyncio.sleep(0.1)


def _runtime(parts: _Parts) -> Runtime:
    return Runtime(
        api=parts.api,
        index=parts.index,
        settings=parts.settings,
        metrics=parts.metrics,
        enqueue=parts.queue.add,
        held=parts.lease.held,
        stopping=parts.stop.is_set,
    )


def _dispatch(
    reconcilers: Reconcilers, deadline: float, watched: WatchedNamespaces
) -> Callable[[Key], Result]:
    def reconcile(key: Key) -> Result:
        about = logs.about(kind=key.kind.value, namespace=key.namespace, name=key.name)
        with about, allowed(deadline):
            try:
                return reconcilers.of(key.kind)(key)
            except ReconcilerError as error:
                if isinstance(error, Forbidden):
                    watched.doubt(key.namespace)
                log.warning("%s", " ".join(error.render().split()))
            except Exception:
                log.exception("the reconcile failed")
            return Result(failed=True)

    return reconcile


def _pages(parts: _Parts) -> tuple[probes.Pages, ...]:
    def metrics() -> tuple[int, str, bytes]:
        return 200, "text/plain; version=0.0.4; charset=utf-8", parts.metrics.text()

    health = {
        "/healthz": probes.check(lambda: _stuck(parts)),
        "/readyz": probes.check(lambda: _unready(parts)),
    }
    found = [
        probes.Pages(parts.settings.health_port, health),
        probes.Pages(parts.settings.metrics_port, {"/metrics": metrics}),
    ]
    if parts.events is not None:
        posts = {"/events": parts.events.take}
        found.append(probes.Pages(parts.settings.events_port, {}, posts))
    return tuple(found)


def _stuck(parts: _Parts) -> list[str]:
    """Return the stuck parts, only those that a restart can repair: an unreachable API server is
    not one."""
    now = time.monotonic()
    if not parts.filled.is_set():
        return []
    beats = {
        "lease": parts.lease.beat,
        "queue": parts.queue.beat,
        "watch": parts.watch.beat,
    }
    found = [f"{name} is stuck" for name, beat in beats.items() if now - beat > STUCK_SECONDS]
    return [*found, *parts.queue.stuck()]


def _unready(parts: _Parts) -> list[str]:
    problems = [] if parts.filled.is_set() else ["objects have not been listed yet"]
    if parts.filled.is_set() and not parts.watch.running:
        problems.append("the watches are not running")
    elif parts.filled.is_set() and not parts.watch.caught_up(parts.counts):
        problems.append("the watches are still being opened")
    return problems
