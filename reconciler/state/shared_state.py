"""The state store that users, jobs and the operator share: tables of their own catalog.

Same interface as the local one. Queries, sketches and ledger are the same Iceberg tables; the
table `records` replaces SQLite, and plans are in the plan store. The ledger and the records are
held in memory and reloaded only when their snapshot changes, because the operator reads them for
every table it governs.
"""

from __future__ import annotations

import datetime as dt
import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from reconciler.api.catalog_config import CatalogConfig
from reconciler.errors import BlockedError, UnavailableError, UserError, first_line
from reconciler.plan.budget import Spent
from reconciler.plan.execution import DeadRun, Lease
from reconciler.plan.ledger import Charged, Reservation, charged
from reconciler.plan.plan import Plan
from reconciler.queries.fragments import Fragment
from reconciler.state import shared_records as records
from reconciler.state.ledger_rows import HEAVY_KINDS, LEDGER_FIELDS
from reconciler.state.plan_store import NotPublishedError, PlanStore
from reconciler.state.set_aside import warn_set_aside
from reconciler.state.shared_backend import DEFAULT_NAMESPACE, SharedBackend
from reconciler.state.shared_records import TableRecords
from reconciler.state.state_tables import CachedRows, StateTables, matching
from reconciler.state.store import RETENTION_SECONDS, Store
from reconciler.table.observation import quoted_name

if TYPE_CHECKING:
    import pyarrow as pa

LEDGER_NOTE = "ledger"
"""Key of the note that the ledger was written at least once."""

VERSION_AGE = 15.0
"""Seconds for which `workload_version` and `ledger_version` may answer without a catalog call."""


