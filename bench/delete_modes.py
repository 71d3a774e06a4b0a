"""What the measurements of `bench.deletes` say of the advisor's model of write modes.

Pure: tests read the stored measurements with it. Sections of bench/RESULTS.md: Write modes, Choice
of mode.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import nnls

from reconciler.advisor.deletes.mode_cost import (
    FILE_SECONDS,
    MARK_SECONDS,
    RATES,
    ROW_SECONDS,
    WRITING_FACTOR,
    Operation,
    Statement,
    UncertainOperation,
    Way,
    interval,
    maintained,
    seconds,
    write_seconds,
)
from reconciler.plan.prediction_interval import Interval
from reconciler.queries.rewrite_cost import (
    PRIOR_THROUGHPUT,
    Throughput,
    ThroughputSample,
    modelled_cpu,
    throughput_from,
)

BUCKETS = 8
PIECES = 4
"""Data files of a bucket where deletes of partitions are compacted: a delete file of a partition is
opened with each of them."""
NEW_ROWS = 25
"""Rows that each operation adds to each bucket."""
READS = (1, 10, 100, 1000)
"""Readings of the table between two operations for which a mode is chosen."""
SPARSE, MICRO, BATCH = "sparse", "micro-batch, 1 %", "batch, half of a bucket"
CASES = (SPARSE, MICRO, BATCH)
HELD = "orders, 5 %"
"""Another table and another share of rows."""
COMPACTION, PACKED = "compaction, ours", "compaction, small data files too"
PROCEDURE, PACKING = "compaction, Iceberg's procedure", "small data files, beside vectors"
CONVERSION = "conversion, ours"
MAJOR, FOREIGN_MAJOR = "major, ours", "major, Iceberg's procedure"
PARTIAL = {"positions": (COMPACTION, PACKED), "vectors": (PACKING,)}
"""What gives back a part of what readings lost, for less than a rewrite of the files."""
MODEL = {
    "copy-on-write": Way.COPY_ON_WRITE, "positions": Way.PARTITION, "vectors": Way.VECTORS,
}  # fmt: skip


@dataclass
class Cost:
    """cpu: seconds of driver and JVM."""

    cpu: float
    wall: float


@dataclass(frozen=True)
class Reading:
    """cpu: the mean, in seconds; error: its standard error."""

    cpu: float
    error: float


def reading_of(cpu: Sequence[float]) -> Reading:
    """Return the mean of several without the least and the most."""
    kept = sorted(cpu)[1:-1]
    return Reading(float(np.mean(kept)), float(np.std(kept, ddof=1) / np.sqrt(len(kept))))


@dataclass
class Written:
    """What a way of writing a case cost: an operation at its cheapest; readings in CPU seconds,
    before all operations, after the first, after the number that the equality deletes have, and
    after the last."""

    name: str
    each: Cost
    iterations: int
    before: float
    first: float
    few: float
    after: float


@dataclass(frozen=True)
class Opened:
    """What a reading of a whole table opens. deletes: its delete files, each once; pairs: of a data
    file and a delete file that applies to it; tasks: that Spark makes of it."""

    data: int
    deletes: int
    pairs: int
    tasks: int

    def __str__(self) -> str:
        return f"{self.data}, {self.deletes}, {self.pairs}, {self.tasks}"


@dataclass(frozen=True)
class Maintenance:
    """What maintenance took, and readings before and after it in CPU seconds."""

    cost: Cost
    before: float
    after: float
    opened_before: Opened
    opened_after: Opened


@dataclass(frozen=True)
class Decay:
    """A table in one state: without deletes, after all operations, after each maintenance of these.

    cost: of the maintenance, None for the first two. reading: with the executors' cache of delete
    files; uncached: without it."""

    title: str
    cost: Cost | None
    opened: Opened
    reading: Reading
    uncached: Reading


@dataclass
class Held:
    """What an operation on another table costs by way."""

    operation: Operation
    each: dict[str, Cost]


@dataclass
class Found:
    """rows, bytes: of the table before anything is written. by: (case, way). maintenance: (case,
    title). ledger: our actions, by case. noise: the standard error of a reading, the greatest of
    all, in CPU seconds. held: cases that are not fitted to. decay: of a table whose buckets have
    several files, in the order of `Decay`."""

    rows: int
    bytes: int
    by: dict[tuple[str, str], Written] = field(default_factory=dict)
    maintenance: dict[tuple[str, str], Maintenance] = field(default_factory=dict)
    ledger: dict[str, list[ThroughputSample]] = field(default_factory=dict)
    noise: float = 0.0
    held: dict[str, Held] = field(default_factory=dict)
    decay: list[Decay] = field(default_factory=list)

    @property
    def cases(self) -> tuple[str, ...]:
        """Those whose maintenance was measured too."""
        return tuple(dict.fromkeys(case for case, _ in self.maintenance))


def updated_rows(case: str, rows: int) -> int:
    """Return the rows that one operation updates."""
    return {SPARSE: NEW_ROWS * BUCKETS, MICRO: rows // 100, BATCH: rows // (2 * BUCKETS)}[case]


def share_of(case: str) -> float:
    """Return how much of the table an operation updates rows of: a batch takes the buckets in
    turns."""
    return 1 / BUCKETS if case == BATCH else 1.0


def operation_of(found: Found, case: str, reads: float = 0.0) -> Operation:
    """Return the operation as the advisor's model sees it. The join condition names no partition:
    MERGE reads the keys of all rows."""
    share = share_of(case)
    rows = updated_rows(case, found.rows)
    return operation_on(found.rows, found.bytes, rows, share=share, reads=reads)


def operation_on(
    scanned: int, size: int, rows: int, *, share: float = 1.0, reads: float = 0.0
) -> Operation:
    """size: bytes of the table; rows: that are updated; share: of the table that holds them."""
    return Operation(
        statement=Statement.MERGE, scanned=scanned, rows=rows, added=rows + NEW_ROWS * BUCKETS,
        files=BUCKETS * share, bytes=size * share, partitions=BUCKETS, shared=BUCKETS,
        rows_per_byte=scanned / size, reads=reads, share=share,
    )  # fmt: skip


def known_before(found: Found, case: str) -> Throughput:
    """Return the throughput that a ledger of the other cases' actions gives."""
    others = [one for other in found.cases if other != case for one in found.ledger.get(other, ())]
    return throughput_from(others)


