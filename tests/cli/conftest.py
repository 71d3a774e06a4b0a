"""The table of the verbs' tests: written once, copied for each test."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.copied_table import copied_table


def written(catalog: Any, name: str) -> Any:
    """Return a new table of eight appends over which `day` scatters; `m` is a map."""
    catalog.create_namespace_if_not_exists("cli")
    table = None
    for number in range(8):
        random = np.random.default_rng(number)
        batch = pa.table(
            {
                "id": np.arange(number * 1_000, (number + 1) * 1_000),
                "day": random.integers(0, 400, 1_000),
                "pad": [random.bytes(24).hex() for _ in range(1_000)],
                "m": pa.array([[("a", 1)]] * 1_000, pa.map_(pa.string(), pa.int64())),
            }
        )
        if table is None:
            properties = {"write.target-file-size-bytes": str(1 << 20)}
            table = catalog.create_table(name, batch.schema, properties=properties)
        table.append(batch)
    return table


@pytest.fixture(scope="session")
def scattered_once(iceberg_catalog: Any) -> Any:
    return written(iceberg_catalog, "cli.scattered")


@pytest.fixture
def scattered(iceberg_catalog: Any, scattered_once: Any, request: pytest.FixtureRequest) -> Any:
    """A table of the test's own, whose first files belong to all such tables."""
    return copied_table(iceberg_catalog, scattered_once, _name(request))


@pytest.fixture
def scattered_alone(iceberg_catalog: Any, request: pytest.FixtureRequest) -> Any:
    """The same, with files of its own, for a test that deletes some of them."""
    return written(iceberg_catalog, _name(request))


def _name(request: pytest.FixtureRequest) -> str:
    return "cli.t" + hashlib.sha256(request.node.name.encode()).hexdigest()[:8]
