"""What other writers do to a table, as far as a change of its partition spec concerns them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from reconciler.table.operations import Encoding, Kind, Operations

NAMING = ("engine-name", "engine-version", "iceberg-version", "spark.app.id", "trino_query_id",
          "flink.job-id", "app-id")  # fmt: skip
"""Summary keys by which engines name themselves; pyiceberg writes none of them."""


@dataclass(frozen=True, slots=True)
class Writers:
    """Number of commits of other writers in the retained history, by kind."""

    replaced: int = 0
    """Commits that replaced whole partitions dynamically."""
    merges: int = 0
    """Commits of MERGE statements."""
    equality_ms: int | None = None
    """Time of the last commit with equality deletes, in epoch milliseconds; None without one."""
    unnamed: int = 0
    """Commits of writers that name no engine."""
    logged: int = 0
    """MERGE statements in the query log."""
    joins: int = 0
    """Recorded queries that read the table grouped by partition, to join it without a shuffle."""


NO_WRITERS = Writers()


def writers_of(
    summaries: Iterable[Mapping[str, str]],
    operations: Operations,
    *,
    logged: int = 0,
    joins: int = 0,
) -> Writers:
    """Return what other writers did. summaries: of their snapshots, without ours."""
    every = list(summaries)
    lazy = [one.timestamp_ms for one in operations.every if one.encoding is Encoding.EQUALITY]
    return Writers(
        replaced=sum(summary.get("replace-partitions") == "true" for summary in every),
        merges=sum(one.kind is Kind.MERGE for one in operations.every),
        equality_ms=max(lazy, default=None),
        unnamed=sum(_unnamed(summary) for summary in every),
        logged=logged,
        joins=joins,
    )


def _unnamed(summary: Mapping[str, str]) -> bool:
    return not any(name in summary for name in NAMING)
