"""Reads a table's properties that are numbers.

Iceberg's Java library raises where a text is no number, or one out of range. Here the property
counts as not set then, and the plan says so (`unread`). Where a retention cannot be read, every
snapshot is kept (`table.retention`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from reconciler.table.left_to_spark import (
    BLOOM,
    CODEC,
    DEFAULT_CODEC,
    DICTIONARY,
    LEVEL,
    PAGE_BYTES,
    PAGE_LIMIT,
    ROW_GROUP,
)

BLOOM_BYTES, BLOOM_NDV, BLOOM_FPP = f"{BLOOM}max-bytes", f"{BLOOM}ndv", f"{BLOOM}fpp"
FILE_BYTES, MANIFEST_BYTES = "write.target-file-size-bytes", "commit.manifest.target-size-bytes"
LEAST_MERGED = "commit.manifest.min-count-to-merge"
PREVIOUS_VERSIONS = "write.metadata.previous-versions-max"
LISTED_PARTITIONS = "write.summary.partition-limit"
INFERRED_COLUMNS = "write.metadata.metrics.max-inferred-column-defaults"
MAX_AGE_MS, LEAST_SNAPSHOTS = (
    "history.expire.max-snapshot-age-ms",
    "history.expire.min-snapshots-to-keep",
)
LEAST = {
    ROW_GROUP: 1, PAGE_BYTES: 1, PAGE_LIMIT: 1, DICTIONARY: 1, BLOOM_BYTES: 1, BLOOM_NDV: 1,
    FILE_BYTES: 1, MANIFEST_BYTES: 1, LEAST_MERGED: 0, PREVIOUS_VERSIONS: 0, LISTED_PARTITIONS: 0,
    INFERRED_COLUMNS: 0, MAX_AGE_MS: 0, LEAST_SNAPSHOTS: 0,
}  # fmt: skip
"""The whole numbers that are read here, and the least that each may be. A column's property has
".column." and the column's name behind one of these."""
LONGS = frozenset({FILE_BYTES, MANIFEST_BYTES, MAX_AGE_MS, BLOOM_NDV})
"""Those of LEAST that Iceberg reads as a long; it reads the others as an int."""
COMMITS = {
    MANIFEST_BYTES: 63, LEAST_MERGED: 31, LISTED_PARTITIONS: 31, PREVIOUS_VERSIONS: 31,
    "commit.retry.num-retries": 31, "commit.retry.min-wait-ms": 31,
    "commit.retry.max-wait-ms": 31, "commit.retry.total-timeout-ms": 31,
}  # fmt: skip
"""The bits, without the sign, of the numbers that Iceberg's Java library reads for a commit."""
RETENTION = (MAX_AGE_MS, LEAST_SNAPSHOTS)
"""Those that say which snapshots are kept."""
LEVELS = {"zstd": (-(1 << 17), 22), "gzip": (0, 9)}
"""The least and the greatest level of a codec; other codecs have none."""
DELETES = "write.delete."
"""Begins the properties of delete files, which else have those of data files ("write.")."""
MOST_SHOWN = 40
"""Characters of a text that is no number, in a plan."""
_WHOLE = re.compile(r"[+-]?0{0,99}[0-9]{1,19}", re.ASCII)
_REAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?", re.ASCII)


def number(properties: Mapping[str, str], name: str, default: int) -> int:
    """Return the whole number of a property of `LEAST`, or of a column of one; `default` if it is
    not set or `unread`."""
    found = _of_setting(properties.get(name), _setting(name))
    return default if found is None else found


def is_unread(properties: Mapping[str, str], name: str) -> bool:
    """Whether a property of `LEAST` is set to no valid number."""
    return name in properties and _of_setting(properties[name], _setting(name)) is None


def stops_java(properties: Mapping[str, str]) -> str:
    """Return the property at which each commit of Iceberg's Java library raises, with its text, ""
    if there is none."""
    for name, bits in COMMITS.items():
        text = properties.get(name)
        if text is not None and _whole(text, -(1 << bits), (1 << bits) - 1) is None:
            return _told(properties, name)
    return ""


def share(properties: Mapping[str, str], name: str, default: float) -> float:
    """Return the number between 0 and 1 of a property, both left out; `default` if it is not set or
    `unread`."""
    found = _share(properties.get(name))
    return default if found is None else found


def level(text: str | None, codec: str, default: int | None) -> int | None:
    """Return a codec's level; `default` if the text is None or no level of it, None if it has
    none."""
    if codec not in LEVELS:
        return None
    found = _whole(text, *LEVELS[codec])
    return default if found is None else found


def readable(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties without those that are `unread`, at which Iceberg's writer raises."""
    wrong = frozenset(_wrong(properties))
    return {name: text for name, text in properties.items() if name not in wrong}


def unread(properties: Mapping[str, str]) -> str:
    """Return which properties cannot be read, with their texts and what holds instead; "" if there
    are none."""
    wrong = sorted(_wrong(properties))
    ages = [name for name in wrong if name in RETENTION]
    others = [name for name in wrong if name not in RETENTION]
    said = []
    if others:
        listed = ", ".join(_told(properties, name) for name in others)
        said.append(f"a value that is no valid number counts as not set: {listed}")
    if ages:
        listed = ", ".join(_told(properties, name) for name in ages)
        said.append(f"every snapshot is kept while this is no valid number: {listed}")
    return "; ".join(said)


def _told(properties: Mapping[str, str], name: str) -> str:
    return f"{name} is {json.dumps(str(properties[name])[:MOST_SHOWN])}"


def _wrong(properties: Mapping[str, str]) -> Iterator[str]:
    return (name for name, text in properties.items() if _is_wrong(properties, name, text))


def _is_wrong(properties: Mapping[str, str], name: str, text: str) -> bool:
    setting = _setting(name)
    if setting in LEAST:
        return _of_setting(text, setting) is None
    if setting == BLOOM_FPP:
        return _share(text) is None
    if name in (LEVEL, _of_deletes(LEVEL)):
        codec = _codec(properties, deletes=name != LEVEL)
        return codec in LEVELS and level(text, codec, None) is None
    return False


def _setting(name: str) -> str:
    return name.partition(".column.")[0]


def _of_deletes(name: str) -> str:
    return name.replace("write.", DELETES, 1)


def _codec(properties: Mapping[str, str], *, deletes: bool) -> str:
    own = properties.get(_of_deletes(CODEC)) if deletes else None
    return (own or properties.get(CODEC) or DEFAULT_CODEC).lower()


def _of_setting(text: str | None, setting: str) -> int | None:
    bits = 63 if setting in LONGS else 31
    return _whole(text, LEAST[setting], (1 << bits) - 1)


def _whole(text: str | None, least: int, most: int) -> int | None:
    if text is None or _WHOLE.fullmatch(str(text)) is None:
        return None
    found = int(text)
    return found if least <= found <= most else None


def _share(text: str | None) -> float | None:
    if text is None or _REAL.fullmatch(str(text)) is None:
        return None
    found = float(text)
    return found if 0.0 < found < 1.0 else None
