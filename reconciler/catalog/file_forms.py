"""What the footers of Parquet files say about their columns, read once per file and kept.

A file never changes under its path, so what its footer says is kept by path and size, in one
SQLite file below the cache. Thousands of files of one writer have one form: each form is stored
once, and is judged once against the table's columns (`table.physical`), so that a later change of
these needs no file read again.
"""

from __future__ import annotations

import contextlib
import io
import json
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from reconciler.catalog.network import carried
from reconciler.table.parquet_schema import (
    TRAILER_BYTES,
    Node,
    NotParquetError,
    ending,
    footer_bytes,
    require_plain,
    schema_in,
)
from reconciler.table.physical import CODECS, RLE, SPLIT, FileForm, Form, WrongRows, WrongSize

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

READERS = 16
SLOW_SECONDS = 0.001
"""A footer that took longer to read came over a network, or from a disk that was waited for."""
MOST_FOOTER_BYTES = 256 << 20
MOST_CACHE_BYTES = 1 << 30

File = tuple[str, int]
"""A file: its path and its size in bytes, as a manifest has them."""


Tail = Callable[[int], bytes]
"""Returns so many bytes from the end of a file, by the size that the metadata has."""


Noted = Callable[[str, Any, bytes], None]
"""Takes a file's path and its footer, as pyarrow reads it and as it is stored."""


def form_from(
    tail: Tail,
    size: int,
    rows: int | None = None,
    noted: Callable[[Any, bytes], None] = lambda *_: None,
) -> FileForm | WrongRows:
    """Return the form of a file of `size` bytes. rows: of a data file as the table's metadata has
    them. noted: takes the footer. Raises NotParquetError without a footer there."""
    end = ending(tail, size, _require_short)
    stored = end[-footer_bytes(end) - TRAILER_BYTES : -TRAILER_BYTES]
    schema = schema_in(stored)
    try:
        metadata = pq.read_metadata(pa.BufferReader(end))
    except (pa.ArrowException, OSError) as error:
        raise NotParquetError("the footer cannot be decoded") from error
    require_plain(end, metadata.serialized_size)
    noted(metadata, stored)
    if rows is not None and metadata.num_rows != rows:
        return WrongRows(rows, metadata.num_rows)
    return FileForm(schema, tuple(sorted(_stored(metadata))))


def _require_short(footer: int) -> None:
    if footer > MOST_FOOTER_BYTES:
        raise NotParquetError(f"the footer has {footer} bytes")


def _stored(metadata: Any) -> set[tuple[int, str]]:
    """Return the columns that are stored in a way that not every reader reads.

    Definition levels are RLE in every chunk; values are too where no encoding of values is named.
    """
    found: set[tuple[int, str]] = set()
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if not group.num_rows:
            continue
        for leaf in range(group.num_columns):
            chunk = group.column(leaf)
            encodings = set(chunk.encodings)
            if chunk.physical_type == "BOOLEAN" and encodings == {RLE}:
                found.add((leaf, RLE))
            if SPLIT in encodings and chunk.physical_type not in ("FLOAT", "DOUBLE"):
                found.add((leaf, SPLIT))
            if chunk.compression in CODECS:
                found.add((leaf, chunk.compression))
    return found


def read_forms(files: Collection[File], read: Callable[[File], Form | None]) -> dict[str, Form]:
    """Return the forms of the files by path; those that `read` answers None for are left out.

    They are read one after the other as long as that is fast, as on a local disk, where threads
    would only wait for each other, and side by side from the first slow one on.
    """
    found, left = {}, list(files)[::-1]
    slow = False
    while left and not slow:
        file, begun = left.pop(), time.monotonic()
        found[file[0]] = read(file)
        slow = time.monotonic() - begun > SLOW_SECONDS
    if left:
        with ThreadPoolExecutor(min(READERS, len(left))) as pool:
            paths = [path for path, _ in left]
            found |= zip(paths, pool.map(carried(read), left), strict=True)
    return {path: form for path, form in found.items() if form is not None}


def stated_or_actual(tail_at: Callable[[int, int], bytes], size: int, actual: int) -> Form | None:
    """Return the form of a file without a footer where its stated size has one: WrongSize if there
    is one at the end of its actual bytes, None if it is damaged.

    tail_at: returns so many bytes before an end.
    """
    if actual == size:
        return None
    try:
        form_from(lambda wanted: tail_at(actual, wanted), actual)
    except NotParquetError:
        return None
    return WrongSize(size, actual)


def through(
    file_io: FileIO, rows: Mapping[str, int] = MappingProxyType({})
) -> Callable[[File], Form | None]:
    """Return a reader of forms through pyiceberg, as `reader` does."""
    return reader(lambda path: file_io.new_input(path).open(), rows)


