"""Delete files of a snapshot as values: what they apply to, by the reader's rule.

A delete file of one data file names it, a position delete file of a partition applies to its data
files of at most its own sequence number, an equality delete file to those of lower ones, in its
partition or, if its spec is unpartitioned, in all of them (Apache Iceberg table specification,
"Scan planning").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from reconciler.table.deletes import PartitionKey

VECTORS_VERSION = 3
"""Format version from which on hidden rows are written as vectors."""


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """A delete file, or a vector in one, as a manifest entry describes it."""

    entry: Any = field(compare=False, repr=False)
    """The engine's own object of the entry."""
    path: str
    """Path of the file, which several vectors may share."""
    offset: int
    """First byte of a vector in its file; 0 for other delete files."""
    partition_key: PartitionKey
    """Its partition."""
    everywhere: bool
    """Whether its spec is unpartitioned."""
    sequence: int
    """Its data sequence number; 0 until it is committed."""
    data_file: str
    """Path of the only data file that it applies to; "" for a wider scope."""
    keys: tuple[int, ...]
    """Field ids that an equality delete file compares; () for position deletes."""
    format: str
    """Its format, in capitals: a deletion vector lies in a PUFFIN file."""
    rows: int
    """Number of its deleted positions or of its equality deletes."""
    size: int
    """Stored bytes of the file; of a vector its own."""

    @property
    def vector(self) -> bool:
        """Whether it is a deletion vector."""
        return self.format == "PUFFIN"

    @property
    def identity(self) -> tuple[str, int]:
        """Return path and offset, as in `task_file.Deletes.positions`."""
        return self.path, self.offset


@dataclass(frozen=True, slots=True)
class Ages:
    """Data sequence numbers of live data files."""

    oldest: Mapping[PartitionKey, int]
    """The lowest data sequence number of each partition."""
    of_path: Mapping[str, int]
    """Data sequence numbers of the files that were asked for, by path."""


def of_paths(files: Iterable[DeleteFile], paths: Iterable[str]) -> list[DeleteFile]:
    wanted = frozenset(paths)
    return [file for file in files if file.path in wanted]


def dangling(files: Iterable[DeleteFile], ages: Ages) -> list[DeleteFile]:
    """Return those of the files that apply to no live data file."""
    return [file for file in files if not _applies(file, ages)]


def _applies(file: DeleteFile, ages: Ages) -> bool:
    if file.data_file:
        age = ages.of_path.get(file.data_file)
        return age is not None and age <= file.sequence
    if file.keys and file.everywhere:
        oldest = min(ages.oldest.values(), default=None)
    else:
        oldest = ages.oldest.get(file.partition_key)
    return oldest is not None and oldest <= file.sequence - bool(file.keys)
