"""The step's I/O on one machine: a catalog, the local state store, Spark in this process.

Implements `propose.Ports` and `step.Actor`. Spark is started at the first execution only, so that
everything before it needs no JVM.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reconciler.catalog.footers import read_row_groups
from reconciler.catalog.observe import observe_table
from reconciler.catalog.properties import spark_conf
from reconciler.catalog.sketch import sample_rows
from reconciler.catalog.state import StateStore
from reconciler.core.budget import Spent
from reconciler.core.cost import projected_bytes
from reconciler.core.coverage import coverage
from reconciler.core.execution import CatalogConfig, Event, ExecutionRequest, ExecutionResult
from reconciler.core.filetable import FileTable, Int64
from reconciler.core.ledger import LedgerEntry, ReadCheck, Reservation, charged
from reconciler.core.moving import with_detected_movement
from reconciler.core.observation import Observation
from reconciler.core.plan import Plan, PlannedAction
from reconciler.core.sample import RowGroups, RowSample
from reconciler.core.workload import batch_fragments
from reconciler.loop.evidence import CoverageInfo
from reconciler.loop.propose import Evidence, Proposal, Target
from reconciler.loop.settings import History

MOST_MEASUREMENTS = 5
"""Measurements of rho kept per table: their geometric mean hardly moves after that."""

OWNER_PROPERTY = "layout.owner"
"""Table property by which an operator claims a table; its value names the owner."""


@dataclass
class LocalActor:
    """I/O of steps on one machine. timeout: seconds for the catalog to answer.

    spark: a session to use; it stays the caller's. Without one, one is started at need.
    """

    store: StateStore
    cache: Path
    timeout: float = 30.0
    spark: Any = None
    _started: bool = False

    def observe(self, target: Target) -> Observation:
        return observe_table(target.catalog, target.identifier, self.cache, timeout=self.timeout)

    def evidence(self, observation: Observation) -> Evidence:
        fragments = with_detected_movement(
            self.store.fragments(observation.uuid), observation.schema
        )
        workload = batch_fragments(
            fragments, tuple(sorted(self.store.skips(observation.uuid).items()))
        )
        found = coverage(workload, observation.files)
        return Evidence(workload, CoverageInfo(found.share, found.basis))

    def footers(self, target: Target, observation: Observation, files: Int64) -> RowGroups:
        return read_row_groups(
            target.catalog,
            observation.files,
            files,
            identifier=target.identifier,
            timeout=self.timeout,
        )

    def sketch(
        self, target: Target, observation: Observation, files: Int64, columns: Sequence[int]
    ) -> RowSample:
        return sample_rows(
            target.catalog,
            observation.files,
            files,
            columns,
            store=self.store,
            table_uuid=observation.uuid,
            identifier=target.identifier,
            timeout=self.timeout,
        )

    def history(self, table_uuid: str) -> History:
        return History(
            entries=self.store.ledger(table_uuid),
            checks=self.store.read_checks(table_uuid),
            rho=tuple(self.store.note(_rho_key(table_uuid)) or ()),
        )

    def standing_plan(self, table_uuid: str, policy_hash: str) -> Plan | None:
        return self.store.standing_plan(table_uuid, policy_hash)

    def put_plan(self, plan: Plan) -> None:
        self.store.put_plan(plan)

    def approved(self, plan_id: str) -> bool:
        return self.store.approved(plan_id)

    def owner(self, observation: Observation) -> str:
        return observation.properties.get(OWNER_PROPERTY, "")

    def automatic_spent(self, table_uuid: str, since: dt.datetime) -> int:
        found = charged(self.store.ledger(table_uuid), self.store.reservations(table_uuid))
        return sum(
            item.spent.rewrite_bytes
            for item in found
            if item.spent.at >= since and not self.store.approved(item.plan_id)
        )

    def spent(self, policy: str, table_uuid: str, besides: str = "") -> tuple[Spent, ...]:
        found = charged(self.store.ledger(None), self.store.reservations(None), besides)
        return tuple(
            item.spent for item in found if item.policy == policy or item.table_uuid == table_uuid
        )

    def reserve(self, reservation: Reservation) -> None:
        self.store.reserve(reservation)

    def settle(self, reservation: Reservation) -> None:
        if not self.store.open_intents(reservation.table_uuid):
            self.store.settle(reservation)

    def record_start(
        self, plan: Plan, action: PlannedAction, files: FileTable, policy: str
    ) -> None:
        self.store.record_prediction(plan.id, action.id, {**action.predicted, "policy": policy})
        if len(files):
            self.store.record_old_zone_maps(plan.id, action.id, files)

    def record_check(self, table_uuid: str, check: ReadCheck) -> None:
        self.store.record_read_check(table_uuid, check)

    def outputs(self, table_uuid: str, plan_id: str) -> tuple[str, ...]:
        """Data files that the plan's committed batches added."""
        committed = {
            (entry.outcome.attempt_id, entry.outcome.batch)
            for entry in self.store.ledger(table_uuid)
            if entry.committed and entry.plan_id == plan_id
        }
        return tuple(
            path
            for intent in self.store.intents(table_uuid)
            if (intent.attempt_id, intent.batch) in committed
            for path in intent.outputs
        )

    def execute(
        self,
        request: ExecutionRequest,
        on_event: Callable[[Event], None],
        should_stop: Callable[[], bool],
    ) -> ExecutionResult:
        from reconciler.jobs.rewrite import execute

        session = self.session(request.catalog, request.table[-1])
        return execute(request, session, self.store, self.store.lease(), on_event, should_stop)

    def resume(
        self, target: Target, observation: Observation, on_event: Callable[[Event], None]
    ) -> int:
        """Settles what earlier attempts on the table left open; how many there were.

        Costs one look at the ledger, and a Spark session only when something was left.
        """
        if not self.store.open_intents(observation.uuid):
            return 0
        from reconciler.jobs.rewrite import resume

        return resume(
            target.catalog,
            target.identifier,
            self.session(target.catalog, target.identifier[-1]),
            self.store,
            self.store.lease(),
            on_event,
        )

    def measure_rho(self, after: Proposal, result: ExecutionResult) -> None:
        """Reads a part of the table by the commonest projection, a few times in a table's life."""
        observation, shapes = after.observation, after.evidence.workload.shapes
        known = list(self.store.note(_rho_key(observation.uuid)) or ())
        known_shapes = [batch for batch in shapes if not batch.full_scan and batch.projection]
        if self.spark is None or not known_shapes or len(known) >= MOST_MEASUREMENTS:
            return
        from reconciler.jobs.read_cost import measure_rho

        commonest = max(known_shapes, key=lambda b: (float(b.weight.sum()), b.shape_id))
        sizes = projected_bytes(observation.files, commonest.projection)
        measured = measure_rho(
            self.spark,
            after.target.catalog,
            after.target.identifier,
            result,
            dict(zip(map(str, observation.files.path), sizes.tolist(), strict=True)),
            [observation.schema.name_of(field) for field in commonest.projection],
        )
        if measured is not None:
            self.store.set_note(_rho_key(observation.uuid), [*known, measured.ratio])

    def session(self, catalog: CatalogConfig, subject: str) -> Any:
        """The Spark session, started at the first call."""
        if self.spark is None:
            from reconciler.jobs.session import start

            self.spark = start(spark_conf(catalog), f"apply {subject}")
            self._started = True
        return self.spark

    def close(self) -> None:
        """Stops the session that was started here."""
        if self._started:
            from reconciler.jobs.session import stop

            stop(self.spark)
            self.spark, self._started = None, False


def _rho_key(table_uuid: str) -> str:
    return f"rho:{table_uuid}"


def spent_since(entries: Sequence[LedgerEntry], since: dt.datetime) -> int:
    """Bytes read for rewriting since a moment."""
    start = int(since.timestamp() * 1000)
    return int(np.sum([e.outcome.read_bytes for e in entries if e.at_ms >= start], dtype=np.int64))
