"""Whether a plan still stands on the live table, as the engine reads it (`plan.standing` judges).

The execution compares an input's deletes with those on the snapshot where the planner last found
that the plan stands. After a conflict the remaining inputs are rewritten as a subset, which the
approval covers.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence

from reconciler.engines.manifests import Tasks
from reconciler.engines.snapshots import until
from reconciler.engines.table import Table
from reconciler.engines.task_file import Deletes, TaskFile
from reconciler.errors import (
    BlockedError,
    LiveBranchesError,
    PausedError,
    RolledBackError,
    StalePlanError,
)
from reconciler.format import plural
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.state import ActionState, Facts, Validity
from reconciler.plan.execution import ExecutionRequest
from reconciler.plan.standing import Fallen, base_text, fallen_base
from reconciler.table import audits, branches, summary_keys
from reconciler.table.clock import REMEDY, ahead_text
from reconciler.table.metadata import TableMetadata
from reconciler.table.others import PAUSED, paused_because
from reconciler.table.retention import BRANCH, MAIN

AGAIN = "run the command again: it makes a new plan"


def require_plan(table: Table, request: ExecutionRequest, name: str) -> None:
    """Raise StalePlanError unless the table is the plan's, with its snapshot in main's history."""
    if table.uuid() != request.table_uuid:
        raise StalePlanError(
            f"{name} is not the table that was planned: it was dropped and created again", do=AGAIN
        )
    fallen = fallen_on(table, request)
    if fallen is not None:
        raise StalePlanError(
            f"plan {request.plan_id} of {name} is no longer valid: "
            + base_text(fallen, request.base_snapshot_id),
            do=AGAIN,
        )


def fallen_on(table: Table, request: ExecutionRequest) -> Fallen | None:
    """Return why the plan's snapshot is not in the table's history; None if it is."""
    base = request.base_snapshot_id
    if base is None:
        return None
    history = {base} if until(table.ancestors(), base)[1] else set()
    return fallen_base(base, history, {base} if table.snapshot(base) is not None else set())


def fallen_state(fallen: Fallen, request: ExecutionRequest) -> ActionState:
    """Return the state of what is not done once the plan's snapshot has left the history."""
    return ActionState(Validity.LOST, why=base_text(fallen, request.base_snapshot_id))


def refuse_rolled_back(table: Table, plan_id: str, name: str) -> None:
    """Raise if a commit of the plan was rolled back
    (docs/design/decisions.md#a-rollback-is-a-persons-veto)."""
    in_history: set[int] | None = None
    for snapshot in table.snapshots():
        if snapshot.summary.get(summary_keys.PLAN_ID) != plan_id:
            continue
        if in_history is None:
            in_history = {info.id for info in table.ancestors()}
        if snapshot.id not in in_history:
            raise RolledBackError(
                f"RolledBack: commit {snapshot.id} of plan {plan_id} was rolled back",
                details=(f"Someone undid this plan on {name}; it will not be done again.",),
                do="exclude the table, or change what its policy asks for (spec.layout, "
                "spec.recluster, spec.objectives), and plan it again",
            )


def refuse_later_times(table: Table, name: str) -> None:
    """Raise if the table's metadata has a time after which no commit of now is accepted."""
    ahead = ahead_text(table.latest_ms() - int(time.time() * 1000))
    if ahead:
        raise BlockedError(
            f"{name} takes no commit: {ahead}",
            details=("Iceberg refuses a commit that is older than the one before it.",
                     "Nothing was written."),
            do=REMEDY,
        )  # fmt: skip


def refuse_paused(table: Table, name: str) -> None:
    """Raise if a property of the table stops every action on it."""
    why = paused_because(table.properties())
    if why:
        raise paused_error(name, why)


def paused_error(name: str, why: str) -> PausedError:
    return PausedError(
        f"Paused: {name}: {why}",
        details=("Nothing more was committed.",),
        do=f"remove the property {PAUSED} of the table when its reason has passed",
    )


def refuse_live_branches(table: Table, name: str) -> None:
    """Raise if a branch is live: after a rewrite of main it could not be published
    (write-audit-publish)."""
    live = live_branch(table)
    if live:
        raise live_branch_error(name, live)


def live_branch(table: Table) -> str:
    """Return the first live branch of the table as last loaded or refreshed, "" for none."""
    return branches.live_branch(_branches(table))


