"""Describes an action's inputs from their manifest entries, and refuses those not yet safe to
rewrite."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from reconciler.engines.schedule.group import InputFile
from reconciler.engines.table import Table
from reconciler.engines.task_file import TaskFile
from reconciler.errors import UnsupportedError, unsupported_format
from reconciler.plan.leaf_drift import Ends, leaves_between
from reconciler.queries import transforms
from reconciler.rewrite.columns import Column, columns_of, every, leaves
from reconciler.table.cut_tree import Tree
from reconciler.table.left_to_spark import why_left_to_spark
from reconciler.table.schema import METADATA_COLUMNS, SortColumn, SpecField, names_alike
from reconciler.table.uuid_order import UUID
from reconciler.table.values import Kind, Scalar, cut_bound, encode_wide_decimal, kind_of

INTEGERS = ("boolean", "int", "long", "date", "time")
DATE_BYTES = 4
DAY_NANOS = 86_400_000_000_000


def refuse_table(table: Table, name: str) -> None:
    """Raise UnsupportedError for a table that cannot be changed faithfully yet."""
    supported = (1, 2, 3)
    version = table.format_version()
    if version not in supported:
        raise unsupported_format(name, version)
    properties, schema = table.properties(), table.schema()
    if properties.get("encryption.key-id") is not None:
        raise _refusal(name, "is encrypted", "leave it out of the policy")
    reserved = [one["name"] for one in schema["fields"] if one["name"] in METADATA_COLUMNS]
    if reserved:
        raise _refusal(
            name,
            f"has columns with names that Iceberg reserves: {', '.join(reserved)}",
            "rename them, or leave it out of the policy (tables.exclude)",
        )
    alike = names_alike(schema)
    if alike:
        raise _refusal(
            name,
            f"has columns whose names differ only in case: {', '.join(alike)}",
            "rename them, or leave it out of the policy (tables.exclude)",
        )
    refuse_types(table, name, why_left_to_spark(leaves(columns_of(schema)), properties))


def refuse_types(table: Table, name: str, reason: str) -> None:
    """Raise UnsupportedError if Spark does not have the types of a table. reason: why it would
    write the table's files, "" if it would not."""
    foreign = table.columns_unknown_to_spark() if reason else []
    if foreign:
        raise _refusal(
            name,
            f"has columns of types that Spark cannot write: {', '.join(foreign)}",
            f"make it fit for the engine, which leaves its files to Spark because {reason}; or "
            "leave it out of the policy (tables.exclude)",
        )


def refuse_files(table: Table, files: Mapping[str, TaskFile], name: str) -> None:
    """Raise UnsupportedError for inputs that a rewrite cannot reproduce faithfully yet."""
    refuse_partitions(table, files, name)
    for path, file in files.items():
        if file.format != "PARQUET":
            raise _refusal(name, f"has a data file of format {file.format}: {path}", None)
        if file.encrypted:
            raise _refusal(name, f"has an encrypted data file: {path}", None)


def refuse_partitions(table: Table, files: Mapping[str, TaskFile], name: str) -> None:
    """Raise UnsupportedError for data files whose partition cannot be read: a file that was
    imported takes the values of a column that it lacks from there."""
    known = all_ids(table.schema())
    broken = {
        spec_id
        for spec_id, fields in table.specs().items()
        if any(one.source_id not in known for one in fields)
    }
    for path, file in files.items():
        if file.spec_id in broken:
            raise _refusal(name, f"has dropped the column that partitions {path}", None)


def _refusal(name: str, why: str, do: str | None) -> UnsupportedError:
    return UnsupportedError(
        f"{name} {why}",
        details=("Rewriting it is not supported yet. The table was left as it was.",),
        do=do or "leave these files out of the plan (tables.exclude, or another partition)",
    )


def columns_to_describe(keys: Iterable[Sequence[SortColumn]]) -> set[int]:
    """Return the ids of the columns whose statistics `describe` needs: of the keys."""
    return {column.field_id for key in keys for column in key}


def describe(
    table: Table, files: Mapping[str, TaskFile], key: Sequence[SortColumn]
) -> list[InputFile]:
    """Return the chosen files (with statistics of `columns_to_describe`) as values, in order of
    path."""
    kind = types_of(table).get(key[0].field_id, "") if key else ""
    described = []
    for path in sorted(files):
        file = files[path]
        low = high = None
        if kind:
            low, high = _bounds(file, key[0].field_id, kind)
        live = 1.0 - min(1.0, file.deleted / max(file.rows, 1))
        described.append(
            InputFile(
                path, file.size, file.rows, low, high, int(file.size * live), file.sequence
            )
        )  # fmt: skip
    return described


