"""Converts Iceberg table metadata to plain values: schema, specs, sort order, snapshots,
refs.

The only place that uses pyiceberg's names for them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from reconciler.plan.actions.set_sort_order import sort_term
from reconciler.table.block_ids import block_ids_of
from reconciler.table.metadata import TableMetadata
from reconciler.table.observation import RefInfo, SnapshotInfo
from reconciler.table.physical import NAME_MAPPING, Expected
from reconciler.table.retention import BRANCH, MAIN, Ref, Snapshot, SnapshotLog
from reconciler.table.schema import (
    Field,
    PartitionField,
    PartitionSpec,
    Schema,
    names_alike,
    spec_terms,
)


def schema_of(metadata: Any) -> Schema:
    """Return the current schema's leaf columns; struct members have dotted names."""
    schema = metadata.schema()
    fields: list[Field] = []
    for member in schema.fields:
        _leaves(member.field_id, (member.name,), member.field_type, member.required, False, fields)
    alike = names_alike(json.loads(schema.model_dump_json()))
    return Schema(schema.schema_id, tuple(fields), _name_mapping(metadata), alike)


def columns_of(metadata: Any) -> Expected:
    """Return what the table's data files must hold."""
    body = json.loads(metadata.schema().model_dump_json())
    return Expected(body, metadata.properties.get(NAME_MAPPING))


def _name_mapping(metadata: Any) -> tuple[tuple[tuple[str, ...], int], ...]:
    """Return the name mapping, () also if it cannot be parsed: engines do not read such files
    either."""
    try:
        mapping = metadata.name_mapping()
    except ValueError:
        return ()
    return tuple(_mapped((), mapping)) if mapping is not None else ()


def _mapped(path: tuple[str, ...], members: Any) -> Iterator[tuple[tuple[str, ...], int]]:
    for member in members:
        # An entry may lack its names; pyiceberg 0.12 then gives a type in their place.
        for name in member.names if isinstance(member.names, list) else ():
            if member.field_id is not None:
                yield (*path, name), member.field_id
            yield from _mapped((*path, name), member.fields)


def _leaves(
    field_id: int,
    path: tuple[str, ...],
    kind: Any,
    required: bool,
    repeated: bool,
    out: list[Field],
) -> None:
    from pyiceberg.types import ListType, MapType, StructType

    if isinstance(kind, StructType):
        for member in kind.fields:
            below = (*path, member.name)
            needed = required and member.required
            _leaves(member.field_id, below, member.field_type, needed, repeated, out)
    elif isinstance(kind, ListType):
        _leaves(kind.element_id, (*path, "element"), kind.element_type, False, True, out)
    elif isinstance(kind, MapType):
        _leaves(kind.key_id, (*path, "key"), kind.key_type, False, True, out)
        _leaves(kind.value_id, (*path, "value"), kind.value_type, False, True, out)
    else:
        levels = path if any("." in name for name in path) else ()
        out.append(Field(field_id, ".".join(path), str(kind), required, repeated, levels))


def specs_of(metadata: Any) -> dict[int, PartitionSpec]:
    """Return every partition spec the table has had, by id."""
    return {
        spec.spec_id: PartitionSpec(
            spec.spec_id,
            tuple(
                PartitionField(field.source_id, field.field_id, str(field.transform), field.name)
                for field in spec.fields
            ),
        )
        for spec in metadata.partition_specs
    }


def sort_order_text(metadata: Any, schema: Schema) -> str:
    """Return the default sort order as people write it, "" when unsorted."""
    order = metadata.sort_order_by_id(metadata.default_sort_order_id)
    fields = order.fields if order is not None else []
    return ", ".join(_sort_text(field, schema) for field in fields)


def table_metadata_of(metadata: Any) -> TableMetadata:
    return TableMetadata(
        dict(metadata.properties),
        _sort_terms(metadata),
        int(metadata.format_version),
        {key: spec_terms(spec.own_fields) for key, spec in specs_of(metadata).items()},
        int(metadata.default_spec_id),
        _log(metadata),
        columns=frozenset(metadata.schema().field_ids),
        schema_id=int(metadata.current_schema_id),
        analyzed=frozenset(
            field
            for one in getattr(metadata, "statistics", None) or ()
            for blob in one.blob_metadata
            for field in blob.fields
        ),
    ).with_schema(json.loads(metadata.schema().model_dump_json()))


