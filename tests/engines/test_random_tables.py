"""Each kind of action on random tables, as other writers make them, by the engine without a JVM.

Rows are those of DuckDB by the specification's rules for deletes, beside a model that the test
keeps; metadata is read by pyiceberg.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

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
