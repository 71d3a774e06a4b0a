"""The memory that a task takes, as predicted before it runs."""

from __future__ import annotations

from reconciler.rewrite.leaf_runs import RANK_BYTES, RUN_BYTES, RUNS
from reconciler.rewrite.task import Task

ROWS_FACTOR = 15
"""Memory of decoded rows while they are sorted or gathered, in their stored bytes, where no footer
says how much they decode to."""
GATHERED_FACTOR = 2.5
"""Memory of a task, in the bytes that its rows decode to, at most, as measured on tables of several
kinds: one column is there twice, and the comparison of rows follows."""
KEY_BYTES = 24
"""Memory per row and key: its value, its number, and its rank."""
LARGEST_FILE = 1.5
"""Rows of the largest file of a leaf, in those of a file of the target size: numbers of files are
rounded."""
LIBRARIES = 40 << 20
"""Memory that the smallest task takes: of buffers, and of what Arrow keeps for later."""


def in_one_pass(task: Task) -> int:
    """Return the memory that the task's rows take while they are sorted, as predicted."""
    stored, rows = sum(file.size for file in task.files), sum(file.rows for file in task.files)
    keys = len(task.order.keys) + len(task.moves)
    return gathered(task.decoded, stored) + KEY_BYTES * rows * keys


def gathered(decoded: int, stored: int) -> int:
    """Return the memory of rows while they are brought into order and written.

    They are there in order of arrival, in the new order, and as they are encoded. stored: their
    bytes in files. decoded: their bytes in Arrow's arrays, 0 if that is not known.
    """
    return int(GATHERED_FACTOR * decoded) + stored if decoded else ROWS_FACTOR * stored


def of_keys(rows: int, keys: int) -> int:
    """Return the memory of the ranks of rows that are themselves on the disk. keys: number of
    columns that they are ordered and moved by."""
    return KEY_BYTES * rows * keys


def of_leaves(rows: int, moves: int, file_rows: float) -> int:
    """Return what `of_keys` does for rows along a tree of cuts: of the columns by which leaves are
    sorted, one run of leaves is in memory.

    moves: number of columns that rows are moved by. file_rows: rows of a file of the target size.
    """
    run = min(rows, max(-(-rows // RUNS), int(LARGEST_FILE * file_rows)))
    return _of_ranks(rows, moves) + RUN_BYTES * run


def rows_of_a_run(given: int, rows: int, moves: int) -> int:
    """Return the rows of a run of leaves that the given memory holds: the reverse of
    `of_leaves`."""
    return (given - _of_ranks(rows, moves)) // RUN_BYTES


def _of_ranks(rows: int, moves: int) -> int:
    """Return the memory of all rows' leaves, ranks and partitions."""
    return rows * RANK_BYTES + of_keys(rows, moves)


def peak(task: Task, least: int, most: int) -> int:
    """Return the memory that the task takes at most, as predicted, besides that of the process.

    least: the memory with its rows on disk, of which it holds one row group. most: the memory that
    it may use. A task whose rows do not fit takes the least; along a tree, runs of leaves fill the
    most.
    """
    whole = 0 if not task.order.keys and not task.moves else in_one_pass(task)
    if whole <= most:
        return LIBRARIES + max(least, whole)
    return LIBRARIES + (least if task.order.tree is None else most)
