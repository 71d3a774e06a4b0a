"""Says why no rewrite of a table is possible, whatever its files and queries."""

from __future__ import annotations

from collections.abc import Mapping

from reconciler.table.schema import Schema


def unwritable(schema: Schema, properties: Mapping[str, str]) -> str:
    """Return why Spark cannot carry over every row of such a table, "" if it can."""
    if properties.get("encryption.key-id") is not None:
        return "the table is encrypted"
    if reserved := schema.reserved:
        return f"columns are named like Iceberg's own: {', '.join(reserved)}"
    if any("" in field.path for field in schema.fields):
        return "a column has an empty name, which Avro does not allow in manifests"
    if schema.alike:
        return f"names of columns differ in case only: {', '.join(schema.alike)}"
    columns = [f"{field.name} ({field.type})" for field in schema.unwritable]
    return f"Spark cannot write the types of {', '.join(columns)}" if columns else ""
