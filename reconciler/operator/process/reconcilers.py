"""The four reconciles of one operator, wired to each other and to the process around them."""

from __future__ import annotations

import datetime as dt
from typing import Any

from reconciler.api.reach import Reach
from reconciler.operator.catalog.handles import LiveCatalogs
from reconciler.operator.catalog.importing import Imports
from reconciler.operator.catalog.reconcile import CatalogReconciler
from reconciler.operator.launch.launcher import Launcher
from reconciler.operator.layout.endings import Endings
from reconciler.operator.layout.gathering import Gatherer
from reconciler.operator.layout.reconcile import Layouts
from reconciler.operator.layout.writer import LayoutWriter
from reconciler.operator.policy.reconcile import Policies
from reconciler.operator.runtime import Runtime
from reconciler.operator.spending.stored_book import Spending
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

    gatherer = Gatherer(runtime, catalogs, documents, now, Spending(runtime, now))

    endings = Endings(LayoutWriter(gatherer))
    launcher = Launcher(endings)
    layouts = Layouts(endings, launcher.offer, launcher.create_again)
    policies = Policies(runtime, catalogs, documents, now, watched.tables, watched.gone)
    return Reconcilers(
        policy=policies.reconcile,
        layout=layouts.reconcile,
        catalog=watched.reconcile,
        launch=launcher.reconcile,
    )


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
