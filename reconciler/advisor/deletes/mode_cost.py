"""What an update, delete or merge costs under each way to write it, in CPU seconds.

"Petabyte-Scale Row-Level Operations in Data Lakehouses", sections 3.1, 3.2 and 5. Copy-on-write
pays when it writes: it rewrites every file that holds a changed row. Merge-on-read pays later: each
reading applies the deletes that gathered since the last maintenance, and the maintenance itself has
a cost. With maintenance every n operations on a file the mean cost of one is

    W + R*d*n/2 + M/n,   least at n* = sqrt(2*M / (R*d)),

where W is the cost of writing, R the readings of the file between two operations on it, d what one
operation adds to a reading, and M the cost of the maintenance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import product

from reconciler.advisor.deletes.apply_cost import POSITION_SECONDS
from reconciler.plan.prediction_interval import Interval
from reconciler.queries.rewrite_cost import Throughput

OPERATION_SECONDS = 0.6
"""CPU seconds of one operation whatever it changes: planning, the join, tasks, the commit, in a
session whose code is compiled. A session's first one takes twice as long."""
FIND_SECONDS = 2.2e-8
"""CPU seconds per stored byte of the touched files to find the rows: only the key columns are
read."""
ROW_SECONDS = 6e-6
"""CPU seconds per new or updated row that is written, under every mode."""
MARK_SECONDS = 7e-7
"""CPU seconds per deleted position that is written."""
FOLD_SECONDS = {False: 1e-6, True: 2e-7}
"""CPU seconds per older position that a new delete file of the data file takes in; whether it is a
vector."""
FILE_SECONDS = 0.02
"""CPU seconds per file that is written."""
OPEN_SECONDS = 0.005
"""CPU seconds per file that a reading opens."""
READING_FACTOR = 3.0
"""The measured cost of reading with deletes was within the noise of its measurement, by so much."""
WRITING_FACTOR = 2.0
"""How far the cost of writing a file or a position may be from the constants above."""


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


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a kind, with a value for everything that the cost depends on.

    rows: changed or deleted; added: written anew. files, bytes: of the data files that hold them.
    partitions: touched. shared: data files of the touched partitions. reads: whole readings of the
    table between two operations; share: how much of what the operations touch is the same each
    time, from files / all files (anywhere) to 1 (always the same files). reading, writing,
    rewriting: factors of the model's own error.
    """

    rows: float
    added: float
    files: float
    bytes: float
    partitions: float
    shared: float
    reads: float
    share: float
    reading: float = 1.0
    writing: float = 1.0
    rewriting: float = 1.0


def write_seconds(way: Way, one: Operation, throughput: Throughput) -> float:
    """Return the CPU seconds of one operation by itself."""
    file_seconds = FILE_SECONDS * one.writing
    if not way.lazy:
        files = file_seconds * one.files
        return OPERATION_SECONDS + _rewrite(one, throughput) + ROW_SECONDS * one.added + files
    written = _new_files(one) + (one.files if way is Way.FILE else one.partitions)
    return (
        OPERATION_SECONDS
        + FIND_SECONDS * one.bytes
        + ROW_SECONDS * one.added
        + MARK_SECONDS * one.writing * one.rows
        + file_seconds * written
    )


def seconds(way: Way, one: Operation, throughput: Throughput) -> float:
    """Return the CPU seconds of one operation, with its share of the reading and maintenance."""
    write = write_seconds(way, one, throughput)
    if not way.lazy:
        return write
    rewrite = _rewrite(one, throughput)
    between = one.reads / max(one.share, 1e-9)
    """Readings between two operations on the same file."""
    applied = one.reading * (POSITION_SECONDS * one.rows + OPEN_SECONDS * _new_files(one))
    fold = 0.0 if way is Way.PARTITION else FOLD_SECONDS[way is Way.VECTORS] * one.writing
    folded = fold * one.rows
    write += maintained(between * applied + folded, rewrite)
    opened = OPEN_SECONDS * one.reading
    if way is not Way.PARTITION:
        return write + between * opened * (one.files if way is Way.FILE else one.partitions)
    # Each operation adds one delete file, with the positions of all of them, to every data file of
    # its partitions. Compaction takes them together.
    others = POSITION_SECONDS * one.rows * max(one.shared / max(one.partitions, 1.0) - 1.0, 0.0)
    size = int(2 * one.rows)
    compact = throughput.cpu_seconds("compact-deletes", size, int(one.partitions), first=False)
    return write + maintained(between * (opened * one.shared + one.reading * others), compact)


def _rewrite(one: Operation, throughput: Throughput) -> float:
    return throughput.cpu_seconds("pack", int(one.bytes), 0, first=False) * one.rewriting


def _new_files(one: Operation) -> float:
    return one.partitions if one.added else 0.0


def maintained(slope: float, cost: float) -> float:
    """Return slope * n/2 + cost / n at its least, n >= 1: slope is R*d, cost is M."""
    if slope <= 0.0:
        return 0.0
    n = max(1.0, math.sqrt(2.0 * cost / slope))
    return slope * n / 2.0 + cost / n


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of an operation: likely values, and the ends of those that are uncertain."""

    likely: Operation
    ends: tuple[tuple[str, tuple[float, float]], ...]
    """(field of Operation, (least, greatest))."""

    def corners(self) -> Iterator[Operation]:
        names = [name for name, _ in self.ends]
        for values in product(*(pair for _, pair in self.ends)):
            yield replace(self.likely, **dict(zip(names, values, strict=True)))


def interval(known: Known, value: Callable[[Operation], float], label: str) -> Interval:
    """Return a value at what is likely, with the least and the greatest over the corners."""
    mid = value(known.likely)
    every = [mid, *(value(corner) for corner in known.corners())]
    return Interval(min(every), mid, max(every), label)


def cost_of(way: Way, known: Known, throughput: Throughput) -> Interval:
    return interval(known, lambda one: seconds(way, one, throughput), throughput.label)


def gain_of(old: Way, new: Way, known: Known, throughput: Throughput) -> Interval:
    """Return what an operation costs less under `new`. Both are compared in the same corner,
    because what is uncertain is the same for both."""

    def gain(one: Operation) -> float:
        return seconds(old, one, throughput) - seconds(new, one, throughput)

    return interval(known, gain, throughput.label)


def cheapest(ways: Iterable[Way], known: Known, throughput: Throughput) -> Way:
    return min(ways, key=lambda way: seconds(way, known.likely, throughput))


MOST_READS = 1e6


def break_even(known: Known, lazy: Iterable[Way], throughput: Throughput) -> Interval | None:
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

    found = interval(known, reads, throughput.label)
    return found if 0.0 < found.mid < MOST_READS else None


def _lazy_wins(one: Operation, ways: tuple[Way, ...], throughput: Throughput) -> bool:
    eager = seconds(Way.COPY_ON_WRITE, one, throughput)
    return min(seconds(way, one, throughput) for way in ways) < eager
