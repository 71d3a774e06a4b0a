"""Decides which delete files to replace by fewer or cheaper ones; the data files stay.

Equality deletes become positions, position deletes become one per data file, and deletes that
apply to no live data file are removed. A scope is maintained when its readers have more to gain
than it costs, and not before enough operations have gathered: with maintenance every n operations
the reading overhead grows by d per operation, so that the mean cost per operation, R*d*n/2 + M/n,
is least at n* = sqrt(2*M / (R*d)), where R is readings per operation and M the cost of maintenance.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from reconciler.advisor.advice import Rejected
from reconciler.advisor.deletes.apply_cost import apply_seconds
from reconciler.advisor.deletes.burden import read_bytes_of
from reconciler.advisor.deletes.limits import (
    Conversion,
    admits,
    by_partition,
    coming,
    conversions,
    delete_slices,
    reached,
    under,
)
from reconciler.advisor.deletes.minor import Minor
from reconciler.advisor.deletes.minor_refusals import (
    most_per_file,
    needed_by_objective,
    refusal,
    unnamed_refusal,
)
from reconciler.advisor.judge.candidate import WhyNot, readings_of, rejected, shape_gains
from reconciler.advisor.situation import Situation
from reconciler.format import iec
from reconciler.plan import reasons
from reconciler.plan.actions.delete_maintenance import (
    CompactDeletes,
    ConvertDeletes,
    DeleteMaintenance,
    RemoveDanglingDeletes,
)
from reconciler.plan.sentence import Sentence, sentence
from reconciler.queries.read_cost import ShapeReading, read_shape
from reconciler.table.deletes import Scope
from reconciler.table.filetable import Bool, FileTable, Float64, Int64

POSITION_BYTES = 2
"""Stored bytes of a deleted position: of a vector fewer, of a Parquet file with its path more."""
FILE_BYTES = 1_500
"""Bytes of a delete file without rows: Parquet's footer and schema."""


def minor_candidates(situation: Situation) -> tuple[list[Minor], list[Rejected]]:
    """Return the maintenance of delete files beside the rewrites already chosen, and what waits."""
    if not len(situation.given.deletes) or situation.settings.deletes.compaction == "Disabled":
        return [], _switched_off(situation)
    found: list[Minor] = []
    rejections: list[Rejected] = []
    converted = np.zeros(len(situation.table), dtype=np.bool_)
    if situation.settings.deletes.minors:
        for one in conversions(situation):
            made = _conversion(situation, one)
            why_not = refusal(situation, made) or _larger(situation, made)
            if why_not is None:
                found.append(_explained(situation, made))
                converted[made.rows] = True
            else:
                rejections.append(_rejection(situation, made, *why_not))
        for made in _compactions(situation):
            why_not = refusal(situation, made)
            if converted[made.rows].any():
                folded = "the conversion of equality deletes folds them in first"
                why_not = WhyNot(reasons.ALREADY_CHOSEN, sentence(folded))
            if why_not is None:
                parts, left = _in_slices(situation, _explained(situation, made))
                found += parts
                rejections += left
            else:
                rejections.append(_rejection(situation, made, *why_not))
    for made in _dangling(situation):
        why_not = unnamed_refusal(situation)
        if why_not is None:
            found.append(made)
        else:
            rejections.append(_rejection(situation, made, *why_not))
    return found, rejections


def _switched_off(situation: Situation) -> list[Rejected]:
    rows = np.flatnonzero(situation.table.delete_files > 0)
    if not len(rows):
        return []
    why = "spec.deletes.compaction is Disabled"
    return [rejected(situation, "maintain deletes", reasons.COMPACTION_OFF, why, rows)]


def _conversion(situation: Situation, one: Conversion) -> Minor:
    """Equality deletes become positions; the positions that readers apply now are folded in."""
    table, burden, rows = situation.table, situation.expected.burden, one.rows
    written = np.minimum(burden.hidden[rows] + table.position_deleted[rows], table.records[rows])
    none = np.zeros(len(rows))
    left = RemainingDeletes(written, keys=none, key_sets=none, converted=True)
    return _made(situation, ConvertDeletes, one.inputs, rows, left, one.size)


def _compactions(situation: Situation) -> Iterator[Minor]:
    """Yield the position deletes of each partition that are more than one per data file.

    On format 3 every position delete file becomes vectors. A file that names one data file goes
    with that file's rewrite.
    """
    table, deletes = situation.table, situation.given.deletes
    files = deletes.of(Scope.FILE) & ~deletes.dangling
    of_partition = deletes.of(Scope.PARTITION) & ~deletes.dangling
    named = deletes.data_row[files]
    files[files] = ~situation.spent.taken[named]
    if situation.settings.metadata.format_version < 3:
        crowded = np.bincount(named, minlength=len(table)) > 1
        crowded |= under(situation, np.flatnonzero(of_partition))
        several = np.zeros(len(deletes), dtype=np.bool_)
        several[files] = crowded[deletes.data_row[files]]
        files = several
    for inputs in by_partition(deletes, files | of_partition):
        rows = reached(situation, inputs)
        if len(rows):
            yield _compaction(situation, inputs, rows)


