"""Arranging: a group's rows as the frame to write, one partition a task, each sorted by the key.

Where a group needs several tasks, a sample's quantiles cut the key into slices. A slice reads only
the files that can hold it; if slices together would read the inputs too often, one shuffle moves
the rows instead. Every row that is read is observed, so that nothing can get lost on the way.
"""

from __future__ import annotations

import bisect
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from reconciler.core.actions import HILBERT
from reconciler.errors import VerificationError
from reconciler.jobs import inputs, keys, stage, verify
from reconciler.jobs.group import Group, InputFile
from reconciler.jobs.scan import NO_DELETES, ScanTasks
from reconciler.jobs.verify import Fingerprint

SAMPLE_ROWS = 20_000
SAMPLE_FILES = 32
MAX_REREAD = 2.5
"""Slices that together would read their inputs more often than this shuffle them once instead."""
SCORE = "__layout_score_"
POSITION = "__layout_position"
SLICE = "__layout_slice"


class Source:
    """The inputs of one group as frames; remembers what must come out again."""

    def __init__(self, spark: Any, table: Any, base: str, tasks: ScanTasks, hashed: bool) -> None:
        self.spark, self.table = spark, table
        self._base, self._tasks, self._hashed = base, tasks, hashed
        self._staged = contextlib.ExitStack()
        self._sets = 0
        self._observations: list[Any] = []
        self._whole: Any = None

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *error: object) -> None:
        self._staged.close()

    def read(self, paths: Sequence[str]) -> Any:
        """The rows of some inputs, not observed."""
        set_id = f"{self._base}/in-{self._sets}"
        self._sets += 1
        chosen = self._tasks.java_tasks(paths)
        self._staged.enter_context(stage.staged(self.spark, self.table, set_id, chosen))
        return stage.read(self.spark, set_id)

    def observed(self, frame: Any, schema: Any) -> Any:
        """The same rows; their fingerprint over `schema` is gathered when they are read."""
        from pyspark.sql import Observation

        observation = Observation(f"{self._base}/observed-{len(self._observations)}")
        self._observations.append(observation)
        return frame.observe(observation, *verify.aggregates(schema, self._hashed))

    def common_prefix(self, field_id: int) -> bytes:
        """What the values of a string or binary column begin with, as far as bounds tell."""
        low, high = inputs.extremes(self.table, self._tasks, field_id)
        return keys.common_prefix(low, high)

    def expect_all_rows_of(self, frame: Any) -> None:
        """The observed rows must be as many as `frame` has: the slices left none out."""
        self._whole = frame

    def fingerprint(self) -> Fingerprint:
        """Of all observed rows; call after the frame was executed, before the sets are left."""
        total = Fingerprint(0)
        for observation in self._observations:
            total += verify.fingerprint(observation.get)
        if self._whole is not None and total.rows != self._rows_by_manifest():
            counted = int(self._whole.count())
            if counted != total.rows:
                raise VerificationError(
                    f"the slices of a group hold {total.rows} rows, its inputs {counted}",
                    details=("The bounds in the manifests do not fit the data.",),
                    do="rewrite the files with an engine that writes correct bounds",
                )
        return total

    def _rows_by_manifest(self) -> int | None:
        """The inputs' rows without reading them; None where deletes apply."""
        files = self._tasks.values()
        if any(file.deletes != NO_DELETES for file in files):
            return None
        return sum(file.rows for file in files)


def arranged(source: Source, group: Group) -> Any:
    """The frame to write."""
    if not group.action.key:
        return _packed(source, group)
    whole = source.read([file.path for file in group.inputs])
    key = keys.resolve(source.table.schema(), whole.schema, group.action.key)
    if group.tasks == 1 and group.action.curve != HILBERT:
        rows = source.observed(whole, whole.schema).coalesce(1)
        return rows.sortWithinPartitions(*(part.order for part in key))
    cut = _fit(source, group, whole, key)
    if cut.slices == 1:
        rows = cut.positioned(source.spark, source.observed(whole, whole.schema)).coalesce(1)
        return cut.sorted(rows, whole.columns)
    choices = [cut.files_of(group.inputs, number) for number in range(cut.slices)]
    reread = sum(file.bytes for chosen in choices for file in chosen) / max(group.bytes, 1)
    if reread > MAX_REREAD:
        rows = cut.positioned(source.spark, source.observed(whole, whole.schema))
        return cut.sorted(rows.repartitionById(cut.slices, SLICE), whole.columns)
    source.expect_all_rows_of(whole)
    parts = [
        _slice(source, cut, number, chosen, whole)
        for number, chosen in enumerate(choices)
        if chosen
    ]
    return _union(parts)


def _slice(source: Source, cut: Cut, number: int, chosen: Sequence[InputFile], whole: Any) -> Any:
    from pyspark.sql import functions as f

    rows = source.read([file.path for file in chosen])
    rows = cut.positioned(source.spark, rows, number)
    # Without the slice number, so that no later step has to copy the rows just to drop it.
    mine = source.observed(rows.where(f.col(SLICE) == number).drop(SLICE), whole.schema)
    return cut.sorted(mine.coalesce(1), whole.columns)


def _packed(source: Source, group: Group) -> Any:
    """Rows in their files' order, runs of files side by side."""
    ends, seen = [group.bytes * share for share in group.begins], 0
    runs: list[list[str]] = [[] for _ in range(group.tasks)]
    for file in group.inputs:
        runs[bisect.bisect_right(ends, seen + file.bytes / 2)].append(file.path)
        seen += file.bytes
    frames = [source.read(run) for run in runs if run]
    return _union([source.observed(frame, frame.schema).coalesce(1) for frame in frames])


