"""Removes an attempt's leftover files: only below its own prefix, and only unreferenced ones.

Called once the attempt is fenced, or for our own attempt when none of its work is running.

A deletion may fail, as where it is denied. `discard` goes on then, and hands the error back: what
became of a commit is recorded whatever stays. Only what closes an attempt raises that error, once
the rest is deleted: the attempt stays open, and the next run deletes what is left.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog import orphans
from reconciler.engines.commit import locations
from reconciler.engines.schedule.attempt import Attempt
from reconciler.engines.table import Table
from reconciler.errors import UserError


class Removed(NamedTuple):
    """files, bytes: of what was removed. refused: why the rest stays, "" if it does not."""

    files: int = 0
    bytes: int = 0
    refused: str = ""


class Discarded(NamedTuple):
    """files, bytes: of what was deleted. error: of the first file that stays, None if none does."""

    files: int
    bytes: int
    error: Exception | None

    def required(self) -> Discarded:
        """Return it; raise the error of what stays."""
        if self.error is not None:
            raise self.error
        return self


def remove_leftovers(
    table: Table,
    prefix: str,
    committed: Collection[str] = (),
    others: tuple[CatalogConfig, tuple[str, ...]] | None = None,
    commits: Collection[str] = (),
) -> Removed:
    """Delete files below the prefix to which nobody refers.

    committed: files that the caller knows to be referenced. If there are no others, as after nearly
    every attempt, the table's snapshots need not be searched. others: the catalog and the table's
    name in it, to ask other tables too; None for an attempt of this process, which knows that
    nobody has seen what it did not commit. commits: UUIDs of the attempt's commits. Raises the
    error of a file that cannot be deleted.
    """
    if "/layout-" not in prefix:  # not a directory of ours
        return Removed()
    table.end_uploads(prefix)
    found = listing(table, prefix)
    if not found:
        table.remove_empty_directories(prefix)
        return Removed()
    known = {_relative(path, prefix) for path in committed}
    if all(_relative(path, prefix) in known for path in found):
        return Removed()
    kept = table.referenced(prefix) | known
    leftovers = {path: size for path, size in found.items() if _relative(path, prefix) not in kept}
    refused = ""
    if others is not None:
        roots = locations.roots(table.location(), table.properties())
        leftovers, refused = unclaimed(*others, table.uuid(), roots, leftovers, commits)
    removed = discard(table, leftovers).required()
    if len(leftovers) == len(found):
        table.remove_empty_directories(prefix)
    return Removed(removed.files, removed.bytes, refused)


def unclaimed(
    catalog: CatalogConfig,
    identifier: tuple[str, ...],
    table_uuid: str,
    roots: Sequence[str],
    files: Mapping[str, int],
    commits: Collection[str] = (),
) -> tuple[dict[str, int], str]:
    """Return those of the files, by path, to which neither another table nor another metadata file
    refers, and why none may be removed ("" if some may).

    Asked are the catalog and the storage as they are now; the table itself, as long as it is there,
    is the caller's matter. roots: locations that its files lie below. commits: UUIDs of commits
    that were never accepted; metadata files that only they wrote are returned too.
    """
    if not files:
        return {}, ""
    with tempfile.TemporaryDirectory(prefix="layout-") as cache:
        found = orphans.unclaimed(
            catalog, identifier, table_uuid, roots, list(files), Path(cache), commits=commits
        )
    return {path: files.get(path, 0) for path in sorted(found.paths)}, found.refused


def listing(table: Table, prefix: str) -> dict[str, int]:
    """Return the bytes by path of the files below the prefix; {} if the storage cannot list by
    prefix."""
    return {path: size for path, (size, _) in table.listed(prefix).items()}


def _relative(path: str, prefix: str) -> str:
    """Return the part below the prefix: `file:/x` and `file:///x` are the same place."""
    marker = "/" + prefix.rpartition("/")[2] + "/"
    return path.partition(marker)[2]


def discard(table: Table, paths: Iterable[str]) -> Discarded:
    """Delete files that nobody needs, such as outputs whose commit was refused; one that cannot be
    deleted stays. paths: may be a mapping to their bytes."""
    known = paths if isinstance(paths, Mapping) else {}
    files = size = 0
    first: Exception | None = None
    for path in paths:
        try:
            table.delete_file(path)
        except Exception as error:
            first = first or error
        else:
            files, size = files + 1, size + max(known.get(path, 0), 0)
    return Discarded(files, size, first)


def check_prefix(attempt: Attempt, paths: Iterable[str]) -> None:
    """Raise UserError if a file was not written below the attempt's directory."""
    marker = f"/{attempt.prefix.rpartition('/')[2]}/"
    stray = next((path for path in paths if marker not in path), "")
    if stray:
        raise UserError(
            f"{attempt.name} has a location provider that ignores write.data.path",
            details=(f"It placed an output file at {stray}.", "Nothing was committed."),
            do="leave the table out of the policy, or use Iceberg's own location provider",
        )