def _compaction(situation: Situation, inputs: Int64, rows: Int64) -> Minor:
    table, burden = situation.table, situation.expected.burden
    positions = table.position_deleted[rows].astype(np.float64)
    left = RemainingDeletes(positions, keys=burden.keys[rows], key_sets=burden.key_sets[rows])
    size = int(situation.given.deletes.bytes[inputs].sum())
    return _made(situation, CompactDeletes, inputs, rows, left, size)


def _in_slices(situation: Situation, whole: Minor) -> tuple[list[Minor], list[Rejected]]:
    """Return a compaction as actions that the tightest budget can admit, and what is in none.

    Each begins with what the ones before it leave, and leaves one delete file more for each data
    file it applies to: a later plan merges these.
    """
    files = situation.table
    cuts = delete_slices(situation, whole.inputs)
    rejections = []
    if len(cuts.oversized):
        alone = _compaction(situation, cuts.oversized, reached(situation, cuts.oversized))
        why = sentence(reasons.SENTENCES[reasons.LARGER_THAN_BUDGET])
        rejections.append(_rejection(situation, alone, reasons.LARGER_THAN_BUDGET, why))
    if [len(part) for part in cuts.slices] == [len(whole.inputs)]:
        return [whole], rejections
    found = []
    for inputs in cuts.slices:
        made, files = _slice(situation, whole, inputs, files)
        found.append(replace(made, slices=len(cuts.slices)))
    return found, rejections


def _slice(
    situation: Situation, whole: Minor, inputs: Int64, files: FileTable
) -> tuple[Minor, FileTable]:
    """Return the part of a compaction that replaces these inputs, and the files after it.

    files: before it. A share of what the whole saves in applying positions is the slice's own.
    """
    deletes = situation.given.deletes
    rows, records = reached(situation, inputs), int(deletes.records[inputs].sum())
    opened, fetched = files.delete_files.copy(), files.delete_bytes.copy()
    for row in inputs.tolist():
        scope = deletes.reaches(row, files)
        opened[scope] -= 1
        fetched[scope] -= deletes.bytes[row]
    opened[rows] += 1
    fetched[rows] += FILE_BYTES + POSITION_BYTES * records // max(len(rows), 1)
    left = replace(files, delete_files=opened, delete_bytes=np.maximum(fetched, 0))
    before, after = (_reading_of(situation, one, rows) for one in (files, left))
    applied = whole.saving - float(shape_gains(situation, whole.before, whole.after).sum())
    share = records / max(int(deletes.records[whole.inputs].sum()), 1)
    size = int(deletes.bytes[inputs].sum())
    made = replace(
        whole,
        inputs=inputs,
        rows=rows,
        before=before,
        after=after,
        files_out=len(rows),
        bytes_in=size,
        bytes_out=len(rows) * FILE_BYTES + POSITION_BYTES * records,
        positions=records,
        operations=len(np.unique(deletes.snapshot_id[inputs])),
        saving=float(shape_gains(situation, before, after).sum()) + share * applied,
        cost=_cost(situation, whole.kind, size, len(inputs)),
    )
    return made, left


def _reading_of(situation: Situation, files: FileTable, rows: Int64) -> tuple[ShapeReading, ...]:
    """Return what each shape reads of the files `rows`, with the delete files that `files` says."""
    view = situation.part(rows)
    load = {name: getattr(files, name)[rows] for name in ("delete_files", "delete_bytes")}
    view = replace(view, files=replace(view.files, **load))
    return tuple(read_shape(view, demand) for demand in situation.expected.demands)


def _cost(situation: Situation, kind: type[DeleteMaintenance], size: int, files: int) -> float:
    """Return the cost of an action that reads `size` bytes of delete files, in bytes of reading."""
    work, settings = kind.work, situation.settings
    assert work is not None
    seconds = settings.throughput.cpu_seconds(work, size, files, first=False)
    return float(read_bytes_of(settings, seconds))


@dataclass(frozen=True, slots=True)
class RemainingDeletes:
    """What readers of the reached data files still apply after an action."""

    positions: Float64
    """Deleted positions in the one delete file of each, float64[rows]."""
    keys: Float64
    """Keys of the equality deletes that stay, float64[rows]."""
    key_sets: Float64
    """Sets of columns of these keys, float64[rows]."""
    converted: bool = False
    """Whether no equality delete stays."""

    @property
    def has(self) -> Bool:
        """bool[rows]: whether the file keeps a delete file with positions."""
        return np.rint(self.positions) > 0

    @property
    def bytes(self) -> Int64:
        """Stored bytes of that delete file, int64[rows]."""
        size = FILE_BYTES + POSITION_BYTES * self.positions
        return np.where(self.has, size, 0.0).astype(np.int64)


