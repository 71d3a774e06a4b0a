"""Each kind of action on random tables, as other writers make them, by the engine without a JVM.

Rows are those of DuckDB by the specification's rules for deletes, beside a model that the test
keeps; metadata is read by pyiceberg.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.transforms import BucketTransform

from reconciler.plan.actions.migrate import Migrate
from tests.conftest import sqlite_catalog
from tests.engines.random_tables.actions import KINDS, Engine, engine
from tests.engines.random_tables.attack import attacked
from tests.examples import TIMES, seeds

SHORT = {
    0: ("apply", "compact"),
    5: ("cluster", "wait", "publish"),
    6: ("pack", "manifests"),
}
"""Seed of a table -> actions that have something to do there."""


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Engine]:
    (tmp_path / "warehouse").mkdir()
    with engine(sqlite_catalog(tmp_path), tmp_path) as made:
        yield made


@pytest.fixture
def catalog(local: Engine) -> Any:
    from pyiceberg.catalog.sql import SqlCatalog

    return SqlCatalog("rec", **dict(local.config.properties))


@pytest.mark.parametrize("seed", SHORT)
def test_rows_and_metadata_stay_true(catalog: Any, local: Engine, seed: int) -> None:
    done = attacked(catalog, local, seed, SHORT[seed], operations=5)
    assert done.keys() == set(SHORT[seed])


@pytest.mark.soak
def test_rows_and_metadata_stay_true_of_many_tables(catalog: Any, local: Engine) -> None:
    done: Counter[str] = Counter()
    for seed in seeds(50):
        done += attacked(catalog, local, seed)
    assert KINDS.keys() <= done.keys(), (TIMES, done)


def test_files_move_to_a_spec_whose_fields_are_all_void(catalog: Any, local: Engine) -> None:
    """In format 1 a table that gives its partitions up keeps their fields as void."""
    catalog.create_namespace("loop")
    rows = pa.table({"id": pa.array(range(40), pa.int64())})
    table = catalog.create_table("loop.v1", rows.schema, properties={"format-version": "1"})
    with table.update_spec() as change:
        change.add_field("id", BucketTransform(2), "bucket")
    table.append(rows)
    with table.update_spec() as change:
        change.remove_field("bucket")
    (old,) = {task.file.spec_id for task in table.scan().plan_files()}
    inputs = tuple(sorted(task.file.file_path for task in table.scan().plan_files()))
    moved = Migrate(inputs, old, (), output_spec_id=table.spec().spec_id, fields=())
    assert local.run(SimpleNamespace(name="v1"), [moved]).done  # type: ignore[arg-type]
    files = [task.file for task in table.refresh().scan().plan_files()]
    assert {one.spec_id for one in files} == {table.spec().spec_id}
    paths = [one.file_path.removeprefix("file://") for one in files]
    assert duckdb.sql(
        f"SELECT count(*), count(DISTINCT id) FROM read_parquet({paths})"
    ).fetchall() == [(40, 40)]
