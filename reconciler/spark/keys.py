"""Clustering keys as Spark columns: sort orders, scores, and the Hilbert curve on ranks.

A score maps a key column to a double without reversing its order, so that quantile cuts and ranks
work in the same way for every type. Nothing here passes rows through Python.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from reconciler.errors import UserError
from reconciler.rewrite.curve import CURVE_BITS, Curve
from reconciler.spark.iceberg import quoted
from reconciler.table.schema import SortColumn

ALIGNED_SHARE = 0.005
"""Share of the sampled rows by which a slice may grow for a simpler condition: within sampling
error."""
STRING_BYTES = 6  # a double holds them exactly


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """One key column: its path of names from the top, its type in Spark, its direction."""

    names: tuple[str, ...]
    data_type: Any
    descending: bool

    @property
    def column(self) -> Any:
        from pyspark.sql import functions as f

        return f.col(".".join(quoted(name) for name in self.names))

    @property
    def order(self) -> Any:
        """Return the sort expression with Iceberg's null order: first when ascending, last when
        descending."""
        return self.column.desc_nulls_last() if self.descending else self.column.asc_nulls_first()


def order(key: Sequence[KeyColumn]) -> list[Any]:
    return [part.order for part in key]


def resolve(schema: Any, frame_schema: Any, key: Sequence[SortColumn]) -> tuple[KeyColumn, ...]:
    """Return the key columns by field id in an Iceberg schema, typed by the frame that holds
    them."""
    return tuple(_resolve(schema, frame_schema, part) for part in key)


def _resolve(schema: Any, frame_schema: Any, part: SortColumn) -> KeyColumn:
    names = _path(schema.asStruct(), part.field_id)
    if names is None:
        raise UserError(
            f"the clustering key's column with field id {part.field_id} is not in the table",
            details=("It was dropped after the plan was made.",),
            do="plan again",
        )
    data_type = frame_schema
    for name in names:
        data_type = data_type[name].dataType
    return KeyColumn(names, data_type, part.direction == "desc")


def _path(struct: Any, field_id: int) -> tuple[str, ...] | None:
    for field in struct.fields():
        if field.fieldId() == field_id:
            return (field.name(),)
        if field.type().isStructType():
            below = _path(field.type().asStructType(), field_id)
            if below is not None:
                return (field.name(), *below)
    return None


def score(key: KeyColumn, prefix: bytes = b"") -> Any:
    """Return a double that never reverses the sort order; null and NaN are its ends.

    prefix: the common prefix of all strings or binaries; only the bytes after it differ.
    """
    from pyspark.sql import functions as f

    value = _ascending_score(key.column, key.data_type, prefix)
    lowest, highest = f.lit(-math.inf), f.lit(math.inf)
    value = f.when(f.isnan(value), highest).otherwise(value)
    ordered = f.when(key.column.isNull(), lowest).otherwise(value)
    return -ordered if key.descending else ordered


def _ascending_score(column: Any, data_type: Any, prefix: bytes) -> Any:
    from pyspark.sql import functions as f
    from pyspark.sql import types as t

    if isinstance(data_type, t.DateType):
        return f.unix_date(column).cast("double")
    if isinstance(data_type, (t.TimestampType, t.TimestampNTZType)):
        return f.unix_micros(column.cast("timestamp")).cast("double")
    if isinstance(data_type, t.BooleanType):
        return column.cast("int").cast("double")
    if isinstance(data_type, (t.StringType, t.BinaryType)):
        return _string_score(column.cast("binary"), prefix)
    return column.cast("double")


def _string_score(raw: Any, prefix: bytes) -> Any:
    """Return the bytes after the prefix as a number; strings without the prefix are outside its
    range."""
    from pyspark.sql import functions as f

    head = f.substring(raw, len(prefix) + 1, STRING_BYTES)
    digits = f.rpad(f.hex(head), 2 * STRING_BYTES, "0")
    number = f.conv(digits, 16, 10).cast("double")
    if not prefix:
        return number
    start = f.substring(raw, 1, len(prefix))
    literal = f.lit(prefix)
    return (
        f.when(start == literal, number)
        .when(start < literal, f.lit(-math.inf))
        .otherwise(f.lit(math.inf))
    )


def common_prefix(low: bytes, high: bytes) -> bytes:
    """Return the common prefix of all values between two bounds."""
    length = next(
        (i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b),
        min(len(low), len(high)),
    )
    return low[:length]


def curve_position(spark: Any, scores: Sequence[Any], curve: Curve) -> Any:
    """Return the cell along the curve as an int, from score columns."""
    from pyspark.sql import functions as f

    cell = f.lit(0)
    for score_, cuts, places in zip(scores, curve.cuts, curve.places, strict=True):
        cell = f.shiftleft(cell, curve.bits)
        if cuts:
            cell = cell.bitwiseOR(_place(spark, score_, cuts, places))
    return f.get(_java_literal(spark, _java_array(spark, curve.table())), cell)


def _place(spark: Any, score_: Any, cuts: Sequence[float], places: Sequence[int]) -> Any:
    """Return the place of a score: that of the number of cuts at or below it, by binary search.

    Spark has the search only as an expression, not as a function. It returns the index of a score
    that it finds, and -1 - rank for one between two cuts. The cuts are moved down by the least
    step: then an equal cut counts as below, and a score equal to a moved cut was below the cut. A
    table maps both results to one number, since an expression that is used twice is computed twice.
    """
    from pyspark.sql import Column
    from pyspark.sql import functions as f

    jvm, count = spark._jvm, len(cuts)
    moved = _java_array(spark, np.nextafter(np.array(cuts), -math.inf))
    convert = getattr(jvm.org.apache.spark.sql.classic, "ExpressionUtils$").__getattr__("MODULE$")
    search = jvm.org.apache.spark.sql.catalyst.expressions.ArrayBinarySearch(
        convert.expression(_java_literal(spark, moved)._jc), convert.expression(score_._jc)
    )
    found = Column(convert.column(search))
    ranks = np.concatenate([np.arange(count, -1, -1), np.arange(count)])
    table = np.asarray(places, dtype=np.int32)[ranks]
    return f.get(_java_literal(spark, _java_array(spark, table)), found + f.lit(count + 1))


def _java_array(spark: Any, values: npt.NDArray[np.int32] | npt.NDArray[np.float64]) -> Any:
    """Return an int[] or double[] in the JVM, filled by one call."""
    jvm = spark._jvm
    raw = jvm.java.nio.ByteBuffer.wrap(
        bytearray(values.astype(values.dtype.newbyteorder(">")).tobytes())
    )
    ints = values.dtype == np.int32
    array = spark.sparkContext._gateway.new_array(jvm.int if ints else jvm.double, len(values))
    (raw.asIntBuffer() if ints else raw.asDoubleBuffer()).get(array)
    return array


def _java_literal(spark: Any, array: Any) -> Any:
    """Return an array in the JVM as a column."""
    from pyspark.sql import Column

    return Column(spark._jvm.org.apache.spark.sql.functions.lit(array))


def slice_cuts(
    keys: Sequence[tuple[float, ...]], shares: Sequence[Fraction]
) -> list[tuple[float, ...]]:
    """Return the quantiles of sampled key tuples at which slices begin, after these shares of the
    rows.

    shares: ascending, each between 0 and 1. Ties give fewer cuts.
    """
    ordered = sorted(keys)
    picks = [ordered[int(len(ordered) * share)] for share in shares] if ordered else []
    return sorted({cut for cut in picks if bisect.bisect_left(ordered, cut) > 0})


def aligned(cut: int, along: npt.NDArray[np.int64]) -> int:
    """Return the single cut, moved to where as large a part of the curve as possible ends.

    It moves past only a few of the sampled positions. Half of a curve is a box, which needs no
    row's position.
    """
    ordered = np.sort(along)
    below, slack = np.searchsorted(ordered, cut), ALIGNED_SHARE * len(ordered)
    for power in range(CURVE_BITS, 0, -1):
        near = round(cut / (1 << power)) << power
        if near > 0 and abs(np.searchsorted(ordered, near) - below) <= slack:
            return near
    return cut


def slice_number(scores: Sequence[Any], cuts: Sequence[tuple[float, ...]]) -> Any:
    """Return the number of cuts at or below the row's tuple of scores: every row has exactly one
    number."""
    from pyspark.sql import functions as f

    number = f.lit(0)
    for cut in cuts:
        number = number + f.when(at_or_above(scores, cut), 1).otherwise(0)
    return number


def at_or_above(scores: Sequence[Any], cut: tuple[float, ...]) -> Any:
    """Return the condition (scores) >= (cut), lexicographically."""
    from pyspark.sql import functions as f

    condition = scores[-1] >= f.lit(cut[-1])
    for column, value in reversed(list(zip(scores[:-1], cut[:-1], strict=True))):
        condition = (column > f.lit(value)) | ((column == f.lit(value)) & condition)
    return condition
