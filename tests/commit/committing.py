"""Sends one change and cleans up after it, as `engines.commit` does around each request; or sends
an operation by `engines.commit` itself."""

from __future__ import annotations

from typing import Any

from reconciler.commit import sending
from reconciler.commit.local_table import LocalTable
from reconciler.commit.snapshot import CommitNames, Make, SnapshotChange, SnapshotProducer
from reconciler.commit.table import LiveTable
from reconciler.engines.answers import Kind
from reconciler.engines.commit import commit as protocol
from reconciler.plan.execution import Intent


def commit(
    table: LiveTable,
    change: SnapshotChange,
    names: CommitNames | None = None,
    make: Make = SnapshotProducer.make,
) -> Kind:
    """Return the kind of the answer; what was written is gone if nothing of it can arrive."""
    named = names or CommitNames()
    sent = sending.commit(table, change, named, make)
    if sent.answer.cannot_arrive and named.snapshot_id not in table.refresh().snapshots:
        for path in sent.written:
            table.delete(path)
    return sent.answer.kind


def sent_as_batch(table: LocalTable, operation: Any) -> protocol.Sent:
    """Return what becomes of a batch that was made from the head as last refreshed."""
    head, uuid = table.head() or 0, table.uuid()
    base = protocol.Base(uuid, table.schema_id(), head, table.format_version())
    intent = Intent(uuid, table.table.identifier, "p-1", "p-1-a", 1, ("a01",), head, "", (), ())
    batch = protocol.Batch(operation, base, intent, ())
    return protocol.send(table, batch, protocol.prepare(table, operation))
