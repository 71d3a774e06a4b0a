"""What a table says of its files and deletes without a JVM, and commits under a guard."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFileContent

from reconciler.commit import snapshot_changes
from reconciler.commit.live import LiveFiles
from reconciler.commit.local_commit import LocalCommit
from reconciler.commit.local_table import LocalTable
from reconciler.commit.manifest import File
from reconciler.commit.snapshot import AddedFile
from reconciler.engines.answers import Kind
from reconciler.engines.commit import metadata_files
from reconciler.engines.commit.operations import Mark
from reconciler.engines.snapshots import SnapshotInfo
from tests.commit.committing import commit
from tests.commit.test_requests import Table
from tests.delete_commits import commit_deletes

PATH_ID, POS_ID = 2147483546, 2147483545


class Deleted(Table):
    """Three files of one row each, one of which a position delete names; an equality delete of a
    key that is in another."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.paths = sorted(self.by_id(), key=lambda path: self.by_id()[path])
        self.delete_position(self.paths[0])
        ids = {b"PARQUET:field_id": b"1"}
        schema = pa.schema([pa.field("id", pa.int64(), metadata=ids)])
        table = self.catalog.load_table("jobs.t")
        rows = pa.table({"id": [1]}, schema=schema)
        commit_deletes(table, DataFileContent.EQUALITY_DELETES, rows, equality_ids=[1])
        self.append(1)

    def by_id(self) -> dict[str, int]:
        table = self.catalog.load_table("jobs.t")
        return {task.file.file_path: task.file.record_count and _id(task) for task in
                table.scan().plan_files()}  # fmt: skip

    def delete_position(self, path: str) -> None:
        ids = {"file_path": PATH_ID, "pos": POS_ID}
        kinds = {"file_path": pa.string(), "pos": pa.int64()}
        fields = [
            pa.field(name, kind, metadata={b"PARQUET:field_id": str(ids[name]).encode()})
            for name, kind in kinds.items()
        ]
        rows = pa.table({"file_path": [path], "pos": [0]}, schema=pa.schema(fields))
        ends = {PATH_ID: path.encode()}
        commit_deletes(
            self.catalog.load_table("jobs.t"), DataFileContent.POSITION_DELETES, rows,
            lower_bounds=ends, upper_bounds=ends,
        )  # fmt: skip

    def engine(self) -> LocalTable:
        return LocalTable(self.live(), self.directory / "cache")


def _id(task: object) -> int:
    import pyarrow.parquet as pq

    place = task.file.file_path.removeprefix("file://")  # type: ignore[attr-defined]
    return int(pq.read_table(place).column("id")[0].as_py())


@pytest.fixture
def table(tmp_path: Path) -> Deleted:
    return Deleted(tmp_path / "own")


def head_of(table: LocalTable) -> int:
    head = table.head()
    assert head is not None
    return head


def test_deletes_of_each_file(table: Deleted) -> None:
    engine = table.engine()
    head = head_of(engine)
    every = engine.live(head)
    tasks = engine.tasks(head, every.files.path.tolist())
    files = {file.path: file for file in engine.delete_files(head)}
    (position,) = (path for path, file in files.items() if not file.keys)
    (equality,) = (path for path, file in files.items() if file.keys)
    assert files[position].data_file == table.paths[0]
    assert files[equality].everywhere
    assert {path: len(file.deletes.positions) for path, file in tasks.items()} == {
        path: int(path == table.paths[0]) for path in tasks
    }
    new = set(tasks) - set(table.paths)
    assert {path for path, file in tasks.items() if file.deletes.equality} == set(table.paths)
    assert len(new) == 1  # a later append, to which no delete applies
    assert set(engine.tasks_under(head, [position])) == {table.paths[0]}
    assert set(engine.tasks_under(head, [equality])) == set(table.paths)
    ages = engine.ages(head, table.paths)
    assert [ages.of_path[path] for path in table.paths] == [1, 2, 3]
    assert list(ages.oldest.values()) == [1]
    assert engine.touched_by(tasks, [4]) == {table.paths[0]}
    assert engine.partitioned_equality(head) == 0


def test_a_rewrite_takes_the_deletes_of_its_files_alone_with_it(table: Deleted) -> None:
    engine = table.engine()
    head = head_of(engine)
    sequence = engine.snapshot(head).sequence_number  # type: ignore[union-attr]
    live = engine.live(head)
    copy = File({**_values(live, table, table.paths[0]), 100: f"{table.paths[0]}.copy"})
    change = snapshot_changes.replace_files(live, table.paths[:1], [AddedFile(0, copy)], sequence)
    assert commit(engine.table, change) is Kind.ACCEPTED
    engine.refresh()
    after = engine.delete_files(head_of(engine))
    assert [bool(file.keys) for file in after] == [True]
    new = engine.tasks(head_of(engine), [f"{table.paths[0]}.copy"])[f"{table.paths[0]}.copy"]
    assert new.sequence == sequence
    assert not new.deletes.equality  # of an older commit than the one that was read


