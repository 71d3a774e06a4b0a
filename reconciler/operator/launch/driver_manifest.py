"""The Job of one attempt at a plan or a recommendation: what its driver runs, within which limits,
on which pods."""

from __future__ import annotations

from typing import Any

from reconciler.api.documents import IcebergCatalog, TableLayoutPolicy
from reconciler.api.reach import Reach
from reconciler.api.run_document import RecommendRun, RunDocument
from reconciler.kube.manifests import JobRequest, job
from reconciler.operator.catalog.ports import CatalogProblem
from reconciler.operator.layout.facts import Record
from reconciler.operator.layout.subject import Subject, catalog_version
from reconciler.operator.settings import OperatorSettings


def driver_job(
    settings: OperatorSettings, subject: Subject, record: Record, memory_factor: float
) -> dict[str, Any]:
    """Return the Job of the record: its plan by place and digest, its limits, its sizing."""
    policy, handle, look = subject.policy, subject.handle, subject.look
    assert isinstance(policy, TableLayoutPolicy) and not isinstance(handle, CatalogProblem)
    assert look is not None
    total = (subject.status.get("job") or {}).get("actionsTotal", len(look.pending))
    left = subject.cut_short if total == 0 else None
    limited = bool(subject.budgets)
    run = RunDocument(
        catalog=handle.document,
        policy=policy,
        table=subject.table,
        plan_uri=look.uri if left is None else left.uri,
        plan_digest=record.digest,
        plan_id=record.plan_id,
        attempt=record.attempt,
        action_ids=tuple(item.id for item in look.pending[:total]),
        bytes_limit=record.rewrite_bytes if limited else None,
        cpu_limit_seconds=record.cpu_seconds if limited else None,
        policy_key=subject.policy_key,
        owner=handle.owner(),
    )
    return _job(settings, subject, record, run.text(), memory_factor)


def recommend_job(settings: OperatorSettings, subject: Subject, record: Record) -> dict[str, Any]:
    """Return the recommend Job of the record: a driver, with executors for a large sample only."""
    policy, handle = subject.policy, subject.handle
    assert isinstance(policy, TableLayoutPolicy) and not isinstance(handle, CatalogProblem)
    run = RecommendRun(
        catalog=handle.document,
        policy=policy,
        table=subject.table,
        run_id=record.plan_id,
        attempt=record.attempt,
        cpu_limit_seconds=record.cpu_seconds,
        policy_key=subject.policy_key,
        owner=handle.owner(),
    )
    return _job(settings, subject, record, run.text(), 1.0)


def _job(
    settings: OperatorSettings, subject: Subject, record: Record, run: str, memory_factor: float
) -> dict[str, Any]:
    policy, handle = subject.policy, subject.handle
    assert isinstance(policy, TableLayoutPolicy) and not isinstance(handle, CatalogProblem)
    document: IcebergCatalog = handle.document
    return job(
        JobRequest(
            name=record.name,
            namespace=subject.key.namespace,
            layout_name=subject.key.name,
            layout_uid=subject.body["metadata"]["uid"],
            plan_id=record.plan_id,
            plan_digest=record.digest,
            attempt=record.attempt,
            run=run,
            engine=policy.spec.engine,
            jobs=document.spec.jobs,
            image=settings.image,
            catalog_version=catalog_version(handle),
            service_account=settings.driver_service_account,
            executor_service_account=settings.executor_service_account,
            secret=document.spec.secret.name if document.spec.secret else "",
            memory_factor=memory_factor,
            reach=Reach(settings.allowed_networks, settings.local_files),
        )
    )
