"""Files that a plan found unreferenced are looked up again before they are deleted."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row

from reconciler.catalog.observe import observe_table
from reconciler.catalog.orphans import find_orphans
from reconciler.engines.commit import commit
from reconciler.engines.schedule import processes
from reconciler.errors import BlockedError
from reconciler.plan.actions.audited import Publish
from reconciler.plan.actions.expire_snapshots import ExpireSnapshots
from reconciler.plan.actions.remove_orphans import RemoveOrphans
from reconciler.plan.actions.rewrite import BinPack
from reconciler.plan.actions.state import Validity
from reconciler.plan.execution import Audit
from reconciler.spark.session import iceberg
from reconciler.table.orphans import Search
from reconciler.table.retention import Retention, kept
from tests.spark.disturbed import killed_at
from tests.spark.equality import on_disk
from tests.spark.tables import Bench, intact

pytestmark = pytest.mark.spark

DAY_MS = 86_400_000
WAITS = Audit("candidate", waits="policy")


def _aged(bench: Bench, name: str) -> dict[str, Path]:
    """All files of the table, made old, by kind; and one that nothing refers to."""
    root = on_disk(bench.table(name).location())
    (root / "data" / "orphan.parquet").write_bytes(b"x")
    for path in root.rglob("*"):
        os.utime(path, (0, 0))
    return {
        "orphan": root / "data" / "orphan.parquet",
        "data": next(path for path in root.rglob("data/*.parquet") if path.stem != "orphan"),
        "manifest": next(root.rglob("metadata/*-m0.avro")),
        "list": next(root.rglob("metadata/snap-*.avro")),
        "metadata": next(root.rglob("metadata/*.metadata.json")),
    }


def _removal(paths: dict[str, Path]) -> RemoveOrphans:
    return RemoveOrphans(tuple(sorted(f"file:{path}" for path in paths.values())), 2 * DAY_MS)


def test_what_is_referred_to_by_now_stays(bench: Bench) -> None:
    name = bench.create("id bigint, s string")
    bench.write(name, 2, 10, "n, 'x'")
    before, paths = bench.rows(name), _aged(bench, name)
    result = bench.run(bench.request(name, _removal(paths)))
    assert (result.done, result.commits) == (True, 0)
    assert [kind for kind, path in paths.items() if not path.exists()] == ["orphan"]
    (outcome,) = bench.ledger.outcomes()
    assert outcome.detail.startswith("1 file removed") and "4 of" in outcome.detail
    intact(bench, name, before)


def test_files_of_a_branch_and_of_an_old_snapshot_stay(bench: Bench) -> None:
    name = bench.create("id bigint, s string")
    full = bench.full(name)
    bench.write(name, 2, 10, "n, 'x'")
    bench.sql(f"ALTER TABLE {full} CREATE BRANCH other")
    bench.sql(f"INSERT INTO {full}.branch_other VALUES (7, 'branch')")
    bench.sql(f"INSERT OVERWRITE {full} VALUES (1, 'new')")
    root = on_disk(bench.table(name).location())
    every = {str(number): path for number, path in enumerate(sorted(root.rglob("data/*.parquet")))}
    _aged(bench, name)
    (root / "data" / "orphan.parquet").unlink()
    bench.run(bench.request(name, _removal(every), allow_live_branches=True))
    assert len(every) >= 4 and all(path.exists() for path in every.values())
    assert len(bench.sql(f"SELECT * FROM {full} VERSION AS OF 'other'")) == 21


def test_a_table_whose_files_may_belong_to_others_is_left_alone(bench: Bench) -> None:
    name = bench.create("id bigint, s string", "'gc.enabled'='false'")
    bench.write(name, 1, 10, "n, 'x'")
    paths: Any = _aged(bench, name)
    (state,) = bench.run(bench.request(name, _removal(paths))).actions
    assert state.state is Validity.LOST and "gc.enabled" in state.detail
    assert paths["orphan"].exists()


def _found(bench: Bench, name: str, under_way: tuple[str, ...] = ()) -> set[str]:
    """Names of the files that a plan would remove, however old the table's files are."""
    search, now = Search(2 * DAY_MS), 400_000 * DAY_MS
    where = bench.config, ("jobs", name), bench.directory / "cache"
    found = find_orphans(*where, search, now, under_way=under_way)
    return {Path(file.path).name for file in found.files}


