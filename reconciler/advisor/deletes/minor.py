"""A rewrite of delete files alone, and what it changes for readers."""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.plan.actions.delete_maintenance import DeleteMaintenance
from reconciler.queries.read_cost import ShapeReading
from reconciler.table.deletes import DeleteTable
from reconciler.table.filetable import Int64, Partition


@dataclass(frozen=True)
class Minor:
    """Delete files of one (spec, partition) and what replacing them does."""

    kind: type[DeleteMaintenance]
    """The action that replaces or removes them."""
    spec_id: int
    """Id of their partition spec; 0 for the removal of files that apply to nothing."""
    partition: Partition
    """Values of their partition; () if unpartitioned, and for a removal."""
    inputs: Int64
    """int64[inputs], rows of the delete table: the delete files that are replaced or removed."""
    rows: Int64
    """int64[files], rows of the file table, ascending: the data files that the inputs apply to."""
    before: tuple[ShapeReading, ...]
    """What each shape reads of these data files now, in the order of the demands."""
    after: tuple[ShapeReading, ...]
    """What each shape reads of them afterwards, likewise."""
    files_out: int
    """Number of delete files after the replacement; 0 for a removal."""
    bytes_in: int
    """Stored bytes that the execution reads."""
    bytes_out: int
    """Stored bytes of the new delete files, estimated."""
    positions: int
    """Number of deleted positions that are written, at most."""
    operations: int
    """Number of commits that wrote the inputs."""
    saving: float
    """Bytes of reading that are saved over the horizon, applying the deletes included."""
    cost: float
    """Cost of the execution, in bytes of reading."""
    due: float
    """Number of operations from which maintenance pays (n*): infinite if it saves nothing, NaN
    where no queries are known."""
    converts: bool = False
    """Whether equality deletes become positions, so that their rows are known."""
    slices: int = 1
    """Number of actions into which a budget cuts the maintenance; this is one of them."""
    evidence: str = "deletes"
    """What asks for it: "deletes", "objective" or "workload"."""
    why: str = ""
    """The reason, for people."""

    def action(self, deletes: DeleteTable) -> DeleteMaintenance:
        paths = sorted({str(deletes.path[row]) for row in self.inputs.tolist()})
        return self.kind(inputs=tuple(paths), spec_id=self.spec_id, partition=self.partition)
