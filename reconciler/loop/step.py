"""One step for one table: propose, pass the gate, execute, observe again; and the loop of steps.

The CLI and the operator call these functions, so that a plan, the gate and "converged" mean the
same in both. Success is not that a job ended, but that a new observation leaves nothing above
threshold.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from reconciler.advisor.advice import MISSED
from reconciler.api.documents import DEFAULT_NAMESPACE, TableLayoutPolicy
from reconciler.errors import StalePlanError
from reconciler.loop.measure import WindowReading, window_read
from reconciler.loop.propose import (
    Ports,
    Proposal,
    Target,
    files_of,
    predicate_columns,
    propose,
    with_footer,
)
from reconciler.loop.settings import budgets_of
from reconciler.loop.waiting import refused, waiting
from reconciler.plan.budget import Spent
from reconciler.plan.execution import Event, ExecutionRequest, ExecutionResult
from reconciler.plan.gate import AUTOMATIC_WINDOW, Gate, GateInput, gate
from reconciler.plan.ledger import ReadCheck, Reservation
from reconciler.plan.plan import Plan, PlannedAction
from reconciler.plan.prediction import total
from reconciler.table.filetable import FileTable, Int64
from reconciler.table.observation import Observation

CONVERGED = "Converged"
PENDING = "Pending"
BLOCKED = "Blocked"
IDLE = "Idle"

NOTHING = "nothing above threshold"

MOST_FOOTERS = 5_000
"""Maximum number of files whose footers are read to measure what a plan achieved."""

MAX_REPEATS = 2
"""Maximum executions of one plan without effect; then the loop stops and reports it."""


class Actor(Ports, Protocol):
    """The I/O of an execution, on top of a proposal's."""

    def approved(self, plan_id: str, policy: str) -> bool:
        """Return whether a person approved the plan while that policy (policy_key) governed the
        table."""
        ...

    def owner(self, observation: Observation) -> str:
        """Return who else claims the table, "" if no one does."""
        ...

    def spent(self, policy: str, table_uuid: str, besides: str = "") -> tuple[Spent, ...] | None:
        """Return what this policy spent or reserved on all of its tables, and anything on this one.

        None: the ledger cannot be read, and no budget allows anything. besides: the id of a
        reservation that does not count.
        """
        ...

    def automatic_spent(
        self, table_uuid: str, since: dt.datetime, approved: Collection[str]
    ) -> int:
        """Return the bytes rewritten without a person's approval since then.

        approved: plan ids that the documents approve; the state has other approvals.
        """
        ...

    def reserve(self, reservation: Reservation) -> None:
        """Record before the work: the predicted cost of the execution counts as spent from now
        on."""
        ...

    def settle(self, reservation: Reservation) -> None:
        """Record the end: the execution's outcomes count instead, if they cover all of its work."""
        ...

    def record_start(
        self, plan: Plan, action: PlannedAction, files: FileTable, policy: str
    ) -> None:
        """Record the prediction and the inputs' zone maps before the work starts."""
        ...

    def resume(
        self, target: Target, observation: Observation, on_event: Callable[[Event], None]
    ) -> int:
        """Settle what earlier attempts on the table left open; return their number."""
        ...

    def measure_rho(self, after: Proposal, result: ExecutionResult) -> None:
        """Measure and store the cost of rewriting compared with reading, if it can be measured."""
        ...

    def record_check(self, table_uuid: str, check: ReadCheck) -> None: ...

    def execute(
        self,
        request: ExecutionRequest,
        on_event: Callable[[Event], None],
        should_stop: Callable[[], bool],
    ) -> ExecutionResult: ...


@dataclass(frozen=True, slots=True)
class TableState:
    """state: CONVERGED | PENDING | BLOCKED | IDLE. reason: "" or a reason of Converged."""

    state: str
    reason: str
    message: str


@dataclass(frozen=True)
class StepResult:
    """after: the proposal made from the observation after the execution; result None: not run."""

    before: Proposal
    gate: Gate
    result: ExecutionResult | None
    after: Proposal
    state: TableState
    check: ReadCheck | None = None


@dataclass(frozen=True, slots=True)
class Approvals:
    """What the caller approves: one plan id (--yes), or everything (--auto-approve)."""

    plan_id: str = ""
    everything: bool = False


@dataclass(frozen=True)
class Step:
    """The fixed part of every step on one table: target, policy, the fields not acted on, cores,
    clock."""

    target: Target
    policy: TableLayoutPolicy
    policy_digest: str
    policy_name: str
    not_acted_on: tuple[str, ...]
    unacted_for_automatic: tuple[str, ...]
    cores: int
    clock: Callable[[], dt.datetime]

    def propose(
        self, ports: Ports, *, refresh: bool = False, show_literals: bool = False
    ) -> Proposal:
        return propose(
            self.target,
            self.policy,
            ports,
            policy_digest=self.policy_digest,
            policy_name=self.policy_name,
            not_acted_on=self.not_acted_on,
            now=self.clock(),
            cores=self.cores,
            refresh=refresh,
            show_literals=show_literals,
        )


