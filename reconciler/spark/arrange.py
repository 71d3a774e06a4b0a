"""Arranges a group's rows as the frame to write: one partition per task, each sorted by the key.

If a group needs several tasks, a sample's quantiles cut the key into slices. A slice reads only the
files that can hold its rows; if all slices together would read the inputs too often, one shuffle
moves the rows instead.
"""

from __future__ import annotations

import bisect
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from reconciler.plan.ordering import Arrival, Hilbert, Lexicographic, Ordering
from reconciler.rewrite import curve as curves
from reconciler.spark import inputs, keys, stage
from reconciler.spark.group import Group, InputFile
from reconciler.spark.scan import ScanTasks

SAMPLE_ROWS = 20_000
SAMPLE_FILES = 32
ROWS_OF_A_SPLIT = 1 << 31
GOLDEN_STRIDE = 1_327_217_885
"""2^31 divided by the golden ratio, as an odd number; no product of both overflows a long."""
MAX_REREAD = 2.5
"""If slices together would read their inputs more often than this, the rows are shuffled once
instead."""
ALONG = "__layout_along_"
SLICE = "__layout_slice"


class Source:
    """The inputs of one group as frames."""

    def __init__(self, spark: Any, table: Any, base: str, tasks: ScanTasks) -> None:
        self.spark, self.table = spark, table
        self._base, self._tasks = base, tasks
        self._staged = contextlib.ExitStack()
        self._sets = 0

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *error: object) -> None:
        self._staged.close()

    def read(self, paths: Sequence[str], *, in_order: bool = False) -> Any:
        """Return the rows of some inputs.

        in_order: by one task, file after file; else in as many splits as the table's properties
        give, in no order.
        """
        set_id = f"{self._base}/in-{self._sets}"
        self._sets += 1
        chosen = self._tasks.java_tasks(paths)
        self._staged.enter_context(stage.staged(self.spark, self.table, set_id, chosen))
        if in_order:
            return stage.read(self.spark, set_id, stage.WHOLE_FILE).coalesce(1)
        return stage.read(self.spark, set_id)

    def may_hold_nulls(self, field_id: int) -> bool:
        """Whether some input has a NULL in the column, or an unknown null count."""
        return any(file.nulls.get(field_id, 1) > 0 for file in self._tasks.values())

    def common_prefix(self, field_id: int) -> bytes:
        """Return the common prefix of the values of a string or binary column, from its bounds."""
        low, high = inputs.extremes(self.table, self._tasks, field_id)
        return keys.common_prefix(low, high)


def arranged(source: Source, group: Group) -> Any:
    """The frame to write."""
    return ARRANGED[type(group.action.ordering)](source, group)


def _sorted(source: Source, group: Group) -> Any:
    if group.tasks > 1:
        return _divided(source, group)
    rows = source.read([file.path for file in group.inputs], in_order=True)
    key = resolved(source, group, rows)
    return rows.sortWithinPartitions(*key_order(source, group, key))


def _divided(source: Source, group: Group) -> Any:
    """In slices along the ordering, a task each."""
    paths = [file.path for file in group.inputs]
    whole = source.read(paths)
    cut = fit(source, group, whole, resolved(source, group, whole))
    if cut.slices == 1:
        rows = source.read(paths, in_order=True)
        return cut.sorted(rows, group.spills)
    choices = [cut.files_of(group.inputs, number) for number in range(cut.slices)]
    reread = sum(file.bytes for chosen in choices for file in chosen) / max(group.bytes, 1)
    if reread > _most_reread(group):
        return cut.shuffled(whole)
    spills = group.spills
    parts = [
        _slice(source, cut, number, chosen, spills)
        for number, chosen in enumerate(choices)
        if chosen
    ]
    return stage.union(parts)


def _most_reread(group: Group) -> float:
    """Return how often slices together may read their inputs.

    A shuffle loses the order of arrival of rows with equal keys. Files of few pages have more tasks
    than their size needs, so it would be lost for nothing, and they are cheap to read again.
    """
    if group.few_pages and group.memory_tasks <= MAX_REREAD:
        return group.tasks
    return MAX_REREAD


def _slice(
    source: Source, cut: Division, number: int, chosen: Sequence[InputFile], spills: bool
) -> Any:
    rows = source.read([file.path for file in chosen], in_order=True)
    return cut.sorted(rows.where(cut.holds(number)), spills)


