"""What the witness is asked to compare (`WitnessWork`), and what it answers (`WitnessResult`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from reconciler.api.task_memory import Limits
from reconciler.rewrite.block_ids import Blocks
from reconciler.rewrite.deletes import Delete
from reconciler.rewrite.failures import Failure
from reconciler.rewrite.files import DataFile, TableShape
from reconciler.table.physical import Expected


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Number and hash of the rows that readers see, whatever their order."""

    rows: int = 0
    """Number of rows."""
    total: int = 0
    """The sum of their hashes, 0 if they are only counted."""

    def __add__(self, other: Fingerprint) -> Fingerprint:
        return Fingerprint(self.rows + other.rows, self.total + other.total)


@dataclass(frozen=True, slots=True)
class WitnessResult:
    """What one task found in files. The results of several tasks are added."""

    fingerprint: Fingerprint = Fingerprint()
    """Number and hash of the rows of all files together."""
    columns: Mapping[str, int] = field(default_factory=dict)
    """The sum of the hashes of each column alone, if it was asked for."""
    hidden: int = 0
    """Rows that are deleted, of files whose deletes were compared."""
    changed: tuple[Changed, ...] = ()
    """Data files whose deleted rows would change."""
    failures: tuple[Failure, ...] = ()
    """Files that could not be compared; the other fields are then incomplete."""
    cpu_seconds: float = 0.0
    """CPU seconds of the task."""

    def __add__(self, other: WitnessResult) -> WitnessResult:
        sums = defaultdict(int, self.columns)
        for name, total in other.columns.items():
            sums[name] += total
        return WitnessResult(
            self.fingerprint + other.fingerprint, dict(sums), self.hidden + other.hidden,
            (*self.changed, *other.changed), (*self.failures, *other.failures),
            self.cpu_seconds + other.cpu_seconds,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Exchange:
    """A data file whose delete files are replaced."""

    file: DataFile
    """The data file, with its deletes before."""
    after: tuple[Delete, ...]
    """Its deletes afterwards."""
    new: frozenset[tuple[str, int]]
    """Path and offset of the new ones among `after`."""


@dataclass(frozen=True, slots=True)
class Changed:
    """A data file whose deleted rows would change."""

    path: str
    """Location of the data file."""
    back: int
    """Rows that readers would see again."""
    gone: int
    """Rows that readers would not see any more."""
    repeated: int
    """Positions that are written more than once."""
    stray: int
    """Positions in new delete files that no row of it has, nor any replaced delete file."""
    miscounted: int
    """Difference between the positions in new delete files and those that their manifest entries
    count."""


@dataclass(frozen=True, slots=True)
class WitnessWork:
    """What tasks compare: the rows of files, or the deletes of files before and after."""

    table: TableShape
    """Columns of the table, present and past."""
    files: tuple[DataFile, ...] = ()
    """Data files whose rows are hashed."""
    exchanges: tuple[Exchange, ...] = ()
    """Data files with their deletes before and after."""
    hashed: bool = True
    """Whether rows are hashed, or only counted."""
    by_column: bool = False
    """Whether to hash each column alone."""
    form: Expected | None = None
    """What the files must hold, if they are new; else None."""
    blocks: Blocks | None = None
    """The block ids that their rows must have, if they are new and the table has a column of ids,
    which `table` then lacks; None where nobody asks."""


@dataclass(frozen=True, slots=True)
class Check:
    """How the files of a rewrite are compared before they are stored."""

    inputs: WitnessWork
    """What is replaced, with the deletes that the witness's own rules apply."""
    form: Expected
    """What new files must hold."""
    limits: Limits
    """Memory of the comparison."""
    blocks: Blocks | None = None
    """The block ids that rows of new files must have."""


@dataclass(frozen=True, slots=True)
class Compared:
    """What the witness found before and after a rewrite."""

    before: WitnessResult
    """Of the inputs."""
    after: WitnessResult = WitnessResult()
    """Of the outputs."""
    differing: tuple[str, ...] = ()
    """Columns whose values differ, if the rows do."""

    @property
    def same(self) -> bool:
        failed = self.before.failures or self.after.failures
        return not failed and self.before.fingerprint == self.after.fingerprint


def differing(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[str, ...]:
    """Return the columns whose sums of hashes differ."""
    return tuple(name for name in before if before[name] != after.get(name, 0))
