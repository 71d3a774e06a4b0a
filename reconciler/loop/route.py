"""Routes a query: adds a condition on block ids to each read of a table, where that is safe.

The result is true for the snapshot that was looked at, and for rows that others append without ids
afterwards. Whoever updates rows copies ids: route the query again after that.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from reconciler.errors import UserError
from reconciler.queries.block_routing import Kept, Unroutable, ids_to_read
from reconciler.queries.fragments import batch_fragments
from reconciler.queries.predicate import TRUE, Predicate
from reconciler.table.block_ids import BlockIds, block_ids_of
from reconciler.workload_log import routed_query
from reconciler.workload_log.routed_query import Parsed, Reference
from reconciler.workload_log.sql import Session, Skipped, SqlReader, check_dialect
from reconciler.workload_log.tables import KnownTable, SchemaMap

if TYPE_CHECKING:
    from reconciler.table.observation import Observation

NO_COLUMN = "the table has no column of block ids"


@dataclass(frozen=True, slots=True)
class RoutedRead:
    """One read of the table in the query."""

    ids: tuple[tuple[int, int], ...]
    """The first and the last of each run of ids that stay; () where `reason` says why none is
    left out."""
    files_before: int
    """Files that bounds and partitions admit."""
    files_after: int
    """Files that then have to be read."""
    bytes_before: int
    """Bytes of the former."""
    bytes_after: int
    """Bytes of the latter."""
    reason: str = ""
    """Why the read was left as it is, "" if it got a condition."""
    notes: tuple[str, ...] = ()
    """What keeps ids in that might be left out otherwise."""


@dataclass(frozen=True, slots=True)
class Routed:
    """A query, routed."""

    sql: str
    """The query; the given text if nothing was added."""
    column: str
    """The column of block ids, "" if the table has none."""
    snapshot_id: int | None
    """The snapshot that it is true for; None for an empty table."""
    reads: tuple[RoutedRead, ...]
    """The reads of the table, in the order of the text."""

    @property
    def changed(self) -> bool:
        return any(not read.reason for read in self.reads)


def route(
    observation: Observation, sql: str, dialect: str = "spark", zone: dt.tzinfo | None = None
) -> Routed:
    """Return the query with a condition on block ids for each read of the table where that leaves
    ids out.

    zone: the time zone of the session that will run it; without one, conditions that depend on it
    do not count. Raises UserError if the text is not one query that reads this table.
    """
    name = (observation.catalog, *observation.identifier)
    table = KnownTable(observation.uuid, observation.name, observation.schema)
    reader = SqlReader(check_dialect(dialect), SchemaMap({name: table}))
    query = routed_query.parsed(sql, reader, name[:-1], table, zone is not None)
    if not query.references:
        raise UserError(
            f"the query does not read {observation.name}",
            do=f"write SELECT ... FROM {observation.name} WHERE ...; --dialect is {dialect}",
        )
    snapshots = (*observation.ancestry, *observation.other_snapshots)
    blocks = block_ids_of(observation.metadata.properties, snapshots)
    field = None if blocks is None else observation.schema.by_id.get(blocks.field_id)
    if blocks is not None and blocks.since > observation.sequence_number:
        blocks = replace(blocks, since=-1)  # copied from another table
    if blocks is None or field is None or field.type != "int" or len(field.path) != 1:
        left = tuple(_left(NO_COLUMN) for _ in query.nodes)
        return Routed(sql, "", observation.snapshot_id, left)
    reads = tuple(
        _read(observation, blocks, reader, query, number, zone)
        for number in range(len(query.references))
    )
    added = [(n, field.name, read.ids) for n, read in enumerate(reads) if not read.reason]
    text = routed_query.inserted(sql, query, added, reader.dialect) if added else sql
    if text is None:
        reads = tuple(read if read.reason else replace(read, ids=(), reason=routed_query.UNSAFE)
                      for read in reads)  # fmt: skip
        text = sql
    return Routed(text, field.name, observation.snapshot_id, reads)


def _left(why: str, kept: Kept | None = None, sizes: Any = None) -> RoutedRead:
    if kept is None:
        return RoutedRead((), 0, 0, 0, 0, why)
    number, size = int(kept.before.sum()), int(sizes[kept.before].sum())
    return RoutedRead((), number, number, size, size, why, kept.notes)


def _read(
    observation: Observation,
    blocks: BlockIds,
    reader: SqlReader,
    query: Parsed,
    number: int,
    zone: dt.tzinfo | None,
) -> RoutedRead:
    reference, files = query.references[number], observation.files
    if reference.why_not:
        return _left(reference.why_not)
    asked = _predicate(reader, reference, query, number, observation, zone)
    if asked is None:
        return _left(routed_query.NO_CONDITION)
    found = ids_to_read(files, blocks, *asked)
    if isinstance(found, Unroutable):
        return _left(found.why)
    if not found.leaves_out:
        return _left("no id that live files hold can be left out", found, files.bytes)
    return RoutedRead(
        found.ids, int(found.before.sum()), int(found.after.sum()),
        int(files.bytes[found.before].sum()), int(files.bytes[found.after].sum()),
        notes=found.notes,
    )  # fmt: skip


def _predicate(
    reader: SqlReader,
    reference: Reference,
    query: Parsed,
    number: int,
    observation: Observation,
    zone: dt.tzinfo | None,
) -> tuple[Predicate, Sequence[Any]] | None:
    """Return the conditions of a read as a predicate with its literals; None if there are none, or
    if one moves with time."""
    text = reference.alone(query.nodes[number], reader.dialect)
    levels = (observation.catalog, *observation.identifier)[:-1]
    now = int(time.time() * 1000)
    found = reader.extract(text, now, Session(levels, zone or dt.UTC))
    if isinstance(found, Skipped) or len(found) != 1 or found[0].note:
        return None
    fragment = found[0].fragment
    if fragment.full_scan or fragment.predicate == TRUE:
        return None
    if any(offset is not None for offset in fragment.moving):
        return None
    (shape,) = batch_fragments([fragment]).shapes
    return shape.predicate, shape.literals
