"""The schemas of manifests and manifest lists as Iceberg's Java library writes them.

Format: Apache Iceberg table specification, "Manifests" and "Manifest Lists", versions 1 and 2.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from reconciler.errors import UnsupportedError

STATUS, SNAPSHOT_ID, SEQUENCE, FILE_SEQUENCE, DATA_FILE = 0, 1, 3, 4, 2
"""Field ids of an entry of a manifest."""
CONTENT, PATH, FORMAT, PARTITION, RECORDS, SIZE = 134, 100, 101, 102, 103, 104
BLOCK_SIZE, COLUMN_SIZES, VALUES, NULLS, NANS, LOWER, UPPER = 105, 108, 109, 110, 137, 125, 128
KEY_METADATA, SPLITS, EQUALITY_IDS, SORT_ORDER, REFERENCED = 131, 132, 135, 140, 143
"""Field ids of a file in an entry."""
FIELDS = {
    CONTENT: ("content", "int", True,
              "Contents of the file: 0=data, 1=position deletes, 2=equality deletes"),
    PATH: ("file_path", "string", True, "Location URI with FS scheme"),
    FORMAT: ("file_format", "string", True, "File format name: avro, orc, or parquet"),
    PARTITION: ("partition", None, True,
                "Partition data tuple, schema based on the partition spec"),
    RECORDS: ("record_count", "long", True, "Number of records in the file"),
    SIZE: ("file_size_in_bytes", "long", True, "Total file size in bytes"),
    BLOCK_SIZE: ("block_size_in_bytes", "long", True, None),
    COLUMN_SIZES: ("column_sizes", (117, 118, "long"), False,
                   "Map of column id to total size on disk"),
    VALUES: ("value_counts", (119, 120, "long"), False,
             "Map of column id to total count, including null and NaN"),
    NULLS: ("null_value_counts", (121, 122, "long"), False, "Map of column id to null value count"),
    NANS: ("nan_value_counts", (138, 139, "long"), False,
           "Map of column id to number of NaN values in the column"),
    LOWER: ("lower_bounds", (126, 127, "binary"), False, "Map of column id to lower bound"),
    UPPER: ("upper_bounds", (129, 130, "binary"), False, "Map of column id to upper bound"),
    KEY_METADATA: ("key_metadata", "binary", False, "Encryption key metadata blob"),
    SPLITS: ("split_offsets", (133, "long"), False, "Splittable offsets"),
    EQUALITY_IDS: ("equality_ids", (136, "int"), False, "Equality comparison field IDs"),
    SORT_ORDER: ("sort_order_id", "int", False, "Sort order ID"),
    REFERENCED: ("referenced_data_file", "string", False,
                 "Fully qualified location (URI with FS scheme) of a data file that all deletes "
                 "reference"),
}  # fmt: skip
"""Of a file: name, type (ids of key and value and the value's type of a map, id and type of the
element of a list), whether it is required, doc."""
OF_VERSION = {
    1: (PATH, FORMAT, PARTITION, RECORDS, SIZE, BLOCK_SIZE, COLUMN_SIZES, VALUES, NULLS, NANS,
        LOWER, UPPER, KEY_METADATA, SPLITS, SORT_ORDER),
    2: (CONTENT, PATH, FORMAT, PARTITION, RECORDS, SIZE, COLUMN_SIZES, VALUES, NULLS, NANS, LOWER,
        UPPER, KEY_METADATA, SPLITS, EQUALITY_IDS, SORT_ORDER, REFERENCED),
}  # fmt: skip
M_PATH, M_LENGTH, M_SPEC, M_CONTENT, M_SEQUENCE, M_MIN_SEQUENCE, M_SNAPSHOT = (
    500, 501, 502, 517, 515, 516, 503,
)  # fmt: skip
M_ADDED, M_EXISTING, M_DELETED, M_ADDED_ROWS, M_EXISTING_ROWS, M_DELETED_ROWS = (
    504, 505, 506, 512, 513, 514,
)  # fmt: skip
M_PARTITIONS, M_KEY_METADATA = 507, 519
"""Field ids of a manifest in a manifest list."""
P_NULL, P_NAN, P_LOWER, P_UPPER = 509, 518, 510, 511
"""Field ids of the summary of a partition field there."""
_LIST = {
    M_PATH: ("manifest_path", "string", True, "Location URI with FS scheme"),
    M_LENGTH: ("manifest_length", "long", True, "Total file size in bytes"),
    M_SPEC: ("partition_spec_id", "int", True, "Spec ID used to write"),
    M_CONTENT: ("content", "int", True, "Contents of the manifest: 0=data, 1=deletes"),
    M_SEQUENCE: ("sequence_number", "long", True, "Sequence number when the manifest was added"),
    M_MIN_SEQUENCE: ("min_sequence_number", "long", True, "Lowest sequence number in the manifest"),
    M_SNAPSHOT: ("added_snapshot_id", "long", True, "Snapshot ID that added the manifest"),
    M_ADDED: ("added_files_count", "int", True, "Added entry count"),
    M_EXISTING: ("existing_files_count", "int", True, "Existing entry count"),
    M_DELETED: ("deleted_files_count", "int", True, "Deleted entry count"),
    M_ADDED_ROWS: ("added_rows_count", "long", True, "Added rows count"),
    M_EXISTING_ROWS: ("existing_rows_count", "long", True, "Existing rows count"),
    M_DELETED_ROWS: ("deleted_rows_count", "long", True, "Deleted rows count"),
    M_PARTITIONS: ("partitions", "summaries", False, "Summary for each partition"),
    M_KEY_METADATA: ("key_metadata", "binary", False, "Encryption key metadata blob"),
}
_LIST_OF_VERSION = {
    1: (M_PATH, M_LENGTH, M_SPEC, M_SNAPSHOT, M_ADDED, M_EXISTING, M_DELETED, M_PARTITIONS,
        M_ADDED_ROWS, M_EXISTING_ROWS, M_DELETED_ROWS, M_KEY_METADATA),
    2: tuple(_LIST),
}  # fmt: skip
_OPTIONAL_BEFORE_2 = (
    M_ADDED, M_EXISTING, M_DELETED, M_ADDED_ROWS, M_EXISTING_ROWS, M_DELETED_ROWS,
)  # fmt: skip
_SUMMARY = {
    P_NULL: ("contains_null", "boolean", True, "True if any file has a null partition value"),
    P_NAN: ("contains_nan", "boolean", False, "True if any file has a nan partition value"),
    P_LOWER: ("lower_bound", "binary", False, "Partition lower bound for all files"),
    P_UPPER: ("upper_bound", "binary", False, "Partition upper bound for all files"),
}


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One field of the partition record of a spec."""

    field_id: int
    """Its id, from 1000 on."""
    name: str
    """Its name in the spec."""
    type: str
    """Iceberg's name of the type of its values."""
    transform: str
    """Its transform as Iceberg writes it."""


