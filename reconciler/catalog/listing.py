"""Lists the files below a location, for those who look for files that nobody needs.

A symbolic link is neither followed nor listed: what it leads to is another place's, or is listed
there.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from reconciler.catalog.load import translate_io
from reconciler.errors import UnsupportedError
from reconciler.table.orphans import Candidates, Listed, is_metadata
from reconciler.table.paths import is_local, local_of


def files_below(io: Any, location: str) -> Iterator[Listed]:
    """Yield the files below the location, each with its path in the location's spelling.

    Of links only those to metadata files are listed, so that these are read. Raises
    UnsupportedError if the storage cannot be listed.
    """
    from pyiceberg.io.pyarrow import PyArrowFileIO

    location = location.rstrip("/")
    if not isinstance(io, PyArrowFileIO):
        raise UnsupportedError(
            f'the files below "{location}" cannot be listed: its storage is read by '
            f"{type(io).__name__}, which cannot list files",
            do="remove spec.maintenance.removeOrphans, or py-io-impl of the catalog",
        )
    scheme, netloc, path = io.parse_location(location)
    with translate_io(f'the directory "{location}"', "check that the storage can be listed"):
        system = io.fs_by_scheme(scheme, netloc)  # refuses a place that may not be read
        if is_local(location):
            yield from below_directory(location)
        else:
            yield from _in_store(system, location, path)


def _in_store(system: Any, location: str, path: str) -> Iterator[Listed]:
    from pyarrow.fs import FileSelector, FileType

    for file in system.get_file_info(FileSelector(path, allow_not_found=True, recursive=True)):
        if file.type != FileType.File:
            continue
        if not file.path.startswith(path):
            raise ValueError(f"a listing of {path} has {file.path}, which is not below it")
        below = file.path[len(path) :].lstrip("/")
        changed = int(file.mtime_ns // 1_000_000) if file.mtime_ns else None
        yield Listed(f"{location}/{below}", int(file.size or 0), changed)


def below_directory(location: str) -> Iterator[Listed]:
    """Yield the files below a local location, as `files_below`."""
    root = local_of(location)

    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):  # removed meanwhile
            raise error

    for directory, _, names in os.walk(root, onerror=refuse):
        below = os.path.relpath(directory, root)
        within = location if below == "." else f"{location}/{below}"
        for name in names:
            try:
                found = os.lstat(f"{directory}/{name}")
            except FileNotFoundError:  # removed meanwhile
                continue
            if not stat.S_ISLNK(found.st_mode) or is_metadata(name):
                yield Listed(f"{within}/{name}", found.st_size, found.st_mtime_ns // 1_000_000)


def changed_ms(io: Any, location: str) -> int:
    """Return when a file changed last, in milliseconds since 1970; 0 where its storage does not
    say. io: of the file; None will do for a local one."""
    from pyiceberg.io.pyarrow import PyArrowFileIO

    try:
        if is_local(location):
            return Path(local_of(location)).stat().st_mtime_ns // 1_000_000
        if not isinstance(io, PyArrowFileIO):
            return 0
        scheme, netloc, path = io.parse_location(location)
        found = io.fs_by_scheme(scheme, netloc).get_file_info(path)
    except Exception:  # of any storage
        return 0
    return int((found.mtime_ns or 0) // 1_000_000)


class Resolver:
    """Follows the symbolic links of local paths; each directory is looked up once."""

    def __init__(self) -> None:
        self._directories: dict[str, str] = {}

    def real(self, path: str) -> str:
        """Return the path without links; the path itself if it is not a local one."""
        if not is_local(path):
            return path
        directory, _, name = local_of(path).rpartition("/")
        known = self._directories.get(directory)
        if known is None:
            known = self._directories[directory] = os.path.realpath(directory or "/")
        found = f"{known.rstrip('/')}/{name}"
        try:
            linked = stat.S_ISLNK(os.lstat(found).st_mode)
        except OSError:  # nothing is there
            return found
        return os.path.realpath(found) if linked else found

    def strike(self, candidates: Candidates, paths: Iterable[str]) -> None:
        """Strike out files by their paths as written, and by what their links lead to."""
        for path in paths:
            real = self.real(path)
            candidates.strike((path,) if real == path else (path, real))
