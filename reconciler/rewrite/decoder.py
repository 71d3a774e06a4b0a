"""DuckDB over the files of a task: which columns they hold, and SQL of their rows.

The witness's own decoder, which shares no code with the engine's reader.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from reconciler.api.task_memory import Limits
from reconciler.rewrite import deletes as deleted
from reconciler.rewrite.columns import Column, Stored, stored_columns, with_ids
from reconciler.rewrite.deletes import Delete
from reconciler.rewrite.storage import Scratch

PATH_COLUMN = Column(deleted.PATH_ID, "file_path", "string")
POSITION_COLUMN = Column(deleted.POSITION_ID, "pos", "long")
POSITION_NAMES = json.dumps(
    [{"field-id": one.field_id, "names": [one.name]} for one in (PATH_COLUMN, POSITION_COLUMN)]
)
"""Name mapping of position delete files that were written without field ids."""


class Decoder:
    """Reads files that are in scratch, or that scratch fetches."""

    def __init__(self, scratch: Scratch, mapping: str | None, limits: Limits) -> None:
        """mapping: the table's property schema.name-mapping.default."""
        self.scratch, self._mapping = scratch, mapping
        self.sql = connect(limits, str(scratch.directory))
        self._footers: dict[str, tuple[Stored, ...]] = {}

    def close(self) -> None:
        self.sql.close()

    def columns(
        self, path: str, mapping: str | None = None, local: Path | None = None
    ) -> tuple[Stored, ...]:
        """Return the columns of a Parquet file. mapping: of a file without field ids, if it is not
        the table's. local: where it is, if not in scratch."""
        if path not in self._footers:
            query = "SELECT * FROM parquet_schema(?)"
            found = self.sql.execute(query, [[str(local or self.scratch.path(path))]])
            names = [one[0] for one in found.description]
            rows = [dict(zip(names, row, strict=True)) for row in found.fetchall()]
            self._footers[path] = with_ids(stored_columns(rows), mapping or self._mapping)
        return self._footers[path]

    def paths(self, locations: Iterable[str]) -> str:
        """Return SQL of where files are."""
        return "[" + ", ".join(f"'{self.scratch.path(one)}'" for one in locations) + "]"

    def rows(self, locations: Iterable[str]) -> str:
        """Return SQL of the rows of data files of equal columns, as relation `r`."""
        return f"read_parquet({self.paths(locations)}, hive_partitioning=false) r"

    def delete_file(self, one: Delete) -> tuple[tuple[Stored, ...], str]:
        """Return the columns of a delete file, and SQL of its rows as relation `r`."""
        path = self.scratch.path(one.path)
        if one.format != "PARQUET":
            path = self.scratch.converted(one.path, partial(deleted.to_parquet, path, one.format))
        names = None if one.keys else POSITION_NAMES
        stored = self.columns(one.path, names, path)
        return stored, f"read_parquet(['{path}'], hive_partitioning=false) r"

    def forget(self, location: str) -> None:
        """Free what is held of a file."""
        self._footers.pop(location, None)
        self.scratch.forget(location)


def connect(limits: Limits, directory: str) -> Any:
    """Return a DuckDB without access to anything but files, which computes in the thread that
    asks: its CPU time is that thread's."""
    import duckdb

    settings: dict[str, str | bool | int | float | list[str]] = {
        "threads": 1,
        "memory_limit": f"{limits.memory_bytes >> 20}MiB",
        "temp_directory": directory,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "python_scan_all_frames": False,
    }
    made = duckdb.connect(":memory:", config=settings)
    made.execute("SET TimeZone = 'UTC'")
    return made
