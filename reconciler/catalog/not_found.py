"""The error of a name that a catalog does not know, with the names that it has."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from reconciler.api.catalog_config import CatalogConfig
from reconciler.errors import (
    TableNotFoundError,
)
from reconciler.table.observation import quoted_name

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


def describe(config: CatalogConfig) -> str:
    """Return '"warehouse" (sql, .pyiceberg.yaml)' for messages."""
    origin = f", {config.source}" if config.source else ""
    return f'"{config.name}" ({config.type}{origin})'


def not_found(
    catalog: Catalog, config: CatalogConfig, identifier: tuple[str, ...]
) -> TableNotFoundError:
    """Return why a table was not found: another catalog name, a missing namespace or a similar
    name."""
    if _is_view(catalog, identifier):
        return TableNotFoundError(
            f'"{quoted_name(identifier)}" is a view in catalog {describe(config)}',
            details=("A view has no files of its own. Nothing was changed.",),
            do="name the tables that it reads",
        )
    what = f'table "{quoted_name(identifier)}" not found in catalog {describe(config)}'
    others = _names_in_sql_catalog(catalog) if config.type == "sql" else {}
    if others and config.name not in others:
        listed = ", ".join(f'{count:,} under "{name}"' for name, count in sorted(others.items()))
        best = max(others, key=lambda name: others[name])
        return TableNotFoundError(
            what,
            details=(
                f"The database is reachable but holds no table under the catalog name "
                f'"{config.name}".',
                f"It holds {listed}: SQL catalogs key every row by that name.",
            ),
            do=f'name the catalog "{best}", or pass --catalog {best}',
        )
    return TableNotFoundError(
        what,
        details=_what_there_is(catalog, identifier),
        do=f"layoutctl observe --catalog {config.name}",
    )


def _is_view(catalog: Catalog, identifier: tuple[str, ...]) -> bool:
    """Return whether the catalog says so; many have no views."""
    from pyiceberg.exceptions import RESTError

    if len(identifier) < 2:
        return False
    try:
        return bool(catalog.view_exists(identifier))
    except (NotImplementedError, RESTError):
        return False


def _names_in_sql_catalog(catalog: Any) -> dict[str, int]:
    """Return the number of tables per catalog name in the database behind a SQL catalog."""
    from sqlalchemy import text
    from sqlalchemy.exc import SQLAlchemyError

    query = text("SELECT catalog_name, COUNT(*) FROM iceberg_tables GROUP BY catalog_name")
    try:
        with catalog.engine.connect() as connection:
            return {row[0]: row[1] for row in connection.execute(query)}
    except SQLAlchemyError:
        return {}


def _what_there_is(catalog: Catalog, identifier: tuple[str, ...]) -> tuple[str, ...]:
    namespace = identifier[:-1]
    namespaces = [tuple(item) for item in catalog.list_namespaces()]
    if not namespaces:
        return ("The catalog is reachable and holds no namespace.",)
    names = [".".join(item) for item in namespaces]
    if not namespace:
        return ("A table is named NAMESPACE.TABLE.", *near("", names, "namespaces"))
    missing = (
        f'There is no namespace "{quoted_name(namespace)}".',
        *near(".".join(namespace), names, "namespaces"),
    )
    if len(namespace) == 1 and namespace not in namespaces:
        return missing
    try:
        tables = [item[-1] for item in catalog.list_tables(namespace)]
    except Exception:  # a nested namespace that does not exist, reported by the catalog's own error
        return missing
    if not tables:
        return (f'The namespace "{quoted_name(namespace)}" holds no table.',)
    return near(identifier[-1], tables, f'tables in "{quoted_name(namespace)}"')


def near(wanted: str, names: list[str], kind: str) -> tuple[str, ...]:
    folded = {name.lower(): name for name in names}
    close = difflib.get_close_matches(wanted.lower(), list(folded), n=3, cutoff=0.6)
    if close:
        return ("Did you mean " + " or ".join(f'"{folded[name]}"' for name in close) + "?",)
    shown = ", ".join(sorted(names)[:8])
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return (f"{kind}: {shown}{more}",)
