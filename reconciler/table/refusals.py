"""Files that are left alone until they change, each with its reason: a plan leaves them out.

A reader may misread such a file, or its rewrite failed its verification. Whoever finds it records
a refusal (`state.refusals`); a data file never changes under its path, so that a refusal holds
until the table refers to another file. Only a damaged file may be restored in its place: its
refusal ends when its storage says that it has changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

PHYSICAL_SCHEMA = "PhysicalSchema"
NO_FIELD_IDS = "NoFieldIds"
WRONG_SIZE = "WrongFileSize"
WRONG_ROWS = "WrongRowCount"
WRONG_BOUNDS = "WrongBounds"
NOT_VERIFIED = "NotVerified"
DAMAGED = "Damaged"

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
}
"""What a person can do, by reason."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a file is not rewritten."""

    path: str
    """Of the data file or delete file, as the manifest spells it."""
    reason: str
    """A constant of this module: a key of REMEDIES."""
    column: str
    """Dotted name of the column that shows it, "" if it concerns the file as a whole."""
    detail: str
    """A clause that says what the file holds, such as "timestamp in milliseconds"."""
    changed_ms: int = 0
    """When a damaged file had changed last, in milliseconds since 1970; 0 for other reasons."""

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


def by_kind(refusals: Iterable[Refusal]) -> dict[tuple[str, str, str], list[Refusal]]:
    """Return the refusals by reason, column and detail, each kind in order of path."""
    kinds: dict[tuple[str, str, str], list[Refusal]] = {}
    for one in sorted(refusals, key=lambda one: (one.kind, one.path)):
        kinds.setdefault(one.kind, []).append(one)
    return kinds
