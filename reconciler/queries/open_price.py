"""The price of opening a file in bytes of reading: a preset, or measured by our own reads.

Sampling a table opens its files on its own storage, which shows how long an opening takes there. A
measured price is kept with the table's state: a plan reads it, and only new samples change it. It
is a power of two that moves only when what is measured has clearly left it, so that plans do not
follow the noise of a network.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from reconciler.queries.table_view import OPEN_BYTES, OPENING_REQUESTS

LEAST_OPENINGS = 8
"""Openings that a price is measured from, at least."""
KEPT_OPENINGS = 64
"""The latest openings, which a price is measured from."""
LARGE_READ, LEAST_READS = 256 << 10, 4
"""Bytes of a read that shows a rate and not only a delay, and how many of them show the storage's
rate."""
ENGINE_RATE = 75e6
"""Stored bytes per second that a core of an engine decodes: Spark took 0.22 ms for 15 KiB (see
ROW_GROUP_OPENS). While a faster storage is waited for, an engine could not have read more."""
MOST_BYTES = 16 << 20
"""The highest price. The lowest is the preset, since an engine also plans and schedules a file,
which our reads do not show."""
LEAVES = 2.0**0.75
"""Factor by which what is measured has to differ from a price for the price to change."""


@dataclass(frozen=True, slots=True)
class Opening:
    """The measured opening and reading of one data file."""

    opened: float
    """Seconds until its footer was there."""
    read: float = 0.0
    """Seconds of reading `chunks` column chunks."""
    bytes: int = 0
    """Bytes of these column chunks."""
    chunks: int = 0
    """Number of column chunks that were read."""


@dataclass(frozen=True, slots=True)
class OpenPrice:
    """What opening a file costs."""

    bytes: int = OPEN_BYTES
    """Bytes of reading that cost as much as opening a file."""
    openings: int = 0
    """Number of openings that it was measured from; 0 for the preset."""
    measured_ms: int = 0
    """Time of the last of these openings, in epoch milliseconds."""

    def document(self) -> dict[str, int]:
        """For `OpenPrice(**document)`."""
        return asdict(self)


PRESET = OpenPrice()


def measured_price(openings: Sequence[Opening], before: OpenPrice, now_ms: int) -> OpenPrice:
    """Return the price by these openings; `before` where they are too few.

    A measured `before` stays while it is within LEAVES of what is measured.
    """
    if len(openings) < LEAST_OPENINGS:
        return before
    opened = float(np.median([one.opened for one in openings]))
    found = min(max(opened * _rate(openings, opened), float(OPEN_BYTES)), float(MOST_BYTES))
    if before.openings and 1.0 / LEAVES < found / before.bytes < LEAVES:
        price = before.bytes
    else:
        price = 1 << round(math.log2(found))
    return OpenPrice(price, len(openings), now_ms)


def _rate(openings: Sequence[Opening], opened: float) -> float:
    """Return the bytes per second of reading, at most an engine's. What a read waits for its
    requests is left out, of which an opening makes OPENING_REQUESTS."""
    waited = opened / OPENING_REQUESTS
    rates = [
        one.bytes / max(one.read - waited * one.chunks, one.read / 4.0, 1e-9)
        for one in openings
        if one.bytes >= LARGE_READ
    ]
    return min(ENGINE_RATE, float(np.median(rates))) if len(rates) >= LEAST_READS else ENGINE_RATE