def live_branch_error(name: str, live: str) -> LiveBranchesError:
    return LiveBranchesError(
        f"{name} has a live {live}",
        details=("After a rewrite of main it could not be published by fast-forward.",),
        do="publish or drop it first, or set spec.safety.allowLiveBranches: true",
    )


def _branches(table: Table) -> branches.Branches:
    head, refs = table.head(), table.refs()
    others = tuple(
        branches.Branch(
            name,
            ref.snapshot_id,
            head is not None and table.is_ancestor(head, ref.snapshot_id),
        )
        for name, ref in refs.items()
        if name != MAIN and ref.type == BRANCH and not is_of_audit(table, ref.snapshot_id, name)
    )
    if not branches.audits_writes(table.properties()):
        return branches.Branches(head, others)
    on_main = {info.id: info.summary for info in table.ancestors()}
    return branches.Branches(
        head,
        others,
        audited=True,
        staged=tuple(
            (info.id, info.summary["wap.id"])
            for info in table.snapshots()
            if info.id not in on_main and info.summary.get("wap.id")
        ),
        published=frozenset(summary.get("published-wap-id", "") for summary in on_main.values()),
    )


def is_of_audit(table: Table, snapshot_id: int, branch: str) -> bool:
    """Whether an audit of ours left the branch with this head; the next audit drops it."""
    snapshot = table.snapshot(snapshot_id)
    return snapshot is not None and audits.is_own(snapshot.summary, branch)


def judged_snapshot(table: Table, request: ExecutionRequest, name: str) -> int:
    """Return the snapshot judged last. Raises StalePlanError if it has expired."""
    judged = request.judged_snapshot_id or request.base_snapshot_id
    if judged is None or table.snapshot(judged) is None:
        raise StalePlanError(
            f"snapshot {judged}, on which plan {request.plan_id} of {name} was last checked, "
            "has expired",
            do=AGAIN,
        )
    return judged


def judged_tasks(
    table: Table, request: ExecutionRequest, paths: Collection[str], name: str
) -> Tasks:
    """Return the tasks of those paths that were live on the snapshot judged last."""
    return table.tasks(judged_snapshot(table, request, name), paths)


def check_inputs(
    table: Table,
    request: ExecutionRequest,
    items: Sequence[tuple[str, Action]],
    known: Collection[str],
    name: str,
) -> None:
    """Raise if an action without commits has inputs that are not in the snapshot judged last.

    items: actions by id. known: files of that snapshot.
    """
    begun = actions_in_history(table, request)
    foreign = [
        path
        for action_id, action in items
        if action_id not in begun
        for path in action.inputs
        if path not in known
    ]
    if foreign:
        raise StalePlanError(
            f"{plural(len(foreign), 'input file')} of plan {request.plan_id} not in snapshot "
            f"{request.judged_snapshot_id or request.base_snapshot_id} of {name}",
            details=(f"for example {foreign[0]}",),
            do=AGAIN,
        )


def judge(
    action: Action,
    done: bool,
    known: Mapping[str, Deletes],
    live: Mapping[str, TaskFile],
    metadata: TableMetadata,
) -> ActionState:
    """Judge an action on data files. done: the head's ancestors carry its id. known: the deletes on
    its inputs when it was judged last. live: the head's files. metadata: of the head."""
    changed = {p for p in action.inputs if p in live and live[p].deletes != known.get(p)}
    return action.judge(Facts(done=done, live=live, changed=changed, metadata=metadata))


def unless_fallen(
    table: Table, request: ExecutionRequest, states: Mapping[str, ActionState]
) -> dict[str, ActionState]:
    """Return the states: once the plan's snapshot has left the history, what is not done is
    lost."""
    fallen = fallen_on(table, request)
    if fallen is None:
        return dict(states)
    lost = fallen_state(fallen, request)
    return {key: one if one.validity is Validity.DONE else lost for key, one in states.items()}


def actions_in_history(table: Table, request: ExecutionRequest) -> frozenset[str]:
    """Return the ids of the request's actions in commits of main's history since the plan."""
    base = request.base_snapshot_id
    newer = [] if base is None else until(table.ancestors(), base)[0]
    pairs = frozenset().union(*(audits.carried_out(snapshot.summary) for snapshot in newer))
    return frozenset(action for plan, action in pairs if plan == request.plan_id)
