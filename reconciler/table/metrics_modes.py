"""Which columns' bounds writers keep in manifests: the metrics modes of a table's properties.

As `MetricsConfig` of Apache Iceberg 1.12 resolves them for the files that Spark writes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from reconciler.table import numbers
from reconciler.table.numbers import number
from reconciler.table.schema import Field, Schema

DEFAULT_TRUNCATION = 16
INFERRED_COLUMNS = 100
"""Most columns that have bounds by default (`write.metadata.metrics.max-inferred-column-defaults`).
"""

_PREFIX = "write.metadata.metrics."
_TRUNCATE = re.compile(r"truncate\((\d+)\)")
_UNBOUNDED = ("none", "counts")
_TRUNCATED = f"truncate({DEFAULT_TRUNCATION})"


def truncation_of(properties: Mapping[str, str], field: Field) -> int:
    """Return how many characters the writers' present metrics mode keeps of a string bound."""
    default = properties.get(f"{_PREFIX}default", "")
    match = _TRUNCATE.fullmatch(_mode(properties, field, default))
    return int(match.group(1)) if match else DEFAULT_TRUNCATION


def unbounded_columns(
    schema: Schema, properties: Mapping[str, str], sorted_ids: Collection[int]
) -> frozenset[int]:
    """Return the columns whose bounds a rewrite leaves out of the manifest.

    sorted_ids: columns of the table's sort order, which have bounds unless their own property says
    otherwise.
    """
    found = modes(schema, properties, sorted_ids).items()
    return frozenset(field_id for field_id, mode in found if mode in _UNBOUNDED)


def modes(
    schema: Schema, properties: Mapping[str, str], sorted_ids: Collection[int] = ()
) -> dict[int, str]:
    """Return the metrics mode of each leaf column: none, counts, truncate(n) or full.

    sorted_ids: columns of the table's sort order, whose values have bounds by default.
    """
    given = properties.get(f"{_PREFIX}default", "").strip().lower()
    beyond = frozenset() if given else _beyond_limit(schema, properties)
    given = given if _is_mode(given) else _TRUNCATED
    found = {}
    for field in schema.fields:
        default = "none" if field.field_id in beyond else given
        if field.field_id in sorted_ids and default in _UNBOUNDED:
            default = _TRUNCATED
        mode = _mode(properties, field, default)
        found[field.field_id] = mode if _is_mode(mode) else default
    return found


def _is_mode(text: str) -> bool:
    return text in (*_UNBOUNDED, "full") or _TRUNCATE.fullmatch(text) is not None


def _mode(properties: Mapping[str, str], field: Field, default: str) -> str:
    return properties.get(f"{_PREFIX}column.{field.name}", default).strip().lower()


def _beyond_limit(schema: Schema, properties: Mapping[str, str]) -> frozenset[int]:
    """Return the columns after the first INFERRED_COLUMNS, those of the outer structs first."""
    limit = number(properties, numbers.INFERRED_COLUMNS, INFERRED_COLUMNS)
    if len(schema.fields) <= limit:
        return frozenset()
    order = sorted(schema.fields, key=lambda field: field.name.count("."))
    return frozenset(field.field_id for field in order[limit:])
