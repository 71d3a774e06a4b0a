"""What an order does to columns whose values come in runs, against files really written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reconciler.advisor.simulate.layout import Layout
from reconciler.advisor.simulate.neighbours import BlockOrder, block_order
from reconciler.advisor.simulate.pool import Pool, build_pool
from reconciler.advisor.simulate.whatif import simulate
from reconciler.catalog.footers import read_row_groups
from reconciler.catalog.observe import observe_table
from reconciler.plan.ordering import ARRIVAL, Lexicographic, Ordering
from reconciler.queries.stored_columns import in_order
from reconciler.queries.table_view import TableView, table_view
from reconciler.state.row_blocks import BLOCK_ROWS, BLOCKS, sample_blocks
from reconciler.state.sketch import SketchedFiles, sample_rows
from reconciler.state.state import StateStore
from reconciler.table.filetable import Int64
from reconciler.table.sample import RowBlocks, RowGroups, RowSample
from reconciler.table.schema import PartitionField, PartitionSpec, SortColumn
from tests.conftest import sqlite_catalog

ORDERS, ITEMS, FILES = 4_000, 12, 8
ROWS = ORDERS * ITEMS
ORDER, CUSTOMER, SHOP, ITEM, PRICE = range(1, 6)
NAMES = ("order", "customer", "shop", "item", "price")
UNSORTED = PartitionSpec(0)


def _rows() -> pa.Table:
    random = np.random.default_rng(4)
    customer = random.integers(0, 3_000, ORDERS)
    return pa.table(
        {
            "order": np.repeat(np.arange(ORDERS), ITEMS),
            "customer": pa.array(np.repeat(customer, ITEMS), mask=random.random(ROWS) < 0.03),
            "shop": np.repeat(random.integers(0, 20, ORDERS), ITEMS),
            "item": random.integers(0, 2_000, ROWS),
            "price": random.random(ROWS),
        }
    )


class World:
    """A table of orders of 12 items each, in order of arrival, and what was read of it."""

    def __init__(self, folder: Path) -> None:
        from pyiceberg.catalog.sql import SqlCatalog

        (folder / "warehouse").mkdir()
        self.rows, self.config = _rows(), sqlite_catalog(folder)
        catalog = SqlCatalog(self.config.name, **dict(self.config.properties))
        catalog.create_namespace("s")
        table = catalog.create_table("s.t", self.rows.schema)
        for start in range(0, ROWS, ROWS // FILES):
            table.append(self.rows.slice(start, ROWS // FILES))
        self.seen = observe_table(self.config, ("s", "t"), folder / "cache")
        self.footers: RowGroups = read_row_groups(
            self.config, self.seen.files, np.arange(FILES, dtype=np.int64)
        )
        self.store = StateStore(folder / "state")
        self.taken = self.blocks(1 << 30)
        sample = sample_rows(
            SketchedFiles(self.config, self.seen.files), np.arange(FILES), [SHOP, ITEM]
        )
        self.view: TableView = table_view(
            self.seen.files, self.footers, sample, 128 << 20, blocks=self.taken[0]
        )

    def blocks(self, budget: int) -> tuple[RowBlocks | None, int]:
        found = sample_blocks(
            SketchedFiles(self.config, self.seen.files, self.store, self.seen.uuid), range(1, 6),
            budget=budget, footers=self.footers, now_ms=1,
        )  # fmt: skip
        return found.blocks, found.bytes_read

    def pool(self, *, blocks: bool = True) -> Pool:
        view = self.view if blocks else replace(self.view, blocks=None)
        pool = build_pool(view, [SHOP, ITEM], 8_192)
        assert pool is not None
        return pool

    def written(self, key: str, path: Path, groups: int = 1) -> dict[int, int]:
        order = np.argsort(self.rows[key].to_numpy(), kind="stable")
        pq.write_table(
            self.rows.take(pa.array(order)), path, compression="zstd", compression_level=3,
            use_dictionary=list(NAMES[:-1]), row_group_size=ROWS // groups,
        )  # fmt: skip
        every = [pq.ParquetFile(path).metadata.row_group(n) for n in range(groups)]
        return {
            n + 1: sum(group.column(n).total_compressed_size for group in every)
            for n in range(len(NAMES))
        }


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("neighbours"))


def _predicted(pool: Pool, field: int, row_group_bytes: int = 1 << 40) -> dict[int, int]:
    whole = Layout(
        Lexicographic((SortColumn(field),)), 1 << 40, row_group_bytes,
        np.zeros(FILES, dtype=np.int64),
    )  # fmt: skip
    files = simulate(whole, pool, ()).written.views[0].files
    return {field: int(known.sum()) for field, known in files.column_sizes.items()}


def _blocks(world: World, ordering: Ordering, spec: PartitionSpec | None = None) -> BlockOrder:
    found = block_order(world.pool(), ordering, spec)
    assert found is not None
    return found


@pytest.mark.parametrize(("key", "field"), [("item", ITEM), ("shop", SHOP)])
def test_runs_are_lost_in_one_order_and_kept_in_another(world, tmp_path, key, field):
    """A sort by item scatters the rows of an order, a sort by shop does not: within 15 % of the
    file that is written, where a model without neighbours is off by half of it."""
    actual = world.written(key, tmp_path / "sorted.parquet")
    predicted = _predicted(world.pool(), field)
    without = _predicted(world.pool(blocks=False), field)
    judged = [ORDER, CUSTOMER, SHOP, ITEM]
    shown = {NAMES[f - 1]: (without[f], predicted[f], actual[f]) for f in judged}
    found, true = (sum(sizes[f] for f in judged) for sizes in (predicted, actual))
    assert found == pytest.approx(true, rel=0.15), shown
    if key == "item":
        assert sum(without[f] for f in judged) < 0.6 * true, shown


def test_rows_in_order_of_arrival_keep_their_runs(world):
    """The only change of a merge is that row groups hold more rows."""
    same = _blocks(world, ARRIVAL).neighbours
    assert [known.data for known in same.values()] == pytest.approx([1.0] * len(same), rel=0.02)
    assert same[ORDER].run == pytest.approx(ITEMS, rel=0.02)
    assert same[CUSTOMER].run == pytest.approx(ITEMS, rel=0.02), "a NULL does not end a run"
    assert same[ITEM].run == pytest.approx(1.0, rel=0.02)


@pytest.mark.parametrize("slices", [1, 4, 16])
@pytest.mark.parametrize(("key", "field"), [("item", ITEM), ("shop", SHOP)])
def test_values_of_a_slice_are_those_of_rows_that_an_order_leaves_in_it(world, key, field, slices):
    """Counted over all rows: a slice of a sixteenth of the items has few rows of an order."""
    order = np.argsort(world.rows[key].to_numpy(), kind="stable")
    parts = np.array_split(world.rows["order"].to_numpy()[order], slices)
    true = ROWS / sum(len(np.unique(part)) for part in parts)
    ordering = Lexicographic((SortColumn(field),))
    found = _blocks(world, ordering)
    assert found.alike(ORDER, 1.0 / slices) == pytest.approx(true, rel=0.03)
    assert found.alike(ITEM, 1.0 / slices) is None, "items do not come in runs"


def test_runs_are_no_order_however_many_of_their_rows_are_sampled(world):
    """Most neighbours in a dense sample are of one run."""
    values = {ORDER: world.rows["order"].to_numpy(), CUSTOMER: world.rows["customer"].to_numpy()}
    null = {field: np.isnan(column) for field, column in values.items()}
    file = np.arange(ROWS) * FILES // ROWS
    dense = RowSample(values, null, np.ones(ROWS), file)
    assert in_order(dense, ORDER) and not in_order(dense, CUSTOMER)


def test_a_column_that_grew_takes_its_range_in_another_order(world, tmp_path):
    """Its dictionary lists numbers as they come: no longer one after the other, which compresses
    to a byte each."""
    actual = world.written("item", tmp_path / "sorted.parquet", groups=16)
    predicted = _predicted(world.pool(), ITEM, sum(actual.values()) // 16)
    assert predicted[ORDER] == pytest.approx(actual[ORDER], rel=0.1)


def test_partitions_scatter_rows_as_sorts_do(world):
    def parted(source: int) -> float:
        spec = PartitionSpec(1, (PartitionField(source, 1_000, "bucket[16]", "p"),))
        return _blocks(world, ARRIVAL, spec).neighbours[CUSTOMER].data

    assert parted(SHOP) < 1.2 and parted(ITEM) > 3.0


def test_blocks_are_rows_that_follow_each_other_of_a_few_files(world):
    blocks, read = world.taken
    assert blocks is not None and read > 0
    assert len(blocks) == BLOCKS * BLOCK_ROWS and len(np.unique(blocks.rows.file)) == BLOCKS
    order: Int64 = blocks.rows.values[ORDER]
    for start in blocks.starts:
        steps = np.diff(order[start : start + BLOCK_ROWS])
        assert set(steps.tolist()) == {0, 1} and steps.sum() == (BLOCK_ROWS - 1) // ITEMS


def test_blocks_keep_their_budget_and_are_not_read_again(world, tmp_path):
    assert world.blocks(1 << 30)[1] == 0, "kept in the state"
    one = world.taken[1] // BLOCKS
    world.store = StateStore(tmp_path / "other")
    blocks, read = world.blocks(one + one // 2)
    assert blocks is not None and read <= one + one // 2 and len(blocks.starts) == 1
    world.store = StateStore(tmp_path / "none")
    assert world.blocks(10) == (None, 0)
