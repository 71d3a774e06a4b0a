"""Estimates how much of a file's value range a predicate covers, from bounds alone.

Whether a file may match at all is not answered here but by `pruning`, which knows no shares. Values
are assumed to be spread evenly between a column's bounds. Utilization (WAIR section 4.1) and
read costs without a footer use the estimate; it orders and labels ("bound"), it never proves a
saving.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reconciler.queries.predicate import (
    Always,
    And,
    Comparison,
    First,
    In,
    IsNaN,
    IsNull,
    Literal,
    Not,
    Or,
    Predicate,
    StartsWith,
    push_not,
)
from reconciler.queries.predicate_batch import SlotLiterals
from reconciler.table.filetable import Bool, ColumnBounds, FileTable, Float64, Int64
from reconciler.table.values import Kind

Float32 = npt.NDArray[np.float32]
FLOAT32_MAX = float(np.finfo(np.float32).max)


Index = slice | Int64
"""Which files: a run of them, or their rows in the file table."""

Shares = Callable[[slice, Index], Float32]
"""The estimated share of the files' rows that match the queries, float32[queries, files] in [0, 1].
"""


def covered_shares(
    table: FileTable, predicate: Predicate, literals: Sequence[SlotLiterals]
) -> Shares:
    """Return the estimate for any of the queries and files.

    What cannot be estimated (no bounds, a transform) counts as 1: no saving is claimed for it.
    """
    return _compiled(push_not(predicate), table, literals)


def _compiled(node: Predicate, table: FileTable, literals: Sequence[SlotLiterals]) -> Shares:
    if isinstance(node, And):
        return _conjunction(node, table, literals)
    if isinstance(node, Or):
        return _disjunction([_compiled(child, table, literals) for child in node.children])
    if isinstance(node, Always):
        return _constant(table, float(node.value))
    if isinstance(node, First):
        return _constant(table, 1.0)
    if isinstance(node, Not):
        inner = _compiled(node.child, table, literals)
        return lambda queries, files: np.subtract(1.0, inner(queries, files))
    return _leaf(node, table, literals)


def _disjunction(parts: Sequence[Shares]) -> Shares:
    def shares(queries: slice, files: Index) -> Float32:
        total = parts[0](queries, files)
        for part in parts[1:]:
            total += part(queries, files)
        return np.minimum(total, np.float32(1.0), out=total)

    return shares


def _constant(table: FileTable, value: float) -> Shares:
    every = np.full(len(table), value, dtype=np.float32)

    def shares(queries: slice, files: Index) -> Float32:
        row = every[files]
        return np.broadcast_to(row, (queries.stop - queries.start, len(row))).copy()

    return shares


def _conjunction(node: And, table: FileTable, literals: Sequence[SlotLiterals]) -> Shares:
    """Combine conditions: on one column they intersect as intervals; different columns are
    independent."""
    by_column: dict[int, list[Shares]] = defaultdict(list)
    other: list[Shares] = []
    for child in node.children:
        compiled = _compiled(child, table, literals)
        if isinstance(child, Comparison):
            by_column[child.ref.field_id].append(compiled)
        else:
            other.append(compiled)
    factors = [*map(_intersection, by_column.values()), *other]
    if not factors:
        return _constant(table, 1.0)

    def shares(queries: slice, files: Index) -> Float32:
        product = factors[0](queries, files)
        for factor in factors[1:]:
            product *= factor(queries, files)
        return product

    return shares


def _intersection(parts: Sequence[Shares]) -> Shares:
    """Return the joint share of conditions on one column."""
    if len(parts) == 1:
        return parts[0]

    def shares(queries: slice, files: Index) -> Float32:
        joint = parts[0](queries, files)
        for part in parts[1:]:
            joint += part(queries, files)
        joint -= np.float32(len(parts) - 1)
        return np.maximum(joint, np.float32(0.0), out=joint)

    return shares


def _leaf(
    leaf: Comparison | In | StartsWith | IsNull | IsNaN,
    table: FileTable,
    literals: Sequence[SlotLiterals],
) -> Shares:
    column = table.columns.get(leaf.ref.field_id)
    if column is None or leaf.ref.transform != "identity":
        return _constant(table, 1.0)
    records = np.maximum(table.records, 1)
    if isinstance(leaf, (IsNull, IsNaN)):
        counts = column.nulls if isinstance(leaf, IsNull) else column.nans
        share = np.where(counts >= 0, counts / records, 1.0).astype(np.float32)
        row = np.minimum(share, np.float32(1.0))[None, :]
        return lambda queries, files: np.repeat(row[:, files], queries.stop - queries.start, 0)
    return _corrected(_compared(leaf, _scale_of(table, column), literals), column, records)


def _scale_of(table: FileTable, column: ColumnBounds) -> Scale:
    """Return the column's scale, computed once per table."""
    scales: dict[int, Scale] = table.derived.setdefault("scales", {})
    if column.field_id not in scales:
        scales[column.field_id] = Scale(column)
    return scales[column.field_id]


