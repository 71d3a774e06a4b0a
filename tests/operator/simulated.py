"""A catalog without storage, for thousands of tables: the operator's own reconciles around it.

Everything is the operator's (documents, handles by version, listing, import state, gate) but what
would read metadata files. A table's work is a function of its name, so that nothing is kept of
tables that nobody changed.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from reconciler.api.documents import IcebergCatalog, TableLayoutPolicy
from reconciler.catalog.pointer import Pointer
from reconciler.operator.catalog.handles import LiveCatalogs, LiveHandle
from reconciler.operator.job_record import JobRecord
from reconciler.operator.layout.plan_status import plan_status
from reconciler.operator.ports import Identifier, Run
from reconciler.operator.proposal_summary import NOTHING_TO_DO, ProposalSummary
from reconciler.plan.actions.rewrite import BinPack
from reconciler.plan.budget import Spent
from reconciler.plan.execution import COMMITTED, Outcome
from reconciler.plan.ledger import LedgerEntry, Reservation
from reconciler.plan.plan import DeleteState, Plan, PlannedAction, plan_id, policy_hash
from reconciler.plan.prediction import Prediction
from reconciler.table.schema import Schema

CREATED = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)
"""Of every plan: a plan that stands is the same after a restart."""
NO_COLUMNS = Schema(0, ())


@dataclass
class SimulatedLake:
    """tables: name -> bytes that its plan would rewrite, 0 for a converged one. calls: by name."""

    tables: dict[Identifier, int]
    saving: Callable[[Identifier], float] = lambda table: 1.0
    done: set[Identifier] = field(default_factory=set)
    calls: Counter[str] = field(default_factory=Counter)

    def pending(self, table: Identifier) -> int:
        return 0 if table in self.done else self.tables[table]


class _NoPlans:
    """No plan is ever stored, so that none gets old."""

    def expire(self, retention: dt.timedelta, kept: frozenset[str]) -> int:
        return 0


@dataclass
class SimulatedHandle(LiveHandle):
    lake: SimulatedLake

    def listing(self) -> list[Identifier]:
        self.lake.calls["listing"] += 1
        return sorted(self.lake.tables)

    def glance(self, table: Identifier) -> Pointer | None:
        self.lake.calls["glance"] += 1
        if table not in self.lake.tables:
            return None
        return Pointer(_uuid(table), f"s3://lake/{table}/{table in self.lake.done}", "")

    def evidence_version(self, uuid: str, max_age: float) -> str:
        return ""

    def look(
        self,
        table: Identifier,
        policy: TableLayoutPolicy,
        fingerprint: str,
        approved: Sequence[str],
        now: dt.datetime,
    ) -> ProposalSummary:
        self.lake.calls["look"] += 1
        size, digest = self.lake.pending(table), policy_hash(policy)
        action = BinPack(inputs=(f"s3://lake/{table}/0.parquet",))
        predicted = Prediction(bytes_in=size, cpu_millis=1000, saving=size)
        items = (PlannedAction("a01", action, DeleteState(0, 0, 0), predicted),) if size else ()
        plan = Plan(
            id=plan_id(_uuid(table), digest, [item.action for item in items]),
            catalog=self.config.name, table=table, table_uuid=_uuid(table), policy_hash=digest,
            policy=policy.name, base_snapshot_id=1, created=CREATED,
            expires=CREATED + dt.timedelta(days=36_500), actions=items,
        )  # fmt: skip
        uri = f"s3://lake/plans/{plan.id}.json"
        return ProposalSummary(
            fingerprint=fingerprint, rests=NOTHING_TO_DO, uuid=_uuid(table),
            format_version=2, plan=plan, pending=items,
            digest=plan.digest() if items else "", uri=uri,
            observed={"files": 48_211, "bytes": "3.4Ti", "snapshotId": "7312984123412341234"},
            plan_status=plan_status(plan, items, plan.digest(), uri, NO_COLUMNS) if items else None,
            saving_per_byte=self.lake.saving(table),
        )  # fmt: skip

    def approved(self, plan_id: str, policy: str) -> bool:
        return False

    def claim(self, table: Identifier, uuid: str) -> str:
        return self.owner()

    def spent(self, policy: str, uuid: str) -> tuple[Spent, ...]:
        return ()

    def open_reservations(self) -> tuple[Reservation, ...]:
        return ()

    def automatic_spent(self, uuid: str, since: dt.datetime, approved: Collection[str]) -> int:
        return 0

    def cut_short(self, uuid: str) -> None:
        return None

    def end_run(self, uuid: str, record: JobRecord) -> Run:
        """Asked when a job has ended: it has done the table's work."""
        table = next(table for table in self.lake.tables if _uuid(table) == uuid)
        size = self.lake.pending(table)
        self.lake.done.add(table)
        outcome = Outcome("attempt", 0, "a01", COMMITTED, None, size, size, 1, 1, 1, 1.0, 1.0)
        at = int(record.written.timestamp() * 1000)
        return (LedgerEntry(uuid, record.plan_id, at, outcome),), None


@dataclass
class SimulatedCatalogs(LiveCatalogs):
    """Every IcebergCatalog that is valid opens onto the same tables."""

    lake: SimulatedLake = field(default_factory=lambda: SimulatedLake({}))

    def _opened(self, document: IcebergCatalog, *rest: Any) -> Any:
        opened = super()._opened(document, *rest)
        if not isinstance(opened, LiveHandle):
            return opened
        opened.store.plans = _NoPlans()  # type: ignore[assignment]
        fields = {name: getattr(opened, name) for name in LiveHandle.__dataclass_fields__}
        return SimulatedHandle(**fields, lake=self.lake)


def _uuid(table: Identifier) -> str:
    digest = hashlib.sha256("\x00".join(table).encode()).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"
