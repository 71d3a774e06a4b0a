"""The reconcile of one TableLayoutPolicy: its tables, their TableLayouts, the summary.

Reads only the catalog's last listing and the index; the API server is called only for a change, so
that a policy over hundreds of tables settles quickly. A TableLayout keeps its claim
(ownerReference) until the policy no longer selects the table, and the claim never moves while a job
is live.
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reconciler.api.documents import TableLayoutPolicy
from reconciler.api.table_patterns import policies_for, selects
from reconciler.errors import ReconcilerError, first_line
from reconciler.kube.errors import Conflict, Invalid, NotFound
from reconciler.kube.kinds import POLICY, TABLE_LAYOUT
from reconciler.kube.names import table_layout_name
from reconciler.loop.decision_settings import budgets_of
from reconciler.loop.gating import policy_key
from reconciler.operator import due
from reconciler.operator.index import REQUESTED_AT, policy_of, table_of
from reconciler.operator.layout.status import accepted, changed
from reconciler.operator.layout.subject import layout_hash
from reconciler.operator.policy.selection import Selections
from reconciler.operator.policy.status import PolicyView, policy_status
from reconciler.operator.ports import CatalogHandle, Catalogs, Identifier, Problem
from reconciler.operator.runtime import Runtime
from reconciler.operator.spending.reservations import held, unsettled
from reconciler.operator.stored import Refusal, StoredDocuments
from reconciler.operator.work import Key, Result, Work
from reconciler.plan.budget import BudgetState

log = logging.getLogger(__name__)

Body = dict[str, Any]
Listed = Callable[[str, str], frozenset[Identifier] | None]
Gone = Callable[[str, str, Identifier], bool]


@dataclass
class Policies:
    """Reconciles TableLayoutPolicies: creates and retires the TableLayouts of their tables."""

    runtime: Runtime
    """The services of the operator."""
    catalogs: Catalogs
    """The handles of all catalogs."""
    documents: StoredDocuments
    """Parses stored objects."""
    clock: Callable[[], dt.datetime]
    """Returns the time."""
    tables: Listed
    """Returns the tables of a catalog, as its reconcile listed them; None before the first
    listing."""
    gone: Gone
    """Returns whether a table has gone from its catalog."""
    asked: dict[Key, str] = field(default_factory=dict)
    """The value of the annotation requestedAt that was passed on last, by policy."""
    rivals: dict[Key, dict[str, set[Key]]] = field(default_factory=dict)
    """The policies that would take a TableLayout over, by the policy that has precedence and by
    TableLayout."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Guards `rivals`."""
    selections: Selections = field(init=False)
    """Finds the tables that a policy selects, and the policies that select a table."""

    def __post_init__(self) -> None:
        self.selections = Selections(self.runtime.index, self.documents)

    def reconcile(self, key: Key) -> Result:
        body = self.runtime.index.policy(key.namespace, key.name)
        if body is None:
            self.asked.pop(key, None)
            self._policy_is_gone(key)
            self._give_way(key)
            return Result()
        if not self.runtime.held():
            return Result(due=self.clock().timestamp() + 5)
        try:
            result = self._reconcile(key, body)
            self._give_way(key)
            return result
        except Conflict:
            return Result(due=self.clock().timestamp() + 1)
        except NotFound:
            return Result()

    def _reconcile(self, key: Key, body: Body) -> Result:
        now = self.clock()
        body = self._accept(body, now)
        policy = self.documents.read(body, TableLayoutPolicy)
        if isinstance(policy, Refusal):
            self._tell(body, _failed(Problem(policy.reason, policy.message, stalls=True)), now)
            return Result(due=(now + dt.timedelta(minutes=10)).timestamp())
        moment = due.next_look(f"{key.namespace}/{key.name}", policy.spec.interval_seconds, now)
        catalog = policy.spec.catalog.name
        handle = self.catalogs.handle(key.namespace, catalog)
        if isinstance(handle, Problem):
            self._tell(body, _failed(handle), now)
            return Result(due=moment.timestamp())
        listed = self.tables(key.namespace, catalog)
        if listed is None:
            return Result(due=(now + dt.timedelta(seconds=2)).timestamp())
        wanted, held_by = self._wanted(policy, listed)
        layouts = self._layouts(key)
        self._apply(policy, body, wanted, layouts)
        self._retire(policy, wanted, layouts)
        self._pass_on(key, body, layouts)
        view = PolicyView(
            layouts=[item for item in self._layouts(key) if _wants(policy, wanted, item)],
            matched=len(wanted),
            held_by=held_by,
            suspended=policy.spec.suspend,
            problem=None,
            budgets=self._budgets(policy, handle, layouts, now),
            reserved=_reserved(layouts),
            handled_request=(body["metadata"].get("annotations") or {}).get(REQUESTED_AT, ""),
        )
        self._tell(body, view, now)
        window = due.boundary(budgets_of(policy.spec), now)
        return Result(due=min(moment, window or moment).timestamp())

    def _accept(self, body: Body, now: dt.datetime) -> Body:
        """Record a new generation in a write of its own, before anything slow."""
        generation = int(body["metadata"].get("generation") or 0)
        status = body.get("status") or {}
        if status.get("observedGeneration") == generation:
            return body
        return self._put(body, accepted(status, generation, now))

    def _put(self, body: Body, status: Body) -> Body:
        meta = body["metadata"]
        answer: Body = self.runtime.api.put_status(
            POLICY, meta["namespace"], meta["name"], status, meta["resourceVersion"]
        )
        self.runtime.index.put(POLICY, answer)
        return answer

    def _tell(self, body: Body, view: PolicyView, now: dt.datetime) -> None:
        stored = self.runtime.index.policy(body["metadata"]["namespace"], body["metadata"]["name"])
        current = stored or body
        status = current.get("status") or {}
        new = policy_status(status, view, int(body["metadata"].get("generation") or 0), now)
        if "lastHandledReconcileAt" in status:
            new.setdefault("lastHandledReconcileAt", status["lastHandledReconcileAt"])
        if changed(status, new):
            self._put(current, new)

    def _layouts(self, key: Key) -> list[Body]:
        """Return the TableLayouts of this policy; those of a former policy with its name do not
        count."""
        return self.runtime.index.layouts_of_policy(key.namespace, key.name)

    def _wanted(
        self, policy: TableLayoutPolicy, listed: frozenset[Identifier]
    ) -> tuple[frozenset[Identifier], Counter[str]]:
        """Return (tables that belong to this policy, matching tables of others by their policy)."""
        matching = self.selections.tables(policy, listed)
        mine: set[Identifier] = set()
        elsewhere: Counter[str] = Counter()
        for table in matching:
            others = self.selections.rivals(policy, table)
            holder = self._holder(policy, table) or _first(policy, others, table)
            if holder == policy.name:
                mine.add(table)
                continue
            elsewhere[holder] += 1
            self._wait_for(holder, policy, table)
            if holder not in {p.name for p in others}:
                log.info("%s is still held by policy %s", ".".join(table), holder)
        return frozenset(mine), elsewhere

    def _wait_for(self, holder: str, policy: TableLayoutPolicy, table: Identifier) -> None:
        own = Key(Work.POLICY, policy.namespace, policy.name)
        name = table_layout_name(policy.spec.catalog.name, table)
        with self.lock:
            held = self.rivals.setdefault(Key(Work.POLICY, policy.namespace, holder), {})
            held.setdefault(name, set()).add(own)

    def _give_way(self, key: Key) -> None:
        """Make the policies due that wait for tables which this one gives up.

        They would otherwise look at them only after their own interval.
        """
        with self.lock:
            held = self.rivals.get(key, {})
            given = [name for name in held if not self._holds(key, name)]
            rivals = {rival for name in given for rival in held.pop(name)}
            if not held:
                self.rivals.pop(key, None)
        for rival in sorted(rivals):
            self.runtime.enqueue(rival, None)

    def _holds(self, key: Key, name: str) -> bool:
        found = self.runtime.index.layout(key.namespace, name)
        if found is None or policy_of(found) != key.name:
            return False
        return self.runtime.index.policy(key.namespace, key.name) is not None or not _is_idle(found)

    def _holder(self, policy: TableLayoutPolicy, table: Identifier) -> str | None:
        """Return the policy whose TableLayout of the table exists.

        One that is being deleted still holds its table, because its job may be stopping. One that a
        deleted policy left behind does not.
        """
        name = table_layout_name(policy.spec.catalog.name, table)
        found = self.runtime.index.layout(policy.namespace, name)
        if found is None:
            return None
        holder = policy_of(found)
        gone = self.runtime.index.policy(policy.namespace, holder) is None
        return None if gone and _is_idle(found) else holder

    def _apply(
        self,
        policy: TableLayoutPolicy,
        body: Body,
        wanted: frozenset[Identifier],
        layouts: Iterable[Body],
    ) -> None:
        """Create TableLayouts, and update those whose spec is wrong."""
        known = {item["metadata"]["name"]: item for item in layouts}
        for table in sorted(wanted):
            manifest = layout_manifest(policy, body, table)
            found = known.get(manifest["metadata"]["name"])
            if found is not None and _says(found, manifest):
                continue
            try:
                answer = self.runtime.api.apply(TABLE_LAYOUT, policy.namespace, manifest)
            except Invalid as error:  # one invalid name must not affect the other tables
                text = f"{'.'.join(table)} has no TableLayout: {first_line(error.what)}"
                self.runtime.api.event(body, "TableRefused", text, "Warning")
                log.warning("%s/%s: %s", policy.namespace, policy.name, text)
                continue
            self.runtime.index.put(TABLE_LAYOUT, answer)
            self.runtime.enqueue(
                Key(Work.LAYOUT, policy.namespace, manifest["metadata"]["name"]), None
            )

    def _retire(
        self, policy: TableLayoutPolicy, wanted: frozenset[Identifier], layouts: Iterable[Body]
    ) -> None:
        """Delete TableLayouts of tables that are no longer selected, or certainly gone.

        A finalizer keeps one with a job until the job has stopped.
        """
        for item in layouts:
            table, meta = table_of(item), item["metadata"]
            if _wants(policy, wanted, item) or meta.get("deletionTimestamp"):
                continue
            selected = _of_catalog(policy, item) and selects(policy.spec.tables, table)
            if selected and not self.gone(policy.namespace, policy.spec.catalog.name, table):
                continue
            self._delete(item, "gone" if selected else "no longer selected")

    def _delete(self, item: Body, why: str) -> None:
        meta = item["metadata"]
        try:
            self.runtime.api.delete(TABLE_LAYOUT, meta["namespace"], meta["name"], uid=meta["uid"])
        except NotFound:
            self.runtime.index.remove(TABLE_LAYOUT, item)
        log.info("%s/%s is retired: its table is %s", meta["namespace"], meta["name"], why)
        self.runtime.enqueue(Key(Work.LAYOUT, meta["namespace"], meta["name"]), None)

    def _policy_is_gone(self, key: Key) -> None:
        """Handle a deleted policy: garbage collection removes its TableLayouts; jobs stop."""
        for item in self._layouts(key):
            self.runtime.enqueue(Key(Work.LAYOUT, key.namespace, item["metadata"]["name"]), None)

    def _pass_on(self, key: Key, body: Body, layouts: Iterable[Body]) -> None:
        """Pass requestedAt on a policy on to all of its tables, once; likewise a new generation."""
        meta = body["metadata"]
        request = (meta.get("annotations") or {}).get(REQUESTED_AT, "")
        asked = f"{meta.get('generation')}/{request}"
        if self.asked.get(key) == asked:
            return
        self.asked[key] = asked
        for item in layouts:
            self.runtime.enqueue(Key(Work.LAYOUT, key.namespace, item["metadata"]["name"]), None)

    def _budgets(
        self,
        policy: TableLayoutPolicy,
        handle: CatalogHandle,
        layouts: Sequence[Body],
        now: dt.datetime,
    ) -> tuple[BudgetState, ...]:
        """Return the budgets with what was spent by the last read ledger, and with what live jobs
        hold in it or besides; none if it is unreadable."""
        if not policy.spec.budgets:
            return ()
        try:
            beside = held(unsettled(layouts), handle.open_reservations(), now)
            spent = (*beside, *handle.spent(policy_key(policy), ""))
        except ReconcilerError:
            return ()
        return due.states(budgets_of(policy.spec), spent, now)


