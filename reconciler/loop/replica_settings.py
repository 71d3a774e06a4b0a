"""What a decision on a replica needs of the policy, of the table's history and of the replica."""

from __future__ import annotations

import math
from collections.abc import Sequence

from reconciler.api.documents import PolicySpec
from reconciler.table.metadata import TableMetadata
from reconciler.table.numbers import MAX_AGE_MS, number, readable
from reconciler.table.observation import Observation
from reconciler.table.replica import (
    KEPT_MS,
    LEAST_KEPT_MS,
    Replica,
    SeenReplica,
    WantedReplica,
    changes_rows,
    not_ours,
    not_the_recorded,
    replica_of,
)
from reconciler.table.summary_keys import only_appends


def replica_name(spec: PolicySpec) -> str:
    """Return the name of the replica that the policy asks for, "" if it asks for none."""
    tree = spec.layout.clustering.qd_tree
    return "" if tree is None or tree.replica is None else tree.replica.table


def replica_settings(
    spec: PolicySpec, observation: Observation, seen: SeenReplica | None
) -> WantedReplica | None:
    """Return the settings of the policy's replica; None where it asks for none. seen: the table of
    its name, None if nobody looked."""
    tree, metadata = spec.layout.clustering.qd_tree, observation.metadata
    if tree is None or tree.replica is None:
        return None
    record = replica_of(metadata.properties)
    if record is not None and record.table != tree.replica.table:
        record = None
    changes = [one for one in metadata.log.main if changes_rows(one)]
    others = [one for one in changes if not only_appends(one.operation, one.summary)]
    return WantedReplica(
        tree.replica.table, tree.replica.budget_bytes,
        _between([one.timestamp_ms for one in changes]),
        _between([one.timestamp_ms for one in others]),
        _kept_ms(spec, metadata),
        "" if seen is None else _foreign(observation.uuid, seen, record),
        "" if seen is None or record is None else _lost(record, seen),
    )  # fmt: skip


def _kept_ms(spec: PolicySpec, metadata: TableMetadata) -> int:
    """Return for how long replaced rows of the replica stay: as long as old snapshots of the
    source."""
    asked = spec.maintenance.expire_snapshots if spec.maintenance else None
    own = 0 if asked is None else asked.older_than_seconds * 1000
    if asked is None and MAX_AGE_MS not in readable(metadata.properties):
        return KEPT_MS
    return max(LEAST_KEPT_MS, own, number(metadata.properties, MAX_AGE_MS, 0))


def _foreign(source: str, seen: SeenReplica, record: Replica | None) -> str:
    if seen.unreadable or not seen.uuid:
        return seen.unreadable
    return not_ours(source, seen.properties, seen.main, record)


def _lost(record: Replica, seen: SeenReplica) -> str:
    if not seen.uuid:
        return "it was dropped"
    return not_the_recorded(record, seen.uuid, seen.schema_id, seen.main)


def _between(times: Sequence[int]) -> float:
    """Return the mean time between commits, newest first."""
    if len(times) < 2:
        return math.inf
    return max(0, times[0] - times[-1]) / (len(times) - 1)
