"""Decides how updates, deletes and merges are written: copy-on-write or merge-on-read.

spec.deletes.mode `Auto` compares, for each kind of operation in the table's history, what one costs
under every way to write it (`mode_cost`), and changes the table's property only where the
other way costs less at both ends of every uncertain value. Only Spark reads these properties: the
operations of other engines are left to them, and equality deletes are a matter of advice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from reconciler.advisor.deletes.mode_cost import (
    READING_FACTOR,
    WRITING_FACTOR,
    Operation,
    Statement,
    UncertainOperation,
    Way,
    break_even,
    cheapest,
    cost_of,
    gain_of,
    least_share,
    ways_of,
)
from reconciler.plan.prediction_interval import Calibration, Interval
from reconciler.queries.machine_speed import UNKNOWN_SPEED, Speed
from reconciler.queries.rewrite_cost import Throughput
from reconciler.table.filetable import FileTable
from reconciler.table.operations import Encoding, Kind, Operations, RowOperation
from reconciler.table.times import DAY_MS

MODE_PROPERTIES: Mapping[Kind, str] = {
    Kind.DELETE: "write.delete.mode",
    Kind.UPDATE: "write.update.mode",
    Kind.MERGE: "write.merge.mode",
}
DISTRIBUTION_PROPERTIES: Mapping[Kind, str] = {
    Kind.DELETE: "write.delete.distribution-mode",
    Kind.UPDATE: "write.update.distribution-mode",
    Kind.MERGE: "write.merge.distribution-mode",
}
GRANULARITY = "write.delete.granularity"
EAGER, LAZY = "copy-on-write", "merge-on-read"
DECLARED = {"CopyOnWrite": EAGER, "MergeOnRead": LAZY}
"""spec.deletes.mode as a value of MODE_PROPERTIES."""
READERS_OF_PROPERTIES = ("spark",)
"""Engines that write by the table's properties."""
WORTH = 0.05
"""Least certain gain as a part of the present cost: a change of mode is not free of surprises."""
SCATTERED = 2.0
"""Written files per touched partition from which unclustered writes are worth a shuffle."""


@dataclass(frozen=True, slots=True)
class CostInputs:
    """What the costs of a table's operations depend on, apart from the operations."""

    files: FileTable
    """The table's data files."""
    format_version: int
    """Format version of the table."""
    properties: Mapping[str, str]
    """The table's properties."""
    reads_per_day: float | None
    """Whole readings of the table per day; None if no queries are known."""
    throughput: Throughput
    """CPU seconds of rewrites and of delete maintenance, and the machine's speed."""
    rewriting: Calibration
    """Measured times of rewrites divided by those that the model predicted."""


@dataclass(frozen=True, slots=True)
class ModeChoice:
    """How one kind of operation is written, and what each way costs."""

    kind: Kind
    """The kind of operation."""
    engine: str
    """The engine that wrote these operations, as in the history."""
    per_day: float
    """Operations of this kind per day."""
    present: Way
    """The way that the table's properties ask for."""
    best: Way
    """The way that is likely to cost least; the present one where the readings are unknown."""
    costs: tuple[tuple[Way, Interval], ...] = ()
    """CPU seconds of one operation by way; () where the readings are unknown."""
    gain: Interval | None = None
    """CPU seconds that an operation costs less under `best` than under `present`; None where the
    readings are unknown."""
    sure: float = 0.0
    """The gain as a share of the present cost, at the least that the uncertain values allow; 0
    where the readings are unknown."""
    even: Interval | None = None
    """Where the readings are unknown: the whole readings of the table between two operations up to
    which merge-on-read costs less. None if it does at any number, or at none."""
    upgraded: Interval | None = None
    """CPU seconds that vectors would save over `best`; None on format 3, and where the readings are
    unknown."""
    sure_upgrade: float = 0.0
    """That gain as a share of the cost under `best`, at the least that the uncertain values
    allow."""
    scattered: float | None = None
    """Files that an operation writes into each partition that it touches, where the writer does not
    cluster its rows and there are many; else None."""
    speed: Speed = UNKNOWN_SPEED
    """Speed of the machine, which is in all costs."""

    @property
    def changes(self) -> bool:
        """Whether the gain exceeds what is uncertain about it, and is worth a change."""
        return self.best is not self.present and self.sure > WORTH

    @property
    def chosen(self) -> Way:
        return self.best if self.changes else self.present


def mode_choices(inputs: CostInputs, operations: Operations) -> tuple[ModeChoice, ...]:
    """Return the choice for each kind of operation that reads the table's properties, the most
    frequent first."""
    groups: dict[Kind, list[RowOperation]] = {}
    for one in operations.every:
        known = one.encoding in (Encoding.COPY_ON_WRITE, Encoding.MERGE_ON_READ)
        if known and one.kind in MODE_PROPERTIES and one.engine in READERS_OF_PROPERTIES:
            groups.setdefault(one.kind, []).append(one)
    if not len(inputs.files):
        return ()
    days = operations.span_ms / DAY_MS
    found = [_choice(inputs, kind, items, len(items) / days) for kind, items in groups.items()]
    return tuple(sorted(found, key=lambda choice: (-choice.per_day, choice.kind)))


