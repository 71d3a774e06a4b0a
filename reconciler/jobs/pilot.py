"""A pilot: some rows of a group are sorted and written ahead, to learn how all will compress.

Manifests tell what the inputs take. Sorted, and by another writer or codec, the same rows take
anything from half to more; a task that expects too much or too little ends in a short file, which
is then written twice (`balance`). What the pilot writes is thrown away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reconciler.core.row_groups import PAGE_ROWS
from reconciler.jobs import arrange, keys, stage
from reconciler.jobs.group import Group, InputFile, Yield

ROWS = 50_000
"""Two pages and a half of each column."""
BYTES = 8 << 20
"""Of rows wider than that, fewer."""
FILES = 8
"""Inputs it takes rows of; more where those have too few."""
MOST_FILES = 64
PAGE_BYTES = 1 << 20
FOOTER_BYTES = 1 << 18
LARGEST_SHARE = 0.05
"""Of a group's rows: below a twentieth, to be wrong costs more than to ask."""


def pays(group: Group) -> bool:
    """Whether files depend on how rows compress, and the group is large enough to ask."""
    return group.files > 1 and _wanted(group) <= LARGEST_SHARE * group.rows


def rows(source: arrange.Source, group: Group) -> Any:
    """The frame to write: one partition, in the order of the group's key (along a curve, of its
    columns)."""
    frames = [source.read([file.path]).coalesce(1).limit(n) for file, n in portions(group)]
    frame = stage.union(frames).coalesce(1)
    if not group.action.key:
        return frame
    key = keys.resolve(source.table.schema(), frame.schema, group.action.key)
    return frame.sortWithinPartitions(*keys.order(key))


def expected(group: Group, files: Sequence[Sizes]) -> Yield | None:
    """What a group takes if all its rows compress like those of the pilot's files."""
    written, count = sum(file.bytes for file in files), sum(file.rows for file in files)
    chosen = portions(group)
    read = sum(file.bytes / file.rows * n for file, n in chosen)
    taken = sum(n for _, n in chosen)
    if not count or not read:
        return None
    open_bytes = [file.open_bytes for file in files if file.open_bytes is not None]
    return Yield(written / count * taken / read, max(open_bytes, default=None))


@dataclass(frozen=True, slots=True)
class Sizes:
    """A file of the pilot. open_bytes: what compression takes off one full page of each column,
    None if its footer does not tell."""

    rows: int
    bytes: int
    open_bytes: float | None

    @staticmethod
    def of(table: Any, file: Any) -> Sizes:
        """Of an uncommitted DataFile."""
        rows, size = int(file.recordCount()), int(file.fileSizeInBytes())
        return Sizes(rows, size, _open_bytes(_footer(table, str(file.location()), size)))


def _footer(table: Any, path: str, size: int) -> Any:
    """pyarrow's FileMetaData; None if it is larger than the end of the file that is read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    stream = table.io().newInputFile(path).newStream()
    try:
        stream.seek(max(0, size - FOOTER_BYTES))
        end = bytes(stream.readAllBytes())
    finally:
        stream.close()
    try:
        return pq.read_metadata(pa.BufferReader(end))
    except pa.ArrowInvalid:
        return None


def _open_bytes(footer: Any) -> float | None:
    """A page ends after so many rows or so many bytes, whichever comes first."""
    if footer is None or not footer.num_rows:
        return None
    saved = 0.0
    for column in range(footer.num_columns):
        chunks = [footer.row_group(i).column(column) for i in range(footer.num_row_groups)]
        encoded = sum(chunk.total_uncompressed_size for chunk in chunks)
        stored = sum(chunk.total_compressed_size for chunk in chunks)
        page = min(encoded * PAGE_ROWS / footer.num_rows, PAGE_BYTES)
        saved += page * max(0.0, 1.0 - stored / max(encoded, 1))
    return saved


def portions(group: Group) -> list[tuple[InputFile, int]]:
    """Inputs, evenly spaced, and how many of its first rows the pilot takes of each."""
    wanted, inputs = _wanted(group), group.inputs
    files = max(FILES, -(-wanted * len(inputs) // max(group.rows, 1)))
    files = min(files, MOST_FILES, len(inputs))
    chosen = [inputs[len(inputs) * i // files] for i in range(files)]
    return [(file, min(file.rows, -(-wanted // files))) for file in chosen if file.rows]


def _wanted(group: Group) -> int:
    return min(ROWS, max(1, BYTES * group.rows // max(group.bytes, 1)))
