"""DuckDB over the files of a task: which columns they hold, and SQL of their rows.

The witness's own decoder, which shares no code with the engine's reader.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from reconciler.api.task_memory import Limits
from reconciler.rewrite import deletes as deleted
from reconciler.rewrite.columns import Column, Stored, Unreadable, stored_columns, with_ids
from reconciler.rewrite.deletes import Delete
from reconciler.rewrite.storage import Scratch

PATH_COLUMN = Column(deleted.PATH_ID, "file_path", "string")
POSITION_COLUMN = Column(deleted.POSITION_ID, "pos", "long")
POSITION_NAMES = json.dumps(
    [{"field-id": one.field_id, "names": [one.name]} for one in (PATH_COLUMN, POSITION_COLUMN)]
)
"""Name mapping of position delete files that were written without field ids."""
ZONED = "TIME ZONE"
"""In DuckDB's name of the type of microseconds in UTC."""
NANOS_IN_UTC, NANOS = bytes.fromhex("8c111c3c00000000"), bytes.fromhex("8c121c3c00000000")
"""How Parquet's footers write the logical type of nanoseconds that are, or are not, adjusted to
UTC: in Thrift's compact protocol, where only the field's value differs."""
TRAILER_BYTES = 8
"""Of a Parquet file, behind its footer: its length, and the magic bytes."""


class Decoder:
    """Reads files that are in scratch, or that scratch fetches."""

    def __init__(self, scratch: Scratch, mapping: str | None, limits: Limits) -> None:
        """mapping: the table's property schema.name-mapping.default."""
        self.scratch, self._mapping = scratch, mapping
        self.sql = connect(limits, str(scratch.directory))
        self._footers: dict[str, tuple[Stored, ...]] = {}
        self._copies: dict[str, Path] = {}

    def close(self) -> None:
        self.sql.close()

    def columns(
        self, path: str, mapping: str | None = None, local: Path | None = None
    ) -> tuple[Stored, ...]:
        """Return the columns of a Parquet file. mapping: of a file without field ids, if it is not
        the table's. local: where it is, if not in scratch."""
        if path not in self._footers:
            file = local or self.scratch.path(path)
            rows = self._schema(file)
            adjusted = sum(_is_in_zone(row) for row in rows)
            if adjusted:
                self._copies[path] = _without_zone(file, adjusted)
                rows = self._schema(self._copies[path])
            self._footers[path] = with_ids(stored_columns(rows), mapping or self._mapping)
        return self._footers[path]

    def _schema(self, file: Path) -> list[dict[str, Any]]:
        found = self.sql.execute("SELECT * FROM parquet_schema(?)", [[str(file)]])
        names = [one[0] for one in found.description]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def paths(self, locations: Iterable[str]) -> str:
        """Return SQL of where files are."""
        found = []
        for one in locations:
            self.columns(one)  # which shows whether a copy is read instead
            found.append(self._copies.get(one) or self.scratch.path(one))
        return "[" + ", ".join(f"'{one}'" for one in found) + "]"

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
        path = self._copies.get(one.path, path)
        return stored, f"read_parquet(['{path}'], hive_partitioning=false) r"

    def recoded(self) -> bool:
        """Store files in scratch anew whose codec DuckDB does not know; return whether there was
        one."""
        self._copies.clear()
        self._footers.clear()
        return self.scratch.recoded()

    def forget(self, location: str) -> None:
        """Free what is held of a file."""
        self._footers.pop(location, None)
        copy = self._copies.pop(location, None)
        if copy is not None:
            copy.unlink(missing_ok=True)
        self.scratch.forget(location)


def _is_in_zone(row: Mapping[str, Any]) -> bool:
    """Whether a row of `parquet_schema` is of nanoseconds that are adjusted to UTC."""
    return "NANOS=Nano" in str(row["logical_type"]) and ZONED in str(row["duckdb_type"])


def _without_zone(file: Path, columns: int) -> Path:
    """Return a copy of a file that says of its nanoseconds in UTC, in so many columns, that they
    are in no zone: DuckDB reads the others as microseconds. Raises Unreadable."""
    copy = file.with_suffix(".nanos")
    shutil.copyfile(file, copy)
    with copy.open("r+b") as opened:
        opened.seek(-TRAILER_BYTES, os.SEEK_END)
        (length,) = struct.unpack("<I", opened.read(4))
        opened.seek(-TRAILER_BYTES - length, os.SEEK_END)
        footer = opened.read(length)
        if footer.count(NANOS_IN_UTC) != columns:
            raise Unreadable("", "nanoseconds in a footer of an unusual form")
        opened.seek(-TRAILER_BYTES - length, os.SEEK_END)
        opened.write(footer.replace(NANOS_IN_UTC, NANOS))
    return copy


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
