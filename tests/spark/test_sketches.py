"""Executors sample a table as one process does: the same rows, within the same bytes."""

from __future__ import annotations

import sys
import types
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog.footers import read_row_groups
from reconciler.catalog.load import data_file_io
from reconciler.catalog.observe import observe_table
from reconciler.catalog.sketch_reader import ReadSketches, SketchRequest, read_directly
from reconciler.errors import ReconcilerError, UserError
from reconciler.loop import executor_sampling
from reconciler.loop.executor_sampling import ExecutorSampling
from reconciler.spark.schedule.sketches import OnExecutors, balanced
from reconciler.spark.session import session
from reconciler.state.sketch import (
    SketchedFiles,
    TableSample,
    least_bytes,
    sample_table,
    sampled_files,
)
from reconciler.state.state import StateStore
from reconciler.table.observation import Observation
from tests.said import Said
from tests.spark.tables import Bench

COLUMNS = (1, 2, 3, 4)


@pytest.fixture(scope="module")
def seen(
    spark: Any, catalog_config: CatalogConfig, tmp_path_factory: pytest.TempPathFactory
) -> Observation:
    """Five files of several row groups: numbers, texts, NULLs and NaN, partitioned."""
    bench = Bench(spark, catalog_config, tmp_path_factory.mktemp("sketches"))
    name = bench.create(
        "id bigint, name string, price double, at timestamp, other string",
        "'write.parquet.row-group-size-bytes'='65536', "
        "'write.parquet.row-group-check-min-record-count'='100'",
        partitioned="truncate(id, 20000)",
    )
    bench.fill(
        name, 5, 20_000,
        "file * 20000 + n, nullif(concat('name ', hash(n, file) % 500), 'name 7'), "
        "IF(n % 9 = 0, double('NaN'), n * 1.5D), timestamp_seconds(n * 977 + file), "
        "uuid()",
    )  # fmt: skip
    return observe_table(bench.config, ("jobs", name), bench.directory / "cache")


class Sampling:
    """Samples one table into states of their own."""

    def __init__(self, bench: Bench, seen: Observation, directory: Path) -> None:
        self.bench, self.seen, self.directory = bench, seen, directory
        files = np.arange(len(seen.files))
        self.footers = read_row_groups(bench.config, seen.files, files)

    def take(self, name: str, read: ReadSketches, budget: int, rows: int = 20_000) -> TableSample:
        return sample_table(
            SketchedFiles(
                self.bench.config, self.seen.files, StateStore(self.directory / name),
                self.seen.uuid,
            ),
            COLUMNS, rows=rows, budget=budget, footers=self.footers, now_ms=1, read=read,
        )  # fmt: skip


def executors(bench: Bench, used: list[float], cpu_seconds: float = 600.0) -> ReadSketches:
    return OnExecutors(bench.spark, cpu_seconds, used.append)


def same(one: TableSample, other: TableSample) -> None:
    assert (one.bytes_read, one.files) == (other.bytes_read, other.files)
    assert one.rows.file.tolist() == other.rows.file.tolist()
    assert one.rows.weight.tolist() == other.rows.weight.tolist()
    assert set(one.rows.values) == set(other.rows.values) == set(COLUMNS)
    for column in COLUMNS:
        np.testing.assert_array_equal(one.rows.values[column], other.rows.values[column])
        np.testing.assert_array_equal(one.rows.null[column], other.rows.null[column])


