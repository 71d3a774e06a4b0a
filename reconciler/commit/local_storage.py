"""A table's files by their paths, without a JVM (`engines.table.Storage`)."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from reconciler.catalog import s3_uploads
from reconciler.catalog.listing import files_below
from reconciler.commit import metadata
from reconciler.commit.local_history import LocalHistory
from reconciler.errors import UnsupportedError
from reconciler.table.paths import is_local, local_of

DROPPED = "\n\r\t?#"
"""Characters of a path that parsers of URLs drop, or from which on they drop the rest."""


class LocalStorage(LocalHistory):
    """The table's files, by the FileIO of its catalog."""

    def location(self) -> str:
        return str(self.state.metadata["location"])

    def metadata_directory(self) -> str:
        return metadata.directory(self.state.metadata)

    def delete_file(self, path: str) -> None:
        """Delete a file; one that is gone already is no error."""
        with contextlib.suppress(FileNotFoundError):
            self.table.io.delete(_place(path))

    def has_file(self, path: str) -> bool:
        return bool(self.table.io.new_input(_place(path)).exists())

    def listed(self, directory: str) -> dict[str, tuple[int, int | None]]:
        """Return the bytes, and the time of writing in ms, by path of the files below a
        directory."""
        with contextlib.suppress(UnsupportedError):
            found = files_below(self.table.io, directory)
            return {one.path: (one.size, one.changed_ms) for one in found}
        return {}

    def end_uploads(self, prefix: str) -> None:
        if s3_uploads.on_s3(prefix):
            s3_uploads.end_uploads(self.table.io.properties, prefix)

    def remove_empty_directories(self, prefix: str) -> None:
        root = local_of(prefix) if is_local(prefix) else None
        if root is None:
            return
        for directory, _, _ in os.walk(root, topdown=False):
            with contextlib.suppress(OSError):  # it is not empty
                Path(directory).rmdir()


def _place(path: str) -> str:
    """Return the path as pyiceberg's FileIO takes it for the same file. It parses a URL, without
    its line ends, tabs, query and fragment: that is another file, which must not be deleted."""
    if not any(one in path for one in DROPPED):
        return path
    if is_local(path):
        return local_of(path)
    raise UnsupportedError(
        f"pyiceberg takes the path {path} for that of another file",
        details=("It has a line end, a tab, a question mark or a number sign.",),
        do="remove the file by hand, or use --engine Spark",
    )
