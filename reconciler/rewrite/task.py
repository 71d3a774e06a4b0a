"""What one rewrite task is given and what it hands back: values that a process can send another.

A task reads its files, leaves out deleted rows, orders the rest, and writes files of exactly the
planned rows. It needs neither Spark nor a catalog.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reconciler.rewrite.witness import DataFile, Table


@dataclass(frozen=True, slots=True)
class Key:
    """One column that rows are ordered by."""

    field_id: int
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Order:
    """How rows are ordered; those with equal keys stay in order of arrival."""

    keys: tuple[Key, ...] = ()
    """None: in order of arrival."""
    curve: bool = False
    """Whether along the Hilbert curve over the ranks of the keys."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the partition spec that rows move to."""

    source_id: int
    name: str
    transform: str
    """As the specification writes it: "bucket[16]"."""
    type: str
    """Of the source."""


@dataclass(frozen=True, slots=True)
class Writer:
    """Properties of the files that are written."""

    codec: str = "zstd"
    """As pyarrow names it."""
    level: int | None = 3
    """None where the codec has no levels, or its own default is taken."""
    page_bytes: int = 1 << 20
    page_rows: int = 20_000
    dictionary_bytes: int = 2 << 20
    """The most that a column's dictionary takes before values are written plainly."""
    blooms: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    """Columns with a Bloom filter, by dotted path: distinct values of a row group that it is made
    for, and the share of false positives."""


@dataclass(frozen=True, slots=True)
class Task:
    table: Table
    files: tuple[DataFile, ...]
    """In order of arrival, each with the deletes that Iceberg's scan found for it."""
    order: Order
    paths: tuple[str, ...]
    """Of the files to write; "{attempt}" in them becomes the attempt's name."""
    group_rows: int
    """Most rows of a row group."""
    writer: Writer = Writer()
    moves: tuple[Field, ...] = ()
    """By which rows get another partition; () if they stay in their own. `paths` has one entry
    then, in which "{place}" becomes the partition's directory and "{number}" the file's number."""
    file_rows: float = 0.0
    """Rows of a file of the target size, where rows move: each partition has files of its own."""


@dataclass(frozen=True, slots=True)
class Output:
    """A file that was written."""

    path: str
    rows: int
    size: int
    """In bytes."""
    split_offsets: tuple[int, ...]
    """Where row groups begin."""
    nans: Mapping[int, int] = field(default_factory=dict)
    """NaN values of float columns outside lists and maps, by field id: no footer counts them."""
    bounds: Mapping[int, tuple[bytes, bytes]] = field(default_factory=dict)
    """Least and greatest values of columns whose values are too long for a footer's statistics."""
    partition: tuple[Any, ...] = ()
    """Values of the fields by which rows moved, in JSON."""


@dataclass(frozen=True, slots=True)
class Made:
    """What a task hands back."""

    files: tuple[Output, ...]
    read_bytes: int
    """Stored bytes of its inputs."""
    cpu_seconds: float
    spilled: bool = False
    """Whether rows went through the disk, because they do not fit the task's memory."""


@dataclass(frozen=True, slots=True)
class Resources:
    """What a task may use."""

    memory_bytes: int
    threads: int = 1
    """For files that are read or written side by side; each costs a little more CPU than one."""