def unpartitioned(partition: Iterable[PartitionField]) -> bool:
    """Whether a spec puts all rows together: an equality delete of it applies in every partition.
    Void fields tell no rows apart."""
    return all(one.transform == "void" for one in partition)


def partition_fields(
    spec: Mapping[str, Any], schema: Mapping[str, Any]
) -> tuple[PartitionField, ...]:
    """Return the fields of a spec. spec, schema: as the specification writes them in JSON.

    Raises UnsupportedError if a column that the spec partitions by was dropped.
    """
    types = types_of(schema)
    found = []
    for field in spec["fields"]:
        source = types.get(int(field["source-id"]))
        if source is None:
            raise UnsupportedError(
                f"partition spec {spec['spec-id']} partitions by a column that was dropped",
                details=(f"The values of its field {field['name']} have no type any more.",),
                do="let Spark commit to the table: set engine.type to Spark",
            )
        kind = _result(str(field["transform"]), source)
        found.append(PartitionField(int(field["field-id"]), field["name"], kind,
                                    str(field["transform"])))  # fmt: skip
    return tuple(found)


def in_form_of_java(kind: str) -> bool:
    """Whether partition values of a type are ones that Iceberg's Java library (1.12) puts a length
    before, where the specification has none. It cannot read what other libraries write, and they
    misread what it writes (issue 17501 of apache/iceberg). kind: of the values."""
    return kind.startswith("fixed")


def types_of(schema: Mapping[str, Any]) -> dict[int, str]:
    """Return the type of each primitive field of a schema by its id."""
    found: dict[int, str] = {}

    def walk(kind: Any, field_id: int) -> None:
        if isinstance(kind, str):
            found[field_id] = kind
            return
        for field in kind.get("fields", ()):
            walk(field["type"], int(field["id"]))
        for part in ("element", "key", "value"):
            if part in kind:
                walk(kind[part], int(kind[f"{part}-id"]))

    walk(schema, 0)
    return found