def by_target(
    table: Table, files: Mapping[str, TaskFile], field: SpecField, described: Sequence[InputFile]
) -> list[InputFile]:
    """Return the described files with bounds of their target partitions in place of the key's.

    field: keeps the order of values, so that a file's rows are in no partition outside them.
    """
    kind = types_of(table)[field.source_id]
    found = []
    for file in described:
        task = files[file.path]
        ends = [_bound(bounds, field.source_id, kind) for bounds in (task.lower, task.upper)]
        null = task.nulls.get(field.source_id, 1) > 0
        low, high = None, None
        if None not in ends and transforms.groupable(kind):
            low, high = transforms.apply(field.transform, kind, np.array(ends)).tolist()
        found.append(replace(file, low=low, high=high, null=null))
    return found


def by_leaf(
    table: Table, files: Mapping[str, TaskFile], tree: Tree, described: Sequence[InputFile]
) -> list[InputFile]:
    """Return the described files with the first and the last leaf that may have values of them in
    place of the key's bounds; NULL and NaN count only in files that have nothing else."""
    types, tasks = types_of(table), [files[file.path] for file in described]
    ends = {field: _ends(tasks, field, types[field]) for field in tree.of_column if field in types}
    first, last = leaves_between(tree, ends, len(tasks))
    return [
        replace(file, low=low, high=high)
        for file, low, high in zip(described, first.tolist(), last.tolist(), strict=True)
    ]


def _ends(tasks: Sequence[TaskFile], field_id: int, kind: str) -> Ends:
    """Return the bounds of a column as file tables hold them."""
    wide = kind_of(kind) is Kind.BYTES
    pairs = [
        tuple(_kept(end, wide=wide, upper=upper) for upper, end in enumerate(ends))
        for ends in (_bounds(task, field_id, kind) for task in tasks)
    ]
    known = np.array([None not in pair for pair in pairs], dtype=np.bool_)
    other = next((pair for pair in pairs if None not in pair), (0, 0))
    filled = [other if None in pair else pair for pair in pairs]
    lower, upper = (np.array([pair[side] for pair in filled]) for side in (0, 1))
    only_null = [0 < task.rows == task.nulls.get(field_id) for task in tasks]
    return Ends(lower, upper, known, np.array(only_null, dtype=np.bool_))


def _kept(bound: Scalar | None, *, wide: bool, upper: int) -> Scalar | None:
    """Return a bound in the domain of file tables. wide: whether that is bytes."""
    if isinstance(bound, int) and wide:
        return encode_wide_decimal(bound)
    return cut_bound(bound, upper=bool(upper)) if isinstance(bound, bytes) else bound


def types_of(table: Table) -> dict[int, str]:
    """Return the types of the present columns, at any depth, by field id."""
    return {way[-1].field_id: way[-1].type for way in every(columns_of(table.schema()))}


def _bounds(file: TaskFile, field_id: int, kind: str) -> tuple[Scalar | None, Scalar | None]:
    """Return the bounds of a column, None where they are unknown."""
    low, high = _bound(file.lower, field_id, kind), _bound(file.upper, field_id, kind)
    if kind == UUID and isinstance(low, bytes) and isinstance(high, bytes) and low > high:
        return None, None  # in Java's order: as in file tables they enclose no value
    return low, high


def _bound(bounds: Mapping[int, bytes], field_id: int, kind: str) -> Scalar | None:
    data = bounds.get(field_id)
    return None if data is None else decode_bound(kind, data)


def decode_bound(iceberg_type: str, data: bytes) -> Scalar | None:
    """Return a single-value serialised bound, comparable within its column; None if not comparable
    here.

    Files written before a column was widened hold the narrower form, so the length decides: an int
    for a long, a date for a timestamp.
    """
    if iceberg_type.startswith("timestamp") and len(data) == DATE_BYTES:
        per_day = DAY_NANOS if iceberg_type.startswith("timestamp_ns") else DAY_NANOS // 1_000
        return int.from_bytes(data, "little", signed=True) * per_day
    if iceberg_type in INTEGERS or iceberg_type.startswith("timestamp"):
        return int.from_bytes(data, "little", signed=True)
    if iceberg_type in ("float", "double"):
        value = float(struct.unpack("<f" if len(data) == 4 else "<d", data)[0])
        return None if math.isnan(value) else value
    if iceberg_type.startswith("decimal"):
        return int.from_bytes(data, "big", signed=True)
    if iceberg_type in ("string", "binary", "uuid") or iceberg_type.startswith("fixed"):
        return data
    return None


def all_ids(schema: Mapping[str, Any]) -> frozenset[int]:
    """Return the field ids of all columns, those inside of lists and maps included."""

    def walk(columns: Sequence[Column]) -> Iterator[int]:
        for column in columns:
            yield column.field_id
            yield from walk(column.children)

    return frozenset(walk(columns_of(schema)))