class SharedStore(Store):
    """State in a namespace of a catalog. Reads raise UnavailableError if it cannot be read.

    plans_uri: where plans are published, None: beside the state tables. lease: guards an attempt;
    by default a job's (JobLease), whose exclusiveness the operator ensures. retention_seconds: as
    in Store.
    """

    heavy_table = "attempts"

    def __init__(
        self,
        config: CatalogConfig,
        namespace: tuple[str, ...] = DEFAULT_NAMESPACE,
        *,
        plans_uri: str | None = None,
        timeout: float = 30.0,
        retention_seconds: int | None = RETENTION_SECONDS,
        on_created: Callable[[str], None] | None = None,
        lease: Callable[[], Lease] | None = None,
    ):
        backend = SharedBackend(config, namespace, timeout, on_created)
        super().__init__(StateTables(backend), retention_seconds)
        self.config, self.namespace = config, namespace
        self.plans = PlanStore(config, plans_uri, timeout=timeout, backend=backend)
        self._lease = lease or JobLease
        self._records = TableRecords(self._tables)
        self._ledger_rows = CachedRows(self._tables, "ledger", LEDGER_FIELDS)
        self._spending = _Spending()
        self._marked = False

    def lease(self) -> Lease:
        return self._lease()

    # Plans, approvals, cursors, counts

    def put_plan(self, plan: Plan) -> None:
        """Publish the plan, then make it the standing one of (table, policy)."""
        uri = self.plans.put(plan)
        entry = {"uri": uri, "digest": plan.digest(), "tableUuid": plan.table_uuid}
        standing = _standing_key(plan.table_uuid, plan.policy_hash)
        self._records.put([(records.PLAN, plan.id, entry), (records.STANDING, standing, plan.id)])

    def get_plan(self, plan_id: str) -> Plan | None:
        return self._published(plan_id)

    def standing_plan(self, table_uuid: str, policy_hash: str) -> Plan | None:
        plan_id = self._records.get(records.STANDING, _standing_key(table_uuid, policy_hash))
        return None if plan_id is None else self._published(str(plan_id), policy_hash)

    def standing_plans(self, table_uuid: str) -> tuple[Plan, ...]:
        ids = self._records.of_kind(records.STANDING)
        found = [ids[key] for key in sorted(ids) if _table_of(key) == table_uuid]
        plans = [self._published(str(plan_id)) for plan_id in found]
        return tuple(plan for plan in plans if plan is not None)

    def _published(self, plan_id: str, policy_hash: str | None = None) -> Plan | None:
        """Return a published plan; one that is gone, or cannot be read, does not stand.

        policy_hash: of the policy that it must be of. The object of an unreadable plan stays where
        it is until its retention ends; what refers to it is dropped.
        """
        entry = self._records.get(records.PLAN, plan_id)
        if entry is None:
            return None
        try:
            plan = self.plans.get(str(entry["uri"]), str(entry["digest"]))
            if plan.id == plan_id and policy_hash in (None, plan.policy_hash):
                return plan
            why = f"it is plan {plan.id} of another policy"
        except NotPublishedError:
            return None
        except UserError as error:
            why = "; ".join((error.what, *error.details))
        except (KeyError, TypeError) as error:
            why = f"its record cannot be read: {first_line(error)}"
        approved = self.approved(plan_id)
        approvals = self._records.of_kind(records.APPROVAL)
        void = [key for key in approvals if key.partition(" ")[0] == plan_id]
        gone = [(records.PLAN, plan_id, None), *((records.APPROVAL, key, None) for key in void)]
        self._records.put(gone)
        table_uuid = entry.get("tableUuid", "-") if isinstance(entry, dict) else "-"
        warn_set_aside(plan_id, str(table_uuid), why, approved)
        return None

    def approve(self, plan_id: str, policy: str) -> None:
        if self._records.get(records.PLAN, plan_id) is None:
            raise UserError(
                f"plan {plan_id} is not known in the shared state",
                do="publish it with: layoutctl plan TABLE --shared --publish",
            )
        under = _approval_key(plan_id, policy)
        self._records.put([(records.APPROVAL, plan_id, True), (records.APPROVAL, under, True)])

    def approved(self, plan_id: str, policy: str | None = None) -> bool:
        key = plan_id if policy is None else _approval_key(plan_id, policy)
        return bool(self._records.get(records.APPROVAL, key))

    def cursor(self, source: str) -> str | None:
        value = self._records.get(records.CURSOR, source)
        return None if value is None else str(value)

    def set_cursor(self, source: str, value: str) -> None:
        self._records.put([(records.CURSOR, source, value)])

    def record_skips(self, table_uuid: str | None, counts: Mapping[str, int]) -> None:
        self._records.add(table_uuid or "", counts)

    def skips(self, table_uuid: str | None) -> dict[str, int]:
        return self._records.counts(table_uuid or "")

    def note(self, key: str) -> Any:
        return self._records.get(records.NOTE, key)

    def set_note(self, key: str, value: Any) -> None:
        self._records.put([(records.NOTE, key, value)])

    # Recorded queries and ledger

    def append_fragments(self, fragments: Iterable[Fragment]) -> None:
        """As locally; every table with new fragments gets a new workload version."""
        items = list(fragments)
        super().append_fragments(items)
        self._records.touch(records.WORKLOAD, sorted({item.table_uuid for item in items}))

    def workload_version(self, table_uuid: str, max_age: float = VERSION_AGE) -> str:
        """Return a version that changes when queries on the table are imported; "" before the
        first."""
        found = self._records.get(records.WORKLOAD, table_uuid, max_age)
        return "" if found is None else str(found)

    def ledger_version(self, table_uuid: str, max_age: float = VERSION_AGE) -> str:
        """Return a version that changes when something is recorded for the table; "" before the
        first."""
        import pyarrow.compute as pc

        _, rows = self._ledger_now(max_age)
        if rows is None:
            return ""
        times = rows.filter(pc.equal(rows.column("table_uuid"), table_uuid)).column("at_ms")
        return f"{len(times)}:{pc.max(times).as_py()}" if len(times) else ""

    def spent(self, policy: str, table_uuid: str) -> tuple[Spent, ...]:
        """Return what the policy spent on all of its tables, and anything spent on this one.

        policy: as predictions carry it (loop.gating.policy_key).
        """
        version, _ = self._ledger_now()
        now = dt.datetime.now(dt.UTC)
        return self._spending.of(version, self._charged, policy, table_uuid, now)

    def open_reservations(self) -> tuple[Reservation, ...]:
        """Return what is reserved on all tables and not settled, counted once per version of the
        ledger."""
        version, _ = self._ledger_now()
        return self._spending.open(version, self._charged)

    def _charged(self) -> tuple[tuple[Charged, ...], tuple[Reservation, ...]]:
        held = self.reservations(None)  # first, as in Reader.automatic_spent
        return charged(self.ledger(None), held), tuple(one for one in held if not one.settled)

    def _ledger_now(self, max_age: float = 0.0) -> tuple[str, pa.Table | None]:
        """Return the ledger's rows. A ledger that existed and is gone does not count as empty."""
        version, rows = self._ledger_rows.rows(max_age)
        if rows is None and self._records.get(records.NOTE, LEDGER_NOTE, max_age):
            raise UnavailableError(
                f'the ledger in "{quoted_name(self.namespace)}" of catalog '
                f'"{self.config.name}" is gone',
                details=("the spent budget is unknown, so no budget allows anything",),
                do="restore the table, or drop the whole namespace to start over",
            )
        return version, rows

    def _record(self, rows: Sequence[dict[str, Any]]) -> None:
        super()._record(rows)
        if not self._marked and rows and rows[0]["kind"] not in HEAVY_KINDS:
            self._records.put([(records.NOTE, LEDGER_NOTE, True)])
            self._marked = True

    def _ledger(
        self,
        table_uuid: str | None,
        kinds: Sequence[str],
        plan_ids: tuple[str, ...] | None = None,
    ) -> list[dict[str, Any]]:
        """Return small rows from memory; large ones, which only settling needs, from their
        table."""
        found: list[dict[str, Any]] = []
        light = [kind for kind in kinds if kind not in HEAVY_KINDS]
        heavy = tuple(kind for kind in kinds if kind in HEAVY_KINDS)
        if light:
            _, rows = self._ledger_now()
            if rows is not None:
                found += _chosen(rows, table_uuid, light, plan_ids).to_pylist()
        if heavy:
            equal: dict[str, Any] = {"kind": heavy}
            if table_uuid is not None:
                equal["table_uuid"] = table_uuid
            more = self._tables.scan(self.heavy_table, matching(equal), LEDGER_FIELDS)
            found += [] if more is None else more.to_pylist()
        return sorted(found, key=lambda row: row["at_ms"])


