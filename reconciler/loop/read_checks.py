"""What the queries of a plan read after it was carried out, beside what was predicted."""

from __future__ import annotations

import datetime as dt

import numpy as np

from reconciler.loop.advised import filtered_columns, with_footer
from reconciler.loop.measure import WindowReading, window_read
from reconciler.loop.ports import Ports
from reconciler.loop.propose import PlanOnTable
from reconciler.plan.execution import ExecutionResult
from reconciler.plan.ledger import ReadCheck
from reconciler.plan.totals import Quantity, total_of
from reconciler.table.filetable import FileTable, Int64

MOST_FOOTERS = 5_000
"""Maximum number of files whose footers are read to measure what a plan achieved."""


def read_check(
    before: PlanOnTable, after: PlanOnTable, result: ExecutionResult, ports: Ports, now: dt.datetime
) -> ReadCheck | None:
    """Return the same queries measured on the new zone maps; None without queries."""
    predicted = _predicted(before, Quantity.READ)
    if before.queries.workload.empty or predicted is None or not result.commits:
        return None
    workload = before.queries.workload
    was = window_read(
        before.observation.files,
        workload,
        before.row_groups,
        before.row_group_bytes,
        before.open_bytes,
    )
    found = read_afterwards(before, after, ports)
    return ReadCheck(
        plan_id=before.plan.id,
        at_ms=int(now.timestamp() * 1000),
        before=round(was.bytes),
        predicted=predicted,
        actual=round(found.bytes),
        saved=round(was.cost - found.cost),
        complete=result.done
        and len(result.actions) == len(before.pending)
        and any(item.predicted.rewrites for item in before.pending),  # else it predicts nothing
        cost_before=round(was.cost),
        cost_predicted=_predicted(before, Quantity.COST),
        cost_actual=round(found.cost),
        files_before=len(before.observation.files),
        files_predicted=_predicted(before, Quantity.FILES),
        files_actual=len(after.observation.files),
    )


def read_afterwards(before: PlanOnTable, after: PlanOnTable, ports: Ports) -> WindowReading:
    """Return what the plan's queries read of the table as it is now.

    The basis is that of the prediction: new files by their row groups, the others as the plan knew
    them. In a table of few files that is all footers, as in the next plan. In a larger table the
    next plan knows fewer footers, and shows a bound.
    """
    files, workload = after.observation.files, before.queries.workload
    row_groups, known = after.row_groups, _known(after)
    wanted = _comparable(before, files) if filtered_columns(workload) else known
    if not np.array_equal(wanted, known) and len(wanted) <= MOST_FOOTERS:
        row_groups = ports.footers(after.target, after.observation, wanted)
    return window_read(files, workload, row_groups, before.row_group_bytes, before.open_bytes)


def _comparable(before: PlanOnTable, files: FileTable) -> Int64:
    """Return the rows of the files that are new since the plan, and of those with a footer known to
    it."""
    bounded = set(np.delete(before.observation.files.path, _known(before)))
    readable = with_footer(files)
    return readable[[path not in bounded for path in files.path[readable]]]


def _known(placed: PlanOnTable) -> Int64:
    """Return the rows of the files with a footer known to the plan."""
    found = placed.row_groups
    return np.empty(0, dtype=np.int64) if found is None else np.flatnonzero(found.has_footer)


def _predicted(placed: PlanOnTable, quantity: Quantity) -> int | None:
    found = total_of(placed.plan.evidence, quantity)
    return None if found is None else found.after
