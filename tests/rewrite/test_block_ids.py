"""Rows get the id of their leaf, by a model that compares Python's own values; the witness refuses
every other id."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from reconciler.api.task_memory import Limits
from reconciler.rewrite.block_ids import OTHER_LEAF, Blocks
from reconciler.rewrite.columns import Column
from reconciler.rewrite.comparison import WitnessResult, WitnessWork
from reconciler.rewrite.files import DataFile, TableShape
from reconciler.rewrite.rewriting import rewritten
from reconciler.rewrite.task import Key, Order, Task
from reconciler.rewrite.witness import witnessed
from reconciler.table.cut_tree import Cut, made
from reconciler.table.pairs import Pair
from tests.examples import seeds
from tests.rewrite import model
from tests.rewrite.model import Row, table_of, write
from tests.rewrite.test_leaves import _count, _leaf, _random_tree
from tests.rewrite.test_rewriting import LITTLE, PLENTY, files_of

BLOCK = Column(9, "block", "int")
BASE = 5 << 16


def _seen(table: TableShape, files: list[DataFile], blocks: Blocks | None = None) -> WitnessResult:
    plain = replace(table, columns=table.columns[:-1])
    return witnessed(
        WitnessWork(plain, tuple(files), blocks=blocks), range(len(files)), None, Limits()
    )


def _world(
    seed: int, directory: Path
) -> tuple[random.Random, list[str], TableShape, list[Row], list[DataFile]]:
    chance = random.Random(seed)
    columns, rows = model.random_rows(chance, 150)
    kinds = [column.type for column in columns[:3]]
    files = [write(directory / f"in{i}.parquet", columns, rows[i::2]) for i in range(2)]
    return chance, kinds, table_of((*columns, BLOCK)), rows, files


@pytest.mark.parametrize("seed", seeds(25))
def test_ids_are_those_of_the_leaves_and_no_other_passes(tmp_path: Path, seed: int) -> None:
    chance, kinds, table, rows, files = _world(seed, tmp_path)
    node = None
    while node is None or _count(node) < 3:
        node = _random_tree(chance, kinds, rows, 4)
    tree = made(node, [0] * _count(node))
    blocks = Blocks(BLOCK, BASE, tree)
    memory = chance.choice((PLENTY, LITTLE))
    path = f"file:{tmp_path}/out/x-NUMBER-ATTEMPT.parquet"
    order = Order(tuple(Key(field) for field in tree.columns), tree=tree)
    task = Task(table, tuple(files), order, (path,), 20, file_rows=30.0, blocks=blocks)
    found = rewritten(task, None, memory)
    leaf_of = {row[3]: _leaf(node, row, kinds)[0] for row in rows}
    for one in found.files:
        held = pq.read_table(one.path.removeprefix("file:"), columns=["arrival", "block"])
        for number, block in zip(*(column.to_pylist() for column in held.columns), strict=True):
            assert block == BASE + leaf_of[number]
    outputs = files_of(found)
    before = _seen(table, files)
    assert _seen(table, outputs, blocks) == replace(before, cpu_seconds=0.0) or (
        _seen(table, outputs, blocks).fingerprint == before.fingerprint
    )
    assert not _seen(table, outputs, blocks).failures
    shifted = replace(blocks, base=BASE + 1)
    assert _seen(table, outputs, shifted).failures[0].detail == OTHER_LEAF
    assert _seen(table, outputs, Blocks(BLOCK)).failures[0].column == "block"
    cut, low, high = node
    swapped = made((cut, high, low), [0] * tree.leaves)
    if len(set(leaf_of.values())) > 1:
        assert _seen(table, outputs, Blocks(BLOCK, BASE, swapped)).failures


PAIRS = (Pair(1, "less", 2), Pair(1, "equals", 2), Pair(2, "less", 1))


def _paired_node(chance: random.Random, depth: int) -> Any:
    if not depth or (depth < 3 and chance.random() < 0.2):
        return None
    field = chance.choice((-1, -2, -3))
    value = chance.choice((0, 1) if depth == 3 else (None, 0, 1))
    cut = Cut(field, value, value is not None and chance.random() < 0.5)
    return cut, _paired_node(chance, depth - 1), _paired_node(chance, depth - 1)


def _paired_leaf(node: Any, row: Row, pairs: Sequence[Pair] = PAIRS) -> int:
    """Return the leaf of a row, by the truth of conditions between Python's own values."""
    if node is None:
        return 0
    cut, low, high = node
    pair = pairs[-1 - cut.field_id]
    one, other = (row[field - 1] for field in pair.fields)
    truth = None if None in (one, other) else (
        one < other if pair.test == "less" else one == other
    )  # fmt: skip
    if cut.value is None:
        left = truth is None
    else:
        left = truth is None or truth < cut.value or (cut.inclusive and truth == cut.value)
    if left:
        return _paired_leaf(low, row, pairs)
    return _count(low) + _paired_leaf(high, row, pairs)


