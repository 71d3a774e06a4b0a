"""Metrics of a Parquet file from its footer, as Iceberg's Java library takes them for an entry.

Source: Apache Iceberg 1.12, `ParquetMetrics` and `MetricsConfig`; the binary form of bounds is that
of the table specification, "Binary single-value serialization".
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reconciler.catalog.parquet import leaves_with_ids
from reconciler.commit.partitions import minimal
from reconciler.table.uuid_order import UUID, may_bound

COUNTS, FULL, NONE = "counts", "full", "none"
"""Modes besides truncate(n)."""
FIRST_SURROGATE, AFTER_SURROGATES, LAST_CHARACTER = 0xD800, 0xE000, 0x10FFFF
"""Code points of Unicode."""


@dataclass(frozen=True)
class Metrics:
    """Metrics of a file. Each mapping is by field id."""

    rows: int
    """Rows in the file."""
    sizes: Mapping[int, int] = field(default_factory=dict)
    """Stored bytes."""
    values: Mapping[int, int] = field(default_factory=dict)
    """Number of values."""
    nulls: Mapping[int, int] = field(default_factory=dict)
    """Number of NULL values."""
    nans: Mapping[int, int] = field(default_factory=dict)
    """Number of NaN values."""
    lower: Mapping[int, bytes] = field(default_factory=dict)
    """Lower bounds."""
    upper: Mapping[int, bytes] = field(default_factory=dict)
    """Upper bounds."""


@dataclass(frozen=True, slots=True)
class WriterMetrics:
    """What a writer knows of its file beside the footer."""

    nans: Mapping[int, int]
    """NaN values of float columns outside lists and maps, by field id."""
    bounds: Mapping[int, tuple[bytes, bytes]]
    """Bounds of columns with values that are too long for a footer's statistics."""


def of_footer(
    footer: Any, types: Mapping[int, str], modes: Mapping[int, str], known: WriterMetrics
) -> Metrics:
    """Return the metrics of a file.

    footer: a pyarrow.parquet.FileMetaData. types: Iceberg's type of each leaf column by field id.
    modes: the metrics mode of each, as properties write it.
    """
    leaves = leaves_with_ids(footer.schema.to_arrow_schema())
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    found = Metrics(footer.num_rows, *({} for _ in range(6)))
    for field_id, leaf in leaves.items():
        mode = modes.get(field_id, NONE)
        if field_id not in types or mode == NONE:
            continue
        chunks = [group.column(leaf.index) for group in groups]
        _put(found.sizes, field_id, sum(int(one.total_compressed_size) for one in chunks))
        if not leaf.repeated:
            _count(found, field_id, chunks, types[field_id], mode, known)
    return found


def _count(
    found: Metrics,
    field_id: int,
    chunks: Sequence[Any],
    kind: str,
    mode: str,
    known: WriterMetrics,
) -> None:
    """Count one column that is outside lists and maps. Nothing is known if a chunk has no
    statistics."""
    statistics = [chunk.statistics for chunk in chunks]
    if any(one is None or not one.has_null_count for one in statistics):
        return
    _put(found.values, field_id, sum(int(chunk.num_values) for chunk in chunks))
    _put(found.nulls, field_id, sum(int(one.null_count) for one in statistics))
    if field_id in known.nans:
        _put(found.nans, field_id, known.nans[field_id])
    both = known.bounds.get(field_id) or ends(statistics, kind)
    if both is None or (kind == UUID and not may_bound(*both)):
        return
    for side, end in zip((found.lower, found.upper), kept_bounds(kind, both, mode), strict=True):
        if end is not None:
            _put(side, field_id, end)


def _put(into: Mapping[int, Any], key: int, value: Any) -> None:
    assert isinstance(into, dict)
    into[key] = value


def ends(statistics: Sequence[Any], kind: str) -> tuple[bytes, bytes] | None:
    """Return the bounds by the statistics of all chunks; None if no chunk has a value, or if one
    has values and does not say which. Of floats such a chunk has NaN alone."""
    known = [one for one in statistics if one.has_min_max]
    if kind not in ("float", "double") and any(
        one.num_values for one in statistics if not one.has_min_max
    ):
        return None
    low = [_number(kind, one.min_raw) for one in known]
    high = [_number(kind, one.max_raw) for one in known]
    if not known or any(isinstance(one, float) and math.isnan(one) for one in (*low, *high)):
        return None
    return _bytes(kind, min(low)), _bytes(kind, max(high))


def _number(kind: str, raw: Any) -> Any:
    """Return a value of a footer so that values compare as the column's do."""
    if kind.startswith("decimal") and isinstance(raw, bytes):
        return int.from_bytes(raw, "big", signed=True)
    return raw


_NUMBERS = {"boolean": "<?", "int": "<i", "date": "<i", "float": "<f", "double": "<d"}


def _bytes(kind: str, value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if kind.startswith("decimal"):
        return minimal(int(value))
    return struct.pack(_NUMBERS.get(kind, "<q"), value)


def kept_bounds(
    kind: str, both: tuple[bytes, bytes], mode: str
) -> tuple[bytes | None, bytes | None]:
    """Return bounds as a metrics mode keeps them. mode: as Iceberg prints it."""
    from pyiceberg.utils import truncate

    if mode in (COUNTS, NONE):
        return None, None
    match = re.fullmatch(r"truncate\((\d+)\)", mode)
    if match is None or kind not in ("string", "binary"):
        return both
    length, (low, high) = int(match[1]), both
    if kind == "binary":
        return low[:length], truncate.truncate_upper_bound_binary_string(high, length)
    try:
        lower, upper = low.decode(), high.decode()
    except UnicodeDecodeError:  # which the witness refuses, with the column
        return None, None
    cut = above(upper, length)
    return lower[:length].encode(), None if cut is None else cut.encode()


def above(text: str, length: int) -> str | None:
    """Return a text of at most `length` characters that is not less than one, None if there is
    none. Surrogates, which have no form in UTF-8, are passed over: Java's library does not, and
    writes a question mark."""
    if len(text) <= length:
        return text
    for at in range(length - 1, -1, -1):
        following = ord(text[at]) + 1
        if following == FIRST_SURROGATE:
            following = AFTER_SURROGATES
        if following <= LAST_CHARACTER:
            return text[:at] + chr(following)
    return None