def hidden_columns_of(metadata: Any) -> frozenset[str]:
    """Return the column of block ids, in lower case, if the table has one: `KnownTable.hidden`."""
    blocks = block_ids_of(dict(metadata.properties), ())
    own = blocks and next(
        (one for one in metadata.schema().fields if one.field_id == blocks.field_id), None
    )
    return frozenset([own.name.lower()] if own else [])


def latest_ms_of(metadata: Any) -> int:
    """Return the latest time of the metadata: of its last change, or of its log of snapshots."""
    log = [int(entry.timestamp_ms) for entry in metadata.snapshot_log[-1:]]
    return max([int(metadata.last_updated_ms), *log])


def _log(metadata: Any) -> SnapshotLog:
    snapshots = tuple(
        Snapshot(
            item.snapshot_id,
            item.parent_snapshot_id,
            int(item.timestamp_ms),
            dict(item.summary.additional_properties) if item.summary is not None else {},
            item.summary.operation.value if item.summary is not None else "",
        )
        for item in metadata.snapshots
    )
    refs = {
        name: Ref(
            name,
            ref.snapshot_ref_type.value,
            ref.snapshot_id,
            ref.min_snapshots_to_keep,
            ref.max_snapshot_age_ms,
        )
        for name, ref in sorted((metadata.refs or {}).items())
    }
    head = metadata.current_snapshot_id
    if head is not None and head != -1:
        refs.setdefault(MAIN, Ref(MAIN, BRANCH, head))
    return SnapshotLog(snapshots, tuple(refs.values()))


def _sort_terms(metadata: Any) -> tuple[str, ...]:
    order = metadata.sort_order_by_id(metadata.default_sort_order_id)
    return tuple(
        sort_term(
            str(field.transform), field.source_id, field.direction.name, field.null_order.value
        )
        for field in (order.fields if order is not None else [])
    )


def _sort_text(field: Any, schema: Schema) -> str:
    name = transform_text(str(field.transform), schema.name_of(field.source_id))
    return f"{name} desc" if field.direction.name == "DESC" else name


def spec_text(spec: PartitionSpec, schema: Schema) -> str:
    """Return "month(ingested_at), region", or "unpartitioned"."""
    parts = [
        transform_text(field.transform, schema.name_of(field.source_id))
        for field in spec.fields
        if field.transform != "void"
    ]
    return ", ".join(parts) or "unpartitioned"


def transform_text(transform: str, column: str) -> str:
    """Return bucket[16] of c as "bucket(16, c)", as Spark and Trino write it."""
    if transform == "identity":
        return column
    function, _, argument = transform.partition("[")
    return f"{function}({argument.rstrip(']')}, {column})" if argument else f"{function}({column})"


def ancestry_of(metadata: Any) -> tuple[tuple[SnapshotInfo, ...], tuple[SnapshotInfo, ...]]:
    """Return (snapshots from the head back to the oldest retained, the other retained
    snapshots)."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    chain: list[Any] = []
    current = by_id.get(metadata.current_snapshot_id)
    while current is not None:
        chain.append(current)
        del by_id[current.snapshot_id]
        current = by_id.get(current.parent_snapshot_id)
    return (
        tuple(_snapshot(snapshot) for snapshot in chain),
        tuple(_snapshot(snapshot) for snapshot in by_id.values()),
    )


def _snapshot(snapshot: Any) -> SnapshotInfo:
    summary = snapshot.summary
    return SnapshotInfo(
        snapshot_id=snapshot.snapshot_id,
        sequence_number=int(snapshot.sequence_number or 0),
        timestamp_ms=int(snapshot.timestamp_ms),
        operation=summary.operation.value if summary is not None else "",
        summary=dict(summary.additional_properties) if summary is not None else {},
    )


def refs_of(metadata: Any) -> tuple[RefInfo, ...]:
    """Return branches and tags by name."""
    return tuple(
        RefInfo(name, ref.snapshot_ref_type.value, ref.snapshot_id)
        for name, ref in sorted((metadata.refs or {}).items())
    )
