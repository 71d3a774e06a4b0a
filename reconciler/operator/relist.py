"""The safety net for the watches: compares the index with the server, and makes every key due.

At the start it fills the index, so that no reconcile runs on an incomplete one. Later it repairs
what the watches missed while they were disconnected (above all deletions).
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence

from reconciler.kube.api import CATALOG, POLICY, SECRET, TABLE_LAYOUT, Api, NotFound
from reconciler.kube.kinds import Kind
from reconciler.kube.pods import LAYOUT_LABEL
from reconciler.operator.index import Index
from reconciler.operator.watch import (
    LABELLED,
    SPREAD_PER_KEY,
    WATCHED,
    Enqueue,
    dependents,
    triggers,
)
from reconciler.operator.work import LAUNCH_KEY, Key, Work


class Relist:
    """namespaces: None for every namespace. All calls are for worker threads."""

    def __init__(self, api: Api, index: Index, enqueue: Enqueue, namespaces: Sequence[str] | None):
        self._api = api
        self._index = index
        self._enqueue = enqueue
        self._scopes: tuple[str | None, ...] = (None,) if namespaces is None else tuple(namespaces)

    def fill(self) -> None:
        """Read every object into the index. Raises ApiError: nothing may run before this
        succeeds."""
        for kind in WATCHED:
            for scope in self._scopes:
                for body in self._api.each(kind, scope, _labels(kind)):
                    self._index.put(kind, body)

    def repair(self, kinds: Iterable[Kind] = WATCHED) -> int:
        """Make the index equal to the server; return how many objects differed."""
        return sum(self._repair(kind) for kind in kinds)

    def _repair(self, kind: Kind) -> int:
        # The index is read first: what the watches add while we list is newer than the list, and
        # stays.
        known = self._index.versions(kind)
        listed = {
            (meta.get("namespace") or "", meta["name"]): (
                meta.get("uid", ""),
                meta.get("resourceVersion", ""),
            )
            for scope in self._scopes
            for body in self._api.each(kind, scope, _labels(kind), metadata_only=True)
            for meta in [body["metadata"]]
        }
        wrong = [name for name in {*known, *listed} if known.get(name) != listed.get(name)]
        return sum(self._look(kind, namespace, name) for namespace, name in wrong)

    def _look(self, kind: Kind, namespace: str, name: str) -> bool:
        """Read one object; return whether the index was wrong. The list may have been older."""
        try:
            change = self._index.put(kind, self._api.get(kind, namespace or None, name))
            if change is None:
                return False
            before, now = change
        except NotFound:
            uid, _ = self._index.versions(kind).get((namespace, name), ("", ""))
            gone = {"metadata": {"namespace": namespace, "name": name, "uid": uid}}
            before, now = self._index.remove(kind, gone), None
            if before is None:
                return False
        for key, delay in triggers(kind, before, now, self._index):
            self._enqueue(key, time.time() + delay if delay else None)
        return True

    def enqueue_all(self, within: float) -> None:
        """Make every key due, spread out at 50 per second and over at most `within` seconds.

        Keys of objects without a status for their spec are due at once.
        """
        now = time.time()
        for kind, work in (
            (CATALOG, Work.CATALOG),
            (POLICY, Work.POLICY),
            (TABLE_LAYOUT, Work.LAYOUT),
        ):
            names = self._index.names(kind)
            spread = min(within, len(names) * SPREAD_PER_KEY)
            unseen = self._index.unobserved(kind)
            for namespace, name in names:
                due = None if (namespace, name) in unseen else now + random.uniform(0, spread)
                self._enqueue(Key(work, namespace, name), due)
        self._enqueue(LAUNCH_KEY, now)

    def check_secrets(self) -> None:
        """Read the version of each Secret that a catalog refers to, never its content.

        It polls, because watching Secrets would need the right to read all of them.
        """
        for namespace, name in self._referenced():
            try:
                meta = self._api.get_metadata(SECRET, namespace, name)["metadata"]
                changed = self._index.put_secret(
                    namespace, name, f"{meta.get('uid')}/{meta.get('resourceVersion')}"
                )
            except NotFound:
                changed = self._index.remove_secret(namespace, name)
            if changed:
                self._secret_changed(namespace, name)

    def _secret_changed(self, namespace: str, secret: str) -> None:
        now = time.time()
        for catalog in self._index.catalogs_of_secret(namespace, secret):
            name = catalog["metadata"]["name"]
            self._enqueue(Key(Work.CATALOG, namespace, name), now)
            for key, delay in dependents(namespace, name, self._index):
                self._enqueue(key, now + delay)

    def _referenced(self) -> list[tuple[str, str]]:
        found = set()
        for catalog in self._index.catalogs():
            reference = (catalog["spec"].get("secretRef") or {}).get("name")
            if isinstance(reference, str) and reference:
                found.add((catalog["metadata"].get("namespace", ""), reference))
        return sorted(found)


def _labels(kind: Kind) -> dict[str, str] | None:
    return {LAYOUT_LABEL: ""} if kind in LABELLED else None
