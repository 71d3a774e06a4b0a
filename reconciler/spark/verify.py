"""Verifies that the rows written are the rows read (design: "Verification before each commit").

An order-independent fingerprint, a count plus a sum of row hashes, is collected while the rows are
read and compared with that of the written files read back. The hash covers what a plain xxhash64
misses: which column a null is in; and it treats map entries in any order as equal, and uses one NaN
and one zero per type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reconciler.api.documents import Verification
from reconciler.spark.iceberg import quoted

BETWEEN = 0x2E5D_9A41_C7B3_680F
"""A long that is hashed after each column; any value does that columns seldom hold."""
PART_BITS = 26
"""The lowest and the highest bits of a hash that are summed, this many each.

The sums of 2^37 rows stay within a long. Spark raises an error on overflow, and a group of narrow,
sorted rows may have more than the 2^31 rows that two halves of 32 bits allow.
"""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """rows, and the sums of the lowest and highest bits of the row hashes (0 if rows are only
    counted)."""

    rows: int
    low: int = 0
    high: int = 0

    def __add__(self, other: Fingerprint) -> Fingerprint:
        return Fingerprint(self.rows + other.rows, self.low + other.low, self.high + other.high)


def checks_hashes(mode: str, group_id: str) -> bool:
    """Whether the rows of a group are hashed; Sampled hashes one group in eight, chosen by its
    id."""
    import hashlib

    if mode == Verification.SAMPLED:
        return hashlib.sha256(group_id.encode()).digest()[0] % 8 == 0
    return mode == Verification.FULL


def aggregates(schema: Any, hashes: bool) -> list[Any]:
    """Return the columns that sum up rows of a struct type: the fingerprint's parts by name."""
    from pyspark.sql import functions as f

    parts = [f.count(f.lit(1)).alias("rows")]
    if hashes:
        parts += sums(row_hash(schema))
    return parts


def sums(row: Any) -> list[Any]:
    """Return the columns that sum up row hashes: the fingerprint's parts by name."""
    from pyspark.sql import functions as f

    return [
        f.sum(row.bitwiseAND(f.lit((1 << PART_BITS) - 1))).alias("low"),
        f.sum(f.shiftright(row, 64 - PART_BITS)).alias("high"),
    ]


def fingerprint(observed: dict[str, Any]) -> Fingerprint:
    return Fingerprint(
        int(observed["rows"]), int(observed.get("low") or 0), int(observed.get("high") or 0)
    )


def row_hash(schema: Any) -> Any:
    """Return one long per row over all columns of a struct type."""
    from pyspark.sql import functions as f

    return _hash_of([(f.col(quoted(field.name)), field.dataType) for field in schema.fields])


def _hash_of(columns: list[tuple[Any, Any]]) -> Any:
    """Return the hash of the columns, each followed by BETWEEN.

    xxhash64 skips nulls and does not hash where an array ends, so that without it a value could
    move to the next column unseen. A constant costs no access to the row.
    """
    from pyspark.sql import functions as f
    from pyspark.sql import types as t

    parts = []
    for column, data_type in columns:
        if isinstance(data_type, (t.ArrayType, t.MapType)):
            parts.append(column.isNull())  # one without elements is skipped like a null
        parts += [_canonical(column, data_type), f.lit(BETWEEN)]
    return f.xxhash64(*parts)


def _canonical(column: Any, data_type: Any) -> Any:
    """Return the column in a form whose xxhash64 depends only on its value; null stays null."""
    from pyspark.sql import functions as f
    from pyspark.sql import types as t

    if isinstance(data_type, (t.FloatType, t.DoubleType)):
        nan, zero = f.lit(float("nan")).cast(data_type), f.lit(0.0).cast(data_type)
        return f.when(f.isnan(column), nan).when(column == zero, zero).otherwise(column)
    if isinstance(data_type, t.StructType):
        fields = [(column.getField(x.name), x.dataType) for x in data_type.fields]
        return f.when(column.isNotNull(), _hash_of(fields))
    if isinstance(data_type, t.ArrayType):
        return f.transform(column, lambda item: _element(item, data_type.elementType))
    if isinstance(data_type, t.MapType):
        return f.array_sort(
            f.transform(
                f.map_entries(column),
                lambda entry: f.xxhash64(
                    _element(entry["key"], data_type.keyType),
                    _element(entry["value"], data_type.valueType),
                ),
            )
        )
    if isinstance(data_type, t.VariantType):
        return f.to_json(column)
    return column


def _element(item: Any, data_type: Any) -> Any:
    """Return one element of an array or map as a long that also shows whether it is null."""
    from pyspark.sql import functions as f

    return f.xxhash64(item.isNull(), _canonical(item, data_type))