def _made(
    situation: Situation,
    kind: type[DeleteMaintenance],
    inputs: Int64,
    rows: Int64,
    left: RemainingDeletes,
    size: int,
) -> Minor:
    """Return the what-if: every reached file keeps one delete file with what is left."""
    deletes, demands = situation.given.deletes, situation.expected.demands
    before, after = readings_of(situation, rows), _readings_after(situation, rows, left)
    saving = float(shape_gains(situation, before, after).sum()) + _applied(situation, rows, left)
    cost = _cost(situation, kind, size, len(inputs))
    operations = len(np.unique(deletes.snapshot_id[inputs]))
    due = _due(situation, inputs, operations, saving, cost) if demands else math.nan
    return Minor(
        kind=kind,
        spec_id=int(deletes.spec_id[inputs[0]]),
        partition=deletes.partition[int(inputs[0])],
        inputs=inputs,
        rows=rows,
        before=before,
        after=after,
        files_out=max(1, int(left.has.sum())),
        bytes_in=size,
        bytes_out=int(left.bytes.sum()),
        positions=int(np.rint(left.positions).sum()),
        operations=operations,
        saving=saving,
        cost=cost,
        due=due,
        converts=left.converted,
    )


def _readings_after(
    situation: Situation, rows: Int64, left: RemainingDeletes
) -> tuple[ShapeReading, ...]:
    table = situation.table
    stay = np.zeros_like(rows) if left.converted else table.equality_deletes[rows]
    opened, fetched = left.has.astype(np.int64) + stay, left.bytes
    view = situation.part(rows)
    view = replace(
        view, files=replace(view.files, delete_files=opened, delete_bytes=fetched,
                            equality_deletes=stay.astype(np.int64)),
    )  # fmt: skip
    return tuple(read_shape(view, demand) for demand in situation.expected.demands)


def _applied(situation: Situation, rows: Int64, left: RemainingDeletes) -> float:
    """Return the bytes of reading that are as expensive as applying what is no longer applied."""
    burden = situation.expected.burden
    spared = burden.seconds[rows] - apply_seconds(
        np.rint(left.positions), left.keys, left.key_sets, situation.table.records[rows]
    )
    return float((burden.reads[rows] * read_bytes_of(situation.settings, spared)).sum())


def _due(situation: Situation, inputs: Int64, operations: int, saving: float, cost: float) -> float:
    """Return n*: the number of operations of the scope between two maintenances that costs least.

    saving = readings over the horizon x d x operations so far, and the readings per operation R are
    readings over the horizon / operations over the horizon; so R*d = saving / (operations so far x
    operations over the horizon), and n* = sqrt(2*M / (R*d)).
    """
    expected = coming(situation, inputs)
    if saving <= 0.0 or not expected:
        return 1.0 if saving > 0.0 else math.inf
    return max(1.0, math.sqrt(2.0 * cost * expected * operations / saving))


def _larger(situation: Situation, made: Minor) -> WhyNot | None:
    """Return why no budget can admit the conversion, None if one can."""
    if admits(situation, made.kind, made.bytes_in, len(made.inputs)):
        return None
    return WhyNot(reasons.LARGER_THAN_BUDGET, sentence(
        "reads ", f"{iec(made.bytes_in)}", ", more than the tightest budget can admit; it cannot "
        "be cut, because an equality delete applies to its whole partition",
    ))  # fmt: skip


def _explained(situation: Situation, made: Minor) -> Minor:
    parts = [f"up to {most_per_file(situation, made)} of them for one data file"]
    evidence = "deletes"
    if needed_by_objective(situation, made):
        parts.append("the share of deleted rows is unknown before")
        evidence = "objective"
    elif not math.isnan(made.due) and made.saving > 0.0:
        parts.append(str(reasons.times_cost(made.saving, made.cost)))
        parts.append(f"{made.operations} operations, due from {made.due:.3g}")
        evidence = "workload"
    return replace(made, evidence=evidence, why="; ".join(parts))


def _rejection(situation: Situation, made: Minor, reason: str, why: Sentence) -> Rejected:
    count = len(made.inputs)
    what = sentence(f"{made.kind.verb}, 1 file")
    if count != 1:
        what = sentence(f"{made.kind.verb}, ", f"{count:,}", " files")
    entry = rejected(situation, what, reason, why, made.rows)
    return replace(
        entry, files=count, bytes=made.bytes_in, saving=made.saving, saving_low=made.saving,
        cost=made.cost,
    )  # fmt: skip


def _dangling(situation: Situation) -> list[Minor]:
    """Return the removal of delete files without a live data file, one action for the table.

    A file of vectors can go only when all of its vectors dangle.
    """
    deletes = situation.given.deletes
    live = deletes.applying
    gone = [
        row
        for row in np.flatnonzero(deletes.dangling).tolist()
        if str(deletes.path[row]) not in live
    ]
    if not gone:
        return []
    rows = np.zeros(0, dtype=np.int64)
    nothing = readings_of(situation, rows) if situation.expected.demands else ()
    return [
        Minor(
            kind=RemoveDanglingDeletes, spec_id=0, partition=(),
            inputs=np.array(gone, dtype=np.int64), rows=rows, before=nothing, after=nothing,
            files_out=0, bytes_in=0, bytes_out=0, positions=0, operations=0, saving=0.0, cost=0.0,
            due=math.nan, why="no live data file matches them",
        )
    ]  # fmt: skip