def _result(transform: str, source: str) -> str:
    function = transform.partition("[")[0]
    if function in ("bucket", "year", "month", "hour"):
        return "int"
    return "date" if function == "day" else source


def entry_schema(version: int, partition: Sequence[PartitionField]) -> str:
    """Return the Avro schema of a manifest's entries as text."""
    return _entry_schema(version, tuple(partition))


@cache
def _entry_schema(version: int, partition: tuple[PartitionField, ...]) -> str:
    known: set[str] = set()
    held = {
        "type": "record", "name": "r102",
        "fields": [
            {**_named(one.name), "type": ["null", _defined_once(avro_type(one.type), known)],
             "default": None, "field-id": one.field_id}
            for one in partition
        ],
    }  # fmt: skip
    files = [
        _avro_field(key, *FIELDS[key], of=held if key == PARTITION else None)
        for key in OF_VERSION[version]
    ]
    head = [{"name": "status", "type": "int", "field-id": STATUS}]
    if version == 1:
        head.append({"name": "snapshot_id", "type": "long", "field-id": SNAPSHOT_ID})
    else:
        numbers = {"snapshot_id": SNAPSHOT_ID, "sequence_number": SEQUENCE,
                   "file_sequence_number": FILE_SEQUENCE}  # fmt: skip
        head += [
            {"name": name, "type": ["null", "long"], "default": None, "field-id": key}
            for name, key in numbers.items()
        ]
    file = {"type": "record", "name": "r2", "fields": files}
    head.append({"name": "data_file", "type": file, "field-id": DATA_FILE})
    return _text({"type": "record", "name": "manifest_entry", "fields": head})


def _defined_once(kind: Any, known: set[str]) -> Any:
    """Return a type, by its name alone where the schema has defined it before, as Avro asks."""
    if not isinstance(kind, dict) or "name" not in kind:
        return kind
    name = str(kind["name"])
    if name in known:
        return name
    known.add(name)
    return kind


def list_schema(version: int) -> str:
    """Return the Avro schema of a manifest list as text."""
    summary = {
        "type": "array", "element-id": 508,
        "items": {"type": "record", "name": "r508",
                  "fields": [_avro_field(key, *what) for key, what in _SUMMARY.items()]},
    }  # fmt: skip
    fields = []
    for key in _LIST_OF_VERSION[version]:
        name, kind, required, doc = _LIST[key]
        required = required and not (version == 1 and key in _OPTIONAL_BEFORE_2)
        of = summary if key == M_PARTITIONS else None
        fields.append(_avro_field(key, name, kind, required, doc, of=of))
    return _text({"type": "record", "name": "manifest_file", "fields": fields})


def _avro_field(
    key: int, name: str, kind: Any, required: bool, doc: str | None, of: Any = None
) -> dict[str, Any]:
    held = of if of is not None else _avro(kind)
    field: dict[str, Any] = {"name": name, "type": held if required else ["null", held]}
    if doc:
        field["doc"] = doc
    if not required:
        field["default"] = None
    return {**field, "field-id": key}


def _avro(kind: Any) -> Any:
    if isinstance(kind, str):
        return avro_type(kind)
    if len(kind) == 2:
        return {"type": "array", "items": kind[1], "element-id": kind[0]}
    key, value, of = kind
    pair = [
        {"name": "key", "type": "int", "field-id": key},
        {"name": "value", "type": avro_type(of), "field-id": value},
    ]
    items = {"type": "record", "name": f"k{key}_v{value}", "fields": pair}
    return {"type": "array", "items": items, "logicalType": "map"}