def _packed(source: Source, group: Group) -> Any:
    """Return rows in their files' order, one partition per run of files."""
    begins, size, seen = group.begins, group.bytes, 0
    ends = [size * share for share in begins]
    runs: list[list[str]] = [[] for _ in range(len(begins) + 1)]
    for file in group.inputs:
        runs[bisect.bisect_right(ends, seen + file.bytes / 2)].append(file.path)
        seen += file.bytes
    frames = [source.read(run, in_order=True) for run in runs if run]
    return stage.union(frames)


ARRANGED: Mapping[type[Ordering], Callable[[Source, Group], Any]] = {
    Arrival: _packed,
    Lexicographic: _sorted,
    Hilbert: _divided,
}
"""How the rows of a group are arranged, by its ordering."""


def resolved(source: Source, group: Group, rows: Any) -> tuple[keys.KeyColumn, ...]:
    """The key's columns in these rows."""
    return keys.resolve(source.table.schema(), rows.schema, group.action.ordering.key)


def key_order(source: Source, group: Group, key: Sequence[keys.KeyColumn]) -> list[Any]:
    """Return the sort expressions of the key's columns.

    Spark sorts a single numeric column with a radix sort, which moves a row to the end of its array
    for each NULL, so that rows with equal keys would lose their order. A second expression avoids
    that sort.
    """
    order = keys.order(key)
    if len(key) == 1 and source.may_hold_nulls(group.action.ordering.key[0].field_id):
        order.append(key[0].column.isNull())
    return order


@dataclass(frozen=True, slots=True)
class Division:
    """How the rows of a group are ordered and divided.

    order: of the key, used without a curve. scores: columns that give a row's place in the key.
    along: what is cut, the scores or the position along the curve (Hilbert). cuts: tuples of these
    values at which a new slice begins.
    """

    order: tuple[Any, ...]
    scores: tuple[Any, ...]
    curve: curves.Curve | None
    along: tuple[Any, ...]
    cuts: tuple[tuple[float, ...], ...]

    @property
    def slices(self) -> int:
        return len(self.cuts) + 1

    def holds(self, number: int) -> Any:
        """Return the condition that a row belongs to the slice; exactly one slice holds it."""
        from pyspark.sql import functions as f

        condition = f.lit(True)
        if self.curve is not None:
            condition, exact = self._box(self.curve, number)
            if exact:
                return condition
        if number > 0:
            condition = condition & keys.at_or_above(self.along, self.cuts[number - 1])
        if number < len(self.cuts):
            condition = condition & ~keys.at_or_above(self.along, self.cuts[number])
        return condition

    def _box(self, curve: curves.Curve, number: int) -> tuple[Any, bool]:
        """Return a condition on the scores of a section of the curve, and whether it is exact.

        It is cheaper than every row's position.
        """
        from pyspark.sql import functions as f

        start = self.cuts[number - 1][0] if number > 0 else 0
        end = self.cuts[number][0] if number < len(self.cuts) else np.inf
        sides, exact = curve.box(start, end)
        condition = f.lit(True)
        for score, (low, high) in zip(self.scores, sides, strict=True):
            if np.isfinite(low):
                condition = condition & (score >= low)
            if np.isfinite(high):
                condition = condition & (score < high)
        return condition, exact

    def shuffled(self, rows: Any) -> Any:
        """Return the rows moved to their slices, one partition each, and sorted there.

        What is cut is a column here: a shuffle copies rows anyway, and needs the value once per
        cut.
        """
        from pyspark.sql import functions as f

        names = [f"{ALONG}{number}" for number in range(len(self.along))]
        rows = rows.withColumns(dict(zip(names, self.along, strict=True)))
        rows = rows.withColumn(SLICE, keys.slice_number([f.col(name) for name in names], self.cuts))
        if self.curve is None:
            rows = rows.drop(*names)
        moved = rows.repartitionById(self.slices, SLICE)
        return moved.sortWithinPartitions(*self._order(*names)).drop(*names, SLICE)

    def sorted(self, rows: Any, spills: bool) -> Any:
        """Return the rows sorted within partitions.

        The curve position is a sort expression, not a column: dropping a column would copy every
        row. If the sort spills it is a column, because merging its runs would compute an expression
        in each comparison.
        """
        if self.curve is None or not spills:
            return rows.sortWithinPartitions(*self._order(*self.along))
        placed = rows.withColumn(ALONG, self.along[0])
        return placed.sortWithinPartitions(*self._order(ALONG)).drop(ALONG)

    def _order(self, *along: Any) -> list[Any]:
        """Return the sort expressions. along: as the field, or the names of columns that hold
        it."""
        from pyspark.sql import functions as f

        # Along a curve, ties are not broken by the key: comparing whole rows costs more than the
        # rest of the sort, and a cell is far smaller than a row group.
        return list(self.order) if self.curve is None else [f.asc(along[0])]

    @property
    def along_order(self) -> list[Any]:
        """Return the sort expressions of the ordering, whatever the slices."""
        return self._order(*self.along)

    @property
    def share(self) -> Any:
        """Return how far along its curve a row is, from 0 to 1; None without a curve."""
        from pyspark.sql import functions as f

        return None if self.curve is None else self.along[0] / f.lit(float(self.curve.cells))

    def files_of(self, inputs: Sequence[InputFile], number: int) -> list[InputFile]:
        """Return the inputs that can hold rows of a slice; all of them along a curve."""
        if self.curve is not None:
            return list(inputs)
        low = self.cuts[number - 1][0] if number > 0 else -np.inf
        high = self.cuts[number][0] if number < len(self.cuts) else np.inf
        return [file for file in inputs if file.span[0] <= high and file.span[1] >= low]


