"""Cuts the rows of a task into the files that it writes, and these into row groups.

These are not the cuts of a tree (`Cut`), which are conditions.

In comes the number of rows, or the rows of each leaf of a tree; out come `PlannedFile`s in the
order in which they are written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reconciler.rewrite import leaves
from reconciler.rewrite.moves import Partitions
from reconciler.rewrite.task import Task
from reconciler.table.row_group_bytes import even_row_groups, output_files


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file that a task will write."""

    row_groups: list[int]
    """Rows of each row group."""
    partition: tuple[Any, ...] = ()
    """Values of its partition, as in `Output.partition`."""
    directory: str = ""
    """Directory of its partition, relative to the task's path; "" where rows keep their
    partition."""

    @property
    def rows(self) -> int:
        return sum(self.row_groups)


def files_of_rows(task: Task, rows: int, partitions: Partitions | None) -> list[PlannedFile]:
    """Return the files to write, in order, with the rows of each of their row groups.

    rows: number of live rows. partitions: that rows move to, None if they keep theirs.
    """
    if partitions is None:
        return [PlannedFile(own) for own in even_row_groups(rows, len(task.paths), task.group_rows)]
    planned = []
    for number, own in enumerate(partitions.rows.tolist()):
        files = int(output_files(own, task.file_rows))
        entry, directory = partitions.entry(number), partitions.directory(number)
        groups = even_row_groups(own, files, task.group_rows)
        planned += [PlannedFile(each, entry, directory) for each in groups]
    return planned


def files_of_leaves(
    task: Task, counted: leaves.Counted, partitions: Partitions | None
) -> list[PlannedFile]:
    """Return the same where files end at the leaves of the task's tree. counted: of all rows."""
    tree, planned = task.order.tree, list[PlannedFile]()
    assert tree is not None
    for number in range(1 if partitions is None else len(partitions.rows)):
        entry = () if partitions is None else partitions.entry(number)
        directory = "" if partitions is None else partitions.directory(number)
        own = counted.of_partition(number, tree.leaves)
        groups = leaves.files_at(tree, *own, task.file_rows, task.group_rows)
        planned += [PlannedFile(each, entry, directory) for each in groups]
    return planned
