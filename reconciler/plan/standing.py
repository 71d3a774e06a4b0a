"""Whether a plan and its actions are still valid (docs/design/definitions.md#validity-per-action).

The one judgement of both, for the planner, the CLI, the operator, the driver and the executor. Pure
functions: the planner's side passes an `Observation` as a `Head`, the executor's what the JVM reads
from the live table.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from reconciler.format import plural
from reconciler.plan.actions.state import ActionState, Facts, Validity
from reconciler.plan.plan import Plan
from reconciler.table.audits import carried_out
from reconciler.table.filetable import FileTable
from reconciler.table.metadata import TableMetadata
from reconciler.table.observation import Observation


class Fallen(StrEnum):
    """Why a plan does not stand."""

    OTHER_TABLE = "OtherTable"
    DONE = "Done"
    BASE_EXPIRED = "BaseExpired"
    ROLLED_BACK = "RolledBack"
    LOST = "Lost"
    TOO_OLD = "TooOld"


def fallen_base(
    base: int | None, history: Collection[int], retained: Collection[int]
) -> Fallen | None:
    """Whether the snapshot that a plan was made on is still in the table's history.

    history: ids of the head's ancestors. retained: ids of all snapshots that the table still has.
    A plan of a table without snapshots (base None) changes metadata only, and needs no history.
    """
    if base is None or base in history:
        return None
    return Fallen.ROLLED_BACK if base in retained else Fallen.BASE_EXPIRED


def base_text(fallen: Fallen, base: int | None) -> str:
    if fallen is Fallen.BASE_EXPIRED:
        return f"the snapshot {base} that it was made on has expired"
    return (
        f"the snapshot {base} that it was made on is not in the table's history any more: "
        "the table was rolled back or replaced"
    )


@dataclass(frozen=True, slots=True)
class Head:
    """The table's head, from a fresh observation: what the validity of a plan is judged by."""

    uuid: str
    """UUID of the table."""
    files: FileTable
    """Its live data files."""
    deletes: frozenset[str] = frozenset()
    """Paths of its delete files."""
    applying: frozenset[str] = frozenset()
    """Paths of the delete files that apply to a live data file."""
    manifests: frozenset[str] = frozenset()
    """Paths of its manifests."""
    done: frozenset[tuple[str, str]] = frozenset()
    """(plan id, action id) pairs that the head's ancestors carry in their summaries."""
    metadata: TableMetadata = field(default_factory=TableMetadata)
    """Its properties, sort order, partition specs and snapshots."""
    history: Mapping[int, int] = field(default_factory=dict)
    """Sequence number of each ancestor of the head, by snapshot id."""
    retained: frozenset[int] = frozenset()
    """Ids of all snapshots that the table still has."""


def head_of(observation: Observation) -> Head:
    """Return what plans of the observed table are judged against."""
    others = (snapshot.snapshot_id for snapshot in observation.other_snapshots)
    history = {item.snapshot_id: item.sequence_number for item in observation.ancestry}
    return Head(
        uuid=observation.uuid,
        files=observation.files,
        deletes=observation.deletes.paths,
        applying=observation.delete_files.applying,
        manifests=observation.manifest_table.every,
        done=_done_actions(observation),
        metadata=observation.metadata,
        history=history,
        retained=frozenset((*history, *others)),
    )


def _done_actions(observation: Observation) -> frozenset[tuple[str, str]]:
    """Return the (plan id, action id) pairs in the summaries of the head's ancestors."""
    return frozenset().union(*(carried_out(one.summary) for one in observation.ancestry))


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether a plan stands on a table."""

    states: Mapping[str, ActionState]
    """State of every action by its id."""
    fallen: Fallen | None = None
    """Why the plan does not stand, None if it does."""
    why: str = ""
    """The same for people."""
    details: tuple[str, ...] = ()
    """A line for each action that is lost."""


MOST_DETAILS = 5


def judge(plan: Plan, head: Head, now: dt.datetime) -> Judgement:
    """Whether the plan stands, and how each of its actions stands."""
    states = judge_actions(plan, head)
    lost = {key: one.why for key, one in states.items() if one.validity is Validity.LOST}
    base = fallen_base(plan.base_snapshot_id, head.history, head.retained)
    if head.uuid != plan.table_uuid:
        return Judgement(
            states, Fallen.OTHER_TABLE, "the table was dropped and created again after it"
        )
    if all(one.validity is Validity.DONE for one in states.values()):
        return Judgement(states, Fallen.DONE, "it is carried out")
    if base is not None:
        return Judgement(states, base, base_text(base, plan.base_snapshot_id))
    if lost:
        details = tuple(f"{key}: {why}" for key, why in list(lost.items())[:MOST_DETAILS])
        why = f"{len(lost)} of its {plural(len(states), 'action')} lost"
        return Judgement(states, Fallen.LOST, why, details)
    if now >= plan.expires:
        return Judgement(
            states, Fallen.TOO_OLD, f"it expired at {plan.expires:%Y-%m-%dT%H:%M:%SZ} (planTTL)"
        )
    return Judgement(states)


def judge_actions(plan: Plan, head: Head) -> dict[str, ActionState]:
    """How every action of the plan stands, by its id.

    Deletes with a sequence number above that of the plan's snapshot are new. Where the snapshot has
    expired, every delete counts as new: nobody can tell.
    """
    known = head.history.get(plan.base_snapshot_id or 0, -1)
    rows = np.flatnonzero(head.files.newest_delete > known)
    changed = frozenset(head.files.path[rows])
    data = head.files.row_of
    besides = head.deletes | head.manifests
    live = data.keys() | besides if besides else data
    return {
        item.id: item.action.judge(
            Facts(
                done=(plan.id, item.id) in head.done,
                live=live,
                changed=changed,
                applying=head.applying,
                metadata=head.metadata,
            )
        )
        for item in plan.actions
    }
