"""What the driver of an attempt reads: the run document of a plan or of a recommendation."""

from __future__ import annotations

from typing import Any

from reconciler.api.run_document import RecommendRun, RunDocument
from reconciler.operator.job_record import JobRecord
from reconciler.operator.layout.subject import Subject


def run_document(subject: Subject, record: JobRecord) -> RunDocument | RecommendRun:
    """Return the document of the attempt that the record reserves: the plan by place and digest,
    the admitted actions, and what was charged for them; or the inputs of a recommendation.

    Bytes are limited under any policy, because the operator's cap on 24 h is charged with them. CPU
    seconds of a plan are limited only by budgets.
    """
    (policy, handle), proposal = subject.usable, subject.proposal
    common: dict[str, Any] = {
        "catalog": handle.document, "policy": policy, "table": subject.table,
        "attempt": record.attempt, "policy_key": subject.policy_key, "owner": handle.owner(),
    }  # fmt: skip
    if record.recommends:
        seconds = record.cpu_seconds
        return RecommendRun(**common, run_id=record.plan_id, cpu_limit_seconds=seconds)
    assert proposal is not None
    total = len(proposal.pending) if record.total is None else record.total
    left = subject.cut_short if total == 0 else None
    return RunDocument(
        **common,
        plan_uri=proposal.uri if left is None else left.uri,
        plan_digest=record.digest,
        plan_id=record.plan_id,
        action_ids=tuple(item.id for item in proposal.pending[:total]),
        bytes_limit=record.rewrite_bytes,
        cpu_limit_seconds=record.cpu_seconds if subject.budgets else None,
        engine=proposal.engine,
    )
