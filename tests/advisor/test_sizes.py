"""Files and row groups whose size a rewrite chooses by its what-if, where nobody names it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reconciler.advisor.advice import AdviceInput
from reconciler.advisor.choose import sizes
from reconciler.advisor.choose.sizes import MOST_PER_FILE, SMALLEST
from reconciler.advisor.decide import decide
from reconciler.plan.actions.rewrite import Cluster
from reconciler.plan.ordering import Hilbert, Lexicographic
from reconciler.plan.small_files import WRITTEN_SHARE
from reconciler.table.operations import Encoding, Kind, Operations, RowOperation
from reconciler.table.schema import SortColumn
from tests.advisor.worlds import (
    DATE,
    PART,
    ROW_BYTES,
    SETTINGS,
    advise,
    apply,
    arrived,
    range_workload,
    window_cost,
    window_read,
    workload,
)

ROWS = 60_000
LARGE = replace(SETTINGS, target_bytes=ROW_BYTES * ROWS, row_group_bytes=128 << 20)
AUTO = replace(LARGE, row_group_auto=True)


def _table():
    return arrived(np.random.default_rng(1), rows=ROWS)


def _work(width, weight=1.0):
    return workload(
        range_workload(np.random.default_rng(2), PART, 60, width, 100_000, weight=weight)
    )


def test_one_sorted_file_gets_row_groups_where_queries_read_little_of_it():
    work = _work(1_000)
    named, chosen = advise(_table(), work, LARGE), advise(_table(), work, AUTO)
    size = chosen.actions[0].action.row_group_bytes
    assert named.actions == () or named.actions[0].action.row_group_bytes == 128 << 20
    assert SMALLEST <= size < ROW_BYTES * ROWS and size & (size - 1) == 0
    after = apply(_table(), chosen, AUTO)
    assert len(after.file_table()) == 1
    assert 1 < len(after.row_groups().file) <= MOST_PER_FILE
    assert window_read(after, work) < 0.2 * ROW_BYTES * ROWS * 60
    assert window_read(after, work) == pytest.approx(chosen.read_after.mid, rel=0.15)


def test_the_next_plan_keeps_them():
    work = _work(1_000)
    after = apply(_table(), advise(_table(), work, AUTO), AUTO)
    assert advise(after, work, AUTO).actions == ()


def test_a_declared_key_gets_them_too():
    declared = replace(AUTO, mode="Declared", ordering=Lexicographic((SortColumn(PART),)))
    (scored,) = advise(_table(), _work(1_000), declared).actions
    assert isinstance(scored.action, Cluster)
    assert scored.action.row_group_bytes < ROW_BYTES * ROWS


@pytest.mark.parametrize("width", [1_000, 20_000, 60_000])
def test_reading_costs_at_most_as_much_as_with_the_table_s_own_size(width):
    work = _work(width, weight=5.0)
    costs = [
        window_cost(apply(_table(), advise(_table(), work, settings), settings), work, settings)
        for settings in (AUTO, LARGE)
    ]
    assert costs[0] <= 1.02 * costs[1]


def test_keys_are_compared_in_the_row_groups_that_each_would_get():
    """Of a few files, a sort by one column reads about as much as a curve; of many row groups, the
    curve serves the other column too."""
    random = np.random.default_rng(4)
    table = arrived(random, rows=ROWS, jitter=1_000)
    work = workload(
        range_workload(random, PART, 60, 2_000, 100_000, weight=20.0),
        range_workload(random, DATE, 60, 20, 1_000, weight=15.0),
    )
    settings = replace(AUTO, target_bytes=ROW_BYTES * ROWS // 3)
    (named,) = advise(table, work, replace(settings, row_group_auto=False)).actions
    (chosen,) = advise(table, work, settings).actions
    assert isinstance(named.action.ordering, Lexicographic)
    assert isinstance(chosen.action.ordering, Hilbert)
    assert chosen.action.row_group_bytes < settings.target_bytes


def test_a_small_sample_chooses_no_size():
    advice = advise(_table(), _work(1_000), AUTO, rows_per_file=4)
    assert all(one.action.row_group_bytes == 128 << 20 for one in advice.actions)


TABLE_BYTES = ROW_BYTES * ROWS
IN_FILES = replace(
    SETTINGS, target_bytes=TABLE_BYTES // 32, row_group_bytes=128 << 20, open_bytes=20_000
)
AUTO_FILES = replace(IN_FILES, target_auto=True)


@pytest.fixture
def small_sizes(monkeypatch):
    """Sizes of files in proportion to tables of 1.7 MB."""
    monkeypatch.setattr(sizes, "FILES", (TABLE_BYTES // 64, TABLE_BYTES * 8))


def _chosen(work, settings):
    """The predicted size of files, 0 for the table's own, and the table afterwards."""
    advice = advise(_table(), work, settings)
    (scored,) = advice.actions
    return scored, apply(_table(), advice, settings)