def modelled(way: str, one: Operation, throughput: Throughput) -> Interval:
    """Return the CPU seconds of writing, with the range of what is uncertain."""
    factor = (1.0 / WRITING_FACTOR, WRITING_FACTOR)
    ends = (("writing", factor), ("rewriting", factor), ("machine", throughput.speed.ends))
    known = UncertainOperation(one, ends)
    return interval(known, lambda o: write_seconds(MODEL[way], o, throughput), throughput.label)


def measured_seconds(case: str, way: str, reads: float, found: Found, error: float = 0.0) -> float:
    """Return the CPU seconds of one operation with its share of reading and maintenance. error: of
    the readings after it.

    A reading loses something as soon as a file has deletes, and more with each operation. The
    former ends only with the deletes. The latter is got back by a rewrite of the files, or in part
    by a compaction of the delete files or small data files, as it was measured. Readings and
    rewrite count per operation on the same files. Partial
    maintenance takes a fixed time, that of the case with the least, and the rest for what gathered.
    """
    one, share = found.by[case, way], share_of(case)
    if way == "copy-on-write":
        return one.each.cpu
    lost = max(one.after - one.first, 0.0) / max(one.iterations - 1, 1)
    at_once = max(one.first + error - one.before - lost, 0.0)
    rewrite, between = found.maintenance[case, MAJOR].cost.cpu * share, reads / share
    written = one.each.cpu + between * at_once
    least = maintained(between * lost, rewrite)
    for title in PARTIAL[way]:
        done = found.maintenance[case, title]
        cost = done.cost
        fixed = min(found.maintenance[other, title].cost.cpu for other in found.cases)
        back = min(max(done.before - done.after, 0.0) / one.iterations, lost)
        partly = (
            maintained(between * (lost - back), rewrite)
            + maintained(between * back, fixed)
            + (cost.cpu - fixed) / one.iterations
        )
        least = min(least, partly)
    return written + least


