"""Files are rewritten and committed without a JVM, and readers see the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reconciler.commit import snapshot_changes
from reconciler.commit.entries import Entries
from reconciler.commit.local_table import LocalTable
from reconciler.commit.snapshot import SnapshotChange
from reconciler.engines.answers import Kind
from reconciler.engines.delete_file import DeleteFile
from reconciler.engines.task_file import TaskFile
from reconciler.rewrite import rewriting
from reconciler.rewrite.columns import columns_of
from reconciler.rewrite.deletes import Delete
from reconciler.rewrite.files import DataFile
from reconciler.rewrite.task import Key, Made, Order, Resources, Task
from tests.commit.committing import commit
from tests.commit.test_requests import Table
from tests.delete_commits import delete_equal, delete_positions
from tests.rewrite.model import table_of


class Numbers(Table):
    """Ten files of a hundred rows each."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        for n in range(1, 8):
            self.append(*range(n * 100, n * 100 + 100))

    def visible(self) -> list[int]:
        """The rows that a reader sees, by the rule of the specification over the files that
        pyiceberg's manifests name: it reads no equality deletes itself."""
        table = self.catalog.load_table("jobs.t")
        data, keys, gone_at = [], [], set[tuple[str, int]]()
        for manifest in table.current_snapshot().manifests(table.io):
            for entry in manifest.fetch_manifest_entry(table.io):
                place = entry.data_file.file_path.removeprefix("file://")
                rows, kind = pq.read_table(place), int(entry.data_file.content)
                if kind == 1:
                    places = (one.removeprefix("file://") for one in rows["file_path"].to_pylist())
                    gone_at |= set(zip(places, rows["pos"].to_pylist(), strict=True))
                    continue
                ids = rows.column("id").to_pylist()
                (keys if kind == 2 else data).append((int(entry.sequence_number), place, ids))
        return sorted(
            one
            for sequence, place, ids in data
            for at, one in enumerate(ids)
            if (place, at) not in gone_at
            and not any(one in gone and sequence < later for later, _, gone in keys)
        )


@pytest.fixture
def table(tmp_path: Path) -> Numbers:
    return Numbers(tmp_path / "own")


def rewritten(engine: LocalTable, directory: Path, head: int) -> tuple[Made, list[str]]:
    """All live files in one, in descending order."""
    shape = table_of(columns_of(engine.schema()))
    live = engine.live(head)
    tasks = engine.tasks(head, live.files.path.tolist())
    known = {file.path: delete_of(file) for file in engine.delete_files(head)}
    inputs = tuple(
        DataFile(
            path, file.rows, file.size, file.sequence,
            deletes=tuple(known[one] for one in sorted(deleting(file))),
        )
        for path, file in tasks.items()
    )  # fmt: skip
    order = Order((Key(1, descending=True),))
    paths = (f"file://{directory}/rewritten.parquet",)
    task = Task(shape, inputs, order, paths, group_rows=400)
    return rewriting.rewritten(task, None, Resources(1 << 30)), list(tasks)


def deleting(file: TaskFile) -> set[str]:
    """The delete files that apply to a data file."""
    return {path for path, _ in file.deletes.positions} | file.deletes.equality


def delete_of(file: DeleteFile) -> Delete:
    return Delete(
        file.path, file.format, file.sequence, file.partition_key, file.everywhere, file.rows,
        file.data_file, file.keys, file.offset, file.size,
    )  # fmt: skip


def head_of(engine: LocalTable) -> int:
    head = engine.head()
    assert head is not None
    return head


def test_a_rewrite_beside_a_writer_that_deletes(table: Numbers, tmp_path: Path) -> None:
    """A delete that is committed between reading and the commit applies to the new files too."""
    delete_equal(table.catalog.load_table("jobs.t"), "id", [150, 250])
    engine = LocalTable(table.live(), tmp_path / "cache")
    head = head_of(engine)
    sequence = engine.live(head).files.sequence.max()
    read = engine.snapshot(head)
    assert read is not None
    assert read.sequence_number > sequence
    made, inputs = rewritten(engine, tmp_path, head)
    delete_equal(table.catalog.load_table("jobs.t"), "id", [151])
    table.append(9_999)
    before = table.visible()
    assert not {150, 250, 151} & set(before)
    engine.refresh()
    entries = Entries(engine.state.metadata, engine.properties(), 0, 0)
    added = [entries.of(file, {}) for file in made.files]
    live = engine.live(head_of(engine))
    change = snapshot_changes.replace_files(live, inputs, added, read.sequence_number)
    assert commit(engine.table, change) is Kind.ACCEPTED
    assert table.visible() == before
    engine.refresh()
    after: Any = engine.tasks(head_of(engine), [file.path for file in made.files])
    (file,) = after.values()
    assert file.sequence == read.sequence_number
    assert len(file.deletes.equality) == 1
    stored = pq.read_table(tmp_path / "rewritten.parquet").column("id").to_pylist()
    assert stored == sorted(stored, reverse=True)
    assert pa.array(stored).null_count == 0


def test_a_delete_that_shares_a_manifest_with_one_that_goes_still_applies(
    table: Numbers, tmp_path: Path
) -> None:
    """All files are replaced, so that no other data file keeps old deletes; the delete came after
    they were read, and before the last commit."""
    loaded = table.catalog.load_table("jobs.t")
    first = next(iter(loaded.scan().plan_files())).file.file_path
    delete_positions(loaded, first, [0, 1])
    engine = LocalTable(table.live(), tmp_path / "cache")
    head = head_of(engine)
    read = engine.snapshot(head)
    assert read is not None
    made, inputs = rewritten(engine, tmp_path, head)
    delete_equal(table.catalog.load_table("jobs.t"), "id", [151])
    with table.catalog.load_table("jobs.t").transaction() as change:
        change.set_properties({"commit.manifest.min-count-to-merge": "2"})
    engine.refresh()
    assert commit(engine.table, SnapshotChange("replace")) is Kind.ACCEPTED
    engine.refresh()
    assert len({str(one.entry) for one in engine.delete_files(head_of(engine))}) == 1
    table.append(9_999)
    before = table.visible()
    assert 151 not in before
    engine.refresh()
    entries = Entries(engine.state.metadata, engine.properties(), 0, 0)
    added = [entries.of(file, {}) for file in made.files]
    live = engine.live(head_of(engine))
    change_of_files = snapshot_changes.replace_files(live, inputs, added, read.sequence_number)
    assert commit(engine.table, change_of_files) is Kind.ACCEPTED
    assert table.visible() == before
