"""Finds a commit of ours that took another writer's place on main, and gives it back.

A catalog has to refuse a request whose requirements do not hold. One that does not check them takes
a commit that was made from an older snapshot, and main then lacks what was committed in between.
Every snapshot of ours is looked up after its commit. Main's log names the one before it, and the
one after it, which may have taken its place in turn.
"""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.engines.table import Table
from reconciler.errors import BlockedError
from reconciler.plan.actions.roll_back import RollBack

CHECK = "assert-ref-snapshot-id"
"""The requirement that such a catalog does not check, as the REST specification names it."""
DO = "let nobody commit to tables of this catalog until its server checks requirements"


def refuse(table: Table, snapshot_id: int | None, *, on_empty: bool = False) -> None:
    """Raise BlockedError if a snapshot of ours displaced another one, or was displaced. Another one
    is main's again if nothing was committed after ours.

    table: as last refreshed. snapshot_id: None for a batch without one. on_empty: whether the table
    had no snapshot when the sending began, so that nothing has expired since.
    """
    log = table.main_log()
    if snapshot_id is None or snapshot_id not in log:
        return
    at = log.index(snapshot_id)
    if at and _displaced(table, log[at - 1], snapshot_id, on_empty=on_empty):
        before = log[at - 1]
        became = _given_back(table, snapshot_id, before)
        raise BlockedError(
            f"the catalog of {table.shown} does not check what a commit requires ({CHECK}): "
            f"commit {snapshot_id} displaced snapshot {before}",
            details=(became,),
            do=DO,
        )
    after = log[at + 1] if at + 1 < len(log) else snapshot_id
    if _displaced(table, snapshot_id, after) and not table.is_ancestor(snapshot_id, after):
        raise BlockedError(
            f"snapshot {after} displaced commit {snapshot_id} of {table.shown}: it was not made "
            f"from it",
            details=(f"Its catalog does not check {CHECK}, or somebody replaced main.",
                     "Main holds the files that the commit replaced, with all of their rows."),
            do=DO,
        )  # fmt: skip


def _displaced(table: Table, one: int, by: int, *, on_empty: bool = False) -> bool:
    """Whether a snapshot that was main's is in the history of neither the next one nor main.

    Both have to come from one snapshot, or from the empty table: where expiry has cut the history
    between them, and left out of main's log what was in between, nothing is known.
    """
    head = table.head()
    if head is None or table.snapshot(one) is None:
        return False
    if any(table.is_ancestor(newer, one) for newer in (by, head)):
        return False
    return on_empty or not set(_line(table, one)).isdisjoint(_line(table, by))


def _line(table: Table, snapshot_id: int | None) -> Iterator[int]:
    """Yield a snapshot and its ancestors, as far as they are retained."""
    while snapshot_id is not None and (found := table.snapshot(snapshot_id)) is not None:
        yield snapshot_id
        snapshot_id = found.parent


def _given_back(table: Table, ours: int, before: int) -> str:
    """Make a displaced snapshot main's again, and return what became of that."""
    missing = f"What snapshot {before} changed is missing from main until a person repairs it."
    if table.head() != ours:
        return f"Snapshot {table.head()} was committed since, and stays. {missing}"
    answer = table.change(RollBack(snapshot_id=before, over=ours)).send()
    table.refresh()
    head, log = table.head(), table.main_log()
    if head is None or not table.is_ancestor(head, before) or ours not in log:
        why = answer.why or "main has another snapshot now"
        return f"Snapshot {before} could not be made main's again: {why}. {missing}"
    since = log[log.index(ours) + 1 :]
    lost = [one for one in since[: since.index(before)] if one != ours] if before in since else []
    if not lost:
        return f"Snapshot {before} is main's again: no row is missing, and the commit is undone."
    return (
        f"Snapshot {before} is main's again, but snapshot {lost[-1]} was committed meanwhile. What "
        f"was committed up to it since {ours} is missing from main until a person repairs it."
    )
