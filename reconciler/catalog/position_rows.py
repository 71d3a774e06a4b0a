"""Counts the rows that position deletes and vectors have deleted: bounds, and an estimate.

Exact only where positions were read, and for a vector, which holds no position twice and names one
data file. Of other delete files only the number of positions is known: several may name one row, or
rows and files that are not there. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from reconciler.table.deletes import DeletedRows, DeleteTable, Positions, Scope
from reconciler.table.filetable import Bool, FileTable, Int64


def position_rows(
    files: FileTable,
    deletes: DeleteTable,
    reach: Mapping[int, Int64],
    has_vector: Bool,
    equality: Int64,
    known: Mapping[int, Positions],
) -> tuple[Int64, DeletedRows]:
    """Return an estimate of the deleted rows of each data file, int64[files], and bounds.

    reach: the data files that a position delete file of a partition can name, by its row.
    has_vector: bool[files], a vector replaces every other position delete. equality: int64[files],
    the equality deletes that apply, which may hide every row. known: positions that were read.
    """
    applied = _applied(deletes, reach, has_vector)
    rows = files.records
    counted = _read(files, applied, known)
    least, most, guess = counted.copy(), counted.copy(), counted.copy()
    total = int(counted.sum())
    unread = [number for number in applied if number not in known]
    for number in unread:
        inside, positions = applied[number], int(deletes.records[number])
        vector = deletes.scope[number] == Scope.VECTOR
        if vector and positions <= rows[inside].sum():
            least[inside] += positions
        most[inside] += np.minimum(rows[inside], positions)
        guess[inside] += shares(rows[inside], positions)
        total += min(int(rows[inside].sum()), positions)
    hidden = np.where(equality > 0, rows - counted, 0)
    most = np.minimum(np.where(equality > 0, rows, most), rows)
    least = np.minimum(least, most)
    total = min(int(most.sum()), total + int(hidden.sum()))
    vectors = int(np.isin(deletes.scope[unread], [Scope.VECTOR]).sum()) if unread else 0
    bounds = DeletedRows(least, most, total, len(unread) - vectors)
    return np.clip(guess, least, np.where(equality > 0, rows, most)), bounds


def _applied(
    deletes: DeleteTable, reach: Mapping[int, Int64], has_vector: Bool
) -> dict[int, Int64]:
    """Return the data files that each delete by position applies to, if any."""
    named = np.flatnonzero(deletes.of(Scope.FILE, Scope.VECTOR) & ~deletes.dangling)
    found = {
        number: deletes.data_row[number : number + 1]
        for number in named.tolist()
        if deletes.scope[number] == Scope.VECTOR or not has_vector[deletes.data_row[number]]
    }
    return found | {number: inside for number, inside in reach.items() if len(inside)}


def _read(files: FileTable, applied: Mapping[int, Int64], known: Mapping[int, Positions]) -> Int64:
    """Return how many rows of each data file the positions that were read name: int64[files]."""
    by_file: dict[int, list[Int64]] = {}
    for number, positions in known.items():
        inside = set(applied[number].tolist()) if number in applied else set()
        for path, own in positions.items():
            row = files.row_of.get(path, -1)
            if row in inside:
                by_file.setdefault(row, []).append(own)
    counted = np.zeros(len(files), dtype=np.int64)
    for row, parts in by_file.items():
        every = np.unique(np.concatenate(parts))
        counted[row] = int(((every >= 0) & (every < files.records[row])).sum())
    return counted


def shares(rows: Int64, positions: int) -> Int64:
    """Return the positions divided among files in proportion to their rows, none more than it has:
    they add up to the positions, or to all rows."""
    total = int(rows.sum())
    positions = min(positions, total)
    if not total:
        return np.zeros(len(rows), dtype=np.int64)
    exact = rows * (positions / total)
    whole = np.floor(exact + 1e-9).astype(np.int64)
    rest = positions - int(whole.sum())
    whole[np.argsort(whole - exact, kind="stable")[:rest]] += 1
    divided: Int64 = np.minimum(whole, rows)
    return divided