def _compared(
    leaf: Comparison | In | StartsWith, scale: Scale, literals: Sequence[SlotLiterals]
) -> Shares:
    """Return the share of each file's range."""
    values = literals[leaf.slot]
    if isinstance(leaf, In):
        assert isinstance(values, tuple)
        return _in_shares(scale, values)
    if isinstance(leaf, StartsWith):
        prefixes = np.asarray(values)
        successors = np.array([_successor(bytes(p)) for p in prefixes.tolist()])
        low, high = scale.points(prefixes), scale.points(successors)
        return lambda queries, files: _prefix_share(scale.take(files), low[queries], high[queries])
    op, points = leaf.op, scale.points(np.asarray(values))
    return lambda queries, files: scale.take(files).compare(op, points[queries])


def _in_shares(scale: Scale, values: Sequence[Sequence[Literal]]) -> Shares:
    members = [scale.points(scale.array(row)) if row else None for row in values]

    def shares(queries: slice, files: Index) -> Float32:
        mine = scale.take(files)
        share = np.zeros((queries.stop - queries.start, len(mine)), dtype=np.float32)
        for row, points in enumerate(members[queries]):
            if points is not None:
                share[row] = mine.compare("=", points).sum(axis=0)
        return np.minimum(share, np.float32(1.0), out=share)

    return shares


def _prefix_share(line: Line, low: Float32, high: Float32) -> Float32:
    share = line.compare("<", high) - line.compare("<", low)
    return np.maximum(share, np.float32(0.0))


def _corrected(shares: Shares, column: ColumnBounds, records: Int64) -> Shares:
    """Return the shares with files without bounds counted as 1, and NULLs not counted."""
    unbounded = None if column.bounded.all() else ~column.bounded
    valued = None
    if (column.nulls > 0).any():
        share = np.where(column.nulls >= 0, 1.0 - column.nulls / records, 1.0)
        valued = np.clip(share, 0.0, 1.0).astype(np.float32)
    if unbounded is None and valued is None:
        return shares

    def corrected(queries: slice, files: Index) -> Float32:
        share = shares(queries, files)
        if unbounded is not None:
            share[:, unbounded[files]] = 1.0
        if valued is not None:
            share *= valued[files]
        return share

    return corrected


def _successor(prefix: bytes) -> bytes:
    """Return the least byte string above every string that begins with the prefix."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes([trimmed[-1] + 1]) if trimmed else b"\xff" * 16


@dataclass(frozen=True, slots=True)
class Line:
    """Files as intervals on the scale of one column. Arrays have shape [files]."""

    low: Float32
    """float32[files]: lower bound."""
    high: Float32
    """float32[files]: upper bound."""
    inverse: Float32
    """float32[files]: 1 divided by the width of the interval."""
    point: Float32
    """float32[files]: share of the file's rows that are expected to have one given value."""
    step: np.float32
    """1 for integers, 0 for other numbers and for strings."""
    constant: Bool
    """bool[files]: whether the interval has no width."""

    def __len__(self) -> int:
        return len(self.low)

    def compare(self, op: str, points: Float32) -> Float32:
        """Return the share of each file's range that satisfies `column op point`, float32[points,
        files]."""
        point = points[:, None]
        if op in ("=", "!="):
            inside = (point >= self.low) & (point <= self.high)
            share = inside * self.point
            return share if op == "=" else np.float32(1.0) - share
        upto = op in ("<=", ">")
        below = ((point + self.step) if upto else point) - self.low
        below *= self.inverse
        np.minimum(below, np.float32(1.0), out=below)
        np.maximum(below, np.float32(0.0), out=below)
        if self.constant.any():
            full = point >= self.low if upto else point > self.low
            below[:, self.constant] = full[:, self.constant]
        return below if op in ("<", "<=") else np.subtract(1.0, below, out=below)


