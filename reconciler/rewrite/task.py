"""What one rewrite task is given and what it hands back: values that a process can send another.

A task reads its files, leaves out deleted rows, orders the rest, and writes files of exactly the
planned rows. It needs neither Spark nor a catalog.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reconciler.rewrite.block_ids import Blocks
from reconciler.rewrite.comparison import Compared
from reconciler.rewrite.files import DataFile, TableShape
from reconciler.table.cut_tree import Tree

ATTEMPT, NUMBER = "ATTEMPT", "NUMBER"
"""In the name of a file to write: the place of the attempt's name, and of the file's number."""


class Unfit(Exception):
    """The engine cannot carry out the task, though nothing is wrong with it; the reason follows."""


@dataclass(frozen=True, slots=True)
class Key:
    """One column that rows are ordered by."""

    field_id: int
    """Field id of the column, which may be inside structs."""
    descending: bool = False
    """Then NULL comes last, and NaN first."""


@dataclass(frozen=True, slots=True)
class Order:
    """How rows are ordered; those with equal keys stay in order of arrival."""

    keys: tuple[Key, ...] = ()
    """The most significant first; () leaves rows in order of arrival."""
    curve: bool = False
    """Whether along the Hilbert curve over the ranks of the keys."""
    tree: Tree | None = None
    """The tree of cuts, whose columns the keys are then: leaf by leaf."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the partition spec that rows move to."""

    source_id: int
    """Field id of the column that it is computed from."""
    name: str
    """Its name in the spec."""
    transform: str
    """Its transform as the specification writes it: "bucket[16]"."""
    type: str
    """Iceberg's type of the source column."""


@dataclass(frozen=True, slots=True)
class FileProperties:
    """How Parquet files are written."""

    codec: str = "zstd"
    """Compression, as pyarrow names it."""
    level: int | None = 3
    """None where the codec has no levels, or its own default is taken."""
    page_bytes: int = 1 << 20
    """Bytes before compression at which a page ends."""
    page_rows: int = 20_000
    """Rows at which a page ends at the latest."""
    dictionary_bytes: int = 2 << 20
    """The most that a column's dictionary takes before values are written plainly."""
    blooms: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    """Columns with a Bloom filter, by dotted path: distinct values of a row group that it is made
    for, and the share of false positives."""


@dataclass(frozen=True, slots=True)
class Task:
    """One group to rewrite."""

    table: TableShape
    """Its present columns, and those that files and deletes may still have."""
    files: tuple[DataFile, ...]
    """Input files in order of arrival, each with the deletes that Iceberg's scan found for it."""
    order: Order
    """Order in which rows are written; within their partition, if they move."""
    paths: tuple[str, ...]
    """Paths of the files to write. ATTEMPT in a file's name is replaced by the attempt's name."""
    group_rows: int
    """Most rows of a row group."""
    properties: FileProperties = FileProperties()
    """How pages and row groups are written."""
    moves: tuple[Field, ...] = ()
    """Partition fields of the spec that rows move to; () if they stay in their partition. Each
    partition has a directory of its own."""
    file_rows: float = 0.0
    """Rows of a file of the target size, where partitions or leaves have files of their own, so
    that rows decide how many there are. `paths` has one entry then, in whose name NUMBER becomes
    the file's. 0 where there are as many as paths."""
    blocks: Blocks | None = None
    """The block ids that rows get; None where the table has no column of them."""
    decoded: int = 0
    """Bytes that the rows take in memory, as footers say (`decoded`); 0 if that is not known."""


@dataclass(frozen=True, slots=True)
class Output:
    """A file that was written."""

    path: str
    """Its location."""
    rows: int
    """Number of rows by its footer."""
    size: int
    """Bytes of the file."""
    split_offsets: tuple[int, ...]
    """Where row groups begin."""
    nans: Mapping[int, int] = field(default_factory=dict)
    """NaN values of float columns outside lists and maps, by field id: no footer counts them."""
    bounds: Mapping[int, tuple[bytes, bytes]] = field(default_factory=dict)
    """Bounds of columns with values that are too long for a footer's statistics."""
    partition: tuple[Any, ...] = ()
    """Values of the fields by which rows moved, in JSON."""
    footer: bytes = b""
    """The end of the file, from its footer on: nobody reads it again for its entry."""


@dataclass(frozen=True, slots=True)
class Made:
    """What a task hands back."""

    files: tuple[Output, ...]
    """The files, in the order of their rows."""
    cpu_seconds: float
    """CPU seconds of all threads of the task."""
    compared: Compared | None = None
    """How the files compare with the inputs, before they are stored; files whose rows differ are
    not stored. None if the task did not compare: local files are written in place."""


@dataclass(frozen=True, slots=True)
class Resources:
    """What a task may use."""

    memory_bytes: int
    """Bytes of memory; rows that do not fit it go through the disk."""
    threads: int = 1
    """Number of files that may be read or written side by side; each thread costs a little more
    CPU."""
