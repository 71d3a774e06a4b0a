"""How many rows of a table share a key, estimated from a sample in which files borrow rows."""

import numpy as np
import pytest

from bench.replay.table import empty_table
from reconciler.advisor.simulate.keys import rows_of_keys
from reconciler.advisor.simulate.pool import build_pool
from reconciler.queries.table_view import table_view
from reconciler.table.schema import Field, Schema, SortColumn

SCHEMA = Schema(1, (Field(1, "unique", "long"), Field(2, "of_ten", "long")))
FILES, ROWS = 40, 500


@pytest.fixture(scope="module")
def pool():
    """A pool of 40 files of which every fourth was sampled."""
    rows = np.random.default_rng(1).permutation(FILES * ROWS)
    table = empty_table(SCHEMA).append({1: rows, 2: rows // 10}, ROWS, 0, ROWS)
    sample = table.sample(np.arange(0, FILES, 4), 200)
    view = table_view(table.file_table(), table.row_groups(), sample, 1 << 20)
    found = build_pool(view, [1, 2])
    assert found is not None and 0 < found.native.sum() < len(found)
    return found


def test_borrowed_rows_are_not_rows_with_the_same_key(pool):
    order = np.argsort(pool.columns[1].ranks, kind="stable")
    starts = np.arange(8) * len(order) // 8
    assert rows_of_keys(pool, (SortColumn(1),), order, starts) == pytest.approx(1.0, abs=0.01)


def test_rows_that_share_a_key_are_counted(pool):
    found = rows_of_keys(pool, (SortColumn(2),))
    assert 5.0 < float(found[0]) < 20.0
