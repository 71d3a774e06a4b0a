"""Bytes that plans predict beside those of files written by pyarrow, without Spark.

`python -m bench.tables.predicted_bytes [--seed N] [--kinds a,b] [--log FILE]` plans a table of
every kind, writes what its actions would
(`bench.recommend_on_spark.by_arrow`), and reads the recorded queries from the footers. It takes a
few CPU seconds a kind; `python -m bench.tables` does the same by Spark. Kinds whose rows are
deleted by Spark, or whose partitions pyarrow cannot derive from a file's bounds, are left out.
Placebos are planned.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.recommend_on_spark import by_arrow
from bench.results import logged, write_section
from bench.tables.arrow_trial import OWN_TARGET
from bench.tables.drawn import Drawn
from bench.tables.kinds import KINDS
from bench.tables.play import (
    NAMESPACE,
    ROW_GROUP,
    Place,
    Seen,
    look,
    proposed,
    read_of,
    without_spark,
)
from reconciler.advisor.simulate.layout import Sizes
from reconciler.catalog.parquet import without_views
from reconciler.format import iec
from reconciler.loop.propose import Proposal
from reconciler.plan.actions.rewrite import Rewrite
from reconciler.plan.ordering import Ordering, order_rows
from reconciler.plan.rejected import merged
from reconciler.table.schema import Schema

Line = dict[str, Any]
LOG = Path("build/bench-predicted-bytes.jsonl")
LEFT_OUT = ("nested", "by_bucket", "by_identity", "updated")
"""Structs and lists have no plain size here; then partitions, and deletes."""


def line_of(root: Path, drawn: Drawn) -> Line:
    place = without_spark(root)
    before, plan = proposed(place, drawn)
    document = plan.plan.document()
    reasons = [[line.reason, line.why] for line in merged(document["evidence"]["rejected"])]
    line: Line = {"kind": drawn.kind, "seed": drawn.seed, "reasons": reasons, "chosen": None}
    rewrites = [item for item in plan.plan.actions if isinstance(item.action, Rewrite)]
    if not rewrites:
        return line
    return line | {"chosen": rewrites[0].predicted.label} | _compared(place, drawn, before, plan)


def _compared(place: Place, drawn: Drawn, before: Seen, plan: Proposal) -> Line:
    evidence = plan.plan.document()["evidence"]
    totals = {line["name"].partition(" /")[0]: line for line in evidence["totals"]}
    paths, left = _written(place, drawn, before, plan)
    name = f"{drawn.name}_written"
    table = place.catalog.create_table(
        f"{NAMESPACE}.{name}", place.catalog.load_table(f"{NAMESPACE}.{drawn.name}").schema()
    )
    table.add_files(paths, check_duplicate_files=False)
    views = [look(place, name).view]
    views += [before.view.take(np.flatnonzero(left))] if left.any() else []
    read = [read_of(view, plan.queries.workload) for view in views]
    shapes = [
        sum(one.shapes.get(shape["shapeId"], 0.0) for one in read) / shape["bytesAfter"] - 1.0
        for shape in evidence["shapes"]
        if shape["bytesAfter"]
    ]
    found = sum(one.bytes for one in read)
    return {
        "read": _beside(totals["read"], found),
        "files": _beside(totals["data files"], len(paths) + int(left.sum())),
        "shapes": shapes,
    }


def _beside(total: Mapping[str, Any], found: float) -> Line:
    return {"predicted": total["after"], "low": total["low"], "high": total["high"], "found": found}


def _written(
    place: Place, drawn: Drawn, before: Seen, plan: Proposal
) -> tuple[list[str], np.ndarray]:
    """Write every group of every action; return the files, and which present files stay."""
    files, schema = before.observation.files, before.observation.schema
    left, paths = np.ones(len(files), dtype=bool), list[str]()
    for item in plan.plan.actions:
        action = item.action
        if not isinstance(action, Rewrite):
            continue
        rows = np.flatnonzero(np.isin(files.path, list(action.inputs)))
        left[rows] = False
        target = action.target_bytes or drawn.target or OWN_TARGET
        row_group = action.row_group_bytes or drawn.row_group or ROW_GROUP
        groups = action.groups(
            action.ordering.extents(files.take(rows)), target_bytes=target, merge_bytes=None
        )
        for member in np.split(groups.order, groups.starts[1:]):
            inputs = [str(path).removeprefix("file://") for path in files.path[rows[member]]]
            part = without_views(pa.concat_tables(pq.read_table(path) for path in inputs))
            arranged = part.take(pa.array(_order(part, action.ordering, schema)))
            folder = place.root / f"out-{len(paths)}"
            folder.mkdir()
            sizes = Sizes(target, row_group)
            paths += [f"file://{one}" for one in by_arrow.written(arranged, sizes, folder)]
    return paths, left


def _order(rows: pa.Table, ordering: Ordering, schema: Schema) -> np.ndarray:
    ranks = [
        np.asarray(
            pc.rank(rows[schema.name_of(column.field_id)], null_placement="at_start",
                    tiebreaker="dense")
        ).astype(np.int64)
        for column in ordering.key
    ]  # fmt: skip
    return order_rows(ordering, ranks, np.arange(len(rows))) if ranks else np.arange(len(rows))


def report(lines: Sequence[Line], command: str) -> str:
    worked = [line for line in lines if line["chosen"]]
    errors = [abs(_error(line["read"])) for line in worked]
    shapes = [abs(error) for line in worked for error in line["shapes"]]
    placebos = [line for line in lines if KINDS[line["kind"]](line["seed"]).reason]
    head = ["kind, seed", "chosen", "read, predicted", "found", "error", "files", "found"]
    median, high = np.quantile(errors, [0.5, 0.9])
    of_shape, high_of_shape = np.quantile(shapes, [0.5, 0.9])
    notes = (
        f"Bytes read: {median:.1%} off at the median of {len(worked)} tables, {high:.1%} at the "
        f"90th percentile (goals 5 and 15 %); of a shape {of_shape:.1%} and {high_of_shape:.1%} "
        f"(8 and 25 %, {len(shapes)} shapes). Inside their intervals: {_inside(worked, 'read')} of "
        f"{len(worked)} for bytes, {_inside(worked, 'files')} for files. Placebos with an empty "
        f"plan for the right reason: {sum(map(_right, placebos))} of {len(placebos)}. Files are "
        "written by pyarrow; no Spark ran."
    )
    return write_section("Bytes predicted, seeds that tuned nothing", command,
                         [head, *map(_row, worked)], notes)  # fmt: skip


def _error(line: Line) -> float:
    return float(line["found"] / line["predicted"] - 1.0)


def _inside(lines: Sequence[Line], name: str) -> int:
    return sum(line[name]["low"] <= line[name]["found"] <= line[name]["high"] for line in lines)


def _right(line: Line) -> bool:
    made = KINDS[line["kind"]](line["seed"])
    return not line["chosen"] and any(
        reason == made.reason and made.why in why for reason, why in line["reasons"]
    )


def _row(line: Line) -> list[str]:
    read, files = line["read"], line["files"]
    return [
        f"{line['kind']} {line['seed']}", line["chosen"], iec(read["predicted"]),
        iec(read["found"]), f"{_error(read):+.1%}", f"{files['predicted']}", f"{files['found']}",
    ]  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.tables.predicted_bytes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default="", help="names, separated by commas")
    parser.add_argument("--log", type=Path, default=LOG)
    options = parser.parse_args(arguments)
    options.log.parent.mkdir(parents=True, exist_ok=True)
    done = {(line["kind"], line["seed"]) for line in logged(options.log)}
    for kind in options.kinds.split(",") if options.kinds else KINDS:
        if (kind, options.seed) in done or kind in LEFT_OUT:
            continue
        with tempfile.TemporaryDirectory(prefix="bench-predicted-bytes-") as directory:
            line = line_of(Path(directory), KINDS[kind](options.seed))
        with options.log.open("a") as out:
            out.write(json.dumps(line) + "\n")
        print(_row(line) if line["chosen"] else [kind, *line["reasons"][:1]], flush=True)
    print(
        report(logged(options.log), f"python -m bench.tables.predicted_bytes --seed {options.seed}")
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
