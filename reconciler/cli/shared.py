"""`--shared` and `--publish`: state and plans in the catalog, where an operator and others use
them.

The IcebergCatalog document under -f gives the namespace and the URI; without a document the default
namespace is used. What the first write creates is reported on stderr.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from reconciler.cli.system_namespace import document_of, system_of

if TYPE_CHECKING:
    from reconciler.api.catalog_config import CatalogConfig
    from reconciler.api.documents import IcebergCatalog
    from reconciler.cli.targets import Selection
    from reconciler.loop.local_actor import LocalActor
    from reconciler.plan.plan import Plan
    from reconciler.state.plan_store import PlanStore
    from reconciler.state.shared_state import SharedStore
    from reconciler.state.store import Store


def actor_of(chosen: Selection, timeout: float, shared: bool) -> LocalActor:
    """Return the I/O of this machine for the chosen tables."""
    configs = [step.target.catalog for step in chosen.steps]
    config = _one_catalog(configs) if shared else configs[0]
    return actor_on(config, chosen.documents.catalogs, timeout, shared)


def actor_on(
    config: CatalogConfig, documents: Sequence[IcebergCatalog], timeout: float, shared: bool
) -> LocalActor:
    """Return this machine's I/O with its own state, or with the catalog's shared one."""
    from reconciler.loop.local_actor import LocalActor
    from reconciler.state.state import cache_directory

    store = store_of(config, documents, timeout, shared)
    excluded = excluded_columns(config, documents, shared)
    return LocalActor(store, cache_directory(), timeout, exclude_columns=excluded)


def excluded_columns(
    config: CatalogConfig, documents: Sequence[IcebergCatalog], shared: bool
) -> tuple[str, ...]:
    """Return the columns of which the catalog's shared state holds no value; the user's own state
    excludes none."""
    document = document_of(config, documents) if shared else None
    return () if document is None else document.spec.workload.exclude_columns


def catalogs_under(files: Sequence[str] | None) -> tuple[IcebergCatalog, ...]:
    """Return the IcebergCatalog documents under -f."""
    if not files:
        return ()
    from reconciler.api.load import load

    return tuple(load(files).catalogs)


def store_of(
    config: CatalogConfig, documents: Sequence[IcebergCatalog], timeout: float, shared: bool
) -> Store:
    """Return the user's own state, or the catalog's shared one."""
    from reconciler.state.state import StateStore, state_directory

    if not shared:
        return StateStore(state_directory())
    return shared_store(config, documents, timeout)


def shared_store(
    config: CatalogConfig, documents: Sequence[IcebergCatalog], timeout: float
) -> SharedStore:
    """Return the catalog's shared state. An attempt made here still holds this machine's lease."""
    from reconciler.catalog.read_only import refuse_glue
    from reconciler.state.shared_state import SharedStore
    from reconciler.state.state import StateStore, state_directory

    refuse_glue(config)
    namespace, uri = system_of(config, documents)
    document = document_of(config, documents)
    retention = None if document is None else document.spec.workload.retention_seconds
    return SharedStore(
        config, namespace, plans_uri=uri, timeout=timeout, on_created=_say,
        retention_seconds=retention,
        lease=StateStore(state_directory()).lease,
    )  # fmt: skip


def plan_store(
    config: CatalogConfig, documents: Sequence[IcebergCatalog], timeout: float
) -> PlanStore:
    """Return the store of the catalog's published plans."""
    from reconciler.state.plan_store import PlanStore

    namespace, uri = system_of(config, documents)
    return PlanStore(config, uri, namespace=namespace, timeout=timeout, on_created=_say)


def publish(chosen: Selection, plans: Sequence[Plan], timeout: float) -> dict[str, str]:
    """Store the plans that have work; return the URI of each by its id."""
    stores: dict[str, PlanStore] = {}
    configs = {step.target.catalog.name: step.target.catalog for step in chosen.steps}
    found: dict[str, str] = {}
    for plan in plans:
        if plan.empty:
            continue
        if plan.catalog not in stores:
            config = configs[plan.catalog]
            stores[plan.catalog] = plan_store(config, chosen.documents.catalogs, timeout)
        found[plan.id] = stores[plan.catalog].put(plan)
    return found


def published_text(plan: Plan, uri: str) -> str:
    """Return what to do with a published plan, below the plan itself."""
    return "\n".join(
        [
            f"  Published and frozen: {plan.id}",
            f"    {plan.digest()}",
            f"    {uri}",
            "  To approve it in Git, add to the policy under spec.approval.approvedPlans:",
            f"    - {plan.id}",
        ]
    )


def _one_catalog(configs: Sequence[CatalogConfig]) -> CatalogConfig:
    from reconciler.errors import UserError

    names = sorted({config.name for config in configs})
    if len(names) > 1:
        raise UserError(
            f"--shared keeps state in one catalog, and the tables are in {len(names)}",
            details=(", ".join(names),),
            do="choose one with --catalog",
        )
    return configs[0]


def _say(text: str) -> None:
    sys.stderr.write(f"note: {text}\n")