class JobLease:
    """The lease of a job; the operator, not this object, ensures that there is no second job.

    check: raises BlockedError if the job may not continue, for example because another owner
    claimed the table. From here no process except this one can be known to be dead.
    """

    def __init__(self, check: Callable[[], None] | None = None):
        self._check = check
        self._held = ""

    def acquire(self, table_uuid: str, attempt_id: str) -> None:
        if self._held not in ("", table_uuid):
            raise BlockedError(
                "this job works on another table already",
                details=(f"it holds the table {self._held}",),
                do="let it end first",
            )
        self.renew()
        self._held = table_uuid

    def renew(self) -> None:
        if self._check is not None:
            self._check()

    def release(self) -> None:
        self._held = ""

    def writer_is_dead(self, table_uuid: str, attempt_id: str) -> bool:
        return False

    def enter(self, table_uuid: str, reservation: str) -> None:
        """Do nothing: the operator sees how a job ends."""

    def leave(self, table_uuid: str, reservation: str) -> None:
        pass

    def dead_runs(self, table_uuid: str) -> tuple[DeadRun, ...]:
        return ()


Counted = Callable[[], tuple[Iterable[Charged], tuple[Reservation, ...]]]


class _Spending:
    """Charges by policy and by table, and open reservations, counted once per version of the
    ledger."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._version: str | None = None
        self._by_policy: dict[str, list[Charged]] = {}
        self._by_table: dict[str, list[Charged]] = {}
        self._open: tuple[Reservation, ...] = ()

    def open(self, version: str, found: Counted) -> tuple[Reservation, ...]:
        with self._lock:
            self._count(version, found)
            return self._open

    def of(
        self, version: str, found: Counted, policy: str, table: str, now: dt.datetime
    ) -> tuple[Spent, ...]:
        """Return the charges of a policy or a table as of now: what is reserved moves with it."""
        with self._lock:
            self._count(version, found)
            own = self._by_policy.get(policy, ())
            other = [item for item in self._by_table.get(table, ()) if item.policy != policy]
        return tuple(item.at(now) for item in (*own, *other))

    def _count(self, version: str, found: Counted) -> None:
        if version == self._version:
            return
        by_policy: dict[str, list[Charged]] = {}
        by_table: dict[str, list[Charged]] = {}
        charges, held = found()
        for item in charges:
            by_policy.setdefault(item.policy, []).append(item)
            by_table.setdefault(item.table_uuid, []).append(item)
        self._by_policy, self._by_table = by_policy, by_table
        self._open, self._version = held, version


def _approval_key(plan_id: str, policy: str) -> str:
    return f"{plan_id} {policy}"


def _table_of(standing_key: str) -> str:
    """Return the UUID of the table of a standing plan, "" if somebody else wrote the key."""
    try:
        return str(json.loads(standing_key)[0])
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""


def _standing_key(table_uuid: str, policy_hash: str) -> str:
    return json.dumps([table_uuid, policy_hash])


def _chosen(
    rows: pa.Table,
    table_uuid: str | None,
    kinds: Sequence[str],
    plan_ids: tuple[str, ...] | None,
) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    chosen = pc.is_in(rows.column("kind"), pa.array(list(kinds)))
    if table_uuid is not None:
        chosen = pc.and_(chosen, pc.equal(rows.column("table_uuid"), table_uuid))
    if plan_ids is not None:
        chosen = pc.and_(
            chosen, pc.is_in(rows.column("plan_id"), pa.array(list(plan_ids), pa.string()))
        )
    return rows.filter(chosen)
