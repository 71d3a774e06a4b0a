"""Says why no rewrite of a table is possible, whatever its files and queries.

The execution refuses the same, and what only it knows.
"""

from __future__ import annotations

from collections.abc import Mapping

from reconciler.table.left_to_spark import why_left_to_spark
from reconciler.table.schema import Schema


def unwritable(schema: Schema, properties: Mapping[str, str]) -> str:
    """Return why not every row of such a table can be carried over, "" if all can."""
    if properties.get("encryption.key-id") is not None:
        return "the table is encrypted"
    if reserved := schema.reserved:
        return f"columns are named like Iceberg's own: {', '.join(reserved)}"
    if any("" in field.path for field in schema.fields):
        return "a column has an empty name, which Avro does not allow in manifests"
    if any("\0" in part for field in schema.fields for part in field.path):
        return "a column's name has a NUL character, at which DuckDB ends the name"
    if schema.alike:
        return f"names of columns differ in case only: {', '.join(schema.alike)}"
    reason = why_left_to_spark([(field.name, field.type) for field in schema.fields], properties)
    return only_by_spark(schema, reason) if reason else ""


def only_by_spark(schema: Schema, reason: str) -> str:
    """Return why files cannot be written that are left to Spark for a reason, "" if it can write
    them."""
    columns = [f"{field.name} ({field.type})" for field in schema.unknown_to_spark]
    if not columns:
        return ""
    return f"{reason}, and Spark cannot write the types of {', '.join(columns)}"
