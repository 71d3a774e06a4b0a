"""One step for one table: propose, pass the gate, execute, observe again; and the loop of steps.

The CLI and the operator call these functions, so that a plan, the gate and "converged" mean the
same in both. Success is not that a job ended, but that a new observation leaves nothing above
threshold.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Generic, Protocol, TypeVar

from reconciler.advisor.advice import MISSED
from reconciler.api.choices import EngineType
from reconciler.api.documents import TableLayoutPolicy
from reconciler.api.support import not_acted_on, unheld
from reconciler.engines.choice import Chosen
from reconciler.errors import StalePlanError
from reconciler.format import count, plural
from reconciler.loop.audits import waits_under
from reconciler.loop.engines import require_engine
from reconciler.loop.gating import (
    Approvals,
    GateFacts,
    PendingWork,
    forbidden_by,
    gate_input,
    policy_key,
)
from reconciler.loop.ports import Ports, Target
from reconciler.loop.propose import PlanOnTable, PlanRequest, Proposal, propose
from reconciler.loop.read_checks import read_check
from reconciler.loop.reservations import Reserving, extending, reservation_for, reserved
from reconciler.loop.waiting import excepted, refused, waiting
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.state import Validity
from reconciler.plan.budget import Gate
from reconciler.plan.execution import (
    COMMITTED,
    CONFLICT,
    WAITING,
    Audit,
    Event,
    ExecutionRequest,
    ExecutionResult,
)
from reconciler.plan.gate import gate
from reconciler.plan.ledger import ReadCheck
from reconciler.plan.plan import Plan, PlannedAction, policy_hash
from reconciler.table.catalog_policies import COMPACTION
from reconciler.table.damage import damage_of
from reconciler.table.filetable import FileTable
from reconciler.table.observation import Observation
from reconciler.table.others import other_optimizer, paused_because

CONVERGED = "Converged"
PENDING = "Pending"
BLOCKED = "Blocked"
IDLE = "Idle"

NOTHING = "nothing above threshold"
NAMED = 3
"""Actions of a table that is pending that its message names."""

MAX_REPEATS = 2
"""Maximum executions of one plan without effect; then the loop stops and reports it."""
MOST_STEPS = 20
"""Steps that `run_until_converged` runs at most."""


class Actor(Ports, GateFacts, Reserving, Protocol):
    """The I/O of an execution, on top of a proposal's and of the gate's."""

    def owner(self, observation: Observation) -> str:
        """Return who else claims the table, "" if no one does."""
        ...

    def record_start(
        self, plan: Plan, actions: Sequence[PlannedAction], files: FileTable, policy: str
    ) -> None:
        """Record the predictions and the inputs' zone maps before the work starts. files: all of
        the table."""
        ...

    def resume(
        self, step: Step, observation: Observation, on_event: Callable[[Event], None]
    ) -> int:
        """Settle what earlier attempts on the table left open; return their number."""
        ...

    def measure_rho(self, after: PlanOnTable, result: ExecutionResult) -> None:
        """Measure and store the cost of rewriting compared with reading, if it can be measured."""
        ...

    def record_times(self, admitted: Sequence[PlannedAction], result: ExecutionResult) -> None:
        """Store what the execution took, for the forecasts of later plans of any table."""
        ...

    def record_written(self, observation: Observation) -> None:
        """Store what commits of ours added to the table, to measure later what they save."""
        ...

    def record_check(self, table_uuid: str, check: ReadCheck) -> None: ...

    def record_conflicts(
        self, table_uuid: str, lost: Collection[Action], done: Collection[Action]
    ) -> None:
        """Count an execution that lost work to other writers, or end the count (plan.conflicts)."""
        ...

    def engine_of(
        self, step: Step, observation: Observation, items: Sequence[PlannedAction]
    ) -> Chosen:
        """Return who carries the actions out."""
        ...

    def execute(
        self,
        request: ExecutionRequest,
        on_event: Callable[[Event], None],
        should_stop: Callable[[], bool],
    ) -> ExecutionResult: ...


@dataclass(frozen=True, slots=True)
class TableState:
    """The state of a table against its policy."""

    state: str
    """CONVERGED, PENDING, BLOCKED or IDLE."""
    reason: str
    """Reason of a Converged that is False, "" if the table is converged."""
    message: str
    """Message of Converged."""


@dataclass(frozen=True)
class StepResult:
    """What one step on one table did."""

    before: Proposal
    """The proposal that the step was made from."""
    gate: Gate
    """What the gate admitted, and why not more."""
    result: ExecutionResult | None
    """The result of the execution; None if nothing was executed."""
    after: Proposal
    """The proposal made from the observation after the execution."""
    state: TableState
    """The state of the table after the step."""
    check: ReadCheck | None = None
    """What the recorded queries read before and after; None if nothing was measured."""


@dataclass(frozen=True)
class Step:
    """The fixed part of every step on one table."""

    target: Target
    """The table's catalog and name."""
    policy: TableLayoutPolicy
    """The policy that governs the table."""
    policy_name: str
    """The policy's name as plans print it."""
    clock: Callable[[], dt.datetime]
    """Returns the time."""
    in_cluster: bool = False
    """Whether the operator makes the step and pods carry it out. It acts on more fields of a policy
    than `layoutctl` does."""

    @cached_property
    def policy_hash(self) -> str:
        """Return the policy's hash, which is part of a plan's id."""
        return policy_hash(self.policy)

    @cached_property
    def not_acted_on(self) -> tuple[str, ...]:
        """The fields of the policy that have no effect on this step."""
        ignored = not_acted_on(self.policy)
        return tuple(unheld(ignored) if self.in_cluster else ignored)

    @property
    def cores(self) -> int:
        """Return the number of tasks that run at once."""
        executors = self.policy.spec.engine.executors
        here = os.cpu_count() or 1
        return max(1, executors.instances * executors.cores) if self.in_cluster else here

    @property
    def executor_memory(self) -> int:
        """Return the bytes of memory that an executor has."""
        return self.policy.spec.engine.executors.memory_bytes

    def propose(
        self, ports: Ports, *, refresh: bool = False, show_literals: bool = False
    ) -> Proposal:
        """Return a proposal for the table as it is now."""
        return propose(self.wanted(show_literals), ports, self.clock(), refresh=refresh)

    def wanted(self, show_literals: bool = False) -> PlanRequest:
        """Return what a plan of the table is made for."""
        return PlanRequest(
            target=replace(self.target, memory_bytes=self.executor_memory),
            policy=self.policy,
            policy_hash=self.policy_hash,
            policy_name=self.policy_name,
            not_acted_on=self.not_acted_on,
            cores=self.cores,
            show_literals=show_literals,
        )


