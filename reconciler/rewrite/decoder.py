"""DuckDB over the files of a task: which columns they hold, and SQL of their rows.

The witness's own decoder, which shares no code with the engine's reader.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import struct
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from reconciler.api.task_memory import Limits
from reconciler.rewrite import deletes as deleted
from reconciler.rewrite.columns import (
    POSITION_MAPPING,
    Stored,
    Unreadable,
    stored_columns,
    with_ids,
)
from reconciler.rewrite.deletes import Delete
from reconciler.rewrite.storage import Scratch
from reconciler.table.parquet_schema import TRAILER_BYTES

ZONED = "TIME ZONE"
"""In DuckDB's name of the type of microseconds in UTC."""
NANOS_IN_UTC, NANOS = bytes.fromhex("8c111c3c00000000"), bytes.fromhex("8c121c3c00000000")
"""How Parquet's footers write the logical type of nanoseconds that are, or are not, adjusted to
UTC: in Thrift's compact protocol, where only the field's value differs."""
SCHEMA = ("name", "type", "num_children", "converted_type", "logical_type", "duckdb_type",
          "field_id")  # fmt: skip
"""What is read of `parquet_schema`."""
Rows = tuple[tuple[Any, ...], ...]
"""Rows of it."""


class Decoder:
    """Reads files that are in scratch, or that scratch fetches."""

    def __init__(self, scratch: Scratch, mapping: str | None, limits: Limits) -> None:
        """mapping: the table's property schema.name-mapping.default."""
        self.scratch, self._mapping = scratch, mapping
        self.sql = connect(limits, str(scratch.directory))
        self._schemas: dict[Path, Rows] = {}
        self._footers: dict[str, tuple[Stored, ...]] = {}
        self._forms: dict[tuple[Rows, str | None], tuple[Stored, ...]] = {}
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
                self._copies[path] = _without_zone(file, adjusted, self.scratch.fresh())
                rows = self._schema(self._copies[path])
            self._footers[path] = self._form(rows, mapping or self._mapping)
        return self._footers[path]

    def _form(self, rows: Rows, mapping: str | None) -> tuple[Stored, ...]:
        """Return the columns of files with these rows of `parquet_schema`: files of one writer have
        equal ones."""
        form = rows, mapping
        if form not in self._forms:
            named = [dict(zip(SCHEMA, row, strict=True)) for row in rows]
            self._forms[form] = with_ids(stored_columns(named), mapping)
        return self._forms[form]

    def expect(self, locations: Sequence[str]) -> None:
        """Read the footers of files that are looked at next, all at once: a query for each of them
        takes four times as long. Of files that cannot be read, `columns` says why."""
        import duckdb

        files: dict[Path, None] = {}
        with contextlib.suppress(OSError):
            for one in locations:
                files[self.scratch.path(one)] = None
        with contextlib.suppress(duckdb.Error):
            self._schemas |= self._read_schemas([*files])

    def _schema(self, file: Path) -> Rows:
        known = self._schemas.pop(file, None)
        return self._read_schemas([file])[file] if known is None else known

    def _read_schemas(self, files: Sequence[Path]) -> dict[Path, Rows]:
        """Return what `parquet_schema` says of files, whose names are plain."""
        if not files:
            return {}
        names = ", ".join(f"'{file}'" for file in files)
        found = self.sql.execute(
            f"SELECT file_name, {', '.join(SCHEMA)} FROM parquet_schema([{names}])"
        ).fetchall()
        return {
            Path(name): tuple(row[1:] for row in own)
            for name, own in groupby(found, lambda row: row[0])
        }

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
        names = None if one.keys else json.dumps(POSITION_MAPPING)
        stored = self.columns(one.path, names, path)
        path = self._copies.get(one.path, path)
        return stored, f"read_parquet(['{path}'], hive_partitioning=false) r"

    def recoded(self) -> bool:
        """Store files in scratch anew whose codec DuckDB does not know; return whether there was
        one."""
        self._copies.clear()
        self._footers.clear()
        self._schemas.clear()
        return self.scratch.recoded()

    def forget(self, location: str) -> None:
        """Free what is held of a file."""
        self._footers.pop(location, None)
        copy = self._copies.pop(location, None)
        if copy is not None:
            copy.unlink(missing_ok=True)
        self.scratch.forget(location)


def _is_in_zone(row: tuple[Any, ...]) -> bool:
    """Whether a row of `parquet_schema` is of nanoseconds that are adjusted to UTC."""
    logical, kind = row[SCHEMA.index("logical_type")], row[SCHEMA.index("duckdb_type")]
    return "NANOS=Nano" in str(logical) and ZONED in str(kind)


def _without_zone(file: Path, columns: int, copy: Path) -> Path:
    """Return a copy of a file that says of its nanoseconds in UTC, in so many columns, that they
    are in no zone: DuckDB reads the others as microseconds. Raises Unreadable."""
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
