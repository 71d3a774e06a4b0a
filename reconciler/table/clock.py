"""Whether the times in a table's metadata let it take a commit now, for plans and executions."""

from __future__ import annotations

from reconciler.format import duration

TOLERATED_MS = 60_000
"""Iceberg refuses metadata that is older than the metadata before it by more than this
(org.apache.iceberg.TableMetadata)."""

REMEDY = (
    "correct this machine's clock if it is behind; else wait until the time has passed, or correct "
    "the times in a copy of the table's metadata file and register the table with the copy"
)


def ahead_text(ahead_ms: int) -> str:
    """Return by how much the table's clock is ahead, "" if it takes commits.

    ahead_ms: the latest time in the table's metadata, from now.
    """
    if ahead_ms <= TOLERATED_MS:
        return ""
    return f"the table's clock is {duration(ahead_ms / 1000)} ahead of this machine's"
