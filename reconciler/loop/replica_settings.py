"""What a decision on a replica needs of the policy and of the table's history."""

from __future__ import annotations

import math
from collections.abc import Sequence

from reconciler.api.documents import QdTree
from reconciler.table.replica import ADDS_ROWS, SAME_ROWS, WantedReplica
from reconciler.table.retention import SnapshotLog


def replica_settings(given: QdTree | None, log: SnapshotLog) -> WantedReplica | None:
    """Return the settings of the policy's replica; None where it asks for none."""
    if given is None or given.replica is None:
        return None
    changes = [one for one in log.main if one.operation != SAME_ROWS]
    others = [one for one in changes if one.operation != ADDS_ROWS]
    return WantedReplica(
        given.replica.table, given.replica.budget_bytes,
        _between([one.timestamp_ms for one in changes]),
        _between([one.timestamp_ms for one in others]),
    )  # fmt: skip


def _between(times: Sequence[int]) -> float:
    """Return the mean time between commits, newest first."""
    if len(times) < 2:
        return math.inf
    return max(0, times[0] - times[-1]) / (len(times) - 1)
