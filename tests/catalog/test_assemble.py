"""Bounds as manifests hold them, in the domain of the column."""

from __future__ import annotations

import uuid

import numpy as np

from reconciler.catalog.assemble import column_bounds
from reconciler.catalog.entries import FieldStats, RawBounds
from reconciler.table.schema import Field


def raw(*values: str) -> RawBounds:
    data = np.array([list(uuid.UUID(value).bytes) for value in values], dtype=np.uint8)
    return RawBounds(data, np.full(len(values), 16, dtype=np.int32))


def test_bounds_of_uuids_in_signed_order_judge_no_file() -> None:
    """Iceberg's Java writer takes UUIDs from 8000… on for smaller than all others."""
    small, large = "7e5ffd25-4797-fca7-db34-30d76169f4d8", "87526bea-d6cd-66d0-25d2-7cb853c14a97"
    stats = FieldStats(lower=raw(large, small), upper=raw(small, large))
    found = column_bounds(Field(1, "id", "uuid"), stats, 2, 16)
    assert found.bounded.tolist() == [False, True]
