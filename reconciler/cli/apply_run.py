"""One table's apply: shows the plan, asks for approval if needed, and runs it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reconciler.cli.following import Given
    from reconciler.loop.gating import Approvals
    from reconciler.loop.local_actor import LocalActor
    from reconciler.loop.propose import Proposal
    from reconciler.loop.step import Step, StepResult
    from reconciler.plan.execution import Event
    from reconciler.plan.plan import Plan


@dataclass
class ApplyRun:
    """One table's apply: its options, and its output."""

    step: Step
    """The table and its policy."""
    plan: Plan | None
    """The saved plan to carry out; None to propose one."""
    actor: LocalActor
    """Carries the steps out on this machine."""
    until_converged: bool
    """Whether steps are repeated until nothing is left."""
    yes: bool
    """Whether the shown plan is approved."""
    auto_approve: bool
    """Whether every plan of the run is approved."""
    quiet: bool
    """Whether progress is not shown."""
    options: Given
    """The options that a command named in a message must repeat."""
    started: float = field(default_factory=time.monotonic)
    """When the run began, by the monotonic clock in seconds."""
    steps: list[StepResult] = field(default_factory=list)
    """The results of the steps so far."""
    done_before: bool = False
    """Whether the saved plan was done already."""
    declined: bool = False
    """Whether the person who was asked did not say yes."""

    def say(self, text: str) -> None:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def on_event(self, event: Event) -> None:
        from reconciler.render.apply_text import render_event
        from reconciler.render.terminal import width

        if not self.quiet:
            self.say(render_event(event.text, width(sys.stderr) if sys.stderr.isatty() else None))

    def go(self, should_stop: Callable[[], bool]) -> StepResult:
        """Show the plan, ask if needed, run."""
        from reconciler.loop.step import run_step, run_until_converged

        proposal = self.step.propose(self.actor)
        if self.actor.resume(self.step, proposal.observation, self.on_event):
            proposal = self.step.propose(self.actor)
        self._show(proposal)
        if self.plan is not None and not self._asked(proposal) and not self.until_converged:
            return self._done_before(proposal)
        approvals = self._approvals(proposal)
        if not self.until_converged:
            result = run_step(
                self.step, self.actor, approvals, self.on_event, should_stop, proposal
            )
            self.steps.append(result)
            return result
        return run_until_converged(
            self.step, self.actor, approvals, self.on_event, should_stop,
            self.steps.append, proposal,
        )  # fmt: skip

    def _asked(self, proposal: Proposal) -> bool:
        """Whether it is the saved plan; once that is done, another one is proposed."""
        return self.plan is not None and proposal.plan.id == self.plan.id

    def _done_before(self, proposal: Proposal) -> StepResult:
        """Return the result of a plan that is already done: only what was reviewed runs, and a new
        plan waits."""
        from reconciler.loop.step import StepResult, state_of
        from reconciler.plan.budget import Gate

        self.done_before = True
        return StepResult(proposal, Gate(0, "", ""), None, proposal, state_of(proposal, None))

    def _show(self, proposal: Proposal) -> None:
        """Show what is about to be approved: a saved plan in one line, any other in full.

        A person who is asked sees the plan even with --quiet.
        """
        from reconciler.cli.plan_lines import budgeted
        from reconciler.loop.gating import Approvals
        from reconciler.loop.step import judge_gate
        from reconciler.render.plan_text import render_plan
        from reconciler.render.terminal import flow, width

        asks = sys.stdin.isatty() and not (self.yes or self.auto_approve)
        if self.quiet and not asks:
            return
        unseen = not self._asked(proposal) and not proposal.frozen
        if self.plan is not None and not self.until_converged:
            asks, unseen = asks and self._asked(proposal), False
        if proposal.pending and (asks or unseen):
            document = budgeted(
                proposal,
                judge_gate(self.step, proposal, self.actor, Approvals(everything=True)),
                self.actor.engine_of(self.step, proposal.observation, proposal.pending),
            )
            columns = width(sys.stderr)
            self.say(render_plan(document, width=columns, preview=False, ending=False) + "\n")
        for text in (_opening(proposal, self.plan), _made_under_another(proposal, self.step)):
            for line in flow(text.split("   "), width(sys.stderr)):
                self.say(line)

    def _approvals(self, proposal: Proposal) -> Approvals:
        from reconciler.loop.gating import Approvals, policy_key
        from reconciler.loop.step import judge_gate

        if self.auto_approve:
            return Approvals(everything=True)
        shown = proposal.plan if self.plan is None else self.plan
        agreed = self.yes and (self.plan is not None or not proposal.by_person)
        given = Approvals(shown.id if agreed else "")
        if not proposal.pending:
            return given
        decision = judge_gate(self.step, proposal, self.actor, given)
        asks = decision.reason == "AwaitingApproval" and not agreed and sys.stdin.isatty()
        if asks and _confirmed(proposal):
            given = Approvals(proposal.plan.id)
        elif asks:
            self.declined = True
        if given.plan_id == proposal.plan.id:
            self.actor.put_plan(proposal.plan)
            self.actor.store.approve(proposal.plan.id, policy_key(self.step.policy))
        return given


