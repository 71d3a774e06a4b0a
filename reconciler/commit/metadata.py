"""Applies updates to table metadata as Iceberg's Java library does; both in their JSON forms.

A REST catalog applies the updates of a request by itself. For a SQL catalog the client writes the
new metadata file, and unknown fields of the present one must stay. Format: Apache Iceberg table
specification, "Table Metadata", and its REST specification, `TableUpdate`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from reconciler.table.flags import flag
from reconciler.table.numbers import PREVIOUS_VERSIONS, number, readable

Document = Mapping[str, Any]
Update = Mapping[str, Any]

DELETE_AFTER = "write.metadata.delete-after-commit.enabled"
METADATA_PATH = "write.metadata.path"
COMPRESSION = "write.metadata.compression-codec"
MAIN = "main"
NO_SNAPSHOT = -1
FIRST_PARTITION_ID = 1000
"""The least id of a partition field, as Iceberg gives them."""
NEWEST_VERSION = 2
"""The newest format of tables whose snapshots are written here: pyiceberg writes no newer one."""


class InvalidUpdate(ValueError):
    """An update does not fit the metadata."""


def applied(
    base: Document, updates: Iterable[Update], location: str, now_ms: int
) -> dict[str, Any]:
    """Return the metadata after the updates. location: of the base's metadata file. now_ms: a time
    before the base's own counts as that, since readers refuse a log that goes back in time."""
    now_ms = max(now_ms, latest_ms(base))
    made = dict(base)
    made.pop("last-updated-ms", None)
    removed = False
    for update in updates:
        action = str(update["action"])
        if action not in _APPLY:
            raise InvalidUpdate(f"the update {action} is not known")
        _APPLY[action](made, update, now_ms)
        removed = removed or action == "remove-snapshots"
    made.setdefault("last-updated-ms", now_ms)
    if removed:
        made["snapshot-log"] = _without_gaps(made)
    made["metadata-log"] = _previous(base, made, location)
    if int(made["format-version"]) == 1:
        _as_version_1(made)
    return made


def completed(metadata: Document) -> dict[str, Any]:
    """Return metadata with the lists that format 1 did not always have, as Iceberg's Java library
    reads such a file (`TableMetadataParser`)."""
    made = dict(metadata)
    if "schemas" not in made:
        schema = {"schema-id": 0, **made["schema"]}
        made |= {"schemas": [schema], "current-schema-id": schema["schema-id"]}
    if "partition-specs" not in made:
        fields = [
            {"field-id": FIRST_PARTITION_ID + number, **one}
            for number, one in enumerate(made.get("partition-spec") or ())
        ]
        made |= {"partition-specs": [{"spec-id": 0, "fields": fields}], "default-spec-id": 0}
    if "last-partition-id" not in made:
        made["last-partition-id"] = max(
            (int(one["field-id"]) for spec in made["partition-specs"] for one in spec["fields"]),
            default=FIRST_PARTITION_ID - 1,
        )
    if "sort-orders" not in made:
        made |= {"sort-orders": [{"order-id": 0, "fields": []}], "default-sort-order-id": 0}
    return made


def latest_ms(metadata: Document) -> int:
    """Return the latest time that metadata names as a time of its own change."""
    log = metadata.get("snapshot-log") or ()
    return max([int(metadata["last-updated-ms"]), *(int(one["timestamp-ms"]) for one in log[-1:])])


def _add_snapshot(made: dict[str, Any], update: Update, now_ms: int) -> None:
    snapshot = update["snapshot"]
    if any(one["snapshot-id"] == snapshot["snapshot-id"] for one in snapshots_of(made)):
        raise InvalidUpdate(f"snapshot {snapshot['snapshot-id']} exists already")
    number = int(snapshot.get("sequence-number", 0))
    if int(made["format-version"]) > 1:
        parent = snapshot.get("parent-snapshot-id")
        if number <= int(made.get("last-sequence-number", 0)) and parent is not None:
            raise InvalidUpdate(f"the sequence number {number} is not above the last one")
        made["last-sequence-number"] = number
    made["snapshots"] = [*snapshots_of(made), snapshot]
    made["last-updated-ms"] = int(snapshot["timestamp-ms"])


