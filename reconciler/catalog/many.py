"""Observes many tables at once: on an object store and behind a REST catalog a look is latency.

The looks come in the order of the names. Bounded are the looks at once, the looks that wait to be
taken, and the data files of the tables whose manifests are decoded at once.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog.load import list_tables
from reconciler.catalog.network import carried
from reconciler.catalog.observe import observe_loaded, observe_with
from reconciler.errors import ReconcilerError
from reconciler.table.observation import Observation

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

LOOKERS = 8
"""Tables looked at at once."""
AHEAD = 16
"""Looks that are begun before the first of them is taken."""
MOST_FILES = 1 << 20
"""Files of the tables that are decoded at once. A larger table is decoded alone."""

Name = tuple[str, ...]
Look = tuple[Name, Observation | ReconcilerError]
"""A table, and what was seen of it or why nothing was."""


def observe_many(
    catalog: Catalog,
    config: CatalogConfig,
    names: Sequence[Name],
    cache_dir: Path,
    *,
    timeout: float = 30.0,
) -> Iterator[Look]:
    """Yield a look at each table, in order, through one open connection.

    timeout: seconds for each answer of the catalog.
    """
    room = Room(MOST_FILES)

    def decoded(table: Table, name: Name) -> Observation:
        with room.of(files_of(table)):
            return observe_loaded(table, config.name, name, cache_dir)

    def look(name: Name) -> Observation | ReconcilerError:
        try:
            return observe_with(catalog, config, name, timeout, lambda table: decoded(table, name))
        except ReconcilerError as error:
            return error

    waiting: deque[tuple[Name, Future[Observation | ReconcilerError]]] = deque()
    pool = ThreadPoolExecutor(LOOKERS, "look")
    try:
        for name in names:
            waiting.append((name, pool.submit(carried(look), name)))
            if len(waiting) >= AHEAD:
                yield _taken(waiting)
        while waiting:
            yield _taken(waiting)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def tables_in(
    catalog: Catalog, config: CatalogConfig, namespaces: Sequence[Name], timeout: float
) -> list[Name]:
    """Return the identifiers of the tables that are directly in one of the namespaces."""

    def listed(namespace: Name) -> list[Name]:
        return list_tables(catalog, config, namespace, timeout)

    with ThreadPoolExecutor(LOOKERS, "list") as pool:
        return [name for found in pool.map(carried(listed), namespaces) for name in found]


def _taken(waiting: deque[tuple[Name, Future[Observation | ReconcilerError]]]) -> Look:
    name, future = waiting.popleft()
    return name, future.result()


def files_of(table: Table) -> int:
    """Return the number of data and delete files of the current snapshot by its summary; a count
    that it lacks is taken as MOST_FILES."""
    snapshot = table.current_snapshot()
    if snapshot is None:
        return 0
    stated = [_stated(snapshot.summary, f"total-{kind}-files") for kind in ("data", "delete")]
    return sum(stated)


def _stated(summary: Any, name: str) -> int:
    value = None if summary is None else summary[name]
    return int(value) if value is not None and value.isdecimal() else MOST_FILES


class Room:
    """Bounds a sum that several threads have a part of. most: the bound; a part above it waits
    until it is the only one."""

    def __init__(self, most: int):
        self._most = most
        self._held: list[int] = []
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def of(self, part: int) -> Iterator[None]:
        """Hold a part, once there is room for it."""
        with self._changed:
            self._changed.wait_for(lambda: not self._held or sum(self._held) + part <= self._most)
            self._held.append(part)
        try:
            yield
        finally:
            with self._changed:
                self._held.remove(part)
                self._changed.notify_all()
