"""Which statistics files of a table stay true, and under which snapshot they are listed.

Engines keep what their ANALYZE found (numbers of distinct values, in a Puffin file) in a list of
the metadata, each file under one snapshot (Iceberg specification, "Table Statistics"). A reader
takes the file of the snapshot that it reads, or of the nearest ancestor. Expiry drops the entries
of the snapshots that it removes. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Document = Mapping[str, Any]
"""A statistics file as the specification writes it in JSON."""


@dataclass(frozen=True, slots=True)
class Ancestor:
    """One snapshot of the line that ends at the head."""

    id: int
    """Its id."""
    keeps_rows: bool
    """Whether it has the rows of its parent: it only moved them to other files."""


def true_of_head(line: Iterable[Ancestor], listed: Mapping[int, Document]) -> Document | None:
    """Return the statistics that are true of the head and not listed under it, None if there are
    none.

    line: the head and its ancestors, newest first. listed: by the snapshot that they are listed
    under.
    """
    for number, one in enumerate(line):
        if one.id in listed:
            return listed[one.id] if number else None
        if not one.keeps_rows:
            return None
    return None


def lost_by_expiry(
    line: Iterable[Ancestor], gone: Collection[int], listed: Mapping[int, Document]
) -> tuple[int, Document] | None:
    """Return the newest statistics, if an expiry leaves the head without any, and the oldest
    snapshot that stays and is newer than theirs: readers find them there as before. Else None.

    gone: ids of the snapshots that expire.
    """
    oldest = None
    for one in line:
        if one.id in listed:
            known = oldest is not None and one.id in gone
            return (oldest, listed[one.id]) if known and oldest is not None else None
        if one.id not in gone:
            oldest = one.id
    return None


def under(document: Document, snapshot_id: int) -> dict[str, Any]:
    """Return the same file listed under another snapshot. What it holds still names the snapshot
    that it was computed from."""
    return {**document, "snapshot-id": snapshot_id}
