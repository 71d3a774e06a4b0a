"""The step's I/O on one machine: a catalog, a state store, Spark in this process.

Implements `ports.Ports` and `step.Actor`. Spark is started at the first execution only, so that
everything before it needs no JVM.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from reconciler.api.catalog_config import CatalogConfig
from reconciler.api.choices import EngineType
from reconciler.catalog.properties import spark_conf
from reconciler.engines.choice import Chosen
from reconciler.errors import ReconcilerError
from reconciler.loop.engines import CommitTarget, asked_engine, engine_for, require_engine
from reconciler.loop.propose import PlanOnTable
from reconciler.loop.reader import RUN_TIMES, Reader, ratios, rho_key
from reconciler.loop.reservations import fenced_runs
from reconciler.plan.budget import Spent
from reconciler.plan.execution import Event, ExecutionRequest, ExecutionResult
from reconciler.plan.ledger import LedgerEntry, Reservation, charged, may_live, times_of
from reconciler.plan.plan import PlannedAction
from reconciler.queries.rewrite_cost import run_times
from reconciler.queries.table_view import projected_bytes
from reconciler.table.observation import Observation
from reconciler.table.paths import is_local
from reconciler.table.schema import Field

if TYPE_CHECKING:
    from reconciler.engines.backend import Backend
    from reconciler.loop.step import Step

MOST_MEASUREMENTS = 5
"""Measurements of rho kept per table: more hardly change their geometric mean."""

MOST_RUNS = 20
"""Runs whose times are kept, of all tables: the machine may change."""


@dataclass
class LocalActor(Reader):
    """The I/O of steps on one machine, with its own state or a shared one."""

    spark: Any = None
    """A session to use, which the caller closes; without one, a session is started when needed."""
    engine: EngineType | None = None
    """Who carries plans out, by an option; None if that is left to documents."""
    machine_gone: bool = False
    """Whether a person says that the machines of earlier runs are gone."""
    default_engine: ClassVar[EngineType] = EngineType.AUTO
    """Where neither option nor document says who."""
    _started: bool = False

    def spent(self, policy: str, table_uuid: str, besides: str = "") -> tuple[Spent, ...]:
        held = self.store.reservations(None)  # first: as in Reader.automatic_spent
        found = charged(self.store.ledger(None), held, besides)
        now = dt.datetime.now(dt.UTC)
        return tuple(
            item.at(now) for item in found if item.policy == policy or item.table_uuid == table_uuid
        )

    def engine_of(
        self, step: Step, observation: Observation, items: Sequence[PlannedAction]
    ) -> Chosen:
        asked = asked_engine(
            self.engine,
            step.policy.spec.engine.type,
            step.target.catalog.engine,
            EngineType.SPARK if self.spark is not None else self.default_engine,
        )
        place = CommitTarget.of(step.target.catalog, step.policy.spec.safety)
        return engine_for(asked, place, observation, items)

    def execute(
        self,
        request: ExecutionRequest,
        on_event: Callable[[Event], None],
        should_stop: Callable[[], bool],
    ) -> ExecutionResult:
        from reconciler.catalog.read_only import refuse_read_only

        refuse_read_only(request.catalog)
        read = next((path for action in request.actions for path in action.inputs), "")
        starts = self.spark is None and request.engine is EngineType.SPARK
        began = time.monotonic()
        with self._backend(
            request.engine, request.catalog, request.table[-1], read, on_event, works=bool(read)
        ) as backend:
            from reconciler.engines.schedule.execute import execute  # while the pool starts

            start = time.monotonic() - began if starts else None
            done = execute(request, backend, self.store, self.store.lease(), on_event, should_stop)
        return replace(done, start_seconds=start)

    @contextlib.contextmanager
    def _backend(
        self,
        engine: EngineType,
        catalog: CatalogConfig,
        subject: str,
        path: str,
        on_event: Callable[[Event], None],
        *,
        works: bool = False,
    ) -> Iterator[Backend]:
        """Provide the engine. path: of a file that it will read. works: whether it surely has tasks
        to run."""
        if engine is EngineType.SPARK:
            from reconciler.spark.engine import JavaBackend

            yield JavaBackend(self.session(catalog, subject, path))
            return
        from reconciler.engines.local import machine
        from reconciler.engines.local.pool import Pool

        here = machine.of_this("")
        with Pool(here.slots, remote=bool(path) and not is_local(path)) as pool:
            if works:
                pool.begin()
            from reconciler.commit.engine import LocalBackend  # while the pool starts

            yield LocalBackend(pool, here, self.cache, lambda text: on_event(Event("retry", text)))

    def resume(
        self, step: Step, observation: Observation, on_event: Callable[[Event], None]
    ) -> int:
        """Settle what earlier attempts on the table left open, and record the end of runs that were
        killed, or whose machine is said to be gone; return the number of attempts.

        It reads the ledger once, and starts an engine only if something was left.
        """
        count = 0
        if self.store.open_intents(observation.uuid):
            count = self._settle_attempts(step, observation, on_event)
        self._end_dead_runs(observation.uuid)
        if self.machine_gone:
            self._end_fenced_runs(observation.uuid, on_event)
        return count

    def _settle_attempts(
        self, step: Step, observation: Observation, on_event: Callable[[Event], None]
    ) -> int:
        from reconciler.engines.schedule.execute import resume

        target = step.target
        chosen = self.engine_of(step, observation, ())
        require_engine(chosen, observation.name)
        with self._backend(
            chosen.engine, target.catalog, target.identifier[-1], observation.location, on_event
        ) as backend:
            return resume(
                target.catalog, target.identifier, backend, self.store, self.store.lease(), on_event
            )

    def reserve(self, reservation: Reservation) -> None:
        self.store.lease().enter(reservation.table_uuid, reservation.id)
        super().reserve(reservation)

    def settle(self, reservation: Reservation) -> bool:
        settled = super().settle(reservation)
        if settled:
            self.store.lease().leave(reservation.table_uuid, reservation.id)
        return settled

    def _end_dead_runs(self, table_uuid: str) -> None:
        """Record the end of runs whose processes are gone. One that had begun counts in full as of
        now, since nobody knows how far it came; one that had not has spent nothing."""
        lease = self.store.lease()
        dead = lease.dead_runs(table_uuid)
        if not dead:
            return
        found = {one.id: one for one in self.store.reservations(table_uuid) if not one.settled}
        for run in dead:
            held = found.get(run.reservation)
            if held is not None and not run.begun:
                self.store.settle(held)
            elif held is not None and may_live(held, dt.datetime.now(dt.UTC)):
                self.store.end_run(held)
            lease.leave(table_uuid, run.reservation)

    def _end_fenced_runs(self, table_uuid: str, on_event: Callable[[Event], None]) -> None:
        """Record the end of runs that can commit nothing more. They count in full as of now.

        Raises BlockedError while a run of this machine works on the table.
        """
        from reconciler.engines.schedule.lease import holding

        with holding(self.store.lease(), table_uuid, f"end-{uuid.uuid4().hex}"):
            if self.store.open_intents(table_uuid):
                return
            held = self.store.reservations(table_uuid)  # first: what is settled meanwhile stays so
            found = fenced_runs(held, self.store.ledger(table_uuid), dt.datetime.now(dt.UTC))
            for one in found:
                self.store.end_run(one)
        ids = ", ".join(sorted({one.plan_id for one in found}))
        what = f"the run of plan {ids} counts as ended now" if found else "no run is to be ended"
        on_event(Event("ended", f"--machine-gone: {what}"))

    def record_times(self, admitted: Sequence[PlannedAction], result: ExecutionResult) -> None:
        """Keep the times of the last runs; a failure is ignored, as that of a measurement."""
        planned = {item.id: (item.action.work, item.predicted) for item in admitted}
        times = times_of(planned, result)
        if times is None:
            return
        with contextlib.suppress(ReconcilerError):
            known = self.store.note_as(RUN_TIMES, _readable_times) or []
            self.store.set_note(RUN_TIMES, [*known, times.document()][-MOST_RUNS:])

    def measure_rho(self, after: PlanOnTable, result: ExecutionResult) -> None:
        """Read a part of the table with the most frequent projection, a few times in a table's
        life, if Spark runs: starting it for a measurement takes longer than many runs.

        A failed measurement is ignored: the table has been rewritten, and its run has not failed.
        """
        observation, shapes = after.observation, after.queries.workload.shapes
        known = self.store.note_as(rho_key(observation.uuid), ratios) or ()
        known_shapes = [batch for batch in shapes if not batch.full_scan and batch.projection]
        if self.spark is None or not self.spark.started:
            return
        if not known_shapes or len(known) >= MOST_MEASUREMENTS:
            return
        from reconciler.spark.schedule.read_cost import measure_rho

        commonest = max(known_shapes, key=lambda b: (float(b.weight.sum()), b.shape_id))
        known_fields = observation.schema.by_id
        projection = [f for f in commonest.column_sets[0][0] if f in known_fields]
        sizes = projected_bytes(observation.files, projection)
        measured = None
        with contextlib.suppress(ReconcilerError):
            measured = measure_rho(
                self.spark,
                after.target.catalog,
                after.target.identifier,
                result,
                dict(zip(map(str, observation.files.path), sizes.tolist(), strict=True)),
                list(dict.fromkeys(_selectable(known_fields[field]) for field in projection)),
            )
        if measured is not None:
            self.store.set_note(rho_key(observation.uuid), [*known, measured.ratio])

    def session(self, catalog: CatalogConfig, subject: str, path: str) -> Any:
        """Return the Spark session, started at the first call. path: of a file that it will
        read."""
        if self.spark is None:
            from reconciler.spark.session.session import start

            self.spark = start(spark_conf(catalog, path), f"apply {subject}")
            self._started = True
        return self.spark

    def close(self) -> None:
        """Stop the session that was started here."""
        if self._started:
            from reconciler.spark.session.session import stop

            stop(self.spark)
            self.spark, self._started = None, False


def spent_since(entries: Sequence[LedgerEntry], since: dt.datetime) -> int:
    """Return the bytes read for rewriting since a moment."""
    start = int(since.timestamp() * 1000)
    return int(np.sum([e.outcome.read_bytes for e in entries if e.at_ms >= start], dtype=np.int64))


def _selectable(field: Field) -> tuple[str, ...]:
    """Return the path of the column that holds a leaf; a list or map is read as a whole."""
    return field.path[:1] if field.repeated else field.path


def _readable_times(note: Any) -> list[Any]:
    """Return the times of runs that a note holds. Raises if one of them cannot be read."""
    run_times(note)
    return list(note)
