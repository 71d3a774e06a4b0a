"""A usable record of a SQL log, and the fragments that are made of it once its text was read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from reconciler.queries.fragments import Fragment
from reconciler.workload_log.identity import Identity, position
from reconciler.workload_log.join_ranges import JoinRange
from reconciler.workload_log.sql import Session, TableRead

SCANS_PER_LINE = 256
"""Scans of one query that are counted."""


@dataclass(slots=True)
class Record:
    """The values of one usable line, and what its text reads once that is known."""

    sql: str
    """Text of the query; "" once it was analysed, because texts are not kept."""
    event_ms: int
    """Its time in epoch milliseconds."""
    weight: float
    """Number of executions that the line represents."""
    session: Session
    """The schema and the time zone by which the text is read."""
    engine: str
    """Name of the engine, "" if the log does not name it."""
    duration_ms: int | None
    """Measured duration in milliseconds; None if the log does not say."""
    recorded_bytes: int | None
    """Measured bytes read; None if the log does not say."""
    session_name: str
    """Name of the session, "" if the log does not name it. It decides whose prepared statements the
    line may execute, and is not kept."""
    identity: Identity
    """What makes it the same query in another log."""
    zoneless: bool
    """Whether its time has no zone, so that the default one was taken."""
    table_bytes: Mapping[str, int] = field(default_factory=dict)
    """Measured bytes by schema.table in lower case, for a query that reads several tables."""
    joined: Sequence[JoinRange] = ()
    """What its joins asked of tables while it ran, where the log has the plan."""
    reads: tuple[TableRead, ...] = ()
    """What its text reads of known tables; () until the text was analysed."""


def with_later(earlier: list[Fragment], later: list[Fragment]) -> list[Fragment]:
    """Return the fragments of a query's first event with the measures that only a later one has."""
    events = {item.position: item for item in later}
    return [_with_measures(item, events.get(item.position, item)) for item in earlier]


def _with_measures(item: Fragment, event: Fragment) -> Fragment:
    if item.recorded_bytes is None:
        item = replace(item, recorded_bytes=event.recorded_bytes)
    return item if item.duration_ms is not None else replace(item, duration_ms=event.duration_ms)


def fragments_of(query: Record, occurrence: int) -> list[Fragment]:
    """Return one fragment per scan of the n-th execution with the query's key.

    Events of one named query have the same fragments. The single scan of a table has the bytes that
    the log has of the table, else a query's single scan those of the query.
    """
    alone = len(query.reads) == 1
    by_table = _bytes_by_table(query) if query.table_bytes else {}
    scans: Counter[str] = Counter()
    found = []
    for read in query.reads[:SCANS_PER_LINE]:
        uuid = read.table.uuid
        execution = 0 if query.identity.named else occurrence
        place = position(query.identity.key, execution, uuid, scans[uuid])
        scans[uuid] += 1
        found.append(
            replace(
                read.fragment,
                position=place,
                weight=query.weight,
                engine=query.engine or read.fragment.engine,
                recorded_bytes=by_table.get(uuid, query.recorded_bytes if alone else None),
                duration_ms=query.duration_ms,
            )
        )
    return found


def _bytes_by_table(query: Record) -> dict[str, int]:
    """Return by UUID the measured bytes of each table that the query scans once."""
    scans = Counter(read.table.uuid for read in query.reads)
    found: dict[str, int] = {}
    for read in query.reads:
        levels = read.table.name.replace("`", "").lower().split(".")
        size = query.table_bytes.get(".".join(levels[-2:]))
        if scans[read.table.uuid] == 1 and size is not None:
            found[read.table.uuid] = size
    return found
