"""Where the files of a task end, and the row groups in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reconciler.rewrite import leaves, spill
from reconciler.rewrite.moves import Partitions
from reconciler.rewrite.task import Task
from reconciler.table.row_group_bytes import output_files


@dataclass(frozen=True, slots=True)
class Cut:
    """A file to write."""

    groups: list[int]
    """Rows of each row group."""
    partition: tuple[Any, ...] = ()
    """`Output.partition`."""
    path: str = ""
    """The partition's directory, where rows move."""

    @property
    def rows(self) -> int:
        return sum(self.groups)


def files_of_rows(task: Task, rows: int, partitions: Partitions | None) -> list[Cut]:
    """Return the files to write, in order, with the rows of each of their row groups."""
    if partitions is None:
        return [Cut(own) for own in spill.row_groups(rows, len(task.paths), task.group_rows)]
    cuts = []
    for number, own in enumerate(partitions.rows.tolist()):
        files = int(output_files(own, task.file_rows))
        entry, path = partitions.entry(number), partitions.path(number)
        groups = spill.row_groups(own, files, task.group_rows)
        cuts += [Cut(each, entry, path) for each in groups]
    return cuts


def files_of_leaves(
    task: Task, counted: leaves.Counted, partitions: Partitions | None
) -> list[Cut]:
    """Return the same where files end at the leaves of the task's tree. counted: of all rows."""
    tree, cuts = task.order.tree, list[Cut]()
    assert tree is not None
    for number in range(1 if partitions is None else len(partitions.rows)):
        entry = () if partitions is None else partitions.entry(number)
        path = "" if partitions is None else partitions.path(number)
        own = counted.of_partition(number, tree.leaves)
        groups = leaves.files_at(tree, *own, task.file_rows, task.group_rows)
        cuts += [Cut(each, entry, path) for each in groups]
    return cuts
