"""What live jobs hold of the budgets, by their write-aheads and by the ledger."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reconciler.operator.job_record import JobRecord, own_reservation, unsettled_of, uuid_of
from reconciler.operator.ports import CatalogHandle
from reconciler.plan.budget import Spent
from reconciler.plan.ledger import Reservation


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a gate needs of a catalog's state. Implements `gating.GateFacts`."""

    handle: CatalogHandle
    """The catalog."""
    reserved: tuple[Spent, ...]
    """What other live jobs reserve."""

    def approved(self, plan_id: str, policy: str) -> bool:
        return self.handle.approved(plan_id, policy)

    def spent(self, policy: str, table_uuid: str, besides: str = "") -> tuple[Spent, ...]:
        return (*self.reserved, *self.handle.spent(policy, table_uuid))

    def automatic_spent(
        self, table_uuid: str, since: dt.datetime, approved: Collection[str], besides: str = ""
    ) -> int:
        return self.handle.automatic_spent(table_uuid, since, approved)


def unsettled(layouts: Sequence[Mapping[str, Any]]) -> list[tuple[str, JobRecord]]:
    """Return (table uuid, record) of the TableLayouts whose job is not settled."""
    return [
        (uuid_of(body.get("status")), record)
        for body in layouts
        if (record := unsettled_of(body.get("status"))) is not None
    ]


def held(
    records: Sequence[tuple[str, JobRecord]], recorded: Sequence[Reservation], now: dt.datetime
) -> tuple[Spent, ...]:
    """Return what write-ahead records reserve, except those whose driver has since reserved in the
    ledger.

    The records must be read before the ledger: in between a driver may only add to it.
    """
    open_by_table: dict[str, list[Reservation]] = {}
    for item in recorded:
        open_by_table.setdefault(item.table_uuid, []).append(item)
    return tuple(
        Spent(now, record.rewrite_bytes, float(record.cpu_seconds))
        for uuid, record in records
        if own_reservation(record, open_by_table.get(uuid, ())) is None
    )
