"""An API server in memory, as faithful as the controller's tests need.

Resource versions, generations, conflicts, status as a subresource, AlreadyExists, label selectors,
finalizers with deletion in two steps, uid preconditions, foreground deletion of a Job with pods.
`before` and `after` are called around each request: a test raises there to kill the caller between
any two calls, or to lose an answer.
"""

from __future__ import annotations

import datetime as dt
import itertools
import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from reconciler.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from reconciler.kube.kinds import JOB, OPERATOR_MANAGER, POD, Kind

Body = dict[str, Any]
Hook = Callable[[str, Kind, str], None]


def copied(body: Any) -> Any:
    """What the body is after a way over the network; a quarter of the time of copy.deepcopy."""
    return json.loads(json.dumps(body))


def nothing(verb: str, kind: Kind, name: str) -> None:
    """No failure injected."""


class FakeServer:
    """The stored objects; several `FakeApi` may talk to one."""

    def __init__(self, clock: Callable[[], dt.datetime]):
        self.clock = clock
        self.objects: dict[tuple[str, str, str], Body] = {}
        self.managed: dict[tuple[str, str, str], Body] = {}
        self._versions = itertools.count(1)
        self.created: list[tuple[str, str]] = []

    def now(self) -> str:
        return self.clock().strftime("%Y-%m-%dT%H:%M:%SZ")

    def bump(self, body: Body) -> Body:
        body["metadata"]["resourceVersion"] = str(next(self._versions))
        return body

    def put(self, kind: Kind, body: Body) -> Body:
        """Stores an object as a person or a controller would, without checks."""
        meta = body["metadata"]
        key = (kind.plural, meta["namespace"], meta["name"])
        old = self.objects.get(key)
        meta.setdefault("uid", f"uid-{next(self._versions)}")
        meta.setdefault("creationTimestamp", self.now())
        generation = (old or {}).get("metadata", {}).get("generation", 0)
        if old is None or old.get("spec") != body.get("spec"):
            generation += 1
        meta["generation"] = generation
        stored = copied({"apiVersion": kind.api_version, "kind": kind.kind, **body})
        self.objects[key] = self.bump(stored)
        if old is None:
            self.created.append((kind.kind, meta["name"]))
        return copied(self.objects[key])

    def all(self, kind: Kind) -> list[Body]:
        return copied(self.stored(kind))

    def stored(self, kind: Kind) -> list[Body]:
        """The objects of a kind themselves, in the order of their names."""
        return [body for key, body in sorted(self.objects.items()) if key[0] == kind.plural]

    def remove(self, kind: Kind, namespace: str, name: str) -> None:
        self.objects.pop((kind.plural, namespace, name), None)

    def collect(self, kind: Kind, namespace: str, name: str) -> None:
        """Garbage collection of an object that nothing holds, with what it owns."""
        body = self.objects.get((kind.plural, namespace, name))
        if body is None or body["metadata"].get("finalizers"):
            return
        self.remove(kind, namespace, name)
        uid = body["metadata"]["uid"]
        for other in list(self.objects.values()):
            owners = other["metadata"].get("ownerReferences") or ()
            if other["kind"] == "Job" and any(o.get("uid") == uid for o in owners):
                other["metadata"]["deletionTimestamp"] = self.now()
                self.bump(other)


