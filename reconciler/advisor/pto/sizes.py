"""Sizes of files and row groups: the grid (PTO, section 3.2.5), and the expert's rule
(Algorithm 4)."""

from __future__ import annotations

from collections.abc import Sequence

from reconciler.advisor.simulate.layout import Sizes

MIB = 1 << 20
LEAST_FILE, MOST_FILE = 32 * MIB, 512 * MIB
PER_FILE = (1, 2, 4, 8, 16, 32)
"""Row groups per file. The paper has ten at most: in a table of one file that is too few to skip by
a curve."""

SMALLEST_FILE = MIB
FEW_SIZES = 3
"""Sizes of a grid up to which each is simulated."""
LEAST_GROUP_ROWS = 500
"""Fewer rows in a row group: its share of the footer exceeds what it lets queries skip."""


def size_grid(table_bytes: float, bytes_per_row: float) -> tuple[Sizes, ...]:
    """Return five file sizes, powers of two, each with one to ten row groups.

    32 to 512 MiB as in the paper (section 4.1.3); for a table smaller than that the largest is the
    first one that holds the whole table, and none is below 1 MiB.
    """
    largest = MOST_FILE
    while largest > 16 * SMALLEST_FILE and largest >= 2 * table_bytes:
        largest //= 2
    targets = [largest >> step for step in range(5)]
    return tuple(
        size
        for target in targets
        if target >= SMALLEST_FILE
        for size in in_row_groups(target, bytes_per_row)
    )


def in_row_groups(target: int, bytes_per_row: float) -> tuple[Sizes, ...]:
    """Return files of a size with one to 32 row groups, none of too few rows."""
    least = max(LEAST_GROUP_ROWS * bytes_per_row, 1.0)
    return tuple(
        Sizes(target, target // count)
        for count in PER_FILE
        if target // count >= least or count == 1
    )


def simulated_sizes(sizes: Sequence[Sizes], bytes_per_row: float) -> tuple[Sizes, ...]:
    """Return the sizes at which bytes of rows are simulated: from the smallest row groups that are
    refined to the largest, each twice as large as the one before; or the few that there are.

    Between two of them, bytes follow the logarithm of rows. A writer keeps a dictionary of many
    values in row groups of some rows and none in others, so that sizes further apart would hide a
    third of a column.
    """
    if len(sizes) <= FEW_SIZES:
        return tuple(sizes)
    ordered = sorted(sizes, key=lambda size: (size.row_group_bytes, size.target_bytes))
    smallest, largest = ordered[0], ordered[-1]
    group = min(max(1, int(LEAST_GROUP_ROWS * bytes_per_row)), smallest.row_group_bytes)
    found = list[Sizes]()
    while group < largest.row_group_bytes:
        found.append(Sizes(max(smallest.target_bytes, group), group))
        group *= 2
    return (*found, largest)


def expert_sizes(table_bytes: float, partitions: int, bytes_per_row: float) -> Sizes:
    """Return Algorithm 4's sizes: what a person derives from the table alone.

    TFS = size / min(max(partitions, 10000), max(10 * partitions, 30)), within 32 and 512 MiB;
    RGS = min(128 MiB, TFS / 4, max(8 MiB, 100,000 rows)).
    """
    files = min(max(partitions, 10_000), max(10 * partitions, 30))
    target = min(max(int(table_bytes / files), LEAST_FILE), MOST_FILE)
    return Sizes(target, expert_row_group(target, bytes_per_row))


def expert_row_group(target_bytes: int, bytes_per_row: float) -> int:
    """Return Algorithm 4's size of row groups for files of a size."""
    rows = max(8 * MIB, int(100_000 * bytes_per_row))
    return max(1, min(128 * MIB, target_bytes // 4, rows))


def declared_row_group(stored: int) -> int:
    """Return the size of row groups to declare, in whole KiB, or in whole MiB from 8 MiB on, as
    people write sizes."""
    unit = MIB if stored >= 8 * MIB else 1 << 10
    return max(unit, round(stored / unit) * unit)
