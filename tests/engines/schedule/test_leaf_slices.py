"""A table of several groups is written along the leaves of a tree, to real files."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reconciler.engines.schedule.group import make_groups
from reconciler.engines.schedule.inputs import by_leaf, describe
from reconciler.engines.task_file import TaskFile
from reconciler.plan.actions.rewrite import Recluster
from reconciler.plan.grouping import Extents, Grouping
from reconciler.plan.leaf_drift import meets
from reconciler.plan.ordering import CutTree, by_tree
from reconciler.rewrite.columns import Column
from reconciler.rewrite.files import DataFile
from reconciler.rewrite.rewriting import rewritten
from reconciler.rewrite.task import Key, Order, Resources, Task
from reconciler.table.cut_tree import Cut, Tree, made
from tests.rewrite import model
from tests.table.tables import ROW_BYTES, File, table_of

NAMES = ("a", "b", "c")
FILES, FILE_ROWS, LEAVES_DEEP = 24, 500, 5
LIMIT = 6 * FILE_ROWS * ROW_BYTES
"""Bytes of a group: a quarter of the table."""
COLUMNS = (*(Column(n, name, "long") for n, name in enumerate(NAMES, 1)), Column(4, "id", "long"))


@dataclass(frozen=True)
class Limited(CutTree):
    """A tree whose groups are small."""

    def groups(
        self, files: Extents, *, target_bytes: int, merge_bytes: int | None = None,
        max_bytes: int = LIMIT,
    ) -> Grouping:  # fmt: skip
        return CutTree.groups(
            self, files, target_bytes=target_bytes, merge_bytes=merge_bytes, max_bytes=max_bytes
        )


class Described:
    """The schema of the table, as the engine asks for it."""

    def schema(self) -> dict[str, Any]:
        return {
            "fields": [
                {"id": one.field_id, "name": one.name, "required": False, "type": one.type}
                for one in COLUMNS
            ]
        }


@dataclass(frozen=True)
class Written:
    """A file on disk."""

    file: DataFile
    """As tasks take it."""
    sequence: int
    """The data sequence number of its commit."""

    @cached_property
    def rows(self) -> tuple[tuple[int, ...], ...]:
        found = pq.read_table(self.path).to_pydict()
        return tuple(zip(*(found[name] for name in NAMES), strict=True))

    @property
    def path(self) -> str:
        return self.file.path.removeprefix("file:")

    @property
    def entry(self) -> TaskFile:
        """Return its manifest entry, bounds read from the file's own footer."""
        footer = pq.read_metadata(self.path)
        lower, upper = {}, {}
        for column in range(len(NAMES)):
            parts = [
                footer.row_group(n).column(column).statistics for n in range(footer.num_row_groups)
            ]
            lower[column + 1] = min(one.min for one in parts).to_bytes(8, "little", signed=True)
            upper[column + 1] = max(one.max for one in parts).to_bytes(8, "little", signed=True)
        return TaskFile(
            self.file.path, "PARQUET", footer.num_rows * ROW_BYTES, footer.num_rows,
            sequence=self.sequence, lower=lower, upper=upper,
        )  # fmt: skip


def _grown(rows: np.ndarray, random: np.random.Generator, depth: int) -> Any:
    if not depth:
        return None
    column = int(random.integers(0, len(NAMES)))
    value = int(np.quantile(rows[:, column], random.uniform(0.4, 0.6)))
    left = rows[:, column] < value
    low, high = (_grown(rows[side], random, depth - 1) for side in (left, ~left))
    return Cut(column + 1, value), low, high


def _hash(files: Sequence[Written]) -> tuple[int, int]:
    """Return the number and the sum of the hashes of all rows, by DuckDB."""
    paths = [one.path for one in files]
    query = "SELECT count(*), sum(hash(a, b, c, id)::HUGEINT) FROM read_parquet($1)"
    found = duckdb.execute(query, [paths]).fetchone()
    assert found is not None
    return found[0], found[1]


def _stored(directory: Path, rows: np.ndarray) -> list[Written]:
    """Return the files of the table, FILE_ROWS rows in each."""
    schema = pa.schema([
        pa.field(one.name, pa.int64(), metadata={"PARQUET:field_id": str(one.field_id)})
        for one in COLUMNS
    ])  # fmt: skip
    files = []
    for number, own in enumerate(np.split(np.arange(len(rows)), FILES)):
        path = directory / f"in{number:02d}.parquet"
        columns = {name: rows[own, n] for n, name in enumerate(NAMES)} | {"id": own}
        pq.write_table(pa.table(columns, schema=schema), path)
        files.append(Written(DataFile(f"file:{path}", len(own), path.stat().st_size), 1))
    return files


