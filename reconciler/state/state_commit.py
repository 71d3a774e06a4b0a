"""One commit of pyiceberg to a state table, done once whatever the catalog answers.

pyiceberg deletes what a commit wrote once the catalog answered with a conflict and no attempt is
left. The conflict may be one with itself: a gateway or a database driver sent the request twice,
and the first copy arrived. So the deletions are only noted while it commits. The snapshots carry a
random id; the files are removed after the table was searched for it.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyiceberg.table import Table

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