def present_way(inputs: CostInputs, kind: Kind) -> Way:
    """Return the way that the table's properties ask for."""
    if inputs.properties.get(MODE_PROPERTIES[kind], EAGER) != LAZY or inputs.format_version < 2:
        return Way.COPY_ON_WRITE
    if inputs.format_version >= 3:
        return Way.VECTORS
    return Way.PARTITION if inputs.properties.get(GRANULARITY) == "partition" else Way.FILE


def _choice(
    inputs: CostInputs, kind: Kind, items: Sequence[RowOperation], per_day: float
) -> ModeChoice:
    known, model = _uncertain_operation(inputs, items, per_day), inputs.throughput
    ways, present = ways_of(inputs.format_version), present_way(inputs, kind)
    scattered = _scattered(inputs, kind, items)
    engine = items[0].engine
    if inputs.reads_per_day is None:
        even = break_even(known, [way for way in ways if way.lazy] or [Way.VECTORS], model)
        return ModeChoice(
            kind, engine, per_day, present, present,
            even=even, scattered=scattered, speed=model.speed,
        )  # fmt: skip
    best = cheapest(ways, known, model)
    upgraded, sure_upgrade = None, 0.0
    if inputs.format_version < 3:
        upgraded = gain_of(best, Way.VECTORS, known, model)
        sure_upgrade = least_share(best, Way.VECTORS, known, model)
    return ModeChoice(
        kind, engine, per_day, present, best,
        costs=tuple((way, cost_of(way, known, model)) for way in ways),
        gain=gain_of(present, best, known, model),
        sure=least_share(present, best, known, model),
        upgraded=upgraded,
        sure_upgrade=sure_upgrade,
        scattered=scattered,
        speed=model.speed,
    )  # fmt: skip


def _uncertain_operation(
    inputs: CostInputs, items: Sequence[RowOperation], per_day: float
) -> UncertainOperation:
    """Return an operation of this kind: medians of what the history holds, bounds for the rest."""
    table, statement = inputs.files, _statement(items)
    count = max(len(table), 1)
    partitions = _median([one.partitions for one in items]) or 1.0
    members = count / max(len(np.unique(table.partition)), 1)
    rows = _median([one.rows for one in items])
    touched, in_scope = _touched(items), min(partitions * members, count)
    files = in_scope if touched is None else min(touched, count)
    mean_bytes, mean_rows = table.total_bytes / count, table.total_records / count
    ends: list[tuple[str, tuple[float, float]]] = [
        ("reading", (1.0 / READING_FACTOR, READING_FACTOR)),
        ("writing", (1.0 / WRITING_FACTOR, WRITING_FACTOR)),
        ("rewriting", _around_median(inputs.rewriting)),
        ("machine", inputs.throughput.speed.ends),
        ("share", (files / count, 1.0)),
    ]
    if rows is None:  # from one row of each file to all of their rows
        most = max(mean_rows * files, 1.0)
        ends.append(("rows", (min(files, most), most)))
        rows = float(np.sqrt(min(files, most) * most))
    if touched is None:
        least = max(1.0, min(partitions, rows, in_scope))
        ends.append(("bytes", (least * mean_bytes, in_scope * mean_bytes)))
        files = float(np.sqrt(least * in_scope))
    scanned = _scanned(table, statement, in_scope * mean_rows)
    if statement is not Statement.MERGE or scanned < table.total_records:
        ends.append(("scanned", (files * mean_rows, float(table.total_records))))
    replaced = _median([one.replaced_bytes for one in items])
    likely = Operation(
        statement=statement,
        scanned=scanned,
        rows=rows,
        added=_added(items, rows),
        files=files,
        bytes=replaced if replaced and touched is not None else files * mean_bytes,
        partitions=partitions,
        shared=in_scope,
        rows_per_byte=mean_rows / max(mean_bytes, 1.0),
        reads=(inputs.reads_per_day or 0.0) / per_day,
        share=float(np.sqrt(files / count)),
    )
    return UncertainOperation(likely, tuple(ends))


def _statement(items: Sequence[RowOperation]) -> Statement:
    """Return what Spark ran. A MERGE whose engine does not count what it inserts may insert."""
    kind = items[0].kind
    inserted = [one.inserted_rows for one in items if one.inserted_rows is not None]
    if kind is Kind.MERGE:
        return Statement.MATCHED if inserted and not any(inserted) else Statement.MERGE
    return Statement.DELETE if kind is Kind.DELETE else Statement.UPDATE


def _scanned(table: FileTable, statement: Statement, in_scope: float) -> float:
    """Return the rows that the statement probably reads to find those that change; in_scope: rows
    of the partitions that it changes.

    A condition on partition values leaves the other partitions out: an UPDATE or DELETE has one if
    it changed only some; whether a MERGE has one in ON is unknown. None can name buckets, and only
    bounds can narrow it further.
    """
    fields = table.specs[table.default_spec_id].fields
    whole = float(table.total_records)
    if all(field.transform.startswith(("bucket", "void")) for field in fields):
        return whole
    if statement in (Statement.UPDATE, Statement.DELETE):
        return in_scope
    return float(np.sqrt(in_scope * whole))