def _union(frames: Sequence[Any]) -> Any:
    joined = frames[0]
    for frame in frames[1:]:
        joined = joined.union(frame)
    return joined


@dataclass(frozen=True, slots=True)
class Cut:
    """How the rows of a group are ordered and divided.

    prefixes: per key column what its values begin with (`keys.score`). curve: for Hilbert.
    cuts: score tuples, or positions along the curve, at which a new slice begins.
    """

    key: tuple[keys.KeyColumn, ...]
    prefixes: tuple[bytes, ...]
    curve: keys.Curve | None
    cuts: tuple[tuple[float, ...], ...]

    @property
    def slices(self) -> int:
        return len(self.cuts) + 1

    def positioned(self, spark: Any, rows: Any, only: int | None = None) -> Any:
        """The rows with their position along the curve (Hilbert) and slice number added.

        only: the slice that is wanted of them; rows that cannot be in it may be left out early.
        """
        names = [f"{SCORE}{i}" for i in range(len(self.key))]
        for name, part, prefix in zip(names, self.key, self.prefixes, strict=True):
            rows = rows.withColumn(name, keys.score(part, prefix))
        if self.curve is not None:
            if only is not None:
                rows = rows.where(self._near(only, names))
            rows = keys.with_curve_position(spark, rows, names, self.curve, POSITION)
            return rows.withColumn(SLICE, keys.slice_number([POSITION], self.cuts)).drop(*names)
        return rows.withColumn(SLICE, keys.slice_number(names, self.cuts)).drop(*names)

    def _near(self, number: int, names: Sequence[str]) -> Any:
        """Scores that a stretch of the curve can have: cheaper than every row's position."""
        from pyspark.sql import functions as f

        assert self.curve is not None
        start = self.cuts[number - 1][0] if number > 0 else 0
        end = self.cuts[number][0] if number < len(self.cuts) else np.inf
        condition = f.lit(True)
        for name, (low, high) in zip(names, self.curve.box(start, end), strict=True):
            if np.isfinite(low):
                condition = condition & (f.col(name) >= low)
            if np.isfinite(high):
                condition = condition & (f.col(name) < high)
        return condition

    def sorted(self, rows: Any, columns: Sequence[str]) -> Any:
        """Sorted within partitions, then only the table's columns."""
        from pyspark.sql import functions as f

        # Along a curve, ties are not broken by the key: comparing whole rows costs more than the
        # rest of the sort, and a cell is far smaller than a row group.
        by_key = [part.order for part in self.key]
        order = by_key if self.curve is None else [f.col(POSITION).asc()]
        kept = [f.col("`" + name.replace("`", "``") + "`") for name in columns]
        return rows.sortWithinPartitions(*order).select(*kept)

    def files_of(self, inputs: Sequence[InputFile], number: int) -> list[InputFile]:
        """Inputs that can hold rows of a slice; all of them along a curve."""
        if self.curve is not None:
            return list(inputs)
        low = self.cuts[number - 1][0] if number > 0 else -np.inf
        high = self.cuts[number][0] if number < len(self.cuts) else np.inf
        return [file for file in inputs if file.span[0] <= high and file.span[1] >= low]


def _fit(source: Source, group: Group, whole: Any, key: tuple[keys.KeyColumn, ...]) -> Cut:
    """Ranks and slices from one sample of the key columns."""
    prefixes = _prefixes(source, group, key)
    scores = _sample(source, group, whole, key, prefixes)
    if group.action.curve == HILBERT:
        curve = keys.fit_curve(scores)
        along = [(float(p),) for p in curve.position(scores)]
        return Cut(key, prefixes, curve, tuple(keys.slice_cuts(along, group.begins)))
    tuples = [tuple(map(float, row)) for row in scores.T]
    return Cut(key, prefixes, None, tuple(keys.slice_cuts(tuples, group.begins)))


def _prefixes(source: Source, group: Group, key: Sequence[keys.KeyColumn]) -> tuple[bytes, ...]:
    found = []
    for part, column in zip(key, group.action.key, strict=True):
        has_prefix = part.data_type.typeName() in ("string", "binary")
        found.append(source.common_prefix(column.field_id) if has_prefix else b"")
    return tuple(found)


def _sample(
    source: Source,
    group: Group,
    whole: Any,
    key: Sequence[keys.KeyColumn],
    prefixes: Sequence[bytes],
) -> keys.Scores:
    """Scores of sampled rows, float64[key columns, rows]; many inputs are sampled too."""
    files = group.inputs[:: max(1, len(group.inputs) // SAMPLE_FILES)]
    rows = whole if len(files) == len(group.inputs) else source.read([file.path for file in files])
    fraction = SAMPLE_ROWS / max(sum(file.rows for file in files), 1)
    scores = rows.select(
        *(keys.score(part, prefix).alias(f"{SCORE}{i}") for i, (part, prefix) in
          enumerate(zip(key, prefixes, strict=True)))
    )  # fmt: skip
    if fraction < 1.0:
        scores = scores.sample(fraction, seed=17)
    collected = scores.collect()
    return np.array([list(row) for row in collected], dtype=np.float64).reshape(-1, len(key)).T
