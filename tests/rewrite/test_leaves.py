"""Rows lie leaf by leaf of a tree of cuts, as a model that compares Python's own values says."""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reconciler.rewrite import leaves
from reconciler.rewrite.columns import Column
from reconciler.rewrite.files import DataFile
from reconciler.rewrite.rewriting import rewritten
from reconciler.rewrite.task import Field, Key, Made, Order, Resources, Task, Unfit
from reconciler.table.cut_tree import Cut, Tree, made
from reconciler.table.values import encode_wide_decimal
from tests.examples import seeds
from tests.rewrite import model
from tests.rewrite.model import Row, table_of, write
from tests.rewrite.test_rewriting import LITTLE, PLENTY, files_of, seen

EPOCH = dt.datetime(1970, 1, 1)


def _place(kind: str, value: Any) -> tuple[int, Any]:
    """Return where a value is in the total order of its column: NULL, values, NaN."""
    if value is None:
        return (-1, 0)
    if isinstance(value, float) and math.isnan(value):
        return (1, 0)
    return (0, _domain(kind, value))


def _domain(kind: str, value: Any) -> Any:
    if kind.startswith("decimal"):
        unscaled = int(value.scaleb(int(kind[:-1].split(",")[1])))
        return unscaled if int(kind[8:].split(",")[0]) <= 18 else encode_wide_decimal(unscaled)
    if isinstance(value, dt.datetime):
        return round((value.replace(tzinfo=None) - EPOCH) / dt.timedelta(microseconds=1))
    if isinstance(value, dt.date):
        return (value - EPOCH.date()).days
    if isinstance(value, dt.time):
        return ((value.hour * 60 + value.minute) * 60 + value.second) * 10**6 + value.microsecond
    if isinstance(value, str):
        return value.encode()
    return (
        value + 0.0
        if isinstance(value, float)
        else int(value)
        if not isinstance(value, bytes)
        else value
    )


def _leaf(node: Any, row: Row, kinds: list[str], number: int = 0) -> tuple[int, int]:
    """Return the leaf of a row, and how many leaves the subtree has; a node as `made` takes it."""
    if node is None:
        return 0, 1
    cut, low, high = node
    value = _place(kinds[cut.field_id - 1], row[cut.field_id - 1])
    where = cut.place[:2]
    left = value < where or (value == where and (cut.inclusive or cut.value is None))
    first, own = _leaf(low, row, kinds), _count(low)
    return (first[0] if left else own + _leaf(high, row, kinds)[0]), own + _count(high)


def _count(node: Any) -> int:
    return 1 if node is None else _count(node[1]) + _count(node[2])


def _random_tree(chance: random.Random, kinds: list[str], rows: list[Row], depth: int) -> Any:
    if not depth or chance.random() < 0.2:
        return None
    field = chance.randint(1, len(kinds))
    value = chance.choice(rows)[field - 1]
    kind, place = kinds[field - 1], _place(kinds[field - 1], value)
    if place[0] > 0:
        cut = Cut(field, math.nan)
    elif place[0] < 0:
        cut = Cut(field, None)
    else:
        cut = Cut(field, place[1], chance.random() < 0.5)
    if (
        kind in ("uuid", "binary", "string")
        and isinstance(cut.value, bytes)
        and cut.value.endswith(b"\0")
    ):
        cut = Cut(field, b"m")  # numpy's byte strings do not end in NUL
    low, high = (_random_tree(chance, kinds, rows, depth - 1) for _ in range(2))
    return cut, low, high


def _run(
    directory: Path, files: list[DataFile], columns: tuple[Column, ...], tree: Tree, *,
    file_rows: float, group_rows: int, memory: Resources, moves: tuple[Field, ...] = (),
) -> Made:  # fmt: skip
    order = Order(tuple(Key(field) for field in tree.columns), tree=tree)
    path = f"file:{directory}/out/x-NUMBER-ATTEMPT.parquet"
    task = Task(
        table_of(columns),
        tuple(files),
        order,
        (path,),
        group_rows,
        moves=moves,
        file_rows=file_rows,
    )
    return rewritten(task, None, memory)


