"""Commits of the engines' operations, as `engines.table.Change` asks for them.

The guard judges the metadata that the request names, and what an operation changes is found there,
so that what was judged is what the request replaces.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from reconciler.commit import changes, compared
from reconciler.commit.backend import Table
from reconciler.commit.history import snapshot_info
from reconciler.commit.metadata import MAIN
from reconciler.commit.rewriting import rewritten
from reconciler.commit.sending import ENGINE, commit, not_sent
from reconciler.commit.snapshot import Change, Make, Names, Producer
from reconciler.engines.answers import Answer, Kind
from reconciler.engines.commit.operations import (
    Mark,
    NewManifests,
    RemoveDeletes,
    RewriteFiles,
    RowDelta,
)
from reconciler.engines.table import Guard


class Commit:
    """One commit of an operation, which may be sent once."""

    def __init__(self, table: Table, branch: str = MAIN) -> None:
        self._table, self._branch, self._names = table, branch, Names()
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
        """Send the operation once; see `engines.table.Change`. base_snapshot_id: the guard holds
        the line back to it. Raises nothing."""
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
        made = make(Producer(table, replace(change, branch=self._branch), self._names, ENGINE))
        return compared.live_entries(table.io, str(made["manifest-list"]))

    def unwanted(self) -> tuple[str, ...]:
        """Return what it wrote and its snapshot does not need: nothing once it was accepted."""
        return self._unwanted


def change_of(table: Table, operation: Any) -> tuple[Change, Make]:
    """Return what an operation does to the table as last refreshed, and what writes its
    snapshot."""
    if isinstance(operation, Mark):
        return changes.append_nothing(), Producer.make
    if isinstance(operation, NewManifests):
        return Change(changes.REPLACE), rewritten(operation.inputs, operation.groups)
    if isinstance(operation, RemoveDeletes):
        return changes.remove_deletes(operation.files), Producer.make
    live = table.live(table.head() or 0)
    if isinstance(operation, RewriteFiles):
        added = [file.entry for file in operation.added]
        sequence = operation.sequence_number
        return changes.replace_files(live, list(operation.tasks), added, sequence), Producer.make
    if isinstance(operation, RowDelta):
        added = [file.entry for file in operation.added]
        change = changes.row_delta(live, list(operation.tasks), added, operation.removed)
        return change, Producer.make
    raise TypeError(f"no commit of a {type(operation).__name__} is known")
