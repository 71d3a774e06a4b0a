"""Trees that are cut by conditions between columns: rows and queries by a model of their own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from reconciler.advisor.advice import TreeSettings
from reconciler.advisor.qdtree.building import found_for
from reconciler.advisor.qdtree.pairs import MOST_PAIRS, cuttable_pairs
from reconciler.advisor.simulate.missing import NULL, VALUE, Missing
from reconciler.advisor.simulate.pool import Pool, PoolColumn
from reconciler.plan.ordering import by_tree
from reconciler.queries.predicate import And, Comparison, Or, Predicate, Ref
from reconciler.queries.shape import Shape
from reconciler.queries.stored_columns import StoredColumns
from reconciler.table.pairs import Pair
from reconciler.table.schema import Field, Schema
from reconciler.table.values import Kind
from tests.advisor.qdtree.worlds import demand_of

ROWS = 1200
SCHEMA = Schema(0, tuple(Field(n, f"c{n}", "long") for n in range(1, 5)))
LESS = Pair(1, "less", 2)
BLOCKS = TreeSettings(steps=20, least_rows=60, block_column="block")


def _pool(values: dict[int, np.ndarray], nulls: dict[int, np.ndarray]) -> Pool:
    file = np.zeros(ROWS, dtype=np.int64)
    columns = {}
    for field, own in values.items():
        null = nulls.get(field, np.zeros(ROWS, dtype=bool))
        distinct, ranks = np.unique(own, return_inverse=True)
        missing = Missing(
            np.where(null, NULL, VALUE).astype(np.int8), np.zeros((3, ROWS)),
            np.ones((3, ROWS), dtype=bool), np.ones(ROWS, dtype=bool),
        )  # fmt: skip
        columns[field] = PoolColumn(
            Kind.INT, np.where(null, -1, ranks), distinct, None, None, missing
        )
    files: Any = SimpleNamespace(
        schema=SCHEMA, live_bytes=np.array([ROWS * 100]), records=np.array([ROWS]),
        columns={}, bytes=np.array([ROWS * 100]), derived={},
    )  # fmt: skip
    every = np.ones(ROWS, dtype=bool)
    return Pool(
        columns, file, np.ones(ROWS), files, every, StoredColumns({}, {}, {}, {}), frozenset()
    )


def _world(seed: int) -> tuple[dict[int, np.ndarray], dict[int, np.ndarray]]:
    random = np.random.default_rng(seed)
    values = {field: random.integers(0, 1000, ROWS) for field in (1, 3, 4)}
    values[2] = values[1] + random.integers(-150, 150, ROWS)
    return values, {2: random.random(ROWS) < 0.1}


def _truth(values: Any, nulls: Any) -> tuple[np.ndarray, np.ndarray]:
    null = nulls.get(1, np.zeros(ROWS, dtype=bool)) | nulls.get(2, np.zeros(ROWS, dtype=bool))
    return values[1] < values[2], null


def _asked(true: bool, executions: float = 1.0) -> Shape:
    """Queries with a condition between columns and a range of another one."""
    ends = np.array([350, 700])
    predicate: Predicate = And((
        Comparison(Ref(1, LESS.transform), ">=" if true else "<", 0), Comparison(Ref(3), "<", 1),
    ))  # fmt: skip
    ones = np.ones(len(ends), dtype=np.int64)
    return demand_of(predicate, (ones, ends), np.full(len(ends), executions))


@pytest.fixture(autouse=True)
def _row_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.advisor.qdtree.building._row_bytes", lambda *_: 1.0)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("true", [True, False])
def test_leaves_hold_rows_of_one_truth_and_the_whole_of_what_queries_want(
    seed: int, true: bool
) -> None:
    values, nulls = _world(seed)
    pool = _pool(values, nulls)
    found = found_for(pool, [_asked(true)], 10_000, BLOCKS)
    assert found is not None and found.tree.pairs == (LESS,)
    ordering = by_tree(found.tree)
    assert {column.field_id for column in ordering.key} >= {1, 2}
    key = [pool.columns[column.field_id] for column in ordering.key]
    leaf = ordering.leaf_of([one.sort_ranks for one in key], [one.distinct for one in key])
    held, null = _truth(values, nulls)
    wanted = ~null & (held == true)
    low, high = found.tree.boxes[-1]
    cuts = found.tree.of_column[-1]
    for number in np.unique(leaf):
        own = leaf == number
        # A leaf left of `< 1` (or `<= 0`) has no true row, and one right of it no other.
        if high[number] < len(cuts) and cuts[high[number]].value is not None:
            assert not (held & ~null)[own].any()
        if low[number] and cuts[low[number] - 1].value is not None:
            assert (held & ~null)[own].all()
    mixed = sum(0 < wanted[leaf == one].sum() < (leaf == one).sum() for one in np.unique(leaf))
    assert mixed < found.tree.leaves


def test_without_block_ids_no_tree_is_cut_by_conditions_between_columns() -> None:
    pool = _pool(*_world(1))
    plain = TreeSettings(steps=20, least_rows=60)
    found = found_for(pool, [_asked(True)], 10_000, plain)
    assert found is not None and not found.tree.pairs


def test_a_condition_that_parts_nothing_is_not_cut_by() -> None:
    values, _ = _world(2)
    values[2] = values[1] + 1
    found = found_for(_pool(values, {}), [_asked(True)], 10_000, BLOCKS)
    assert found is not None and not found.tree.pairs


def test_what_a_few_queries_save_by_ids_does_not_pay_for_what_all_others_lose() -> None:
    """The condition is independent of the column that nearly all queries filter on."""
    values, nulls = _world(3)
    ends = np.arange(50, 1000, 50)
    others = demand_of(Comparison(Ref(4), "<", 0), (ends,), np.full(len(ends), 100.0))
    found = found_for(_pool(values, nulls), [_asked(True, 0.01), others], 10_000, BLOCKS)
    assert found is not None and not found.tree.pairs


def test_the_heaviest_conditions_of_columns_of_one_type_are_candidates() -> None:
    fields = tuple(Field(n, f"c{n}", "date" if n == 9 else "int") for n in range(1, 10))
    schema = Schema(0, fields)
    pairs = [Pair(a, "less", b) for a in range(1, 9) for b in range(1, 9) if a != b]
    one = np.ones(1, dtype=np.int64)
    demands = [
        demand_of(Comparison(Ref(pair.left, pair.transform), ">=", 0), (one,), np.array([weight]))
        for weight, pair in enumerate([*pairs, Pair(1, "less", 9), Pair(1, "less", 10)], 1)
    ]
    known: Any = dict.fromkeys(range(1, 10))
    assert cuttable_pairs(known, schema, demands) == tuple(reversed(pairs))[:MOST_PAIRS]
    either = demand_of(
        Or((Comparison(Ref(1, "less[2]"), ">=", 0), Comparison(Ref(1, "less[3]"), "<", 1))),
        (one, one), np.array([1.0]),
    )  # fmt: skip
    assert set(cuttable_pairs(known, schema, [either])) == {Pair(1, "less", 2), Pair(1, "less", 3)}
