"""What the policies of a catalog allow on a table, as bounds of what ours ask for.

Apache Polaris keeps policies beside the tables: data compaction, metadata compaction, snapshot
expiry and orphan file removal (polaris.apache.org, "Policy", schemas of 2025-02-03). Each has
`enable`, and settings. Where one is false, the work is not done, whatever our policy asks for; its
settings only ever make ours more careful. `catalog.policies` reads them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from reconciler.format import utc
from reconciler.table.orphans import Search
from reconciler.table.retention import Retention
from reconciler.table.times import DAY_MS

COMPACTION, METADATA = "data compaction", "metadata compaction"
EXPIRY, ORPHANS = "snapshot expiry", "orphan file removal"
TYPES = {f"system.{one.replace(' ', '-')}": one for one in (COMPACTION, METADATA, EXPIRY, ORPHANS)}
"""What each predefined type of policies is about, and may forbid."""
LEAST_TARGET, MOST_TARGET = 1 << 20, 16 << 30
"""Bytes that a file's target size may have: anything else is a mistake, and is not followed."""
MOST_DAYS = 100_000
MOST_NAME = 64
"""Characters of a policy's name that are shown."""


@dataclass(frozen=True, slots=True)
class CatalogBounds:
    """What the catalog's policies on one table say."""

    forbidden: Mapping[str, str]
    """The text of the policy that forbids a kind of work, by kind."""
    target_bytes: int | None = None
    """Target size of data files; None if no policy names one."""
    least_age_ms: int = 0
    """Snapshots of a lower age stay."""
    least_snapshots: int = 0
    """So many snapshots stay."""
    orphan_age_ms: int = 0
    """Orphan files of a lower age stay."""
    orphans_before_ms: int | None = None
    """Orphan files that were written later stay; None for none."""
    unread: str = ""
    """Why the policies could not be read, "" if they were."""

    def forbids(self, kinds: Iterable[str]) -> str:
        """Return why something of these kinds may not be done, "" if all may."""
        return next((self.forbidden[one] for one in kinds if one in self.forbidden), "")

    def retention(self, asked: Retention) -> Retention:
        """Return the rule for snapshots that keeps what either side keeps."""
        return replace(
            asked,
            max_age_ms=max(asked.max_age_ms, self.least_age_ms),
            least=max(asked.least, self.least_snapshots),
        )

    def keeps_orphans(self, age_ms: int, now_ms: int) -> str:
        """Return why orphan files of this age may not be removed now, "" if they may."""
        before = self.orphans_before_ms
        if before is None or now_ms - age_ms <= before:
            return ""
        return f"the catalog's policy lets only files from before {utc(before)} be removed"

    def search(self, asked: Search) -> Search:
        """Return the search that finds no younger file than either side removes."""
        return replace(asked, older_than_ms=max(asked.older_than_ms, self.orphan_age_ms))


NO_BOUNDS = CatalogBounds({})
"""The bounds of a catalog without policies."""


def bounds_of(policies: Iterable[Any]) -> CatalogBounds:
    """Return the bounds by the documents that apply to a table.

    A document that cannot be read forbids what its type is about: what it meant is not known.
    Documents of other types say nothing.
    """
    found = NO_BOUNDS
    for document in policies:
        if not isinstance(document, Mapping):
            continue
        about = TYPES.get(str(document.get("policy-type", document.get("type", ""))))
        if about is None:
            continue
        name = f'the policy "{str(document.get("name", ""))[:MOST_NAME]}" of the catalog'
        content = _content(document.get("content"))
        enabled = None if content is None else content.get("enable")
        if content is None or not isinstance(enabled, bool):
            found = _with(found, about, f"{name} ({about}) cannot be read")
        elif not enabled:
            found = _with(found, about, f"{name} disables {about}")
        else:
            found = _bounded(found, about, content, name)
    return found


def _with(found: CatalogBounds, about: str, why: str) -> CatalogBounds:
    return replace(found, forbidden={**found.forbidden, about: why})


def _content(given: Any) -> Mapping[str, Any] | None:
    """Return the rules: the specification sends JSON as text, its examples an object."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            return None
    return given if isinstance(given, Mapping) else None


_LIMITS = {
    EXPIRY: {"max_snapshot_age_days": MOST_DAYS, "min_snapshot_to_keep": 1 << 31},
    ORPHANS: {"max_orphan_file_age_in_days": MOST_DAYS, "older_than": 1 << 40},
}
"""The most that settings may say, by what they are about: what is beyond cannot be meant."""


def _bounded(
    found: CatalogBounds, about: str, content: Mapping[str, Any], name: str
) -> CatalogBounds:
    """Return the bounds with the settings of one policy. They stand in the document or in its map
    `config`, by the version of the schema. What keeps files and cannot be read forbids to remove
    any. Of two policies that keep files the more careful one counts; of two target sizes the last
    one."""
    config = {} if (given := content.get("config")) is None else _content(given)
    if config is None and about in _LIMITS:
        return _with(found, about, f"{name} ({about}) has settings that cannot be read")
    settings = {**(config or {}), **content}
    if about == COMPACTION:
        size = _number(settings.get("target_file_size_bytes"), MOST_TARGET)
        return replace(found, target_bytes=int(size)) if size and size >= LEAST_TARGET else found
    limits = _LIMITS.get(about, {})
    asked = {key: settings[key] for key in limits if settings.get(key) is not None}
    read = {key: _number(given, limits[key]) for key, given in asked.items()}
    if None in read.values():
        return _with(found, about, f"{name} ({about}) has a setting that cannot be read")
    if about == EXPIRY:
        return replace(
            found,
            least_age_ms=max(
                found.least_age_ms, math.ceil((read.get("max_snapshot_age_days") or 0) * DAY_MS)
            ),
            least_snapshots=max(
                found.least_snapshots, math.ceil(read.get("min_snapshot_to_keep") or 0)
            ),
        )
    if about == ORPHANS:
        age = math.ceil((read.get("max_orphan_file_age_in_days") or 0) * DAY_MS)
        moments = [found.orphans_before_ms, _milliseconds(read.get("older_than"))]
        known = [moment for moment in moments if moment is not None]
        return replace(
            found,
            orphan_age_ms=max(found.orphan_age_ms, age),
            orphans_before_ms=min(known, default=None),
        )
    return found


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else math.floor(seconds * 1000)


def _number(given: Any, most: int) -> float | None:
    """Return a number that is not negative, as JSON or as its text; None for anything else."""
    try:
        number = float(given) if not isinstance(given, bool) else -1.0
    except (TypeError, ValueError, OverflowError):
        return None
    return number if 0 <= number <= most else None