def _groups(ordering: CutTree, files: Sequence[Written]) -> list[list[Written]]:
    """Return the groups of the execution, which are those of the plan."""
    entries = {one.file.path: one.entry for one in files}
    table: Any = Described()
    described = by_leaf(table, entries, ordering.tree, describe(table, entries, ordering.key))
    action = Recluster(inputs=tuple(sorted(entries)), ordering=ordering)
    groups = make_groups("a01", action, described, FILE_ROWS * ROW_BYTES)
    by_path = {one.file.path: one for one in files}
    made_of = [[by_path[one.path] for one in group.inputs] for group in groups]
    known = table_of([File(one.rows) for one in files], ("long",) * len(NAMES))
    known = replace(
        known, path=np.array([one.file.path for one in files], dtype=object),
        sequence=np.array([one.sequence for one in files]),
    )  # fmt: skip
    planned = ordering.groups(ordering.extents(known), target_bytes=FILE_ROWS * ROW_BYTES)
    assert [[files[n] for n in group] for group in planned.members] == made_of
    return made_of


def _rewritten(
    directory: Path, ordering: CutTree, groups: Sequence[Sequence[Written]], sequence: int
) -> list[Written]:
    """Return the files that one task writes for each group."""
    order = Order(tuple(Key(one.field_id) for one in ordering.key), tree=ordering.tree)
    found = []
    for number, group in enumerate(groups):
        rows = sum(one.file.rows for one in group)
        task = Task(
            model.table_of(COLUMNS), tuple(one.file for one in group), order,
            (f"file:{directory}/{sequence}-{number}-NUMBER-ATTEMPT.parquet",), FILE_ROWS,
            file_rows=rows / max(1, round(rows / FILE_ROWS)),
        )  # fmt: skip
        for one in rewritten(task, None, Resources(1 << 30)).files:
            found.append(Written(DataFile(one.path, one.rows, one.size), sequence))
    return found


def _met(tree: Tree, files: Sequence[Written]) -> np.ndarray:
    """Return which leaves the bounds of each file meet."""
    known = table_of([File(one.rows) for one in files], ("long",) * len(NAMES))
    return meets(known, tree, np.arange(len(files)))


def _leaf(node: Any, row: Sequence[int]) -> int:
    """Return the leaf of a row, by comparing its values with the cuts."""
    first = 0
    for _ in range(LEAVES_DEEP):
        cut, low, high = node
        left = row[cut.field_id - 1] < cut.value
        first = 2 * first + (not left)
        node = low if left else high
    return first


@pytest.mark.parametrize("seed", [1, 2])
def test_groups_along_leaves_keep_every_row_and_bring_leaves_together(
    tmp_path: Path, seed: int
) -> None:
    random = np.random.default_rng(seed)
    rows = random.integers(0, 1 << 20, (FILES * FILE_ROWS, len(NAMES)))
    node = _grown(rows, random, LEAVES_DEEP)
    tree = made(node, [int(random.integers(0, 3)) for _ in range(1 << LEAVES_DEEP)])
    base = by_tree(tree)
    ordering = Limited(base.key, tree=tree)
    files = _stored(tmp_path, rows)
    before, most = _hash(files), []
    for sequence in (2, 3, 4):
        groups = _groups(ordering, files)
        assert Counter(one.path for group in groups for one in group) == Counter(
            one.path for one in files
        ), "no file is read twice, and none is left"
        assert len(groups) >= 4
        for group in groups:
            assert sum(len(one.rows) for one in group) * ROW_BYTES <= 1.5 * LIMIT
        files = _rewritten(tmp_path, ordering, groups, sequence)
        assert _hash(files) == before
        held = [sorted({_leaf(node, row) for row in one.rows}) for one in files]
        assert all(b - a == 1 for own in held for a, b in itertools.pairwise(own))
        most.append(np.average(_met(tree, files).sum(axis=1), weights=[len(f.rows) for f in files]))
    assert most[1] < 0.6 * most[0]
    assert most[2] < 3.0


def _halved(low: int, high: int) -> Any:
    if high - low == 1:
        return None
    middle = (low + high) // 2
    return Cut(1, middle), _halved(low, middle), _halved(middle, high)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_files_in_a_few_of_many_leaves_are_planned_in_the_groups_of_the_execution(
    tmp_path: Path, seed: int
) -> None:
    """The leaves between which no file lies have no part in where a connected set is cut."""
    random = np.random.default_rng(seed)
    first = random.choice([0, 1, 2, 3, 200, 350], FILES)
    last = np.maximum(first, random.choice([3, 50, 210, 399], FILES))
    rows = np.zeros((FILES * FILE_ROWS, len(NAMES)), dtype=np.int64)
    rows[::2, 0], rows[1::2, 0] = (np.repeat(ends, FILE_ROWS // 2) for ends in (first, last))
    tree = made(_halved(0, 512), [0] * 512)
    groups = _groups(Limited(by_tree(tree).key, tree=tree), _stored(tmp_path, rows))
    assert len(groups) > 1
