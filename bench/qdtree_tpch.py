"""Trees of cuts against Hilbert curves on a month of TPC-H, at an equal number of files.

    python -m bench.qdtree_tpch [--data DIR] [--seeds 1,2,3]

All rows and 150 queries are known to both (`bench.tpch_month`). Shares are those of rows x queries
in the files, and in four row groups of each file, that minimum and maximum of every column cannot
rule out, by the program's evaluator of manifests. The best curve is the best of every pair of the
ten best columns, and of every three and four of the seven columns that are in the best pairs, by
these queries themselves.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.results import write_section
from bench.tpch_month import COLUMNS, Month, Template, month, selectivity, templates
from reconciler.advisor.qdtree.climbing import best_greedy, climbed
from reconciler.advisor.qdtree.conjuncts import boxes_of
from reconciler.advisor.qdtree.greedy import Node, root_of
from reconciler.advisor.qdtree.inner import PARTS, sorted_by
from reconciler.advisor.qdtree.problem import Problem, problem_of
from reconciler.plan.ordering import best_of
from reconciler.table.schema import SortColumn
from tests.advisor.qdtree.worlds import pool_of, read_share

LEAST = 100.0
"""Rows of a leaf at least."""
STEPS = 2_000
"""Attempts of the longer climb."""
PAIRED, WIDEST = 10, 7
"""Columns of which pairs, and of which threes and fours are tried."""
UNSEEN = 1_000
"""What is added to a seed for other literals of the same templates."""

Pieces = list[np.ndarray]
"""The rows of each file, or of each row group."""


@dataclass(frozen=True)
class World:
    """Rows, queries and both as a problem of trees."""

    rows: Month
    asked: tuple[Template, ...]
    unseen: tuple[Template, ...]
    problem: Problem

    def share(self, pieces: Pieces, asked: Sequence[Template]) -> float:
        one = np.ones(len(self.rows))
        return read_share(self.rows.values, {}, one, pieces, [each.shape for each in asked])


def problem_for(rows: Month, asked: Sequence[Template]) -> Problem:
    pool = pool_of(rows.values, {}, np.ones(len(rows)))
    shapes = [one.shape for one in asked]
    return problem_of(boxes_of(pool, shapes, [one.executions for one in shapes]), pool.weight)


def parted(order: np.ndarray, parts: int) -> Pieces:
    return np.array_split(order, parts)


def in_curve(rows: Month, columns: Sequence[int]) -> np.ndarray:
    """Return the rows as the program orders them by these columns."""
    ordering = best_of(tuple(SortColumn(column) for column in columns))
    made = pool_of({column: rows.values[column] for column in columns}, {}, np.ones(len(rows)))
    ranks = [made.columns[column].ranks for column in columns]
    keys = ordering.sort_keys(ranks, [made.columns[column].distinct for column in columns])
    return np.lexsort(tuple(reversed(keys)))


def quick_share(problem: Problem, pieces: Pieces) -> float:
    """Return the same share as `World.share`, by the codes of the problem."""
    order = np.concatenate(pieces)
    begins = np.cumsum([0, *(len(one) for one in pieces)])[:-1]
    alive = problem.meets(order, begins, np.arange(len(problem.query)))
    first = np.flatnonzero(np.diff(problem.query, prepend=-1))
    reads = np.logical_or.reduceat(alive, first, axis=1) @ problem.cost[problem.query[first]]
    return float(np.add.reduceat(problem.weight[order], begins) @ reads) / problem.total


def curves(world: World, files: int) -> dict[int, tuple[int, ...]]:
    """Return the best columns by how many they are."""

    def best(every: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
        scored = [
            (quick_share(world.problem, parted(in_curve(world.rows, one), files)), one)
            for one in every
        ]
        return [one for _, one in sorted(scored)]

    alone = best([(column,) for column in COLUMNS.values()])
    found = {1: alone[0]}
    paired = sorted(column for (column,) in alone[:PAIRED])
    pairs = best(list(itertools.combinations(paired, 2)))
    wide = sorted(list(dict.fromkeys(column for pair in pairs for column in pair))[:WIDEST])
    found[2] = pairs[0]
    for count in (3, 4):
        found[count] = best(list(itertools.combinations(wide, count)))[0]
    return found


def tree(problem: Problem, steps: int, least: float = LEAST) -> Node:
    return climbed(problem, best_greedy(problem, root_of(problem), least), least, steps, 0)


def in_groups(problem: Problem, leaf: Node) -> Pieces:
    """Return a leaf's rows by its own best column, in four."""
    column = sorted_by(problem, leaf)
    order = leaf.rows
    if column:
        places = problem.boxes.axes[problem.boxes.columns.index(column)].places[order]
        order = order[np.argsort(places, kind="stable")]
    return parted(order, PARTS)


