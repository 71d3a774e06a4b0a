"""The safety net for the watches: compares the index with the server, and makes every key due.

At the start it fills the index, so that no reconcile runs on an incomplete one. Later it repairs
what the watches missed while they were disconnected (above all deletions).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable

from reconciler.kube.api import Api
from reconciler.kube.errors import Forbidden, NotFound
from reconciler.kube.kinds import CATALOG, POLICY, SECRET, TABLE_LAYOUT, Kind
from reconciler.kube.pods import LAYOUT_LABEL
from reconciler.operator.index import Index, ObjectName
from reconciler.operator.process.watch import LABELLED, WATCHED, Enqueue, dependents, triggers
from reconciler.operator.process.watched_namespaces import WatchedNamespaces
from reconciler.operator.work import LAUNCH_KEY, SPREAD_PER_KEY, Key, Work

WORK_OF = {CATALOG: Work.CATALOG, POLICY: Work.POLICY, TABLE_LAYOUT: Work.LAYOUT}
"""What reconciles the objects of a kind."""


class Relist:
    """Compares the index with the server. All calls are for worker threads."""

    def __init__(
        self,
        api: Api,
        index: Index,
        enqueue: Enqueue,
        watched: WatchedNamespaces,
        refused: Callable[[str, str], None] = lambda namespace, why: None,
    ):
        """refused: is called with each namespace that is set aside, and why, while its objects are
        still in the index."""
        self._api = api
        self._index = index
        self._enqueue = enqueue
        self._watched = watched
        self._refused = refused

    def fill(self) -> None:
        """Read every object of every namespace that can be read into the index.

        Raises ApiError if the server does not answer, or if no namespace can be read: nothing may
        run before this succeeds.
        """
        refused = [error for scope in self._watched.scopes() if (error := self._filled(scope))]
        if refused and not self._watched.scopes():
            for namespace in self._watched.broken():
                self._watched.mended(namespace)
            raise refused[0]

    def ask(self) -> None:
        """Ask the namespaces that were doubted or set aside whether they can be read."""
        for namespace in self._watched.to_ask():
            if self._watched.serves(namespace):
                self._probe(namespace)
            elif self._filled(namespace) is None:
                self._watched.mended(namespace)
                self._enqueue_all(namespace)

    def _probe(self, namespace: str) -> None:
        """Set a namespace aside if one of its lists is refused; of each only a page is read."""
        try:
            for kind in WATCHED:
                next(self._api.each(kind, namespace, _labels(kind), metadata_only=True), None)
        except Forbidden as error:
            self._set_aside(namespace, error)

    def _filled(self, scope: str | None) -> Forbidden | None:
        """Read the objects of one namespace, or set it aside. None is every namespace."""
        try:
            for kind in WATCHED:
                for body in self._api.each(kind, scope, _labels(kind)):
                    self._index.put(kind, body)
        except Forbidden as error:
            if scope is None:
                raise
            self._set_aside(scope, error)
            return error
        return None

    def _set_aside(self, namespace: str, error: Forbidden) -> None:
        if not self._watched.broke(namespace, ". ".join((error.what, *error.details[:1]))):
            return
        self._refused(namespace, error.what)
        self._enqueue_all(namespace)  # what is known of its objects is forgotten
        for kind in WATCHED:
            for (where, name), (uid, _) in self._index.versions(kind).items():
                if where == namespace:
                    gone = {"metadata": {"namespace": where, "name": name, "uid": uid}}
                    self._index.remove(kind, gone)

    def _enqueue_all(self, namespace: str) -> None:
        for kind, work in WORK_OF.items():
            for where, name in self._index.names(kind):
                if where == namespace:
                    self._enqueue(Key(work, where, name), None)

    def repair(self, kinds: Iterable[Kind] = WATCHED) -> int:
        """Make the index equal to the server; return how many objects differed."""
        return sum(self._repair(kind) for kind in kinds)

    def _repair(self, kind: Kind) -> int:
        # The index is read first: what the watches add while we list is newer than the list, and
        # stays.
        return sum(self._repair_in(kind, scope) for scope in self._watched.scopes())

    def _repair_in(self, kind: Kind, scope: str | None) -> int:
        known = {
            name: version
            for name, version in self._index.versions(kind).items()
            if scope in (None, name[0])
        }
        try:
            listed = {
                (meta.get("namespace") or "", meta["name"]): (
                    meta.get("uid", ""),
                    meta.get("resourceVersion", ""),
                )
                for body in self._api.each(kind, scope, _labels(kind), metadata_only=True)
                for meta in [body["metadata"]]
            }
            wrong = [name for name in {*known, *listed} if known.get(name) != listed.get(name)]
            return sum(self._look(kind, namespace, name) for namespace, name in wrong)
        except Forbidden:
            if scope is None:
                raise
            self._watched.doubt(scope)
            return 0

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
        for kind, work in WORK_OF.items():
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
            except Forbidden:  # the catalog says so when it reads the Secret
                self._watched.doubt(namespace)
                continue
            if changed:
                self._secret_changed(namespace, name)

    def _secret_changed(self, namespace: str, secret: str) -> None:
        now = time.time()
        for catalog in self._index.catalogs_of_secret(namespace, secret):
            name = catalog["metadata"]["name"]
            self._enqueue(Key(Work.CATALOG, namespace, name), now)
            for key, delay in dependents(namespace, name, self._index):
                self._enqueue(key, now + delay)

    def _referenced(self) -> list[ObjectName]:
        found = set()
        for catalog in self._index.catalogs():
            reference = (catalog["spec"].get("secretRef") or {}).get("name")
            if isinstance(reference, str) and reference:
                found.add((catalog["metadata"].get("namespace", ""), reference))
        return sorted(found)


def _labels(kind: Kind) -> dict[str, str] | None:
    return {LAYOUT_LABEL: ""} if kind in LABELLED else None
