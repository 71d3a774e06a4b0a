"""Carries out a plan on one table: settles what is open, runs each kind's executor, judges again.

The CLI, the demo and the driver call `execute`; `resume` settles what a crash left. The priorities:
never lose or duplicate a row, never leave files behind, continue after conflicts
(docs/design/decisions.md#safety-of-an-execution).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from reconciler.api.catalog_config import CatalogConfig
from reconciler.engines.actions import executors_of
from reconciler.engines.actions.base import Executor
from reconciler.engines.backend import Backend
from reconciler.engines.commit import audit, fence, replaced, standing, statistics
from reconciler.engines.engine_errors import translated
from reconciler.engines.schedule import attempt, inputs, vanished
from reconciler.engines.schedule.lease import holding
from reconciler.engines.schedule.run import OnEvent, Run
from reconciler.plan.actions.base import Consent
from reconciler.plan.actions.state import ActionState
from reconciler.plan.execution import (
    ActionResult,
    ExecutionRequest,
    ExecutionResult,
    Lease,
    Ledger,
)


def execute(
    request: ExecutionRequest,
    backend: Backend,
    ledger: Ledger,
    lease: Lease,
    on_event: OnEvent,
    should_stop: Callable[[], bool],
) -> ExecutionResult:
    """Run the request's actions; return their results.

    Conflicts are handled within the request's bounds. Raises if nothing more can be done:
    BlockedError (lease, veto, live branch), VerificationError, UnknownCommitError, UserError,
    UnavailableError. Whatever is raised, the table holds only whole verified commits.
    """
    with translated(backend.errors, f"rewrite {'.'.join(request.table)}"):
        started = time.monotonic()
        run = Run(request, backend, ledger, on_event, should_stop)
        with holding(lease, request.table_uuid, run.attempt_id()) as run.lease_lost:
            try:
                results = _carried_out(run, lease)
            except Exception as error:
                why = replaced.what_became(run, error)
                if not why:
                    raise
                raise replaced.clean_up(run, why) from error
        return ExecutionResult(
            tuple(run.attempts), results, tuple(run.outcomes), len(run.own), run.conflicts,
            run.stopped, time.monotonic() - started, waiting=len(run.waiting),
        )  # fmt: skip


def _carried_out(run: Run, lease: Lease) -> tuple[ActionResult, ...]:
    """Settle what earlier attempts left, carry out the actions, and return how they stand."""
    request = run.request
    fence.resolve(request.catalog, request.table, run.table, run.ledger, lease, run.on_event)
    executors = executors_of(run)
    vanished.again(run.table.errors, lambda: _check(run, executors))
    planned = dict(zip(request.action_ids, request.planned_bytes, strict=False))
    run.reading.later = sum(planned.values())
    for executor in executors:
        run.reading.later -= sum(planned.get(key, 0) for key, _ in executor.items)
        executor.carry_out()
        if run.waiting:  # what follows is planned on the table with these batches
            break
    if run.own and not run.waiting:
        statistics.carry(run.table, lambda text: run.say("statistics", text))
    return _results(run, executors)


def resume(
    catalog: CatalogConfig,
    table: tuple[str, ...],
    backend: Backend,
    ledger: Ledger,
    lease: Lease,
    on_event: OnEvent,
) -> int:
    """Settle what earlier attempts on the table left open; return their number."""
    with translated(backend.errors, f"resume work on {'.'.join(table)}"):
        live = backend.load(catalog, table)
        with holding(lease, live.uuid(), attempt.new_id("resume", live)):
            return fence.resolve(catalog, table, live, ledger, lease, on_event)


def _check(run: Run, executors: Sequence[Executor[Any]]) -> None:
    """Raise for reasons that apply to the whole request, before a row is written. Branches that
    earlier audits left are dropped."""
    run.table.refresh()
    standing.require_plan(run.table, run.request, run.shown)
    standing.refuse_paused(run.table, run.shown)
    standing.refuse_later_times(run.table, run.shown)
    standing.refuse_rolled_back(run.table, run.request.plan_id, run.shown)
    if all(action.consent is Consent.POLICY for action in run.request.actions):
        audit.drop_or_refuse_branches(run.table, run.request.audit, run.shown)
    if not run.request.allow_live_branches:
        standing.refuse_live_branches(run.table, run.shown)
    inputs.refuse_table(run.table, run.shown)
    for executor in executors:
        executor.check()


def _results(run: Run, executors: Sequence[Executor[Any]]) -> tuple[ActionResult, ...]:
    """Return the state of every action on the resulting head."""
    states: dict[str, ActionState] = {}
    for one in executors:
        states |= vanished.again(run.table.errors, one.judge)
    return tuple(
        ActionResult(key, states[key].validity, states[key].why) for key in run.request.action_ids
    )