@pytest.mark.parametrize("seed", seeds(30))
def test_files_and_row_groups_are_those_of_the_leaves(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    columns, rows = model.random_rows(chance, 200)
    kinds = [column.type for column in columns[:3]]
    node = None
    while node is None:
        node = _random_tree(chance, kinds, rows, 4)
    inner = [chance.choice((0, 1, 2, 3)) for _ in range(_count(node))]
    tree = made(node, inner)
    files = [
        write(
            tmp_path / f"in{i}.parquet",
            columns,
            rows[i::3],
            **({"use_dictionary": False} if i else {}),
        )
        for i in range(3)
    ]
    arrived = [row for i in range(3) for row in rows[i::3]]
    memory, group_rows = chance.choice((PLENTY, LITTLE)), chance.choice((5, 100))
    found = _run(
        tmp_path,
        files,
        columns,
        tree,
        file_rows=25,
        group_rows=group_rows,
        memory=memory,
    )
    assert seen(table_of(columns), files_of(found)) == seen(table_of(columns), files)
    rank = {row[3]: at for at, row in enumerate(arrived)}
    leaf_of = {row[3]: _leaf(node, row, kinds)[0] for row in rows}
    of_arrival = {row[3]: row for row in rows}
    held = [0] * tree.leaves
    for number in leaf_of.values():
        held[number] += 1
    written: list[int] = []
    first_of_file: set[int] = set()
    for one in found.files:
        file = pq.ParquetFile(one.path.removeprefix("file:"))
        groups = [
            file.read_row_group(n).column("arrival").to_pylist() for n in range(file.num_row_groups)
        ]
        leaves = sorted({leaf_of[number] for group in groups for number in group})
        if len(leaves) > 1:  # smaller neighbours share a file
            assert all(held[leaf] < 12.5 for leaf in leaves)
            assert sum(map(len, groups)) < 37.5
        for group in groups:
            inside = {leaf_of[number] for number in group}
            assert len(group) <= group_rows
            assert len(inside) == 1 or all(held[leaf] < group_rows for leaf in inside)
        first_of_file.add(groups[0][0])
        written += [number for group in groups for number in group]
    assert [leaf_of[number] for number in written] == sorted(leaf_of.values())
    for before, after in itertools.pairwise(written):
        leaf = leaf_of[before]
        if leaf != leaf_of[after]:
            continue
        if memory == LITTLE and after in first_of_file:
            continue  # a leaf that no run of rows holds is sorted file by file
        field = inner[leaf]
        keys = [
            (
                _place(kinds[field - 1], of_arrival[number][field - 1]) if field else (0, 0),
                rank[number],
            )
            for number in (before, after)
        ]
        assert keys[0] < keys[1]


@pytest.mark.parametrize("seed", seeds(12))
def test_codes_that_are_looked_up_are_those_that_are_counted(seed: int) -> None:
    """Narrow and wide ranges of numbers, the ends of 64 bits, cuts beyond and equal to rows."""
    random = np.random.default_rng(seed)
    spread = (1, 50, 2**16, 2**17, 2**40, 2**63)[seed % 6]
    rows = random.integers(-spread, spread, 70_000)
    values = {int(one) for one in random.choice(rows, 20)} | {spread - 1, -spread, 0}
    cuts = [
        Cut(1, value, inclusive)
        for value in sorted(values) for inclusive in (False, True) if random.random() < 0.7
    ] or [Cut(1, 0)]  # fmt: skip
    found = leaves.codes_of(cuts, pa.chunked_array([rows]))
    expected = sum(
        ((rows > cut.value) | (rows == cut.value) & (not cut.inclusive)).astype(int) for cut in cuts
    )
    assert np.array_equal(found, expected)


@pytest.mark.parametrize(
    ("value", "rows"),
    [
        (500, pa.array([decimal.Decimal("7.00")], pa.decimal128(38, 2))), (5, pa.array(["a"])),
        (b"a", pa.array([1])), (b"a", pa.array([decimal.Decimal("7.00")], pa.decimal128(18, 2))),
    ],
)  # fmt: skip
def test_cuts_of_another_domain_than_the_column_are_refused(value: Any, rows: pa.Array) -> None:
    for encoded in (rows, rows.dictionary_encode()):
        with pytest.raises(Unfit, match="another type"):
            leaves.codes_of([Cut(1, None), Cut(1, value)], pa.chunked_array([encoded]))


@pytest.mark.parametrize("memory", [PLENTY, LITTLE])
def test_rows_that_move_lie_leaf_by_leaf_in_their_partitions(
    tmp_path: Path, memory: Resources
) -> None:
    columns = (Column(1, "a", "int"), Column(2, "b", "int"))
    chance = random.Random(1)
    rows = [[chance.randrange(3), chance.randrange(100)] for _ in range(300)]
    file = write(tmp_path / "in.parquet", columns, rows)
    tree = made((Cut(2, 50), None, None), [2, 0])
    found = _run(
        tmp_path, [file], columns, tree, file_rows=40, group_rows=100, memory=memory,
        moves=(Field(1, "a", "identity", "int"),),
    )  # fmt: skip
    assert seen(table_of(columns), files_of(found)) == seen(table_of(columns), [file])
    for one in found.files:
        read = pq.read_table(one.path.removeprefix("file:"), partitioning=None).to_pylist()
        assert {row["a"] for row in read} == {one.partition[0]}
        assert len({row["b"] < 50 for row in read}) == 1
    assert len(found.files) >= 6


def test_files_whose_rows_are_all_deleted_are_put_in_order() -> None:
    """The rewrite failed: no leaf begins where there is no row."""
    tree = made((Cut(1, 5), None, None), [1, 0])
    nothing = pa.chunked_array([pa.array([], pa.int64())])
    leaf = leaves.leaf_of(tree, {1: nothing}, 0)
    assert leaves.permutation(tree, {1: nothing}, leaf).tolist() == []