def test_executors_return_the_rows_that_one_process_samples(
    bench: Bench, seen: Observation, tmp_path: Path
) -> None:
    """For a budget of everything, of a part, and of one row group of each file."""
    sampling, used = Sampling(bench, seen, tmp_path), list[float]()
    files = sampled_files(seen.files)
    least = int(least_bytes(files, sampling.footers, COLUMNS).sum())
    assert len(sampling.footers.file) > 2 * len(files), "several row groups a file"
    read = []
    for budget in (1 << 30, 2 * least, least):
        direct = sampling.take(f"direct-{budget}", read_directly, budget)
        spread = sampling.take(f"spread-{budget}", executors(bench, used), budget)
        same(direct, spread)
        assert set(direct.rows.file.tolist()) == set(files.tolist()), "every file has rows"
        assert direct.bytes_read <= budget
        read.append(direct.bytes_read)
    assert read[0] > read[1] > read[2] == least
    assert len(used) == 3 and min(used) > 0
    again = sampling.take(f"spread-{least}", executors(bench, used), least)
    assert (again.bytes_read, again.reused, len(used)) == (0, len(files), 3)


def test_a_data_file_that_is_missing_is_the_error_of_one_process(
    bench: Bench, seen: Observation, tmp_path: Path
) -> None:
    sampling = Sampling(bench, seen, tmp_path)
    paths = seen.files.path.copy()
    paths[2] = f"{paths[2]}.gone"
    sampling.seen = replace(seen, files=replace(seen.files, path=paths))
    errors = []
    for name, read in (("direct", read_directly), ("spread", executors(bench, []))):
        with pytest.raises(ReconcilerError) as raised:
            sampling.take(name, read, 1 << 30)
        errors.append((type(raised.value), raised.value.render()))
    assert errors[0] == errors[1] and ".gone" in errors[0][1]


def test_a_package_that_executors_lack_is_named(
    bench: Bench, seen: Observation, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    """A module of this process alone is to Python's workers what a package is that was not
    installed."""
    module = types.ModuleType("only_the_driver_has_it")
    module.Path = type("Path", (str,), {"__module__": module.__name__})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    request = SketchRequest(module.Path(seen.files.path[0]), 10, 1 << 20, 1 << 20)  # type: ignore[attr-defined]
    io = data_file_io(bench.config, None)
    with pytest.raises(UserError) as raised:
        executors(bench, [], 9.0)(io, seen.schema, seen.schema.fields, [request], 1)
    said(raised.value.render())


def test_tasks_stop_at_their_share_of_cpu_time_and_what_they_used_is_charged(
    bench: Bench, seen: Observation, tmp_path: Path, said: Said
) -> None:
    used: list[float] = []
    with pytest.raises(UserError) as raised:
        Sampling(bench, seen, tmp_path).take("s", executors(bench, used, 0.0), 1 << 30)
    said(raised.value.render())
    assert len(used) == 1 and used[0] > 0


def test_a_job_starts_executors_for_a_large_sample_and_stops_them_after_it(
    bench: Bench, seen: Observation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    monkeypatch.setattr(session, "stop", lambda spark: events.append("stopped"))

    def start() -> Any:
        events.append("started")
        return bench.spark

    elsewhere: list[float] = []
    job = ExecutorSampling(start, 600.0, elsewhere.append)
    sampling = Sampling(bench, seen, tmp_path)
    direct = sampling.take("small", job, 1 << 30)
    assert (events, job.executor_seconds) == ([], 0.0)
    monkeypatch.setattr(executor_sampling, "DIRECT_BYTES", direct.bytes_read - 1)
    same(direct, sampling.take("large", job, 1 << 30))
    assert events == ["started", "stopped"] and job.executor_seconds > 0
    assert job.used_seconds() > job.executor_seconds
    assert len(elsewhere) == 1 and elsewhere[0] >= job.executor_seconds


@given(st.lists(st.integers(0, 1 << 40), min_size=1, max_size=60), st.integers(1, 20))
def test_bins_hold_every_file_once_and_are_balanced_by_bytes(
    sizes: Sequence[int], tasks: int
) -> None:
    bins = balanced(sizes, tasks)
    assert sorted(item for found in bins for item in found) == list(range(len(sizes)))
    assert all(bins) and len(bins) == min(tasks, len(sizes))
    loads = [sum(sizes[item] for item in found) for found in bins]
    assert max(loads) <= sum(sizes) / len(bins) + max(sizes)