@pytest.mark.parametrize("kind", ["int", "long", "date", "timestamp", "timestamptz"])
def test_rows_lie_in_leaves_of_conditions_between_columns(tmp_path: Path, kind: str) -> None:
    chance = random.Random(kind)
    columns = Column(1, "one", kind), Column(2, "other", kind), Column(4, "arrival", "int")
    values = [model.random_value(chance, columns[0], 0.0) for _ in range(6)]
    rows = [[*(chance.choice((None, *values)) for _ in range(2)), n] for n in range(120)]
    files = [write(tmp_path / f"in{i}.parquet", columns, rows[i::2]) for i in range(2)]
    table, told = table_of((*columns, BLOCK)), 0
    for number in range(4):
        node = _paired_node(chance, 3)
        tree = made(node, [chance.choice((0, 1)) for _ in range(_count(node))], PAIRS)
        blocks = Blocks(BLOCK, BASE, tree)
        path = f"file:{tmp_path}/out{number}/x-NUMBER-ATTEMPT.parquet"
        order = Order(tuple(Key(field) for field in tree.columns), tree=tree)
        memory = chance.choice((PLENTY, LITTLE))
        task = Task(table, tuple(files), order, (path,), 20, file_rows=30.0, blocks=blocks)
        found = rewritten(task, None, memory)
        seen = 0
        for one in found.files:
            held = pq.read_table(one.path.removeprefix("file:"), columns=["arrival", "block"])
            for at, block in zip(*(column.to_pylist() for column in held.columns), strict=True):
                assert block == BASE + _paired_leaf(node, rows[at])
                seen += 1
        assert seen == len(rows)
        assert not _seen(table, files_of(found), blocks).failures
        turned = [replace(one, left=one.right, right=one.left) for one in PAIRS]
        other = replace(blocks, tree=made(node, tree.inner, turned))
        differs = any(_paired_leaf(node, row) != _paired_leaf(node, row, turned) for row in rows)
        assert bool(_seen(table, files_of(found), other).failures) == differs
        told += differs
    assert told, "the witness was asked of wrong ids"


def test_rows_that_are_merged_lose_their_ids(tmp_path: Path) -> None:
    """They stay true only if nobody else has touched them, which the file does not show."""
    _, _, table, rows, _ = _world(3, tmp_path)
    held = [[*row, BASE + row[3]] for row in rows]
    file = write(tmp_path / "ids.parquet", table.columns, held)
    out = f"file:{tmp_path}/out/x-ATTEMPT.parquet"
    for order in (Order(), Order((Key(4),))):
        task = Task(table, (file,), order, (out,), 50, blocks=Blocks(BLOCK))
        (one,) = rewritten(task, None, PLENTY).files
        read = pq.read_table(one.path.removeprefix("file:"))
        assert read.column("block").null_count == len(rows)
        assert not _seen(table, [DataFile(one.path, one.rows, one.size)], Blocks(BLOCK)).failures
        Path(one.path.removeprefix("file:")).unlink()
