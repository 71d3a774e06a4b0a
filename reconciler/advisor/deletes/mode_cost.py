"""What an update, delete or merge costs under each way to write it, in CPU seconds.

"Petabyte-Scale Row-Level Operations in Data Lakehouses", sections 3.1, 3.2 and 5. Copy-on-write
pays when it writes: it rewrites every file that holds a changed row. Merge-on-read pays later: each
reading applies the deletes that gathered since the last maintenance, and the maintenance itself has
a cost. With maintenance every n operations on a file the mean cost of one is

    W + R*f + R*d*n/2 + M/n,   least at n* = sqrt(2*M / (R*d)),

where W is the cost of writing, R the readings of the file between two operations on it, f what a
reading loses as soon as the file has any delete, d what each operation adds to that, and M the cost
of the maintenance.

Both have to find the changed rows first, among all rows that the statement's condition does not
exclude (`Statement`). That is most of W where few rows change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import product
from typing import Any

from reconciler.advisor.deletes.apply_cost import POSITION_SECONDS
from reconciler.plan.prediction_interval import Interval
from reconciler.queries.rewrite_cost import Throughput

FILE_SECONDS = 0.01
"""CPU seconds per file that is written."""
ROW_SECONDS = 3.2e-6
"""CPU seconds per new or updated row that merge-on-read writes, or that is inserted."""
MARK_SECONDS = 1.2e-6
"""CPU seconds per deleted position that is written."""
FOLD_SECONDS = {False: 1e-6, True: 2e-7}
"""CPU seconds per older position that a new delete file of the data file takes in; whether it is a
vector."""
POSITION_BYTES = 1.1
"""Stored bytes of a position in a delete file."""
OPEN_SECONDS = 0.001
"""CPU seconds per data file or further file of positions that a reading opens."""
DELETES_SECONDS = 0.006
"""CPU seconds that a reading takes more where a table has deletes: its planning reads their
manifests."""
FIRST_SECONDS = 0.0023
"""CPU seconds per data file with deletes and reading: of its first delete file or vector, and of
the smaller tasks that Spark makes of files with deletes."""
SKIP_SECONDS = 1.2e-8
"""CPU seconds per row of 16 columns and reading that a reader takes to skip the deleted rows, in
batches that have any."""
BATCH_ROWS = 5000
"""Rows of a batch that Spark reads (Iceberg's read.parquet.vectorization.batch-size)."""
APPLY_SECONDS = {False: POSITION_SECONDS, True: 2e-8}
"""CPU seconds per deleted position and reading; whether in a vector, which is a bitmap already."""
READING_FACTOR = 3.0
"""The measured cost of reading with deletes was within the noise of its measurement, by so much."""
WRITING_FACTOR = 1.25
"""How far the cost of a statement may be from the constants here, the machine's speed apart: each
of three cases was predicted within it by constants fitted to the other two."""


class Way(StrEnum):
    """How an operation is written; merge-on-read by what its delete files apply to."""

    COPY_ON_WRITE = "copy-on-write"
    FILE = "merge-on-read, per file"
    PARTITION = "merge-on-read, per partition"
    VECTORS = "merge-on-read, vectors"

    @property
    def lazy(self) -> bool:
        return self is not Way.COPY_ON_WRITE


def ways_of(format_version: int) -> tuple[Way, ...]:
    """Return the ways that a table of this format version has."""
    if format_version < 2:
        return (Way.COPY_ON_WRITE,)
    if format_version == 2:
        return Way.COPY_ON_WRITE, Way.FILE, Way.PARTITION
    return Way.COPY_ON_WRITE, Way.VECTORS


class Statement(StrEnum):
    """What Spark runs: it decides how the changed rows are found. MATCHED: a MERGE that inserts
    nothing."""

    DELETE = "delete"
    UPDATE = "update"
    MATCHED = "merge of matched rows"
    MERGE = "merge"


@dataclass(frozen=True, slots=True)
class Rates:
    """CPU seconds of a statement in a session whose code is compiled. The first statement of a
    session takes twice as long."""

    fixed: float
    """Seconds for planning, tasks and the commit."""
    find: float
    """Seconds per row that is read to find the rows to mark."""
    find_files: float
    """Seconds per row that is read to find the files to copy."""
    copy: float
    """Seconds per stored byte of the copied files."""


RATES: Mapping[Statement, Rates] = {
    Statement.DELETE: Rates(0.1, 5e-8, 1.5e-7, 1e-7),
    Statement.UPDATE: Rates(0.25, 4.5e-7, 1.5e-7, 1e-7),
    Statement.MATCHED: Rates(0.4, 1.2e-7, 5.5e-7, 1e-7),
    Statement.MERGE: Rates(0.4, 8.8e-7, 5.5e-7, 1.3e-7),
}
"""Measured on TPC-H lineitem of 1.2 and 6 million rows, 26 stored bytes each, Spark 4.1, with the
optimising compiler. Statements that end before it has compiled their code cost more. To mark rows,
a MERGE that inserts keeps all rows of its source: Spark shuffles and sorts the keys of all rows
that are read. One that inserts nothing sends a small source to all tasks instead, and so does every
MERGE that looks for files to copy. It copies by a full outer join, which shuffles and sorts whole
rows of these files."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a kind, with a value for everything that the cost depends on."""

    statement: Statement
    """What Spark runs."""
    scanned: float
    """Rows that are read to find those that change."""
    rows: float
    """Rows that are changed or deleted."""
    added: float
    """Rows that merge-on-read writes anew."""
    files: float
    """Data files that hold the changed rows."""
    bytes: float
    """Stored bytes of these data files."""
    partitions: float
    """Partitions that are touched."""
    shared: float
    """Data files of the touched partitions."""
    rows_per_byte: float
    """Rows per stored byte of the table's data files."""
    reads: float
    """Whole readings of the table between two operations."""
    share: float
    """How much of what the operations touch is the same each time: from `files` as a share of the
    table's files (anywhere) to 1 (always the same files)."""
    reading: float = 1.0
    """Factor of the model's error in the cost of reading with deletes."""
    writing: float = 1.0
    """Factor of its error in the cost of writing merge-on-read, the fixed cost apart."""
    rewriting: float = 1.0
    """Factor of its error in the cost of copying and rewriting data files."""
    machine: float = 1.0
    """Factor of the error of the machine's speed."""


def write_seconds(way: Way, one: Operation, throughput: Throughput) -> float:
    """Return the CPU seconds of one operation by itself."""
    rates, speed = RATES[one.statement], throughput.speed.scale * one.machine
    if not way.lazy:
        inserted = max(one.added - one.rows, 0.0)
        copied = one.rewriting * (rates.copy * one.bytes + FILE_SECONDS * one.files)
        found = rates.find_files * one.scanned
        return speed * (rates.fixed + found + copied + ROW_SECONDS * inserted)
    files = _new_files(one) + _delete_files(way, one)
    marked = ROW_SECONDS * one.added + MARK_SECONDS * one.rows + FILE_SECONDS * files
    return speed * (rates.fixed + one.writing * (rates.find * one.scanned + marked))


def seconds(way: Way, one: Operation, throughput: Throughput) -> float:
    """Return the CPU seconds of one operation, with its share of the reading and maintenance."""
    write = write_seconds(way, one, throughput)
    if not way.lazy:
        return write
    speed = throughput.speed.scale * one.machine
    rewrite = _rewrite(one, throughput)
    # Readings between two operations on the same file, as CPU seconds of the constants.
    read, vectors = one.reads / max(one.share, 1e-9) * one.reading * speed, way is Way.VECTORS
    applied = read * (APPLY_SECONDS[vectors] * one.rows + OPEN_SECONDS * _new_files(one))
    write += read * _at_once(way, one)
    if way is not Way.PARTITION:
        fold = speed * FOLD_SECONDS[vectors] * one.writing * one.rows
        return write + maintained(applied + fold, rewrite)
    # Each operation adds one delete file, with the positions of all of them, to every data file of
    # its partitions.
    others = POSITION_SECONDS * one.rows * max(one.shared / max(one.partitions, 1.0) - 1.0, 0.0)
    gathered = read * (OPEN_SECONDS * _shared(one) + others)
    return write + min(
        maintained(applied + gathered, rewrite),
        maintained(applied, rewrite) + _compacted(gathered, one, throughput),
    )


def _at_once(way: Way, one: Operation) -> float:
    """Return the CPU seconds that a reading loses as long as the files have any delete, however
    many. A delete file of a partition applies to all of its data files."""
    files = _shared(one) if way is Way.PARTITION else one.files
    skipped = min(one.bytes * one.rows_per_byte, BATCH_ROWS * one.rows)
    return DELETES_SECONDS * one.share + FIRST_SECONDS * files + SKIP_SECONDS * skipped


def _compacted(slope: float, one: Operation, throughput: Throughput) -> float:
    """Return what delete files cost that are compacted: every position is read and written once,
    and each compaction has a fixed cost per partition."""

    def compaction(rows: float) -> float:
        size = int(POSITION_BYTES * rows)
        return throughput.cpu_seconds("compact-deletes", size, 1, first=False)

    once = compaction(one.rows) - compaction(0.0)
    return maintained(slope, one.partitions * compaction(0.0)) + once


def _rewrite(one: Operation, throughput: Throughput) -> float:
    return throughput.cpu_seconds("pack", int(one.bytes), 0, first=False) * one.rewriting


def _delete_files(way: Way, one: Operation) -> float:
    """Vectors of a partition share a file, and a partition whose rows are all new gets none."""
    return one.files if way is Way.FILE else min(one.files, one.partitions)


def _shared(one: Operation) -> float:
    """Return the data files of those partitions that get a delete file: not all that new rows go
    to."""
    return one.shared * min(1.0, one.files / max(one.partitions, 1.0))


def _new_files(one: Operation) -> float:
    return one.partitions if one.added else 0.0


def maintained(slope: float, cost: float) -> float:
    """Return slope * n/2 + cost / n at its least, n >= 1: slope is R*d, cost is M."""
    if slope <= 0.0:
        return 0.0
    n = max(1.0, math.sqrt(2.0 * cost / slope))
    return slope * n / 2.0 + cost / n


@dataclass(frozen=True, slots=True)
class UncertainOperation:
    """An operation of which some values are uncertain."""

    likely: Operation
    """The operation with the likely value of each field."""
    ends: tuple[tuple[str, tuple[float, float]], ...]
    """The uncertain fields of Operation: (name, (least value, greatest value))."""

    def corners(self) -> Iterator[Operation]:
        names = [name for name, _ in self.ends]
        for values in product(*(pair for _, pair in self.ends)):
            changed: dict[str, Any] = dict(zip(names, values, strict=True))
            yield replace(self.likely, **changed)


def interval(
    operation: UncertainOperation, value: Callable[[Operation], float], label: str
) -> Interval:
    """Return a value at what is likely, with the least and the greatest over the corners."""
    mid = value(operation.likely)
    every = [mid, *(value(corner) for corner in operation.corners())]
    return Interval(min(every), mid, max(every), label)


def cost_of(way: Way, operation: UncertainOperation, throughput: Throughput) -> Interval:
    return interval(operation, lambda one: seconds(way, one, throughput), throughput.label)


def gain_of(old: Way, new: Way, operation: UncertainOperation, throughput: Throughput) -> Interval:
    """Return what an operation costs less under `new`. Both are compared in the same corner,
    because what is uncertain is the same for both."""

    def gain(one: Operation) -> float:
        return seconds(old, one, throughput) - seconds(new, one, throughput)

    return interval(operation, gain, throughput.label)


def least_share(old: Way, new: Way, operation: UncertainOperation, throughput: Throughput) -> float:
    """Return the least part of the cost under `old` that `new` saves, over the corners."""
    return min(
        1.0 - seconds(new, one, throughput) / seconds(old, one, throughput)
        for one in (operation.likely, *operation.corners())
    )


def cheapest(ways: Iterable[Way], operation: UncertainOperation, throughput: Throughput) -> Way:
    return min(ways, key=lambda way: seconds(way, operation.likely, throughput))


MOST_READS = 1e6


def break_even(
    operation: UncertainOperation, lazy: Iterable[Way], throughput: Throughput
) -> Interval | None:
    """Return the readings between two operations up to which merge-on-read costs less than
    copy-on-write; None if it does at any number, or at none."""
    ways = tuple(lazy)

    def reads(one: Operation) -> float:
        low, high = 1e-3, MOST_READS
        if _lazy_wins(replace(one, reads=high), ways, throughput):
            return high
        if not _lazy_wins(replace(one, reads=low), ways, throughput):
            return 0.0
        while high / low > 1.02:
            middle = math.sqrt(low * high)
            if _lazy_wins(replace(one, reads=middle), ways, throughput):
                low = middle
            else:
                high = middle
        return low

    found = interval(operation, reads, throughput.label)
    return found if 0.0 < found.mid < MOST_READS else None


def _lazy_wins(one: Operation, ways: tuple[Way, ...], throughput: Throughput) -> bool:
    eager = seconds(Way.COPY_ON_WRITE, one, throughput)
    return min(seconds(way, one, throughput) for way in ways) < eager
