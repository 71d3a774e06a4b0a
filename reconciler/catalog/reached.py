"""The FileIO of a cluster: it opens no store that the catalog may not reach.

A document, a server's answer or a table's metadata names a location; which file system that means
is decided by the library that opens it, and the check is made there, for each scheme and bucket.
The clients are C++: their hosts are resolved and checked before the client is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reconciler.api.places import STORES
from reconciler.api.reach import Reach
from reconciler.catalog.checked_avro import CheckedInput
from reconciler.catalog.network import check_host, check_properties, current_reach
from reconciler.errors import RefusedAddressError

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

CLIENT_TIMEOUTS = {"s3.connect-timeout": "10", "s3.request-timeout": "60"}
"""Seconds, unless the catalog sets others: by default a client waits for minutes."""


def reached(io: FileIO) -> FileIO:
    """The FileIO, held to what the current thread may reach."""
    reach = current_reach()
    if reach is None:
        return io
    from pyiceberg.io.fsspec import FsspecFileIO
    from pyiceberg.io.pyarrow import PyArrowFileIO

    if isinstance(io, PyArrowFileIO):
        return _arrow(dict(io.properties), reach)
    if isinstance(io, FsspecFileIO):
        return _fsspec(dict(io.properties), reach)
    raise RefusedAddressError(f"a FileIO of type {type(io).__name__} is not used in a cluster")


def check_scheme(reach: Reach, scheme: str) -> None:
    """Raises RefusedAddressError for a file system that is not an object store."""
    if scheme in STORES or (scheme == "file" and reach.local_files):
        return
    raise RefusedAddressError(
        f"a location with the scheme {scheme[:16]!r} may not be read from the cluster",
        details=("Only object stores are allowed.",),
        do="move the table, or register it with the location of its object store",
    )


def _input(file: Any) -> Any:
    """Return the file; Avro files with a check, since pyiceberg decodes them in native code."""
    return CheckedInput(file) if file.location.endswith(".avro") else file


def _arrow(properties: dict[str, Any], reach: Reach) -> FileIO:
    from pyiceberg.io.pyarrow import PyArrowFileIO

    class ReachedArrowFileIO(PyArrowFileIO):
        def _initialize_fs(self, scheme: str, netloc: str | None = None) -> Any:
            check_scheme(reach, scheme)
            check_properties(reach, self.properties)
            return super()._initialize_fs(scheme, netloc)

        def new_input(self, location: str) -> Any:
            return _input(super().new_input(location))

    return ReachedArrowFileIO({**CLIENT_TIMEOUTS, **properties})


def _fsspec(properties: dict[str, Any], reach: Reach) -> FileIO:
    from pyiceberg.io.fsspec import FsspecFileIO

    class ReachedFsspecFileIO(FsspecFileIO):
        def _get_fs(self, scheme: str, hostname: str | None = None) -> Any:
            check_scheme(reach, scheme)
            check_properties(reach, self.properties)
            check_host(reach, hostname or "")
            return super()._get_fs(scheme, hostname)

        def new_input(self, location: str) -> Any:
            return _input(super().new_input(location))

    return ReachedFsspecFileIO(properties)
