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

    A moving query is present as the recorded instance, whose `executions` are 0, and as replayed
    future instances, whose `weight` is 0.
    """

    shape_id: str
    """Id of the shape: hash of its predicate without literals."""
    predicate: Predicate
    """The predicate with slots for the literals."""
    projection: Mapping[int, float]
    """By field id, the share of the queries that read the column."""
    literals: tuple[SlotLiterals, ...]
    """The literals of each slot, for all queries."""
    weight: Float64
    """float64[queries]: executions in the recorded window."""
    executions: Float64
    """float64[queries]: executions expected within the payback horizon, counted from the workload's
    end."""
    moving: bool
    """Whether the shape has a literal that moves with time."""
    full_scan: bool
    """Whether the queries could not be understood and count as reading the whole table."""

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