def _opening(proposal: Proposal, asked: Plan | None) -> str:
    from reconciler.format import plural
    from reconciler.loop.remaining import progress

    inputs = sum(len(a.action.inputs) for a in proposal.plan.actions)
    live = sum(len(a.action.inputs) for a in proposal.pending)
    name = proposal.observation.name
    if asked is not None and asked.id != proposal.plan.id:
        return f"{name}  plan {asked.id} is done: it has rewritten all of its inputs"
    if not proposal.plan.actions:
        return f"{name}  nothing to do"
    if begun := progress(proposal):
        done, total = len(begun["progress"]["done"]), len(proposal.plan.actions)
        state = f"{done:,} of {plural(total, 'action')} done before"
    else:
        changed = f"{inputs - live:,}" if live < inputs else "none"
        state = f"{changed} of {plural(inputs, 'input file')} changed since the plan"
    return f"{name}  plan {proposal.plan.id}   {state}"


def _made_under_another(proposal: Proposal, step: Step) -> str:
    """Return a note if the plan was made under other budgets: its id does not include them."""
    from reconciler.cli.targets import BUILT_IN
    from reconciler.loop.gating import plan_policy_key, policy_key

    made = plan_policy_key(proposal.plan)
    if not proposal.pending or made in (None, policy_key(step.policy)):
        return ""
    made_by, now = proposal.plan.policy, step.policy_name
    if made_by == BUILT_IN:
        return (
            f"This plan was made by the built-in policy, without {now}. "
            "Plan again, so that the approval and the budgets of your policy hold."
        )
    if now == BUILT_IN:
        return (
            f"This plan was made under the policy {made_by}, whose approval, budgets, windows and "
            "suspension do not apply without it: give its file with -f."
        )
    return (
        f"This plan was made under the policy {made_by}, and {now} selects this table now. "
        "Plan again."
    )


def _confirmed(proposal: Proposal) -> bool:
    from reconciler.format import iec
    from reconciler.plan.money import beside, carrying_out, cost_text
    from reconciler.plan.prediction import total
    from reconciler.spark.session.stop import interruptible

    work, prices = total(a.predicted for a in proposal.pending), proposal.target.catalog.prices
    money = "" if prices is None else cost_text(prices, carrying_out(work))
    what = f"Rewrite {beside(iec(work.bytes_in), money)} on this machine?"
    if proposal.by_person:
        what = "Publish the branch?"
    sys.stderr.write(f"{what} Rows do not change. Type yes to continue: ")
    sys.stderr.flush()
    with interruptible():
        return sys.stdin.readline().strip() == "yes"
