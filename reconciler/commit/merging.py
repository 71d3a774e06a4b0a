"""Which manifests of a new snapshot are merged, by the rules of Iceberg's Java library."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from reconciler.commit import fields
from reconciler.commit.manifest import Entry, ManifestFile
from reconciler.table.flags import flag
from reconciler.table.numbers import LEAST_MERGED, MANIFEST_BYTES, number

ENABLED = "commit.manifest-merge.enabled"


@dataclass(frozen=True, slots=True)
class Settings:
    """When manifests are merged, by the table's properties."""

    enabled: bool
    """Whether they are at all."""
    target: int
    """Bytes of a merged manifest, at most."""
    least: int
    """Manifests, from which on those are merged with the first one."""


def settings(properties: Mapping[str, str]) -> Settings:
    return Settings(
        flag(properties, ENABLED, default=True),
        number(properties, MANIFEST_BYTES, 8 << 20),
        number(properties, LEAST_MERGED, 100),
    )


@dataclass(eq=False, slots=True)
class Pending:
    """A manifest of this commit that was not written yet."""

    spec_id: int
    """Partition spec of its files."""
    content: int
    """Content of the manifest."""
    entries: list[Entry]
    """What it holds."""
    length: int
    """Bytes, about."""


Item = Pending | ManifestFile


def merged(
    items: Sequence[Item],
    given: Settings,
    merge: Callable[[Sequence[Item]], ManifestFile],
    snapshot_id: int,
) -> tuple[list[Item], int]:
    """Return the manifests after merging, and how many that were not of this commit it replaced.

    The bins are those of Java's ListPacker with one open bin, filled from the end: the first bin,
    which the next commit merges again, is the one that is not full.
    """
    if not given.enabled or not items:
        return list(items), 0
    first, found, replaced = items[0], [], 0
    groups: dict[int, list[Item]] = {}
    for item in items:
        groups.setdefault(_spec(item), []).append(item)
    for spec_id in sorted(groups, reverse=True):
        for some in bins(groups[spec_id], given.target):
            has_first = any(item is first for item in some)
            if len(some) == 1 or (has_first and len(some) < given.least):
                found += some
                continue
            found.append(merge(some))
            replaced += sum(
                not isinstance(item, Pending) and item[fields.M_SNAPSHOT] != snapshot_id
                for item in some
            )
    return found, replaced


def bins(items: Sequence[Item], target: int) -> list[list[Item]]:
    """Return runs of the items of at most `target` bytes each, filled from the end."""
    found: list[list[Item]] = []
    size = 0
    for item in reversed(items):
        length = item.length if isinstance(item, Pending) else int(item[fields.M_LENGTH])
        if not found or size + length > target:
            found.append([])
            size = 0
        found[-1].append(item)
        size += length
    return [some[::-1] for some in reversed(found)]


def _spec(item: Item) -> int:
    return item.spec_id if isinstance(item, Pending) else int(item[fields.M_SPEC])
