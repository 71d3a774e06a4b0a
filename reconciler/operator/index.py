"""The cluster's objects in memory, trimmed: reconciles read them instead of calling the server.

Watches fill it from the event loop, reconciles read it from worker threads. Each object is kept as
compact JSON, a fifth of its size as dicts, and parsed at each read, so that a reader owns its copy.
Objects may be seconds old: whoever starts a job asks the server (docs/design/operator.md).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from reconciler.api.version import GROUP
from reconciler.kube.kinds import CATALOG, JOB, POD, POLICY, TABLE_LAYOUT, Kind
from reconciler.kube.pods import LAYOUT_LABEL
from reconciler.operator.job_record import OPEN, phase_of

Object = dict[str, Any]
ObjectName = tuple[str, str]
"""(namespace, name)."""

REQUESTED_AT = f"{GROUP}/requestedAt"
"""Annotation with which a person requests a reconcile now."""

_METADATA = (
    "name",
    "namespace",
    "uid",
    "generation",
    "resourceVersion",
    "deletionTimestamp",
    "creationTimestamp",
    "ownerReferences",
    "finalizers",
)


WITH_JOB: ObjectName = ("", "job/")
"""Group of the TableLayouts whose status.job is not settled; no namespace has this name."""

_POD_STATUS = ("phase", "reason", "message", "startTime", "containerStatuses")


class _Store:
    """Objects of one kind by name, and by group (a policy's catalog, a layout's policy)."""

    def __init__(self, kind: Kind):
        self.kind = kind
        self.raw: dict[ObjectName, bytes] = {}
        self.version: dict[ObjectName, tuple[str, str]] = {}
        self.groups: dict[ObjectName, dict[ObjectName, None]] = {}
        self.group_of: dict[ObjectName, tuple[ObjectName, ...]] = {}
        self.moved: dict[ObjectName, int] = {}
        """Name -> number of its last change, in that order, deleted ones too.

        Only for policies: names of jobs and pods are always new, and would accumulate.
        """
        self.mark = 0

    def put(
        self, name: ObjectName, version: tuple[str, str], raw: bytes, groups: tuple[ObjectName, ...]
    ) -> None:
        if self.group_of.get(name) != groups:
            self.remove(name)
            for group in groups:
                self.groups.setdefault(group, {})[name] = None
            self.group_of[name] = groups
        self.raw[name] = raw
        self.version[name] = version
        self._move(name)

    def remove(self, name: ObjectName) -> None:
        self._move(name)
        self.raw.pop(name, None)
        self.version.pop(name, None)
        for group in self.group_of.pop(name, ()):
            members = self.groups[group]
            del members[name]
            if not members:
                del self.groups[group]

    def since(self, mark: int) -> list[ObjectName]:
        found = []
        for name, number in reversed(self.moved.items()):
            if number <= mark:
                break
            found.append(name)
        return found

    def _move(self, name: ObjectName) -> None:
        if self.kind != POLICY:
            return
        self.mark += 1
        self.moved.pop(name, None)
        self.moved[name] = self.mark


class Index:
    """Thread-safe. Lists are ordered by namespace and name. Readers get copies of their own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stores = {kind: _Store(kind) for kind in (POLICY, TABLE_LAYOUT, CATALOG, JOB, POD)}
        self._secrets: dict[ObjectName, str] = {}

    # Reading

    def policy(self, namespace: str, name: str) -> Object | None:
        return self._one(POLICY, (namespace, name))

    def layout(self, namespace: str, name: str) -> Object | None:
        return self._one(TABLE_LAYOUT, (namespace, name))

    def catalog(self, namespace: str, name: str) -> Object | None:
        return self._one(CATALOG, (namespace, name))

    def catalog_of(self, kind: Kind, namespace: str, name: str) -> str:
        """NAMESPACE/NAME of the catalog that a policy or a TableLayout names, "" for none."""
        with self._lock:
            groups = self._stores[kind].group_of.get((namespace, name), ())
        prefix = "catalog/" if kind == TABLE_LAYOUT else ""
        named = [group for where, group in groups if where and group.startswith(prefix)]
        return f"{namespace}/{named[0].removeprefix(prefix)}" if named else ""

    def names(self, kind: Kind) -> list[ObjectName]:
        """Return every (namespace, name) of a kind, without parsing the objects."""
        with self._lock:
            return sorted(self._stores[kind].raw)

    def unobserved(self, kind: Kind) -> set[ObjectName]:
        """Return the objects whose status is not of their generation."""
        with self._lock:
            found = list(self._stores[kind].raw.items())
        return {name for name, raw in found if not _observed(json.loads(raw))}

    def versions(self, kind: Kind) -> dict[ObjectName, tuple[str, str]]:
        """Return (uid, resource version) of every object of a kind."""
        with self._lock:
            return dict(self._stores[kind].version)

    def changed_policies(self, mark: int) -> tuple[int, list[ObjectName]]:
        """Return (mark for the next call, policies created, changed or deleted since `mark`, 0:
        all)."""
        with self._lock:
            store = self._stores[POLICY]
            return store.mark, store.since(mark)

    def policies(self, namespace: str | None = None) -> list[Object]:
        return self._all(POLICY, namespace)

    def layouts(self, namespace: str | None = None) -> list[Object]:
        return self._all(TABLE_LAYOUT, namespace)

    def catalogs(self, namespace: str | None = None) -> list[Object]:
        return self._all(CATALOG, namespace)

    def policies_of_catalog(self, namespace: str, catalog: str) -> list[Object]:
        return self._group(POLICY, (namespace, catalog))

    def layouts_of_policy(self, namespace: str, policy: str) -> list[Object]:
        """Return the TableLayouts that belong to the policy (`policy_of`)."""
        return self._group(TABLE_LAYOUT, (namespace, f"policy/{policy}"))

    def layouts_of_catalog(self, namespace: str, catalog: str) -> list[Object]:
        return self._group(TABLE_LAYOUT, (namespace, f"catalog/{catalog}"))

    def layouts_with_job(self) -> list[Object]:
        """Return those whose status.job is not settled, of all namespaces: the holders of
        reservations."""
        return self._group(TABLE_LAYOUT, WITH_JOB)

    def catalogs_of_secret(self, namespace: str, secret: str) -> list[Object]:
        return self._group(CATALOG, (namespace, secret))

    def jobs(self, namespace: str, layout: str) -> list[Object]:
        """Return the jobs by label, as old as the watch: before a launch list them from the
        server."""
        return self._group(JOB, (namespace, layout))

    def pods(self, namespace: str, layout: str) -> list[Object]:
        return self._group(POD, (namespace, layout))

    def secret_version(self, namespace: str, name: str) -> str | None:
        """Return the Secret's resource version, None if there is none. Its data is never read
        here."""
        with self._lock:
            return self._secrets.get((namespace, name))

    def counts(self) -> dict[str, int]:
        """Return how many objects of each kind are known."""
        with self._lock:
            found = {kind.kind: len(store.raw) for kind, store in self._stores.items()}
            return {**found, "Secret": len(self._secrets)}

    # Writing

    def put(self, kind: Kind, body: Mapping[str, Any]) -> tuple[Object | None, Object] | None:
        """Store the present object; return (previous object, present object).

        None if this version, or a later one, is already stored. A writer stores the server's answer
        at once, and the watch may deliver older versions after that; those are ignored.
        """
        meta = body["metadata"]
        name, version = _name(body), (str(meta.get("uid")), str(meta.get("resourceVersion")))
        store = self._stores[kind]
        with self._lock:
            if not _newer(version, store.version.get(name)):
                return None
        now = trim(kind, body)
        raw, groups = json.dumps(now, separators=(",", ":")).encode(), tuple(_groups(kind, now))
        with self._lock:
            if not _newer(version, store.version.get(name)):
                return None
            before = store.raw.get(name)
            store.put(name, version, raw, groups)
        return None if before is None else json.loads(before), now

    def remove(self, kind: Kind, body: Mapping[str, Any]) -> Object | None:
        """Remove the object and return the stored one. Another object of that name stays."""
        name, uid = _name(body), str(body["metadata"].get("uid"))
        store = self._stores[kind]
        with self._lock:
            before = store.raw.get(name)
            if before is None or store.version[name][0] != uid:
                return None
            store.remove(name)
        known: Object = json.loads(before)
        return known

    def put_secret(self, namespace: str, name: str, version: str) -> bool:
        """Store the version; return whether it is new or changed."""
        with self._lock:
            before = self._secrets.get((namespace, name))
            self._secrets[namespace, name] = version
            return before != version

    def remove_secret(self, namespace: str, name: str) -> bool:
        with self._lock:
            return self._secrets.pop((namespace, name), None) is not None

    def _one(self, kind: Kind, name: ObjectName) -> Object | None:
        with self._lock:
            raw = self._stores[kind].raw.get(name)
        if raw is None:
            return None
        body: Object = json.loads(raw)
        return body

    def _all(self, kind: Kind, namespace: str | None) -> list[Object]:
        with self._lock:
            found = sorted(self._stores[kind].raw.items())
        return [json.loads(raw) for name, raw in found if namespace in (None, name[0])]

    def _group(self, kind: Kind, group: ObjectName) -> list[Object]:
        with self._lock:
            store = self._stores[kind]
            found = [store.raw[name] for name in sorted(store.groups.get(group, ()))]
        return [json.loads(raw) for raw in found]