def judge_gate(
    step: Step, proposal: Proposal, actor: Actor, approvals: Approvals, besides: str = ""
) -> Gate:
    """Return the gate's decision on a proposal now. besides: a reservation that does not count."""
    work = PendingWork(
        plan=proposal.plan,
        actions=proposal.pending,
        table_uuid=proposal.observation.uuid,
        paused=paused_because(proposal.observation.properties),
        owner=actor.owner(proposal.observation),
        other=other_optimizer(proposal.observation, int(step.clock().timestamp() * 1000)),
        forbidden=forbidden_by(
            proposal.observation.metadata.bounds, proposal.pending, step.clock()
        ),
        queries_too_old=proposal.queries_too_old,
    )
    return gate(gate_input(step.policy, work, actor, approvals, step.clock(), besides))


def state_of(proposal: Proposal, decision: Gate | None) -> TableState:
    """Return the state. Converged = no action admitted or blocked after gate and floor, and no
    failing objective."""
    if proposal.pending:
        against = refused(proposal.observation, proposal.policy)
        refusal = f"; {against}" if against else ""
        if decision is not None and decision.reason and not decision.open:
            return TableState(BLOCKED, decision.reason, decision.message + refusal)
        return TableState(PENDING, "TablesPending", _to_do(proposal.pending) + refusal)
    damage = damage_of(proposal.observation)
    if damage:
        return TableState(IDLE, "TableDamaged", damage)
    forbidden = proposal.observation.metadata.bounds.forbids((COMPACTION,))
    if forbidden:
        return TableState(IDLE, "CatalogPolicy", forbidden)
    held = waiting(proposal.advice, proposal.observation, proposal.settings)
    also = held.text() if held else "", excepted(proposal.advice)
    waits = "; ".join(part for part in also if part)
    failing = [item for item in proposal.advice.objectives if item.state in MISSED]
    if failing:
        messages = [f"{item.name}: {item.message}" for item in failing] + ([waits] if waits else [])
        return TableState(IDLE, "ObjectiveUnreachable", "; ".join(messages))
    return TableState(CONVERGED, "", f"nothing to do now; {waits}" if waits else NOTHING)


