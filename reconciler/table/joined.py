"""Joins two parts of a table: files, row groups and sampled rows, one part after the other.

A column that only one of them knows is unknown in the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np

from reconciler.table.filetable import UNKNOWN, Array, ColumnBounds, FileTable, Int64
from reconciler.table.sample import RowGroups, RowSample

_ARRAYS = tuple(one.name for one in fields(ColumnBounds) if one.name not in ("field_id", "kind"))


def joined_files(first: FileTable, second: FileTable) -> FileTable:
    """Return the files of both, which share specs and partitions."""
    assert first.partitions == second.partitions
    theirs = second.per_file
    joined: dict[str, Any] = {
        name: _either(own, theirs[name], len(first), len(second))
        for name, own in first.per_file.items()
    }
    return replace(
        first,
        **joined,
        columns=_columns(first.columns, second.columns, len(first), len(second)),
        column_sizes=_counts(first.column_sizes, second.column_sizes, len(first), len(second)),
    )


def _either(first: Array | None, second: Array | None, one: int, two: int) -> Array | None:
    """Return both arrays, with UNKNOWN where only one of them was read."""
    if first is None and second is None:
        return None
    return np.concatenate(
        (_unknown(one) if first is None else first, _unknown(two) if second is None else second)
    )


def joined_row_groups(
    first: RowGroups | None, second: RowGroups | None, files: tuple[int, int]
) -> RowGroups | None:
    """Return the row groups of both. files: number of files of each part."""
    if first is None and second is None:
        return None
    one, two = first or _no_row_groups(files[0]), second or _no_row_groups(files[1])
    held = len(one.file), len(two.file)
    dictionary = None
    if one.dictionary is not None or two.dictionary is not None:
        dictionary = _counts(one.dictionary or {}, two.dictionary or {}, *held)
    return RowGroups(
        np.concatenate((one.file, two.file + files[0])),
        np.concatenate((one.records, two.records)),
        _columns(one.columns, two.columns, *held),
        _counts(one.column_sizes, two.column_sizes, *held),
        np.concatenate((one.footer_bytes, two.footer_bytes)),
        np.concatenate((one.has_footer, two.has_footer)),
        dictionary,
    )


def joined_samples(
    first: RowSample | None, second: RowSample | None, files: int
) -> RowSample | None:
    """Return the sampled rows of both over the columns that both have. files: of the first."""
    if first is None or not len(first):
        return None if second is None else replace(second, file=second.file + files)
    if second is None or not len(second):
        return first
    shared = [column for column in first.values if column in second.values]
    return RowSample(
        {key: np.concatenate((first.values[key], second.values[key])) for key in shared},
        {key: np.concatenate((first.null[key], second.null[key])) for key in shared},
        np.concatenate((first.weight, second.weight)),
        np.concatenate((first.file, second.file + files)),
    )


def row_groups_at(row_groups: RowGroups | None, rows: Int64, files: int) -> RowGroups | None:
    """Return the row groups of the files at `rows` (unique), numbered by their place in it.

    files: number of files that the row groups belong to.
    """
    if row_groups is None:
        return None
    place, kept = _kept(row_groups.file, rows, files)
    known = row_groups.dictionary
    return RowGroups(
        place[row_groups.file[kept]],
        row_groups.records[kept],
        {key: one.take(kept) for key, one in row_groups.columns.items()},
        {key: one[kept] for key, one in row_groups.column_sizes.items()},
        row_groups.footer_bytes[rows],
        row_groups.has_footer[rows],
        None if known is None else {key: one[kept] for key, one in known.items()},
    )


def sample_at(sample: RowSample | None, rows: Int64, files: int) -> RowSample | None:
    """Return the sampled rows of the files at `rows` (unique), numbered by their place in it."""
    if sample is None:
        return None
    place, kept = _kept(sample.file, rows, files)
    taken = sample.take(kept)
    return replace(taken, file=place[taken.file])


def _kept(file: Int64, rows: Int64, files: int) -> tuple[Int64, Int64]:
    """Return the place in `rows` of each of so many files, -1 for none, and which parts of files
    are of one of them, by its place. file: of each part, its file."""
    place = np.full(files, -1, dtype=np.int64)
    place[rows] = np.arange(len(rows))
    kept = np.flatnonzero(place[file] >= 0)
    return place, kept[np.argsort(place[file[kept]], kind="stable")]


def _no_row_groups(files: int) -> RowGroups:
    none = np.zeros(0, dtype=np.int64)
    return RowGroups(
        none, none, {}, {}, np.full(files, UNKNOWN, dtype=np.int64), np.zeros(files, dtype=bool)
    )


def _counts(
    first: Mapping[int, Int64], second: Mapping[int, Int64], one: int, two: int
) -> dict[int, Int64]:
    return {
        key: np.concatenate((first.get(key, _unknown(one)), second.get(key, _unknown(two))))
        for key in dict.fromkeys((*first, *second))
    }


def _unknown(count: int) -> Int64:
    return np.full(count, UNKNOWN, dtype=np.int64)


def _columns(
    first: Mapping[int, ColumnBounds], second: Mapping[int, ColumnBounds], one: int, two: int
) -> dict[int, ColumnBounds]:
    found = {}
    for key in dict.fromkeys((*first, *second)):
        given = first.get(key), second.get(key)
        model = given[0] or given[1]
        assert model is not None
        parts = [
            column or _unbounded(model, count)
            for column, count in zip(given, (one, two), strict=True)
        ]
        arrays: dict[str, Any] = {
            name: np.concatenate([getattr(part, name) for part in parts]) for name in _ARRAYS
        }
        found[key] = ColumnBounds(model.field_id, model.kind, **arrays)
    return found


def _unbounded(model: ColumnBounds, count: int) -> ColumnBounds:
    """Return a column of which nothing is known."""
    no, unknown = np.zeros(count, dtype=bool), _unknown(count)
    values = np.zeros(count, dtype=model.lower.dtype)
    return ColumnBounds(
        model.field_id, model.kind, values, values, no, no, unknown, unknown, unknown, unknown, no
    )
