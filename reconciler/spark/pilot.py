"""Sorts and writes some rows of a group in advance, to measure how all of them will compress.

Manifests give the inputs' sizes. When sorted, or written by another writer or codec, the same rows
take anything from half to more; a task with a wrong expectation ends in a small file, which is then
written twice (`balance`). What the pilot writes is thrown away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reconciler.plan.grouping import output_files
from reconciler.spark import arrange, keys, stage
from reconciler.spark.footer import footer_of
from reconciler.spark.group import Compression, Group, InputFile
from reconciler.table.row_group_bytes import PAGE_ROWS

ROWS = 50_000
"""Number of rows: two and a half pages of each column."""
BYTES = 8 << 20
"""Maximum input bytes; if the rows take more, fewer rows are used."""
FILES = 3
"""Number of inputs from which rows are taken; more if these have too few."""
MOST_FILES = 64
ROW_SHARE = 0.025
"""Maximum share of a group's rows.

Starting two small jobs takes as long as writing a quarter of a million rows: in a smaller group a
wrong estimate is cheaper.
"""
READ_SHARE = 0.1
"""Maximum share of a group's bytes to read, since whole row groups are read for a few of their
rows."""
ROW_GROUP_BYTES = 128 << 20
PAGE_BYTES = 1 << 20
LENGTH_BYTES = 4
"""Bytes of the length before each plain string."""
WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "FLOAT": 4, "DOUBLE": 8}
"""Bytes of a plain value, by physical type."""

Portion = tuple[InputFile, int]
"""An input, and how many of its first rows are used."""


def portions(group: Group) -> list[Portion]:
    """Return what the pilot reads, evenly spaced over the inputs; [] if it would not pay.

    It does not pay if all becomes one file, if the group is too small, or if it has too few files
    to read one of them twice.
    """
    wanted = min(ROWS, max(1, BYTES * group.rows // max(group.bytes, 1)))
    by_size = output_files(group.live_bytes, group.target_bytes)  # without the plan's estimate
    if by_size == 1 or wanted > ROW_SHARE * group.rows:
        return []
    inputs = [file for file in group.inputs if file.rows]
    most, bound = -(-wanted * len(inputs) // group.rows), READ_SHARE * group.bytes
    for files in range(min(max(FILES, most), MOST_FILES, len(inputs)), 0, -1):
        chosen = [inputs[(2 * i + 1) * len(inputs) // (2 * files)] for i in range(files)]
        if sum(min(file.bytes, ROW_GROUP_BYTES) for file in chosen) <= bound:
            found = [(file, min(file.rows, -(-wanted // files))) for file in chosen]
            return found if 2 * sum(rows for _, rows in found) >= wanted else []
    return []


def frame(source: arrange.Source, group: Group, chosen: Sequence[Portion]) -> Any:
    """Return the rows to write: one partition, in the order of the group's key (for a curve, of its
    columns).

    A shuffle moves them, so that each input is closed when its rows are read.
    """
    parts = [source.read([file.path]).coalesce(1).limit(rows) for file, rows in chosen]
    together = stage.union(parts).repartition(1)
    if not group.action.ordering.key:
        return together
    key = keys.resolve(source.table.schema(), together.schema, group.action.ordering.key)
    return together.sortWithinPartitions(*keys.order(key))


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of a file that the pilot wrote.

    fixed_bytes: of dictionaries and the footer. page_bytes: as in `Compression`, None if the footer
    does not show it.
    """

    rows: int
    bytes: int
    fixed_bytes: int = 0
    page_bytes: float | None = None


