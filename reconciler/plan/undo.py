"""How a plan that was carried out can be taken back: by the table's history, or by a rewrite. Pure.

The rewrite is for tables that have changed since: their later commits stay. Files of a plan that
was taken back stay as they are until the policy changes, or the same plan would be made again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from reconciler.format import plural
from reconciler.plan.execution import Intent
from reconciler.plan.ledger import LedgerEntry, rewrites_data
from reconciler.table.retention import SnapshotLog
from reconciler.table.summary_keys import PLAN_ID


@dataclass(frozen=True, slots=True)
class Carried:
    """What the ledger has of a plan that was carried out, at least in part."""

    plan_id: str
    """The plan's id."""
    entries: tuple[LedgerEntry, ...]
    """The outcomes of its actions that were committed."""
    batches: tuple[Intent, ...]
    """Its commit batches that reached the table and changed content files."""

    @property
    def replaced(self) -> frozenset[str]:
        """Return the content files that it replaced, without files of its own."""
        inputs = {path for batch in self.batches for path in batch.inputs}
        return frozenset(inputs.difference(self.added))

    @property
    def added(self) -> frozenset[str]:
        """Return the content files that it added."""
        return frozenset(path for batch in self.batches for path in batch.outputs)

    @property
    def snapshots(self) -> frozenset[int]:
        """Return the snapshots that its commits created, as far as they are known."""
        known = (entry.outcome.snapshot_id for entry in self.entries)
        return frozenset(one for one in known if one is not None)


def carried(plan_id: str, entries: Iterable[LedgerEntry], intents: Iterable[Intent]) -> Carried:
    """Return what the ledger has of a plan. intents: of the table."""
    own = tuple(one for one in entries if one.plan_id == plan_id and one.committed)
    done = {(one.outcome.attempt_id, one.outcome.batch) for one in own}
    batches = (one for one in intents if (one.attempt_id, one.batch) in done and one.outputs)
    return Carried(plan_id, own, tuple(batches))


def last_to_undo(entries: Sequence[LedgerEntry]) -> str | None:
    """Return the last plan that rewrote data files, took none back and is not taken back; None if
    there is none."""
    undone = undone_by(entries)
    for entry in sorted(entries, key=lambda entry: entry.at_ms, reverse=True):
        mine = entry.committed and rewrites_data(entry) and entry.predicted.undoes is None
        if mine and entry.plan_id not in undone:
            return entry.plan_id
    return None


def undone_by(entries: Iterable[LedgerEntry]) -> dict[str, str]:
    """Return the plans that took others back, by the plans that they took back."""
    return {
        entry.predicted.undoes: entry.plan_id
        for entry in entries
        if entry.committed and entry.predicted.undoes is not None
    }


@dataclass(frozen=True, slots=True)
class Way:
    """The snapshots of a rollback, or why there can be none."""

    to: int | None
    """The snapshot before the plan; None if the table cannot be rolled back to it."""
    over: int
    """The plan's last commit, which is the table's present snapshot."""
    why: str
    """Why the plan is taken back so, as a clause."""


def way_back(past: Carried, log: SnapshotLog) -> Way:
    """Return the rollback of a plan, as far as the table's metadata allows one."""
    main = log.main
    own = 0
    while own < len(main) and main[own].summary.get(PLAN_ID) == past.plan_id:
        own += 1
    over = main[0].id if main else 0
    if not own:
        return Way(None, over, _since(past, log))
    before = main[own - 1].parent
    if before is None or before not in log.by_id:
        return Way(None, over, "the snapshot before the plan has expired")
    if past.snapshots - {one.id for one in main[:own]}:
        return Way(None, over, "other commits lie between those of the plan")
    return Way(before, over, "nothing else was committed since")


def _since(past: Carried, log: SnapshotLog) -> str:
    """Return what lies between the plan and the table's present snapshot."""
    for newer, snapshot in enumerate(log.main):
        if snapshot.summary.get(PLAN_ID) == past.plan_id:
            return f"{plural(newer, 'other commit')} followed it"
    return "its commits are not in the table's retained history"


def held_files(
    entries: Sequence[LedgerEntry], intents: Collection[Intent]
) -> dict[str, dict[str, str]]:
    """Return, by hash of a policy, the data files that stay as they are under it: by path, the
    plan that was taken back.

    They are the files that a rewrite laid back, or that a rollback brought back.
    """
    found: dict[str, dict[str, str]] = {}
    undone = [
        (one.plan_id, one.predicted.undoes, one.predicted.held_under)
        for one in entries
        if one.committed
    ]
    for by, plan, policy in dict.fromkeys(undone):  # the actions of one plan say the same
        if plan is None or policy is None:
            continue
        written = carried(by, entries, intents).added
        paths = written or carried(plan, entries, intents).replaced
        found.setdefault(policy, {}).update(dict.fromkeys(paths, plan))
    return found


def with_restored(
    done: Mapping[tuple[str, int], Sequence[LedgerEntry]],
    known: Mapping[tuple[str, int], Intent],
) -> dict[tuple[str, int], tuple[str, ...]]:
    """Return the data files that rollbacks brought back, by attempt and batch.

    done: the outcomes of batches; known: the batches. A rollback writes no file, so that its own
    record has none.
    """
    entries = [entry for found in done.values() for entry in found]
    found = {}
    for key, own in done.items():
        plan = own[0].predicted.undoes
        if key not in known or plan is None or known[key].outputs:
            continue
        data = [one for one in entries if one.plan_id != plan or rewrites_data(one)]
        found[key] = tuple(sorted(carried(plan, data, known.values()).replaced))
    return found
