"""Commits a change of the table's metadata on exactly the metadata that it was judged against."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from reconciler.engines.answers import Answer, Kind
from reconciler.engines.commit import commit
from reconciler.engines.table import MetadataChange, Table
from reconciler.errors import UnavailableError, UnknownCommitError, UserError
from reconciler.plan.actions.set_sort_order import has_order
from reconciler.plan.actions.state import ActionState, Facts, Validity
from reconciler.plan.ordering import Ordering

RESENDS = 10
"""Commits in a row that may lose against other writers before the action fails."""
PAUSE_SECONDS = 0.5
"""Pause before a commit is sent again that was neither accepted nor refused."""
UNSHOWN = "the catalog accepted the change and does not show it"
UNSORTED = 0
"""Id of the sort order that every table has, without fields."""


def sort_order_id(table: Table, ordering: Ordering) -> int:
    """Return the id of the table's sort order that rows have in this ordering, UNSORTED if it has
    no such order."""
    key = ordering.key if ordering.lead is not None else ()
    orders = table.sort_orders() if key else {}
    found = [number for number, terms in orders.items() if has_order(terms, key)]
    return max(found, default=UNSORTED)


def apply(
    table: Table, judge: Callable[[Facts], ActionState], change: Callable[[], MetadataChange]
) -> tuple[ActionState, str]:
    """Commit the change if it is still pending on the metadata that it replaces.

    A library's own updates would be repeated on whatever another writer committed meanwhile. Here
    the commit names the metadata that was judged; after a refusal the new metadata is judged. If a
    commit was reported as failed, or not answered, and its change is found in the table, it is
    ours. judge: whether the change is pending. change: makes it from the metadata as last
    refreshed.

    Returns the state in which the change was found, and "name: old -> new" for the ledger and for
    people. PENDING means that it was found pending and is committed now; with another state nothing
    was sent, and the text is "".
    """
    detail = unknown = ""
    for number in range(RESENDS):
        table.refresh()
        state = judge(table.facts())
        if state.validity is Validity.DONE and number:
            return ActionState(Validity.PENDING), detail
        if state.validity is not Validity.PENDING:
            return state, ""
        wanted = change()
        detail = _detail(wanted.before, wanted.after)
        answer = wanted.send()
        if answer.kind is Kind.ACCEPTED and _is_shown(table, judge):
            return ActionState(Validity.PENDING), detail
        if _is_final(table, answer):
            table.refresh()
            if judge(table.facts()).validity is not Validity.DONE:
                raise refused(table, answer) from answer.error
        unknown = "" if answer.kind is Kind.LOST_RACE else answer.why or UNSHOWN
        if unknown:
            time.sleep(PAUSE_SECONDS)
    if unknown:
        raise _unknown(table, "The table does not show the change yet.", unknown)
    raise UnavailableError(
        f"{table.shown}: other writers keep changing its metadata",
        details=(f"{RESENDS} commits in a row were rejected because of concurrent changes.",),
        do="run the command again when the writers are quieter",
    )


def _is_shown(table: Table, judge: Callable[[Facts], ActionState]) -> bool:
    """Whether the table has a change that the catalog accepted. True if it cannot be read: the
    change is to be recorded."""
    try:
        table.refresh()
        return judge(table.facts()).validity is not Validity.PENDING
    except Exception:
        return True


def _detail(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {before[name]} -> {value}" for name, value in after.items())


def _is_final(table: Table, answer: Answer) -> bool:
    """Whether sending the same commit again would get the same answer. Raises UnknownCommitError if
    the engine's process ended meanwhile."""
    if answer.kind is Kind.LOST:
        raise _unknown(table, "The Spark process ended while it committed.") from answer.error
    return answer.kind not in (Kind.LOST_RACE, Kind.UNKNOWN, Kind.ACCEPTED)


def refused(table: Table, answer: Answer) -> Exception:
    """Return the error for a change that the catalog will not take."""
    if answer.kind is Kind.DENIED:
        return commit.denied(table.shown, answer.why)
    if answer.error is not None:
        return table.errors.translate(answer.error, f"change the metadata of {table.shown}")
    return UserError(
        f"the catalog refuses a change of the metadata of {table.shown}",
        said=(answer.why,),
        details=("Nothing was changed.",),
        do="see why in the catalog's log; the plan can be made again",
    )


def _unknown(table: Table, detail: str, *said: str) -> UnknownCommitError:
    return UnknownCommitError(
        f"it is unknown whether a change of the metadata of {table.shown} arrived",
        details=(detail,),
        said=said,
        do="run the command again: it checks, and repeats the change only if needed",
    )
