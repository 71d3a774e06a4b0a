"""Computes the share of a table's reading that its fragments explain
(docs/design/definitions.md#coverage).

Queries that could not be parsed and prepared statements with unknown values are unexplained. No
layout is derived from a workload whose share is below one half. A share that is too high would
allow it, so recorded bytes are used where the log has them, and modelled bytes elsewhere;
`Coverage.basis` says which.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reconciler.queries.pruning import prune
from reconciler.queries.shape import Shape, Workload
from reconciler.queries.table_view import projected_bytes
from reconciler.table.filetable import FileTable

RECORDED = "the bytes read (as the log recorded them)"
MODELLED = "the bytes read (modelled: the log has no measured bytes)"
MIXED = "the bytes read (recorded by the log, modelled where it has none)"
WEIGHTS = "query weight (bytes are unknown)"

SAMPLED_QUERIES = 64
"""Number of queries of a shape whose bytes are modelled; the others count with their mean."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of a table's reading its recorded queries explain."""

    share: float
    """Share from 0 to 1 that they explain; 1 without any reading."""
    basis: str
    """What it is a share of: RECORDED, MODELLED, MIXED or WEIGHTS."""


def coverage(workload: Workload, files: FileTable | None) -> Coverage:
    """Return the coverage. files: the table's, to model bytes that were not recorded, or None."""
    recorded = [bool(np.isfinite(shape.recorded_bytes).all()) for shape in workload.shapes]
    if workload.shapes and all(recorded):
        basis, read_bytes = RECORDED, [_recorded(shape) for shape in workload.shapes]
    elif files is not None and len(files):
        any_recorded = any(np.isfinite(shape.recorded_bytes).any() for shape in workload.shapes)
        basis = MIXED if any_recorded else MODELLED
        read_bytes = [_filled(shape, files) for shape in workload.shapes]
    else:
        basis, read_bytes = WEIGHTS, [float(shape.weight.sum()) for shape in workload.shapes]
    total = float(sum(read_bytes))
    known = [explained(shape) for shape in workload.shapes]
    explaining = float(sum(size for size, ok in zip(read_bytes, known, strict=True) if ok))
    if total > 0.0:
        return Coverage(explaining / total, basis)
    return Coverage(1.0 if all(known) else 0.0, basis)


def explained(shape: Shape) -> bool:
    """Whether the predicate of the shape describes what its queries read."""
    return not shape.full_scan and shape.unbound is None


def _recorded(shape: Shape) -> float:
    return float((shape.weight * shape.recorded_bytes).sum())


def _filled(shape: Shape, files: FileTable) -> float:
    """Return the recorded bytes, and the modelled mean for queries without."""
    missing = ~np.isfinite(shape.recorded_bytes)
    known = float((shape.weight * np.where(missing, 0.0, shape.recorded_bytes)).sum())
    if not missing.any():
        return known
    return known + float(shape.weight[missing].sum()) * _modelled(shape, files)


def _modelled(shape: Shape, files: FileTable) -> float:
    """Return the mean projected bytes of the files that a query of the shape would open."""
    size = projected_bytes(files, shape.projection)
    if not explained(shape):
        return float(size.sum())
    count = min(len(shape), SAMPLED_QUERIES)
    chosen = np.unique(np.linspace(0, len(shape) - 1, count).astype(np.int64))
    read = prune(shape.take(chosen), files).astype(np.float64) @ size
    return float(np.average(read, weights=np.maximum(shape.weight[chosen], 1e-300)))
