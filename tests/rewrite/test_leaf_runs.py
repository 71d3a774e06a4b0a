"""Rows get the ranks of one sort by leaf and value, though only one run of leaves is in memory."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from reconciler.rewrite.leaf_runs import RUNS, Int64, Piece, ranks, runs_of
from reconciler.rewrite.leaves import counted
from reconciler.table.cut_tree import Cut, Tree, made
from tests.examples import seeds

LEAVES, PARTITIONS = 12, 3


def _tree(chance: random.Random) -> Tree:
    node = None
    for threshold in range(LEAVES - 1, 0, -1):
        node = (Cut(1, threshold), None, node)
    return made(node, [chance.choice((0, 2, 3)) for _ in range(LEAVES)])


@pytest.mark.parametrize("seed", seeds(25))
def test_ranks_are_those_of_one_sort_and_a_run_reads_only_row_groups_of_its_leaves(
    seed: int,
) -> None:
    chance, drawn = random.Random(seed), np.random.default_rng(seed)
    tree, rows = _tree(chance), 400
    values = {field: drawn.integers(0, 30, rows) for field in (2, 3)}
    slot = drawn.integers(0, LEAVES * PARTITIONS, rows)
    if seed % 3 == 0:
        slot = np.sort(slot)  # files lie along the leaves already
    if seed % 4 == 0:
        slot[drawn.random(rows) < 0.6] = 5  # a leaf that no run holds
    edges = sorted({0, rows, *drawn.integers(1, rows, 8).tolist()})
    pieces = [Piece(n // 2, n % 2, *span) for n, span in enumerate(itertools.pairwise(edges))]
    known = counted(slot)
    ends = [*range(7, rows, 7), rows]
    most = chance.choice((1, 20, rows // 2, rows))
    runs = runs_of(known, ends, most)
    assert sum(run.rows for run in runs) == rows
    assert [run.begin for run in runs] == np.cumsum([0, *(r.rows for r in runs)])[:-1].tolist()
    if most == rows:
        assert len(runs) == 1
    whole = max(most, -(-rows // RUNS))
    for run in runs:
        assert run.rows <= max(whole, 7)
        assert run.first == run.last or run.skip == 0
    read: list[tuple[Piece, Int64, Sequence[int]]] = []

    def reading(inside: Sequence[tuple[Piece, Int64]], fields: Sequence[int]) -> dict[int, object]:
        read.extend((piece, at, fields) for piece, at in inside)
        numbers = np.concatenate([piece.begin + at for piece, at in inside])
        return {field: pa.chunked_array([values[field][numbers]]) for field in fields}

    found = ranks(tree, slot.astype(np.uint8), pieces, runs, reading)  # type: ignore[arg-type]
    numbers = np.concatenate([piece.begin + at for piece, at, _ in read] or [[]]).astype(int)
    assert len(set(numbers.tolist())) == len(numbers), "a row is read for one run alone"
    assert all(len(at) and fields for _, at, fields in read)
    inner = np.array(tree.inner)[slot % LEAVES]
    value = np.where(inner == 2, values[2], np.where(inner == 3, values[3], 0))
    assert set(np.flatnonzero(inner).tolist()) <= set(numbers.tolist())
    begins = np.array([run.begin for run in runs])
    part = np.searchsorted(begins, found, side="right")  # of one leaf, by the order of arrival
    expected = np.lexsort((np.arange(rows), value, part, slot))
    assert np.array_equal(np.argsort(found), expected)
    assert sorted(found.tolist()) == list(range(rows))
    divided = [run for run in runs if run.first == run.last]
    for before, after in itertools.pairwise(divided):
        if before.first == after.first:
            assert after.begin in ends, "a leaf is divided where a file of it ends"


@pytest.mark.parametrize("spread", [10, 10**9])
def test_rows_are_counted_by_leaf_however_many_leaves_there_are(spread: int) -> None:
    slot = np.random.default_rng(1).integers(0, spread, 500)
    found = counted(slot)
    assert found.total == 500
    assert dict(zip(found.slots.tolist(), found.rows.tolist(), strict=True)) == {
        int(one): int((slot == one).sum()) for one in set(slot.tolist())
    }
