"""Opens catalogs and tables through pyiceberg, and translates every foreign failure once.

A catalog that is down, a name that does not exist, a missing file: each becomes one error with the
next step in it. Nothing here writes to a catalog.
"""

from __future__ import annotations

import contextlib
import logging
import re
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog.calls import Ended, Overran, one_call
from reconciler.catalog.failures import is_denied_by_aws, said
from reconciler.catalog.network import check_config
from reconciler.catalog.not_found import describe, near, not_found
from reconciler.catalog.properties import pyiceberg_properties, sqlite_path
from reconciler.catalog.storage import storage_refusal
from reconciler.errors import (
    AccessDeniedError,
    FileMissingError,
    ReconcilerError,
    RedirectedError,
    RefusedAddressError,
    TableDamagedError,
    TableNotFoundError,
    UnavailableError,
    UnsupportedError,
    UserError,
    first_line,
    unsupported_format,
)
from reconciler.table.observation import quoted_name

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table

Result = TypeVar("Result")


def connect(config: CatalogConfig, timeout: float = 30.0) -> Catalog:
    """Return the pyiceberg catalog of a configuration."""
    path = sqlite_path(config.properties.get("uri", "")) if config.type == "sql" else None
    if path is not None and not path.exists():
        raise UserError(
            f'catalog "{config.name}": there is no SQLite database at {path}',
            details=(f"named by {config.source}",) if config.source else (),
            do="correct the uri, or create a table with Spark or pyiceberg first",
        )

    def build() -> Catalog:
        from reconciler.catalog.opening import open_catalog

        quiet_pyiceberg()
        properties = pyiceberg_properties(config)
        if config.type == "sql":
            properties["init_catalog_tables"] = "false"
        made = open_catalog(config.name, config.type, properties, own=config.own)
        if config.type == "rest":
            vars(made)["bounded"] = lambda call: within(call, timeout, config)
        return made

    return within(build, timeout, config)


def quiet_pyiceberg() -> None:
    """Silence pyiceberg's warnings (a retried commit, a missing type), which do not help our
    users."""
    logging.getLogger("pyiceberg").setLevel(logging.ERROR)


def load_table(
    catalog: Catalog, config: CatalogConfig, identifier: tuple[str, ...], timeout: float = 30.0
) -> Table:
    """Return the table, or raise an error that names similar tables."""
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, ValidationError

    def load() -> Table | None:
        try:
            return _with_current_metadata(catalog, identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        except (ValidationError, ValueError, EOFError, zlib.error, RecursionError) as error:
            location = _metadata_location(catalog, identifier) if config.type == "sql" else ""
            known = _UNKNOWN_TYPE.search(str(error)) or _UNKNOWN_VERSION.search(str(error))
            exists = bool(location) or known is not None
            raise _undecodable(identifier, location, error) if exists else error from error

    if len(identifier) > 1:
        table = within(load, timeout, config)
        if table is not None:
            return _with_uuid(table, identifier)
    raise within(lambda: not_found(catalog, config, identifier), timeout, config)


def _with_uuid(table: Table, identifier: tuple[str, ...]) -> Table:
    """Refuse metadata of format version 1 without a table-uuid: pyiceberg makes one up at each
    load, and plans, queries and records are kept by it."""
    if "table_uuid" in table.metadata.model_fields_set:
        return table
    raise UnsupportedError(
        f'table "{quoted_name(identifier)}" has no table-uuid in its metadata: '
        f"{table.metadata_location}",
        details=("Format version 1 allows that; what is recorded about a table is kept by its "
                 "uuid. The table is as it was.",),
        do='add a "table-uuid" to a copy of that file and register the table with the copy, or '
        "leave it out of the policy (tables.exclude)",
    )  # fmt: skip


warnings.filterwarnings("ignore", message="Encountered invalid snapshot summary")
"""pyiceberg warns of each snapshot without an operation, and takes it for an overwrite."""


def _with_current_metadata(catalog: Catalog, identifier: tuple[str, ...]) -> Table:
    """The table. A metadata file that was removed after the catalog named it, because a writer
    commits meanwhile and keeps few of them, is asked for again: the catalog names its successor."""
    try:
        return catalog.load_table(identifier)
    except FileNotFoundError:
        return catalog.load_table(identifier)


def _metadata_location(catalog: Any, identifier: tuple[str, ...]) -> str:
    """Return the metadata file that a SQL catalog names for the table, "" if unknown."""
    from sqlalchemy import text
    from sqlalchemy.exc import SQLAlchemyError

    query = text(
        "SELECT metadata_location FROM iceberg_tables WHERE catalog_name = :catalog "
        "AND table_namespace = :namespace AND table_name = :name"
    )
    key = {
        "catalog": catalog.name, "namespace": ".".join(identifier[:-1]), "name": identifier[-1],
    }  # fmt: skip
    try:
        with catalog.engine.connect() as connection:
            return str(connection.execute(query, key).scalar() or "")
    except SQLAlchemyError:
        return ""


_UNKNOWN_VERSION = re.compile(
    r"Input tag '(\d+)' found using 'format_version'|Unknown format version: (\d+)"
)
"""How pyiceberg refuses metadata of a format version that it does not know."""
_UNKNOWN_TYPE = re.compile(r"Unsupported field type: '([^']+)'")
"""pyiceberg's message for a column type that it does not support, such as variant."""


_EMBEDDED = re.compile(r"snapshots\.\d+\.manifest-list\s+Field required")
"""pyiceberg's message for snapshots of format version 1 that embed the list of their manifests."""


def _undecodable(identifier: tuple[str, ...], location: str, error: Exception) -> UserError:
    version = _UNKNOWN_VERSION.search(str(error))
    if version:
        return unsupported_format(f'table "{quoted_name(identifier)}"', version[1] or version[2])
    unknown = _UNKNOWN_TYPE.search(str(error))
    if unknown:
        return UnsupportedError(
            f'table "{quoted_name(identifier)}" has a type that is not supported: {unknown[1]}',
            details=("Its metadata cannot be read with such a column. The table is as it was.",),
            do="leave it out of the policy (tables.exclude)",
        )
    if _EMBEDDED.search(str(error)):
        return UnsupportedError(
            f'table "{quoted_name(identifier)}" has snapshots without a manifest list: {location}',
            details=("They name their manifests in the table's metadata, as format version 1 "
                     "allows and this version does not read. The table is as it was.",),
            do="expire these snapshots after a new commit of the engine that writes the table, "
            "which writes a manifest list; or leave it out of the policy (tables.exclude)",
        )  # fmt: skip
    what = f'the metadata of table "{quoted_name(identifier)}" cannot be decoded: {location}'
    if _is_json(error):
        return UnsupportedError(
            what,
            details=("The file is complete, but it is not table metadata as this version reads it. "
                     "The table is as it was.", said(error)),
            do="register the table with an earlier metadata file beside it or with a corrected "
            "copy, or leave it out of the policy (tables.exclude)",
        )  # fmt: skip
    return TableDamagedError(
        what,
        details=("The file is truncated, or it is not table metadata; its catalog points to it.",
                 said(error)),
        do="restore the file, or register the table with an earlier metadata file beside it",
    )  # fmt: skip


def _is_json(error: Exception) -> bool:
    """Whether the file was decoded and parsed, and fails by what its fields hold."""
    import pydantic

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, pydantic.ValidationError):
            return all(one["type"] != "json_invalid" for one in cause.errors())
        cause = cause.__cause__ or cause.__context__
    return False


