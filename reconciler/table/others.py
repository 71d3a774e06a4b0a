"""Finds who else decides on a table's layout: a person who paused it, or another optimizer.

Two programs that rewrite the same files lose each other's work to conflicts, and each of them pays
for what the other one undoes. The facts are the table's properties, its location and its history;
what follows from them is decided in `plan.gate`, and again at each commit
(`engines.commit.standing`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from reconciler.format import plural, utc
from reconciler.table.observation import Observation, SnapshotInfo
from reconciler.table.times import DAY_MS

PAUSED = "layout.paused"
"""Table property by which a person stops every action of ours on the table; its value says why."""

SEEN_MS = 7 * DAY_MS
"""How long a rewrite by another program counts: one that was switched off is forgotten then."""

_OFF = ("", "false")
_ON = "true"
_REMOVED = ("deleted-data-files", "removed-delete-files")
"""Summary keys with the number of files that a commit removed."""
_PLACES = (
    ("--table-s3/", "the bucket is one of S3 Tables, which compacts its tables unless that is "
     "disabled"),
    ("/__unitystorage/", "Unity Catalog manages the storage, where predictive optimization runs "
     "unless that is disabled"),
)  # fmt: skip
"""Parts of a location by which a service is known that rewrites by itself."""
_NAMES = ("engine-name", "app-id")
MOST_TEXT = 200
"""Characters of a property's value that are shown."""


def paused_because(properties: Mapping[str, str]) -> str:
    """Return that the table is paused, and why if its property says so; "" if it is not."""
    value = properties.get(PAUSED, "").strip()
    if value.lower() in _OFF:
        return ""
    why = "" if value.lower() == _ON else f": {_short(value)}"
    return f"the table property {PAUSED} is set{why}"


def _short(text: str) -> str:
    """Return the text on one line: the next one of what is printed is ours."""
    return " ".join(text.split())[:MOST_TEXT]


def other_optimizer(observation: Observation, now_ms: int) -> str:
    """Return the evidence that another program rewrites the table's files; "" if there is none."""
    found = [
        *_of_properties(observation.properties),
        *_of_location(observation.location),
        *_of_history(observation.ancestry, now_ms),
    ]
    return "; ".join(found)


def _of_properties(properties: Mapping[str, str]) -> Iterator[str]:
    """Amoro optimizes a table that it knows unless `self-optimizing.enabled` is false
    (amoro.apache.org, table configurations)."""
    named = sorted(name for name in properties if name.startswith("self-optimizing."))
    if named and properties.get("self-optimizing.enabled", _ON).strip().lower() != "false":
        yield f"the table property {named[0]} is Amoro's, and self-optimizing is not disabled"


def _of_location(location: str) -> Iterator[str]:
    for part, text in _PLACES:
        if part in f"{location}/":
            yield text


def _of_history(ancestry: Sequence[SnapshotInfo], now_ms: int) -> Iterator[str]:
    """Rewrites of manifests replace no content file, and are none."""
    theirs = [
        one
        for one in ancestry
        if one.operation == "replace"
        and not one.ours
        and one.timestamp_ms >= now_ms - SEEN_MS
        and any(one.summary.get(key, "0") not in ("", "0") for key in _REMOVED)
    ]
    if theirs:
        last = theirs[0]
        by = next((last.summary[name] for name in _NAMES if last.summary.get(name)), "")
        yield (
            f"{plural(len(theirs), 'commit')} of another writer replaced files, the last at "
            f"{utc(last.timestamp_ms)}{f' by {_short(by)}' if by else ''}"
        )