def expected(group: Group, chosen: Sequence[Portion], sizes: Sequence[Sizes]) -> Compression | None:
    """Return how a group compresses if all its rows compress like those of the pilot.

    Dictionaries and a footer are written once per file. A dictionary that is kept has seen nearly
    all its values in the first pages, so its size does not grow with the rows.
    """
    count = sum(each.rows for each in sizes)
    if not count:
        return None
    repeated = min(1.0, count * group.files / group.rows)
    written = sum(each.bytes - (1.0 - repeated) * each.fixed_bytes for each in sizes)
    taken = sum(rows for _, rows in chosen)
    read = sum(file.bytes / file.rows * rows for file, rows in chosen)
    pages = [each.page_bytes for each in sizes if each.page_bytes is not None]
    return Compression(written / count * taken / read, max(pages, default=None))


def sizes_of(table: Any, file: Any) -> Sizes:
    """Return the sizes of an uncommitted DataFile, from its entry and its footer."""
    rows, size = int(file.recordCount()), int(file.fileSizeInBytes())
    footer = footer_of(table, str(file.location()), size)
    if footer is None or not rows:
        return Sizes(rows, size)
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    columns = [[group.column(i) for group in groups] for i in range(footer.num_columns)]
    stored = sum(chunk.total_compressed_size for chunks in columns for chunk in chunks)
    dictionaries = sum(_dictionary_bytes(chunk) for chunks in columns for chunk in chunks)
    saved = sum(_page_bytes(chunks, rows) for chunks in columns)
    return Sizes(rows, size, size - stored + dictionaries, saved)


def _page_bytes(chunks: Sequence[Any], rows: int) -> float:
    """Return the bytes that compression saves on a page of one column.

    A page ends after a number of rows or of bytes, whichever comes first. Until then Java's writer
    counts the plain values, those in a dictionary too (`FallbackValuesWriter.getBufferedSize`).
    """
    held = sum(_plain_bytes(chunk) for chunk in chunks)
    stored = sum(chunk.total_compressed_size - _dictionary_bytes(chunk) for chunk in chunks)
    page = min(held * PAGE_ROWS / rows, float(PAGE_BYTES))
    return float(page * max(0.0, 1.0 - stored / max(held, 1.0)))


def _plain_bytes(chunk: Any) -> float:
    """Return the bytes of a chunk's values without a dictionary and before compression."""
    width, found = WIDTHS.get(chunk.physical_type), chunk.statistics
    if width is not None:
        nulls = found.null_count if found is not None and found.has_null_count else 0
        return float(width * (chunk.num_values - nulls))
    if not chunk.has_dictionary_page or found is None or not found.has_min_max:
        return float(chunk.total_uncompressed_size)
    ends = [len(end.encode() if isinstance(end, str) else bytes(end)) for end in (
        found.min, found.max) if isinstance(end, str | bytes)]  # fmt: skip
    value = LENGTH_BYTES + sum(ends) / len(ends) if ends else 0.0
    return float(max(chunk.total_uncompressed_size, value * chunk.num_values))


def page_bytes_of(table: Any, group: Group) -> float | None:
    """Return `Compression.page_bytes` as the footer of the group's largest input shows it; None if
    that cannot be read, or if some pages end by their bytes, before those of other columns.

    The input may have another writer: a dictionary that takes more than the plain values is one
    that Java's writer drops.
    """
    file = max(group.inputs, key=lambda one: (one.bytes, one.path))
    footer = footer_of(table, file.path, file.bytes)
    if footer is None or not footer.num_row_groups or not footer.row_group(0).num_rows:
        return None
    first = footer.row_group(0)
    saved = 0.0
    for number in range(first.num_columns):
        chunk = first.column(number)
        held, raw = _plain_bytes(chunk), float(max(chunk.total_uncompressed_size, 1))
        stored = chunk.total_compressed_size - _dictionary_bytes(chunk)
        if raw > held:
            stored = chunk.total_compressed_size * held / raw
        page = held * PAGE_ROWS / first.num_rows
        if page > PAGE_BYTES:
            return None
        saved += page * max(0.0, 1.0 - stored / max(held, 1.0))
    return saved


def _dictionary_bytes(chunk: Any) -> int:
    if not chunk.has_dictionary_page:
        return 0
    return int(chunk.data_page_offset - chunk.dictionary_page_offset)