def _to_do(actions: Sequence[PlannedAction]) -> str:
    named = "; ".join(item.predicted.label or item.action.verb for item in actions[:NAMED])
    more = len(actions) - NAMED
    return f"{plural(len(actions), 'action')} to do: {named}" + (
        f"; and {count(more)} more" if more > 0 else ""
    )


def run_step(
    step: Step,
    actor: Actor,
    approvals: Approvals,
    on_event: Callable[[Event], None],
    should_stop: Callable[[], bool],
    proposal: Proposal | None = None,
) -> StepResult:
    """Run one step: propose (unless a proposal is given), pass the gate, execute what is admitted,
    observe again."""
    before = proposal or step.propose(actor)
    decision = judge_gate(step, before, actor, approvals)
    if not decision.open or should_stop():
        return StepResult(before, decision, None, before, state_of(before, decision))
    admitted = before.pending[: decision.count]

    def still(reservation: str) -> Gate:
        """Check the gate again: another process may have reserved meanwhile."""
        if not decision.budgets and step.policy.spec.approval.automatic_up_to is None:
            return decision
        return judge_gate(step, before, actor, approvals, reservation)

    done = carry_out(
        step, AdmittedWork(before, admitted, decision), actor, on_event, should_stop,
        still=still, look=lambda: step.propose(actor),
    )  # fmt: skip
    if done.result is None:
        return StepResult(before, done.gate, None, before, state_of(before, done.gate))
    later = judge_gate(step, done.after, actor, approvals)
    state = state_of(done.after, later)
    return StepResult(before, decision, done.result, done.after, state, done.check)


Seen = TypeVar("Seen", bound=PlanOnTable)


@dataclass(frozen=True)
class CarriedOut(Generic[Seen]):
    """What became of admitted work."""

    gate: Gate
    """The answer that admitted the work; where the gate closed again, the answer that closed it."""
    result: ExecutionResult | None
    """The result of the execution; None if the gate closed again and nothing was run."""
    after: Seen
    """The table as it was observed after the execution."""
    check: ReadCheck | None = None
    """What the recorded queries read before and after; None if nothing was measured."""


@dataclass(frozen=True)
class AdmittedWork(Generic[Seen]):
    """The part of a plan that may be carried out now."""

    before: Seen
    """The plan on the table as it is."""
    actions: Sequence[PlannedAction]
    """The actions, in plan order."""
    decision: Gate
    """The gate's answer that admits them."""


def carry_out(
    step: Step,
    work: AdmittedWork[Seen],
    actor: Actor,
    on_event: Callable[[Event], None],
    should_stop: Callable[[], bool],
    *,
    still: Callable[[str], Gate],
    look: Callable[[], Seen],
) -> CarriedOut[Seen]:
    """Execute exactly what was admitted, record the outcomes, observe again.

    `run_step` calls it after its own gate, a driver pod after the operator's. still: the gate once
    more, when the reservation of that id has been written. look: observes the table afterwards.
    """
    before, admitted, decision = work.before, work.actions, work.decision
    actor.put_plan(before.plan)
    actor.record_start(before.plan, admitted, before.observation.files, policy_key(step.policy))
    reservation = reservation_for(before, admitted, policy_key(step.policy))
    with reserved(actor, reservation):
        again = still(reservation.id)
        if again.count < decision.count:
            return CarriedOut(again, None, before)
        engine = actor.engine_of(step, before.observation, admitted)
        require_engine(engine, before.observation.name)
        request = request_for(step, before, admitted, again, engine.engine)
        more = extending(actor, reservation, lambda: still(reservation.id))
        result = actor.execute(replace(request, reserve=more), on_event, should_stop)
    _record_conflicts(before, admitted, result, actor)
    after = look()
    if result.commits:
        actor.record_written(after.observation)
        actor.record_times(admitted, result)
        actor.measure_rho(after, result)
    check = read_check(before, after, result, actor, step.clock())
    if check is not None:
        actor.record_check(before.observation.uuid, check)
    return CarriedOut(decision, result, after, check)


