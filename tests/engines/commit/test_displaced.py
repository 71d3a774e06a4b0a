"""A catalog that accepts every commit and checks no requirement, with two writers that race."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from reconciler.api.catalog_config import CatalogConfig
from reconciler.api.choices import EngineType
from reconciler.commit.engine import LocalBackend
from reconciler.commit.local_table import LocalTable
from reconciler.commit.table import LiveTable
from reconciler.engines.commit import batch, fence
from reconciler.engines.local import machine
from reconciler.engines.local.pool import Pool
from reconciler.engines.schedule.execute import execute
from reconciler.errors import BlockedError, RolledBackError
from reconciler.plan.actions.rewrite import BinPack
from reconciler.plan.execution import ExecutionRequest
from reconciler.plan.ordering import ARRIVAL
from reconciler.table.summary_keys import ACTION_IDS
from tests.commit.rest import RestCatalog, said
from tests.conftest import sqlite_catalog
from tests.spark.disturbed import killed_at
from tests.spark.ledger import FileLease, FileLedger


class Careless(RestCatalog):
    """It applies the updates of each request to the table as it is. after: called after each."""

    def __init__(self, catalog: Any) -> None:
        super().__init__(catalog)
        self.after = lambda: None

    def commit(self, name: str, body: bytes) -> tuple[int, dict[str, Any]]:
        from pyiceberg.catalog.rest import CommitTableRequest

        self.before()
        asked = CommitTableRequest.model_validate_json(body)
        table = self.catalog.load_table((self.namespace, name))
        try:
            self.catalog.commit_table(table, (), tuple(asked.updates))
        except ValueError as error:
            return 400, said(str(error))
        self.after()
        return 200, self.table(name)


class World:
    """A table of three files, and what packs them into one."""

    def __init__(self, directory: Path, version: int) -> None:
        from pyiceberg.catalog.sql import SqlCatalog

        (directory / "warehouse").mkdir()
        self.directory = directory
        own = sqlite_catalog(directory)
        self.catalog = SqlCatalog("rec", **dict(own.properties))
        self.catalog.create_namespace("jobs")
        schema = pa.schema([("id", pa.int64())])
        self.catalog.create_table("jobs.t", schema, properties={"format-version": str(version)})
        for number in range(3):
            self.append(number)
        self.rest = Careless(self.catalog)
        self.config = CatalogConfig(
            "rec", "rest", {"type": "rest", "uri": self.rest.uri}, source="test"
        )
        self.ledger = FileLedger(directory / "ledger.db")
        self.plans = iter("abc")
        self.request: Any = None

    @property
    def table(self) -> Any:
        return self.catalog.load_table("jobs.t")

    def append(self, *ids: int) -> None:
        self.table.append(pa.table({"id": pa.array(ids, pa.int64())}))

    def once(self, call: Any) -> Any:
        """Return what makes the other writer's call at the first request alone."""
        left = [call]
        return lambda: left.pop()() if left else None

    def rows(self) -> list[int]:
        return sorted(self.table.scan().to_arrow().column("id").to_pylist())

    def planned(self, backend: LocalBackend) -> ExecutionRequest:
        table = backend.load(self.config, ("jobs", "t"))
        paths = sorted(task.file.file_path for task in self.table.scan().plan_files())
        return ExecutionRequest(
            catalog=self.config, table=("jobs", "t"), table_uuid=table.uuid(),
            plan_id=f"p-{next(self.plans) * 16}", action_ids=("a01",),
            actions=(BinPack(tuple(paths), 0, (), ARRIVAL),), base_snapshot_id=table.head(),
            engine=EngineType.LOCAL, memory_bytes=1 << 30, written_shares=(1.0,),
            backoff_seconds=0.0,
        )  # fmt: skip

    def carried_out(self, request: ExecutionRequest | None = None) -> Any:
        """Pack all files in one attempt; return the result."""
        with Pool(1) as pool:
            here, cache = machine.of_this(""), self.directory / "cache"
            backend = LocalBackend(pool, here, cache, lambda _: None)
            self.request = request or self.planned(backend)
            lease = FileLease(self.directory / "leases.db")
            return execute(self.request, backend, self.ledger, lease, lambda _: None, lambda: False)

    def files(self) -> int:
        return len(list(self.table.scan().plan_files()))

    def stale(self, *ids: int) -> Any:
        """Return another writer's append that is made now, and sent without a look at main."""
        from pyiceberg.table.update import SetSnapshotRefUpdate

        appended = self.table.transaction()
        appended.append(pa.table({"id": pa.array(ids, pa.int64())}))
        table, updates = appended._table, tuple(appended._updates)
        assert any(isinstance(one, SetSnapshotRefUpdate) for one in updates)
        return lambda: self.catalog.commit_table(table, (), updates)

    def own(self) -> list[int]:
        return [one.snapshot_id for one in self.table.metadata.snapshots
                if ACTION_IDS in one.summary.additional_properties]  # fmt: skip


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A table of format 1, which has no sequence numbers."""
    made = World(tmp_path, 1)
    yield made
    made.rest.stop()


def test_a_commit_that_displaced_another_one_is_noticed_and_taken_back(world: World) -> None:
    world.rest.before = world.once(lambda: world.append(9))
    with pytest.raises(BlockedError, match="displaced snapshot") as raised:
        world.carried_out()
    assert world.rows() == [0, 1, 2, 9]
    line = {one.snapshot_id for one in world.table.metadata.snapshot_log[-1:]}
    ours, displaced = world.own()[0], world.table.current_snapshot().snapshot_id
    assert line == {displaced}
    assert str(ours) in str(raised.value) and str(displaced) in str(raised.value)
    assert not world.ledger.open_intents(str(world.table.metadata.table_uuid))


def test_format_2_refuses_such_a_commit_by_its_sequence_number(tmp_path: Path) -> None:
    """The batch is sent again on the newer snapshot."""
    world = World(tmp_path, 2)
    world.rest.before = world.once(lambda: world.append(9))
    assert world.carried_out().done
    world.rest.stop()
    assert world.rows() == [0, 1, 2, 9]
    assert (world.files(), len(world.own())) == (2, 1)


def test_a_commit_that_another_one_displaced_is_noticed(world: World) -> None:
    """The other commit was made from the snapshot before ours, which holds all rows."""
    world.rest.after = world.once(world.stale(9))
    with pytest.raises(BlockedError, match="displaced commit"):
        world.carried_out()
    assert world.rows() == [0, 1, 2, 9]
    assert world.files() == 4


def test_what_was_committed_on_top_of_ours_is_left_to_a_person(world: World) -> None:
    world.rest.before = world.once(lambda: world.append(9))
    world.rest.after = world.once(lambda: world.append(10))
    with pytest.raises(BlockedError, match="displaced snapshot") as raised:
        world.carried_out()
    assert f"Snapshot {world.table.current_snapshot().snapshot_id} " in str(raised.value.details)
    assert world.rows() == [0, 1, 2, 10]


def test_what_came_on_ours_before_the_rollback_is_said_to_be_missing(world: World) -> None:
    """The rollback is the second request: it displaces the other writer's second commit."""
    commits = [lambda: world.append(9), lambda: world.append(10)]
    world.rest.before = lambda: commits.pop(0)() if commits else None
    with pytest.raises(BlockedError, match="displaced snapshot") as raised:
        world.carried_out()
    assert world.rows() == [0, 1, 2, 9]
    lost = world.table.metadata.snapshot_log[-2].snapshot_id
    assert str(lost) in str(raised.value.details)


