"""Carries out the admitted part of one plan in a driver pod, and reports the result.

The operator has decided; nothing is decided or planned again here. The driver loads exactly that
plan by place and digest, checks that table, claim and plan have not changed, settles what earlier
attempts left, executes only the admitted actions, records, and observes again. A failure is
reported by cause (docs/design/operator.md: failures by cause).
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

from reconciler.api.catalog_config import CatalogConfig
from reconciler.api.choices import EngineType
from reconciler.api.run_document import RecommendRun, RunDocument
from reconciler.catalog.claim import OWNER_PROPERTY
from reconciler.engines.commit.standing import paused_error
from reconciler.errors import (
    AccessDeniedError,
    AuditFailedError,
    BlockedError,
    ConflictError,
    InterruptedByUser,
    LiveBranchesError,
    MemoryExhaustedError,
    PausedError,
    ReconcilerError,
    RedirectedError,
    RolledBackError,
    StalePlanError,
    UnavailableError,
    UnsupportedError,
    UserError,
    VerificationError,
    VetoError,
    first_line,
)
from reconciler.format import plural
from reconciler.kube.termination_message import Cause, LastWords
from reconciler.loop.decision_settings import budgets_of
from reconciler.loop.gating import forbidden_by
from reconciler.loop.local_actor import LocalActor
from reconciler.loop.ports import Target
from reconciler.loop.propose import PlanOnTable, observed_again, place_plan
from reconciler.loop.step import AdmittedWork, CarriedOut, Step, carry_out
from reconciler.plan.actions.state import Validity
from reconciler.plan.budget import Budget, BudgetState, Gate, admit, closed_by
from reconciler.plan.execution import Event, ExecutionResult, figures
from reconciler.plan.gate import charge_of
from reconciler.plan.ledger import Reservation
from reconciler.plan.plan import Plan, PlannedAction, policy_hash
from reconciler.plan.run_ids import run_reservation
from reconciler.plan.standing import Fallen, head_of, judge
from reconciler.table.filetable import FileTable
from reconciler.table.observation import Observation
from reconciler.table.others import paused_because

JVM_EXIT_SECONDS = 5.0
"""A JVM that ran out of memory may still be ending when its connection is lost; the wait for its
end."""
EXECUTOR_SECONDS = 300.0
"""Time in which the first executor must have started."""


class Plans(Protocol):
    """Where plans are (state.plan_store)."""

    def get(self, uri: str, digest: str) -> Plan: ...


@dataclass(kw_only=True)
class DriverActor(LocalActor):
    """The step's I/O in a driver pod: shared state, and one given plan."""

    plan: Plan
    """The plan that the run document names."""
    attempt: int
    """The operator's number of this run."""
    start: Callable[[CatalogConfig, str], Any]
    """Creates the Spark session of a catalog, with the given name of the application."""
    stopping: Callable[[], bool]
    """Returns whether the pod was asked to end."""
    default_engine: ClassVar[EngineType] = EngineType.SPARK
    begun: int = field(default_factory=lambda: time.time_ns() // 1000)
    """Start of this run in epoch microseconds. A TableLayout that is deleted and created again
    counts attempts at the same plan from 1 again; this time keeps a run from settling another's
    reservation."""

    def put_plan(self, plan: Plan) -> None:
        """Do nothing: the operator has published the plan."""

    def record_start(
        self, plan: Plan, actions: Sequence[PlannedAction], files: FileTable, policy: str
    ) -> None:
        """Record the start once per action, however many attempts it takes."""
        known = self.store.old_zone_maps_of((plan.id,))
        fresh = [item for item in actions if (plan.id, item.id) not in known]
        super().record_start(plan, fresh, files, policy)

    def reserve(self, reservation: Reservation) -> None:
        super().reserve(self._mine(reservation))

    def settle(self, reservation: Reservation) -> bool:
        return super().settle(self._mine(reservation))

    @property
    def reservation_id(self) -> str:
        """The id of what this run reserves."""
        return run_reservation(self.plan.id, self.attempt, self.begun)

    def _mine(self, reservation: Reservation) -> Reservation:
        return replace(reservation, id=self.reservation_id)

    def measure_rho(self, after: PlanOnTable, result: ExecutionResult) -> None:
        """Measure rho, unless the pod is ending: the grace period is for the commit."""
        if not self.stopping():
            super().measure_rho(after, result)

    def session(self, catalog: CatalogConfig, subject: str, path: str) -> Any:
        """Return the session; the job image has the jars of every store, so the path does not
        matter."""
        if self.spark is None:
            self.spark = self.start(catalog, f"job {subject}")
            self._started = True
        return self.spark


@dataclass(frozen=True)
class Driven:
    """The result of a run."""

    plan: Plan
    """The plan that the run document names."""
    result: CarriedOut[PlanOnTable] | None
    """What was carried out; None if nothing of what was admitted remained to be done."""
    settled: int
    """Number of earlier attempts that were settled."""

    @property
    def execution(self) -> ExecutionResult | None:
        return None if self.result is None else self.result.result


def load_plan(run: RunDocument, plans: Plans) -> Plan:
    """Return the plan of a run, checked against what was admitted. Raises UserError if it
    differs."""
    plan = plans.get(run.plan_uri, run.plan_digest)
    known = {item.id for item in plan.actions}
    strangers = [item for item in run.action_ids if item not in known]
    settles_only = not run.action_ids
    wrong = {
        "its digest": plan.digest() != run.plan_digest,
        "its id": plan.id != run.plan_id,
        "its table": plan.table != run.table,
        "its catalog": plan.catalog != run.catalog.spec.catalog_name,
        "its policy": not settles_only and plan.policy_hash != policy_hash(run.policy),
        f"action {', '.join(strangers)}": bool(strangers),
    }
    differing = [what for what, differs in wrong.items() if differs]
    if differing:
        raise UserError(
            f"plan {run.plan_id} differs from the admitted plan: {', '.join(differing)}",
            details=(f"read from {run.plan_uri}", "Nothing was done."),
            do="remove the stored plan; the operator proposes a new one",
        )
    return plan


def drive(
    run: RunDocument,
    catalog: CatalogConfig,
    actor: DriverActor,
    on_event: Callable[[Event], None],
    should_stop: Callable[[], bool],
    clock: Callable[[], dt.datetime],
) -> Driven:
    """Carry out the admitted actions of the actor's plan. Raises errors that `last_words` explains.

    Without admitted actions, it only settles what earlier attempts left open.
    """
    plan = actor.plan
    step = Step(Target(catalog, run.table), run.policy, plan.policy, clock, in_cluster=True)
    observation = actor.observe(step.target)
    _check_table(run, plan, observation, clock())
    settled = actor.resume(step, observation, on_event)
    if settled:
        observation = actor.observe(step.target)
    if should_stop():
        raise InterruptedByUser("stopped before the work began")
    if not run.action_ids or not _remaining(run, actor, observation, clock()):
        return Driven(plan, None, settled)
    before = place_plan(plan, step.target, run.policy, actor, clock())
    if not _remaining(run, actor, before.observation, clock()):  # another commit came in between
        return Driven(plan, None, settled)
    admitted = [item for item in before.pending if item.id in run.action_ids]
    forbidden = forbidden_by(before.observation.metadata.bounds, admitted, clock())
    if forbidden:
        raise PausedError(
            f"CatalogPolicy: {before.observation.name}: {forbidden}",
            details=("Nothing was done.",),
            do="change the policy in the catalog, if that is not meant",
        )
    decision = Gate(len(admitted), "", "admitted by the operator", (_limits(run),))
    work = AdmittedWork(before, admitted, decision)
    result = carry_out(
        step, work, actor, on_event, stop_when_closed(run, should_stop, clock),
        still=lambda _: still_admitted(run, work, actor, clock()),
        look=lambda: observed_again(before, actor, clock()),
    )  # fmt: skip
    return Driven(plan, result, settled)


def still_admitted(
    run: RunDocument, work: AdmittedWork[PlanOnTable], actor: DriverActor, now: dt.datetime
) -> Gate:
    """Ask the budgets once more beside this run's own reservation: `layoutctl apply --shared` may
    have reserved since the operator asked. What the operator left for repeated work stays a
    limit."""
    budgets = budgets_of(run.policy.spec)
    if not budgets:
        return work.decision
    charges = [charge_of(item) for item in work.actions]
    spent = actor.spent(run.policy_key, actor.plan.table_uuid, actor.reservation_id)
    found = admit(charges, budgets, spent, now)
    return replace(found, budgets=(*work.decision.budgets, *found.budgets))


def stop_when_closed(
    run: RunDocument, should_stop: Callable[[], bool], clock: Callable[[], dt.datetime]
) -> Callable[[], bool]:
    """Return a check that also stops the run while a schedule allows nothing, even if no operator
    is there to stop it."""
    budgets = [one for one in budgets_of(run.policy.spec) if one.schedule is not None]

    def stop() -> bool:
        return should_stop() or bool(closed_by(budgets, clock()))

    return stop if budgets else should_stop


def _check_table(run: RunDocument, plan: Plan, observation: Observation, now: dt.datetime) -> None:
    found = judge(plan, head_of(observation), now)
    if found.fallen is Fallen.OTHER_TABLE:
        raise _stale(plan, found.why)
    paused = paused_because(observation.properties)
    if paused:
        raise paused_error(observation.name, paused)
    owner = observation.properties.get(OWNER_PROPERTY, "")
    if owner != run.owner:
        raise _unclaimed(observation.name, owner, run.owner)


def _unclaimed(name: str, owner: str, expected: str) -> VetoError:
    return VetoError(
        f"OwnedElsewhere: {name} is claimed by {owner or 'no one'}, not by {expected}",
        details=(f"The table property {OWNER_PROPERTY} says so. Nothing more was done.",),
        do="let one operator maintain the table, or release the other's claim",
    )


def claim_check(run: RunDocument, owner_now: Callable[[], str]) -> Callable[[], None]:
    """Return a check that raises if another owner claims the table; called while the attempt
    runs."""

    def check() -> None:
        try:
            owner = owner_now()
        except UnavailableError:
            return  # the commit itself will show whether the catalog is back
        if owner != run.owner:
            raise _unclaimed(".".join(run.table), owner, run.owner)

    return check


def _remaining(
    run: RunDocument, actor: DriverActor, observation: Observation, now: dt.datetime
) -> bool:
    """Return whether some admitted action is still pending. Raises StalePlanError if the plan is
    void; what other writers made of its inputs is recorded then."""
    plan = actor.plan
    found = judge(plan, head_of(observation), now)
    pending = any(found.states[key].validity is Validity.PENDING for key in run.action_ids)
    if found.fallen in (None, Fallen.DONE) or (found.fallen is Fallen.TOO_OLD and not pending):
        return pending
    if found.fallen is Fallen.LOST:
        states = found.states
        lost = [one.action for one in plan.actions if states[one.id].validity is Validity.LOST]
        actor.record_conflicts(plan.table_uuid, lost, ())
    raise _stale(plan, found.why, *found.details)


def _stale(plan: Plan, why: str, *details: str) -> StalePlanError:
    return StalePlanError(
        f"plan {plan.id} is no longer valid: {why}",
        details=details,
        do="nothing: the operator makes a new plan",
    )


def _limits(run: RunDocument) -> BudgetState:
    """Return what was reserved, as a budget of this run alone: repeated work must fit it too."""
    cpu = None if run.cpu_limit_seconds is None else float(run.cpu_limit_seconds)
    return BudgetState(Budget("admitted"), True, 0, 0.0, run.bytes_limit, cpu, None)


# The report of a run

_CAUSES: tuple[tuple[type[BaseException], Cause], ...] = (
    (InterruptedByUser, Cause.STOPPED),
    (VerificationError, Cause.VERIFICATION_FAILED),
    (MemoryExhaustedError, Cause.OUT_OF_MEMORY),
    (MemoryError, Cause.OUT_OF_MEMORY),
    (StalePlanError, Cause.CONFLICT),
    (ConflictError, Cause.CONFLICT),
    (UnsupportedError, Cause.UNSUPPORTED),
    (AccessDeniedError, Cause.ACCESS_DENIED),
    (PausedError, Cause.STOPPED),
    (RolledBackError, Cause.ROLLED_BACK),
    (LiveBranchesError, Cause.LIVE_BRANCHES),
    (AuditFailedError, Cause.AUDIT_FAILED),
    (VetoError, Cause.USER_ERROR),
    (RedirectedError, Cause.UNAVAILABLE),
    (UserError, Cause.USER_ERROR),
    (BlockedError, Cause.UNAVAILABLE),
    (UnavailableError, Cause.UNAVAILABLE),
)
"""The first match counts: subclasses come before their base classes."""

MORE_MEMORY = (
    "raise spec.engine.executors.memory, or spec.engine.driver.memory if it was the driver"
)


def last_words(error: BaseException, spark: Any = None) -> LastWords:
    """Return why a run ended, by cause. spark: its session, whose JVM is asked how it ended."""
    cause = next((c for kind, c in _CAUSES if isinstance(error, kind)), Cause.UNKNOWN)
    message, do = _message_of(error)
    if cause in (Cause.UNAVAILABLE, Cause.UNKNOWN) and spark is not None:
        from reconciler.spark.session.session import jvm_end

        ended = jvm_end(spark, JVM_EXIT_SECONDS)
        if ended is not None:
            cause = Cause.OUT_OF_MEMORY if ended.out_of_memory else Cause.UNAVAILABLE
            message = ". ".join((message, f"The driver's JVM ended with code {ended.code}"))
    return LastWords(cause, message, MORE_MEMORY if cause is Cause.OUT_OF_MEMORY else do)


def _message_of(error: BaseException) -> tuple[str, str]:
    """Return what happened, and what to do about it: no text that an engine made, because it may
    name values of rows and this one is stored."""
    if isinstance(error, ReconcilerError):
        details = [detail.rstrip(".") for detail in error.details]
        more = ["more is in the log of the job"] if error.said else []
        return ". ".join((error.what, *details, *more)), error.do or ""
    return f"{type(error).__name__}; its text is in the log of the job", ""


def said_by(error: BaseException) -> tuple[str, ...]:
    """Return what an engine said, for the log of the job alone."""
    if isinstance(error, ReconcilerError):
        return error.said
    try:
        return (first_line(str(error)),)
    except Exception:  # the text of a Java exception is read from its JVM, which may be gone
        return ()


def shortfall(driven: Driven) -> LastWords | None:
    """Return the message of a run that raised nothing but did not do all of it; None for
    success."""
    done = driven.execution
    if driven.result is not None and done is None:
        return LastWords(Cause.STOPPED, f"nothing was begun: {driven.result.gate.message}")
    if done is None or done.done or done.waiting:
        return None
    left = [action for action in done.actions if action.state is not Validity.DONE]
    if done.stopped:
        commits, rest = plural(done.commits, "commit"), plural(len(left), "action")
        message = f"stopped at a commit boundary: {commits}, {rest} left"
        return LastWords(Cause.STOPPED, message)
    shown = "; ".join(f"{a.action_id} {a.state.value}: {a.detail or 'not done'}" for a in left[:5])
    message = f"{len(left)} of {plural(len(done.actions), 'action')} not done: {shown}"
    return LastWords(Cause.CONFLICT, message, "nothing: the operator plans the rest again")


def summary(run: RunDocument, driven: Driven) -> dict[str, Any]:
    """Return what a run did, in raw bytes and seconds."""
    done, result = driven.execution, driven.result
    return {
        "planId": run.plan_id,
        "attempt": run.attempt,
        "settled": driven.settled,
        **figures(done),
        "state": "Pending" if result and result.after.pending else "Done",
    }


def session_starter(
    run: RunDocument | RecommendRun, environ: Mapping[str, str], scratch: Path
) -> Callable[[CatalogConfig, str], Any]:
    """Return how this process starts Spark: with executors in pods, or, outside of a cluster, in
    itself."""
    import json

    from reconciler.catalog.properties import spark_conf
    from reconciler.kube.pods import executor_template
    from reconciler.spark.session import session
    from reconciler.spark.session.kubernetes import driver_pod, kubernetes_conf

    pod, jobs = driver_pod(environ), run.catalog.spec.jobs

    def start(catalog: CatalogConfig, app: str) -> Any:
        conf = spark_conf(catalog)
        if pod is None:
            return session.start(conf, app, apart=True)
        template = scratch / "executor.json"
        template.write_text(
            json.dumps(
                executor_template(pod.layout, pod.executor_service_account, jobs.pod_template)
            ),
            encoding="utf-8",
        )
        conf.update(kubernetes_conf(pod, run.policy.spec.engine, jobs, str(template)))
        spark = session.start(conf, app, apart=True)
        try:
            session.await_executors(spark, EXECUTOR_SECONDS)
        except BaseException:
            session.stop(spark)
            raise
        return spark

    return start