def judge_gate(
    step: Step, proposal: Proposal, actor: Actor, approvals: Approvals, besides: str = ""
) -> Gate:
    """Return the gate's decision on a proposal now. besides: a reservation that does not count."""
    now = step.clock()
    spec = step.policy.spec
    automatic = spec.approval.automatic_up_to
    plan = proposal.plan
    approved = (
        plan.id == approvals.plan_id
        or plan.id in spec.approval.approved_plans
        or actor.approved(plan.id, policy_key(step.policy))
    )
    return gate(
        GateInput(
            plan=plan,
            remaining=proposal.pending,
            suspended=spec.suspend,
            owner=actor.owner(proposal.observation),
            mode=spec.approval.mode.value,
            approved=approved,
            everything_approved=approvals.everything,
            automatic_up_to_bytes=None if automatic is None else automatic.rewrite_bytes,
            automatic_spent_bytes=actor.automatic_spent(
                proposal.observation.uuid, now - AUTOMATIC_WINDOW, spec.approval.approved_plans
            ),
            stale_workload=proposal.stale_workload,
            unacted_fields=step.unacted_for_automatic,
            budgets=budgets_of(spec),
            spent=actor.spent(policy_key(step.policy), proposal.observation.uuid, besides),
            now=now,
        )
    )


def policy_key(policy: TableLayoutPolicy) -> str:
    """Return the key of a policy's spending: its budgets apply to all of its tables together."""
    return f"{policy.namespace}/{policy.name}"


def plan_policy_key(plan: Plan) -> str | None:
    """Return the policy that a plan was made under; None if the plan does not name it."""
    metadata = plan.evidence.get("policyDocument", {}).get("metadata", {})
    name = metadata.get("name")
    return f"{metadata.get('namespace', DEFAULT_NAMESPACE)}/{name}" if name else None


def state_of(proposal: Proposal, decision: Gate | None) -> TableState:
    """Return the state. Converged = no action admitted or blocked after gate and floor, and no
    failing objective."""
    if proposal.pending:
        against = refused(proposal.observation, proposal.policy)
        refusal = f"; {against}" if against else ""
        if decision is not None and decision.reason and not decision.open:
            return TableState(BLOCKED, decision.reason, decision.message + refusal)
        return TableState(PENDING, "TablesPending", _to_do(len(proposal.pending)) + refusal)
    held = waiting(proposal.advice, proposal.observation, proposal.policy)
    waits = held.text() if held else ""
    failing = [item for item in proposal.advice.objectives if item.state in MISSED]
    if failing:
        told = [f"{item.name}: {item.message}" for item in failing] + ([waits] if waits else [])
        return TableState(IDLE, "ObjectiveUnreachable", "; ".join(told))
    return TableState(CONVERGED, "", f"nothing to do now; {waits}" if waits else NOTHING)


def _to_do(actions: int) -> str:
    return f"{actions} {'action' if actions == 1 else 'actions'} to do"


def run_step(
    step: Step,
    actor: Actor,
    approvals: Approvals,
    on_event: Callable[[Event], None],
    should_stop: Callable[[], bool],
    proposal: Proposal | None = None,
) -> StepResult:
    """Propose (unless given), pass the gate, execute what is admitted, observe again."""
    before = proposal or step.propose(actor)
    decision = judge_gate(step, before, actor, approvals)
    if not decision.open or should_stop():
        return StepResult(before, decision, None, before, state_of(before, decision))
    admitted = before.pending[: decision.count]

    def still(reservation: str) -> Gate:
        """Check the gate again: another process may have reserved against the same budgets
        meanwhile."""
        if not decision.budgets:
            return decision
        return judge_gate(step, before, actor, approvals, reservation)

    return carry_out(
        step, before, admitted, decision, actor, approvals, on_event, should_stop, still
    )


def carry_out(
    step: Step,
    before: Proposal,
    admitted: Sequence[PlannedAction],
    decision: Gate,
    actor: Actor,
    approvals: Approvals,
    on_event: Callable[[Event], None],
    should_stop: Callable[[], bool],
    still: Callable[[str], Gate],
) -> StepResult:
    """Execute exactly what was admitted, record the outcomes, observe again.

    `run_step` calls it after its own gate, a driver pod after the operator's. still: the gate once
    more, when the reservation of that id has been written.
    """
    actor.put_plan(before.plan)
    for item in admitted:
        inputs = files_of(item, before.observation.files)
        actor.record_start(before.plan, item, inputs, policy_key(step.policy))
    reservation = reservation_for(before, admitted, policy_key(step.policy))
    with _reserved(actor, reservation):
        again = still(reservation.id)
        if again.count < decision.count:
            return StepResult(before, again, None, before, state_of(before, again))
        request = request_for(step, before, admitted, decision)
        result = actor.execute(request, on_event, should_stop)
    after = step.propose(actor)
    if result.commits:
        actor.measure_rho(after, result)
    check = _read_check(before, after, result, actor, step.clock())
    if check is not None:
        actor.record_check(before.observation.uuid, check)
    later = judge_gate(step, after, actor, approvals)
    return StepResult(before, decision, result, after, state_of(after, later), check)


