"""Bytes of columns in a new order, in pages of few rows, against files really written.

The writer keeps dictionaries, and ends pages and row groups, where Parquet's Java writer does.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from reconciler.advisor.simulate.layout import Layout
from reconciler.advisor.simulate.pool import Pool, build_pool
from reconciler.advisor.simulate.whatif import simulate
from reconciler.catalog.footers import read_row_groups
from reconciler.catalog.observe import observe_table
from reconciler.plan.ordering import ARRIVAL, Hilbert, Lexicographic, Ordering, order_rows
from reconciler.queries.table_view import TableView, table_view
from reconciler.state.row_blocks import sample_blocks
from reconciler.state.sketch import SketchedFiles, sample_rows
from reconciler.state.state import StateStore
from reconciler.table.column_bytes import drops_dictionary
from reconciler.table.row_group_bytes import PAGE_ROWS
from reconciler.table.schema import SortColumn
from tests.conftest import sqlite_catalog

FILES, ROWS = 8, 64_000
NAMES = ("ts", "kind", "user", "day", "due", "units", "value", "price", "code")
TS, KIND, USER, DAY, DUE, UNITS, VALUE, PRICE, CODE = range(1, 10)
SAMPLED = [TS, KIND, USER, DAY, UNITS, CODE]


def _rows() -> pa.Table:
    random = np.random.default_rng(9)
    day = random.integers(0, 400, ROWS)
    return pa.table(
        {
            "ts": np.cumsum(random.integers(0, 1_000, ROWS)),
            "kind": random.integers(0, 6, ROWS),
            "user": random.integers(0, 3_000, ROWS),
            "day": day,
            "due": day + random.integers(5, 25, ROWS),
            "units": random.integers(0, 12, ROWS),
            "value": np.where(
                random.random(ROWS) < 0.6, np.nan, random.integers(0, 30_000, ROWS) / 100.0
            ),
            "price": random.integers(0, 4_000, ROWS),
            "code": pa.array(random.integers(0, 3_000, ROWS), mask=random.random(ROWS) < 0.9),
        }
    )


class World:
    """A table in order of arrival, and a sample of it with the columns that queries ask for."""

    def __init__(self, folder: Path) -> None:
        (folder / "warehouse").mkdir()
        self.rows, config = _rows(), sqlite_catalog(folder)
        catalog = SqlCatalog(config.name, **dict(config.properties))
        catalog.create_namespace("s")
        table = catalog.create_table("s.t", self.rows.schema)
        for start in range(0, ROWS, ROWS // FILES):
            table.append(self.rows.slice(start, ROWS // FILES))
        seen = observe_table(config, ("s", "t"), folder / "cache")
        every = np.arange(FILES, dtype=np.int64)
        footers = read_row_groups(config, seen.files, every)
        blocks = sample_blocks(
            SketchedFiles(config, seen.files, StateStore(folder / "state"), seen.uuid),
            range(1, 10), budget=1 << 30, footers=footers, now_ms=1,
        ).blocks  # fmt: skip
        sample = sample_rows(SketchedFiles(config, seen.files), every, SAMPLED)
        view = table_view(seen.files, footers, sample, 128 << 20, blocks=blocks)
        pool = build_pool(view, SAMPLED, 8_192)
        assert pool is not None
        self.pool: Pool = pool

    def written(self, path: Path, key: tuple[int, ...], groups: int) -> list[float]:
        """Return the bytes per row of each column, sorted by the key."""
        keys = [self.rows[NAMES[field - 1]].fill_null(-1).to_numpy() for field in reversed(key)]
        order = np.lexsort(keys) if keys else np.arange(ROWS)
        rows, each = self.rows.take(pa.array(order)), ROWS // groups
        page = min(PAGE_ROWS, each)
        coded = [
            name for name in NAMES if not drops_dictionary(len(rows[name][:page].unique()), page, 8)
        ]
        pq.write_table(
            rows, path, compression="zstd", compression_level=3, use_dictionary=coded,
            row_group_size=each, max_rows_per_page=PAGE_ROWS, dictionary_pagesize_limit=2 << 20,
            write_page_index=True, write_page_checksum=True,
        )  # fmt: skip
        every = [pq.ParquetFile(path).metadata.row_group(n) for n in range(groups)]
        return [
            sum(group.column(n).total_compressed_size for group in every) / ROWS
            for n in range(len(NAMES))
        ]

    def predicted(self, key: tuple[int, ...], row_group_bytes: float) -> list[float]:
        files = simulated(self.pool, key, row_group_bytes).files
        return [float(files.column_sizes[field].sum()) / ROWS for field in range(1, 10)]

    def compared(
        self, path: Path, key: tuple[int, ...], groups: int = 1
    ) -> list[tuple[float, float]]:
        """Return the predicted and the written bytes per row of each column."""
        written = self.written(path / "sorted.parquet", key, groups)
        size = 1e12 if groups == 1 else sum(written) * ROWS / groups
        return list(zip(self.predicted(key, size), written, strict=True))


def simulated(pool: Pool, key: tuple[int, ...], row_group_bytes: float) -> TableView:
    ordering: Ordering = Lexicographic(tuple(map(SortColumn, key))) if key else ARRIVAL
    layout = Layout(
        ordering, 1 << 40, int(row_group_bytes), np.zeros(FILES, dtype=np.int64),
    )  # fmt: skip
    return simulate(layout, pool, ()).written.views[0]


def row_groups_of(path: Path, field: int) -> list[float]:
    """Return the bytes per row of a column in each row group."""
    footer = pq.ParquetFile(path).metadata
    every = [footer.row_group(number) for number in range(footer.num_row_groups)]
    return [group.column(field - 1).total_compressed_size / group.num_rows for group in every]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("columns"))


def test_rows_without_a_number_draw_no_value(world, tmp_path):
    """Three fifths of the rows are NaN, which is one value of the dictionary."""
    predicted, written = world.compared(tmp_path, ())[VALUE - 1]
    assert predicted == pytest.approx(written, rel=0.12)


def test_rows_of_one_lead_are_moved_by_the_keys_that_follow(world, tmp_path):
    """A sort by kind alone leaves its rows in order of time, one by kind and user does not."""
    predicted, written = world.compared(tmp_path, (KIND, USER))[TS - 1]
    alone = world.compared(tmp_path, (KIND,))[TS - 1][1]
    assert alone < 0.8 * written
    assert predicted == pytest.approx(written, rel=0.12)


def test_a_column_that_goes_with_the_key_has_few_values_in_a_row_group(world, tmp_path):
    """No query asks for the due day: only blocks of rows show that it follows the day."""
    predicted, written = world.compared(tmp_path, (DAY,), 16)[DUE - 1]
    assert written < 0.8 * world.written(tmp_path / "other.parquet", (USER,), 16)[DUE - 1]
    assert predicted == pytest.approx(written, rel=0.15)


def test_a_further_key_comes_in_runs_of_all_rows_not_of_the_sampled_ones(world, tmp_path):
    """A day has 160 rows and 12 units, the sample 20 rows of a day."""
    predicted, written = world.compared(tmp_path, (DAY, UNITS), 4)[UNITS - 1]
    mixed = world.written(tmp_path / "other.parquet", (DAY,), 4)[UNITS - 1]
    assert written < 0.6 * mixed
    assert predicted == pytest.approx(written, rel=0.25)


def test_a_further_key_is_in_order_within_rows_of_the_first(world, tmp_path):
    """A day has 160 rows of 3,000 users: few repeat, but they grow from row to row."""
    predicted, written = world.compared(tmp_path, (DAY, USER), 4)[USER - 1]
    assert predicted == pytest.approx(written, rel=0.25)


def test_a_further_key_that_grows_with_time_does_so_within_rows_of_the_first(world, tmp_path):
    """By day and time rows of a day are in the order in which a sort by day leaves them."""
    predicted, written = world.compared(tmp_path, (DAY, TS), 4)[TS - 1]
    assert written < 0.9 * world.written(tmp_path / "other.parquet", (DAY, USER), 4)[TS - 1]
    assert predicted == pytest.approx(written, rel=0.05)


def test_rows_of_a_frequent_first_key_tell_nothing_of_rows_of_the_others(world, tmp_path):
    """Nine tenths of the codes are NULL: users are in order there, and in none in the other rows.

    Plans read no blocks, so that samples alone show it."""
    plain = replace(world.pool, blocks=None)
    size = sum(world.written(tmp_path / "whole.parquet", (CODE, USER), 8)) * ROWS / 8
    groups = simulated(plain, (CODE, USER), size).row_groups
    written = row_groups_of(tmp_path / "whole.parquet", USER)
    predicted = groups.column_sizes[USER] / groups.records
    assert len(predicted) == len(written) == 8
    assert written[-1] > 5.0 * written[0]
    assert predicted[-1] == pytest.approx(written[-1], rel=0.25)


def test_a_row_group_is_as_large_as_its_columns(world, tmp_path):
    """Rows of a code take more than those without one: not all row groups have the mean size."""
    size = sum(world.written(tmp_path / "whole.parquet", (CODE, USER), 8)) * ROWS / 8
    groups = simulated(replace(world.pool, blocks=None), (CODE, USER), size).row_groups
    columns = sum(groups.column_sizes.values())
    assert columns.max() > 1.1 * columns.min()
    assert (groups.bytes >= columns - len(NAMES)).all()


@pytest.mark.parametrize("ordering", [Lexicographic, Hilbert])
def test_without_blocks_a_key_of_few_values_comes_in_runs(world, tmp_path, ordering):
    """By kind and units, or along a curve over both, 900 rows in a row have the same of either."""
    plain = replace(world.pool, blocks=None)
    key = ordering((SortColumn(KIND), SortColumn(UNITS)))
    layout = Layout(key, 1 << 40, 1 << 40, np.zeros(FILES, dtype=np.int64))
    files = simulate(layout, plain, ()).written.views[0].files
    now = world.pool.files.column_sizes
    for field in (UNITS, KIND) if ordering is Hilbert else (UNITS,):
        assert files.column_sizes[field].sum() < 0.05 * now[field].sum(), NAMES[field - 1]


def test_along_a_curve_a_row_group_holds_a_part_of_the_range(world, tmp_path):
    """Of 64 row groups along time and user, each has an eighth of the users."""
    key = Hilbert((SortColumn(TS), SortColumn(USER)))
    columns = [world.rows[name].to_numpy().astype(np.int64) for name in ("ts", "user")]
    ranks = [np.unique(column, return_inverse=True)[1].reshape(-1) for column in columns]
    rows = world.rows.take(pa.array(order_rows(key, ranks, np.arange(ROWS))))
    pq.write_table(
        rows, tmp_path / "curve.parquet", compression="zstd", compression_level=3,
        row_group_size=ROWS // 64, use_dictionary=["user"], write_page_index=True,
        write_page_checksum=True,
    )  # fmt: skip
    written = np.mean(row_groups_of(tmp_path / "curve.parquet", USER))
    size = (tmp_path / "curve.parquet").stat().st_size // 64
    layout = Layout(key, 1 << 40, size, np.zeros(FILES, dtype=np.int64))
    files = simulate(layout, world.pool, ()).written.views[0].files
    assert files.column_sizes[USER].sum() / ROWS == pytest.approx(written, rel=0.1)
