"""Fixtures of the tests of commits in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reconciler.api.catalog_config import CatalogConfig
from tests.spark.tables import Bench


@pytest.fixture
def bench(spark: Any, catalog_config: CatalogConfig, tmp_path: Path) -> Bench:
    """The shared catalog with a ledger of its own."""
    return Bench(spark, catalog_config, tmp_path)
