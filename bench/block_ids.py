"""What block ids let queries skip beyond bounds: a month of TPC-H's lineitem, 15 templates.

    python -m bench.block_ids [--data DIRECTORY] [--seed 1]

A tree is built from the queries, rows are put into its leaves, and files hold one leaf each, or
several. A file is read if its bounds admit the query; with ids, if besides a leaf of it may hold a
matching row, as `layoutctl route` decides. The same with comparisons of two columns and LIKE as
columns of 0 and 1, which bounds do not know: what cuts by them could bring, that ids alone exploit.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from bench.results import write_section
from bench.tpch_month import COLUMNS, Month, Template, month, templates
from reconciler.advisor.qdtree.building import tree_of_nodes
from reconciler.advisor.qdtree.climbing import best_greedy, climbed
from reconciler.advisor.qdtree.conjuncts import boxes_of
from reconciler.advisor.qdtree.greedy import root_of
from reconciler.advisor.qdtree.problem import problem_of
from reconciler.queries.block_routing import described
from reconciler.queries.predicate import And, Comparison, Predicate, Ref
from reconciler.queries.pruning import may_match
from reconciler.queries.shape import Shape, unrecorded_shape
from reconciler.table.cut_tree import codes_of
from reconciler.table.filetable import ColumnBounds
from tests.advisor.qdtree.worlds import KINDS, bounds_of, pool_of

MASK = 100
"""Field id of the first condition that no bound expresses."""


def with_masks(rows: Month) -> dict[int, np.ndarray]:
    """Return the columns, and each mask as a column of 0 and 1."""
    masks = {MASK + n: own.astype(np.int64) for n, own in enumerate(rows.masks.values())}
    return {**rows.values, **masks}


def shapes(rows: Month, every: Sequence[Template], masks: bool) -> list[Shape]:
    """Return the queries of each template; with masks, one shape per set of them."""
    number = {name: MASK + n for n, name in enumerate(rows.masks)}
    found = []
    for template in every:
        if not masks or not template.rest:
            found.append(template.shape)
            continue
        for at, rest in enumerate(template.rest):
            one = replace(template, literals=(template.literals[at],), rest=()).shape
            if not rest:
                found.append(one)
                continue
            slot = len(one.literals)
            parts: list[Predicate] = [
                Comparison(Ref(number[name]), "=", slot + n) for n, name in enumerate(rest)
            ]
            own = [one.predicate] if template.sides else []
            literals = (*one.literals, *(np.array([1]) for _ in rest))
            whole = And((*own, *parts)) if len(own) + len(parts) > 1 else parts[0]
            found.append(
                unrecorded_shape(
                    f"{template.name}-{at}", whole, (), literals, np.ones(1), np.ones(1)
                )
            )
    return found


def read(
    rows: Month,
    grown_for: Sequence[Shape],
    demands: Sequence[Shape],
    known: Sequence[int],
    least: float,
    leaves_a_file: int,
) -> tuple[int, float, float]:
    """Return files, and the share of rows x queries that bounds leave, and that ids do besides.

    grown_for: the queries that the tree is found for. known: columns that it may cut. least: rows
    of a leaf.
    """
    values, count = with_masks(rows), len(rows)
    pool = pool_of({one: values[one] for one in known}, {}, np.ones(count))
    boxes = boxes_of(pool, grown_for, [demand.executions for demand in grown_for])
    problem = problem_of(boxes, np.ones(count))
    root = climbed(problem, best_greedy(problem, root_of(problem), least), least, 200, 0)
    tree = tree_of_nodes(problem, root)
    codes = {
        field: codes_of(cuts, pool.columns[field].sort_ranks, pool.columns[field].distinct)
        for field, cuts in tree.of_column.items()
    }
    leaf = tree.leaf_of(codes, count)
    of_file = np.arange(tree.leaves) // leaves_a_file
    files = [np.flatnonzero(of_file[leaf] == one) for one in range(int(of_file[-1]) + 1)]
    none = np.zeros(count, dtype=bool)
    bounds = {one: bounds_of(values[one], none, files) for one in rows.values}
    boxed: dict[int, ColumnBounds] = {
        one: described(tree, one, KINDS[values[one].dtype.kind]) for one in tree.of_column
    }
    held = np.array([len(own) for own in files], dtype=np.int64)
    many = np.full(tree.leaves, 1 << 40, dtype=np.int64)
    by_bounds = by_ids = total = 0.0
    for demand in demands:
        given = demand.predicate, demand.literals
        admitted = may_match(*given, bounds, held, queries=len(demand))
        matching = may_match(*given, boxed, many, queries=len(demand))
        some = np.zeros_like(np.broadcast_to(admitted, (len(demand), len(files))))
        for query, mine in enumerate(np.broadcast_to(matching, (len(demand), tree.leaves))):
            some[query, np.unique(of_file[mine])] = True
        by_bounds += float((np.broadcast_to(admitted, some.shape) @ held).sum())
        by_ids += float(((admitted & some) @ held).sum())
        total += float(len(demand) * count)
    return len(files), by_bounds / total, by_ids / total


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()) / "tpch1")
    parser.add_argument("--seed", type=int, default=1)
    asked_for = parser.parse_args()
    rows = month(asked_for.data)
    every = templates(rows, asked_for.seed)
    plain = list(COLUMNS.values())
    masks = [*plain, *(MASK + n for n in range(len(rows.masks)))]
    table = [("cuts", "leaves a file", "files", "by bounds", "by bounds and ids")]
    by_ranges, by_all = (shapes(rows, every, masks=one) for one in (False, True))
    for name, known, grown_for, demands in (
        ("ranges", plain, by_ranges, by_ranges),
        ("ranges and advanced", masks, by_all, by_all),
        ("the same, half of the queries routed", masks, by_ranges + by_all, by_all),
    ):
        for least, each in ((100.0, 1), (25.0, 4)):
            files, bounds, ids = read(rows, grown_for, demands, known, least, each)
            table.append((name, str(each), str(files), f"{bounds:.4f}", f"{ids:.4f}"))
    notes = (
        "Share of rows x queries in the files that are read. Advanced cuts are comparisons of two "
        "columns and LIKE, which queries with such conditions and ids exploit and bounds do not."
    )
    print(write_section("block-ids", "python -m bench.block_ids", table, notes))


if __name__ == "__main__":
    main()
