"""What the next plan would find: the table once the chosen rewrites are done, and which small files
of it would be merged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from reconciler.advisor.choose.recluster import allowed
from reconciler.advisor.choose.slices import in_one
from reconciler.advisor.situation import Situation
from reconciler.advisor.spent import Left
from reconciler.plan.small_files import small_files
from reconciler.table.filetable import Array, ColumnBounds, FileTable, Int64
from reconciler.table.scales import greatest_of, least_of
from reconciler.table.schema import SortColumn

KeyOf = Callable[[Situation], Sequence[SortColumn]]
"""Returns the key in whose order the small files of a table are merged."""


@dataclass(frozen=True, slots=True)
class Then:
    """The table once rewrites are done."""

    situation: Situation
    """The same situation with the files that are left; only its table is another one."""
    row_of: Int64
    """int64[files]: the row of the present table in whose place the file is. A file that a rewrite
    leaves is in the place of one of its inputs."""
    aimed: Int64
    """int64[files]: the size that the file was written to have."""


@dataclass(frozen=True, slots=True)
class NextMerge:
    """A merge of the next plan in which there are files that this plan writes."""

    sets: tuple[int, ...]
    """Which of the rewrites leave these files."""
    rows: Int64
    """Rows of the file table, ascending: what these rewrites rewrite, and the other files."""


def then(situation: Situation, rewrites: Sequence[Left]) -> Then:
    """Return the table once the rewrites are done."""
    table = situation.table
    if not rewrites:
        return Then(situation, np.arange(len(table)), situation.aimed)
    stay = np.ones(len(table), dtype=np.bool_)
    aimed = situation.aimed.copy()
    for one in rewrites:
        stay[one.rows[len(one.bytes) :]] = False
        aimed[one.rows] = one.target_bytes
    row_of = np.flatnonzero(stay)
    after = _once_rewritten(table, rewrites).take(row_of)
    given = replace(situation.given, table=after)
    return Then(replace(situation, given=given), row_of, aimed[row_of])


def next_merges(situation: Situation, rewrites: Sequence[Left], key_of: KeyOf) -> list[NextMerge]:
    """Return what the next plan would merge with files that these rewrites leave, as far as every
    budget admits that as one action."""
    table, settings, after = situation.table, situation.settings, then(situation, rewrites)
    maker = np.full(len(table), -1)
    for number, one in enumerate(rewrites):
        maker[one.rows] = number
    beside = np.isin(table.partition, table.partition[maker >= 0])
    taken = np.flatnonzero(~(allowed(situation) & beside)[after.row_of])
    found = []
    for merge in small_files(
        after.situation.table, settings.target_bytes, settings.min_input_files,
        key=key_of(after.situation), taken=taken, aimed=after.aimed,
    ):  # fmt: skip
        files = after.row_of[merge.files]
        own = np.unique(maker[files])
        own = own[own >= 0]
        rows = np.unique(np.concatenate([files, *(rewrites[number].rows for number in own)]))
        if merge.rewrite and len(own) and in_one(situation, rows):
            found.append(NextMerge(tuple(own.tolist()), rows))
    return found


def _once_rewritten(table: FileTable, rewrites: Sequence[Left]) -> FileTable:
    """Return the table with the files that each rewrite leaves in place of its first inputs."""
    size, records, written = table.bytes.copy(), table.records.copy(), table.layout_written.copy()
    for one in rewrites:
        places = one.rows[: len(one.bytes)]
        size[places], records[places] = one.bytes[: len(places)], one.records[: len(places)]
        written[places] = True
    columns = {field: _bounded(column, rewrites) for field, column in table.columns.items()}
    return replace(table, bytes=size, records=records, layout_written=written, columns=columns)


def _bounded(column: ColumnBounds, rewrites: Sequence[Left]) -> ColumnBounds:
    """Return the bounds with those of the files that are left: their own, else those of all files
    that are rewritten."""
    lower, upper = column.lower.copy(), column.upper.copy()
    for one in rewrites:
        places = one.rows[: len(one.bytes)]
        own = one.columns.get(column.field_id)
        known = one.rows[column.bounded[one.rows]]
        if own is not None and own.bounded.all():
            lower, upper = _placed(lower, places, own.lower), _placed(upper, places, own.upper)
        elif len(known):
            lower[places] = least_of(column.lower[known])
            upper[places] = greatest_of(column.upper[known])
    return replace(column, lower=lower, upper=upper)


def _placed(values: Array, places: Int64, own: Array) -> Array:
    """Return the values with others at these places, which may be longer byte strings."""
    values = values.astype(np.promote_types(values.dtype, own.dtype), copy=False)
    values[places] = own[: len(places)]
    return values