def test_wide_scans_get_larger_files_and_narrow_ones_smaller_files(small_sizes):
    wide, large = _chosen(_work(40_000, weight=5.0), AUTO_FILES)
    assert wide.predicted.target_bytes == wide.action.target_bytes > 2 * IN_FILES.target_bytes
    whole = replace(AUTO_FILES, target_bytes=TABLE_BYTES, open_bytes=1_000)
    narrow, small = _chosen(_work(1_000, weight=5.0), whole)
    assert narrow.predicted.target_bytes == narrow.action.target_bytes < TABLE_BYTES / 4
    for size in (wide, narrow):
        assert size.action.target_bytes & (size.action.target_bytes - 1) == 0
    assert len(large.file_table()) < 32 and 4 < len(small.file_table()) <= 30
    for scored, table in ((wide, large), (narrow, small)):
        assert len(table.file_table()) == scored.predicted.files_out


def test_a_dear_opening_makes_files_larger(small_sizes):
    found = []
    for price in (4_000, 64_000, 1 << 20):
        settings = replace(AUTO_FILES, open_bytes=price)
        found.append(len(_chosen(_work(20_000, weight=5.0), settings)[1].file_table()))
    assert found[0] > found[1] > found[2]


@pytest.mark.parametrize("width", [1_000, 20_000, 60_000])
def test_files_of_a_chosen_size_cost_at_most_as_much_to_read(small_sizes, width):
    work, costs = _work(width, weight=5.0), []
    for settings in (AUTO_FILES, IN_FILES):
        after = apply(_table(), advise(_table(), work, settings), settings)
        costs.append(window_cost(after, work, settings))
    assert costs[0] <= 1.02 * costs[1]


def test_the_next_plan_leaves_files_of_a_chosen_size_alone(small_sizes):
    settings = replace(AUTO_FILES, target_bytes=TABLE_BYTES, open_bytes=1_000, min_input_files=2)
    work = _work(1_000, weight=5.0)
    scored, after = _chosen(work, settings)
    moved = [replace(f, path=f"t/layout-p-{1:020x}-1/{f.path}") for f in after.files]
    after = replace(after, files=tuple(moved))
    assert max(after.file_table().bytes) < WRITTEN_SHARE * settings.target_bytes
    known = replace(settings, chosen_sizes={f"p-{1:020x}": scored.action.target_bytes})
    for asked in (work, workload(())):
        assert advise(after, asked, known).actions == ()
    assert advise(after, workload(()), settings).actions  # what no plan chose is small


def test_named_sizes_are_kept(small_sizes):
    scored, _ = _chosen(_work(40_000, weight=5.0), IN_FILES)
    assert scored.predicted.target_bytes is None
    assert scored.action.target_bytes == IN_FILES.target_bytes


def test_a_table_whose_writers_replace_files_gets_no_larger_ones(small_sizes):
    operation = RowOperation(
        1, 0, Kind.UPDATE, Encoding.COPY_ON_WRITE, 5, False, 1, 1, 1, 5, 1, 0, "spark"
    )
    work = _work(40_000, weight=5.0)
    table = _table()
    files = table.file_table()
    sample = table.sample(np.arange(len(files)), 256)
    given = AdviceInput(
        files, work, AUTO_FILES, table.row_groups(), sample, operations=Operations((operation,))
    )
    assert all(
        item.action.target_bytes <= AUTO_FILES.target_bytes for item in decide(given).actions
    )