_PLAIN = {
    "boolean": "boolean", "int": "int", "long": "long", "float": "float", "double": "double",
    "string": "string", "binary": "bytes",
    "date": {"type": "int", "logicalType": "date"},
    "time": {"type": "long", "logicalType": "time-micros"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": False},
    "timestamptz": {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": True},
    "timestamp_ns": {"type": "long", "logicalType": "timestamp-nanos", "adjust-to-utc": False},
    "timestamptz_ns": {"type": "long", "logicalType": "timestamp-nanos", "adjust-to-utc": True},
    "uuid": {"type": "fixed", "name": "uuid_fixed", "size": 16, "logicalType": "uuid"},
}  # fmt: skip


def avro_type(kind: str) -> Any:
    """Return the Avro type of a primitive type of Iceberg."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    fixed = re.fullmatch(r"fixed\[(\d+)\]", kind)
    if fixed:
        return {"type": "fixed", "name": f"fixed_{fixed[1]}", "size": int(fixed[1])}
    decimal = re.fullmatch(r"decimal\((\d+),\s*(\d+)\)", kind)
    if decimal:
        precision, scale = int(decimal[1]), int(decimal[2])
        return {
            "type": "fixed", "name": f"decimal_{precision}_{scale}",
            "size": decimal_bytes(precision), "logicalType": "decimal", "precision": precision,
            "scale": scale,
        }  # fmt: skip
    raise UnsupportedError(
        f"a partition field of type {kind} is not supported",
        details=("Manifests with such values are not written without Spark.",),
        do="let Spark commit to the table: set engine.type to Spark",
    )


def decimal_bytes(precision: int) -> int:
    """Return the bytes that hold every unscaled value of a precision."""
    size = 1
    while (1 << (8 * size - 1)) - 1 < 10**precision - 1:
        size += 1
    return size


def _named(name: str) -> dict[str, str]:
    """Return an Avro name for a field's name, and the name itself where they differ."""
    made = "".join(
        char if char.isascii() and (char.isalnum() or char == "_") else f"_x{ord(char):X}"
        for char in name
    )
    if made[:1].isdigit():
        made = f"_{made}"
    return {"name": made} if made == name else {"name": made, "iceberg-field-name": name}


def iceberg_schema(version: int, partition: Sequence[PartitionField]) -> str:
    """Return the schema of a manifest's entries as Iceberg writes schemas, for readers that know no
    field ids of Avro."""
    held = [
        {"id": one.field_id, "name": one.name, "required": False, "type": one.type}
        for one in partition
    ]
    files = [
        _iceberg_field(key, *FIELDS[key], of={"type": "struct", "fields": held})
        for key in OF_VERSION[version]
    ]
    head = [_plain_field(STATUS, "status", True, "int")]
    head.append(_plain_field(SNAPSHOT_ID, "snapshot_id", version == 1, "long"))
    if version > 1:
        head.append(_plain_field(SEQUENCE, "sequence_number", False, "long"))
        head.append(_plain_field(FILE_SEQUENCE, "file_sequence_number", False, "long"))
    head.append(_plain_field(DATA_FILE, "data_file", True, {"type": "struct", "fields": files}))
    return _text({"type": "struct", "schema-id": 0, "fields": head})


def list_iceberg_schema(version: int) -> str:
    """Return the schema of a manifest list as Iceberg writes schemas."""
    element = {"type": "struct", "fields": [_iceberg_field(k, *v) for k, v in _SUMMARY.items()]}
    summaries = {"type": "list", "element-id": 508, "element": element, "element-required": True}
    fields = []
    for key in _LIST_OF_VERSION[version]:
        name, kind, required, doc = _LIST[key]
        required = required and not (version == 1 and key in _OPTIONAL_BEFORE_2)
        fields.append(_iceberg_field(key, name, kind, required, doc, of=summaries))
    return _text({"type": "struct", "schema-id": 0, "fields": fields})


def _plain_field(key: int, name: str, required: bool, kind: Any) -> dict[str, Any]:
    return {"id": key, "name": name, "required": required, "type": kind}


def _iceberg_field(
    key: int, name: str, kind: Any, required: bool, doc: str | None, of: Any = None
) -> dict[str, Any]:
    if isinstance(kind, tuple) and len(kind) == 2:
        held: Any = {"type": "list", "element-id": kind[0], "element": kind[1],
                     "element-required": True}  # fmt: skip
    elif isinstance(kind, tuple):
        held = {"type": "map", "key-id": kind[0], "key": "int", "value-id": kind[1],
                "value": kind[2], "value-required": True}  # fmt: skip
    else:
        held = of if kind in (None, "summaries") else kind
    field = _plain_field(key, name, required, held)
    return {**field, "doc": doc} if doc else field


def _text(body: Any) -> str:
    return json.dumps(body, separators=(",", ":"))
