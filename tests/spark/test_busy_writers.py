"""Maintenance beside a writer that commits at every step of it: each commit is kept."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from reconciler.plan.actions.base import Action
from reconciler.plan.actions.delete_maintenance import ConvertDeletes
from reconciler.plan.actions.rewrite import ApplyDeletes
from reconciler.plan.execution import Event
from tests.spark.equality import add_equality_delete, data_files, delete_paths
from tests.spark.tables import Bench

pytestmark = pytest.mark.spark

COMMITS, AT_ONCE = 100, 8


class Writer:
    """Appends new ids, and deletes single ids by equality; knows which are live."""

    def __init__(self, bench: Bench, name: str, live: set[int]) -> None:
        self.bench, self.name, self.live = bench, name, live
        self.commits = 0
        self.chance = random.Random(5)
        config = bench.config
        self.catalog: Any = load_catalog(config.name, **dict(config.properties))

    def on_event(self, event: Event) -> None:
        for _ in range(min(AT_ONCE, COMMITS - self.commits)):
            if self.commits % 3 == 2:
                key = self.chance.choice(sorted(self.live))
                add_equality_delete(self.bench, self.name, {"id": pa.array([key], pa.int64())})
                self.live.discard(key)
            else:
                first = 1_000 + 4 * self.commits
                ids = list(range(first, first + 4))
                self.catalog.load_table(("jobs", self.name)).append(pa.table({"id": ids}))
                self.live.update(ids)
            self.commits += 1


def test_a_hundred_commits_beside_maintenance_are_kept_and_hinder_none_of_it(
    bench: Bench,
) -> None:
    name = bench.create("id bigint", "'format-version'='2'")
    bench.sql(f"INSERT INTO {bench.full(name)} SELECT id FROM range(0, 120, 1, 3)")
    add_equality_delete(bench, name, {"id": pa.array([7], pa.int64())})
    writer = Writer(bench, name, set(range(120)) - {7})
    rounds = 0
    while writer.commits < COMMITS and rounds < 20:
        action: Action = ConvertDeletes(inputs=delete_paths(bench, name, 2))
        if rounds % 3 == 2:
            action = ApplyDeletes(inputs=tuple(sorted(data_files(bench, name)))[:20])
        request = bench.request(name, action, plan=f"p-{rounds}")
        result = bench.run(request, writer.on_event)
        assert (result.conflicts, result.commits) == (0, 1), result
        rounds += 1
    assert writer.commits == COMMITS and rounds >= 2
    ids = bench.ids(name)
    assert ids == sorted(writer.live)
    assert bench.leftovers(name) == []
