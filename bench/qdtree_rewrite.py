"""CPU of the engine's rewrite into the leaves of a tree, and of its sort by two columns.

    python -m bench.qdtree_rewrite [--rows 3000000] [--leaves 600] [--rounds 3]

Both read the same files of flights (`bench.sessions`, with a text and a fraction besides), write as
many files, and take turns; the best of the rounds counts. The tree is built from a sample and from
two weeks of what people asked. No comparison of rows, which costs both the same.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.results import write_section
from bench.sessions import NAMES, RECORDED_DAYS, SCHEMA, People, Random
from bench.sessions import flights as drawn
from reconciler.advisor.advice import HORIZON_MS
from reconciler.advisor.qdtree.building import tree_of_nodes
from reconciler.advisor.qdtree.climbing import best_greedy
from reconciler.advisor.qdtree.conjuncts import boxes_of
from reconciler.advisor.qdtree.greedy import root_of
from reconciler.advisor.qdtree.problem import problem_of
from reconciler.queries.demanded import demands
from reconciler.queries.fragments import workload_of_fragments
from reconciler.rewrite.columns import Column
from reconciler.rewrite.files import DataFile
from reconciler.rewrite.rewriting import rewritten
from reconciler.rewrite.task import Key, Order, Resources, Task
from reconciler.table.cut_tree import Tree
from tests.advisor.qdtree.worlds import pool_of
from tests.rewrite.model import table_of

FILES = 8
SAMPLE = 60_000
COLUMNS = (
    *(Column(number, name, "int") for number, name in enumerate(NAMES, 1)),
    Column(7, "carrier", "string"), Column(8, "load", "double"),
)  # fmt: skip
GROUP_ROWS = 1 << 20


def rows_of(random: Random, rows: int) -> pa.Table:
    """Return flights: the six columns that people ask about, and two others."""
    values = drawn(random, rows // 128).values
    count = len(values[1])
    columns = [values[number].astype(np.int32) for number in range(1, 7)]
    columns += [random.choice(np.array(["AA", "BB", "CC", "DD"]), count), random.random(count)]
    fields = [
        pa.field(
            one.name, pa.array(values[:1]).type, metadata={"PARQUET:field_id": str(one.field_id)}
        )
        for one, values in zip(COLUMNS, columns, strict=True)
    ]
    return pa.table([pa.array(one) for one in columns], pa.schema(fields))


def tree_for(random: Random, rows: pa.Table, leaves: int) -> Tree:
    """Return a tree of about so many leaves."""
    chosen = np.sort(random.choice(len(rows), SAMPLE, replace=False))
    values = {n: rows[name].to_numpy()[chosen].astype(np.int64) for n, name in enumerate(NAMES, 1)}
    people = People(np.full(6, 1 / 6), {n: np.sort(own) for n, own in values.items()})
    asked = demands(
        workload_of_fragments(people.sessions(random, 0, RECORDED_DAYS)), SCHEMA, HORIZON_MS
    )
    pool = pool_of(values, {}, np.ones(SAMPLE))
    problem = problem_of(boxes_of(pool, asked, [one.executions for one in asked]), pool.weight)
    least = SAMPLE / leaves
    root = root_of(problem)
    while True:
        found = best_greedy(problem, root, least)
        if len(list(found.leaves())) >= leaves:
            return tree_of_nodes(problem, found)
        least *= 0.95


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.qdtree_rewrite")
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--leaves", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    random = np.random.default_rng(1)
    rows = rows_of(random, options.rows)
    tree = tree_for(random, rows, options.leaves)
    taken: dict[str, list[tuple[float, float, int]]] = {"tree": [], "sort": []}
    with tempfile.TemporaryDirectory() as within:
        files = _written(Path(within), rows)
        files_out = 0
        for number in range(options.rounds):
            for name in taken:
                out = Path(within) / f"{name}-{number}"
                task = _task(files, out, tree if name == "tree" else None, len(rows), tree.leaves,
                             files_out)  # fmt: skip
                cpu, wall = time.process_time(), time.perf_counter()
                made = rewritten(task, None, Resources(1 << 40))
                cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
                files_out = len(made.files)
                taken[name].append((cpu, wall, files_out))
                print(name, f"{cpu:.2f}", f"{wall:.2f}", files_out, file=sys.stderr, flush=True)
    best = {name: min(own) for name, own in taken.items()}
    table = [["rewrite", "files", "CPU s", "/ sort"]]
    names = {"tree": f"tree of {tree.leaves} leaves", "sort": "sort by arrival_delay, distance"}
    for name, (cpu, _, count) in best.items():
        table.append([names[name], str(count), f"{cpu:.2f}", f"{cpu / best['sort'][0]:.2f}"])
    command = f"python -m bench.qdtree_rewrite --rows {options.rows} --leaves {options.leaves}"
    note = f"{len(rows):,} rows of {len(COLUMNS)} columns. Goal: 1.15."
    print(write_section("A rewrite into leaves", command, table, note))
    return 0


def _written(directory: Path, rows: pa.Table) -> tuple[DataFile, ...]:
    found = []
    for number in range(FILES):
        path = directory / f"in-{number}.parquet"
        part = rows.slice(number * len(rows) // FILES, len(rows) // FILES)
        pq.write_table(part, path)
        found.append(DataFile(f"file:{path}", len(part), path.stat().st_size))
    return tuple(found)


def _task(
    files: tuple[DataFile, ...], out: Path, tree: Tree | None, rows: int, leaves: int, count: int
) -> Task:
    """count: files that a sort is to write."""
    if tree is not None:
        order = Order(tuple(Key(field) for field in tree.columns), tree=tree)
        path = f"file:{out}/x-NUMBER-ATTEMPT.parquet"
        return Task(table_of(COLUMNS), files, order, (path,), GROUP_ROWS, file_rows=rows / leaves)
    paths = tuple(f"file:{out}/x-{number}-ATTEMPT.parquet" for number in range(count))
    return Task(table_of(COLUMNS), files, Order((Key(2), Key(3))), paths, GROUP_ROWS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
