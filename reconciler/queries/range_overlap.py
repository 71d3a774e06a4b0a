"""Estimates how much of a file's value range a predicate covers, from bounds alone.

Values are assumed to be spread evenly between a column's bounds. Utilization (WAIR section 4.1) and
read costs without a footer use the estimate; it orders and labels ("bound"), it never proves a
saving.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from reconciler.queries.predicate import (
    Always,
    And,
    Comparison,
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
from reconciler.table.filetable import ColumnBounds, FileTable, Float64
from reconciler.table.values import Kind

Float32 = npt.NDArray[np.float32]
FLOAT32_MAX = float(np.finfo(np.float32).max)


def covered_share(
    table: FileTable, predicate: Predicate, literals: Sequence[SlotLiterals], queries: int
) -> Float32:
    """Return the estimated share of each file's rows that match, float32[queries, files] in [0, 1].

    What cannot be estimated (no bounds, a transform) counts as 1: no saving is claimed for it.
    """
    share = _share(push_not(predicate), table, literals, queries)
    np.minimum(share, np.float32(1.0), out=share)
    return np.maximum(share, np.float32(0.0), out=share)


def _share(
    node: Predicate, table: FileTable, literals: Sequence[SlotLiterals], queries: int
) -> Float32:
    if isinstance(node, And):
        return _conjunction(node, table, literals, queries)
    if isinstance(node, Or):
        total = np.zeros((queries, len(table)), dtype=np.float32)
        for child in node.children:
            total += _share(child, table, literals, queries)
        return np.minimum(total, 1.0, out=total)
    if isinstance(node, Always):
        return np.full((queries, len(table)), float(node.value), dtype=np.float32)
    if isinstance(node, Not):
        inner = _share(node.child, table, literals, queries)
        return np.subtract(1.0, inner, out=inner)
    return _leaf(node, table, literals, queries)


def _conjunction(
    node: And, table: FileTable, literals: Sequence[SlotLiterals], queries: int
) -> Float32:
    """Combine conditions: on one column they intersect as intervals; different columns are
    independent."""
    by_column: dict[int, list[Predicate]] = defaultdict(list)
    other: list[Predicate] = []
    for child in node.children:
        if isinstance(child, Comparison):
            by_column[child.ref.field_id].append(child)
        else:
            other.append(child)
    product: Float32 | None = None
    for members in by_column.values():
        joint = _share(members[0], table, literals, queries)
        for member in members[1:]:
            joint += _share(member, table, literals, queries)
        if len(members) > 1:
            joint -= np.float32(len(members) - 1)
            np.maximum(joint, 0.0, out=joint)
        product = joint if product is None else np.multiply(product, joint, out=product)
    for child in other:
        share = _share(child, table, literals, queries)
        product = share if product is None else np.multiply(product, share, out=product)
    if product is None:
        return np.ones((queries, len(table)), dtype=np.float32)
    return product


def _leaf(
    leaf: Comparison | In | StartsWith | IsNull | IsNaN,
    table: FileTable,
    literals: Sequence[SlotLiterals],
    queries: int,
) -> Float32:
    shape = (queries, len(table))
    column = table.columns.get(leaf.ref.field_id)
    if column is None or leaf.ref.transform != "identity":
        return np.ones(shape, dtype=np.float32)
    records = np.maximum(table.records, 1)
    if isinstance(leaf, IsNull):
        nulls = np.where(column.nulls >= 0, column.nulls / records, 1.0)
        return np.broadcast_to(nulls.astype(np.float32), shape).copy()
    if isinstance(leaf, IsNaN):
        nans = np.where(column.nans >= 0, column.nans / records, 1.0)
        return np.broadcast_to(nans.astype(np.float32), shape).copy()
    scale = Scale(column)
    values = literals[leaf.slot]
    if isinstance(leaf, In):
        share = _in_share(scale, values, shape)
    elif isinstance(leaf, StartsWith):
        share = _prefix_share(scale, np.asarray(values))
    else:
        share = scale.compare(leaf.op, np.asarray(values))
    if not column.bounded.all():
        share[:, ~column.bounded] = 1.0
    if (column.nulls > 0).any():
        present = np.where(column.nulls >= 0, 1.0 - column.nulls / records, 1.0)
        share *= np.clip(present, 0.0, 1.0).astype(np.float32)
    return share


def _in_share(scale: Scale, values: object, shape: tuple[int, int]) -> Float32:
    share = np.zeros(shape, dtype=np.float32)
    assert isinstance(values, tuple)
    for row, members in enumerate(values):
        if members:
            share[row] = scale.compare("=", scale.array(members)).sum(axis=0)
    return np.minimum(share, 1.0, out=share)


def _prefix_share(scale: Scale, prefixes: npt.NDArray[np.generic]) -> Float32:
    successors = np.array([_successor(bytes(p)) for p in prefixes.tolist()])
    share = scale.compare("<", successors) - scale.compare("<", prefixes)
    return np.maximum(share, np.float32(0.0))


def _successor(prefix: bytes) -> bytes:
    """Return the least byte string above every string that begins with the prefix."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes([trimmed[-1] + 1]) if trimmed else b"\xff" * 16


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
        self._point = np.where(
            width > 0, np.minimum(1.0, np.where(step > 0, step, width / rows) / _safe(width)), 1.0
        ).astype(np.float32)
        self._low = _narrow(low)
        self._high = _narrow(high)
        self._inverse = (1.0 / _safe(width)).astype(np.float32)
        self._step = np.float32(step)
        self._constant = (width <= 0).astype(bool)

    def array(self, members: Sequence[Literal]) -> npt.NDArray[np.generic]:
        if self.kind is Kind.BYTES:
            return np.array(members, dtype=np.bytes_)
        return np.array(members, dtype=np.int64 if self.kind is Kind.INT else np.float64)

    def compare(self, op: str, values: npt.NDArray[np.generic]) -> Float32:
        """Return the share of each file's range that satisfies `column op value`, float32[values,
        files]."""
        point = _narrow(self._plain(values) - self._origin)[:, None]
        if op in ("=", "!="):
            inside = (point >= self._low) & (point <= self._high)
            share = inside * self._point
            return share if op == "=" else np.float32(1.0) - share
        upto = op in ("<=", ">")
        below = ((point + self._step) if upto else point) - self._low
        below *= self._inverse
        np.minimum(below, np.float32(1.0), out=below)
        np.maximum(below, np.float32(0.0), out=below)
        if self._constant.any():
            full = point >= self._low if upto else point > self._low
            below[:, self._constant] = full[:, self._constant]
        return below if op in ("<", "<=") else np.subtract(1.0, below, out=below)

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
