"""The queries of one shape, as arrays: what the cost of reading is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from reconciler.queries.fragments import ShapeBatch
from reconciler.queries.predicate import TRUE, Predicate
from reconciler.queries.predicate_batch import SlotLiterals
from reconciler.table.filetable import Array, Float64


@dataclass(frozen=True)
class Demand:
    """The queries of one shape with resolved literals. Arrays have shape [queries].

    projection: by field id, the share of the queries that read the column.
    weight: executions in the recorded window. executions: expected within the payback horizon from
    the workload's end. For a moving query, the recorded instance has executions 0 and the replayed
    future instances have weight 0.
    """

    shape_id: str
    predicate: Predicate
    projection: Mapping[int, float]
    literals: tuple[SlotLiterals, ...]
    weight: Float64
    executions: Float64
    moving: bool
    full_scan: bool

    def __len__(self) -> int:
        return len(self.weight)

    @property
    def prunable(self) -> bool:
        return not self.full_scan and self.predicate != TRUE

    def take(self, index: Array | slice) -> Demand:
        return replace(
            self,
            literals=tuple(_take_literals(values, index) for values in self.literals),
            weight=self.weight[index],
            executions=self.executions[index],
        )


def recorded(batch: ShapeBatch) -> Demand:
    """Return the recorded queries of the shape, with their own values."""
    return Demand(
        shape_id=batch.shape_id,
        predicate=batch.predicate,
        projection=batch.projection,
        literals=batch.literals,
        weight=batch.weight,
        executions=batch.weight,
        moving=False,
        full_scan=batch.full_scan,
    )


def _take_literals(values: SlotLiterals, index: Array | slice) -> SlotLiterals:
    if isinstance(values, np.ndarray):
        return values[index]
    if isinstance(index, slice):
        return values[index]
    return tuple(values[int(i)] for i in np.arange(len(values))[index])