def data_file_io(
    config: CatalogConfig, identifier: tuple[str, ...] | None, timeout: float = 30.0
) -> FileIO:
    """Return the FileIO of the catalog's files; with an identifier, with that table's own
    credentials."""
    catalog = connect(config, timeout)
    if identifier is not None:
        return load_table(catalog, config, identifier, timeout).io
    from reconciler.catalog.border import file_io

    return file_io(catalog.properties, catalog.properties.get("warehouse"))


def list_namespaces(catalog: Catalog, config: CatalogConfig, timeout: float) -> list[Any]:
    """Return every namespace, nested ones included, parents first."""

    def walk() -> list[Any]:
        found: list[Any] = []
        waiting = sorted(catalog.list_namespaces())
        while waiting:
            namespace = waiting.pop(0)
            if namespace in found:
                continue
            found.append(namespace)
            with contextlib.suppress(Exception):  # not every catalog nests namespaces
                waiting += [
                    child
                    for child in sorted(catalog.list_namespaces(namespace))
                    if len(child) > len(namespace)
                ]
        return found

    return within(walk, timeout, config)


def list_tables(
    catalog: Catalog, config: CatalogConfig, namespace: tuple[str, ...], timeout: float
) -> list[tuple[str, ...]]:
    """Return the identifiers of the namespace's tables, sorted."""
    from pyiceberg.exceptions import NoSuchNamespaceError

    def listing() -> list[tuple[str, ...]] | None:
        try:
            return sorted(catalog.list_tables(namespace))
        except NoSuchNamespaceError:
            return None

    tables = within(listing, timeout, config)
    if tables is not None:
        return tables
    names = [".".join(item) for item in list_namespaces(catalog, config, timeout)]
    raise TableNotFoundError(
        f'namespace "{quoted_name(namespace)}" not found in catalog {describe(config)}',
        details=near(".".join(namespace), names, "namespaces"),
        do=f"layoutctl observe --catalog {config.name}",
    )


def within(work: Callable[[], Result], timeout: float, config: CatalogConfig) -> Result:
    """Return the result of a catalog call; raise UnavailableError if it fails or takes too long."""

    def checked() -> Result:
        check_config(config)
        try:
            return work()
        except RefusedAddressError as error:
            raise RedirectedError(
                f"an answer of catalog {describe(config)} leads to an address that is refused",
                details=(error.what, *error.details),
                do=error.do,
            ) from error

    try:
        return one_call(checked, timeout, config.reach)
    except Overran as error:
        raise UnavailableError(
            f"catalog {describe(config)} did not answer within {error.seconds:g} s",
            details=(_where(config),),
            do="check that it runs and can be reached, or give it longer with --timeout",
        ) from error
    except Ended as error:
        raise _ended(error.cause, config) from error
    except Exception as error:
        raise _translated(error, config) from error