def trim(kind: Kind, body: Mapping[str, Any]) -> Object:
    """Return the parts of an object that are kept: identity, our annotations and labels, spec,
    status.

    For jobs and pods the spec is dropped, and for pods all of the status except the containers'
    states.
    """
    meta = body["metadata"]
    kept = {name: meta[name] for name in _METADATA if meta.get(name) is not None}
    for place in ("annotations", "labels"):
        ours = {k: v for k, v in (meta.get(place) or {}).items() if k.startswith(GROUP)}
        if ours:
            kept[place] = ours
    out: Object = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": kept}
    if kind not in (JOB, POD):
        out["spec"] = body.get("spec") or {}
    status = body.get("status") or {}
    out["status"] = {k: v for k, v in status.items() if k in _POD_STATUS} if kind == POD else status
    return out


def policy_of(layout: Mapping[str, Any]) -> str:
    """Return the name of the policy that a TableLayout belongs to, "" for none.

    Its controller reference decides, which the operator writes together with spec.policyRef. If the
    two differ, somebody else edited the spec, and the policy that owns the object restores it.
    """
    for owner in layout["metadata"].get("ownerReferences") or ():
        if owner.get("controller") and owner.get("kind") == POLICY.kind:
            return str(owner.get("name"))
    reference = layout["spec"].get("policyRef")
    name = reference.get("name") if isinstance(reference, Mapping) else None
    return name if isinstance(name, str) else ""


