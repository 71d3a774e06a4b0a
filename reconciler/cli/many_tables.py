"""Lists the tables of a catalog or namespace, and looks at them with progress on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconciler.errors import ReconcilerError
from reconciler.render import terminal

if TYPE_CHECKING:
    from reconciler.api.catalog_config import CatalogConfig
    from reconciler.table.observation import Observation

Levels = tuple[str, ...]
"""The name of a namespace or of a table, part by part."""


def namespaces_of(connection: Any, config: CatalogConfig, timeout: float) -> list[Levels]:
    """Return every namespace. A catalog answers a question for each, so a command asks once."""
    from reconciler.catalog.load import list_namespaces

    return [tuple(item) for item in list_namespaces(connection, config, timeout)]


def is_namespace(
    connection: Any, config: CatalogConfig, levels: Levels, spaces: Sequence[Levels], timeout: float
) -> bool:
    """Whether the levels name a namespace and no table. spaces: every namespace."""
    from reconciler.catalog.load import list_tables

    if levels not in spaces:
        return False
    parent = levels[:-1]
    return parent not in spaces or levels not in list_tables(connection, config, parent, timeout)


def names_under(
    connection: Any,
    config: CatalogConfig,
    levels: Levels,
    spaces: Sequence[Levels],
    timeout: float,
    select: Sequence[str],
    exclude: Sequence[str],
) -> list[Levels]:
    """Return tables of the namespace and of those below it; of the whole catalog without one.

    spaces: every namespace.
    """
    from reconciler.api.table_patterns import matches
    from reconciler.catalog.many import tables_in

    inside = [item for item in spaces if item[: len(levels)] == levels]
    if levels and not inside:
        inside = [levels]  # raises an error with similar names
    return [
        name
        for name in sorted(set(tables_in(connection, config, inside, timeout)))
        if (not select or any(matches(pattern, name) for pattern in select))
        and not any(matches(pattern, name) for pattern in exclude)
    ]


def looks_at(
    connection: Any,
    config: CatalogConfig,
    names: Sequence[Levels],
    cache: Path,
    timeout: float,
    failed: list[tuple[Levels, ReconcilerError]],
    *,
    quiet: bool,
) -> Iterator[Observation]:
    """Yield a look at each table, with progress on stderr. A table that cannot be read is reported
    there and added to `failed`, and the others are shown."""
    from reconciler.catalog.many import observe_many

    looks = observe_many(connection, config, names, cache, timeout=timeout)
    for number, (name, seen) in enumerate(looks, start=1):
        if isinstance(seen, ReconcilerError):
            terminal.progress("", quiet=quiet)
            sys.stderr.write(seen.render() + "\n")
            failed.append((name, seen))
            continue
        terminal.progress(f"{number} of {len(names)}  {'.'.join(name)}", quiet=quiet)
        yield seen
    terminal.progress("", quiet=quiet)
