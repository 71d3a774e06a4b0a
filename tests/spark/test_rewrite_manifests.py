"""Rewritten manifests: fewer, ordered by partition, with every entry as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reconciler.catalog.observe import observe_table
from reconciler.engines.actions import rewrite_manifests
from reconciler.errors import VerificationError
from reconciler.plan.actions.rewrite_manifests import RewriteManifests
from reconciler.plan.actions.state import Validity
from reconciler.spark.commit import manifests
from tests.spark.tables import Bench, intact

pytestmark = pytest.mark.spark


@pytest.fixture(params=["2", "3"])
def scattered(bench: Bench, request: pytest.FixtureRequest) -> str:
    """Six appends to each of four partitions, and deletes that are merged on read."""
    name = bench.create(
        "id bigint, p int",
        f"'format-version'='{request.param}', 'write.delete.mode'='merge-on-read', "
        "'commit.manifest-merge.enabled'='false'",
        "p",
    )
    for start in range(0, 240, 40):
        if request.param == "2":
            ids = range(start, start + 40)
            bench.append(name, {"id": ids, "p": [number % 4 for number in ids]})
        else:  # pyiceberg writes no rows there
            rows = f"SELECT id, int(id % 4) FROM RANGE({start}, {start + 40}, 1, 1)"
            bench.sql(f"INSERT INTO {bench.full(name)} {rows}")
    bench.sql(f"DELETE FROM {bench.full(name)} WHERE id % 9 = 0")
    return name


def rewriting(bench: Bench, name: str, groups: int = 2) -> RewriteManifests:
    found = bench.sql(f"SELECT path FROM {bench.full(name)}.manifests WHERE content = 0")
    return RewriteManifests(tuple(sorted(row.path for row in found)), groups)


def entries(bench: Bench, name: str) -> tuple[int, str]:
    return manifests.live_entries(bench.spark, bench.table(name), None)


def test_manifests_become_few_and_hold_the_same(
    bench: Bench, scattered: str, tmp_path: Path
) -> None:
    action, rows, held = (
        rewriting(bench, scattered),
        bench.rows(scattered),
        entries(bench, scattered),
    )
    seen = observe_table(bench.config, ("jobs", scattered), tmp_path / "cache").manifest_table
    assert (len(seen), seen.read_now) == (6, 6.0)
    assert set(seen.path) == set(action.inputs) < seen.every
    result = bench.run(bench.request(scattered, action))
    assert result.done, result.actions
    assert bench.rows(scattered) == rows
    assert entries(bench, scattered) == held
    after = observe_table(bench.config, ("jobs", scattered), tmp_path / "cache").manifest_table
    assert (len(after), after.read_now) == (2, 1.0)
    assert after.every - set(after.path) == seen.every - set(seen.path)
    intact(bench, scattered, rows)
    assert bench.run(bench.request(scattered, action)).outcomes == ()


def test_an_append_beside_it_is_kept(
    bench: Bench, scattered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    action, original = rewriting(bench, scattered), rewrite_manifests.batch.send

    def send(*given: Any) -> bool:
        bench.sql(f"INSERT INTO {bench.full(scattered)} VALUES (-1, 1)")
        return original(*given)

    monkeypatch.setattr(rewrite_manifests.batch, "send", send)
    rows = bench.rows(scattered)
    assert bench.run(bench.request(scattered, action)).done
    assert sum(bench.rows(scattered).values()) == sum(rows.values()) + 1
    intact(bench, scattered)


def test_manifests_that_another_replaced_are_left_alone(bench: Bench, scattered: str) -> None:
    action = rewriting(bench, scattered)
    bench.sql(f"INSERT OVERWRITE {bench.full(scattered)} SELECT id, int(id) FROM RANGE(4)")
    result = bench.run(bench.request(scattered, action))
    assert result.actions[0].state is Validity.LOST
    assert result.outcomes == ()


def test_different_entries_are_not_committed(
    bench: Bench, scattered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    action, original = rewriting(bench, scattered), manifests.live_entries

    def live_entries(spark: Any, table: Any, snapshot: Any) -> tuple[int, str]:
        found = original(spark, table, snapshot)
        return found if snapshot is None else (found[0], found[1] + "1")

    monkeypatch.setattr(manifests, "live_entries", live_entries)
    head = int(bench.table(scattered).currentSnapshot().snapshotId())
    with pytest.raises(VerificationError):
        bench.run(bench.request(scattered, action))
    assert int(bench.table(scattered).currentSnapshot().snapshotId()) == head
    intact(bench, scattered)