def test_what_waits_for_approval_is_neither_an_orphan_nor_expires(bench: Bench) -> None:
    """Its branch is the only one that needs the files, and the snapshot that they were made
    from."""
    name = bench.create("id bigint, s string")
    bench.write(name, 3, 10, "n, 'x'")
    rows = bench.rows(name)
    base = int(bench.table(name).currentSnapshot().snapshotId())
    packed = bench.action(name, BinPack, target_bytes=1 << 20)
    assert bench.run(bench.request(name, packed, audit=WAITS)).waiting == 1
    for number in range(2):
        bench.append(name, {"id": [1_000 + number], "s": ["new"]})
    paths = _aged(bench, name)
    assert _found(bench, name) == {"orphan.parquet"}
    (waiting,) = observe_table(bench.config, ("jobs", name), bench.directory / "cache").waiting
    log = bench.live(name).log()
    held = kept(log, Retention(0, 1), 400_000 * DAY_MS)
    assert {base, waiting.snapshot_id} <= held
    due = ExpireSnapshots(tuple(sorted(log.by_id.keys() - held)), 0, 1)
    for action in (_removal(paths), due):
        with pytest.raises(BlockedError):
            bench.run(bench.request(name, action, plan="p-2"))
    publish = Publish(waiting.inputs, waiting.branch, waiting.snapshot_id)
    assert bench.run(bench.request(name, publish, plan="p-3", audit=WAITS)).done
    assert sum((bench.rows(name) - rows).values()) == 2
    assert bench.run(bench.request(name, _removal(paths), plan="p-4")).done
    intact(bench, name)


def test_the_files_of_an_open_attempt_are_left_to_those_who_settle_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However old they are: the attempt may still commit them."""
    name = bench.create("id bigint, s string")
    bench.write(name, 3, 10, "n, 'x'")
    rows, packed = bench.rows(name), bench.action(name, BinPack, target_bytes=1 << 20)
    with killed_at(commit, "send"):
        bench.run(bench.request(name, packed))
    paths = _aged(bench, name)
    uuid = str(bench.table(name).operations().current().uuid())
    open_ones = bench.ledger.open_intents(uuid)
    staged = {Path(path).name for intent in open_ones for path in intent.outputs}
    assert staged and staged <= _found(bench, name)
    under_way = tuple(intent.prefix for intent in open_ones)
    assert _found(bench, name, under_way) & staged == set()
    with monkeypatch.context() as patched:
        patched.setattr(processes, "wait_until_dead", lambda writer, seconds: False)
        with pytest.raises(BlockedError):
            bench.run(bench.request(name, _removal(paths), plan="p-2"))
    assert paths["orphan"].exists() and bench.leftovers(name) != []
    assert bench.run(bench.request(name, _removal(paths), plan="p-2")).done
    intact(bench, name, rows)


def _pyiceberg(bench: Bench, name: str) -> Any:
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog(bench.config.name, **dict(bench.config.properties))
    return catalog.load_table(("jobs", name))


def test_files_that_a_table_of_before_shares_stay(bench: Bench) -> None:
    """Its name was used again, so both lie in one place; neither a removal of orphans nor an expiry
    touches what the other needs."""
    name = bench.create("id bigint, s string")
    bench.append(name, {"id": [1, 2], "s": ["a", "b"]})
    bench.sql(f"ALTER TABLE {bench.full(name)} RENAME TO jobs.{name}_old")
    bench.sql(f"CREATE TABLE {bench.full(name)} (id bigint, s string) USING iceberg")
    bench.append(name, {"id": [3], "s": ["c"]})
    root = on_disk(bench.table(name).location())
    (new,) = (str(row.file_path) for row in bench.files(name))
    _pyiceberg(bench, f"{name}_old").add_files([new])
    old, before = bench.rows(f"{name}_old"), set(root.rglob("data/*.parquet"))
    _aged(bench, name)
    planned = {str(path): path for path in root.rglob("data/*.parquet")}
    assert bench.run(bench.request(name, _removal(planned))).done
    assert set(root.rglob("data/*.parquet")) == before
    bench.sql(f"INSERT OVERWRITE {bench.full(name)} VALUES (4, 'd')")
    first = int(next(iter(iceberg.each(bench.table(name).snapshots()))).snapshotId())
    assert bench.run(bench.request(name, ExpireSnapshots((first,), 0, 1), plan="p-2")).done
    assert (
        bench.rows(f"{name}_old")
        == old
        == Counter(str(Row(id=id, s=s)) for id, s in ((1, "a"), (2, "b"), (3, "c")))
    )


def test_a_removal_that_cannot_be_proven_now_is_lost_and_says_why(bench: Bench) -> None:
    name = bench.create("id bigint, s string")
    bench.append(name, {"id": [1], "s": ["a"]})
    paths = _aged(bench, name)
    damaged = paths["orphan"].parent / "00001-x.metadata.json"
    damaged.write_bytes(b"{")
    (state,) = bench.run(bench.request(name, _removal(paths))).actions
    assert state.state is Validity.LOST and damaged.name in state.detail
    assert paths["orphan"].exists() and bench.ledger.outcomes() == []
    damaged.unlink()
    assert bench.run(bench.request(name, _removal(paths), plan="p-2")).done
    assert not paths["orphan"].exists()
