"""The two orders of UUIDs, and where readers that use either one agree.

The Parquet and Iceberg specifications order UUIDs as 16 unsigned bytes. Iceberg's Java library
compares them as two signed 64-bit numbers (java.util.UUID.compareTo).
"""

from __future__ import annotations

import numpy as np

from reconciler.table.filetable import Array, Bool

UUID = "uuid"
BYTES = 16
NUMBERS = (0, 8)
"""Places of the bytes that begin a UUID's two numbers."""
SIGN = 0x80


def alike_in_all_orders(lower: Array, upper: Array) -> Bool:
    """Return whether the orders agree about what is between two UUIDs: bool[n], from S16[n].

    Rewrites leave out the bounds of a file where they do not.
    """
    same = (_signs(lower) == _signs(upper)).all(axis=1)
    found: Bool = same & (lower <= upper)
    return found


def may_bound(low: bytes, high: bytes) -> bool:
    """Return whether two UUIDs may be the bounds of a file in a manifest: a reader of either order
    would else skip the file for a UUID that it holds."""
    ends = (np.array([end], dtype=f"S{BYTES}") for end in (low, high))
    return bool(alike_in_all_orders(*ends)[0])


def _signs(values: Array) -> Array:
    """Return the sign of each number: uint8[n, 2]."""
    padded = np.ascontiguousarray(values.astype(f"S{BYTES}"))
    return padded.view(np.uint8).reshape(len(values), BYTES)[:, NUMBERS] & SIGN
