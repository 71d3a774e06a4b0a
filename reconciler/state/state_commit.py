"""One commit of pyiceberg to a state table, done once whatever the catalog answers.

pyiceberg deletes what a commit wrote once the catalog answered with a conflict and no attempt is
left. The conflict may be one with itself: a gateway or a database driver sent the request twice,
and the first copy arrived. So the deletions are only noted while it commits. The snapshots carry a
random id; the files are removed after the table was searched for it.
"""

from __future__ import annotations

import contextlib
import functools
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table, Transaction
    from pyiceberg.table.metadata import TableMetadata

WRITE_ID = "layout.write-id"

Write = Callable[[Mapping[str, str]], None]
"""Commits with these snapshot properties."""


def commit_once(table: Table, write: Write) -> None:
    """Run one commit of the table. A conflict is raised only if it did not arrive."""
    from pyiceberg.exceptions import CommitFailedException, ValidationException

    write_id, io = uuid.uuid4().hex, table.io
    noted: list[str] = []
    table.io = _noting(io, noted)
    try:
        write({WRITE_ID: write_id})
        refused = None
    except (CommitFailedException, ValidationException) as error:
        refused = error
    finally:
        table.io = io
    if not noted and refused is None:
        return
    table.refresh()
    kept = _files_of(table, write_id)
    for path in noted:
        if path not in kept:
            with contextlib.suppress(Exception):  # the commit is decided, and stays so
                io.delete(path)
    if refused is not None and not kept:
        raise refused


def append(table: Table, rows: pa.Table, mark: Mapping[str, str]) -> None:
    """Commit the rows as new files of the table, with these properties of the snapshot."""
    with _staged()(table) as staged:
        staged.append(rows, dict(mark))


@functools.cache
def _staged() -> type[Transaction]:
    """Return a transaction that makes its metadata once per change.

    pyiceberg's copies all of it, every snapshot, about twenty times for one append: with 45
    snapshots that takes most of the time.
    """
    from pyiceberg.table import Transaction

    class Staged(Transaction):
        _of: tuple[Any, Any] | None = None
        _made: Any = None

        @property
        def table_metadata(self) -> TableMetadata:
            base, updates = self._table.metadata, self._updates
            if self._of is None or self._of[0] is not base or self._of[1] is not updates:
                self._made, self._of = super().table_metadata, (base, updates)
            return self._made  # type: ignore[no-any-return]

    return Staged


def _noting(io: Any, noted: list[str]) -> Any:
    """The same FileIO, except that it notes the files that it is to delete."""
    from pyiceberg.io import FileIO

    class Noting(FileIO):
        def new_input(self, location: str) -> Any:
            return io.new_input(location)

        def new_output(self, location: str) -> Any:
            return io.new_output(location)

        def delete(self, location: Any) -> None:
            noted.append(location if isinstance(location, str) else location.location)

    return Noting(io.properties)


def _files_of(table: Table, write_id: str) -> set[str]:
    """Return the manifest lists and manifests of the snapshots that carry the id, if any do."""
    found: set[str] = set()
    for snapshot in table.metadata.snapshots:
        summary = snapshot.summary
        if summary is not None and summary.additional_properties.get(WRITE_ID) == write_id:
            found.add(snapshot.manifest_list)
            found |= {manifest.manifest_path for manifest in snapshot.manifests(table.io)}
    return found
