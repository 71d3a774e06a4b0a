"""What a DELETE, an UPDATE and a MERGE that inserts nothing cost, beside the advisor's model.

`python -m bench.statements [ROWS ...]` puts so many rows of TPC-H lineitem into eight buckets and
changes one row in a hundred by each statement, written by copy-on-write, by positions per partition
and by deletion vectors. Tables share the data files of one and are rolled back after each
statement, so that all begin alike; the cheapest of three counts. `python -m bench.deletes` measures
the fourth statement, a MERGE that inserts. Section of bench/RESULTS.md: Statements.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from scipy.optimize import nnls

from bench.delete_lab import LINEITEM, ORDERS, Bed, Lab
from bench.delete_modes import BUCKETS, MODEL, Cost
from bench.results import write_section
from reconciler.advisor.deletes.mode_cost import (
    RATES,
    Operation,
    Statement,
    write_seconds,
)
from reconciler.queries.rewrite_cost import PRIOR_THROUGHPUT
from reconciler.spark.session import session

SIZES = (750_000, 1_500_000, 3_000_000)
TIMES = 3
PARTS = 100
"""A statement changes one row in so many."""
STATEMENTS = (Statement.DELETE, Statement.UPDATE, Statement.MATCHED)
TABLES = {
    "copy-on-write": (2, "copy-on-write"), "positions": (2, "merge-on-read"),
    "vectors": (3, "merge-on-read"),
}  # fmt: skip
"""Format version and mode, by way."""


@dataclass(frozen=True)
class Line:
    """What a statement took."""

    way: str
    operation: Operation
    cost: Cost

    @property
    def statement(self) -> Statement:
        return self.operation.statement

    @property
    def model(self) -> float:
        return write_seconds(MODEL[self.way], self.operation, PRIOR_THROUGHPUT)


@dataclass(frozen=True)
class Fit:
    """Constants of a statement. fixed: CPU seconds; find: per row read; whole: a factor of what the
    model has for finding files and copying them."""

    fixed: float
    find: float
    whole: float

    def seconds(self, line: Line) -> float:
        terms, kept = _terms(line)
        return kept + float(np.dot((self.fixed, self.find, self.whole), terms))


def _terms(line: Line) -> tuple[list[float], float]:
    """Return the terms of `Fit`, and the rest of what the model says."""
    one, rates = line.operation, RATES[line.statement]
    if MODEL[line.way].lazy:
        terms = [1.0, one.scanned, 0.0]
        return terms, line.model - rates.fixed - rates.find * one.scanned
    whole = rates.find_files * one.scanned + rates.copy * one.bytes
    return [1.0, 0.0, whole], line.model - rates.fixed - whole


def fit(lines: Iterable[Line]) -> Fit:
    """Return the constants that fit lines of one statement best: least squares of the relative
    error, none of them negative."""
    left, right = [], []
    for line in lines:
        terms, kept = _terms(line)
        left.append([term / line.cost.cpu for term in terms])
        right.append(1.0 - kept / line.cost.cpu)
    fixed, find, whole = nnls(np.array(left), np.array(right))[0]
    return Fit(float(fixed), float(find), float(whole))


def without(lines: Sequence[Line], line: Line) -> Fit:
    """Return the constants by the other sizes of the same statement."""
    rows = line.operation.scanned
    return fit(
        one for one in lines if one.statement is line.statement and one.operation.scanned != rows
    )


def text_of(statement: Statement, bed: Bed, full: str, number: int, source: Path) -> str:
    """Return the statement that changes the rows with this number."""
    rows = f"pmod(xxhash64({', '.join(bed.source.keys)}), {PARTS}) = {number}"
    add = f"{bed.source.updated} = {bed.source.updated} + 1"
    if statement is Statement.DELETE:
        return f"DELETE FROM {full} WHERE {rows}"
    if statement is Statement.UPDATE:
        return f"UPDATE {full} SET {add} WHERE {rows}"
    on = " AND ".join(f"t.{key} = s.{key}" for key in bed.source.keys)
    changed = bed.source.updated
    return (
        f"MERGE INTO {full} t USING (SELECT * FROM parquet.`{source}` WHERE n = {number}) s "
        f"ON {on} WHEN MATCHED THEN UPDATE SET {changed} = s.{changed} + 1"
    )


def measured(lab: Lab, rows: int) -> Iterator[Line]:
    """Yield what each statement takes in each way on a table of so many rows."""
    bed = Bed(lab, rows, 1, cases=())
    source = lab.directory / f"matched-{rows}"
    number = f"pmod(xxhash64({', '.join(bed.source.keys)}), {PARTS})"
    lab.spark.sql(
        f"SELECT *, {number} AS n FROM {lab.bench.full(bed.base)} WHERE {number} < {TIMES}"
    ).repartition("n").write.partitionBy("n").parquet(str(source))
    for way, (version, mode) in TABLES.items():
        name = bed.table(version, mode)
        start = lab.state(name).snapshot
        for statement in STATEMENTS:
            costs = []
            for number in range(TIMES):
                text = text_of(statement, bed, lab.bench.full(name), number, source)
                costs.append(lab.measured(partial(lab.bench.sql, text)))
                lab.call("rollback_to_snapshot", f"'jobs.{name}', {start}")
            changed = bed.rows / PARTS
            operation = Operation(
                statement=statement, scanned=bed.rows, rows=changed,
                added=0.0 if statement is Statement.DELETE else changed, files=BUCKETS,
                bytes=bed.bytes, partitions=BUCKETS, shared=BUCKETS,
                rows_per_byte=bed.rows / bed.bytes, reads=0.0, share=1.0,
            )  # fmt: skip
            yield Line(way, operation, min(costs, key=lambda cost: cost.cpu))


def _report(lines: Sequence[Line], command: str) -> str:
    rows = [("statement, rows", "way", "CPU s", "s", "model", "/ found",
             "fitted to the other sizes, / found")]  # fmt: skip
    for line in lines:
        cpu = line.cost.cpu
        rows.append((
            f"{line.statement}, {line.operation.scanned:,.0f}", line.way, f"{cpu:.2f}",
            f"{line.cost.wall:.2f}", f"{line.model:.2f}", f"{line.model / cpu:.2f}",
            f"{without(lines, line).seconds(line) / cpu:.2f}",
        ))  # fmt: skip
    notes = (
        f"TPC-H lineitem in {BUCKETS} files, one row in {PARTS} changed; the cheapest of {TIMES}, "
        "in a session whose code is compiled. Model: `advisor/deletes/mode_cost`, before "
        f"calibration. Constants that fit all sizes best: {'; '.join(_fitted(lines))}. "
        "Goal: within 25 %."
    )
    return write_section("Statements", command, rows, notes)


def _fitted(lines: Sequence[Line]) -> Iterator[str]:
    for statement in STATEMENTS:
        best, rates = fit(one for one in lines if one.statement is statement), RATES[statement]
        yield (
            f"{statement}: fixed {best.fixed:.2f} (the model has {rates.fixed:g}), finding rows "
            f"{best.find:.1e} ({rates.find:.1e}), finding files and copying {best.whole:.2f} of it"
        )


def main(arguments: Sequence[str]) -> int:
    sizes = [int(text) for text in arguments] or SIZES
    with tempfile.TemporaryDirectory(prefix="layout-bench-") as path:
        directory = Path(path)
        (directory / "warehouse").mkdir()
        tpchgen = str(Path(sys.executable).parent / "tpchgen-cli")
        scale = max(sizes) / 6_000_000
        subprocess.run(
            [tpchgen, "parquet", "-s", f"{scale:g}", f"--tables={LINEITEM.view},{ORDERS.view}",
             f"--output-dir={directory}"],
            check=True, capture_output=True,
        )  # fmt: skip
        lab = Lab(directory, directory)
        list(measured(lab, 20_000))  # compiles the code
        lines = []
        for rows in sizes:
            for line in measured(lab, rows):
                lines.append(line)
                print(line.way, line.statement, rows, line.cost, f"{line.model:.2f}", flush=True)
        session.stop(lab.spark)
    print(_report(lines, f"python -m bench.statements {' '.join(arguments)}".strip()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
