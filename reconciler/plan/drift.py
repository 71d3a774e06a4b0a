"""Decides which files have drifted from the declared clustering key, per partition.

Pure decisions over the file table, each with its reason; refusals have one too. The plan turns them
into actions and shows both. The tiers are those of an LSM tree: data is rewritten only together
with enough new data that its sorted run grows by a third, so that a byte is rewritten O(log n)
times and one wide append does not rewrite a partition. A table that was rewritten by these
decisions has no drift: the plan of a converged table is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from reconciler.plan.leaf_drift import DriftedFiles, leaf_drift
from reconciler.plan.ordering import Hilbert, Lexicographic, Ordering
from reconciler.table.cut_tree import Tree
from reconciler.table.filetable import Array, Bool, FileTable, Int64, Partition
from reconciler.table.overlap_depth import (
    Pieces,
    Ranges,
    depth_of,
    elementary,
    ranges_of,
    spanned,
    sweep,
)
from reconciler.table.schema import SortColumn

UNSORTED_SHARE = 0.25
"""Unsorted data is merged with its key neighbours if it is at least this share of both."""

MIN_GAIN = 0.10
"""A smaller relative gain in mean depth does not count as drift."""

HILBERT_SLACK = 2.0


@dataclass(frozen=True, slots=True)
class Drift:
    """Files of one (spec, partition) to rewrite together, or to leave alone, with the reason."""

    spec_id: int
    """Id of the files' partition spec."""
    partition: Partition
    """Their partition values."""
    files: Int64
    """int64[files of the drift]: rows of the file table, ascending."""
    rewrite: bool
    """Whether to rewrite the files; False for a refusal."""
    reason: str
    """Why they have drifted, or why they are left alone."""


def declared_drift(table: FileTable, ordering: Ordering, min_input_files: int) -> list[Drift]:
    """Return what to cluster by a declared key, per (spec, partition), and what to leave alone and
    why.

    Directions do not matter: a table sorted in one direction is also sorted in the other. Files
    whose key has no bounds are refused, because a rewrite might not give them any either.
    """
    if ordering.tree is not None:
        return _drift_of_leaves(table, ordering.tree, min_input_files)
    key, found_by = ordering.key, DRIFTS[type(ordering)]
    ranges = _key_ranges(table, key)
    decisions: list[Drift] = []
    for spec_id, partition, members in table.groups():
        if len(ranges) < found_by.least_ranges(key):
            why = "no file has bounds of the key"
            decisions.append(Drift(spec_id, partition, members, False, why))
            continue
        judged, found = _judgeable(table, key, ranges, members)
        found += found_by.drift(table, ranges, judged, min_input_files)
        decisions += [Drift(spec_id, partition, *one) for one in _merged(found)]
    return decisions


def _drift_of_leaves(table: FileTable, tree: Tree, min_input_files: int) -> list[Drift]:
    return [
        Drift(spec_id, partition, *one)
        for spec_id, partition, members in table.groups()
        for one in leaf_drift(table, tree, members, min_input_files)
    ]


def drift_inside(row_groups: FileTable, owner: Int64, ordering: Ordering) -> Int64:
    """Return the files whose own row groups do not follow the key, ascending.

    row_groups: one row per row group (TableView.row_groups); owner: the file of each. The rules are
    those of files in a partition: a scan skips row groups by their bounds as it skips files. Row
    groups of a leaf follow the leaf's own column, which is not judged.
    """
    if ordering.tree is not None:
        return np.zeros(0, dtype=np.int64)
    numbers, place = np.unique(owner, return_inverse=True)
    each = tuple((int(number), ()) for number in numbers)
    by_file = replace(row_groups, partition=place.astype(np.int32), partitions=each)
    found = [one.spec_id for one in declared_drift(by_file, ordering, 2) if one.rewrite]
    return np.unique(np.array(found, dtype=np.int64))