def _ended(error: BaseException, config: CatalogConfig) -> UnavailableError:
    """Return the error for foreign code that tried to end the process, or panicked: it ends this
    call only.

    A user's Ctrl-C never arrives here: Python raises it in the main thread.
    """
    return UnavailableError(
        f"a call of catalog {describe(config)} was interrupted by code that it ran",
        details=(_where(config), type(error).__name__),
        do="check what the catalog and its tables name, then try again",
    )


def address(config: CatalogConfig) -> str:
    """Return the catalog's uri without user info and query string, "" if there is none."""
    parts = urlsplit(config.properties.get("uri", ""))
    host = parts.hostname or ""
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{host}{port}{parts.path}" if parts.scheme else ""


def _where(config: CatalogConfig) -> str:
    return f"uri: {address(config) or 'not set'}"


def _translated(error: BaseException, config: CatalogConfig) -> BaseException:
    if isinstance(error, ReconcilerError):
        return error
    if isinstance(error, PermissionError):
        return AccessDeniedError(
            f"a metadata file of catalog {describe(config)} may not be read",
            details=(said(error, config),),
            do="grant the right to read it",
        )
    if isinstance(error, FileNotFoundError):
        return TableDamagedError(
            f"a metadata file of catalog {describe(config)} cannot be read",
            details=(said(error, config),),
            do="restore the file, or register the table with its latest metadata file again",
        )
    refused = storage_refusal(error, f"a file of catalog {describe(config)}")
    if refused is not None:
        return refused
    return _by_the_catalog(error, config)


def _by_the_catalog(error: BaseException, config: CatalogConfig) -> BaseException:
    """Return what the catalog itself refused, or that it does not answer."""
    from pyiceberg.exceptions import (
        ForbiddenError,
        NoSuchPropertyException,
        NotInstalledError,
        UnauthorizedError,
        ValidationError,
    )

    if isinstance(error, (UnauthorizedError, ForbiddenError)) or is_denied_by_aws(error):
        return AccessDeniedError(
            f"catalog {describe(config)} refused the credentials",
            details=(_where(config), type(error).__name__),
            do="check the token or credential, and that it may read tables",
        )
    if isinstance(error, (NoSuchPropertyException, NotInstalledError)):
        return UserError(
            f"catalog {describe(config)} is not configured completely",
            details=(said(error, config),),
            do="add the missing property, or install what it names",
        )
    if "iceberg_tables" in first_line(error) and config.type == "sql":
        return UserError(
            f"the database of catalog {describe(config)} holds no Iceberg catalog",
            details=(_where(config), "it has no table iceberg_tables"),
            do="correct the uri, or create a table with Spark or pyiceberg first",
        )
    if isinstance(error, (ValidationError, ValueError)):
        return TableDamagedError(
            f"catalog {describe(config)} sent an unreadable answer",
            details=(_where(config), said(error, config)),
            do="check that the uri points to an Iceberg catalog and that its tables are intact",
        )
    return UnavailableError(
        f"catalog {describe(config)} cannot be reached",
        details=(_where(config), said(error, config)),
        do="check that it runs and can be reached, then try again",
    )


@contextlib.contextmanager
def translate_io(subject: str, do: str) -> Iterator[None]:
    """Translate errors of reading one metadata or data file into errors that name the file.

    For invalid data, decoders raise almost anything: negative sizes, invalid streams.
    """
    import pyarrow as pa

    try:
        yield
    except ReconcilerError:
        raise
    except FileNotFoundError as error:
        raise FileMissingError(f"{subject} does not exist", do=do) from error
    except (OSError, ValueError, LookupError, EOFError, ArithmeticError, SystemError, TypeError,
            MemoryError, RecursionError, zlib.error, pa.ArrowException) as error:  # fmt: skip
        refused = storage_refusal(error, subject)
        if refused is not None:
            raise refused from error
        if isinstance(error, PermissionError):
            raise AccessDeniedError(
                f"{subject} may not be read",
                details=(said(error),),
                do="grant the right to read it",
            ) from error
        if isinstance(error, OSError):
            raise UnavailableError(
                f"{subject} cannot be read",
                details=(said(error),),
                do="check that the storage can be reached, then run the command again",
            ) from error
        raise TableDamagedError(
            f"{subject} cannot be decoded", details=(said(error),), do=do
        ) from error


def normalise_path(path: str) -> str:
    """Return a location for comparison: file:/x, file:///x and /x are equal; manifests keep their
    form."""
    if path.startswith("file:"):
        return "/" + path[5:].lstrip("/")
    return path


def local_path(path: str) -> Path | None:
    """Return the local file of a location, None for object stores."""
    normal = normalise_path(path)
    return Path(normal) if normal.startswith("/") else None
