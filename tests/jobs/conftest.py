"""Fixtures of the executor's tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reconciler.core.execution import CatalogConfig
from tests.jobs.tables import Bench


@pytest.fixture
def bench(spark: Any, catalog_config: CatalogConfig, tmp_path: Path) -> Bench:
    """The shared catalog with a ledger of its own."""
    return Bench(spark, catalog_config, tmp_path)
