"""A writer that deletes by position, as merge-on-read does, and never from a file that is gone."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFileContent

from tests.delete_commits import commit_deletes
from tests.operator.scene import SCHEMA, TABLE, Lake, repeating

POSITIONS = pa.schema(
    [
        pa.field("file_path", pa.string(), False, {"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), False, {"PARQUET:field_id": "2147483545"}),
    ]
)


class Deleter:
    """Deletes rows of the lake's unpartitioned table, a few of one data file at a time, and appends
    others.

    deletes, appends: commits. refused: commits that were sent again, because another came first:
    one of ours, as it sends them one by one.
    """

    def __init__(self, lake: Lake):
        self.lake, self.refused, self.deletes, self.appends = lake, 0, 0, 0
        self._gone: dict[str, int] = {}

    def delete(self, rows: int = 50) -> None:
        """Commit one delete file over the next rows of the data file with the most rows left."""
        while True:
            table = self.lake.catalog.load_table(TABLE)
            path, first, dead = self._next(table, rows)
            try:
                delete_rows(table, path, range(first, first + len(dead)))
            except CommitFailedException:
                self.refused += 1
                continue
            self._gone[path] = first + len(dead)
            self.lake.expected -= Counter(dead)
            self.deletes += 1
            return

    def _next(self, table: Any, rows: int) -> tuple[str, int, list[tuple[Any, ...]]]:
        files = [task.file for task in table.scan().plan_files()]
        best = max(files, key=lambda f: f.record_count - self._gone.get(f.file_path, 0))
        first = self._gone.get(best.file_path, 0)
        part = pq.read_table(best.file_path.removeprefix("file://")).slice(first, rows)
        columns = (part[name].to_pylist() for name in SCHEMA.names)
        return best.file_path, first, list(zip(*columns, strict=True))

    def write(self) -> None:
        """One commit: every third appends, the others delete."""
        if self.commits % 3 == 2:
            self.refused += self.lake.append()
            self.appends += 1
        else:
            self.delete()

    def load(self) -> int:
        """Live delete files of the table."""
        table = self.lake.catalog.load_table(TABLE)
        return int(table.current_snapshot().summary["total-delete-files"])

    @property
    def commits(self) -> int:
        return self.deletes + self.appends

    def working(self, pause: float) -> contextlib.AbstractContextManager[None]:
        """Write every `pause` seconds."""
        return repeating(self.write, pause)


def delete_rows(table: Any, path: str, positions: range) -> None:
    """Commit one position delete file over rows of one data file. Raises CommitFailedException if
    another commit came first."""
    rows = {"file_path": [path] * len(positions), "pos": list(positions)}
    bounds = {2147483546: path.encode()}
    commit_deletes(
        table,
        DataFileContent.POSITION_DELETES,
        pa.table(rows, schema=POSITIONS),
        lower_bounds=bounds,
        upper_bounds=bounds,
    )
