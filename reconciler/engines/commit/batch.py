"""Sends one batch of verified work, and records what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from reconciler.engines.commit import (
    audit,
    cleanup,
    commit,
    displaced,
    fence,
    fit,
    metadata_files,
    standing,
)
from reconciler.engines.commit.history import Committed
from reconciler.engines.commit.operations import Operation
from reconciler.engines.schedule.attempt import Attempt
from reconciler.engines.schedule.run import Run
from reconciler.engines.snapshots import short
from reconciler.engines.table import PendingCommit, Table
from reconciler.errors import (
    AuditFailedError,
    BlockedError,
    InternalError,
    ReconcilerError,
    UnknownCommitError,
)
from reconciler.format import count, iec, plural
from reconciler.plan.execution import (
    COMMITTED,
    CONFLICT,
    FAILED,
    UNKNOWN_OUTCOME,
    WAITING,
    Event,
    Intent,
    Outcome,
)


@dataclass(frozen=True, slots=True)
class Part:
    """What one action, or one group of it, has in a batch."""

    action_id: str
    """Id of the action."""
    title: str
    """What progress calls it."""
    verified: Event
    """The event that said that it is ready."""
    inputs: tuple[str, ...]
    """Content files that it replaces."""
    outputs: tuple[str, ...]
    """Content files that it adds."""
    read_bytes: int
    """Bytes of the content files that were read."""
    written_bytes: int
    """Bytes of the content files that it adds."""
    rows: int
    """Rows in its outputs."""
    cpu_seconds: float
    """CPU seconds of reading and writing."""
    verify_cpu_seconds: float
    """CPU seconds of comparing rows."""
    seconds: float
    """Seconds of both, by the clock."""


def send(
    run: Run, attempt: Attempt, number: int, operation: Operation, parts: Sequence[Part]
) -> bool:
    """Send one batch, to main or to the branch where it waits for approval; return False if it was
    refused and its files were dropped."""
    run.require_lease()
    fit.require(attempt.table, operation, attempt.snapshot_id)
    audited = run.request.audit if operation.on_branches else None
    waits = audited is not None and bool(audited.waits)
    trial = None if audited is None else audit.prepare(run.table, operation, audited)
    commits = () if waits else commit.prepare(run.table, operation)
    intent = _record_intent(run, attempt, number, parts, (*commits, *([trial] if trial else [])))
    if audited is not None and trial is not None:
        held = audit.commit_to_branch(run.table, operation, intent, trial, audited, run.waiting)
        if isinstance(held, commit.Refused):
            _record_refusal(run, intent, held, parts)
            _delete_outputs(run, attempt.table, intent, parts)
            _raise_if_final(run, held)
            return False
        if audited.check:
            text = f"batch {number}: the check of branch {audited.branch} returned no row"
            run.say("audit", text, intent.action_ids[0])
        if waits:
            _record_waiting(run, intent, held, parts, audited.branch)
            return True
    refused = _commit_to_main(run, attempt, operation, intent, parts, commits)
    if refused is not None:
        _record_refusal(run, intent, refused, parts)
        _delete_outputs(run, attempt.table, intent, parts)
        _raise_if_final(run, refused)
    return refused is None


def publish(
    run: Run, attempt: Attempt, number: int, operation: Operation, part: Part
) -> commit.Refused | None:
    """Commit a batch to main whose files are on a branch already; return why it was refused, None
    if it was not. The files stay: as long as the branch is there, its snapshot needs them."""
    run.require_lease()
    fit.require(attempt.table, operation, attempt.snapshot_id)
    commits = commit.prepare(run.table, operation)
    intent = _record_intent(run, attempt, number, (part,), commits)
    refused = _commit_to_main(run, attempt, operation, intent, (part,), commits)
    if refused is not None:
        _record_refusal(run, intent, refused, (part,))
        _raise_if_final(run, refused)
    return refused


def _record_intent(
    run: Run, attempt: Attempt, number: int, parts: Sequence[Part], commits: Sequence[PendingCommit]
) -> Intent:
    """Record the batch in the ledger before it is sent; from then on the run is in doubt about it.
    commits: those that may be sent for it."""
    actions = tuple(dict.fromkeys(part.action_id for part in parts))
    inputs = tuple(sorted(path for part in parts for path in part.inputs))
    intent = replace(
        run.intent(attempt.id, number, actions, attempt.snapshot_id, attempt.prefix, inputs),
        outputs=tuple(path for part in parts for path in part.outputs),
        commits=tuple(change.uuid for change in commits),
    )
    run.ledger.record_intent(intent)
    attempt.sent.add(number)
    run.in_doubt = True
    return intent


def _commit_to_main(
    run: Run,
    attempt: Attempt,
    operation: Operation,
    intent: Intent,
    parts: Sequence[Part],
    commits: Sequence[PendingCommit],
) -> commit.Refused | None:
    """Commit the batch to main and record that; return why it was refused, None if it was not."""
    text = f"committing batch {intent.batch}: {plural(len(intent.inputs), 'file')}"
    run.say("commit", text, intent.action_ids[0])
    batch = commit.Batch(
        operation, _base(run, attempt), intent, run.own_since_read, run.request.allow_live_branches
    )
    sent = commit.send(run.table, batch, commits)
    if isinstance(sent, commit.Unknown):
        sent = _settle(run, intent, sent, parts)
    if isinstance(sent, commit.Refused):
        return sent
    _record_commit(run, intent, sent.snapshot_id, parts)
    displaced.refuse(run.table, sent.snapshot_id)
    return None


def _record_waiting(
    run: Run, intent: Intent, snapshot_id: int, parts: Sequence[Part], branch: str
) -> None:
    """Record a batch that stays on the branch until a person approves it."""
    run.waiting.append(snapshot_id)
    run.held.update(intent.inputs)
    _record_and_report(run, intent, snapshot_id, parts, WAITING, f"waits on branch {branch}")


def _base(run: Run, attempt: Attempt) -> commit.Base:
    table = attempt.table
    return commit.Base(
        run.request.table_uuid, table.schema_id(), attempt.snapshot_id, table.format_version()
    )


def _record_commit(run: Run, intent: Intent, snapshot_id: int, parts: Sequence[Part]) -> None:
    run.own.add(snapshot_id)
    run.own_since_read.add(snapshot_id)
    run.done_ids.update(intent.action_ids)
    _record_and_report(run, intent, snapshot_id, parts, COMMITTED, f"commit {short(snapshot_id)}")


def _record_and_report(
    run: Run, intent: Intent, snapshot_id: int, parts: Sequence[Part], state: str, where: str
) -> None:
    """Record the outcomes of a batch whose files are in a snapshot, and report each action."""
    run.committed.update(intent.outputs)
    run.record(intent, _outcomes(intent, parts, state, snapshot_id, ""))
    for part in parts:
        text = f"{part.verified.text}  {where}"
        run.on_event(replace(part.verified, phase=state, text=text))


def _settle(
    run: Run, intent: Intent, unknown: commit.Unknown, parts: Sequence[Part]
) -> Committed | commit.Refused:
    """Settle a commit whose call failed with an unknown outcome."""
    again = "run the command again: it checks, cleans up and continues"
    if unknown.lost:
        raise UnknownCommitError(
            f"the Spark process ended while it committed to {run.shown}",
            details=("It is unknown whether the commit arrived; its files were kept.",),
            do=again,
        )
    run.record(intent, _outcomes(intent, parts, UNKNOWN_OUTCOME, None, unknown.why))
    run.say("unknown", f"the commit's outcome is unknown ({unknown.why}); checking")
    try:
        outcomes = fence.settle(
            run.request.catalog, run.table, intent, True, run.on_event, unknown.asserted
        )
    except ReconcilerError:
        raise
    except Exception as error:
        why = run.table.errors.message(error)
        raise UnknownCommitError(
            f"whether a commit to {run.shown} arrived is unknown",
            said=(f"{unknown.why}; then: {why}",),
            details=("Its files were kept.",),
            do=again,
        ) from error
    committed = outcomes[0].snapshot_id
    _remove_metadata(run, intent)
    if committed is not None:
        return Committed(committed)
    return commit.Refused(unknown.why, conflict=False, unwritable=unknown.unwritable)


def _remove_metadata(run: Run, intent: Intent) -> None:
    """Remove what the commits of a settled batch wrote, except what a snapshot needs."""
    try:
        base = intent.base_snapshot_id
        metadata_files.remove_of_commits(run.table, intent.commits, base).required()
    except Exception as error:
        run.say("left", f"metadata files of a commit stay: {run.table.errors.message(error)}")


def _record_refusal(
    run: Run, intent: Intent, refused: commit.Refused, parts: Sequence[Part]
) -> None:
    """Record that the batch was refused."""
    state = CONFLICT if refused.conflict else FAILED
    run.record(intent, _outcomes(intent, parts, state, None, refused.why))
    run.conflicts += refused.conflict
    word = "CONFLICT" if refused.conflict else "REFUSED"
    for part in parts:
        run.say("conflict", f"{part.title}  {word}: {refused.why}", part.action_id)


def _delete_outputs(run: Run, table: Table, intent: Intent, parts: Sequence[Part]) -> None:
    """Delete the files of a refused batch; what stays is deleted when the attempt is closed."""
    gone = cleanup.discard(table, intent.outputs)
    if gone.error is not None:
        left, why = len(intent.outputs) - gone.files, run.table.errors.message(gone.error)
        run.say("left", f"{plural(left, 'file')} of a refused batch cannot be removed now: {why}")
    elif intent.prefix:
        size = sum(part.written_bytes for part in parts)
        run.say(
            "removed",
            f"removed {count(len(intent.outputs))} files this run wrote ({iec(size)}); "
            "nothing of this batch was committed",
        )


def _raise_if_final(run: Run, refused: commit.Refused) -> None:
    """Raise if the attempt cannot go on."""
    if refused.denied:
        raise commit.denied(run.shown, refused.why)
    if refused.unwritable is not None:
        doing = f"commit to {run.shown}"
        raise run.table.errors.translate(refused.unwritable, doing) from refused.unwritable
    if refused.audit:
        raise audit_failed(run.shown, refused.why)
    if refused.invalid:
        raise InternalError(
            f"a commit to {run.shown} was found invalid",
            said=(refused.why,),
            details=("Nothing of it is in the table; what was written was removed.",),
            do="keep the plan and report it as a bug; no row of the table was changed",
        )
    if refused.fenced:
        raise BlockedError(
            f"{run.shown}: {refused.why}",
            details=("Nothing more was committed by this one.",),
            do="see who else works on the table, then run the command again",
        )
    if refused.paused:
        raise standing.paused_error(run.shown, refused.paused)
    if refused.live:
        raise standing.live_branch_error(run.shown, refused.live)
    if refused.rolled_back:
        standing.refuse_rolled_back(run.table, run.request.plan_id, run.shown)


def audit_failed(shown: str, why: str) -> AuditFailedError:
    return AuditFailedError(
        f"{shown}: {why}",
        details=("Nothing of this batch was committed to main.",),
        do="see whether the query of spec.safety.check is right; if it is, report this",
    )


def _outcomes(
    intent: Intent, parts: Sequence[Part], state: str, snapshot_id: int | None, detail: str
) -> tuple[Outcome, ...]:
    """Return one outcome per action of the batch: sums over its parts."""
    outcomes = []
    for action_id in intent.action_ids:
        own = [part for part in parts if part.action_id == action_id]
        verify_cpu = sum(part.verify_cpu_seconds for part in own)
        outcomes.append(
            Outcome(
                attempt_id=intent.attempt_id,
                batch=intent.batch,
                action_id=action_id,
                state=state,
                snapshot_id=snapshot_id,
                read_bytes=sum(part.read_bytes for part in own),
                written_bytes=sum(part.written_bytes for part in own),
                rows=sum(part.rows for part in own),
                files_in=sum(len(part.inputs) for part in own),
                files_out=sum(len(part.outputs) for part in own),
                cpu_seconds=sum(part.cpu_seconds for part in own) + verify_cpu,
                seconds=sum(part.seconds for part in own),
                detail=detail,
                verify_cpu_seconds=verify_cpu,
            )
        )
    return tuple(outcomes)
