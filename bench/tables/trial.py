"""Rewrites a table by the executors that carry out plans, to look at it, and rolls it back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bench.tables.play import NAMESPACE, Place, Seen
from reconciler.engines.schedule import execute
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.rewrite import BinPack, Cluster
from reconciler.plan.execution import ExecutionRequest
from reconciler.plan.ordering import Ordering
from reconciler.spark.engine import JavaBackend
from reconciler.table.filetable import Int64
from tests.spark.ledger import FileLease, FileLedger


def arranged(
    seen: Seen, rows: Int64, ordering: Ordering, target_bytes: int, row_group_bytes: int
) -> list[Action]:
    """Return one action per partition that arranges these files anew. rows: of the file table."""
    files, kind = seen.observation.files, Cluster if ordering.key else BinPack
    actions: list[Action] = []
    for number in np.unique(files.partition[rows]):
        spec_id, values = files.partitions[int(number)]
        mine = rows[files.partition[rows] == number]
        actions.append(
            kind(
                spec_id=spec_id, partition=values, ordering=ordering, target_bytes=target_bytes,
                row_group_bytes=row_group_bytes, inputs=tuple(sorted(map(str, files.path[mine]))),
            )
        )  # fmt: skip
    return actions


def carry_out(place: Place, name: str, seen: Seen, actions: Sequence[Action], plan: str) -> None:
    """Raises RuntimeError if an action is left undone."""
    request = ExecutionRequest(
        catalog=place.config,
        table=(NAMESPACE, name),
        table_uuid=seen.observation.uuid,
        plan_id=plan,
        actions=tuple(actions),
        action_ids=tuple(f"a{n:02d}" for n in range(1, len(actions) + 1)),
        base_snapshot_id=seen.observation.snapshot_id,
        verify="Counts",
        backoff_seconds=0.0,
    )
    ledger = place.root / f"ledger-{name}.db"
    done = execute.execute(
        request, JavaBackend(place.spark), FileLedger(ledger), FileLease(ledger),
        lambda event: None, lambda: False,
    )  # fmt: skip
    if not done.done:
        raise RuntimeError(f"{name}: {plan} was not carried out: {done}")


def roll_back(place: Place, name: str, seen: Seen) -> None:
    """Set the table back to the snapshot that it had when it was seen."""
    snapshot = seen.observation.snapshot_id
    place.spark.sql(
        f"CALL {place.config.name}.system.rollback_to_snapshot('{NAMESPACE}.{name}', {snapshot})"
    )