def reader(
    opened: Callable[[str], Any],
    rows: Mapping[str, int] = MappingProxyType({}),
    noted: Noted = lambda *_: None,
) -> Callable[[File], Form | None]:
    """Return a reader of forms. opened: opens a file. rows: of the data files, as the table's
    metadata has them. noted: takes the footers. It answers None for a file that cannot be read
    now: a later reader has to check it."""

    def read(file: File) -> Form | None:
        path, size = file
        try:
            with opened(path) as stream:

                def tail_at(end: int, wanted: int) -> bytes:
                    stream.seek(end - wanted)
                    found = bytes(stream.read(wanted))
                    if len(found) < wanted:
                        raise NotParquetError("the file is shorter than the metadata says")
                    return found

                try:
                    return form_from(
                        partial(tail_at, size), size, rows.get(path), partial(noted, path)
                    )
                except NotParquetError:
                    actual = int(stream.seek(0, io.SEEK_END))
                    return stated_or_actual(tail_at, size, actual)
        except Exception:  # of any storage: whoever reads the file for its rows says what is wrong
            return None

    return read


class FormCache:
    """The known forms of the files of all tables. What cannot be read or written is not cached."""

    def __init__(self, cache: Path) -> None:
        self._path = cache / "forms.db"

    def known(self, table_uuid: str, files: Iterable[File]) -> dict[str, Form]:
        """Return the forms of those of the files that are known, by path."""
        rows, bodies = [], []
        with contextlib.suppress(OSError, sqlite3.Error), self._open() as db:
            rows = db.execute(
                "SELECT path, size, form FROM files WHERE uuid = ?", (table_uuid,)
            ).fetchall()
            bodies = db.execute(
                "SELECT id, body FROM forms WHERE id IN (SELECT form FROM files WHERE uuid = ?)",
                (table_uuid,),
            ).fetchall()
        forms = {number: _form(json.loads(body)) for number, body in bodies}
        found = {(path, size): forms[number] for path, size, number in rows if number in forms}
        return {file[0]: found[file] for file in files if file in found}

    def keep(self, table_uuid: str, sizes: Mapping[str, int], forms: Mapping[str, Form]) -> None:
        """Add forms of files of these sizes, by path; those of other paths are of files that the
        table no longer has, and are removed."""
        if not forms:
            return
        bodies = {path: json.dumps(_document(form)) for path, form in forms.items()}
        with contextlib.suppress(OSError, sqlite3.Error), self._open() as db:
            every = db.execute("SELECT path FROM files WHERE uuid = ?", (table_uuid,)).fetchall()
            gone = [(table_uuid, path) for (path,) in every if path not in sizes]
            db.executemany("DELETE FROM files WHERE uuid = ? AND path = ?", gone)
            new = [(body,) for body in sorted(set(bodies.values()))]
            db.executemany("INSERT OR IGNORE INTO forms (body) VALUES (?)", new)
            db.executemany(
                "INSERT OR REPLACE INTO files SELECT ?, ?, ?, id FROM forms WHERE body = ?",
                [(table_uuid, path, sizes[path], body) for path, body in bodies.items()],
            )

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Open the file for one transaction."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if self._path.exists() and self._path.stat().st_size > MOST_CACHE_BYTES:
            self._path.unlink()
        with contextlib.closing(sqlite3.connect(self._path, timeout=30)) as db, db:
            db.executescript(_TABLES)
            yield db


_TABLES = """
CREATE TABLE IF NOT EXISTS forms (id INTEGER PRIMARY KEY, body TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS files (
  uuid TEXT NOT NULL, path TEXT NOT NULL, size INTEGER NOT NULL, form INTEGER NOT NULL,
  PRIMARY KEY (uuid, path)
) WITHOUT ROWID;
"""


def _document(form: Form) -> Any:
    if isinstance(form, WrongRows):
        return {"statedRows": form.stated, "rows": form.actual}
    if isinstance(form, WrongSize):
        return {"stated": form.stated, "actual": form.actual}
    return {"schema": _node_document(form.schema), "stored": form.stored}


def _node_document(node: Node) -> list[Any]:
    return [
        node.name, node.field_id, node.repetition, node.physical, node.length, node.annotation,
        [_node_document(child) for child in node.children],
    ]  # fmt: skip


def _form(body: Mapping[str, Any]) -> Form:
    if "rows" in body:
        return WrongRows(body["statedRows"], body["rows"])
    if "actual" in body:
        return WrongSize(body["stated"], body["actual"])
    stored = tuple((number, how) for number, how in body["stored"])
    return FileForm(_node(body["schema"]), stored)


def _node(body: Sequence[Any]) -> Node:
    name, field_id, repetition, physical, length, annotation, children = body
    below = tuple(_node(child) for child in children)
    return Node(name, field_id, repetition, physical, length, annotation, below)
