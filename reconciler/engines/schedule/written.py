"""What a group's rewrite hands back: verified files that are not committed yet."""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.engines.manifests import WrittenFile
from reconciler.engines.schedule.group import Group
from reconciler.rewrite.block_ids import Blocks


@dataclass(frozen=True, slots=True)
class Written:
    """What a group's rewrite hands back: verified files that are not committed."""

    number: int
    """Number of the group in its attempt."""
    group: Group
    """The group that was rewritten."""
    files: tuple[WrittenFile, ...]
    """The new files."""
    rows: int
    """Rows in the files, which are those of the inputs without deleted ones."""
    hashed: bool
    """Whether the rows were compared by their hashes, or only counted."""
    cpu_seconds: float
    """CPU seconds of reading and writing."""
    verify_cpu_seconds: float
    """CPU seconds of comparing rows."""
    seconds: float
    """Seconds that the group took by the clock."""
    repeated_bytes: int = 0
    """Bytes of inputs that were read once more, because the first try did not end."""
    by_spark: str = ""
    """Why Spark wrote the files, "" if a task did."""
    blocks: Blocks | None = None
    """The block ids that its rows have; None if those of the inputs were kept, or none are."""

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(file.path for file in self.files)

    @property
    def bytes(self) -> int:
        """Return the bytes of the files."""
        return sum(file.size for file in self.files)
