"""Lines that `layoutctl plan` prints: budgets, approval, the list of tables, next commands."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconciler.format import plural
from reconciler.table.times import DAY_MS

if TYPE_CHECKING:
    from reconciler.api.prices import Prices
    from reconciler.cli.following import Given
    from reconciler.engines.choice import Chosen
    from reconciler.loop.propose import Proposal
    from reconciler.loop.step import Step, TableState
    from reconciler.plan.budget import BudgetState, Gate
    from reconciler.plan.prediction import Total

    Planned = tuple[Step, Proposal, Gate]

SAVED = "plan.json"
"""The file that a plan is saved in unless the user names another."""


def with_digest(plan: Any, uris: Mapping[str, str] = {}) -> dict[str, Any]:
    """Return the plan's document with its digest, and with its URI once it is published."""
    where = {"uri": uris[plan.id]} if plan.id in uris else {}
    return {**plan.document(), "digest": plan.digest(), **where}


def next_commands(proposal: Proposal, saved: Path | None, options: Given) -> list[str]:
    """Return the commands that save the plan, if it is not saved yet, and that carry it out."""
    from reconciler.cli.following import apply_command, plan_command, undo_command

    run = f"run:  {apply_command(saved or SAVED, options)}"
    if saved is not None:
        return [run]
    name = proposal.observation.name
    undoes = proposal.plan.evidence.get("undo", {}).get("plan")
    if undoes:
        return [f"save:  {undo_command(name, undoes, options, SAVED)}", run]
    return [f"save:  {plan_command(name, options, SAVED)}", run]


def budgeted(proposal: Proposal, gate: Gate, engine: Chosen | None) -> dict[str, Any]:
    """Return the present state of the plan, with a line per budget and one for who carries it out
    on this machine; none is part of its identity."""
    from reconciler.loop.remaining import shown_document
    from reconciler.plan.prediction import total

    document = shown_document(proposal)
    asked = total(a.predicted for a in proposal.pending)
    lines = [budget_line(state, asked.bytes_in, asked.cpu_seconds) for state in gate.budgets]
    if gate.reason in ("OverBudget", "OutsideWindow"):
        lines.append(
            f"{gate.count} of {plural(len(proposal.pending), 'action')} may start: {gate.message}"
        )
    who = {} if engine is None else {"engine": engine.text}
    document["evidence"] = {
        **document["evidence"], "budgets": lines, **who, **money_of(proposal),
    }  # fmt: skip
    return document


def money_of(proposal: Proposal) -> dict[str, Any]:
    """Return what the rest of the plan costs and saves in money; {} without prices or without
    work."""
    from reconciler.plan.money import plan_money
    from reconciler.plan.prediction import total

    prices = proposal.target.catalog.prices
    if prices is None or not proposal.pending:
        return {}
    left = total(item.predicted for item in proposal.pending)
    return {"money": plan_money(prices, left, proposal.open_bytes)}


def budget_line(state: BudgetState, asked: int, cpu_seconds: float) -> str:
    """Return what a plan needs of a budget, and what is left of it. asked: bytes to rewrite."""
    from reconciler.format import cpu, duration, iec, part_of
    from reconciler.plan.budget import held_text

    budget = state.budget
    if state.error:
        return f"{budget.name}: {state.error}; it allows nothing"
    boundary = f"{state.boundary:%Y-%m-%dT%H:%M:%SZ}" if state.boundary else "-"
    if not state.active:
        return f"{budget.name}: inactive until {boundary}"
    if state.closed:
        return f"{budget.name}: allows nothing until {boundary}"
    when = f"in {duration(budget.per_seconds)}" if budget.per_seconds else f"until {boundary}"
    needs, left, held = [], [], []
    if budget.max_rewrite_bytes is not None:
        needs.append(iec(asked))
        held += [iec(state.held_bytes)] if state.held_bytes else []
        left.append(part_of(iec(state.remaining_bytes), iec(budget.max_rewrite_bytes)))
    if budget.max_cpu_seconds is not None:
        needs.append(cpu(cpu_seconds))
        held += [cpu(state.held_cpu_seconds)] if state.held_cpu_seconds else []
        left.append(part_of(cpu(state.remaining_cpu_seconds), cpu(budget.max_cpu_seconds)))
    text = f"{budget.name}: needs {' and '.join(needs)}; {' and '.join(left)} left {when}"
    if held:
        text += f"; {held_text(state, ' and '.join(held))}"
    return text