@dataclass(frozen=True)
class Drifts:
    """How a table has drifted from a declared key; each part is computed when first asked for."""

    table: FileTable
    """The table's live data files."""
    ordering: Ordering
    """The declared order of rows."""
    min_input_files: int
    """Fewest files that are worth a merge."""
    row_groups: FileTable | None
    """One row per row group, with its bounds; None if no footer is known."""
    owner: Int64 | None
    """int64[row groups]: the row of each row group's file in `table`; None if no footer is
    known."""

    @cached_property
    def between(self) -> Sequence[Drift]:
        """What has drifted between files, as declared_drift returns it."""
        return declared_drift(self.table, self.ordering, self.min_input_files)

    @cached_property
    def inside(self) -> Int64:
        """The files that drift_inside returns; none where no footer is known."""
        if self.row_groups is None or self.owner is None:
            return np.zeros(0, dtype=np.int64)
        return drift_inside(self.row_groups, self.owner, self.ordering)


def _key_ranges(table: FileTable, key: Sequence[SortColumn]) -> list[Ranges]:
    """Return the ranges of the key's columns, up to the first column that has no bounds in any
    file."""
    ranges: list[Ranges] = []
    for column in key:
        if column.field_id not in table.columns:
            break
        ranges.append(ranges_of(table, column.field_id))
    return ranges


def _judgeable(
    table: FileTable, key: Sequence[SortColumn], ranges: Sequence[Ranges], members: Int64
) -> tuple[Int64, list[DriftedFiles]]:
    """Return files with bounds of key 1; the others are refused, unless they hold only NULL or no
    row."""
    column = table.columns[key[0].field_id]
    known = ranges[0].known[members]
    nothing = (table.records[members] == 0) | (
        (column.values[members] > 0) & (column.nulls[members] == column.values[members])
    )
    unknown = members[~known & ~nothing]
    if not len(unknown):
        return members[known], []
    why = f"no bounds of {table.schema.name_of(key[0].field_id)}, which a rewrite need not give"
    return members[known], [DriftedFiles(unknown, False, why)]


def _merged(found: list[DriftedFiles]) -> list[DriftedFiles]:
    """Return the sets to rewrite, and one refusal per reason."""
    refused: dict[str, list[DriftedFiles]] = {}
    for one in found:
        if not one.rewrite:
            refused.setdefault(one.reason, []).append(one)
    joined = [
        DriftedFiles(np.unique(np.concatenate([o.files for o in same])), False, why)
        for why, same in refused.items()
    ]
    return [one for one in found if one.rewrite] + joined


def _sorted_drift(
    table: FileTable, ranges: Sequence[Ranges], files: Int64, min_input_files: int
) -> list[DriftedFiles]:
    """Return overlaps in key 1; then, among files constant in it that stay, overlaps in key 2, and
    so on."""
    found = _overlaps(table, ranges[0], files, min_input_files)
    if len(ranges) == 1:
        return found
    chosen = [one.files for one in found if one.rewrite]
    staying = np.setdiff1d(files, np.concatenate(chosen)) if chosen else files
    constant = staying[ranges[0].constant[staying]]
    for same_value in _split_by(constant, ranges[0].first[constant]):
        known = same_value[ranges[1].known[same_value]]
        if len(known) > 1:
            found += _sorted_drift(table, ranges[1:], known, min_input_files)
    return found


def _overlaps(
    table: FileTable, ranges: Ranges, files: Int64, min_input_files: int
) -> list[DriftedFiles]:
    """Return connected sets of overlapping files, each to be merged whole, in its unsorted part, or
    not yet.

    Files with one and the same value count as one: this key cannot separate them.
    """
    found: list[DriftedFiles] = []
    for component in _components(_units(ranges, files)):
        found += _tiers(table, ranges, component, min_input_files)
    return found


@dataclass(frozen=True, slots=True)
class _Units:
    """Files, or sets of files with one value, and their place among the elementary intervals."""

    pieces: Pieces
    members: tuple[Int64, ...]

    def take(self, index: Int64) -> _Units:
        mine = Pieces(self.pieces.start[index], self.pieces.end[index], self.pieces.width)
        return _Units(mine, tuple(self.members[i] for i in index.tolist()))

    @property
    def files(self) -> Int64:
        return np.sort(np.concatenate(self.members))


