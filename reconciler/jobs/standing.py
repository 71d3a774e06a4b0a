"""Finds the inputs of an action that are still valid on the live head ("Validity is per action").

An input is valid while it is live and its deletes are those of the plan's snapshot. After a
conflict the remaining inputs are rewritten as a subset, which the approval covers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reconciler.core import branches
from reconciler.core.actions import Action, ActionType
from reconciler.core.execution import ExecutionRequest
from reconciler.core.plan import Validity
from reconciler.errors import BlockedError, LiveBranchesError, RolledBackError, StalePlanError
from reconciler.jobs import iceberg
from reconciler.jobs.scan import Deletes, ScanTasks, TaskFile, scan_tasks

STALE = "layoutctl plan"


@dataclass(frozen=True, slots=True)
class Standing:
    """inputs: those that are still valid, sorted. why: what happened to the others, "" if
    nothing."""

    validity: Validity
    inputs: tuple[str, ...] = ()
    why: str = ""


def require_base(table: Any, request: ExecutionRequest, name: str) -> None:
    """Raise unless the table is the plan's, and its snapshot is in main's history."""
    if str(table.operations().current().uuid()) != request.table_uuid:
        raise StalePlanError(
            f"{name} is not the table that was planned: it was dropped and created again",
            do=f"{STALE} {name}",
        )
    base = request.base_snapshot_id
    if base is None or table.currentSnapshot() is None:
        raise StalePlanError(f"{name} has no snapshot to rewrite", do=f"{STALE} {name}")
    if table.snapshot(base) is None:
        raise StalePlanError(
            f"the snapshot {base} that {name} was planned on has expired",
            details=("What changed since cannot be told from the table's history any more.",),
            do=f"{STALE} {name} --refresh",
        )
    if not iceberg.ancestors_until(table, base)[1]:
        raise BlockedError(
            f"the snapshot {base} that {name} was planned on is not in its history any more",
            details=("The table was rolled back or replaced after the plan was made.",),
            do=f"{STALE} {name} --refresh",
        )


def refuse_rolled_back(table: Any, plan_id: str, name: str) -> None:
    """Raise if a commit of the plan was rolled back, which is a person's veto (design section
    5)."""
    in_history: set[int] | None = None
    for snapshot in iceberg.each(table.snapshots()):
        if snapshot.summary().get(iceberg.PLAN_ID) != plan_id:
            continue
        if in_history is None:
            in_history = {info.id for info in iceberg.ancestors(table)}
        if int(snapshot.snapshotId()) not in in_history:
            raise RolledBackError(
                f"RolledBack: commit {snapshot.snapshotId()} of plan {plan_id} was rolled back",
                details=(f"Someone undid this plan on {name}; it will not be done again.",),
                do=f"exclude the table or change its policy, then {STALE} {name}",
            )


def refuse_live_branches(spark: Any, table: Any, name: str) -> None:
    """Raise if a branch is live: after a rewrite of main it could not be published
    (write-audit-publish)."""
    live = live_branch(spark, table)
    if live:
        raise live_branch_error(name, live)


def live_branch(spark: Any, table: Any) -> str:
    """Return the first live branch of the table as last loaded or refreshed, "" for none."""
    return branches.live_branch(_branches(spark, table))


def live_branch_error(name: str, live: str) -> LiveBranchesError:
    return LiveBranchesError(
        f"{name} has a live {live}",
        details=("A rewrite of main would keep it from being published by fast-forward.",),
        do="publish or drop it first, or set spec.safety.allowLiveBranches: true",
    )


def _branches(spark: Any, table: Any) -> branches.Branches:
    head = table.currentSnapshot()
    head_id = None if head is None else int(head.snapshotId())
    util = spark._jvm.org.apache.iceberg.util.SnapshotUtil
    others = tuple(
        branches.Branch(
            str(entry.getKey()),
            int(entry.getValue().snapshotId()),
            head_id is not None
            and util.isAncestorOf(table, head_id, int(entry.getValue().snapshotId())),
        )
        for entry in iceberg.each(table.refs().entrySet())
        if entry.getKey() != "main" and entry.getValue().isBranch()
    )
    if table.properties().get("write.wap.enabled") != "true":
        return branches.Branches(head_id, others)
    on_main = {info.id: info.summary for info in iceberg.ancestors(table)}
    every = [iceberg.snapshot_info(snapshot) for snapshot in iceberg.each(table.snapshots())]
    return branches.Branches(
        head_id,
        others,
        audited=True,
        staged=tuple(
            (info.id, info.summary["wap.id"])
            for info in every
            if info.id not in on_main and info.summary.get("wap.id")
        ),
        published=frozenset(summary.get("published-wap-id", "") for summary in on_main.values()),
    )


def base_tasks(spark: Any, table: Any, request: ExecutionRequest) -> ScanTasks:
    """Return the scan tasks of every input of the request, at the plan's snapshot."""
    wanted = [path for action in request.actions for path in action.inputs]
    assert request.base_snapshot_id is not None
    return scan_tasks(spark, table, request.base_snapshot_id, wanted)


def judge(
    action: Action,
    done: bool,
    base: Mapping[str, Deletes],
    live: Mapping[str, TaskFile],
) -> Standing:
    """Judge one rewriting action. done: the head's ancestors carry its id. live: the head's
    files."""
    unchanged = [
        path for path in action.inputs if path in live and live[path].deletes == base.get(path)
    ]
    gone = len(action.inputs) - sum(path in live for path in action.inputs)
    changed = len(action.inputs) - gone - len(unchanged)
    if gone == len(action.inputs):
        why = "" if done else f"all of its {gone} inputs were replaced by someone else"
        return Standing(Validity.DONE if done else Validity.LOST, why=why)
    parts = [f"{gone} of {len(action.inputs)} inputs were replaced"] if gone and not done else []
    parts += [f"rows of {changed} inputs were deleted since"] if changed else []
    if not unchanged or (
        action.type is ActionType.BIN_PACK and len(unchanged) < 2 <= gone + changed
    ):
        return Standing(
            Validity.DONE if done and not changed else Validity.LOST, why=", ".join(parts)
        )
    return Standing(Validity.PENDING, tuple(sorted(unchanged)), ", ".join(parts))


def actions_in_history(table: Any, request: ExecutionRequest) -> frozenset[str]:
    """Return the ids of the request's actions in commits of main's history since the plan."""
    assert request.base_snapshot_id is not None
    newer, _ = iceberg.ancestors_until(table, request.base_snapshot_id)
    found: set[str] = set()
    for snapshot in newer:
        if snapshot.summary.get(iceberg.PLAN_ID) == request.plan_id:
            found.update(snapshot.summary.get(iceberg.ACTION_IDS, "").split(","))
    return frozenset(found)


def check_inputs(request: ExecutionRequest, tasks: Sequence[str], name: str) -> None:
    """Raise if an input was not live when the plan was made: the plan belongs to another table."""
    known = set(tasks)
    foreign = [p for action in request.actions for p in action.inputs if p not in known]
    if foreign:
        raise StalePlanError(
            f"{len(foreign)} input files of the plan are not in {name}'s snapshot it names",
            details=(f"for example {foreign[0]}",),
            do=f"{STALE} {name} --refresh",
        )