def approval_line(step: Step, gate: Gate) -> str:
    """Return who may let the plan run, and what its batches must pass before they reach main."""
    safety = step.policy.spec.safety
    audit = f"; each batch is checked on branch {safety.branch} first" if safety.check else ""
    if safety.approval.value == "Required":
        audit += f"; on branch {safety.branch} it waits for a person"
    return _approval_of(step, gate) + audit


def _approval_of(step: Step, gate: Gate) -> str:
    mode = step.policy.spec.approval.mode.value
    if gate.reason == "AwaitingApproval":
        return f"{mode}, not approved"
    if gate.reason == "OwnedElsewhere":  # the plan is still made, for pull requests
        return f"{mode}; {gate.message}; only that owner runs the plan"
    if gate.reason in ("Paused", "OtherOptimizer", "CatalogPolicy"):
        return f"{mode}; {gate.reason}: {gate.message}"
    return f"{mode}, {gate.reason or 'may run now'}"


def lines(planned: list[Planned], *, wide: bool) -> str:
    """Return one line per table, those with work first by saving, converged ones as one count."""
    from reconciler.loop.remaining import shown_document
    from reconciler.loop.step import CONVERGED, state_of
    from reconciler.plan.prediction import total
    from reconciler.render import terminal
    from reconciler.render.plan_text import TableLine, render_lines

    lines, converged = [], 0
    ordered = sorted(planned, key=lambda item: (-saved_per_day(item[1]), item[1].target.identifier))
    for _, proposal, gate in ordered:
        state = state_of(proposal, gate)
        evidence = shown_document(proposal)["evidence"]
        waits = evidence.get("waiting")
        if state.state == CONVERGED and not wide and not waits:
            converged += 1
            continue
        payback = evidence.get("cost", {}).get("paybackMillis")
        left, saved = total(a.predicted for a in proposal.pending), saved_per_day(proposal)
        lines.append(
            TableLine(
                name=proposal.observation.name,
                actions=len(proposal.pending),
                rewrite_bytes=left.bytes_in,
                cpu_millis=left.cpu_millis,
                saved_per_day=saved,
                payback_millis=payback if proposal.pending else None,
                state=_state_text(state, proposal, waits),
                **_amounts(proposal.target.catalog.prices, left, saved),
            )
        )
    return render_lines(lines, converged, terminal.width())


def _amounts(prices: Prices | None, left: Total, saved: float) -> dict[str, str]:
    """Return what the work costs and a day's saving in money, as printed; {} without prices."""
    from reconciler.plan.money import carrying_out, cost_text, reading

    if prices is None:
        return {}
    return {
        "cost": cost_text(prices, carrying_out(left)),
        "saved": cost_text(prices, reading(saved)) if saved > 0 else "",
    }


def _state_text(state: TableState, proposal: Proposal, waits: Mapping[str, Any] | None) -> str:
    text = "may run now" if state.reason == "TablesPending" else state.reason or state.state
    if not waits:
        return text
    return f"{text}, {'more waits' if proposal.pending else 'waits'} until {waits['until']}"


def saved_per_day(proposal: Proposal) -> float:
    """Return the bytes per day that the recorded queries would read less, over the recorded window.

    Unknown is -1, which is last in order.
    """
    workload, advice = proposal.queries.workload, proposal.advice
    if workload.empty:
        return -1.0
    if not proposal.pending:
        return 0.0
    days = max(1.0, (workload.until_ms - workload.since_ms) / DAY_MS)
    return max(0.0, advice.read_now - advice.read_after.mid) / days
