"""A table that was dropped, renamed, or created again under its name, while a run worked on it.

None of the run's commits can arrive any more: a catalog accepts them for the old table only. What
the run wrote is removed, unless somebody refers to it: the old table may live under another name,
and where it was dropped without its files, its metadata still needs what was committed to it.
"""

from __future__ import annotations

from collections.abc import Sequence

from reconciler.engines.commit import cleanup, fence, metadata_files
from reconciler.engines.schedule.run import Run
from reconciler.errors import StalePlanError
from reconciler.format import iec, plural
from reconciler.plan.execution import FAILED, Intent, Outcome

AGAIN = "run the command again: it makes a new plan for the table that is there now"


def what_became(run: Run, error: BaseException) -> str:
    """Return what became of the planned table, as a clause, if that explains the error; "" if the
    catalog still has it or does not answer."""
    errors = run.table.errors
    if errors.lost(error):
        return ""
    try:
        found = run.table.fresh()
    except Exception as failed:
        return "it was dropped or renamed" if errors.is_missing_table(failed) else ""
    same = found.uuid() == run.request.table_uuid
    return "" if same else "it was dropped and created again"


def clean_up(run: Run, why: str) -> StalePlanError:
    """Remove what the run left, close its attempts, and return the error to raise. why: what became
    of the table."""
    details = [f"Meanwhile {why}."]
    by_attempt: dict[str, list[Intent]] = {}
    for intent in run.ledger.open_intents(run.request.table_uuid):
        if intent.attempt_id in run.attempts:
            by_attempt.setdefault(intent.attempt_id, []).append(intent)
    files = size = 0
    for members in by_attempt.values():
        removed = _abandon(run, members)
        files, size = files + removed.files, size + removed.bytes
        if removed.refused:
            details.append(f"Files of the run stay: {removed.refused}")
    if files:
        details.append(f"{plural(files, 'file')} of the run removed ({iec(size)}).")
    return StalePlanError(
        f"{run.shown} is not the table that was planned any more", details=tuple(details), do=AGAIN
    )


def _abandon(run: Run, members: Sequence[Intent]) -> cleanup.Removed:
    """Remove what the attempt left, and close it. A batch whose files somebody refers to was
    committed before: it stays open, and is settled by the next run on that table."""
    table = run.table
    prefix = next((one.prefix for one in members if one.prefix), "")
    found = cleanup.listing(table, prefix) if "/layout-" in prefix else {}
    found |= metadata_files.of_commits(run.table, run.metadata_directory, members)
    commits = [commit for one in members for commit in one.commits]
    free, refused = run.unclaimed(found, commits)
    removed = cleanup.discard(table, free)
    if removed.error is not None:
        refused = refused or table.errors.message(removed.error)
    if prefix and not refused:
        table.remove_empty_directories(prefix)
    kept = {path.rpartition("/")[2] for path in found.keys() - free.keys()}
    for intent in members:
        if intent.batch == 0 and not refused:
            run.ledger.record_outcomes(intent, (fence.closed(intent),))
        elif intent.batch and not any(one.rpartition("/")[2] in kept for one in intent.outputs):
            run.ledger.record_outcomes(intent, _failed(intent))
    return cleanup.Removed(removed.files, removed.bytes, refused)


def _failed(intent: Intent) -> tuple[Outcome, ...]:
    return tuple(
        Outcome(intent.attempt_id, intent.batch, action, FAILED, None, 0, 0, 0, 0, 0, 0.0, 0.0,
                "the table was dropped or created again")
        for action in intent.action_ids
    )  # fmt: skip