def _units(ranges: Ranges, files: Int64) -> _Units:
    single = ranges.single[files]
    members = [np.array([file]) for file in files[~single]]
    members += _split_by(files[single], ranges.first[files[single]])
    heads = np.array([unit[0] for unit in members], dtype=np.int64)
    pieces = elementary(ranges.first[heads], ranges.last[heads], ranges.place)
    return _Units(pieces, tuple(members))


def _components(units: _Units) -> list[_Units]:
    """Return the units connected by overlap, if there are at least two."""
    start, end = units.pieces.start, units.pieces.end
    if len(start) < 2:
        return []
    order = np.lexsort((end, start))
    reach = np.maximum.accumulate(end[order])
    begins = np.flatnonzero(np.concatenate(([True], start[order][1:] > reach[:-1])))
    ends = np.append(begins[1:], len(order))
    several = np.flatnonzero(ends - begins > 1)
    return [
        units.take(order[first:last])
        for first, last in zip(begins[several].tolist(), ends[several].tolist(), strict=True)
    ]


def _tiers(
    table: FileTable, ranges: Ranges, component: _Units, min_input_files: int
) -> list[DriftedFiles]:
    """Merge the whole component, or only its unsorted part, or wait.

    The sorted base is the heaviest set of units that do not overlap. If the rest is at least a
    quarter of the whole, merging grows every run by at least a third; if it is less but at least
    minInputFiles, it is judged by itself, a tier below.
    """
    files = component.files
    size = np.array([int(table.bytes[m].sum()) for m in component.members], dtype=np.int64)
    unsorted = component.take(np.flatnonzero(~_heaviest_chain(component, size)))
    rest = unsorted.files
    share = float(table.bytes[rest].sum()) / max(float(size.sum()), 1.0)
    depth = _unit_depth(table, component)
    if depth - 1.0 < MIN_GAIN * depth:
        return [DriftedFiles(files, False, f"a gain under {100 * MIN_GAIN:.0f} % in depth")]
    if share >= UNSORTED_SHARE:
        reason = f"depth {depth:.1f} in {len(files)} overlapping files"
        return [DriftedFiles(files, True, reason)]
    if len(rest) >= min_input_files:
        lower = [
            one
            for part in _components(unsorted)
            for one in _tiers(table, ranges, part, min_input_files)
        ]
        if any(one.rewrite for one in lower):
            return lower
    return [DriftedFiles(rest, False, _too_little(min_input_files))]


def _too_little(min_input_files: int) -> str:
    return (
        f"unsorted, but under {100 * UNSORTED_SHARE:.0f} % of what overlaps it and fewer than "
        f"minInputFiles {min_input_files} of like size: merged when there is more"
    )


def _heaviest_chain(units: _Units, size: Int64) -> Bool:
    """Return bool[units]: the subset without overlap that holds the most bytes (weighted
    scheduling)."""
    order = np.lexsort((units.pieces.start, units.pieces.end))
    start, end = units.pieces.start[order], units.pieces.end[order]
    before = np.searchsorted(end, start, side="left").tolist()
    weight = size[order].tolist()
    best = [0] * (len(order) + 1)
    for i, (previous, mine) in enumerate(zip(before, weight, strict=True)):
        best[i + 1] = max(best[i], best[previous] + mine)
    chosen = np.zeros(len(order), dtype=np.bool_)
    i = len(order)
    while i:
        if best[i] == best[i - 1]:
            i -= 1
            continue
        chosen[order[i - 1]] = True
        i = before[i - 1]
    return chosen


def _unit_depth(table: FileTable, units: _Units) -> float:
    """Return the mean depth by rows, each unit counted once."""
    rows = [int(np.maximum(table.records[m], 0).sum()) for m in units.members]
    return sweep(units.pieces, np.array(rows, dtype=np.int64)).mean


def _curve_drift(
    table: FileTable, ranges: Sequence[Ranges], files: Int64, min_input_files: int
) -> list[DriftedFiles]:
    """Files without bounds of every key have no known place on the curve; the others are judged."""
    known = np.logical_and.reduce([one.known[files] for one in ranges])
    drifted = _hilbert_drift(table, ranges, files[known], min_input_files)
    if known.all():
        return drifted
    why = "no bounds of some key column, so its place on the curve is not known"
    return [DriftedFiles(files[~known], False, why), *drifted]


