"""What plans choose against every key and size of row groups, without Spark.

`python -m bench.tables.choices [--seed N] [--kinds a,b]` plans a table of every kind, and writes
what was chosen as well as every alternative by pyarrow (`bench.tables.arrow_trial`). Both are
priced by queries that no plan saw: reading for the horizon, and rho times the bytes rewritten.
`python -m bench.tables` rewrites the best ones by Spark, and says how far the two agree.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from bench.results import logged, write_section
from bench.tables import brute
from bench.tables.arrow_trial import parts_of, read_cost
from bench.tables.drawn import Drawn
from bench.tables.kinds import KINDS
from bench.tables.play import (
    Place,
    Seen,
    proposed,
    read_of,
    without_spark,
    workload,
)
from reconciler.loop.propose import Proposal
from reconciler.plan.actions.rewrite import Rewrite
from reconciler.queries.rewrite_cost import Rho, rewrite_cost
from reconciler.queries.shape import Workload

LOG = Path("build/bench-choices.jsonl")
ROW_GROUPS = (0, 256 << 10, 96 << 10)
"""Stored bytes of the row groups that are tried; 0 for one a file."""


@dataclass(frozen=True)
class Choice:
    """Costs of the queries to come over that of leaving the table alone."""

    kind: str
    chosen: str
    cost: float
    best: str
    least: float

    @property
    def ratio(self) -> float:
        return self.cost / min(self.cost, self.least)


def choice(root: Path, drawn: Drawn) -> Choice:
    place = without_spark(root)
    before, plan = proposed(place, drawn)
    later = workload(place, drawn.name, drawn.later)
    nothing = read_of(before.view, later).cost
    rho = plan.plan.document()["evidence"]["cost"]["rhoMilli"] / 1000
    label, cost = _chosen(place, drawn, before, plan, later, rho)
    options = [
        (f"{option.label}, row groups of {size >> 10} KiB" if size else option.label, option.trial)
        for size in ROW_GROUPS
        for option in brute.options(place, drawn, drawn.name, before, later, rho, size)
    ]
    best, least = min([*options, ("nothing", nothing)], key=lambda one: one[1])
    return Choice(drawn.kind, label, cost / nothing, best, least / nothing)


def _chosen(
    place: Place, drawn: Drawn, before: Seen, plan: Proposal, later: Workload, rho: float
) -> tuple[str, float]:
    """Return the plan's labels and cost: of its rewrites by pyarrow, and of the other files."""
    files = before.observation.files
    cost, left, labels = 0.0, np.ones(len(files), dtype=bool), list[str]()
    for item in plan.plan.actions:
        action = item.action
        if not isinstance(action, Rewrite):
            continue
        rows = np.flatnonzero(np.isin(files.path, list(action.inputs))).astype(np.int64)
        left[rows] = False
        labels.append(item.predicted.label)
        parts = parts_of(place, drawn, drawn.name, before, rows)
        stored = action.row_group_bytes if action.row_group_bytes < files.bytes[rows].sum() else 0
        cost += read_cost(place, drawn, before, parts, action.ordering, stored, later)
        cost += rewrite_cost(Rho(rho), int(files.bytes[rows].sum()))
    cost += read_of(before.view.take(np.flatnonzero(left)), later).cost if left.any() else 0.0
    more = f" and {len(labels) - 1} more" if len(labels) > 1 else ""
    return (labels[0] if labels else "nothing") + more, cost


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.tables.choices")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default="", help="names, separated by commas")
    parser.add_argument("--log", type=Path, default=LOG)
    options = parser.parse_args(arguments)
    options.log.parent.mkdir(parents=True, exist_ok=True)
    done = {one.kind for one in _known(options.log, options.seed)}
    for name in options.kinds.split(",") if options.kinds else KINDS:
        drawn = KINDS[name](options.seed)
        if name in done or drawn.changes or not drawn.columns or drawn.budget is not None:
            continue  # Spark deletes rows, nothing is to be chosen, or no plan may choose freely
        with tempfile.TemporaryDirectory(prefix="bench-choices-") as directory:
            found = choice(Path(directory), drawn)
        with options.log.open("a") as out:
            out.write(json.dumps({"seed": options.seed} | asdict(found)) + "\n")
        print(*_row(found), sep=" | ", flush=True)
    print(report(_known(options.log, options.seed), options.seed))
    return 0


def _known(log: Path, seed: int) -> list[Choice]:
    """Return what the log holds of that seed, so that a run can be stopped and resumed."""
    return [Choice(**line) for line in logged(log) if line.pop("seed") == seed]


def report(found: Sequence[Choice], seed: int) -> str:
    ratios = [one.ratio for one in found]
    head = ["kind", "chosen", "cost / nothing", "best", "cost / nothing", "chosen / best"]
    notes = (
        f"Chosen / best: {np.median(ratios):.2f} at the median, {max(ratios):.2f} at worst; goals "
        "1.03 and 1.15. Costs of the queries of 7 days that no plan saw, the rewrite included. All "
        "layouts, the chosen one among them, are written by pyarrow of all rows: every column, "
        "pair and curve, of the whole table and of the files asked for, in three sizes of row "
        "groups."
    )
    command = f"python -m bench.tables.choices --seed {seed}"
    return write_section("Choices", command, [head, *(_row(one) for one in found)], notes)


def _row(one: Choice) -> list[str]:
    return [one.kind, one.chosen, f"{one.cost:.3f}", one.best, f"{one.least:.3f}",
            f"{one.ratio:.2f}"]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
