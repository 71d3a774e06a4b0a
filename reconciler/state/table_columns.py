"""Columns of the tables of the state: their types in Iceberg and in Arrow, and adding some."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table

Columns = tuple[tuple[str, str], ...]
"""Column names and Iceberg types: "?" at the end of the type of an optional one, "*" of a list."""


def add_missing(table: Table, columns: Columns) -> None:
    """Add the columns that a table of an older version lacks; another writer may do so, too."""
    from pyiceberg.exceptions import CommitFailedException

    known = set(table.schema().column_names)
    missing = [field for field in _schema(columns).fields if field.name not in known]
    if not missing:
        return
    try:
        with table.update_schema() as update:
            for field in missing:
                update.add_column(field.name, field.field_type)
    except CommitFailedException:
        table.refresh()
        add_missing(table, columns)


def unpartitioned(columns: Columns) -> tuple[Any, Any]:
    """Return (schema, partition spec) of a table with these columns."""
    from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC

    return _schema(columns), UNPARTITIONED_PARTITION_SPEC


def _schema(columns: Columns) -> Any:
    from pyiceberg.schema import Schema
    from pyiceberg.types import (
        BinaryType,
        BooleanType,
        DoubleType,
        IntegerType,
        ListType,
        LongType,
        NestedField,
        StringType,
    )

    types: dict[str, Any] = {
        "int": IntegerType(), "long": LongType(), "string": StringType(), "double": DoubleType(),
        "boolean": BooleanType(), "binary": BinaryType(),
    }  # fmt: skip
    fields = []
    for number, (name, kind) in enumerate(columns, start=1):
        one = types[kind.rstrip("?*")]
        if kind.endswith("*"):
            one = ListType(len(columns) + number, one, element_required=False)
        fields.append(NestedField(number, name, one, required=not kind.endswith("?")))
    return Schema(*fields)


def arrow_schema(columns: Columns) -> pa.Schema:
    """Return the Arrow schema of rows to append."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    return schema_to_pyarrow(_schema(columns), include_field_ids=False)