def _hilbert_drift(
    table: FileTable, ranges: Sequence[Ranges], files: Int64, min_input_files: int
) -> list[DriftedFiles]:
    """Return files whose mean depth in some key exceeds 2 n^(1 - 1/d), the bound of a Hilbert
    curve.

    A curve cuts each of d axes into n^(1/d) parts. Files with one value of a key are left out of
    that key's depth, and a key with v distinct bounds cannot get below n/v: no curve separates
    them.
    """
    count = len(files)
    if count < 2:
        return []
    depths = [_spread_depth(table, r, files) for r in ranges]
    limits = [_hilbert_limit(r, files, len(ranges)) for r in ranges]
    worst = int(np.argmax([d / limit for d, limit in zip(depths, limits, strict=True)]))
    depth, limit = depths[worst], limits[worst]
    if depth <= HILBERT_SLACK * limit:
        return []
    wide = files[_wide(table, ranges, files)]
    share = float(table.bytes[wide].sum()) / max(float(table.bytes[files].sum()), 1.0)
    if share >= UNSORTED_SHARE:
        reason = f"depth {depth:.1f}, a Hilbert curve of {count} files has about {limit:.1f}"
        return [DriftedFiles(files, True, reason)]
    if min_input_files <= len(wide) < count:
        below = _hilbert_drift(table, ranges, wide, min_input_files)
        if below:
            return below
    return [DriftedFiles(wide, False, _too_little(min_input_files))]


def _spread_depth(table: FileTable, ranges: Ranges, files: Int64) -> float:
    spread = files[~ranges.single[files]]
    return depth_of(ranges, spread, np.maximum(table.records, 0)).mean


def _hilbert_limit(ranges: Ranges, files: Int64, dimensions: int) -> float:
    count = len(files)
    values = len(np.unique(np.concatenate((ranges.first[files], ranges.last[files]))))
    return max(count ** (1.0 - 1.0 / dimensions), count / values)


def _wide(table: FileTable, ranges: Sequence[Ranges], files: Int64) -> Bool:
    """Return files that span more than twice their part of all rows along some key.

    The part is n^(-1/d) of n files, or w^(1/d) for a file that has a share w of the rows, whichever
    is more. It is counted in rows, not in distinct bounds: of n files that all span nearly
    everything, half of the bounds are before any of the rows, and the other half after them.
    """
    rows = np.maximum(table.records, 0)
    own = (rows[files] / max(int(rows[files].sum()), 1)) ** (1.0 / len(ranges))
    wide = np.zeros(len(files), dtype=np.bool_)
    for one in ranges:
        part = np.maximum(_hilbert_limit(one, files, len(ranges)) / len(files), own)
        wide |= (spanned(one, files, rows) > HILBERT_SLACK * part) & ~one.single[files]
    return wide


def _split_by(items: Int64, label: Array) -> list[Int64]:
    """Return items grouped by their label, groups in order of label."""
    if not len(items):
        return []
    order = np.argsort(label, kind="stable")
    cuts = np.flatnonzero(np.diff(label[order])) + 1
    return [piece.astype(np.int64) for piece in np.split(items[order], cuts)]


@dataclass(frozen=True, slots=True)
class _DriftOf:
    """How files that have drifted from one type of ordering are found."""

    drift: Callable[[FileTable, Sequence[Ranges], Int64, int], list[DriftedFiles]]
    """Finds them by the ranges of the key columns."""
    every_column: bool
    """Whether it needs the bounds of all key columns, not only of the first."""

    def least_ranges(self, key: Sequence[SortColumn]) -> int:
        return len(key) if self.every_column else 1


DRIFTS: Mapping[type[Ordering], _DriftOf] = {
    Lexicographic: _DriftOf(_sorted_drift, every_column=False),
    Hilbert: _DriftOf(_curve_drift, every_column=True),
}
