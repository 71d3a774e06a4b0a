"""The border between catalogs and pyiceberg: only the person who runs layoutctl names a class.

pyiceberg imports and calls classes that properties name, whether the properties come from its own
configuration, from a REST server's answers or from a table. Here a server's properties are cut to
an allow-list (api.served_properties), a table's properties configure no FileIO at all, and the five
functions by which pyiceberg imports a class import only what a person's own configuration named.
`opening` opens catalogs; what one kind of catalog needs is in `border_sql`, `border_rest` and
`border_glue`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

import pyiceberg.catalog
import pyiceberg.io
import pyiceberg.io.pyarrow
import pyiceberg.table.locations
from pyiceberg.catalog import Catalog
from pyiceberg.io import (
    ARROW_FILE_IO,
    FSSPEC_FILE_IO,
    PY_IO_IMPL,
    FileIO,
    InputFile,
    load_file_io,
)
from pyiceberg.serializers import FromInputFile
from pyiceberg.table.locations import LocationProvider, load_location_provider
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from reconciler.api import served_properties as served
from reconciler.catalog import blob_types, bounds, own_settings
from reconciler.catalog.reached import reached
from reconciler.errors import UnsupportedError

FILE_IOS = frozenset({ARROW_FILE_IO, FSSPEC_FILE_IO})
"""pyiceberg's own FileIO classes, which it chooses by the scheme of a location."""

_permitted: set[str] = set()
_lock = threading.Lock()
_import_file_io = pyiceberg.io._import_file_io
_import_retry_strategy = pyiceberg.io.pyarrow._import_retry_strategy


def permit(names: Iterable[str]) -> None:
    """Allow pyiceberg to import these classes: a person's own configuration names them."""
    with _lock:
        _permitted.update(names)


def file_io(properties: Mapping[str, Any], location: str | None) -> FileIO:
    """Return the FileIO for a location: by its scheme, unless a person's own configuration names
    one."""
    chosen = dict(properties)
    signed = chosen.get("s3.signer") == served.REST_SIGNER
    if PY_IO_IMPL not in chosen and signed and (location or "").startswith(("s3:", "s3a:", "s3n:")):
        chosen[PY_IO_IMPL] = FSSPEC_FILE_IO  # the other one cannot have requests signed
    return reached(load_file_io(chosen, location))


def permitted(name: str) -> bool:
    """Whether a person's own configuration named the class."""
    return name in _permitted


def refuse(name: str) -> UnsupportedError:
    """Return the error for a class that nobody may name."""
    return UnsupportedError(
        f'the class "{name}" is not loaded: a catalog or a table names it',
        details=("Only your own pyiceberg configuration may name a class.",),
        do="remove the property that names it from the catalog or the table",
    )


def _guarded_file_io(io_impl: str, properties: Any) -> FileIO | None:
    if io_impl not in FILE_IOS | _permitted:
        raise refuse(io_impl)
    if io_impl != ARROW_FILE_IO:
        from reconciler.catalog.answers import bound_answers

        bound_answers()  # of the servers that sign requests and give tokens
    return _import_file_io(io_impl, properties)


def _guarded_retry_strategy(impl: str) -> Any:
    if not permitted(impl):
        raise refuse(impl)
    return _import_retry_strategy(impl)


def _no_catalog_class(name: str, catalog_impl: str, properties: Any) -> Catalog:
    raise refuse(catalog_impl)


def _default_locations(
    location_provider_impl: str, table_location: str, table_properties: dict[str, Any]
) -> LocationProvider:
    """Ignore a location provider, which only a table names: files get the default locations."""
    return load_location_provider(table_location, served.table_properties(table_properties))


def _bounded_metadata(input_file: InputFile, encoding: str = "utf-8") -> TableMetadata:
    """Read a table's metadata file up to the limit of decoded bytes."""
    location = input_file.location
    with input_file.open() as stream:
        text = bounds.metadata_json(
            stream, location.endswith(".gz.metadata.json"), f'the metadata file "{location}"'
        )
    if blob_types.NAMED in text:
        blob_types.accept_any()
    return TableMetadataUtil.parse_raw(text.decode(encoding))


def guard_imports() -> None:
    """Replace pyiceberg's functions by those above.

    A test checks that pyiceberg imports classes by name in no other place.
    """
    FromInputFile.table_metadata = staticmethod(_bounded_metadata)  # type: ignore[method-assign]
    pyiceberg.io._import_file_io = _guarded_file_io
    pyiceberg.io.pyarrow._import_retry_strategy = _guarded_retry_strategy
    pyiceberg.table.locations._import_location_provider = _default_locations
    pyiceberg.catalog._import_catalog = _no_catalog_class


guard_imports()
own_settings.parse_once()