def modes(found: Found) -> list[tuple[str, ...]]:
    """Return the table of what writing cost, beside the model."""
    rows = [("case and mode", "CPU s", "s", "model, CPU s", "calibrated", "/ found", "read before",
             "read after")]  # fmt: skip
    for (case, way), one in found.by.items():
        texts = ("-", "-", "-")
        if way in MODEL:
            texts = _beside(way, operation_of(found, case), known_before(found, case), one.each)
        rows.append((f"{case}: {way}", f"{one.each.cpu:.2f}", f"{one.each.wall:.2f}",
                     *texts, f"{one.before:.2f}", f"{one.after:.2f}"))  # fmt: skip
    for case, held in found.held.items():
        for way, each in held.each.items():
            texts = _beside(way, held.operation, known_before(found, case), each)
            rows.append((f"{case}: {way}", f"{each.cpu:.2f}", f"{each.wall:.2f}", *texts, "-", "-"))
    return rows


def _beside(way: str, one: Operation, throughput: Throughput, each: Cost) -> tuple[str, str, str]:
    """Return what the model says: before and after calibration, and the latter / found."""
    prior = write_seconds(MODEL[way], one, PRIOR_THROUGHPUT)
    mine = modelled(way, one, throughput)
    return (
        f"{prior:.2f}", f"{mine.mid:.2f} ({mine.low:.1f} - {mine.high:.1f})",
        f"{mine.mid / each.cpu:.2f}",
    )  # fmt: skip


def decayed(found: Found) -> list[tuple[str, ...]]:
    """Return the table of what readings lost and what maintenance gave back."""
    rows = [("state", "CPU s", "opened", "read", "back, %", "read without cache", "back, %")]
    for one in found.decay:
        cost = "-" if one.cost is None else f"{one.cost.cpu:.2f}"
        cells = [one.title, cost, str(one.opened)]
        for cached in (True, False):
            share, error = given_back(found.decay, one, cached)
            reading = one.reading if cached else one.uncached
            cells += [
                f"{reading.cpu:.3f}",
                "-" if one.cost is None else f"{share:.0f} ({error:.0f})",
            ]
        rows.append(tuple(cells))
    return rows


def given_back(every: Sequence[Decay], one: Decay, cached: bool) -> tuple[float, float]:
    """Return how much of what readings lost maintenance gave back, in percent, and two standard
    errors of it; nothing, of which nothing is known, where nothing was lost."""
    clean, worn, now = (
        state.reading if cached else state.uncached for state in (every[0], every[1], one)
    )
    lost = worn.cpu - clean.cpu
    if lost <= 0.0:
        return 0.0, float("inf")
    share = (worn.cpu - now.cpu) / lost
    by = ((1.0 - share) * worn.error, now.error, share * clean.error)
    return 100.0 * share, 200.0 * float(np.linalg.norm(by)) / lost


def rewriting(found: Found) -> list[float]:
    """Return what our rewrites took of the CPU of their constants."""
    return [
        one.cpu_seconds / modelled_cpu(one.kind, one.bytes, one.files, one.first)
        for samples in found.ledger.values()
        for one in samples
        if one.kind == "pack"
    ]


def terms_of(found: Found, case: str, way: str) -> tuple[list[float], float]:
    """Return the model's terms that are fitted (finding, copying, rows), and those that are kept:
    what small tables say of the fixed part and of the search for files."""
    one, rates = operation_of(found, case), RATES[Statement.MERGE]
    if not MODEL[way].lazy:
        inserted = ROW_SECONDS * (one.added - one.rows) + FILE_SECONDS * one.files
        kept = rates.fixed + rates.find_files * one.scanned + inserted
        return [0.0, rates.copy * one.bytes, 0.0], kept
    rows = ROW_SECONDS * one.added + MARK_SECONDS * one.rows
    kept = rates.fixed + FILE_SECONDS * (one.partitions + one.files)
    return [rates.find * one.scanned, 0.0, rows], kept


def fit(found: Found, cases: Iterable[str]) -> np.ndarray:
    """Return the factors of the terms that fit these cases best: least squares of the relative
    error, none of them negative."""
    lines, ones = [], []
    for case in cases:
        for way in MODEL:
            terms, kept = terms_of(found, case, way)
            cpu = found.by[case, way].each.cpu
            lines.append([term / cpu for term in terms])
            ones.append(1.0 - kept / cpu)
    factors, _ = nnls(np.array(lines), np.array(ones))
    return factors


