"""Routes a query: lets it read the table's replica where that has the same rows and costs less, or
adds a condition on block ids to each read of the table, where that is safe.

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
from reconciler.queries.block_routing import IdsToRead, Unroutable, admitted, ids_to_read
from reconciler.queries.fragments import workload_of_fragments
from reconciler.queries.predicate import TRUE, Predicate
from reconciler.queries.table_view import OPEN_BYTES
from reconciler.table.block_ids import BlockIds, block_ids_of
from reconciler.table.replica import (
    Replica,
    Standing,
    columns_differ,
    not_the_recorded,
    replica_of,
    standing,
)
from reconciler.workload_log import exchanged_table, inserted_conditions, routed_query
from reconciler.workload_log.dialects import check_dialect
from reconciler.workload_log.routed_query import Parsed, Reference
from reconciler.workload_log.sql import Session, Skipped, SqlReader
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
    replica: str = ""
    """The replica that the query reads instead of the table, "" if it reads the table."""
    not_replica: str = ""
    """Why it does not read the replica, "" if it does, or if there is none."""

    @property
    def changed(self) -> bool:
        return any(not read.reason for read in self.reads)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A query on a table."""

    observation: Observation
    """The table."""
    reader: SqlReader
    """Knows it, and the dialect."""
    query: Parsed
    """The query."""
    zone: dt.tzinfo | None
    """The session's time zone; None if that is not known."""


def _asked(observation: Observation, sql: str, dialect: str, zone: dt.tzinfo | None) -> _Asked:
    name = (observation.catalog, *observation.identifier)
    table = KnownTable(observation.uuid, observation.name, observation.schema)
    reader = SqlReader(check_dialect(dialect), SchemaMap({name: table}))
    query = routed_query.parsed(sql, reader, name[:-1], table, zone)
    if not query.references:
        raise UserError(
            f"the query does not read {observation.name}",
            do=f"write SELECT ... FROM {observation.name} WHERE ...; --dialect is {dialect}",
        )
    return _Asked(observation, reader, query, zone)


def route(
    observation: Observation,
    sql: str,
    dialect: str = "spark",
    zone: dt.tzinfo | None = None,
    replica: Observation | None = None,
) -> Routed:
    """Return the query as it reads least: of the table's replica, or with a condition on block ids
    for each read of the table where that leaves ids out.

    zone: the time zone of the session that will run it; without one, conditions that depend on it
    do not count. replica: the table that `replica_named` names, None where it is not there. Raises
    UserError if the text is not one query that reads this table.
    """
    asked = _asked(observation, sql, dialect, zone)
    routed = _by_ids(asked, sql)
    record = replica_of(observation.properties)
    if record is None:
        return routed
    why = _not_usable(record, observation, replica)
    why = why or exchanged_table.why_not(sql, asked.query, asked_levels(observation))
    if why or replica is None:
        return replace(routed, not_replica=why)
    parsed_again = _asked(observation, sql, dialect, zone)  # conditions were added to the other
    text = exchanged_table.exchanged(
        sql, parsed_again.query, record.table, parsed_again.reader.dialect
    )
    if text is None:
        return replace(routed, not_replica=inserted_conditions.UNSAFE)
    first, second = _load(parsed_again), _load(_asked(replica, text, dialect, zone))
    if routed.changed:
        first = [_Load(read.files_after, read.bytes_after) if not read.reason else one
                 for read, one in zip(routed.reads, first, strict=True)]  # fmt: skip
    if _price(second) >= _price(first):
        return replace(routed, not_replica="the table costs the query no more")
    reads = tuple(
        RoutedRead((), before.files, after.files, before.bytes, after.bytes)
        for before, after in zip(first, second, strict=True)
    )
    return Routed(text, "", observation.snapshot_id, reads, replica=replica.name)


def replica_named(observation: Observation) -> tuple[str, ...] | None:
    """Return the levels of the table's replica; None without one."""
    record = replica_of(observation.properties)
    return None if record is None else (*observation.identifier[:-1], record.table)


def asked_levels(observation: Observation) -> tuple[str, ...]:
    """Return catalog and namespace of a table."""
    return (observation.catalog, *observation.identifier[:-1])


def _not_usable(record: Replica, seen: Observation, replica: Observation | None) -> str:
    """Return why the replica may have other rows than the table, "" if it has the same."""
    found = standing(record, seen.metadata)
    if found.standing is not Standing.FRESH:
        return found.why
    if replica is None:
        return "there is no table of its name, or it cannot be read"
    seen_there = replica.metadata
    why = not_the_recorded(record, replica.uuid, seen_there.schema_id, seen_there.log.main)
    if not why and columns_differ(seen.schema, replica.schema):
        return "it has other columns than the table"
    return why


@dataclass(frozen=True, slots=True)
class _Load:
    """What a query opens."""

    files: int
    """Number of data files."""
    bytes: int
    """Bytes of these files."""


def _load(asked: _Asked) -> list[_Load]:
    """Return what each read opens, by bounds and partitions."""
    files, found = asked.observation.files, []
    for number, reference in enumerate(asked.query.references):
        predicate = None if reference.why_not else _predicate(
            asked.reader, reference, asked.query, number, asked.observation, asked.zone
        )  # fmt: skip
        chosen = slice(None) if predicate is None else admitted(files, *predicate)
        sizes = files.bytes[chosen]
        found.append(_Load(len(sizes), int(sizes.sum())))
    return found


def _price(reads: Sequence[_Load]) -> int:
    return sum(one.bytes + OPEN_BYTES * one.files for one in reads)


def _by_ids(asked: _Asked, sql: str) -> Routed:
    """Return the query with conditions on block ids."""
    observation, reader, query = asked.observation, asked.reader, asked.query
    zone = asked.zone
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
    text = inserted_conditions.inserted(sql, query, added, reader.dialect) if added else sql
    if text is None:
        unsafe = inserted_conditions.UNSAFE
        reads = tuple(
            read if read.reason else replace(read, ids=(), reason=unsafe) for read in reads
        )
        text = sql
    return Routed(text, field.name, observation.snapshot_id, reads)


def _left(why: str, kept: IdsToRead | None = None, sizes: Any = None) -> RoutedRead:
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
    (shape,) = workload_of_fragments([fragment]).shapes
    return shape.predicate, shape.literals
