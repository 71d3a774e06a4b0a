"""What queries read of the table as it is, in the same terms as the candidates' readings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from reconciler.advisor.simulate.grid import GridReadings
from reconciler.queries.pruning import prune
from reconciler.queries.read_cost import read_shape
from reconciler.queries.shape import Shape
from reconciler.queries.table_view import TableView, projected_bytes
from reconciler.table.filetable import Float64


def present_readings(view: TableView, demands: Sequence[Shape]) -> GridReadings:
    """Return the readings of the observed files, float64[1, demands].

    Row groups are exact where footers are known. Footers themselves are part of a file's cost
    (`present_footers`).
    """
    bare = replace(view, footer_bytes=None)
    beside = view.files.delete_files.astype(np.float64)  # opened with data files, as a plan counts
    found = np.zeros((6, 1, len(demands)))
    for number, demand in enumerate(demands):
        reading = read_shape(bare, demand)
        weight, expected = demand.weight, demand.executions
        groups, skipped = _row_groups(view, demand, reading.files, reading.bytes)
        opened = reading.files + _of_opened(view, demand, beside)
        found[:, 0, number] = (
            weight @ reading.bytes, expected @ reading.bytes, expected @ opened,
            expected @ groups, expected @ skipped, weight @ reading.files,
        )  # fmt: skip
    return GridReadings(*found)


class FooterReading(NamedTuple):
    """Bytes of footers that queries read."""

    window: float
    """In the recorded window."""
    ahead: float
    """Over the horizon."""


def present_footers(view: TableView, demands: Sequence[Shape]) -> FooterReading:
    """Return the bytes of present footers that queries read. A plan counts them, and
    `present_readings` does not. A file whose footer was not read counts as 0."""
    if view.footer_bytes is None:
        return FooterReading(0.0, 0.0)
    size = np.maximum(view.footer_bytes, 0).astype(np.float64)
    window = ahead = 0.0
    for demand in demands:
        each = _of_opened(view, demand, size)
        window += float(demand.weight @ each)
        ahead += float(demand.executions @ each)
    return FooterReading(window, ahead)


def _of_opened(view: TableView, demand: Shape, of_file: Float64) -> Float64:
    """Return the sum of a value over the files that each query opens, float64[queries]."""
    if not of_file.any():
        return np.zeros(len(demand))
    if not demand.prunable:
        return np.full(len(demand), of_file.sum())
    return np.einsum("qf,f->q", prune(demand, view.files).astype(np.float64), of_file)


def _row_groups(
    view: TableView, demand: Shape, files: np.ndarray, size: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the row groups read, and skipped in opened files, per query."""
    groups, owner = view.row_groups, view.group_file
    if groups is None or owner is None or view.label != "exact":
        each = max(float(np.mean(projected_bytes(view.files, demand.projection))), 1.0)
        inner = max(float(view.files.bytes.mean()) / view.row_group_bytes, 1.0)
        read = np.maximum(size / each * inner, files)
        return read, np.maximum(files * inner - read, 0.0)
    if not demand.prunable:
        every = np.full(len(demand), float(len(groups)))
        return every, np.zeros(len(demand))
    alive = prune(demand, groups)
    opened = prune(demand, view.files)
    alive &= opened[:, owner]
    read = alive.sum(axis=1).astype(np.float64)
    counts = np.bincount(owner, minlength=len(view.files)).astype(np.float64)
    inside = np.einsum("qf,f->q", opened, counts)
    return read, np.maximum(inside - read, 0.0)
