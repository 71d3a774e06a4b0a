"""Files that are left alone until they change, each with its reason: a plan leaves them out.

A reader may misread such a file, or its rewrite failed its verification. Whoever finds it records
a refusal (`state.refusals`); a data file never changes under its path, so that a refusal holds
until the table refers to another file. Only a damaged file may be restored in its place: its
refusal ends when its storage says that it has changed. What a run alone found out, of code or of
memory, holds as long as both stay as they were (`circumstances`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from reconciler import __version__

PHYSICAL_SCHEMA = "PhysicalSchema"
NO_FIELD_IDS = "NoFieldIds"
WRONG_SIZE = "WrongFileSize"
WRONG_ROWS = "WrongRowCount"
WRONG_BOUNDS = "WrongBounds"
NOT_VERIFIED = "NotVerified"
DAMAGED = "Damaged"
NOT_WRITABLE = "NotWritable"
OUT_OF_MEMORY = "OutOfMemory"
FAILED = "RewriteFailed"
OF_CODE = (NOT_VERIFIED,)
"""Reasons that another version may not find."""
OF_RUN = (NOT_WRITABLE, OUT_OF_MEMORY, FAILED)
"""Reasons that another version, or tasks with other memory, may not find."""

REMEDIES: Mapping[str, str] = {
    PHYSICAL_SCHEMA: "write the file again with an Iceberg writer, from its values as they were "
    "meant, and replace it in the table",
    NO_FIELD_IDS: "set the table property schema.name-mapping.default, or write the file again "
    "with an Iceberg writer",
    WRONG_SIZE: "remove the file from the table's metadata, and register it again with its real "
    "size",
    WRONG_ROWS: "remove the file from the table's metadata, and register it again with its real "
    "number of rows",
    WRONG_BOUNDS: "let the engine that wrote the file rewrite it, or remove the file from the "
    "table's metadata and register it again with the bounds of its footer",
    NOT_VERIFIED: "compare what several engines read of the file; write it again with an Iceberg "
    "writer if they differ, else report it with the output of layoutctl history TABLE",
    DAMAGED: "restore the file, or roll the table back to a snapshot that does not need it",
    NOT_WRITABLE: "use another layout for the table, or leave these files as they are",
    OUT_OF_MEMORY: "set another spec.engine.executors.memory, with which it is tried again; on one "
    "machine, give it more memory first",
    FAILED: "report it with the run's log; another version, or another "
    "spec.engine.executors.memory, tries again",
}
"""What a person can do, by reason."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a file is not rewritten."""

    path: str
    """Location of the data file or delete file, as the manifest spells it."""
    reason: str
    """A constant of this module: a key of REMEDIES."""
    column: str
    """Dotted name of the column that shows it, "" if it concerns the file as a whole."""
    detail: str
    """A clause that says what the file holds, such as "timestamp in milliseconds"."""
    changed_ms: int = 0
    """When a damaged file had changed last, in milliseconds since 1970; 0 for other reasons, and
    where the storage does not say."""
    under: str = ""
    """The `circumstances` that it was found in."""

    def holds(self, memory_bytes: int) -> bool:
        """Return whether it holds for executors with this memory, and this version."""
        return self.under == circumstances(self.reason, memory_bytes)

    @property
    def text(self) -> str:
        """Return the file, the column and what it holds."""
        where = f'{self.path}: column "{self.column}": ' if self.column else f"{self.path}: "
        return where + self.detail

    @property
    def sentence(self) -> str:
        """Return what the file holds, and in which column, without the file."""
        if self.column:
            return f'Column "{self.column}": {self.detail}.'
        return f"{self.detail[:1].upper()}{self.detail[1:]}."

    @property
    def kind(self) -> tuple[str, str, str]:
        """What files that are refused alike have in common."""
        return self.reason, self.column, self.detail


def circumstances(reason: str, memory_bytes: int) -> str:
    """Return what a refusal depends on besides the file, "" if on nothing. memory_bytes: of an
    executor, as the policy asks for it."""
    if reason in OF_RUN:
        return f"version {__version__}, {memory_bytes} bytes of memory"
    return f"version {__version__}" if reason in OF_CODE else ""


def by_kind(refusals: Iterable[Refusal]) -> dict[tuple[str, str, str], list[Refusal]]:
    """Return the refusals by reason, column and detail, each kind in order of path."""
    kinds: dict[tuple[str, str, str], list[Refusal]] = {}
    for one in sorted(refusals, key=lambda one: (one.kind, one.path)):
        kinds.setdefault(one.kind, []).append(one)
    return kinds
