"""Files below a table's own directories that nobody refers to any more.

They come from writers that were killed, from commits that lost their race, and from expired
snapshots whose files were not deleted. A file is removed only if it is proven that no table and no
metadata file refers to it. `catalog.orphans` asks them for a plan, and once more right before the
files are deleted: the same rules decide in both places.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from reconciler.table.paths import key_of
from reconciler.table.times import DAY_MS

DIRECTORIES = ("data", "metadata")
"""Where writers of Iceberg put files, below the table's location."""
LEAST_AGE_MS = DAY_MS
"""A younger file may belong to a commit that is under way; Iceberg's own procedure has the same
bound."""
ATTEMPT_AGE_MS = 7 * DAY_MS
"""Age of files in the directory of an attempt of ours: as long as a plan may stand. Another machine
may work on it without this one's knowledge."""
LISTING_MS = DAY_MS
"""Time between two listings of a table without orphans: a new one is not removed for as long."""
MOST_FILES = 1_000
"""Files of one plan: each of them is listed. What is left is found after they are gone."""
METADATA = (".metadata.json", ".metadata.json.gz")
"""Ends of metadata files. Each may be the present state of a table somewhere: none is removed."""
SUFFIXES = (".parquet", ".orc", ".avro", ".puffin", ".stats")
"""Files that writers of Iceberg name so. Others may be somebody's notes."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A file in the storage."""

    path: str
    """Location of the file."""
    size: int
    """Its bytes."""
    changed_ms: int | None
    """When it was written, in epoch milliseconds; None where the storage does not say."""


@dataclass(frozen=True, slots=True)
class Search:
    """What a listing looks for."""

    older_than_ms: int
    """Least age of a file in milliseconds, never below LEAST_AGE_MS."""
    prefix: str = ""
    """Directory below the table's location to which it is limited, "" for all."""

    @property
    def age_ms(self) -> int:
        return max(self.older_than_ms, LEAST_AGE_MS)


@dataclass(frozen=True, slots=True)
class Asked:
    """Who was asked whether they refer to the files."""

    tables: int = 0
    """Number of tables of the catalog, without the files' own."""
    metadata: int = 0
    """Number of metadata files below the location that are not of the table's history."""


NOBODY = Asked()


@dataclass(frozen=True, slots=True)
class Orphans:
    """The files below the table's location that nobody refers to."""

    files: tuple[Listed, ...] = ()
    """The orphans, oldest first, at most MOST_FILES."""
    refused: str = ""
    """Why nothing may be removed, because a table or a metadata file that may refer to the files
    could not be read; "" if they may be removed."""
    asked: Asked = NOBODY
    """Who was asked whether they refer to the files."""
    left: int = 0
    """Number of orphans beyond MOST_FILES."""
    listed: bool = True
    """Whether the storage was listed for this."""
    next_ms: int | None = None
    """When it will be listed again, in epoch milliseconds; None if that is not planned."""


NO_ORPHANS = Orphans()


@dataclass(frozen=True, slots=True)
class Listing:
    """The last listing of a table that found no orphan."""

    at_ms: int
    """Its time, in epoch milliseconds."""
    search: Search
    """What it looked for."""

    def next_ms(self, search: Search) -> int:
        """Return when such a search is due: at once for another one than this."""
        return self.at_ms + LISTING_MS if search == self.search else 0


class Candidates:
    """Files that may be removed, as long as nothing is found that refers to them.

    A file is known by its path below the location and by its name: whoever writes its path in full
    in another way, or by another name of the store, still refers to it.
    """

    def __init__(self, files: Iterable[Listed], *locations: str) -> None:
        self._roots = sorted((key_of(one) for one in locations), key=len, reverse=True)
        self._by_name: dict[str, list[tuple[str, Listed]]] = {}
        self.add(files)

    def add(self, files: Iterable[Listed]) -> None:
        for file in files:
            key = key_of(file.path)
            root = next((one for one in self._roots if key.startswith(f"{one}/")), "")
            below = key[len(root) :].lstrip("/")
            self._by_name.setdefault(key.rpartition("/")[2], []).append((f"/{below}", file))

    def __bool__(self) -> bool:
        return bool(self._by_name)

    def strike(self, paths: Iterable[str]) -> None:
        """Leave the files that these paths may mean alone."""
        if not self:
            return
        for path in paths:
            key = key_of(path)
            name = key.rpartition("/")[2]
            known = self._by_name.get(name)
            if known is None:
                continue
            left = [one for one in known if not f"/{key}".endswith(one[0])]
            if left:
                self._by_name[name] = left
            else:
                del self._by_name[name]

    def oldest(self) -> list[Listed]:
        """Return the files that are left, oldest first."""
        left = [file for known in self._by_name.values() for _, file in known]
        return sorted(left, key=lambda file: (file.changed_ms or 0, file.path))


def old_files(
    listed: Iterable[Listed],
    location: str,
    search: Search,
    now_ms: int,
    under_way: Collection[str] = (),
) -> list[Listed]:
    """Return the listed files that are orphans if nothing refers to them. under_way: directories of
    attempts that are not settled."""
    root = f"{key_of(location)}/".lstrip("/")
    busy = tuple(f"{key_of(path)}/" for path in under_way)
    asked = f"{key_of(search.prefix)}/" if search.prefix.endswith("/") else key_of(search.prefix)
    found = []
    for file in listed:
        key = key_of(file.path)
        below = key[len(root) :]
        if (
            key.startswith(root)
            and below.startswith(tuple(f"{one}/" for one in DIRECTORIES))
            and below.startswith(asked.lstrip("/"))
            and below.endswith(SUFFIXES)
            and file.changed_ms is not None  # it may have been written right now
            and file.changed_ms <= now_ms - _age_ms(below, search)
            and not key.startswith(busy)
        ):
            found.append(file)
    return found


def is_metadata(path: str) -> bool:
    return path.lower().endswith(METADATA)


def _age_ms(below: str, search: Search) -> int:
    return max(search.age_ms, ATTEMPT_AGE_MS if "/layout-p-" in f"/{below}" else 0)
