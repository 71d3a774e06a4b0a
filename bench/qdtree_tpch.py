"""Trees of cuts against Hilbert curves on a month of TPC-H, at an equal number of files.

    python -m bench.qdtree_tpch [--data DIR] [--seeds 1,2,3] [--log FILE]

All rows and 150 queries are known to both (`bench.tpch_month`). Shares are those of rows x queries
in the files, and in four row groups of each file, that minimum and maximum of every column cannot
rule out, by the program's evaluator of manifests. The best curve is the best of every pair of the
ten best columns, and of every three and four of the seven columns that are in the best pairs, by
these queries themselves. *Leaves of a quarter, of an eighth*: of the least leaf; each is a row
group, and the engine's rule makes at most as many files of them as the tree beside them has. Seeds
that the log has are not measured again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.results import logged, write_section
from bench.tpch_month import COLUMNS, Month, Template, month, selectivity, templates
from reconciler.advisor.qdtree.building import tree_of_nodes
from reconciler.advisor.qdtree.climbing import best_greedy, climbed
from reconciler.advisor.qdtree.conjuncts import boxes_of
from reconciler.advisor.qdtree.greedy import Node, root_of
from reconciler.advisor.qdtree.inner import PARTS, sorting
from reconciler.advisor.qdtree.problem import Problem, problem_of
from reconciler.plan.ordering import best_of
from reconciler.table.leaf_files import file_units
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
    column = sorting(problem, leaf).column
    order = leaf.rows
    if column:
        places = problem.boxes.axes[problem.boxes.columns.index(column)].places[order]
        order = order[np.argsort(places, kind="stable")]
    return parted(order, PARTS)


def in_files(problem: Problem, root: Node, file_rows: float) -> Pieces:
    """Return the files that the engine makes of a tree's leaves."""
    leaves = [leaf.rows for leaf in root.leaves()]
    held = np.array([len(one) for one in leaves])
    units = file_units(tree_of_nodes(problem, root), np.arange(len(held)), held, file_rows)
    return [np.concatenate(leaves[unit.first : unit.end]) for unit in units]


def of_small_leaves(problem: Problem, parts: int, most: int) -> tuple[Pieces, Pieces]:
    """Return the files and row groups of leaves of this part of the least. most: files."""
    root = tree(problem, 200, LEAST / parts)
    file_rows = len(problem.weight) / most
    files = in_files(problem, root, file_rows)
    while len(files) > most:
        file_rows *= 1.01 * len(files) / most
        files = in_files(problem, root, file_rows)
    return files, [leaf.rows for leaf in root.leaves()]


def measured(rows: Month, seed: int) -> dict[str, Any]:
    """Return the numbers of each layout and of each template."""
    asked = templates(rows, seed)
    world = World(rows, asked, templates(rows, seed + UNSEEN), problem_for(rows, asked))
    problem = world.problem
    trees = {
        "tree, greedy": tree(problem, 0), "tree, Auto (200 steps)": tree(problem, 200),
        f"tree, {STEPS:,} steps": tree(problem, STEPS),
    }  # fmt: skip
    leaves = {name: list(root.leaves()) for name, root in trees.items()}
    files = len(leaves["tree, Auto (200 steps)"])
    laid: dict[str, tuple[Pieces, Pieces]] = {}
    for count, columns in curves(world, files).items():
        order = in_curve(rows, columns)
        kind = "sort by the best column" if count == 1 else f"best Hilbert curve of {count}"
        laid[kind] = parted(order, files), parted(order, PARTS * files)
    shares = {name: world.share(one, asked) for name, (one, _) in laid.items()}
    for name, own in leaves.items():
        laid[name] = [one.rows for one in own], [g for one in own for g in in_groups(problem, one)]
    for name, parts in (("leaves of a quarter", PARTS), ("leaves of an eighth", 2 * PARTS)):
        laid[f"tree, {name}"] = of_small_leaves(problem, parts, files)
    found = {
        name: [len(one), len(two), world.share(one, asked), world.share(two, asked),
               world.share(one, world.unseen), world.share(two, world.unseen)]
        for name, (one, two) in laid.items()
    }  # fmt: skip
    curve = min(shares, key=lambda name: shares[name])
    of_templates = {one.name: _of_template(world, one, laid, curve) for one in asked}
    return {"seed": seed, "layouts": found, "templates": of_templates}


def _of_template(
    world: World, one: Template, laid: dict[str, tuple[Pieces, Pieces]], curve: str
) -> list[float]:
    alone = [leaf.rows for leaf in tree(problem_for(world.rows, [one]), 0).leaves()]
    files, groups = laid["tree, Auto (200 steps)"]
    return [
        selectivity(world.rows, [one], whole=True), selectivity(world.rows, [one], whole=False),
        *(world.share(pieces, [one]) for pieces in (alone, laid[curve][0], files, groups)),
    ]  # fmt: skip


def of_layouts(found: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Return the means over all seeds, and the least and the greatest ratio."""
    head = ["layout", "files", "by files", "/ best curve", "row groups", "by row groups",
            "/ best curve by files", "/ best curve by row groups", "unseen literals, by files",
            "by row groups"]  # fmt: skip
    every = {
        name: np.array([one["layouts"][name] for one in found]) for name in found[0]["layouts"]
    }
    curve = [numbers for name, numbers in every.items() if not name.startswith("tree")]
    files, groups = (np.min([numbers[:, at] for numbers in curve], axis=0) for at in (2, 3))
    return [head, *(
        [name, f"{own[:, 0].mean():.0f}", f"{own[:, 2].mean():.4f}", _spread(own[:, 2] / files),
         f"{own[:, 1].mean():.0f}", f"{own[:, 3].mean():.4f}", _spread(own[:, 3] / files),
         _spread(own[:, 3] / groups), *(f"{own[:, at].mean():.4f}" for at in (4, 5))]
        for name, own in every.items()
    )]  # fmt: skip


def _spread(values: np.ndarray) -> str:
    return f"{values.mean():.3f} ({values.min():.3f} to {values.max():.3f})"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.qdtree_tpch")
    parser.add_argument("--data", type=Path, help="directory of TPC-H at scale 1, or to make it in")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--log", type=Path, help="a line for each seed that was measured")
    options = parser.parse_args(arguments)
    seeds = [int(one) for one in options.seeds.split(",")]
    with tempfile.TemporaryDirectory() as directory:
        rows = month(options.data or Path(directory))
        log = options.log or Path(directory) / "log"
        for seed in sorted(set(seeds) - {one["seed"] for one in logged(log)}):
            with log.open("a") as lines:
                lines.write(json.dumps(measured(rows, seed)) + "\n")
        found = [one for one in logged(log) if one["seed"] in seeds]
    command = f"python -m bench.qdtree_tpch --seeds {options.seeds}"
    note = (
        f"{len(rows):,} rows. {__doc__.split(chr(10) * 2)[2]}\n\nMeans over the seeds, and the "
        "least and the greatest ratio. Unseen literals: other draws of the same templates."
    )
    print(write_section("Trees on TPC-H", command, of_layouts(found), note))
    head = ["template", "selectivity", "by what bounds can express", "a tree of its own",
            "best curve", "tree", "tree, four row groups"]  # fmt: skip
    means = {
        name: np.mean([one["templates"][name] for one in found], axis=0)
        for name in found[0]["templates"]
    }
    table = [head, *([name, *(f"{one:.4f}" for one in own)] for name, own in means.items())]
    note = "Shares of rows x queries, by files but the last, means over the seeds."
    print(write_section("Trees on TPC-H, by template", command, table, note))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
