"""The border between catalogs and pyiceberg: only the person who runs layoutctl names a class.

pyiceberg imports and calls classes that properties name, whether the properties come from its own
configuration, from a REST server's answers or from a table. Here a server's properties are cut to
an allow-list (api.served_properties), a table's properties configure no FileIO at all, and the five
functions by which pyiceberg imports a class import only what a person's own configuration named.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import pyiceberg.catalog
import pyiceberg.io
import pyiceberg.io.pyarrow
import pyiceberg.table.locations
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.rest import auth as rest_auth
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import (
    ARROW_FILE_IO,
    FSSPEC_FILE_IO,
    PY_IO_IMPL,
    S3_RETRY_STRATEGY_IMPL,
    FileIO,
    InputFile,
    load_file_io,
)
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import StagedTable, Table
from pyiceberg.table.locations import LocationProvider, load_location_provider
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from reconciler.api import served_properties as served
from reconciler.catalog import answers, bounds
from reconciler.catalog.reached import reached
from reconciler.errors import UnsupportedError

if TYPE_CHECKING:
    from pyiceberg.catalog.rest import TableResponse
    from pyiceberg.typedef import Identifier

FILE_IOS = frozenset({ARROW_FILE_IO, FSSPEC_FILE_IO})
"""pyiceberg's own FileIO classes, which it chooses by the scheme of a location."""

_CLASS_PROPERTIES = (PY_IO_IMPL, S3_RETRY_STRATEGY_IMPL)

_permitted: set[str] = set()
_lock = threading.Lock()
_import_file_io = pyiceberg.io._import_file_io
_import_retry_strategy = pyiceberg.io.pyarrow._import_retry_strategy
_create_auth_manager = rest_auth.AuthManagerFactory.create


def open_catalog(name: str, kind: str, properties: Mapping[str, Any], *, own: bool) -> Catalog:
    """The pyiceberg catalog with these properties. own: as in CatalogConfig."""
    properties = _with_local_configuration(name, properties) if own else dict(properties)
    if own:
        permit(_classes_named(properties))
    elif "plugin" in dict(parse_qsl(urlsplit(str(properties.get("uri", ""))).query)):
        raise _refuse("plugin")  # SQLAlchemy would load the code that this option names
    if kind == "rest":
        return GuardedRestCatalog(name, **properties)
    return GuardedSqlCatalog(name, **properties)


def _with_local_configuration(name: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    """With the nested settings, such as `ssl` and `auth`, of pyiceberg's own configuration."""
    from pyiceberg.utils.config import Config

    known = Config().get_catalog_config(name) or {}
    return {**properties, **{key: it for key, it in known.items() if isinstance(it, dict)}}


def _classes_named(properties: Mapping[str, Any]) -> list[str]:
    auth = properties.get("auth")
    named = [properties.get(key) for key in _CLASS_PROPERTIES]
    named.append(auth.get("impl") if isinstance(auth, dict) else None)
    return [name for name in named if isinstance(name, str)]


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


class GuardedRestCatalog(RestCatalog):
    """A REST catalog whose server sets only what api.served_properties lists."""

    def __init__(self, name: str, **properties: Any):
        self._own = dict(properties)
        super().__init__(name, **properties)

    def _fetch_config(self) -> None:
        super()._fetch_config()
        merged = self.properties
        sent = {key: merged[key] for key in merged if self._own.get(key) != merged[key]}
        origin = str(self._own["uri"])
        self.properties = {**self._own, **served.catalog_config(sent, origin)}
        self.uri = self.properties["uri"]

    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        with answers.one_listing():
            found: list[Identifier] = super().list_tables(namespace)
            return found

    def list_namespaces(self, namespace: str | Identifier = ()) -> list[Identifier]:
        with answers.one_listing():
            found: list[Identifier] = super().list_namespaces(namespace)
            return found

    def _response_to_table(self, identifier_tuple: tuple[str, ...], table_response: Any) -> Table:
        config, io = self._accepted(table_response)
        return Table(
            identifier=identifier_tuple,
            metadata_location=table_response.metadata_location,
            metadata=table_response.metadata,
            io=io,
            catalog=self,
            config=config,
        )

    def _response_to_staged_table(
        self, identifier_tuple: tuple[str, ...], table_response: Any
    ) -> StagedTable:
        _, io = self._accepted(table_response)
        return StagedTable(
            identifier=identifier_tuple,
            metadata_location=table_response.metadata_location,
            metadata=table_response.metadata,
            io=io,
            catalog=self,
        )

    def _accepted(self, response: TableResponse) -> tuple[dict[str, str], FileIO]:
        """Return the table's config and its FileIO, from the listed properties of the server's
        answer."""
        location = response.metadata_location
        config = served.table_config(response.config, self.uri)
        vended = self._resolve_storage_credentials(response.storage_credentials, location)
        return config, self._load_file_io(
            {**config, **served.table_config(vended, self.uri)}, location
        )

    def _load_file_io(
        self, properties: Mapping[str, Any] | None = None, location: str | None = None
    ) -> FileIO:
        merged = {**self.properties, **(properties or {})}
        if self._auth_manager:
            merged[rest_auth.AUTH_MANAGER] = self._auth_manager
        return file_io(merged, location)


class GuardedSqlCatalog(SqlCatalog):
    """An SQL catalog whose tables' properties configure no FileIO."""

    def _load_file_io(
        self, properties: Mapping[str, Any] | None = None, location: str | None = None
    ) -> FileIO:
        return file_io(self.properties, location)


def _refuse(name: str) -> UnsupportedError:
    return UnsupportedError(
        f'the class "{name}" is not loaded: a catalog or a table names it',
        details=("Only your own pyiceberg configuration may name a class.",),
        do="remove the property that names it from the catalog or the table",
    )


def _guarded_file_io(io_impl: str, properties: Any) -> FileIO | None:
    if io_impl not in FILE_IOS | _permitted:
        raise _refuse(io_impl)
    return _import_file_io(io_impl, properties)


def _guarded_retry_strategy(impl: str) -> Any:
    if impl not in _permitted:
        raise _refuse(impl)
    return _import_retry_strategy(impl)


def _guarded_auth_manager(class_or_name: str, config: dict[str, Any]) -> Any:
    if class_or_name not in rest_auth.AuthManagerFactory._registry.keys() | _permitted:
        raise _refuse(class_or_name)
    return _create_auth_manager(class_or_name, config)


def _no_catalog_class(name: str, catalog_impl: str, properties: Any) -> Catalog:
    raise _refuse(catalog_impl)


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
    return TableMetadataUtil.parse_raw(text.decode(encoding))


def guard_imports() -> None:
    """Replace pyiceberg's functions by those above.

    A test checks that pyiceberg imports classes by name in no other place.
    """
    answers.bound_answers()
    FromInputFile.table_metadata = staticmethod(_bounded_metadata)  # type: ignore[method-assign]
    pyiceberg.io._import_file_io = _guarded_file_io
    pyiceberg.io.pyarrow._import_retry_strategy = _guarded_retry_strategy
    pyiceberg.table.locations._import_location_provider = _default_locations
    pyiceberg.catalog._import_catalog = _no_catalog_class
    rest_auth.AuthManagerFactory.create = staticmethod(_guarded_auth_manager)  # type: ignore[method-assign]


guard_imports()