def layout_manifest(policy: TableLayoutPolicy, body: Body, table: Identifier) -> Body:
    """Return the policy's TableLayout of a table; approvedPlan and suspend belong to people."""
    catalog = policy.spec.catalog.name
    *namespace, name = table
    meta = body["metadata"]
    return {
        "metadata": {
            "name": table_layout_name(catalog, table),
            "namespace": policy.namespace,
            "ownerReferences": [
                {
                    "apiVersion": POLICY.api_version,
                    "kind": POLICY.kind,
                    "name": policy.name,
                    "uid": meta["uid"],
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "catalogRef": {"name": catalog},
            "table": {"namespace": namespace, "name": name},
            "policyRef": {"name": policy.name, "generation": int(meta.get("generation") or 0)},
            "layoutHash": layout_hash(policy),
        },
    }


def _says(found: Mapping[str, Any], manifest: Body) -> bool:
    """Whether the stored object has the right spec.

    A new generation alone needs no write: it is written with the next relevant change.
    """
    spec, wanted = found["spec"], manifest["spec"]
    owners = found["metadata"].get("ownerReferences") or ()
    owned = {item.get("uid") for item in owners} == {
        item["uid"] for item in manifest["metadata"]["ownerReferences"]
    }
    return (
        owned
        and spec.get("layoutHash") == wanted["layoutHash"]
        and (spec.get("policyRef") or {}).get("name") == wanted["policyRef"]["name"]
    )


def _first(policy: TableLayoutPolicy, others: list[TableLayoutPolicy], table: Identifier) -> str:
    """Return the name of the policy that precedes all others that select the table."""
    found = policies_for(table, policy.spec.catalog.name, [policy, *others])
    return found[0].name if found else ""


def _of_catalog(policy: TableLayoutPolicy, layout: Mapping[str, Any]) -> bool:
    """Whether the layout is of the policy's catalog: the policy may have moved to another catalog
    that has tables of the same names."""
    return bool(layout["spec"]["catalogRef"]["name"] == policy.spec.catalog.name)


def _wants(
    policy: TableLayoutPolicy, wanted: frozenset[Identifier], layout: Mapping[str, Any]
) -> bool:
    return _of_catalog(policy, layout) and table_of(layout) in wanted


def _is_idle(layout: Mapping[str, Any]) -> bool:
    """Whether nothing of it is active: neither its deletion nor a job."""
    return not layout["metadata"].get("deletionTimestamp") and not unsettled([layout])


def _reserved(layouts: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    live = [record for _, record in unsettled(layouts)]
    return sum(r.rewrite_bytes for r in live), sum(r.cpu_seconds for r in live)


def _failed(problem: Problem) -> PolicyView:
    return PolicyView((), 0, {}, False, problem)
