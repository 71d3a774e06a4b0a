"""The memory of ranks along a tree is as predicted, however many columns the tree cuts."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from reconciler.rewrite.leaf_runs import RUN_BYTES, Int64, Piece, ranks, runs_of
from reconciler.rewrite.leaves import counted
from reconciler.rewrite.memory import of_keys, of_leaves
from reconciler.table.cut_tree import Cut, made

LEAVES = 100


def test_a_run_of_leaves_takes_no_more_than_is_predicted() -> None:
    rows, drawn = 400_000, np.random.default_rng(1)
    node = None
    for threshold in range(LEAVES - 1, 0, -1):
        node = (Cut(1, threshold), None, node)
    tree = made(node, [2] * LEAVES)
    value = drawn.integers(0, 1 << 60, rows)
    slot = drawn.integers(0, LEAVES, rows).astype(np.uint8)
    pieces = [Piece(0, n, at, at + 50_000) for n, at in enumerate(range(0, rows, 50_000))]
    predicted = of_leaves(rows, 0, 1_000)
    runs = runs_of(counted(slot), [], 0)

    def read(inside: Sequence[tuple[Piece, Int64]], _: object) -> dict[int, pa.ChunkedArray]:
        numbers = np.concatenate([piece.begin + at for piece, at in inside])
        return {2: pa.chunked_array([value[numbers]])}

    ranks(tree, slot, pieces, runs, read)  # what a first call alone allocates
    tracemalloc.start()
    try:
        ranks(tree, slot, pieces, runs, read)
        taken = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    run = max(run.rows for run in runs)
    assert taken - 4 * rows <= RUN_BYTES * run, (taken, RUN_BYTES * run)
    assert taken <= predicted, (taken, predicted)
    assert taken - 4 * rows >= RUN_BYTES * run / 3, (taken, RUN_BYTES * run)


def test_a_tree_of_many_columns_needs_a_fraction_of_what_their_values_take() -> None:
    rows = 100_000_000
    assert of_leaves(rows, 0, 1e7) < of_keys(rows, 6) / 5
    assert of_leaves(rows, 1, 1e7) == of_leaves(rows, 0, 1e7) + of_keys(rows, 1)
    assert of_leaves(rows, 0, rows) > of_leaves(rows, 0, 1.0), "a file of a leaf is one run"