class Scale:
    """One column's bounds on a common linear scale, float32 relative to the column's least bound.

    Integers have width upper - lower + 1, so that an equality covers one value; floats and byte
    strings are continuous, an equality covers one row's worth.
    """

    def __init__(self, column: ColumnBounds):
        self.kind = column.kind
        self._prefix = _common_prefix(column) if column.kind is Kind.BYTES else b""
        low = self._plain(column.lower)
        high = self._plain(column.upper)
        usable = column.bounded
        self._origin = float(low[usable].min()) if usable.any() else 0.0
        low, high = low - self._origin, high - self._origin
        step = 1.0 if column.kind is Kind.INT else 0.0
        width = high - low + step
        rows = np.where(column.values > 0, column.values, 1000).astype(np.float64)
        point = np.where(
            width > 0, np.minimum(1.0, np.where(step > 0, step, width / rows) / _safe(width)), 1.0
        )
        self._line = Line(
            _narrow(low), _narrow(high), (1.0 / _safe(width)).astype(np.float32),
            point.astype(np.float32), np.float32(step), width <= 0,
        )  # fmt: skip

    def take(self, files: Index) -> Line:
        line = self._line
        return Line(
            line.low[files], line.high[files], line.inverse[files], line.point[files], line.step,
            line.constant[files],
        )  # fmt: skip

    def points(self, values: npt.NDArray[np.generic]) -> Float32:
        """Return literals as places on the scale."""
        return _narrow(self._plain(values) - self._origin)

    def array(self, members: Sequence[Literal]) -> npt.NDArray[np.generic]:
        if self.kind is Kind.BYTES:
            return np.array(members, dtype=np.bytes_)
        return np.array(members, dtype=np.int64 if self.kind is Kind.INT else np.float64)

    def _plain(self, values: npt.NDArray[np.generic]) -> Float64:
        if self.kind is not Kind.BYTES:
            return values.astype(np.float64)
        return _bytes_as_number(values.astype(np.bytes_), self._prefix)


def _narrow(values: Float64) -> Float32:
    """Return float32; values beyond its range become its ends."""
    return np.clip(values, -FLOAT32_MAX, FLOAT32_MAX).astype(np.float32)


def _safe(width: Float64) -> Float64:
    return np.where(width > 0, width, 1.0)


def _common_prefix(column: ColumnBounds) -> bytes:
    """Return the common prefix of all bounds: only the six bytes after it differ."""
    usable = column.bounded
    if not usable.any():
        return b""
    low = min(column.lower[usable].tolist())
    high = max(column.upper[usable].tolist())
    length = 0
    while length < min(len(low), len(high)) and low[length] == high[length]:
        length += 1
    return bytes(low[:length])


def _bytes_as_number(values: npt.NDArray[np.bytes_], prefix: bytes) -> Float64:
    """Return the six bytes after the prefix as a number; a value without the prefix is at an
    end."""
    skip, width = len(prefix), max(values.dtype.itemsize, 1)
    raw = np.frombuffer(values.tobytes(), dtype=np.uint8).reshape(len(values), width)
    window = np.zeros((len(values), 6), dtype=np.uint8)
    part = raw[:, skip : skip + 6]
    window[:, : part.shape[1]] = part
    number = window.astype(np.float64) @ (256.0 ** np.arange(5, -1, -1))
    if skip:
        head = np.array([v[:skip] for v in values.tolist()], dtype=np.bytes_)
        number = np.where(head < prefix, -1.0, np.where(head > prefix, 256.0**6, number))
    return number
