"""What a tree leaves unread on a month of TPC-H: within leaves, by rows in two leaves, and at most.

    python -m bench.qdtree_leaves [--data DIR] [--seeds 1,2,3] [--log FILE]

Rows and queries are those of `bench.qdtree_tpch`. Shares are of rows x queries.

*By cuts*: each leaf is parted once more, into row groups of at least a quarter of the least leaf,
by a greedy tree of its own or by its best column, whichever reads less. *Small leaves*: a tree of
leaves of a quarter, each a row group; files are made of them as the engine makes them. *Overlap*:
Yang et al., "Qd-tree", section 6.2: one child of a cut may be smaller than the least leaf; its rows
are then copied into large neighbours. The share counts them as if they were files of their own. A
query that needs some of them reads at least these rows, so that no way to copy them reads less. The
least leaf is chosen so that there are about as many large leaves as the tree beside it has. Seeds
that the log has are not measured again.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.qdtree_tpch import LEAST, Pieces, in_files, in_groups, problem_for, quick_share, tree
from bench.results import logged, write_section
from bench.tpch_month import Month, month, selectivity, templates
from reconciler.advisor.qdtree.climbing import best_greedy
from reconciler.advisor.qdtree.greedy import (
    EXACT,
    Growth,
    Node,
    gains,
    node_of,
    root_of,
    settle,
    split,
)
from reconciler.advisor.qdtree.inner import PARTS
from reconciler.advisor.qdtree.problem import Problem

STEPS = 200
"""Attempts to climb, as the program takes them."""
TRIES = 6
"""Halvings of the least leaf of overlapping trees."""


def by_cuts(problem: Problem, leaf: Node) -> Pieces:
    """Return a leaf's row groups, by cuts of its own where these read less than its best column."""
    made = best_greedy(problem, node_of(problem, leaf.rows, leaf.live), LEAST / PARTS)
    ways = [in_groups(problem, leaf), [one.rows for one in made.leaves()]]
    return min(ways, key=lambda pieces: quick_share(problem, pieces))


def overlapping(problem: Problem, least: float) -> list[Node]:
    """Return the leaves of a greedy tree of which one child of each cut may be small."""
    root = root_of(problem)
    left = [root]
    while left:
        node = left.pop()
        if node.weight <= least:
            continue
        found = gains(problem, node, Growth(1.0))
        if found is None:
            continue
        below = np.cumsum(problem.held(node.rows))
        below -= np.where(problem.first > 0, below[problem.first - 1], 0.0)
        large = np.maximum(below, node.weight - below) >= least
        gain = np.where(large, found.gain, -np.inf)
        best = int(np.argmax(gain))
        if gain[best] > EXACT * max(node.own, 1.0):
            node.cut, node.children = best, split(problem, node, best)
            left += node.children
    settle(root)
    return list(root.leaves())


def with_overlap(problem: Problem, files: int) -> tuple[float, float]:
    """Return the share that trees with about `files` large leaves read at least, and the share of
    rows in small ones."""
    low, high = LEAST / 2.0, LEAST * 2.0
    found: list[tuple[int, list[Node], float]] = []
    for _ in range(TRIES):
        least = float(np.sqrt(low * high))
        leaves = overlapping(problem, least)
        large = sum(leaf.weight >= least for leaf in leaves)
        found.append((abs(large - files), leaves, least))
        low, high = (least, high) if large > files else (low, least)
    _, leaves, least = min(found, key=lambda one: one[0])
    small = sum(leaf.weight for leaf in leaves if leaf.weight < least)
    return sum(leaf.cost for leaf in leaves) / problem.total, small / float(problem.weight.sum())


def measured(rows: Month, seed: int) -> list[float]:
    asked = templates(rows, seed)
    problem = problem_for(rows, asked)
    root = tree(problem, STEPS)
    leaves = list(root.leaves())
    files = root.cost / problem.total
    column = [part for leaf in leaves for part in in_groups(problem, leaf)]
    cuts = [part for leaf in leaves for part in by_cuts(problem, leaf)]
    one, two = (quick_share(problem, pieces) for pieces in (column, cuts))
    fine = tree(problem, STEPS, LEAST / PARTS)
    packed = in_files(problem, fine, len(rows) / len(leaves))
    least, small = with_overlap(problem, len(leaves))
    alone = [problem_for(rows, [each]) for each in asked]
    floor = float(np.mean([tree(own, 0).cost / own.total for own in alone]))
    return [
        seed, len(leaves), files, len(column), one, len(cuts), two, two / one,
        len(packed), quick_share(problem, packed), fine.cost / problem.total,
        least, least / files, small, floor, selectivity(rows, asked, whole=False),
    ]  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.qdtree_leaves")
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
                found = measured(rows, seed)
                lines.write(json.dumps({"seed": seed, "found": found}) + "\n")
        every = [one["found"] for one in logged(log) if one["seed"] in seeds]
    table = [[
        "seed", "files", "by files", "row groups", "by column", "row groups", "by cuts",
        "/ by column", "files of small leaves", "by files", "by leaves",
        "overlap, at least", "/ by files", "rows in small leaves",
        "a tree per template", "selectivity by bounds",
    ]]  # fmt: skip
    for one in every:
        table.append([f"{v:.4f}" if isinstance(v, float) else str(v) for v in one])
    table.append(["mean", *(f"{value:.4f}" for value in np.mean(every, axis=0)[1:])])
    command = f"python -m bench.qdtree_leaves --seeds {options.seeds}"
    note = (__doc__ or "").split("\n\n", 2)[2]
    print(write_section("Within the leaves of trees", command, table, note))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
