"""The four reconciles of one operator, wired to each other and to the process around them."""

from __future__ import annotations

import datetime as dt
from typing import Any

from reconciler.catalog.state import cache_directory
from reconciler.controller.catalog import CatalogReconciler
from reconciler.controller.catalogs import LiveCatalogs
from reconciler.controller.importing import Imports
from reconciler.controller.launcher import assemble
from reconciler.controller.layout import Layouts
from reconciler.controller.policy import Policies
from reconciler.controller.stored import StoredDocuments
from reconciler.controller.work import Reconcilers, Runtime
from reconciler.core.reach import Reach


def build(runtime: Runtime, kind: type[LiveCatalogs] = LiveCatalogs, **more: Any) -> Reconcilers:
    """Implements `work.Build`. kind, more: other catalogs than live ones, and their fields."""
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
    imports = Imports(now, runtime.held, cache_directory() / "imports")
    watched = CatalogReconciler(runtime, catalogs, imports, now)

    def layouts_of(offer: Any, create: Any) -> Layouts:
        return Layouts(runtime, catalogs, documents, now, offer, create)

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
