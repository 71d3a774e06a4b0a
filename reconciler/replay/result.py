"""What replays of one table found, for everything that shows it."""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.replay.observed import ObservedTable
from reconciler.replay.run import Replay


@dataclass(frozen=True, slots=True)
class Result:
    """What the workload would have cost under one policy."""

    name: str
    """What the output calls the policy."""
    replay: Replay[ObservedTable]
    """Its costs by step."""
    rho: float
    """Cost of a rewritten byte in bytes of reading."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """A table's workload under several policies."""

    table: str
    """The table's name."""
    uuid: str
    """The table's UUID."""
    since_ms: int
    """Start of the first batch, in epoch milliseconds."""
    ends_ms: tuple[int, ...]
    """End of each batch, in epoch milliseconds."""
    queries: tuple[float, ...]
    """Executions in each batch."""
    files_before: int
    """Number of files at the start."""
    files_arrived: int
    """Number of files that arrive later."""
    open_bytes: int
    """Cost of opening a file, in bytes of reading."""
    notes: tuple[str, ...]
    """What the replay could not take into account."""
    results: tuple[Result, ...]
    """The policies, in the order in which they were given; the first one does nothing."""
