"""Where files and row groups end at the leaves of a tree of cuts: one rule, by which rewrites write
and the what-if foretells (Yang et al., "Qd-tree", section 3.1)."""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.table.filetable import Int64
from reconciler.table.row_group_bytes import output_files


@dataclass(frozen=True, slots=True)
class Unit:
    """Leaves that files are written for, and for no others."""

    first: int
    """The first leaf, counted among those given."""
    end: int
    """The leaf after the last."""
    files: int
    """Number of files, of equal rows; 1 for several leaves."""

    @property
    def shared(self) -> bool:
        return self.end - self.first > 1


def file_units(rows: Int64, file_rows: float) -> list[Unit]:
    """Return the files that leaves become. rows: of each leaf, int64[leaves], from left to right.
    file_rows: of a file of the target size.

    A leaf of at least half a file has files of its own. Smaller neighbours share one, as far as
    they fit.
    """
    found: list[Unit] = []
    begin, held = 0, 0.0
    files = output_files(rows, file_rows).tolist()
    for leaf, own in enumerate(rows.tolist()):
        alone = own >= 0.5 * file_rows
        if (alone or held + own > file_rows) and leaf > begin:
            found.append(Unit(begin, leaf, 1))
            begin, held = leaf, 0.0
        if alone:
            found.append(Unit(leaf, leaf + 1, files[leaf]))
            begin = leaf + 1
        else:
            held += own
    if begin < len(rows):
        before = found[-1] if found else None
        if before is not None and before.shared and _fits(rows, before.first, file_rows):
            found[-1] = Unit(before.first, len(rows), 1)
        else:
            found.append(Unit(begin, len(rows), 1))
    return found


def _fits(rows: Int64, first: int, file_rows: float) -> bool:
    """Return whether all leaves from this one on are one file, so that the last is not small."""
    return float(rows[first:].sum()) < 1.5 * file_rows


def row_group_units(rows: Int64, group_rows: float) -> list[tuple[int, int]]:
    """Return the runs (first, end) of the leaves of one file that row groups are not shared beyond:
    single leaves, or neighbours of which one is smaller than half a row group and that fit one.
    rows: of each leaf."""
    found: list[tuple[int, int]] = []
    sizes: list[int] = []
    for leaf, own in enumerate(rows.tolist()):
        if sizes and sizes[-1] + own <= group_rows and min(sizes[-1], own) < group_rows / 2:
            found[-1], sizes[-1] = (found[-1][0], leaf + 1), sizes[-1] + own
        else:
            found.append((leaf, leaf + 1))
            sizes.append(own)
    return found