def _values(live: LiveFiles, table: Deleted, path: str) -> dict[int, object]:
    engine = table.live()
    for entries in engine.entries([one for one in live.manifests if one[517] == 0]):
        for entry in entries:
            if entry.file.path == path:
                return dict(entry.file.values())
    raise AssertionError(path)


def test_a_row_delta_requires_its_data_files(table: Deleted) -> None:
    engine = table.engine()
    live = engine.live(head_of(engine))
    (gone,) = (file for file in live.delete_files() if not file.keys)
    change = snapshot_changes.row_delta(live, [*table.paths, "file:///gone.parquet"], [], [gone])
    before = table.written()
    assert commit(engine.table, change) is not Kind.ACCEPTED
    assert table.written() == before


class Guarded:
    """Answers what it is told, and keeps what it was shown."""

    refusal = ""

    def __init__(self, answer: bool | None) -> None:
        self.answer, self.seen = answer, list[int]()

    def allows(self, line: Iterable[SnapshotInfo]) -> bool | None:
        self.seen = [one.id for one in line]
        return self.answer


def test_the_guard_is_asked_on_the_metadata_that_is_replaced(table: Deleted) -> None:
    engine, guard = table.engine(), Guarded(True)
    mark = LocalCommit(engine)
    table.append(5)
    assert mark.send(Mark(), 0, {"layout.fence": "a/0"}, guard).kind is Kind.ACCEPTED
    table_now = table.catalog.load_table("jobs.t")
    assert guard.seen[0] == table_now.current_snapshot().parent_snapshot_id
    engine.refresh()
    head = engine.snapshot(head_of(engine))
    assert head is not None
    assert head.fences("a", 3)


@pytest.mark.parametrize(("answer", "kind"), [(False, Kind.REFUSED), (None, Kind.UNKNOWN)])
def test_a_refused_commit_writes_nothing(table: Deleted, answer: bool | None, kind: Kind) -> None:
    engine, before = table.engine(), table.written()
    assert LocalCommit(engine).send(Mark(), 0, {}, Guarded(answer)).kind is kind
    assert table.written() == before


def test_a_file_that_is_gone_already_is_deleted_without_an_error(table: Deleted) -> None:
    """Somebody else's removal of orphans may have been first."""
    path = table.paths[0]
    engine = table.engine()
    engine.delete_file(path)
    assert not engine.has_file(path)
    engine.delete_file(path)
    assert not engine.has_file(path)


def test_what_a_commit_wrote_is_found_by_its_name(table: Deleted) -> None:
    engine = table.engine()
    mark = LocalCommit(engine)
    assert mark.send(Mark(), 0, {}, None).kind is Kind.ACCEPTED
    engine.refresh()
    head = head_of(engine)
    read = engine.snapshot(head)
    assert read is not None
    assert metadata_files.own_files(engine, read) == [read.manifest_list]
    assert mark.uuid in read.manifest_list
    listed = engine.listed(engine.metadata_directory())
    assert {Path(path).name for path in listed} >= {Path(read.manifest_list).name}


def test_files_of_a_commit_that_arrived_stay_however_often_it_is_cleaned_up(
    table: Deleted,
) -> None:
    """As after a crash between the commit and its record: pyiceberg still reads the table."""
    engine = table.engine()
    before = table.catalog.load_table("jobs.t").current_snapshot().snapshot_id
    mark = LocalCommit(engine)
    assert mark.send(Mark(), 0, {}, None).kind is Kind.ACCEPTED
    engine.refresh()
    assert metadata_files.remove_of_commits(engine, (mark.uuid,), before) == (0, 0, None)
    loaded = table.catalog.load_table("jobs.t")
    snapshot = loaded.current_snapshot()
    assert snapshot.snapshot_id == head_of(engine) != before
    assert [
        entry.data_file.file_path
        for manifest in snapshot.manifests(loaded.io)
        for entry in manifest.fetch_manifest_entry(loaded.io)
    ]


def test_added_files_are_found_by_their_paths(table: Deleted) -> None:
    engine = table.engine()
    snapshots = [one.id for one in engine.ancestors()]
    assert list(engine.added_by([table.paths[0]])) == [snapshots[-1]]