def test_a_commit_whose_base_expired_from_the_log_is_no_displacement(world: World) -> None:
    """The oldest snapshot has a tag. The log leaves out the expired one between it and ours."""
    first = world.table.current_snapshot().snapshot_id
    world.table.manage_snapshots().create_tag(first, "kept").commit()
    world.append(9)
    base = world.table.current_snapshot().snapshot_id
    expiry = world.once(lambda: world.table.maintenance.expire_snapshots().by_id(base).commit())
    world.rest.after = expiry
    assert world.carried_out().done
    assert world.rows() == [0, 1, 2, 9]
    assert [it.snapshot_id for it in world.table.metadata.snapshot_log[-2:]] == [
        first, *world.own()
    ]  # fmt: skip


def test_after_a_kill_the_next_run_looks(world: World) -> None:
    world.rest.before = world.once(lambda: world.append(9))
    with killed_at(batch, "_record_commit"):
        world.carried_out()
    assert world.rows() == [0, 1, 2]
    with pytest.raises(BlockedError, match="displaced snapshot"):
        world.carried_out(world.request)
    assert world.rows() == [0, 1, 2, 9]
    with pytest.raises(RolledBackError):  # a plan that was undone is not done again
        world.carried_out(world.request)
    assert world.carried_out().done
    assert world.rows() == [0, 1, 2, 9]


@pytest.mark.parametrize("empty", [False, True])
def test_a_mark_that_displaced_a_commit_is_taken_back(world: World, empty: bool) -> None:
    if empty:
        schema = world.table.schema()
        world.catalog.drop_table("jobs.t")
        world.catalog.create_table("jobs.t", schema, properties={"format-version": "1"})
    table = LocalTable(LiveTable(world.config, ("jobs", "t")), world.directory / "cache")
    world.rest.before = world.once(lambda: world.append(9))
    with pytest.raises(BlockedError, match="displaced snapshot"):
        fence.append_mark(table, "p-1-a", 0)
    assert world.rows() == ([9] if empty else [0, 1, 2, 9])
