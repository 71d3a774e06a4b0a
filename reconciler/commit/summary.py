"""What a snapshot's summary says about its files, as Iceberg's Java library counts and names it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from reconciler.commit import partitions
from reconciler.commit.manifest import DATA, POSITION_DELETES, File, Layout

_NAMES = {
    "files": ("added-data-files", "deleted-data-files"),
    "equality files": ("added-equality-delete-files", "removed-equality-delete-files"),
    "position files": ("added-position-delete-files", "removed-position-delete-files"),
    "delete files": ("added-delete-files", "removed-delete-files"),
    "records": ("added-records", "deleted-records"),
    "size": ("added-files-size", "removed-files-size"),
    "positions": ("added-position-deletes", "removed-position-deletes"),
    "keys": ("added-equality-deletes", "removed-equality-deletes"),
}
"""Names of a count of what was added, and of what was removed, in the order of the summary."""
_TOTALS = {
    "total-records": "records", "total-files-size": "size", "total-data-files": "files",
    "total-delete-files": "delete files", "total-position-deletes": "positions",
    "total-equality-deletes": "keys",
}  # fmt: skip


class Counts:
    """Counts the files of one commit."""

    def __init__(self) -> None:
        self._all: Counter[str] = Counter()
        self._by_partition: dict[tuple[object, ...], Counter[str]] = {}
        self._example: dict[tuple[object, ...], tuple[Layout, File]] = {}

    def added(self, layout: Layout, file: File) -> None:
        self._count(layout, file, removed=False)

    def removed(self, layout: Layout, file: File) -> None:
        self._count(layout, file, removed=True)

    def _count(self, layout: Layout, file: File, *, removed: bool) -> None:
        names = tuple((one.name, one.transform) for one in layout.partition)
        key = (names, partitions.key(file.partition, layout.partition))
        counted = self._by_partition.setdefault(key, Counter())
        self._example.setdefault(key, (layout, file))
        for name, number in _counted(file).items():
            counted[_NAMES[name][removed]] += number
            self._all[_NAMES[name][removed]] += number

    def fields(self, limit: int) -> dict[str, str]:
        """Return the fields of the summary. limit: most partitions that are listed."""
        found = _positive(self._all)
        found["changed-partition-count"] = str(len(self._by_partition))
        if 0 < len(self._by_partition) <= limit:
            found["partition-summaries-included"] = "true"
            for key, counted in self._by_partition.items():
                layout, file = self._example[key]
                path = partitions.path(layout.partition, file.partition)
                if not path:  # of an unpartitioned spec: Java has no field for it
                    continue
                text = ",".join(f"{name}={value}" for name, value in _positive(counted).items())
                found[f"partitions.{path}"] = text
        return found


def _counted(file: File) -> dict[str, int]:
    if file.content == DATA:
        return {"size": file.size, "files": 1, "records": file.records}
    if file.content == POSITION_DELETES:
        return {"size": file.size, "position files": 1, "delete files": 1,
                "positions": file.records}  # fmt: skip
    return {"size": file.size, "equality files": 1, "delete files": 1, "keys": file.records}


def _positive(counted: Mapping[str, int]) -> dict[str, str]:
    names = (name for pair in _NAMES.values() for name in pair)
    return {name: str(counted[name]) for name in names if counted[name] > 0}


def with_totals(found: Mapping[str, str], before: Mapping[str, str] | None) -> dict[str, str]:
    """Return a summary with the totals of the table. before: the summary of the parent, None if
    there is no parent."""
    known = dict.fromkeys(_TOTALS, "0") if before is None else before
    totals = {}
    for total, name in _TOTALS.items():
        try:
            value = int(known[total]) + sum(
                sign * int(found.get(key, "0"))
                for sign, key in zip((1, -1), _NAMES[name], strict=True)
            )
        except (KeyError, ValueError):
            continue
        if value >= 0:
            totals[total] = str(value)
    return {**found, **totals}


def manifests(created: int, kept: int, replaced: int) -> dict[str, str]:
    return {
        "manifests-created": str(created), "manifests-kept": str(kept),
        "manifests-replaced": str(replaced),
    }  # fmt: skip
