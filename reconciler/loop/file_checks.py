"""Which files a plan's actions would read, and which of them are refused because of what they hold.

The footers of those files are read while the table is planned (`catalog.file_forms`), each once;
the executor checks every input again before it writes. Files of our own commits need no check:
Iceberg's writer made them, from rows that were verified.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from reconciler.plan.actions.base import Action
from reconciler.table.deletes import DeleteTable, Scope
from reconciler.table.filetable import Bool, FileTable, Int64
from reconciler.table.observation import Observation
from reconciler.table.physical import POSITION_DELETES, Expected, Fault, Form, fault_of, only
from reconciler.table.refusals import Refusal

MOST_FOOTERS = 10_000
"""Footers that are read in one look at a table: the next look reads others."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What a look found out about files that actions would read."""

    refusals: Mapping[str, Refusal] = field(default_factory=dict)
    """Refused files of this look and of earlier ones, by path."""
    files: int = 0
    """Files that the actions read and that others wrote."""
    unread: int = 0
    """How many of them have a footer that was not read: too many, or the storage gave none."""


def sizes_of(seen: Observation) -> dict[str, int]:
    """Return the sizes of the Parquet files of the table that others wrote, by path.

    Ours are those that a snapshot of ours added: any writer can choose a path like ours.
    """
    files, deletes = seen.files, seen.delete_files
    data = files.parquet & ~files.encrypted & ~files.layout_written
    snapshots = (*seen.ancestry, *seen.other_snapshots)
    own = [one.snapshot_id for one in snapshots if one.ours]
    marks = ~deletes.of(Scope.VECTOR) & ~np.isin(deletes.snapshot_id, own)
    paths = (*files.path[data], *deletes.path[marks])
    sizes = (*files.bytes[data].tolist(), *deletes.bytes[marks].tolist())
    return {str(path): size for path, size in zip(paths, sizes, strict=True)}


def refused_forms(seen: Observation, forms: Mapping[str, Form]) -> dict[str, Refusal]:
    """Return the files that may not be rewritten, by path, of those whose forms are known."""
    expected = _expected(seen)
    faults: dict[tuple[int, int], Fault | None] = {}
    found = {}
    for path, form in forms.items():
        table = expected(path)
        key = id(form), id(table)
        if key not in faults:
            faults[key] = fault_of(form, table)
        fault = faults[key]
        if fault is not None:
            found[path] = Refusal(path, fault.reason, fault.column, fault.detail)
    return found


def _expected(seen: Observation) -> Callable[[str], Expected]:
    """Return what each file of the table must hold, by its path; equal for files of one kind."""
    deletes, tables = seen.delete_files, {}
    kinds: dict[str, Expected] = {}
    for row in np.flatnonzero(~deletes.of(Scope.VECTOR)).tolist():
        keys = deletes.equality_ids[row]
        if keys not in tables:
            tables[keys] = only(seen.columns, keys) if keys else POSITION_DELETES
        kinds[str(deletes.path[row])] = tables[keys]
    return lambda path: kinds.get(path, seen.columns)


def files_read(seen: Observation, actions: Iterable[Action]) -> list[str]:
    """Return the files of the table that the actions read and others wrote, in order of path."""
    return sorted(_read(seen, actions) & sizes_of(seen).keys())


def reads_one_of(seen: Observation, actions: Iterable[Action], paths: Collection[str]) -> bool:
    """Return whether one of the actions reads one of these files, whoever wrote it."""
    return bool(paths) and not _read(seen, actions).isdisjoint(paths)


def _read(seen: Observation, actions: Iterable[Action]) -> set[str]:
    inputs = {path for action in actions for path in action.inputs}
    files, deletes = seen.files, seen.delete_files
    rows = np.array([r for p in inputs if (r := files.row_of.get(p)) is not None], dtype=np.int64)
    applied = _applied(files, deletes, rows)
    converted = np.array([str(path) in inputs for path in deletes.path], dtype=np.bool_)
    scanned = _scanned(files, deletes, converted)
    read = {str(path) for path in files.path[np.union1d(rows, scanned)]}
    return read | {str(path) for path in deletes.path[applied | converted]}


def _applied(files: FileTable, deletes: DeleteTable, rows: Int64) -> Bool:
    """Return bool[delete files]: those that a reader of the data files may apply."""
    if not len(deletes):
        return np.zeros(0, dtype=np.bool_)
    named = np.isin(deletes.data_row, rows) & (deletes.data_row >= 0)
    grouped = np.isin(deletes.group, np.unique(files.partition[rows])) & (deletes.group >= 0)
    return (named | grouped | (deletes.of(Scope.GLOBAL) & bool(len(rows)))) & ~deletes.dangling


def _scanned(files: FileTable, deletes: DeleteTable, converted: Bool) -> Int64:
    """Return the data files that are read to find the rows of these equality deletes."""
    chosen = np.flatnonzero(converted & deletes.equality).tolist() if len(deletes) else []
    reached = [deletes.reaches(row, files) for row in chosen]
    return np.unique(np.concatenate(reached)) if reached else np.zeros(0, dtype=np.int64)
