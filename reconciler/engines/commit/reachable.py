"""Which of the files that nothing needs any more are the table's own.

Two written paths are compared as `table.paths` says: a file is rather taken for a needed one than
deleted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from reconciler.catalog.listing import Resolver
from reconciler.engines.commit import locations
from reconciler.engines.table import Table
from reconciler.table.paths import key_of

PLACE = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]*):)?(?://([^/]*))?/*(.*)")
ALIKE = {"s3a": "s3", "s3n": "s3", "abfss": "abfs", "wasbs": "wasb"}
"""Schemes of one store."""


def own(table: Table, paths: Mapping[str, int]) -> dict[str, int]:
    """Return those of the files that lie below the table's own directories.

    A file elsewhere, such as one that was registered with `add_files`, may belong to another table.
    """
    roots = locations.roots(table.location(), table.properties())
    resolver = Resolver()

    def below(path: str, root: str) -> bool:
        """Whether the path is below the root as written, and still is with `..` and links followed:
        neither another bucket nor what a link leads to is the table's."""
        real, real_root = resolver.real(path), resolver.real(root)
        return (
            _place(path).startswith(_place(root).rstrip("/") + "/")
            and key_of(path).startswith(f"{key_of(root)}/".lstrip("/"))
            and key_of(real).startswith(f"{key_of(real_root)}/".lstrip("/"))
        )

    return {path: size for path, size in paths.items() if any(below(path, it) for it in roots)}


def _place(path: str) -> str:
    """Return the path in one spelling, with its authority: it must not take two places for one."""
    found = PLACE.fullmatch(path)
    assert found is not None  # every part is optional
    scheme, authority, rest = found.groups()
    return f"{ALIKE.get(scheme, scheme or 'file')}://{authority or ''}/{rest}"
