"""One commit by Iceberg's Java library and one in Python, from the same table, are the same."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from reconciler.commit.snapshot import SnapshotChange
from tests.commit.random_twins import METADATA, OPERATIONS, twinned
from tests.commit.twins import copied, filled
from tests.examples import seeds
from tests.spark.tables import Bench

MERGED = "'commit.manifest.min-count-to-merge'='2'"
LISTED = "'write.summary.partition-limit'='10'"
UNMERGED = "'commit.manifest-merge.enabled'='false'"


@pytest.mark.parametrize(
    ("version", "properties"), [(2, MERGED), (2, LISTED), (2, UNMERGED), (1, MERGED)]
)
def test_replaced_files(bench: Bench, iceberg_catalog: Any, version: int, properties: str) -> None:
    both = filled(bench, iceberg_catalog, version, properties=properties, deletes=version > 1)
    live = both.entries()
    gone = sorted(path for path in live if "day=0" in path)[:2]
    tasks = both.java_tasks()
    files = bench.spark._jvm.org.apache.iceberg.DataFiles
    update = both.java.newRewrite().validateFromSnapshot(both.java.currentSnapshot().snapshotId())
    if version > 1:
        update.dataSequenceNumber(both.java.currentSnapshot().sequenceNumber())
    for path in gone:
        update.deleteFile(tasks[path].file())
    for path in gone:
        copy = files.builder(both.java.spec()).copy(tasks[path].file()).withPath(f"{path}.copy")
        update.addFile(copy.build())
    update.set("layout.plan-id", "p")
    update.commit()
    change = SnapshotChange(
        "replace",
        added=[copied(f"{path}.copy", live[path]) for path in gone],
        sequence=both.python.state.metadata.get("last-sequence-number"),
        removed={path: live[path][0] for path in gone},
        summary={"layout.plan-id": "p"},
    )
    both.committed(change)
    assert both.differences() == {}


@pytest.mark.soak
def test_each_kind_of_change_of_random_tables(bench: Bench, iceberg_catalog: Any) -> None:
    done: Counter[str] = Counter()
    for seed in seeds(8):
        done += twinned(iceberg_catalog, bench, seed)
    assert {*OPERATIONS, *METADATA} <= done.keys(), done
