"""Inputs of an action as manifests describe them, and what is refused until it is safe."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from reconciler.core.schema import SortColumn
from reconciler.core.values import Scalar
from reconciler.errors import UnsupportedError
from reconciler.jobs import iceberg
from reconciler.jobs.group import InputFile, decoded_bytes

SAMPLED_FILES = 16


def refuse_unsafe(spark: Any, table: Any, tasks: Mapping[str, Any], name: str) -> None:
    """Raises UnsupportedError for inputs that a rewrite cannot carry over faithfully yet."""
    supported = (1, 2, 3)
    version = int(spark._jvm.org.apache.iceberg.TableUtil.formatVersion(table))
    if version not in supported:
        raise UnsupportedError(
            f"{name} has Iceberg format version {version}; this version handles 1 to 3",
            do="leave it out of the policy, or use a newer layoutctl",
        )
    if table.properties().get("encryption.key-id") is not None:
        raise _refusal(name, "is encrypted", "leave it out of the policy")
    for path, task in tasks.items():
        file = task.file()
        if file.format().name() != "PARQUET":
            raise _refusal(name, f"has a {file.format().name()} data file: {path}", None)
        if file.keyMetadata() is not None:
            raise _refusal(name, f"has an encrypted data file: {path}", None)
        if task.deletes().size() and iceberg.deletes_of(task).equality:
            raise _refusal(
                name,
                f"has equality deletes on {path}",
                "let the engine that writes them compact them first, or leave the partition out",
            )


def _refusal(name: str, why: str, do: str | None) -> UnsupportedError:
    return UnsupportedError(
        f"{name} {why}",
        details=("Rewriting it is not supported yet. The table was left as it was.",),
        do=do or "leave these files out of the plan (tables.exclude, or another partition)",
    )


def describe(
    spark: Any, table: Any, tasks: Mapping[str, Any], key: Sequence[SortColumn]
) -> list[InputFile]:
    """The chosen tasks (planned with column stats) as values, in order of path."""
    first = table.schema().findField(key[0].field_id) if key else None
    expansion = _expansion(table, tasks)
    described = []
    for path in sorted(tasks):
        file = tasks[path].file()
        size, rows = int(file.fileSizeInBytes()), int(file.recordCount())
        low = high = None
        span = (-math.inf, math.inf)
        if first is not None:
            low = _bound(spark, file.lowerBounds(), first)
            high = _bound(spark, file.upperBounds(), first)
            span = _span(file, first, low, high, key[0].direction == "desc")
        described.append(InputFile(path, size, rows, int(size * expansion), low, high, span))
    return described


def _expansion(table: Any, tasks: Mapping[str, Any]) -> float:
    """Decoded bytes per file byte, from the column sizes of a few files."""
    leaves = _leaf_types(table.schema())
    variable = {i for i, kind in leaves.items() if kind in ("string", "binary")}
    paths = sorted(tasks)
    chosen = paths[:: max(1, len(paths) // SAMPLED_FILES)]
    stored = decoded = 0
    for path in chosen:
        file = tasks[path].file()
        size, rows = int(file.fileSizeInBytes()), int(file.recordCount())
        sizes = file.columnSizes()
        known = dict(sizes) if sizes is not None else {}
        wide = sum(int(v) for k, v in known.items() if int(k) in variable) if known else size
        stored += size
        decoded += decoded_bytes(rows, len(leaves), wide)
    return decoded / max(stored, 1)


def _leaf_types(schema: Any) -> dict[int, str]:
    """Type by field id of the schema's primitive columns, nested ones included."""
    types = {int(i): schema.findType(int(i)) for i in schema.idToName()}
    return {i: str(kind) for i, kind in types.items() if kind.isPrimitiveType()}


def _bound(spark: Any, bounds: Any, field: Any) -> Scalar | None:
    raw = bounds.get(field.fieldId()) if bounds is not None else None
    if raw is None:
        return None
    data = bytes(spark._jvm.org.apache.iceberg.util.ByteBuffers.toByteArray(raw))
    return decode_bound(str(field.type()), data)


def decode_bound(iceberg_type: str, data: bytes) -> Scalar | None:
    """A single-value serialised bound; comparable within its column. None: not comparable here.

    Files written before a column was widened hold the narrower form, so length decides.
    """
    if iceberg_type in ("int", "long", "date", "time") or iceberg_type.startswith("timestamp"):
        return int.from_bytes(data, "little", signed=True)
    if iceberg_type in ("float", "double"):
        value = float(struct.unpack("<f" if len(data) == 4 else "<d", data)[0])
        return None if math.isnan(value) else value
    if iceberg_type.startswith("decimal"):
        return int.from_bytes(data, "big", signed=True)
    if iceberg_type in ("string", "binary", "uuid") or iceberg_type.startswith("fixed"):
        return data
    return None


def _span(
    file: Any, field: Any, low: Scalar | None, high: Scalar | None, descending: bool
) -> tuple[float, float]:
    """Bounds as scores, only where the manifest proves that no null or NaN lies outside them."""
    kind = str(field.type())
    if low is None or high is None or isinstance(low, bytes) or isinstance(high, bytes):
        return (-math.inf, math.inf)
    if kind.startswith("decimal") or _count(file.nullValueCounts(), field) != 0:
        return (-math.inf, math.inf)
    if kind in ("float", "double") and _count(file.nanValueCounts(), field) != 0:
        return (-math.inf, math.inf)
    return (-float(high), -float(low)) if descending else (float(low), float(high))


def _count(counts: Any, field: Any) -> int | None:
    found = counts.get(field.fieldId()) if counts is not None else None
    return None if found is None else int(found)


def extremes(
    spark: Any, table: Any, tasks: Mapping[str, Any], field_id: int
) -> tuple[bytes, bytes]:
    """Least lower and greatest upper bound of a string column; two empty ones if any is unknown."""
    field = table.schema().findField(field_id)
    lows, highs = [], []
    for task in tasks.values():
        low = _bound(spark, task.file().lowerBounds(), field)
        high = _bound(spark, task.file().upperBounds(), field)
        if not isinstance(low, bytes) or not isinstance(high, bytes):
            return b"", b""
        lows.append(low)
        highs.append(high)
    return min(lows), max(highs)
