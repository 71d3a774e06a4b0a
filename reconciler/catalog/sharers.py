"""Asks everybody who may refer to files that are about to be removed: is one of them yours?

Asked are all tables of the catalog, and every metadata file below the table's locations that is not
of its own history. Manifests are read of those whose places overlap the table's, of those that have
registered files of others, and of as many of the rest as is cheap. What cannot be asked refuses the
removal.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog.chains import Chain, files_of, read_chain
from reconciler.catalog.failures import said
from reconciler.catalog.listing import Resolver
from reconciler.catalog.network import carried
from reconciler.catalog.registered import (
    Places,
    PlacesKnown,
    Registered,
    all_tables,
    chain_of_table,
    places_of,
)
from reconciler.errors import FileMissingError, ReconcilerError
from reconciler.format import count, plural
from reconciler.table.orphans import Asked, Candidates, Listed
from reconciler.table.paths import Steps, key_of, locations_of, overlap

ASKERS = 8
"""Tables asked at once: the time is latency."""
MOST_TABLES = 50_000
MOST_METADATA = 2_000
"""Metadata files of other histories below one table, all of which are read."""
MOST_SECONDS = 600.0
CHEAP_SNAPSHOTS = 300
"""Snapshots, of all tables together, whose manifests are read although nothing says that they may
refer to the files."""
LISTINGS = 3
"""Times that the catalog is listed, until a listing shows no table that was not asked."""


class Unasked(Exception):
    """Somebody who may refer to the files cannot be asked. The text says who, and why."""


@dataclass
class Sharers:
    """Asks the other tables of a catalog, and other histories below the table, for files that they
    name."""

    config: CatalogConfig
    """The catalog's connection."""
    catalog: Any
    """The catalog, as pyiceberg loaded it."""
    identifier: tuple[str, ...]
    """The table's name in the catalog."""
    io: Any
    """Reads the table's files."""
    cache_dir: Path
    """Directory of cached manifests."""
    timeout: float = 30.0
    """Seconds that one call to the catalog may take."""
    known: PlacesKnown | None = None
    """Places of other tables that need not be read again; None right before a removal."""
    commits: tuple[str, ...] = ()
    """UUIDs of commits of ours that were never accepted. A metadata file that one of them wrote
    belongs to nobody, as long as nobody names it."""
    _resolver: Resolver = field(default_factory=Resolver)
    """Compares paths once links are resolved."""
    _read: set[str] = field(default_factory=set)
    """Paths of the manifests that have been read already."""

    def strike(
        self,
        candidates: Candidates,
        roots: Iterable[str],
        metadata: Iterable[str],
        history: Sequence[str],
    ) -> Asked:
        """Strike out what others refer to; return who was asked. Raises Unasked.

        roots: locations of the table's files. metadata: the metadata files found below them.
        history: the table's own ones, as far as its present one names them, oldest first.
        """
        if not candidates:
            return Asked()
        try:
            strange = self._strangers(metadata, history)
            refused: list[str] = []
            named: set[str] = set()
            for path, chain in self._all(self._chain_at, strange):
                named.update(map(key_of, chain.log))
                if any(commit in chain.head for commit in self.commits):
                    refused.append(path)
                else:
                    self._strike(candidates, self.io, chain, f'the table of "{path}"')
            candidates.add(Listed(it, 0, 0) for it in refused if key_of(it) not in named)
            tables = self._strike_tables(candidates, self._places(roots))
        except Unasked:
            raise
        except Exception as error:  # whatever a decoder or a server's answer raises
            raise Unasked(_why(error)) from error
        return Asked(tables, len(strange))

    def _strangers(self, metadata: Iterable[str], history: Sequence[str]) -> list[str]:
        """Return the metadata files that are not of the table's history."""
        found = {key_of(path): path for path in metadata}
        known = self._whole(history, found)
        strange = [path for key, path in sorted(found.items()) if key not in known]
        if len(strange) > MOST_METADATA:
            raise Unasked(
                f"{count(len(strange))} metadata files of other tables lie below its location, for "
                f"example {strange[0]}; at most {count(MOST_METADATA)} are read"
            )
        return strange

    def _whole(self, history: Sequence[str], found: Mapping[str, str]) -> set[str]:
        """Return the keys of the history as far back as there are files: each names those before
        it, a hundred by default."""
        known: set[str] = set()
        for _ in range(MOST_METADATA):
            fresh = [path for path in history if key_of(path) not in known]
            known.update(map(key_of, fresh))
            if not fresh or key_of(history[0]) not in found:
                break
            try:
                history = read_chain(self.io, history[0]).log
            except ReconcilerError:  # what it came from is read as another table's
                break
        return known

    def _chain_at(self, path: str) -> tuple[str, Chain] | None:
        try:
            return path, read_chain(self.io, path)
        except FileMissingError:  # removed since it was listed
            return None

    def _strike_tables(self, candidates: Candidates, here: frozenset[Steps]) -> int:
        """Ask every table of the catalog; return how many. A table that was renamed during the
        listing shows in the next one."""
        asked: set[str] = set()
        distant: list[tuple[Registered, Places]] = []
        for _ in range(LISTINGS):
            fresh = [
                one
                for one in all_tables(self.catalog, self.config, self.timeout)
                if one.name not in asked and (one.foreign or one.identifier != self.identifier)
            ]
            if not fresh or not candidates:
                self._strike_distant(candidates, distant)
                return len(asked)
            asked.update(one.name for one in fresh)
            if len(asked) > MOST_TABLES:
                raise Unasked(f"the catalog has more than {count(MOST_TABLES)} tables")
            for table, places in self._all(self._asked, fresh):
                if places.registers or overlap(here, self._places(places.roots)):
                    self._strike_table(candidates, table)
                else:
                    distant.append((table, places))
        raise Unasked("tables are created or renamed faster than they can be asked")

    def _asked(self, table: Registered) -> tuple[Registered, Places] | None:
        places = self.known.get(table.location) if self.known and table.location else None
        if places is None:
            found = self._loaded(table)
            if found is None:
                return None
            places = places_of(found[1])
            if self.known is not None and table.location:
                self.known.put(table.location, places)
        return table, places

    def _loaded(self, table: Registered) -> tuple[Any, Chain] | None:
        try:
            found = chain_of_table(self.catalog, self.config, table, self.timeout)
        except Exception as error:  # whatever a decoder or a server's answer raises
            raise Unasked(f"table {table.name} cannot be asked: {_why(error)}") from error
        if found is None and self._listed(table):
            raise Unasked(f"table {table.name} is listed by the catalog, but cannot be loaded")
        return found

    def _listed(self, table: Registered) -> bool:
        names = {one.name for one in all_tables(self.catalog, self.config, self.timeout)}
        return table.name in names

    def _strike_table(self, candidates: Candidates, table: Registered) -> None:
        found = self._loaded(table)
        if found is not None and candidates:
            self._strike(candidates, *found, f"table {table.name}")

    def _strike_distant(
        self, candidates: Candidates, tables: Sequence[tuple[Registered, Places]]
    ) -> None:
        """Read the manifests of tables elsewhere too, smallest first, as long as that is cheap: one
        may have registered the files without a trace in its properties."""
        left = CHEAP_SNAPSHOTS
        for table, places in sorted(tables, key=lambda one: one[1].snapshots):
            left -= max(1, places.snapshots)
            if left < 0 or not candidates:
                return
            try:
                self._strike_table(candidates, table)
            except Unasked:  # its own damage; its places rule it out
                continue

    def _strike(self, candidates: Candidates, io: Any, chain: Chain, whose: str) -> None:
        try:
            self._resolver.strike(candidates, files_of(io, chain, self.cache_dir, self._read))
        except Exception as error:  # as above
            raise Unasked(f"{whose} cannot be asked: {_why(error)}") from error

    def _places(self, roots: Iterable[str]) -> frozenset[Steps]:
        return frozenset(
            place
            for root in roots
            for path in {root, self._resolver.real(root)}
            for place in locations_of(path)
        )

    def _all(self, work: Any, items: Sequence[Any]) -> Iterator[Any]:
        """Yield what the work finds of each item, None left out. Raises Unasked once it takes too
        long."""
        until = time.monotonic() + MOST_SECONDS
        with ThreadPoolExecutor(ASKERS) as pool:
            for start in range(0, len(items), 8 * ASKERS):
                if time.monotonic() > until:
                    raise Unasked(
                        f"after {MOST_SECONDS:.0f} s only {count(start)} of "
                        f"{plural(len(items), 'table')} had answered"
                    )
                found = pool.map(carried(work), items[start : start + 8 * ASKERS])
                yield from (one for one in list(found) if one is not None)


def _why(error: Exception) -> str:
    if isinstance(error, ReconcilerError):
        return "; ".join((error.what, *error.details[:1]))
    return said(error)
