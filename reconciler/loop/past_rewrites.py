"""Finds the files that past rewrites replaced and wrote, and until when they were in the table.

What `loop/credit_record` read from the ledger comes in, with the table as it is now; out come
`PastRewrite`s, by which `advisor.measure.credit` measures what later queries did not read. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from reconciler.advisor.measure.credit import NEVER, PastRewrite, written
from reconciler.plan.execution import COMMITTED, Intent
from reconciler.plan.ledger import LedgerEntry
from reconciler.plan.undo import with_restored
from reconciler.table.filetable import FileTable
from reconciler.table.observation import Observation

BatchKey = tuple[str, int]
"""A commit batch: the id of its attempt, and its number there."""


Batches = Mapping[BatchKey, tuple[Intent, tuple[LedgerEntry, ...]]]
"""Commit batches of which files were written, with the outcomes of their actions."""

MOST_REPLACED = 500
"""Batches of which every file was replaced, the newest, that are still measured for the table."""


@dataclass(frozen=True)
class LedgerFiles:
    """What the ledger keeps of past rewrites of one table."""

    batches: Batches
    """The commit batches that count, each with its outcomes."""
    inputs: Mapping[tuple[str, str], FileTable]
    """By plan and action id, the files that the action was to replace."""
    written: Mapping[BatchKey, tuple[int, FileTable]]
    """By batch, when its files were recorded in epoch milliseconds, and the files."""


def batches_of(entries: Iterable[LedgerEntry], intents: Iterable[Intent]) -> Batches:
    """Return the batches of which files were written, in order of time."""
    done: dict[BatchKey, list[LedgerEntry]] = {}
    for entry in sorted(entries, key=lambda entry: entry.at_ms):
        if entry.written and entry.outcome.action_id:
            done.setdefault((entry.outcome.attempt_id, entry.outcome.batch), []).append(entry)
    known = {(intent.attempt_id, intent.batch): intent for intent in intents}
    for key, files in with_restored(done, known).items():
        known[key] = replace(known[key], outputs=files)
    return {key: (known[key], tuple(found)) for key, found in done.items() if key in known}


def still_counting(batches: Batches) -> Batches:
    """Return the batches without the oldest of those whose files were all replaced."""
    taken = {path for intent, _ in batches.values() for path in intent.inputs}
    replaced = [
        key for key, (intent, _) in batches.items()
        if intent.outputs and taken.issuperset(intent.outputs)
    ]  # fmt: skip
    gone = set(replaced[:-MOST_REPLACED])
    return {key: value for key, value in batches.items() if key not in gone}


def new_files(intent: Intent, observation: Observation) -> FileTable | None:
    """Return the data files that a batch added, None unless all of them are live in the table."""
    rows = [observation.files.row_of.get(path, -1) for path in intent.outputs]
    if not rows or min(rows) < 0:
        return None
    return observation.files.take(np.array(sorted(rows), dtype=np.int64))


def rewrites_of(
    kept: LedgerFiles, observation: Observation, now_ms: int
) -> dict[BatchKey, PastRewrite]:
    """Return the rewrites whose files before and after are known."""
    times = {one.snapshot_id: one.timestamp_ms for one in observation.ancestry}
    since = {
        key: moment
        for key, (_, entries) in kept.batches.items()
        if (moment := _since_ms(key, entries, kept, times)) is not None
    }
    found, taken = {}, dict[str, _Replacement]()
    for key in sorted(since, key=lambda key: -since[key]):  # the last first: it ends those before
        intent, entries = kept.batches[key]
        after = kept.written[key][1] if key in kept.written else new_files(intent, observation)
        before = _replaced(intent, entries, kept.inputs)
        lost = _NEVER_LOST
        if before is not None and after is not None and any(len(files) for files in before):
            made = written(intent.plan_id, since[key], before, after)
            found[key] = _dated(made, taken, observation, now_ms)
            lost = _lost(found[key])
        taken |= dict.fromkeys(intent.inputs, _Replacement(since[key], *lost))
    return found


@dataclass(frozen=True, slots=True)
class _Replacement:
    """When a rewrite of ours replaced a file, and when the rows were lost."""

    at_ms: int
    """When the rewrite was committed, in epoch milliseconds."""
    lost_after_ms: int
    """Time after which another writer removed the rows, in epoch milliseconds."""
    lost_by_ms: int
    """Time by which the rows were removed, in epoch milliseconds."""


_NEVER_LOST = (NEVER, NEVER)


def _lost(rewrite: PastRewrite) -> tuple[int, int]:
    """Return after and by when the rows of a replaced file may be gone with the written ones: from
    the first of these on, and surely with the last."""
    if not len(rewrite.after):
        return _NEVER_LOST
    return int(rewrite.lost_after_ms.min()), int(rewrite.lost_by_ms.max())


def _since_ms(
    key: BatchKey, entries: Sequence[LedgerEntry], kept: LedgerFiles, times: Mapping[int, int]
) -> int | None:
    """Return when the batch's files became those of the table; None while they wait on a branch.

    What was published later counts from the first look that found it.
    """
    if any(entry.outcome.state != COMMITTED for entry in entries):
        return kept.written[key][0] if key in kept.written else None
    recorded = max(entry.at_ms for entry in entries)
    snapshot = entries[0].outcome.snapshot_id
    return recorded if snapshot is None else min(recorded, times.get(snapshot, recorded))


def _replaced(
    intent: Intent, entries: Sequence[LedgerEntry], inputs: Mapping[tuple[str, str], FileTable]
) -> tuple[FileTable, ...] | None:
    """Return the data files that the batch replaced, None if the ledger does not keep them.

    A batch may have done only a part of an action, where others had replaced some of its inputs.
    """
    wanted, found = set(intent.inputs), []
    for entry in entries:
        files = inputs.get((intent.plan_id, entry.outcome.action_id))
        if files is None:
            return None
        found.append(files.take(np.array([path in wanted for path in files.path], dtype=np.bool_)))
    return tuple(found)


def _dated(
    rewrite: PastRewrite, taken: Mapping[str, _Replacement], observation: Observation, now_ms: int
) -> PastRewrite:
    """Return the rewrite with the times at which its files stopped being live.

    Where snapshots since the rewrite have expired, one of these may have removed the files first.
    """
    whole = any(one.timestamp_ms <= rewrite.since_ms for one in observation.ancestry[-1:])
    removals = [
        one.timestamp_ms
        for one in observation.ancestry
        if not one.ours and one.operation != "append" and one.timestamp_ms > rewrite.since_ms
    ]
    first = min(removals) - 1 if whole and removals else rewrite.since_ms
    last = max(removals, default=now_ms)
    ends = [
        _end(str(path), taken, str(path) in observation.files.row_of, first, last)
        for path in rewrite.after.path
    ]
    replaced, after, by = np.array(ends, dtype=np.int64).reshape(-1, 3).T
    return replace(rewrite, replaced_ms=replaced, lost_after_ms=after, lost_by_ms=by)


def _end(
    path: str, taken: Mapping[str, _Replacement], live: bool, first: int, last: int
) -> tuple[int, int, int]:
    """Return when a file was replaced by us, and after and by when its rows were lost."""
    if path in taken:
        end = taken[path]
        return end.at_ms, end.lost_after_ms, end.lost_by_ms
    return (NEVER, NEVER, NEVER) if live else (NEVER, first, last)
