"""Files below a table's own directories that nothing of the table refers to any more.

They come from writers that were killed, from commits that lost their race, and from expired
snapshots whose files were not deleted. Which files the metadata refers to is read by
`catalog.orphans` for a plan, and once more by `spark.actions.remove_orphans` right before they are
deleted: the same rules decide in both places.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

DIRECTORIES = ("data", "metadata")
"""Where writers of Iceberg put files, below the table's location."""
LEAST_AGE_MS = 24 * 3_600_000
"""A younger file may belong to a commit that is under way; Iceberg's own procedure has the same
bound."""
ATTEMPT_AGE_MS = 168 * 3_600_000
"""Age of files in the directory of an attempt of ours: as long as a plan may stand. Another machine
may work on it without this one's knowledge."""
LISTING_MS = 24 * 3_600_000
"""Time between two listings of a table without orphans: a new one is not removed for as long."""
MOST_FILES = 1_000
"""Files of one plan: each of them is listed. What is left is found after they are gone."""
METADATA = ".metadata.json"
SUFFIXES = (".parquet", ".orc", ".avro", ".puffin", ".stats", METADATA)
"""Files that writers of Iceberg name so. Others may be somebody's notes."""

SCHEME = "^([A-Za-z][A-Za-z0-9+.-]*:(//[^/]*)?)?/*"
"""Regular expression (Python's and Java's) of what differs between the names of one file. The rest
begins below the root."""
_START = re.compile(SCHEME)


@dataclass(frozen=True, slots=True)
class Listed:
    """A file in the storage. changed_ms: when it was written."""

    path: str
    size: int
    changed_ms: int


@dataclass(frozen=True, slots=True)
class Search:
    """older_than_ms: age that a file needs, never less than LEAST_AGE_MS. prefix: below the table's
    location, "" for all of its directories."""

    older_than_ms: int
    prefix: str = ""

    @property
    def age_ms(self) -> int:
        return max(self.older_than_ms, LEAST_AGE_MS)


@dataclass(frozen=True, slots=True)
class Orphans:
    """files: oldest first, at most MOST_FILES. shared: a file that shows that another table lies
    below the location, "" for none; then nothing is an orphan. left: orphans beyond MOST_FILES.
    listed: whether the storage was listed for this; next_ms: when it will be again."""

    files: tuple[Listed, ...] = ()
    shared: str = ""
    left: int = 0
    listed: bool = True
    next_ms: int | None = None


NO_ORPHANS = Orphans()


@dataclass(frozen=True, slots=True)
class Listing:
    """The last listing of a table that found no orphan. at_ms: when. search: what it looked for."""

    at_ms: int
    search: Search

    def next_ms(self, search: Search) -> int:
        """Return when such a search is due: at once for another one than this."""
        return self.at_ms + LISTING_MS if search == self.search else 0


def orphans_of(
    listed: Iterable[Listed],
    location: str,
    referenced: Collection[str],
    search: Search,
    now_ms: int,
    under_way: Collection[str] = (),
) -> Orphans:
    """Return which of the listed files are orphans.

    referenced: all files that the metadata refers to, as `place_of` gives them. under_way:
    directories of attempts that are not settled.
    """
    root = place_of(location).rstrip("/") + "/"
    own = root + "metadata/"
    busy = tuple(place_of(path).rstrip("/") + "/" for path in under_way)
    found: list[Listed] = []
    for file in listed:
        place = place_of(file.path)
        if not place.startswith(root):
            continue
        if place.endswith(METADATA) and (not place.startswith(own) or "/" in place[len(own) :]):
            return Orphans(shared=file.path)
        below = place[len(root) :]
        if (
            below.startswith(tuple(f"{one}/" for one in DIRECTORIES))
            and below.startswith(search.prefix)
            and below.endswith(SUFFIXES)
            and file.changed_ms <= now_ms - _age_ms(below, search)
            and place not in referenced
            and not place.startswith(busy)
        ):
            found.append(file)
    found.sort(key=lambda file: (file.changed_ms, file.path))
    return Orphans(tuple(found[:MOST_FILES]), left=max(0, len(found) - MOST_FILES))


def _age_ms(below: str, search: Search) -> int:
    return max(search.age_ms, ATTEMPT_AGE_MS if "/layout-p-" in f"/{below}" else 0)


def place_of(path: str) -> str:
    """Return the path without scheme and authority: two spellings of one file (`s3:` and `s3a:`,
    `file:/` and `file:///`) are equal. If two files are equal by mistake, both count as needed."""
    return _START.sub("", path, count=1)
