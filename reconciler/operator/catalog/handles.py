"""Handles of catalogs: connections, secrets in memory, shared state, and their restrictions.

A handle is valid while its IcebergCatalog's spec and its Secret do not change. Whether the catalog
is reachable is the last result of its own reconcile; layouts do not each try an unreachable one.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from reconciler.api.catalog_config import CatalogConfig
from reconciler.api.conditions import Reason
from reconciler.api.documents import IcebergCatalog, TableLayoutPolicy
from reconciler.api.reach import STRICT, Reach
from reconciler.api.version import GROUP
from reconciler.catalog.calls import Lane, in_lane
from reconciler.catalog.claim import claim
from reconciler.catalog.load import connect, list_namespaces, list_tables
from reconciler.catalog.mounted import catalog_config, refuse_places
from reconciler.catalog.pointer import Pointer
from reconciler.catalog.properties import secret_values
from reconciler.errors import RefusedAddressError, UserError
from reconciler.kube.errors import ApiError, NotFound
from reconciler.kube.kinds import SECRET
from reconciler.loop.operator_actor import ClusterActor
from reconciler.loop.ports import Target
from reconciler.operator import logs
from reconciler.operator.index import Index, ObjectName
from reconciler.operator.job_record import JobRecord, began, own_reservation
from reconciler.operator.layout.look import look_at
from reconciler.operator.ports import CatalogHandle, CutShort, Identifier, Problem, Run
from reconciler.operator.proposal_summary import ProposalSummary
from reconciler.operator.settings import OperatorSettings
from reconciler.operator.stored import Refusal, StoredDocuments
from reconciler.plan.budget import Spent
from reconciler.plan.ledger import Reservation
from reconciler.state.shared_state import SharedStore
from reconciler.state.state import cache_directory

TAKE_OVER = f"{GROUP}/takeOver"
"""Annotation of an IcebergCatalog: the owner name of a former operator whose tables to take
over."""

Result = TypeVar("Result")


@dataclass
class LiveHandle:
    """A reachable catalog. Implements `ports.CatalogHandle`."""

    document: IcebergCatalog
    """The catalog's document."""
    config: CatalogConfig
    """Its connection, secrets included."""
    version: str
    """Identifies the version of the document and of its Secret."""
    uid: str
    """UID of the object, part of the owner's name in claims."""
    take_over: str
    """The owner whose claims this catalog may take over, "" for none."""
    store: SharedStore
    """The shared state of the catalog."""
    actor: ClusterActor
    """Observes and plans the catalog's tables."""

    lane: Lane
    """The thread and the limits of its calls."""
    deadline: float
    """Seconds for all calls of one reconcile."""

    @property
    def timeout(self) -> float:
        return float(self.document.spec.timeout_seconds)

    def call(self, work: Callable[[], Result]) -> Result:
        """Run the work in the catalog's lane, and end it at the deadline of the reconcile."""
        return in_lane(self.lane, self.config.reach, self.deadline, work)

    def listing(self) -> list[Identifier]:
        return self.call(self._listing)

    def _listing(self) -> list[Identifier]:
        catalog = connect(self.config, self.timeout)
        own = tuple(self.document.spec.system.namespace)
        found: list[Identifier] = []
        for namespace in list_namespaces(catalog, self.config, self.timeout):
            if tuple(namespace)[: len(own)] != own:
                found += list_tables(catalog, self.config, tuple(namespace), self.timeout)
        return found

    def glance(self, table: Identifier) -> Pointer | None:
        found = self.call(lambda: self.actor.pointer(Target(self.config, table)))
        if found is None:
            return None
        return replace(found, owner="") if found.owner == self.take_over else found

    def evidence_version(self, uuid: str, max_age: float) -> str:
        def versions() -> str:
            workload = self.store.workload_version(uuid, max_age)
            return f"{workload}/{self.store.ledger_version(uuid, max_age)}"

        return self.call(versions)

    def look(
        self,
        table: Identifier,
        policy: TableLayoutPolicy,
        fingerprint: str,
        approved: Sequence[str],
        now: dt.datetime,
    ) -> ProposalSummary:
        target = Target(self.config, table)
        return self.call(lambda: look_at(self.actor, target, policy, fingerprint, approved, now))

    def approved(self, plan_id: str, policy: str) -> bool:
        return self.call(lambda: self.store.approved(plan_id, policy))

    def owner(self) -> str:
        """The owner name, unique over clusters: two that share a catalog have different objects for
        it."""
        return self.actor.claims_as

    def claim(self, table: Identifier, uuid: str) -> str:
        return self.call(
            lambda: claim(
                self.config, table, self.owner(), expected=self.take_over, timeout=self.timeout
            )
        )

    def spent(self, policy: str, uuid: str) -> tuple[Spent, ...]:
        return self.call(lambda: self.store.spent(policy, uuid))

    def cut_short(self, uuid: str) -> CutShort | None:
        return self.call(lambda: self._cut_short(uuid))

    def _cut_short(self, uuid: str) -> CutShort | None:
        held = [item for item in self.store.reservations(uuid) if not item.settled]
        if not held or not self.store.open_intents(uuid):
            return None
        newest_first = dict.fromkeys(item.plan_id for item in reversed(held))
        found = (self.actor.published(uuid, plan_id) for plan_id in newest_first)
        plan = next((plan for plan in found if plan is not None), None)
        uri = "" if plan is None else self.actor.plans.uri_of(plan)
        return None if plan is None else CutShort(plan.id, plan.digest(), uri)

    def open_reservations(self) -> tuple[Reservation, ...]:
        return self.call(self.store.open_reservations)

    def automatic_spent(self, uuid: str, since: dt.datetime, approved: Collection[str]) -> int:
        return self.call(lambda: self.actor.automatic_spent(uuid, since, approved))

    def end_run(self, uuid: str, record: JobRecord) -> Run:
        return self.call(lambda: self._end_run(uuid, record))

    def _end_run(self, uuid: str, record: JobRecord) -> Run:
        reserved = self.store.reservations(uuid)
        start, plan = began(record, reserved), record.plan_id
        entries = tuple(
            one for one in self.store.ledger(uuid) if one.plan_id == plan and one.at_ms >= start
        )
        checks = [
            one
            for one in self.store.read_checks(uuid)
            if one.plan_id == plan and one.at_ms >= start
        ]
        own = own_reservation(record, reserved)
        if own is not None and own.ended_ms is None:
            self.store.end_run(own)
        return entries, max(checks, key=lambda one: one.at_ms, default=None)


