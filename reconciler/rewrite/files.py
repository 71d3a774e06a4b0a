"""What readers of a rewrite know of a table and of its data files, without a catalog."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.rewrite.columns import Column
from reconciler.rewrite.deletes import Delete
from reconciler.rewrite.partition_check import TargetField

ROW_ID, LAST_UPDATED = 2147483540, 2147483539
"""Reserved field ids of row lineage (format 3)."""


@dataclass(frozen=True, slots=True)
class TableShape:
    """The schema of a table, as a reader of its data files needs it."""

    columns: tuple[Column, ...]
    """Its present columns."""
    ways: Mapping[int, tuple[Column, ...]]
    """By field id, the columns from the top level down to this one, for each column outside lists
    and maps, dropped ones included."""
    mapping: str | None
    """The property schema.name-mapping.default, None if it is not set."""
    lineage: bool
    """Whether its rows have row ids (from format 3 on)."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file with the deletes that apply to it."""

    path: str
    """Location of the file, as the manifest spells it."""
    rows: int
    """Number of rows that its manifest entry says, deleted ones included."""
    size: int
    """Bytes of the file."""
    sequence: int = 0
    """Data sequence number."""
    first_row_id: int | None = None
    """Row id of its first row, from format 3 on; None before."""
    partition: tuple[tuple[int, str, Any], ...] = ()
    """Id, type and value in JSON of the source column of each identity field of its spec."""
    deletes: tuple[Delete, ...] = ()
    """Every delete file that may apply to it."""
    moved: tuple[TargetField, ...] = ()
    """Fields of the partition that its rows moved to, which the witness checks; () if they did not
    move."""
