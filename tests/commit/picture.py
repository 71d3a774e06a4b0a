"""A table's metadata, manifests and entries without what two equal tables differ in."""

from __future__ import annotations

from typing import Any

from reconciler.commit import fields
from reconciler.commit.table import LiveTable

WRITER = ("engine-version", "app-id", "engine-name", "iceberg-version", "app-name", "spark.app.id")
"""Fields of a summary that name the writer."""
_TIMES = ("timestamp-ms", "last-updated-ms")


class Picture:
    """ids become their place in the table's list of snapshots; locations become $."""

    def __init__(self, table: LiveTable) -> None:
        self._table = table
        self._place = {one: f"#{n}" for n, one in enumerate(table.state.snapshots)}
        self._location = str(table.state.metadata["location"]).rstrip("/")

    def metadata(self) -> Any:
        body = dict(self._table.state.metadata)
        for key in ("table-uuid", "location"):
            body.pop(key)
        body["metadata-log"] = len(body.get("metadata-log") or ())
        for key in ("statistics", "partition-statistics"):
            body[key] = body.get(key) or []
        log = [one["snapshot-id"] for one in body.get("snapshot-log") or ()]
        body["snapshot-log"] = [  # Java's way to hold a ref notes it once more
            {"snapshot-id": one} for one, before in zip(log, [None, *log], strict=False)
            if one != before
        ]  # fmt: skip
        return self._plain(body)

    def _plain(self, body: Any, key: str = "") -> Any:
        if isinstance(body, dict):
            hidden = (*_TIMES, *WRITER, "manifest-list")
            kept = {
                name: value
                for name, value in body.items()
                if name not in hidden and value is not None
            }
            for name, default in ("identifier-field-ids", []), ("sequence-number", 0):
                if kept.get(name) == default:
                    del kept[name]
            return {name: self._plain(value, name) for name, value in kept.items()}
        if isinstance(body, list):
            return [self._plain(one) for one in body]
        return self._place.get(body, body) if key.endswith("snapshot-id") else body

    def manifests(self, snapshot_id: int) -> list[Any]:
        """Manifests in order, each with its entries in order."""
        found = []
        manifests = self._table.manifests(snapshot_id)
        for line, entries in zip(manifests, self._table.entries(manifests), strict=True):
            hidden = (fields.M_PATH, fields.M_LENGTH)
            shown = {key: value for key, value in line.items() if key not in hidden}
            shown[fields.M_SNAPSHOT] = self._place.get(shown[fields.M_SNAPSHOT], "gone")
            found.append((shown, [self._entry(entry) for entry in entries]))
        return found

    def _entry(self, entry: Any) -> Any:
        values = {
            key: value for key, value in entry.file.values().items()
            if value not in (None, {}, []) and key != fields.BLOCK_SIZE
        }  # fmt: skip
        values[fields.PARTITION] = repr(values.get(fields.PARTITION))  # NaN is itself
        values[fields.PATH] = values[fields.PATH].replace(self._location, "$")
        return (
            entry.status, self._place.get(entry.snapshot_id, "gone"), entry.sequence,
            entry.file_sequence, values,
        )  # fmt: skip