def left_out(found: Found) -> dict[tuple[str, str], float]:
    """Return predicted / found of each case and way, by factors fitted to the other cases."""
    ratios = {}
    for case in found.cases:
        factors = fit(found, [other for other in found.cases if other != case])
        for way in MODEL:
            terms, kept = terms_of(found, case, way)
            predicted = kept + float(np.dot(factors, terms))
            ratios[case, way] = predicted / found.by[case, way].each.cpu
    return ratios


def fitted(found: Found) -> str:
    """Return what the notes say of the fit; of left-out cases if there are others."""
    names = ("finding rows", "copying", "written rows")
    factors = fit(found, found.cases)
    named = ", ".join(f"{name} {factor:.2f}" for name, factor in zip(names, factors, strict=True))
    text = f"The constants that fit best are these times the model's: {named}."
    if len(found.cases) < 2:
        return text
    left = left_out(found)
    each = "; ".join(
        f"{case}: " + ", ".join(f"{way} {left[case, way]:.2f}" for way in MODEL)
        for case in found.cases
    )
    return f"{text} Fitted to the other cases, predicted / found of one that is left out: {each}."


FORMATS = {
    "format 2": ("copy-on-write", "positions"), "format 3": ("copy-on-write", "vectors"),
    "either": tuple(MODEL),
}  # fmt: skip
"""Among which modes Auto chooses: a table has one format version, and an upgrade is a decision of
its own."""


NEAR = 1.05


@dataclass(frozen=True)
class Choice:
    """By way: costs as measured, if what readings lost is less or more by their noise, and by the
    model. In CPU seconds of one operation."""

    case: str
    reads: int
    costs: dict[str, float]
    less: dict[str, float]
    more: dict[str, float]
    model: dict[str, float]

    def auto(self, ways: Sequence[str]) -> str:
        return min(ways, key=self.model.__getitem__)

    def regret(self, ways: Sequence[str]) -> float:
        """Return the cost of Auto's mode / that of the cheapest."""
        return self.costs[self.auto(ways)] / min(self.costs[way] for way in ways)

    def near(self, ways: Sequence[str]) -> bool:
        """Whether Auto's mode may be within 5 % of the cheapest, for all that readings say."""
        auto = self.auto(ways)
        others = [self.more[way] for way in ways if way != auto]
        return self.regret(ways) <= NEAR or self.less[auto] <= NEAR * min(others)


def chosen(found: Found) -> list[Choice]:
    """Return the choice in each case at each number of readings. The model knows the ledger of the
    other cases."""
    every = []
    for case in found.cases:
        throughput = known_before(found, case)
        for reads in READS:
            one = operation_of(found, case, reads)
            model = {way: seconds(MODEL[way], one, throughput) for way in MODEL}
            costs, less, more = (
                {way: measured_seconds(case, way, reads, found, error) for way in MODEL}
                for error in (0.0, -2 * found.noise, 2 * found.noise)
            )
            every.append(Choice(case, reads, costs, less, more, model))
    return every


def choices(found: Found) -> list[tuple[str, ...]]:
    """Return the table of what each mode cost and would cost by the model, and of Auto's choice."""
    rows: list[tuple[str, ...]] = [
        ("case, readings", *(f"{way} (model)" for way in MODEL), *(f"Auto, {f}" for f in FORMATS))
    ]
    for one in chosen(found):
        costs = (f"{one.costs[way]:.2f} ({one.model[way]:.2f})" for way in MODEL)
        autos = (f"{one.auto(ways)}, {one.regret(ways):.2f}" for ways in FORMATS.values())
        rows.append((f"{one.case}, {one.reads}", *costs, *autos))
    return rows


def verdict(found: Found) -> str:
    """Return what the notes say of Auto's choices."""
    every = chosen(found)
    texts = []
    for name, ways in FORMATS.items():
        regrets = [one.regret(ways) for one in every]
        near = sum(regret <= NEAR for regret in regrets)
        maybe = sum(one.near(ways) for one in every)
        texts.append(
            f"{name} {near} of {len(every)}, {maybe} within two standard errors of "
            f"a reading, at worst {max(regrets):.2f}"
        )
    return f"Within 5 % of the cheapest: {'; '.join(texts)}."
