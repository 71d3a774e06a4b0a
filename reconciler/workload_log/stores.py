"""Finds logs below a prefix of an object store, and opens them as streams, with the credentials of
the catalog."""

from __future__ import annotations

import io
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from reconciler.api.catalog_config import CatalogConfig
from reconciler.errors import ReconcilerError, UnavailableError, UserError
from reconciler.workload_log.packing import StreamedLog

STREAM_BYTES = 1 << 20
"""Bytes of a file that are fetched at a time."""


class OutOfTime(ReconcilerError):
    """The run has read for as long as it may."""


@dataclass(frozen=True, slots=True)
class StoredLog:
    """A file below a prefix."""

    path: str
    """Its path in the file system."""
    size: int
    """Its bytes."""
    modified_ns: int
    """When it was written, in epoch nanoseconds; 0 if the store does not say."""

    @property
    def mark(self) -> str:
        """What changes when the content does."""
        return f"{self.size}:{self.modified_ns or None}"


def stored_logs(config: CatalogConfig, uri: str) -> Iterator[StoredLog]:
    """Yield the files below a uri, or the one that it names, by path. Raises UserError."""
    from pyarrow.fs import FileSelector, FileType

    system, path = filesystem(config, uri)
    try:
        root = system.get_file_info(path)
        infos = (
            [root]
            if root.type == FileType.File
            else system.get_file_info(FileSelector(path, recursive=True))
        )
    except OSError as error:
        raise UserError(
            f"{uri} cannot be listed",
            details=(type(error).__name__,),
            do="check the source's uri, and that the catalog's secret may list it",
        ) from error
    for info in sorted(infos, key=lambda item: item.path):
        if info.type == FileType.File and not info.base_name.startswith((".", "_")):
            yield StoredLog(info.path, int(info.size or 0), info.mtime_ns or 0)


def filesystem(config: CatalogConfig, uri: str) -> tuple[Any, str]:
    """Return the file system of a uri, with the catalog's own credentials, and the path in it."""
    from pyiceberg.io.pyarrow import PyArrowFileIO

    from reconciler.catalog.properties import pyiceberg_properties
    from reconciler.catalog.reached import reached

    opened = reached(PyArrowFileIO(pyiceberg_properties(config)))
    assert isinstance(opened, PyArrowFileIO)
    scheme, netloc, path = PyArrowFileIO.parse_location(uri)
    return opened.fs_by_scheme(scheme, netloc), path


def remote_log(
    config: CatalogConfig, uri: str, stored: StoredLog, end: float = math.inf
) -> StreamedLog:
    """Return a file for the readers, which open it several times. end: when reading stops, of the
    monotonic clock."""
    system, _ = filesystem(config, uri)
    name = stored.path.rpartition("/")[2]

    def stream() -> io.BufferedReader:
        try:
            opened = system.open_input_stream(stored.path, compression=None)
        except OSError as error:
            raise _unread(name, error) from error
        return io.BufferedReader(_Remote(opened, name, end), STREAM_BYTES)

    def seekable() -> Any:
        try:
            return system.open_input_file(stored.path)
        except OSError as error:
            raise _unread(name, error) from error

    modified = stored.modified_ns // 1_000_000 or None
    return StreamedLog(name, stored.size, stream, seekable, modified)


def _unread(name: str, error: OSError) -> UnavailableError:
    return UnavailableError(
        f"{name} cannot be read",
        details=(type(error).__name__,),
        do="check the object store, and that the catalog's secret may read it",
    )


class _Remote(io.RawIOBase):
    """A stream of an object store. What it cannot read is no damage of the file."""

    def __init__(self, stream: Any, name: str, end: float):
        self._stream, self._name, self._end = stream, name, end

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if time.monotonic() > self._end:
            raise OutOfTime("the run has no time left", do="the next run goes on")
        try:
            data: bytes = self._stream.read(len(buffer))
        except OSError as error:
            raise _unread(self._name, error) from error
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._stream.close()
        super().close()