def _set_ref(made: dict[str, Any], update: Update, now_ms: int) -> None:
    name, one = str(update["ref-name"]), int(update["snapshot-id"])
    if all(snapshot["snapshot-id"] != one for snapshot in snapshots_of(made)):
        raise InvalidUpdate(f"{name} cannot be set to snapshot {one}, which does not exist")
    ref = {key: value for key, value in update.items() if key not in ("action", "ref-name")}
    refs = dict(refs_of(made))
    if refs.get(name) == ref:
        return
    made["refs"] = {**refs, name: ref}
    if name == MAIN:
        made.setdefault("last-updated-ms", now_ms)
        made["current-snapshot-id"] = one
        entry = {"timestamp-ms": made["last-updated-ms"], "snapshot-id": one}
        made["snapshot-log"] = [*(made.get("snapshot-log") or ()), entry]


def _remove_ref(made: dict[str, Any], update: Update, now_ms: int) -> None:
    name = update["ref-name"]
    made["refs"] = {key: ref for key, ref in refs_of(made).items() if key != name}
    if name == MAIN:
        made["current-snapshot-id"] = NO_SNAPSHOT


def _remove_snapshots(made: dict[str, Any], update: Update, now_ms: int) -> None:
    gone = set(update["snapshot-ids"])
    made["snapshots"] = [one for one in snapshots_of(made) if one["snapshot-id"] not in gone]
    made["refs"] = {
        name: ref for name, ref in refs_of(made).items() if ref["snapshot-id"] not in gone
    }
    for key in ("statistics", "partition-statistics"):
        if made.get(key):
            made[key] = [one for one in made[key] if one["snapshot-id"] not in gone]
    if made.get("current-snapshot-id") in gone:
        made["current-snapshot-id"] = NO_SNAPSHOT


def _set_statistics(made: dict[str, Any], update: Update, now_ms: int) -> None:
    item = update["statistics"]
    one = int(item["snapshot-id"])
    if all(snapshot["snapshot-id"] != one for snapshot in snapshots_of(made)):
        raise InvalidUpdate(f"statistics name snapshot {one}, which does not exist")
    others = [old for old in made.get("statistics") or () if old["snapshot-id"] != one]
    made["statistics"] = [*others, item]


def _set_properties(made: dict[str, Any], update: Update, now_ms: int) -> None:
    made["properties"] = {**(made.get("properties") or {}), **update["updates"]}


def _remove_properties(made: dict[str, Any], update: Update, now_ms: int) -> None:
    gone = set(update["removals"])
    kept = (made.get("properties") or {}).items()
    made["properties"] = {key: value for key, value in kept if key not in gone}


def _add(key: str, of: str, number: str) -> Callable[[dict[str, Any], Update, int], None]:
    """Return what adds an item of its own id to a list of the metadata."""

    def add(made: dict[str, Any], update: Update, now_ms: int) -> None:
        item = update[of]
        if any(one[number] == item[number] for one in made[key]):
            raise InvalidUpdate(f"{of} {item[number]} exists already")
        made[key] = [*made[key], item]
        if key == "partition-specs":
            ids = [int(field["field-id"]) for field in item["fields"]]
            made["last-partition-id"] = max([int(made["last-partition-id"]), *ids])
        if key == "schemas":
            made["last-column-id"] = max(int(made["last-column-id"]), *ids_of(item))

    return add


def ids_of(kind: Any) -> list[int]:
    """Return the ids of all fields of a schema."""
    if isinstance(kind, str):
        return []
    found = [int(field["id"]) for field in kind.get("fields", ())]
    for field in kind.get("fields", ()):
        found += ids_of(field["type"])
    for part in ("element", "key", "value"):
        if part in kind:
            found += [int(kind[f"{part}-id"]), *ids_of(kind[part])]
    return found


def _choose(key: str, of: str, current: str, number: str) -> Callable[..., None]:
    """Return what makes an item the current one; -1 means the one that was added last."""

    def choose(made: dict[str, Any], update: Update, now_ms: int) -> None:
        wanted = int(update[of])
        if wanted == -1:
            wanted = int(made[key][-1][number])
        if all(int(one[number]) != wanted for one in made[key]):
            raise InvalidUpdate(f"there is no {of} {wanted}")
        made[current] = wanted

    return choose


def _drop(key: str, of: str, current: str, number: str) -> Callable[..., None]:
    def drop(made: dict[str, Any], update: Update, now_ms: int) -> None:
        gone = set(update[of])
        if made[current] in gone:
            raise InvalidUpdate(f"{of} names the current one")
        made[key] = [one for one in made[key] if one[number] not in gone]

    return drop