def fit(source: Source, group: Group, whole: Any, key: tuple[keys.KeyColumn, ...]) -> Division:
    """Return ranks and slices from one sample of the key columns."""
    prefixes = _prefixes(source, group, key)
    columns = tuple(keys.score(part, prefix) for part, prefix in zip(key, prefixes, strict=True))
    scores = _sample(source, group, whole, columns)
    return CUTS[type(group.action.ordering)](source, group, key, columns, scores)


def _cut_of_sort(
    source: Source,
    group: Group,
    key: tuple[keys.KeyColumn, ...],
    columns: tuple[Any, ...],
    scores: curves.Scores,
) -> Division:
    tuples = [tuple(row) for row in scores.T.tolist()]
    return Division(
        tuple(key_order(source, group, key)),
        columns,
        None,
        columns,
        tuple(keys.slice_cuts(tuples, group.begins)),
    )


def _cut_of_curve(
    source: Source,
    group: Group,
    key: tuple[keys.KeyColumn, ...],
    columns: tuple[Any, ...],
    scores: curves.Scores,
) -> Division:
    curve = curves.fit_curve(scores)
    along = curve.position(scores)
    cuts = keys.slice_cuts([(float(place),) for place in along], group.begins)
    if len(cuts) == 1:
        cuts = [(float(keys.aligned(int(cuts[0][0]), along)),)]
    position = keys.curve_position(source.spark, columns, curve)
    return Division((), columns, curve, (position,), tuple(cuts))


CUTS: Mapping[type[Ordering], Callable[..., Division]] = {
    Lexicographic: _cut_of_sort,
    Hilbert: _cut_of_curve,
}


def _prefixes(source: Source, group: Group, key: Sequence[keys.KeyColumn]) -> tuple[bytes, ...]:
    found = []
    for part, column in zip(key, group.action.ordering.key, strict=True):
        has_prefix = part.data_type.typeName() in ("string", "binary")
        found.append(source.common_prefix(column.field_id) if has_prefix else b"")
    return tuple(found)


def _sample(source: Source, group: Group, whole: Any, columns: Sequence[Any]) -> curves.Scores:
    """Return scores of sampled rows, float64[key columns, rows]; of many inputs only a sample is
    read."""
    from pyspark.sql import functions as f

    files = group.inputs[:: max(1, len(group.inputs) // SAMPLE_FILES)]
    rows = whole if len(files) == len(group.inputs) else source.read([file.path for file in files])
    every = sum(file.rows for file in files) // SAMPLE_ROWS
    if every > 1:
        # Rows are picked before any score is computed, and more cheaply than by a random number per
        # row: multiples of the golden ratio are as even on sorted rows, and follow no pattern in
        # the data.
        place = f.monotonically_increasing_id().bitwiseAND(f.lit(ROWS_OF_A_SPLIT - 1)) + f.lit(1)
        turned = f.pmod(place * f.lit(GOLDEN_STRIDE), f.lit(ROWS_OF_A_SPLIT))
        rows = rows.where(turned < ROWS_OF_A_SPLIT // every)
    collected = rows.select(*columns).collect()
    return np.array(collected, dtype=np.float64).reshape(-1, len(columns)).T