def measured(rows: Month, seed: int) -> tuple[list[list[str]], list[list[str]]]:
    """Return the rows of layouts and of templates."""
    asked = templates(rows, seed)
    world = World(rows, asked, templates(rows, seed + UNSEEN), problem_for(rows, asked))
    problem = world.problem
    trees = {
        "tree, greedy": tree(problem, 0), "tree, Auto (200 steps)": tree(problem, 200),
        f"tree, {STEPS:,} steps": tree(problem, STEPS),
    }  # fmt: skip
    leaves = {name: list(root.leaves()) for name, root in trees.items()}
    files = len(leaves["tree, Auto (200 steps)"])
    small = [leaf.rows for leaf in tree(problem, 200, LEAST / PARTS).leaves()]
    laid: dict[str, tuple[Pieces, Pieces]] = {}
    for count, columns in curves(world, files).items():
        order = in_curve(rows, columns)
        names = ", ".join(name for name, number in COLUMNS.items() if number in columns)
        kind = "sort by" if count == 1 else "Hilbert"
        laid[f"{kind} {names}"] = parted(order, files), parted(order, PARTS * files)
    shares = {name: world.share(one, asked) for name, (one, _) in laid.items()}
    groups = {name: world.share(two, asked) for name, (_, two) in laid.items()}
    best = min(shares.values()), min(groups.values())
    for name, own in leaves.items():
        laid[name] = [one.rows for one in own], [g for one in own for g in in_groups(problem, one)]
    laid["tree whose leaves are row groups"] = [], small
    table = []
    for name, (one, two) in laid.items():
        by_files = world.share(one, asked) if one else float("nan")
        by_groups = world.share(two, asked)
        table.append([
            str(seed), name, str(len(one) or files), *_numbers(by_files, by_files / best[0]),
            *_numbers(by_groups, by_groups / best[0], by_groups / best[1]),
            f"{world.share(one or two, world.unseen):.4f}",
        ])  # fmt: skip
    curve = min(shares, key=lambda name: shares[name])
    return table, [_of_template(world, one, laid, curve) for one in asked]


def _numbers(*values: float) -> list[str]:
    digits = [4, 3, 3]
    return ["" if np.isnan(v) else f"{v:.{d}f}" for v, d in zip(values, digits, strict=False)]


def _of_template(
    world: World, one: Template, laid: dict[str, tuple[Pieces, Pieces]], curve: str
) -> list[str]:
    alone = [leaf.rows for leaf in tree(problem_for(world.rows, [one]), 0).leaves()]
    files, groups = laid["tree, Auto (200 steps)"]
    values = [
        selectivity(world.rows, [one], whole=True), selectivity(world.rows, [one], whole=False),
        *(world.share(pieces, [one]) for pieces in (alone, laid[curve][0], files, groups)),
    ]  # fmt: skip
    return [one.name, *(f"{value:.4f}" for value in values)]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.qdtree_tpch")
    parser.add_argument("--data", type=Path, help="directory of TPC-H at scale 1, or to make it in")
    parser.add_argument("--seeds", default="1,2,3")
    options = parser.parse_args(arguments)
    seeds = [int(one) for one in options.seeds.split(",")]
    with tempfile.TemporaryDirectory() as directory:
        rows = month(options.data or Path(directory))
    head = ["seed", "layout", "files", "by files", "/ best curve", "by four row groups",
            "/ best curve by files", "/ best curve by row groups", "unseen literals"]  # fmt: skip
    found = [measured(rows, seed) for seed in seeds]
    command = f"python -m bench.qdtree_tpch --seeds {options.seeds}"
    note = (
        f"{len(rows):,} rows. {__doc__.split(chr(10) * 2)[2]}\n\nUnseen literals: "
        "other draws of the same templates, by files (by row groups where leaves are row groups)."
    )
    print(write_section("Trees on TPC-H", command, [head, *(r for t, _ in found for r in t)], note))
    head = ["template", "selectivity", "by what bounds can express", "a tree of its own",
            "best curve", "tree", "tree, four row groups"]  # fmt: skip
    note = "Shares of rows x queries, by files but the last; mean of all: the tables above."
    print(write_section("Trees on TPC-H, by template", command, [head, *found[0][1]], note))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
