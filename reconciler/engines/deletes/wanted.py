"""Data files whose hidden rows are wanted, and what was found and written of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from reconciler.engines.delete_file import DeleteFile


@dataclass(frozen=True, slots=True)
class Hidden:
    """What was found and written."""

    files: Sequence[DeleteFile] = ()
    """Delete files that were written, with their entries."""
    rows: Mapping[str, bytes] = field(default_factory=dict)
    """The hidden rows of data files as bitmaps, as far as the driver keeps them."""
    cpu_seconds: float = 0.0
    """CPU seconds of the tasks."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A data file whose hidden rows are wanted."""

    applied: Sequence[DeleteFile]
    """The delete files that hide them."""
    stays: bool = False
    """Whether its own delete files stay where they alone hide the same rows."""
    known: bytes | None = None
    """The rows, if they were found before."""
    key_bytes: int = 0
    """Stored bytes of the columns of keys."""