def _record_conflicts(
    before: PlanOnTable, admitted: Sequence[PlannedAction], result: ExecutionResult, actor: Actor
) -> None:
    done = {one.action_id for one in result.outcomes if one.state in (COMMITTED, WAITING)}
    lost = {one.action_id for one in result.outcomes if one.state == CONFLICT}
    lost |= {one.action_id for one in result.actions if one.state is Validity.LOST}
    actor.record_conflicts(
        before.observation.uuid,
        [item.action for item in admitted if item.id in lost],
        [item.action for item in admitted if item.id in done],
    )


def request_for(
    step: Step,
    proposal: PlanOnTable,
    admitted: Sequence[PlannedAction],
    decision: Gate,
    engine: EngineType,
) -> ExecutionRequest:
    """Return the admitted actions as a request, with what the budgets leave for repeated work."""
    safety = step.policy.spec.safety
    limits = [s.remaining_bytes for s in decision.budgets if s.remaining_bytes is not None]
    cpu = [s.remaining_cpu_seconds for s in decision.budgets if s.remaining_cpu_seconds is not None]
    return ExecutionRequest(
        catalog=step.target.catalog,
        table=step.target.identifier,
        table_uuid=proposal.observation.uuid,
        plan_id=proposal.plan.id,
        actions=tuple(item.action for item in admitted),
        action_ids=tuple(item.id for item in admitted),
        base_snapshot_id=proposal.plan.base_snapshot_id,
        judged_snapshot_id=proposal.observation.snapshot_id,
        verify=safety.verify.value,
        allow_live_branches=safety.allow_live_branches,
        audit=None
        if safety.branch is None
        else Audit(safety.branch, safety.check or "", waits_under(step.policy)),
        bytes_limit=min(limits, default=None),
        cpu_limit_seconds=min(cpu, default=None),
        written_shares=tuple(item.predicted.written_share for item in admitted),
        engine=engine,
        memory_bytes=step.executor_memory,
        planned_bytes=tuple(item.predicted.rewrite_bytes for item in admitted),
    )


def run_until_converged(
    step: Step,
    actor: Actor,
    approvals: Approvals,
    on_event: Callable[[Event], None],
    should_stop: Callable[[], bool],
    on_step: Callable[[StepResult], None],
    proposal: Proposal | None = None,
) -> StepResult:
    """Run steps until nothing is left, the gate refuses, a plan repeats without effect, or a stop,
    but at most MOST_STEPS."""
    repeats: dict[str, int] = {}

    def run(given: Proposal | None) -> StepResult:
        """Run the step. A plan that falls between the observation and the work is replaced once."""
        try:
            return run_step(step, actor, approvals, on_event, should_stop, given)
        except StalePlanError as error:
            on_event(Event("conflict", f"CONFLICT: {error.what}; the table is planned again"))
            return run_step(step, actor, approvals, on_event, should_stop)

    result = run(proposal)
    on_step(result)
    for _ in range(MOST_STEPS - 1):
        if result.result is None or result.state.state != PENDING or should_stop():
            break
        if not result.result.commits:
            repeats[result.before.plan.id] = repeats.get(result.before.plan.id, 0) + 1
            if repeats[result.before.plan.id] >= MAX_REPEATS:
                break
        result = run(result.after)
        on_step(result)
    return result
