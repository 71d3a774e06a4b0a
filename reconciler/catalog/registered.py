"""Which tables a catalog has, and what each says of the places of its files.

For those who must know that nobody else needs a file: a table that is not seen here could lose it.
So what cannot be listed or read is an error, and never a table less.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Any

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog.chains import Chain, chain_of, read_chain
from reconciler.catalog.load import within
from reconciler.errors import FileMissingError, UserError
from reconciler.table.observation import quoted_name

VIEW = "VIEW"
MOST_KNOWN = 50_000
"""Metadata files whose places are kept in memory, of all catalogs."""


@dataclass(frozen=True, slots=True)
class Registered:
    """A table of the catalog."""

    name: str
    """Its name as it is shown."""
    identifier: tuple[str, ...]
    """Levels of its name."""
    foreign: str = ""
    """Name of the other catalog of the same database that it belongs to, "" for this one."""
    location: str = ""
    """Its metadata file, "" where the catalog does not list it."""


@dataclass(frozen=True, slots=True)
class Places:
    """roots: locations of the table's files; registers: as of Chain; snapshots: how many it has."""

    roots: frozenset[str]
    registers: bool
    snapshots: int


class PlacesKnown:
    """The places that metadata files named when they were read last: such a file never changes.
    Thread-safe."""

    def __init__(self) -> None:
        self._found: dict[str, Places] = {}
        self._lock = threading.Lock()

    def get(self, location: str) -> Places | None:
        return self._found.get(location)

    def put(self, location: str, places: Places) -> None:
        with self._lock:
            if len(self._found) >= MOST_KNOWN:
                self._found.clear()
            self._found[location] = places


def places_of(chain: Chain) -> Places:
    return Places(chain.roots, chain.registers, len(chain.lists) + len(chain.manifests))


def all_tables(catalog: Any, config: CatalogConfig, timeout: float) -> list[Registered]:
    """Return every table, also those in nested namespaces; in an SQL catalog also those of other
    catalogs in its database. Raises if a namespace cannot be listed."""
    if config.type == "sql":
        return within(lambda: _rows(catalog), timeout, config)
    found: list[Registered] = []
    waiting: list[tuple[str, ...]] = _children(catalog, config, (), timeout)
    seen: set[tuple[str, ...]] = set()
    while waiting:
        namespace = waiting.pop()
        if namespace in seen:
            continue
        seen.add(namespace)
        waiting += _children(catalog, config, namespace, timeout)
        found += _in_namespace(catalog, config, namespace, timeout)
    return found


def _in_namespace(
    catalog: Any, config: CatalogConfig, namespace: tuple[str, ...], timeout: float
) -> list[Registered]:
    """Return the tables of a namespace that was listed; none if it has been dropped since."""
    from pyiceberg.exceptions import NoSuchNamespaceError

    def listed() -> list[Registered] | None:
        try:
            names = catalog.list_tables(namespace)
        except NoSuchNamespaceError:
            return None
        return [Registered(quoted_name(one), tuple(one)) for one in names]

    found = within(listed, timeout, config)
    if found is None and namespace in _children(catalog, config, namespace[:-1], timeout):
        raise UserError(
            f"the tables of namespace {quoted_name(namespace)} cannot be listed",
            details=("The catalog lists the namespace, and says that there is none.",),
            do="check that the catalog's credential may list all namespaces",
        )
    return found or []


def _children(
    catalog: Any, config: CatalogConfig, namespace: tuple[str, ...], timeout: float
) -> list[tuple[str, ...]]:
    """Return the namespaces in one. A catalog that does not nest them lists all, or refuses the
    question."""
    from pyiceberg.exceptions import BadRequestError, NoSuchNamespaceError

    def listed() -> list[tuple[str, ...]]:
        try:
            return [tuple(one) for one in catalog.list_namespaces(namespace)]
        except (BadRequestError, NoSuchNamespaceError):
            if namespace:
                return []
            raise

    found = within(listed, timeout, config)
    return [one for one in found if len(one) > len(namespace)]


def _rows(catalog: Any) -> list[Registered]:
    """Return the rows of an SQL catalog's own table, in one statement."""
    from sqlalchemy import inspect, text

    columns = {one["name"] for one in inspect(catalog.engine).get_columns("iceberg_tables")}
    kind = "iceberg_type" if "iceberg_type" in columns else "NULL"
    query = text(
        "SELECT catalog_name, table_namespace, table_name, metadata_location, "
        f"{kind} FROM iceberg_tables"
    )
    with catalog.engine.connect() as connection:
        rows = list(connection.execute(query))
    found = []
    for name, namespace, table, location, type_ in rows:
        if type_ == VIEW:
            continue
        identifier = (*str(namespace).split("."), str(table))
        foreign = "" if name == catalog.name else str(name)
        shown = quoted_name((foreign, *identifier) if foreign else identifier)
        found.append(Registered(shown, identifier, foreign, str(location or "")))
    return found


def chain_of_table(
    catalog: Any, config: CatalogConfig, table: Registered, timeout: float
) -> tuple[Any, Chain] | None:
    """Return the table's FileIO and what it needs, its metadata file included; None if the catalog
    has it no more."""
    if config.type == "sql":
        return within(lambda: _of_row(catalog, table), timeout, config)
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    def load() -> tuple[Any, Chain] | None:
        try:
            found = catalog.load_table(table.identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        chain = chain_of(found.metadata.model_dump(mode="json", by_alias=True))
        return found.io, _with(chain, str(found.metadata_location))

    return within(load, timeout, config)


def _with(chain: Chain, location: str) -> Chain:
    return replace(chain, named=chain.named | {location})


def _of_row(catalog: Any, table: Registered) -> tuple[Any, Chain] | None:
    """Read the file that the row names. A file that a commit has replaced and removed is looked for
    under its successor's name."""
    for _ in range(3):
        if not table.location:
            raise UserError(
                f"table {table.name} has no metadata file in the catalog",
                do="drop the table, or register it with its metadata file",
            )
        io = catalog._load_file_io(location=table.location)
        try:
            return io, _with(read_chain(io, table.location), table.location)
        except FileMissingError:
            now = next((one for one in _rows(catalog) if one.name == table.name), None)
            if now is None:
                return None
            if now.location == table.location:
                raise
            table = now
    raise UserError(
        f"table {table.name} is committed to faster than its metadata can be read",
        do="run the command again",
    )
