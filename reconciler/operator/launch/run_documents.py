"""What the driver of an attempt reads: the run document of a plan or of a recommendation."""

from __future__ import annotations

from reconciler.api.run_document import RecommendRun, RunDocument
from reconciler.operator.job_record import JobRecord
from reconciler.operator.layout.subject import Subject


def run_document(subject: Subject, record: JobRecord) -> RunDocument | RecommendRun:
    """Return the document of the attempt that the record reserves."""
    return _recommend_run(subject, record) if record.recommends else _plan_run(subject, record)


def _plan_run(subject: Subject, record: JobRecord) -> RunDocument:
    """Return the plan by place and digest, the admitted actions, and what was charged for them.

    Bytes are limited under any policy, because the operator's cap on 24 h is charged with them. CPU
    seconds are limited only by budgets.
    """
    (policy, handle), proposal = subject.usable, subject.proposal
    assert proposal is not None
    total = len(proposal.pending) if record.total is None else record.total
    left = subject.cut_short if total == 0 else None
    limited = bool(subject.budgets)
    return RunDocument(
        catalog=handle.document,
        policy=policy,
        table=subject.table,
        plan_uri=proposal.uri if left is None else left.uri,
        plan_digest=record.digest,
        plan_id=record.plan_id,
        attempt=record.attempt,
        action_ids=tuple(item.id for item in proposal.pending[:total]),
        bytes_limit=record.rewrite_bytes,
        cpu_limit_seconds=record.cpu_seconds if limited else None,
        policy_key=subject.policy_key,
        owner=handle.owner(),
        engine=proposal.engine,
    )


def _recommend_run(subject: Subject, record: JobRecord) -> RecommendRun:
    policy, handle = subject.usable
    return RecommendRun(
        catalog=handle.document,
        policy=policy,
        table=subject.table,
        run_id=record.plan_id,
        attempt=record.attempt,
        cpu_limit_seconds=record.cpu_seconds,
        policy_key=subject.policy_key,
        owner=handle.owner(),
    )
