"""Commits of the engines' operations, as `engines.table.PendingCommit` asks for them.

The guard judges the metadata that the request names, and what an operation changes is found there,
so that what was judged is what the request replaces.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from reconciler.commit import compared, snapshot_changes
from reconciler.commit.local_history import snapshot_info
from reconciler.commit.local_manifests import LocalManifests
from reconciler.commit.metadata import MAIN
from reconciler.commit.regrouping import regrouped
from reconciler.commit.sending import ENGINE, commit, not_sent
from reconciler.commit.snapshot import CommitNames, Make, SnapshotChange, SnapshotProducer
from reconciler.engines.answers import Answer, Kind
from reconciler.engines.commit.operations import (
    Mark,
    NewManifests,
    RemoveDeletes,
    RewriteFiles,
    RowDelta,
)
from reconciler.engines.table import Guard


class LocalCommit:
    """One commit of an operation, which may be sent once."""

    def __init__(self, table: LocalManifests, branch: str = MAIN) -> None:
        self._table, self._branch, self._names = table, branch, CommitNames()
        self.base = table.head() or 0
        self._unwanted: tuple[str, ...] = ()

    @property
    def uuid(self) -> str:
        return self._names.uuid

    def send(
        self,
        operation: Any,
        base_snapshot_id: int,
        summary: Mapping[str, str],
        guard: Guard | None,
    ) -> Answer:
        """Send the operation once, as `engines.table.PendingCommit` says. Raises nothing.

        base_snapshot_id: not used; the guard compares the ancestors down to it."""
        table = self._table.table
        try:
            state = table.refresh()
            line = map(snapshot_info, state.line(state.head(self._branch)))
            allowed = True if guard is None else guard.allows(line)
            if allowed is None:
                return Answer(Kind.UNKNOWN, "the table has it already")
            if not allowed:
                return Answer(Kind.REFUSED, "a check refused it", cannot_arrive=True)
            change, make = change_of(self._table, operation)
        except Exception as error:
            return not_sent(error)
        change = replace(change, branch=self._branch, summary=summary)
        sent = commit(table, change, self._names, make)
        self._unwanted = () if sent.answer.kind is Kind.ACCEPTED else sent.written
        return sent.answer

    def entries(self, operation: Any, base_snapshot_id: int) -> tuple[int, str]:
        """Write the snapshot and read its entries back. What is written has the commit's `uuid` in
        its name, and stays."""
        change, make = change_of(self._table, operation)
        table = self._table.table
        made = make(
            SnapshotProducer(table, replace(change, branch=self._branch), self._names, ENGINE)
        )
        return compared.live_entries(table.io, str(made["manifest-list"]))

    def unwanted(self) -> tuple[str, ...]:
        """Return what it wrote and its snapshot does not need: nothing once it was accepted."""
        return self._unwanted


def change_of(table: LocalManifests, operation: Any) -> tuple[SnapshotChange, Make]:
    """Return what an operation does to the table as last refreshed, and what writes its
    snapshot."""
    if isinstance(operation, Mark):
        return snapshot_changes.append_nothing(), SnapshotProducer.make
    if isinstance(operation, NewManifests):
        return SnapshotChange(snapshot_changes.REPLACE), regrouped(
            operation.inputs, operation.groups
        )
    if isinstance(operation, RemoveDeletes):
        return snapshot_changes.remove_deletes(operation.files), SnapshotProducer.make
    live = table.live(table.head() or 0)
    if isinstance(operation, RewriteFiles):
        added = [file.entry for file in operation.added]
        sequence = operation.sequence_number
        return snapshot_changes.replace_files(
            live, list(operation.tasks), added, sequence
        ), SnapshotProducer.make
    if isinstance(operation, RowDelta):
        added = [file.entry for file in operation.added]
        change = snapshot_changes.row_delta(live, list(operation.tasks), added, operation.removed)
        return change, SnapshotProducer.make
    raise TypeError(f"no commit of a {type(operation).__name__} is known")