class FakeApi:
    """One identity's way to the server, with the calls of `reconciler.kube.api.Api`."""

    def __init__(self, server: FakeServer, before: Hook = nothing, after: Hook = nothing):
        self.server = server
        self.before = before
        self.after = after
        self.counted: Counter[tuple[str, str]] = Counter()
        self.events: list[tuple[str, str]] = []

    def _request(self, verb: str, kind: Kind, name: str, work: Callable[[], Any]) -> Any:
        self.counted[verb, kind.plural] += 1
        self.before(verb, kind, name)
        answer = copied(work())
        self.after(verb, kind, name)
        return answer

    def _stored(self, kind: Kind, namespace: str, name: str) -> Body:
        found = self.server.objects.get((kind.plural, namespace, name))
        if found is None:
            raise NotFound(f"{kind.kind} {namespace}/{name}: not found")
        return found

    def get(self, kind: Kind, namespace: str, name: str) -> Body:
        return self._request("get", kind, name, lambda: self._stored(kind, namespace, name))

    def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        labels: Mapping[str, str] | None = None,
        limit: int = 500,
    ) -> list[Body]:
        def work() -> list[Body]:
            return [
                body
                for body in self.server.stored(kind)
                if namespace in (None, body["metadata"]["namespace"])
                and (labels or {}).items() <= (body["metadata"].get("labels") or {}).items()
            ]

        return self._request("list", kind, "", work)

    def create(self, kind: Kind, namespace: str, body: Mapping[str, Any]) -> Body:
        def work() -> Body:
            name = body["metadata"]["name"]
            if (kind.plural, namespace, name) in self.server.objects:
                raise AlreadyExists(f"{kind.kind} {namespace}/{name}: already exists")
            new = copied(dict(body))
            new["metadata"]["namespace"] = namespace
            return self.server.put(kind, new)

        return self._request("create", kind, body["metadata"]["name"], work)

    def replace(self, kind: Kind, namespace: str, body: Mapping[str, Any]) -> Body:
        def work() -> Body:
            stored = self._stored(kind, namespace, body["metadata"]["name"])
            if stored["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
                raise Conflict(f"{kind.kind} {body['metadata']['name']}: changed meanwhile")
            return self.server.put(kind, copied(dict(body)))

        return self._request("replace", kind, body["metadata"]["name"], work)

    def apply(
        self,
        kind: Kind,
        namespace: str,
        body: Mapping[str, Any],
    ) -> Body:
        """Fields that the operator gave before and gives no more go; others' stay."""

        def work() -> Body:
            name = body["metadata"]["name"]
            key = (kind.plural, namespace, name)
            old = copied(self.server.objects.get(key, {"metadata": {}}))
            before = self.server.managed.get(key, {})
            spec = dict(old.get("spec") or {})
            for field in before.get("spec", {}):
                spec.pop(field, None)
            spec.update(copied(body.get("spec") or {}))
            self.server.managed[key] = copied(dict(body))
            meta = {**old["metadata"], **copied(body["metadata"]), "namespace": namespace}
            if key in self.server.objects and spec == old.get("spec") and meta == old["metadata"]:
                return old
            return self.server.put(kind, {**old, "metadata": meta, "spec": spec})

        return self._request("apply", kind, body["metadata"]["name"], work)

    def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        body: Mapping[str, Any],
        manager: str = OPERATOR_MANAGER,
    ) -> Body:
        def work() -> Body:
            stored = self._stored(kind, namespace, name)
            wanted = body["metadata"].get("resourceVersion")
            if wanted not in (None, stored["metadata"]["resourceVersion"]):
                raise Conflict(f"{kind.kind} {name}: changed meanwhile")
            stored["metadata"]["finalizers"] = list(body["metadata"]["finalizers"])
            answer = copied(self.server.bump(stored))
            if stored["metadata"].get("deletionTimestamp"):
                self.server.collect(kind, namespace, name)
            return answer

        return self._request("patch", kind, name, work)

    def put_status(
        self, kind: Kind, namespace: str, name: str, status: Mapping[str, Any], version: str
    ) -> Body:
        def work() -> Body:
            stored = self._stored(kind, namespace, name)
            if stored["metadata"]["resourceVersion"] != version:
                raise Conflict(f"{kind.kind} {name}: changed meanwhile")
            stored["status"] = copied(dict(status))
            return self.server.bump(stored)

        return self._request("status", kind, name, work)

    def delete(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        *,
        uid: str | None = None,
        propagation: str = "Foreground",
        grace: int | None = None,
    ) -> Body:
        def work() -> Body:
            stored = self._stored(kind, namespace, name)
            if uid not in (None, stored["metadata"]["uid"]):
                raise Conflict(f"{kind.kind} {name}: another uid")
            lives = any(
                o.get("uid") == stored["metadata"]["uid"]
                for pod in self.server.stored(POD)
                for o in pod["metadata"].get("ownerReferences") or ()
            )
            if stored["metadata"].get("finalizers") or (kind == JOB and lives):
                stored["metadata"].setdefault("deletionTimestamp", self.server.now())
                return self.server.bump(stored)
            self.server.collect(kind, namespace, name)
            return stored

        return self._request("delete", kind, name, work)

    def event(
        self, regarding: Mapping[str, Any], reason: str, message: str, type: str = "Normal"
    ) -> None:
        self.events.append((reason, message))

    def refusing(self, error: type[ApiError], verb: str, kind: Kind) -> None:
        """From now on this request fails with that error."""
        known = self.before

        def before(asked: str, of: Kind, name: str) -> None:
            known(asked, of, name)
            if asked == verb and of == kind:
                raise error(f"{verb} {kind.plural} refused")

        self.before = before