@contextlib.contextmanager
def _reserved(actor: Actor, reservation: Reservation) -> Iterator[None]:
    """Reserve, and settle afterwards.

    If the body raises, that error propagates and a failure to settle is suppressed: what is not
    settled counts in full.
    """
    actor.reserve(reservation)
    try:
        yield
    except BaseException:
        with contextlib.suppress(Exception):
            actor.settle(reservation)
        raise
    actor.settle(reservation)


def reservation_for(
    proposal: Proposal, admitted: Sequence[PlannedAction], policy: str
) -> Reservation:
    """Return what the admitted actions are predicted to read and to compute."""
    predicted = total(item.predicted for item in admitted)
    return Reservation(
        id=uuid.uuid4().hex,
        table_uuid=proposal.observation.uuid,
        plan_id=proposal.plan.id,
        policy=policy,
        rewrite_bytes=predicted.bytes_in,
        cpu_seconds=predicted.cpu_seconds,
    )


def request_for(
    step: Step, proposal: Proposal, admitted: Sequence[PlannedAction], decision: Gate
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
        bytes_limit=min(limits, default=None),
        cpu_limit_seconds=min(cpu, default=None),
        written_shares=tuple(item.predicted.written_share for item in admitted),
    )


def _read_check(
    before: Proposal, after: Proposal, result: ExecutionResult, ports: Ports, now: dt.datetime
) -> ReadCheck | None:
    """Return the same queries measured on the new zone maps; None without queries."""
    predicted = _predicted_read(before)
    if before.evidence.workload.empty or predicted is None or not result.commits:
        return None
    size, workload = before.settings.row_group_bytes, before.evidence.workload
    was = window_read(before.observation.files, workload, before.row_groups, size)
    found = read_afterwards(before, after, ports)
    return ReadCheck(
        plan_id=before.plan.id,
        at_ms=int(now.timestamp() * 1000),
        before=round(was.bytes),
        predicted=predicted,
        actual=round(found.bytes),
        saved=round(was.cost - found.cost),
        complete=result.done and len(result.actions) == len(before.pending),
    )


def read_afterwards(before: Proposal, after: Proposal, ports: Ports) -> WindowReading:
    """Return what the plan's queries read of the table as it is now.

    The basis is that of the prediction: new files by their row groups, the others as the plan knew
    them. In a table of few files that is all footers, as in the next plan. In a larger table the
    next plan knows fewer footers, and shows a bound.
    """
    files, workload = after.observation.files, before.evidence.workload
    row_groups, known = after.row_groups, _known(after)
    wanted = _comparable(before, files) if predicate_columns(workload) else known
    if not np.array_equal(wanted, known) and len(wanted) <= MOST_FOOTERS:
        row_groups = ports.footers(after.target, after.observation, wanted)
    return window_read(files, workload, row_groups, before.settings.row_group_bytes)


def _comparable(before: Proposal, files: FileTable) -> Int64:
    """Return the rows of the files that are new since the plan, and of those with a footer known to
    it."""
    bounded = set(np.delete(before.observation.files.path, _known(before)))
    readable = with_footer(files)
    return readable[[path not in bounded for path in files.path[readable]]]


def _known(proposal: Proposal) -> Int64:
    """Return the rows of the files with a footer known to the proposal."""
    found = proposal.row_groups
    return np.empty(0, dtype=np.int64) if found is None else np.flatnonzero(found.has_footer)


def _predicted_read(proposal: Proposal) -> int | None:
    for line in proposal.plan.evidence.get("totals", ()):
        if line["name"].startswith("read /"):
            return int(line["after"])
    return None


def run_until_converged(
    step: Step,
    actor: Actor,
    approvals: Approvals,
    on_event: Callable[[Event], None],
    should_stop: Callable[[], bool],
    on_step: Callable[[StepResult], None],
    proposal: Proposal | None = None,
    max_steps: int = 20,
) -> StepResult:
    """Run steps until nothing is left, the gate refuses, a plan repeats without effect, or a
    stop."""
    repeats: dict[str, int] = {}

    def run(given: Proposal | None) -> StepResult:
        """A plan that falls between the look at the table and the work is made anew, once."""
        try:
            return run_step(step, actor, approvals, on_event, should_stop, given)
        except StalePlanError as error:
            on_event(Event("conflict", f"CONFLICT: {error.what}; the table is planned again"))
            return run_step(step, actor, approvals, on_event, should_stop)

    result = run(proposal)
    on_step(result)
    for _ in range(max_steps - 1):
        if result.result is None or result.state.state != PENDING or should_stop():
            break
        if not result.result.commits:
            repeats[result.before.plan.id] = repeats.get(result.before.plan.id, 0) + 1
            if repeats[result.before.plan.id] >= MAX_REPEATS:
                break
        result = run(result.after)
        on_step(result)
    return result
