"""Tables of the loop's tests: written once for each size, copied for each test."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from reconciler.api.choices import EngineType
from reconciler.loop.local_actor import LocalActor
from reconciler.state.state import StateStore
from tests.copied_table import copied_table


@pytest.fixture(scope="package", autouse=True)
def one_pool() -> Iterator[None]:
    """Plans that the local engine carries out have the processes of one pool: each pool of its own
    would load Arrow and DuckDB again, which takes longer than the work of a test.

    Tests of pools, of programs, and of what the processes have of this one's environment make their
    own.
    """
    from reconciler.engines.local import machine, pool

    with pool.Pool(machine.cores()) as shared, pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "Pool", lambda slots, **_: contextlib.nullcontext(shared))
        yield


@pytest.fixture(scope="session")
def make_table(iceberg_catalog: Any) -> Callable[..., Any]:
    """A table of `files` appended in arrival order; `day` and `k` scatter over all of them."""

    @cache
    def original(files: int, rows: int, target: int) -> Any:
        iceberg_catalog.create_namespace_if_not_exists("loop")
        table = None
        for number in range(files):
            batch = rows_of(number, rows)
            if table is None:
                table = iceberg_catalog.create_table(
                    f"loop.original_{files}_{rows}_{target}",
                    schema=batch.schema,
                    properties={
                        "write.target-file-size-bytes": str(target),
                        "write.parquet.row-group-size-bytes": str(1 << 18),
                    },
                )
            table.append(batch)
        return table

    def make(name: str, files: int = 8, rows: int = 2_000, target: int = 1 << 20) -> Any:
        return copied_table(iceberg_catalog, original(files, rows, target), f"loop.{name}")

    return make


@pytest.fixture
def actor(tmp_path: Path) -> LocalActor:
    """The I/O of this machine, whose processes carry plans out."""
    made = LocalActor(StateStore(tmp_path / "state"), tmp_path / "cache")
    made.engine = EngineType.LOCAL
    return made


def rows_of(number: int, rows: int) -> pa.Table:
    random = np.random.default_rng(number)
    return pa.table(
        {
            "id": np.arange(number * rows, (number + 1) * rows),
            "day": random.integers(0, 400, rows),
            "k": random.integers(0, 100_000, rows),
            "v": [None if x % 7 == 0 else float(x) for x in range(rows)],
            "date": pa.array(20_727 + random.integers(0, 20, rows), pa.int32()).cast(pa.date32()),
            "pad": [random.bytes(32).hex() for _ in range(rows)],
        }
    )
