"""Expired snapshots: what is kept stays readable, and only what nothing needs is deleted."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

from reconciler.engines.actions.expire_snapshots import ExpireExecutor
from reconciler.errors import VerificationError
from reconciler.plan.actions.expire_snapshots import ExpireSnapshots
from reconciler.plan.actions.state import ActionState, Validity
from reconciler.spark.commit.metadata_changes import Expiry
from reconciler.table.retention import Retention, kept
from tests.spark.tables import Bench, intact

pytestmark = pytest.mark.spark

DAY_MS = 86_400_000


@pytest.fixture
def aged(bench: Bench) -> str:
    """Six snapshots: three appends, an overwrite, a tag on the second, a branch of its own, and
    merge-on-read deletes, so that content of every kind is replaced."""
    name = bench.create(
        "id bigint, s string",
        "'format-version'='2', 'write.delete.mode'='merge-on-read'",
    )
    full = bench.full(name)
    for start in (0, 100):
        bench.sql(f"INSERT INTO {full} SELECT id, 'a' FROM RANGE({start}, {start + 100}, 1, 1)")
    bench.sql(f"ALTER TABLE {full} CREATE TAG release")
    bench.sql(f"DELETE FROM {full} WHERE id % 10 = 0")
    bench.sql(f"INSERT OVERWRITE {full} SELECT id, 'b' FROM RANGE(0, 150, 1, 1)")
    bench.sql(f"ALTER TABLE {full} CREATE BRANCH audit")
    bench.sql(f"DELETE FROM {full} WHERE id < 5")
    bench.sql(f"INSERT OVERWRITE {full} SELECT id, 'c' FROM RANGE(0, 120, 1, 1)")
    return name


def due(bench: Bench, name: str, **more: Any) -> ExpireSnapshots:
    log = bench.live(name).log()
    later = int(time.time() * 1000) + DAY_MS
    held = kept(log, Retention(0, 1), later)
    return ExpireSnapshots(tuple(sorted(log.by_id.keys() - held)), 0, 1, **more)


def read(bench: Bench, name: str, ref: str) -> int:
    return len(bench.sql(f"SELECT * FROM {bench.full(name)} VERSION AS OF '{ref}'"))


def on_disk(bench: Bench, name: str) -> set[str]:
    location = bench.table(name).location().removeprefix("file:").replace("//", "/")
    return {path.name for path in Path(location).rglob("*.parquet")}


def test_only_what_nothing_needs_goes(bench: Bench, aged: str) -> None:
    action, rows, before = due(bench, aged), bench.rows(aged), on_disk(bench, aged)
    refs = bench.sql(f"SELECT name, snapshot_id FROM {bench.full(aged)}.refs ORDER BY name")
    assert len(action.snapshots) == 2
    late = bench.spark.sql(f"SELECT * FROM {bench.full(aged)} VERSION AS OF 'release'")
    result = bench.run(bench.request(aged, action))
    assert result.done
    assert result.outcomes[0].detail.startswith("snapshots: 6 -> 4; ")
    assert bench.sql(f"SELECT name, snapshot_id FROM {bench.full(aged)}.refs ORDER BY name") == refs
    assert (read(bench, aged, "release"), read(bench, aged, "audit")) == (200, 150)
    assert late.count() == 200
    assert len(on_disk(bench, aged)) < len(before)
    intact(bench, aged, rows)
    assert bench.run(bench.request(aged, action)).outcomes == ()


def test_a_tag_that_someone_sets_meanwhile_wins(bench: Bench, aged: str) -> None:
    action, full = due(bench, aged), bench.full(aged)
    bench.sql(f"ALTER TABLE {full} CREATE TAG mine AS OF VERSION {action.snapshots[0]}")
    result = bench.run(bench.request(aged, action))
    assert result.actions[0].state is Validity.LOST
    assert re.findall(r"\d+", result.actions[0].detail) == ["1", "2"]
    assert result.outcomes == ()


def test_a_tag_that_slips_in_before_the_commit_wins(
    bench: Bench, aged: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    action, original, slipped = due(bench, aged), Expiry.changed, []

    def changed(self: Any, base: Any, given: Any) -> Any:
        wanted = original(self, base, given)
        if not slipped:
            tag = f"CREATE TAG mine AS OF VERSION {action.snapshots[0]}"
            slipped.append(bench.sql(f"ALTER TABLE {bench.full(aged)} {tag}"))
        return wanted

    monkeypatch.setattr(Expiry, "changed", changed)
    result = bench.run(bench.request(aged, action))
    assert result.actions[0].state is Validity.LOST
    assert read(bench, aged, "mine") > 0
    intact(bench, aged)


def test_more_than_was_planned_is_never_removed(
    bench: Bench, aged: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = int(bench.table(aged).currentSnapshot().snapshotId())
    action = ExpireSnapshots((head,), 0, 1)
    assert bench.run(bench.request(aged, action)).actions[0].state is Validity.LOST
    pending = due(bench, aged)
    monkeypatch.setattr(ExpireExecutor, "state", lambda self, given, facts: given.judge(facts))
    monkeypatch.setattr(ExpireSnapshots, "judge", lambda self, facts: ActionState(Validity.PENDING))
    with pytest.raises(VerificationError):
        bench.run(bench.request(aged, ExpireSnapshots((*pending.snapshots, head), 0, 1)))
    intact(bench, aged)


def test_a_table_that_forbids_it_is_left_alone(bench: Bench, aged: str) -> None:
    action = due(bench, aged)
    bench.sql(f"ALTER TABLE {bench.full(aged)} SET TBLPROPERTIES ('gc.enabled'='false')")
    result = bench.run(bench.request(aged, action))
    assert result.actions[0].state is Validity.LOST
    intact(bench, aged)
