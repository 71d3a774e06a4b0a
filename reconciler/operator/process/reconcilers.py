"""The four reconciles of one operator, wired to each other and to the process around them."""

from __future__ import annotations

import datetime as dt
from typing import Any

from reconciler.api.reach import Reach
from reconciler.operator.catalog.handles import LiveCatalogs
from reconciler.operator.catalog.importing import Imports
from reconciler.operator.catalog.reconcile import CatalogReconciler
from reconciler.operator.launch.launcher import assemble
from reconciler.operator.launch.spending import Spending
from reconciler.operator.layout.gathering import Facts
from reconciler.operator.layout.reconcile import Layouts
from reconciler.operator.policy.reconcile import Policies
from reconciler.operator.runtime import Runtime
from reconciler.operator.stored import StoredDocuments
from reconciler.operator.work import Reconcilers


def build(runtime: Runtime, kind: type[LiveCatalogs] = LiveCatalogs, **more: Any) -> Reconcilers:
    """Implements `runtime.Build`. kind, more: other catalogs than live ones, and their fields."""
    documents, settings = StoredDocuments(), runtime.settings
    catalogs = kind(
        runtime.api,
        runtime.index,
        runtime.settings,
        documents,
        Reach(settings.allowed_networks, settings.local_files),
        settings.catalog_deadline,
        **more,
    )
    imports = Imports(now, runtime.held)
    watched = CatalogReconciler(runtime, catalogs, imports, now)

    facts = Facts(runtime, catalogs, documents, now, Spending(runtime, now))

    def layouts_of(offer: Any, create: Any) -> Layouts:
        return Layouts(runtime, facts, now, offer, create)

    layouts, launcher = assemble(layouts_of)
    policies = Policies(runtime, catalogs, documents, now, watched.tables, watched.gone)
    return Reconcilers(
        policy=policies.reconcile,
        layout=layouts.reconcile,
        catalog=watched.reconcile,
        launch=launcher.reconcile,
    )


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