@dataclass
class LiveCatalogs:
    """Every IcebergCatalog of the index. Thread-safe. Implements `ports.Catalogs`."""

    api: Any
    """The Kubernetes API, for the Secrets."""
    index: Index
    """The objects as the watches know them."""
    settings: OperatorSettings
    """The operator's settings."""
    documents: StoredDocuments
    """Parses stored objects."""
    reach: Reach = STRICT
    """What the calls of all catalogs may reach."""
    deadline: float = 300.0
    """Seconds for all calls of one reconcile to one catalog."""
    cache: Path = field(default_factory=cache_directory)
    """Directory of cached manifests."""
    down: dict[ObjectName, Problem] = field(default_factory=dict)
    """Why a catalog is not usable, as its last reconcile found, by (namespace, name)."""
    stale: dict[ObjectName, str] = field(default_factory=dict)
    """Why the recorded queries of a catalog are too old, as its last reconcile found, by
    (namespace, name)."""
    _handles: dict[ObjectName, LiveHandle] = field(default_factory=dict)
    """The handle of each catalog, by (namespace, name)."""
    _lanes: dict[ObjectName, Lane] = field(default_factory=dict)
    """The lane of each catalog, by (namespace, name), kept over versions of its document."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    """Guards the handles and the lanes."""

    def handle(self, namespace: str, name: str) -> CatalogHandle | Problem:
        """Return the handle, or why there is none: the last result of its reconcile comes first."""
        body = self.index.catalog(namespace, name)
        if body is not None and (namespace, name) in self.down:
            return self.down[namespace, name]
        return self.open(namespace, name, body)

    def open(self, namespace: str, name: str, body: dict[str, Any] | None) -> LiveHandle | Problem:
        """As `handle`, even if the catalog was unreachable last time."""
        if body is None:
            text = f"there is no IcebergCatalog {name} in namespace {namespace}"
            return Problem(Reason.CATALOG_NOT_FOUND.value, text, True)
        document = self.documents.read(body, IcebergCatalog)
        if isinstance(document, Refusal):
            return Problem(document.reason, f"catalog {name}: {document.message}", True)
        secret = document.spec.secret.name if document.spec.secret else ""
        seen = self.index.secret_version(namespace, secret) if secret else ""
        take_over = (body["metadata"].get("annotations") or {}).get(TAKE_OVER, "")
        version = f"{body['metadata'].get('generation')}:{seen}:{take_over}"
        with self._lock:
            known = self._handles.get((namespace, name))
        if known is not None and (known.version, known.uid) == (version, body["metadata"]["uid"]):
            return known
        opened = self._opened(document, secret, version, body["metadata"]["uid"], take_over)
        if isinstance(opened, LiveHandle):
            with self._lock:
                self._handles[namespace, name] = opened
        return opened

    def _opened(
        self, document: IcebergCatalog, secret: str, version: str, uid: str, take_over: str
    ) -> LiveHandle | Problem:
        values = self._secret(document.namespace, secret) if secret else {}
        if isinstance(values, Problem):
            return values
        try:
            config = catalog_config(document, values, self.reach)
            logs.conceal(secret_values(config))
            refuse_places(document, config)
        except RefusedAddressError as error:
            return Problem(Reason.INVALID_SPEC.value, error.what, True)
        except UserError as error:
            return Problem(Reason.SECRET_NOT_FOUND.value, error.what, True)
        timeout = float(document.spec.timeout_seconds)
        store = SharedStore(
            config,
            tuple(document.spec.system.namespace),
            plans_uri=document.spec.system.plans.uri,
            timeout=timeout,
            retention_seconds=document.spec.workload.retention_seconds,
        )
        actor = ClusterActor(
            store=store,
            cache=self.cache,
            timeout=timeout,
            claims_as=f"{document.namespace}/{document.name}/{uid}",
            exclude_columns=document.spec.workload.exclude_columns,
            plans=store.plans,
        )
        lane = self.lane(document.namespace, document.name)
        return LiveHandle(
            document, config, version, uid, take_over, store, actor, lane, self.deadline
        )

    def lane(self, namespace: str, name: str) -> Lane:
        """One for each name, whatever becomes of the object: what hangs outlives its document."""
        with self._lock:
            return self._lanes.setdefault((namespace, name), Lane(f"{namespace}/{name}"))

    def _secret(self, namespace: str, name: str) -> dict[str, str] | Problem:
        """Return the Secret's values, which are used only for the connection."""
        reason = Reason.SECRET_NOT_FOUND.value
        try:
            data = self.api.get(SECRET, namespace, name).get("data") or {}
            return {key: base64.b64decode(text).decode() for key, text in data.items()}
        except NotFound:
            return Problem(reason, f"there is no Secret {name}", True)
        except (binascii.Error, UnicodeDecodeError):
            return Problem(reason, f"Secret {name} has a value that is not text", True)
        except ApiError as error:
            text = f"Secret {name} cannot be read: {error.what}"
            return Problem(Reason.CATALOG_UNAVAILABLE.value, text, False)

    def workload_stale(self, namespace: str, name: str) -> str:
        return self.stale.get((namespace, name), "")
