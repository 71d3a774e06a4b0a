"""An empty embedded catalog per test, and observations of its tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog.observe import observe_table
from reconciler.table.observation import Observation
from tests.conftest import sqlite_catalog


@pytest.fixture
def config(tmp_path: Path) -> CatalogConfig:
    (tmp_path / "warehouse").mkdir()
    return sqlite_catalog(tmp_path)


@pytest.fixture
def catalog(config: CatalogConfig) -> Any:
    from pyiceberg.catalog.sql import SqlCatalog

    opened = SqlCatalog(config.name, **dict(config.properties))
    opened.create_namespace("sales")
    return opened


@pytest.fixture
def look(config: CatalogConfig, tmp_path: Path) -> Callable[..., Observation]:
    def observe(name: str = "t", **options: Any) -> Observation:
        return observe_table(config, ("sales", name), tmp_path / "cache", **options)

    return observe
