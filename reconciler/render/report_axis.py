"""The axis of a column in the HTML report: where a value lies between the ends of its column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from reconciler.render.report_model import (
    Spans,
)
from reconciler.table.filetable import ColumnBounds, Float64
from reconciler.table.values import Kind, show


@dataclass(frozen=True)
class Axis:
    """Positions in [0, 1] of a column's values: linear for numbers, by rank for bytes."""

    kind: Kind
    """How the values are represented."""
    marks: np.ndarray[Any, Any]
    """The distinct bounds, ascending; for numbers only the first and the last are used."""

    @staticmethod
    def over(columns: Sequence[ColumnBounds]) -> Axis:
        ends = [
            bound[column.bounded] for column in columns for bound in (column.lower, column.upper)
        ]
        if columns[0].kind is Kind.FLOAT:
            ends = [end[np.isfinite(end)] for end in ends]
        return Axis(columns[0].kind, np.unique(np.concatenate(ends)))

    def position(self, values: np.ndarray[Any, Any]) -> Float64:
        """Return shares of the range; values beyond it are moved to its ends."""
        if len(self.marks) < 2:
            return np.zeros(len(values))
        if self.kind is Kind.BYTES:
            if values.dtype == object:
                values = np.array(values.tolist(), dtype=np.bytes_)
            below = np.searchsorted(self.marks, values, side="left")
            return np.clip(below / (len(self.marks) - 1), 0.0, 1.0)
        first, last = float(self.marks[0]), float(self.marks[-1])
        share = (values.astype(np.float64) - first) / (last - first)
        return np.clip(np.nan_to_num(share, nan=0.0), 0.0, 1.0)

    def spans(self, columns: Sequence[ColumnBounds]) -> Spans:
        kept = [column.take(np.flatnonzero(column.bounded)) for column in columns]
        low = [self.position(column.lower) for column in kept]
        high = [self.position(column.upper) for column in kept]
        return Spans(np.concatenate(low), np.concatenate(high))

    def ticks(self, iceberg_type: str) -> tuple[tuple[float, str], ...]:
        """Return five values with their positions. Only for output that may show values."""
        if len(self.marks) < 2:
            return ()
        shares = (0.0, 0.25, 0.5, 0.75, 1.0)
        if self.kind is Kind.BYTES:
            picked = [self.marks[round(share * (len(self.marks) - 1))] for share in shares]
        else:
            first, last = self.marks[0].item(), self.marks[-1].item()
            picked = [first + type(first)((last - first) * share) for share in shares]
        texts = [show(iceberg_type, value.item() if hasattr(value, "item") else value)
                 for value in picked]  # fmt: skip
        return tuple(zip(shares, texts, strict=True))
