"""Says why the rows of a rewrite go through Spark instead of the engine in Arrow.

The plan asks, so that a reader knows before approval, and the execution asks the same question.

What only the execution knows (its memory, dates beyond a library's range) is not asked here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

PARQUET = "write.parquet."
CODEC, LEVEL = f"{PARQUET}compression-codec", f"{PARQUET}compression-level"
DEFAULT_CODEC = "zstd"
PAGE_BYTES, PAGE_LIMIT = f"{PARQUET}page-size-bytes", f"{PARQUET}page-row-limit"
DICTIONARY = f"{PARQUET}dict-size-bytes"
ROW_GROUP = f"{PARQUET}row-group-size-bytes"
DEFAULT_ROW_GROUP = 128 << 20
"""Size of row groups where a table names none, as Iceberg takes it."""
BLOOM = f"{PARQUET}bloom-filter-"
KNOWN = frozenset({
    CODEC, LEVEL, PAGE_BYTES, PAGE_LIMIT, DICTIONARY, ROW_GROUP,
    f"{PARQUET}row-group-check-min-record-count", f"{PARQUET}row-group-check-max-record-count",
})  # fmt: skip
"""Properties of the Parquet writer that the engine follows, besides those of Bloom filters."""
CODECS = frozenset({"zstd", "gzip", "snappy", "uncompressed"})
TYPES = re.compile(
    r"boolean|int|long|float|double|date|time|timestamp|timestamptz|timestamp_ns|timestamptz_ns"
    r"|string|binary|uuid|unknown|decimal\(.*\)|fixed\[.*\]"
)
"""Types of leaf columns that Arrow has as Iceberg has them."""
DELETE_FORMATS = frozenset({"PARQUET", "PUFFIN"})
OTHER_FORMAT = "ORC or Avro"


def why_left_to_spark(
    columns: Iterable[tuple[str, str]],
    properties: Mapping[str, str],
    delete_formats: Iterable[str] = (),
) -> str:
    """Return the reason, "" if the engine writes the rows. columns: name and type of each leaf.
    properties: of the table. delete_formats: of the delete files that apply, in capitals."""
    for name, kind in columns:
        if TYPES.fullmatch(kind) is None:
            return f'column "{name}" has the type {kind}, which Arrow does not have'
    odd = sorted(
        name for name in properties
        if name.startswith(PARQUET) and not name.startswith(BLOOM) and name not in KNOWN
    )  # fmt: skip
    if odd:
        return f"the table sets {odd[0]}"
    codec = properties.get(CODEC, DEFAULT_CODEC).lower()
    if codec not in CODECS:
        return f"the table's codec is {codec}"
    if not DELETE_FORMATS.issuperset(delete_formats):
        return "delete files in ORC or Avro apply, which the witness reads as the engine would"
    return ""
