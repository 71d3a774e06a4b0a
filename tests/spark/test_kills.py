"""What is left by a process that ends at one moment of housekeeping, and what the next run does.

The process is not killed: its work stops at that moment, and its writer counts as dead. Real kills
are in `test_faults.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from reconciler.engines.actions.one_by_one import OneByOneExecutor
from reconciler.engines.commit import batch, cleanup, commit, metadata
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.delete_maintenance import RemoveDanglingDeletes
from reconciler.plan.actions.expire_snapshots import ExpireSnapshots
from reconciler.plan.actions.remove_orphans import RemoveOrphans
from reconciler.plan.actions.rewrite import ApplyDeletes
from reconciler.plan.actions.rewrite_manifests import RewriteManifests
from reconciler.spark.session import iceberg
from reconciler.table import summary_keys
from tests.spark.disturbed import killed_at
from tests.spark.equality import add_equality_delete, data_files, delete_paths, on_disk
from tests.spark.tables import Bench, intact

pytestmark = pytest.mark.spark

DAY_MS = 86_400_000


def _dangling(bench: Bench) -> tuple[str, Action]:
    name = bench.create("id bigint, p int", "'format-version'='2'", "p")
    full = bench.full(name)
    for p in (0, 1):
        bench.sql(f"INSERT INTO {full} SELECT /*+ COALESCE(1) */ id, {p} FROM range(10)")
    second = next(path for path in data_files(bench, name) if "p=1" in path)
    path = add_equality_delete(bench, name, {"id": pa.array([4], pa.int64())}, like=second)
    applied = bench.action(name, ApplyDeletes, inputs=(second,), partition=(1,))
    assert bench.run(bench.request(name, applied, plan="p-0")).done
    assert delete_paths(bench, name) == (path,)
    return name, RemoveDanglingDeletes(inputs=(path,), partition=(1,))


def _manifests(bench: Bench) -> tuple[str, Action]:
    name = bench.create("id bigint", "'commit.manifest-merge.enabled'='false'")
    for number in range(4):
        bench.append(name, {"id": [number]})
    return name, RewriteManifests(bench.manifests(name), 1)


def _snapshots(bench: Bench) -> tuple[str, Action]:
    name = bench.create("id bigint")
    for number in range(2):
        bench.append(name, {"id": [number]})
    bench.sql(f"INSERT OVERWRITE {bench.full(name)} SELECT 7")
    old = [int(one.snapshotId()) for one in iceberg.each(bench.table(name).snapshots())][:-1]
    return name, ExpireSnapshots(tuple(sorted(old)), 0, 1)


def _orphans(bench: Bench) -> tuple[str, Action]:
    name = bench.create("id bigint")
    bench.append(name, {"id": [1]})
    paths = [on_disk(bench.table(name).location()) / "data" / f"o{n}.parquet" for n in range(2)]
    for path in paths:
        path.write_bytes(b"x")
        os.utime(path, (0, 0))
    return name, RemoveOrphans(tuple(f"file:{path}" for path in paths), 2 * DAY_MS)


Made = Callable[[Bench], tuple[str, Action]]
CASES: list[tuple[Made, Any, str]] = [
    (_dangling, commit, "prepare"),
    (_dangling, commit, "send"),
    (_dangling, batch, "_record_commit"),
    (_manifests, commit, "send"),
    (_manifests, batch, "_record_commit"),
    (_snapshots, metadata, "apply"),
    (_snapshots, cleanup, "discard"),
    (_snapshots, OneByOneExecutor, "record"),
    (_orphans, cleanup, "discard"),
    (_orphans, OneByOneExecutor, "record"),
]
"""Before anything is sent, before it arrives, after it arrived, and before it is recorded."""


@pytest.mark.parametrize(("made", "place", "step"), CASES)
def test_housekeeping_that_is_cut_short_is_finished_by_the_next_run(
    bench: Bench, made: Made, place: Any, step: str
) -> None:
    name, action = made(bench)
    rows, refs = bench.rows(name), set(bench.table(name).refs())
    request = bench.request(name, action)
    with killed_at(place, step):
        bench.run(request)
    assert bench.rows(name) == rows
    assert bench.run(request).done
    assert bench.rows(name) == rows and set(bench.table(name).refs()) == refs
    ours = [one for one in iceberg.ancestors(bench.table(name)) if _is_of(one, "p-1")]
    assert len(ours) == (made in (_dangling, _manifests))
    assert bench.leftovers(name) == []
    if (made, step) != (_snapshots, "discard"):  # which the search for orphans removes
        intact(bench, name, rows)


def _is_of(snapshot: Any, plan: str) -> bool:
    return bool(snapshot.summary.get(summary_keys.PLAN_ID) == plan)
