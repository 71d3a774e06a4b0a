"""Keeps the statistics that engines collected: a rewrite and an expiry would drop them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from reconciler.engines.commit import metadata
from reconciler.engines.table import Table
from reconciler.format import plural
from reconciler.plan.actions.state import ActionState, Validity
from reconciler.table.statistics import Ancestor, Document, lost_by_expiry, true_of_head
from reconciler.table.summary_keys import ATTEMPT_ID

Say = Callable[[str], None]


def carry(table: Table, say: Say) -> None:
    """List the statistics that are still true under the head, if it has none of its own. table: as
    refreshed after the last commit."""
    found, head = true_of_head(_line(table), table.statistics()), table.head()
    if found is not None and head is not None:
        _list_under(table, head, found, say)


def keep(table: Table, gone: Collection[int], say: Say) -> None:
    """Before an expiry: list the newest statistics under a snapshot that stays. gone: ids of the
    snapshots that expire."""
    found = lost_by_expiry(_line(table), gone, table.statistics())
    if found is not None:
        _list_under(table, *found, say)


def _line(table: Table) -> Iterator[Ancestor]:
    """Every commit of ours keeps the rows, whatever its operation."""
    for one in table.ancestors():
        yield Ancestor(one.id, one.operation == "replace" or ATTEMPT_ID in one.summary)


def _list_under(table: Table, snapshot_id: int, found: Document, say: Say) -> None:
    """Nothing depends on it but the plans of engines: a refusal is said, and ends nothing."""

    def judge(facts: object) -> ActionState:
        listed = table.statistics()
        if snapshot_id in listed:
            return ActionState(Validity.DONE)
        there = table.snapshot(snapshot_id) is not None and int(found["snapshot-id"]) in listed
        return ActionState(Validity.PENDING if there else Validity.LOST)

    fields = {field for blob in found.get("blob-metadata") or () for field in blob["fields"]}
    columns = plural(len(fields), "column")
    try:
        state, _ = metadata.apply(table, judge, lambda: table.with_statistics(snapshot_id, found))
    except Exception as error:
        if table.errors.lost(error):
            raise
        say(f"statistics of {columns} not carried on: {table.errors.message(error)}")
        return
    if state.validity is Validity.PENDING:  # until now
        say(f"statistics of {columns} carried on")