def _added(items: Sequence[RowOperation], rows: float) -> float:
    """Return the rows that an operation writes anew under merge-on-read."""
    found = _median([one.added_rows for one in items if one.encoding is Encoding.MERGE_ON_READ])
    if found or items[0].kind is Kind.DELETE:
        return found or 0.0
    return rows + (_median([one.inserted_rows for one in items]) or 0.0)


def _around_median(calibration: Calibration) -> tuple[float, float]:
    """Return the ends relative to the median: the throughput has the median in it already."""
    median = calibration.median if calibration.label == "calibrated" else 1.0
    low, high = calibration.low / median, calibration.high / median
    return min(low, 1.0 / WRITING_FACTOR), max(high, WRITING_FACTOR)


def _touched(items: Sequence[RowOperation]) -> float | None:
    """Return the data files that an operation changes, None if unknown. Files of positions count
    them if there is one for each data file: up to one a partition, it may be for the partition."""
    known = [
        one.files
        for one in items
        if one.files is not None
        and (one.encoding is Encoding.COPY_ON_WRITE or one.files > (one.partitions or 1))
    ]
    return _median(known)


def _median(values: Sequence[int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None


def _scattered(inputs: CostInputs, kind: Kind, items: Sequence[RowOperation]) -> float | None:
    """Return the files that an operation writes into a partition, if the table's property lets each
    task write its own and there are many; else None."""
    if inputs.properties.get(DISTRIBUTION_PROPERTIES[kind]) != "none":
        return None
    each = [
        (one.added_files + one.delete_files) / one.partitions for one in items if one.partitions
    ]
    found = float(np.median(each)) if each else 0.0
    return found if found > SCATTERED else None


@dataclass(frozen=True, slots=True)
class PropertyChange:
    """Table properties to set together."""

    properties: tuple[tuple[str, str], ...]
    """(name, value) of each property."""
    why: str
    """Why they are set, for people."""


def property_changes(
    mode: str, inputs: CostInputs, choices: Sequence[ModeChoice]
) -> tuple[PropertyChange, ...]:
    """Return the properties that spec.deletes.mode asks for where the table has others.

    Merge-on-read waits for the upgrade of a table of format 1, whose writers could not delete a row
    otherwise.
    """
    found: list[PropertyChange] = []
    declared = DECLARED.get(mode)
    if declared is not None and not (declared == LAZY and inputs.format_version < 2):
        pairs = [(name, declared) for name in MODE_PROPERTIES.values()]
        found.append(
            PropertyChange(_differing(inputs, pairs, EAGER), f"spec.deletes.mode is {mode}")
        )
    if mode == "Auto":
        for one in (one for one in choices if one.changes):
            value = LAZY if one.best.lazy else EAGER
            pairs = [(MODE_PROPERTIES[one.kind], value)]
            found.append(PropertyChange(_differing(inputs, pairs, EAGER), changed_because(one)))
    if mode in ("Auto", "MergeOnRead"):
        found += _granularity(mode, inputs, choices)
    if mode != "Keep":
        for one in (one for one in choices if one.scattered is not None):
            pairs = [(DISTRIBUTION_PROPERTIES[one.kind], "hash")]
            why = f"one {one.kind} writes {one.scattered:.3g} files into each partition it touches"
            found.append(PropertyChange(_differing(inputs, pairs, ""), why))
    return tuple(one for one in found if one.properties)


def _differing(
    inputs: CostInputs, pairs: Sequence[tuple[str, str]], default: str
) -> tuple[tuple[str, str], ...]:
    present = inputs.properties
    return tuple(sorted((n, value) for n, value in pairs if present.get(n, default) != value))


def _granularity(
    mode: str, inputs: CostInputs, choices: Sequence[ModeChoice]
) -> list[PropertyChange]:
    """Return the scope of position delete files on format 2. The property is one for all kinds: the
    kinds that are or become merge-on-read must agree."""
    if mode == "Auto":
        ways = {one.chosen for one in choices if one.chosen.lazy}
    else:
        lazy = [dict(cost for cost in one.costs if cost[0].lazy) for one in choices]
        ways = {min(costs, key=lambda way: costs[way].mid) for costs in lazy if costs}
    if inputs.format_version != 2 or len(ways) != 1 or not all(one.costs for one in choices):
        return []
    (way,) = ways
    asked = "partition" if way is Way.PARTITION else "file"
    return [
        PropertyChange(_differing(inputs, [(GRANULARITY, asked)], "file"), f"{way} costs least")
    ]


def changed_because(one: ModeChoice) -> str:
    costs = dict(one.costs)
    assert one.gain is not None
    other = EAGER if one.best.lazy else LAZY
    best, present = seconds_text(costs[one.best]), seconds_text(costs[one.present])
    return f"one {one.kind} costs {best} CPU s, with {other} {present}"


def seconds_text(value: Interval) -> str:
    """Return `9.7 (8.1 - 11)`."""
    return f"{value.mid:.2g} ({value.low:.2g} - {value.high:.2g})"
