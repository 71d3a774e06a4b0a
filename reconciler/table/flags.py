"""Reads a table's properties that are true or false as Iceberg does."""

from __future__ import annotations

from collections.abc import Mapping


def flag(properties: Mapping[str, str], name: str, default: bool) -> bool:
    """Return the property's value, `default` if it is not set: "true" in any case is true, and any
    other text is false (java.lang.Boolean.parseBoolean)."""
    value = properties.get(name)
    return default if value is None else str(value).lower() == "true"