_APPLY: Mapping[str, Callable[[dict[str, Any], Update, int], None]] = {
    "add-snapshot": _add_snapshot,
    "set-snapshot-ref": _set_ref,
    "remove-snapshot-ref": _remove_ref,
    "remove-snapshots": _remove_snapshots,
    "set-statistics": _set_statistics,
    "set-properties": _set_properties,
    "remove-properties": _remove_properties,
    "add-sort-order": _add("sort-orders", "sort-order", "order-id"),
    "set-default-sort-order": _choose(
        "sort-orders", "sort-order-id", "default-sort-order-id", "order-id"
    ),
    "add-spec": _add("partition-specs", "spec", "spec-id"),
    "set-default-spec": _choose("partition-specs", "spec-id", "default-spec-id", "spec-id"),
    "remove-partition-specs": _drop("partition-specs", "spec-ids", "default-spec-id", "spec-id"),
    "add-schema": _add("schemas", "schema", "schema-id"),
    "set-current-schema": _choose("schemas", "schema-id", "current-schema-id", "schema-id"),
    "remove-schemas": _drop("schemas", "schema-ids", "current-schema-id", "schema-id"),
}


def _without_gaps(made: Document) -> list[Any]:
    """Return the log of snapshots behind its last entry whose snapshot is gone: time travel would
    else find another snapshot than was current then."""
    known = {one["snapshot-id"] for one in snapshots_of(made)}
    kept: list[Any] = []
    for entry in made.get("snapshot-log") or ():
        kept = [*kept, entry] if entry["snapshot-id"] in known else []
    return kept


def _previous(base: Document, made: Document, location: str) -> list[Any]:
    """Return the log of metadata files with the base's own."""
    most = max(1, number(made.get("properties") or {}, PREVIOUS_VERSIONS, 100))
    log = [*(base.get("metadata-log") or ())]
    entry = {"timestamp-ms": int(base["last-updated-ms"]), "metadata-file": location}
    return [*log, entry][-most:]


def _as_version_1(made: dict[str, Any]) -> None:
    """Keep the fields that version 1 has besides the lists."""
    current, default = made["current-schema-id"], made["default-spec-id"]
    made["schema"] = next(one for one in made["schemas"] if one["schema-id"] == current)
    spec = next(one for one in made["partition-specs"] if one["spec-id"] == default)
    made["partition-spec"] = spec["fields"]


def snapshots_of(metadata: Document) -> Sequence[Mapping[str, Any]]:
    return metadata.get("snapshots") or ()


def refs_of(metadata: Document) -> Mapping[str, Mapping[str, Any]]:
    """Return branches and tags by name; metadata without them has a main branch at its current
    snapshot."""
    found = metadata.get("refs") or {}
    current = metadata.get("current-snapshot-id")
    if MAIN not in found and current not in (None, NO_SNAPSHOT):
        return {**found, MAIN: {"snapshot-id": current, "type": "branch"}}
    return dict(found)


def removed_files(base: Document, made: Document) -> list[str]:
    """Return metadata files that may be deleted after the commit, as the table's properties ask:
    none if they do not say how many are to be kept."""
    properties = made.get("properties") or {}
    told = PREVIOUS_VERSIONS not in properties or PREVIOUS_VERSIONS in readable(properties)
    if not told or not flag(properties, DELETE_AFTER, default=False):
        return []
    kept = {one["metadata-file"] for one in made.get("metadata-log") or ()}
    log = (one["metadata-file"] for one in base.get("metadata-log") or ())
    return [path for path in log if path not in kept]


def directory(metadata: Document) -> str:
    """Return where the table's metadata files are."""
    path = (metadata.get("properties") or {}).get(METADATA_PATH)
    return str(path).rstrip("/") if path else f"{str(metadata['location']).rstrip('/')}/metadata"


def next_file(metadata: Document, location: str, name: str) -> str:
    """Return the path of the metadata file after the one at `location`. name: part of its name."""
    found = re.match(r"(\d+)-", location.rpartition("/")[2])
    number = int(found[1]) + 1 if found else 0
    codec = str((metadata.get("properties") or {}).get(COMPRESSION, "none")).lower()
    end = ".gz.metadata.json" if codec == "gzip" else ".metadata.json"
    return f"{directory(metadata)}/{number:05d}-{name}{end}"