def policy_key_of(layout: Mapping[str, Any]) -> str:
    """Return the key under which the policy of a TableLayout spends (`gating.policy_key`)."""
    return f"{layout['metadata']['namespace']}/{policy_of(layout)}"


def table_of(layout: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the levels of the identifier of a TableLayout's table, the name last."""
    table = layout["spec"]["table"]
    return (*table["namespace"], table["name"])


def table_names(layout: Mapping[str, Any]) -> tuple[str, str]:
    """Return the table's name by dots, without and with its catalog's name before it."""
    name = ".".join(table_of(layout))
    return name, f"{layout['spec']['catalogRef']['name']}.{name}"


def _name(body: Mapping[str, Any]) -> ObjectName:
    return body["metadata"].get("namespace") or "", body["metadata"]["name"]


def _groups(kind: Kind, body: Mapping[str, Any]) -> Iterator[ObjectName]:
    namespace = _name(body)[0]
    spec = body.get("spec") or {}
    if kind in (JOB, POD):
        label = (body["metadata"].get("labels") or {}).get(LAYOUT_LABEL)
        yield from _reference(namespace, "", {"name": label})
    elif kind == POLICY:
        yield from _reference(namespace, "", spec.get("catalogRef"))
    elif kind == CATALOG:
        yield from _reference(namespace, "", spec.get("secretRef"))
    else:
        yield from _reference(namespace, "policy/", {"name": policy_of({**body, "spec": spec})})
        yield from _reference(namespace, "catalog/", spec.get("catalogRef"))
        if phase_of(body.get("status")) in OPEN:
            yield WITH_JOB


def _reference(namespace: str, prefix: str, reference: Any) -> Iterable[ObjectName]:
    """Yield the referenced names; an object of a newer version may hold unknown references."""
    name = reference.get("name") if isinstance(reference, Mapping) else None
    return [(namespace, prefix + name)] if isinstance(name, str) and name else []


def _observed(body: Object) -> bool:
    return bool(body["status"].get("observedGeneration") == body["metadata"].get("generation"))


def _newer(version: tuple[str, str], known: tuple[str, str] | None) -> bool:
    """Whether (uid, resource version) is of another object with that name, or of a later
    version."""
    if known is None or known[0] != version[0]:
        return True
    if version[1].isdigit() and known[1].isdigit():
        return int(version[1]) > int(known[1])
    return version[1] != known[1]
