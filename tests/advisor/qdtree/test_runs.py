"""Files of a tree count as being in order when another tree is found for queries of the same kind,
so that new data does not have them rewritten each time."""

from types import SimpleNamespace

import numpy as np
import pytest

from bench.sessions import SCHEMA, People, flights, settings_of
from reconciler.advisor.advice import TreeSettings
from reconciler.advisor.choose.bands import in_bands
from reconciler.advisor.judge.runs import _in_order
from reconciler.advisor.qdtree.building import found_for
from reconciler.advisor.simulate.layout import Layout
from reconciler.advisor.simulate.pool import build_pool
from reconciler.plan.ordering import Lexicographic, by_tree
from reconciler.queries.demanded import demands
from reconciler.queries.fragments import workload_of_fragments
from reconciler.queries.table_view import table_view
from reconciler.table.schema import SortColumn


def _trees(table, settings, random):
    """Return the trees for the queries of two weeks."""
    people = People(
        np.full(6, 1 / 6), {field: np.sort(column) for field, column in table.values.items()}
    )
    every = table.sample(np.arange(len(table.files)), 128)
    view = table_view(table.file_table(), table.row_groups(), every, settings.row_group_bytes)
    pool = build_pool(view, range(1, 7))
    assert pool is not None
    found = []
    for week in (0, 7):
        asked = workload_of_fragments(people.sessions(random, week, 7))
        made = found_for(
            pool, demands(asked, SCHEMA, settings.horizon_ms), settings.target_bytes,
            TreeSettings(steps=20), week,
        )  # fmt: skip
        assert made is not None
        found.append(by_tree(made.tree))
    return found


@pytest.mark.parametrize("seed", [1, 2])
def test_a_tree_of_last_week_is_in_order_and_a_sorted_table_is_not(seed):
    random = np.random.default_rng(seed)
    table = flights(random)
    settings = settings_of(table)
    first, second = _trees(table, settings, random)
    assert first.tree != second.tree
    every = np.arange(len(table.files))

    def written(ordering):
        layout = Layout(ordering, settings.target_bytes, settings.row_group_bytes, every * 0)
        return SimpleNamespace(table=table.laid_out(layout, every, 0).file_table())

    def in_order(situation):
        return _in_order(situation, np.arange(len(situation.table)), second)

    assert in_order(written(first)) and in_order(written(second))
    assert not in_order(written(Lexicographic((SortColumn(1),))))
    assert not in_order(SimpleNamespace(table=table.file_table()))


def test_bands_are_in_the_order_of_other_bands_and_a_sort_by_what_is_cut_is_not():
    """Files of the sort meet few bands, as those of bands do, and all hold the other column's
    values."""
    table = flights(np.random.default_rng(3))
    settings = settings_of(table)
    every = np.arange(len(table.files))
    pool = build_pool(
        table_view(
            table.file_table(), table.row_groups(), table.sample(every, 128),
            settings.row_group_bytes,
        ),
        (1, 5),
    )  # fmt: skip
    assert pool is not None
    four, eight, crossed = (in_bands(pool, *one) for one in ((5, 1, 4), (5, 1, 8), (1, 5, 8)))
    assert four is not None and eight is not None and crossed is not None

    def in_order(ordering, wanted):
        layout = Layout(ordering, settings.target_bytes, settings.row_group_bytes, every * 0)
        files = table.laid_out(layout, every, 0).file_table()
        return _in_order(SimpleNamespace(table=files), np.arange(len(files)), wanted)

    assert in_order(four, eight) and in_order(eight, four)
    assert not in_order(crossed, four)
    assert not in_order(Lexicographic((SortColumn(5),)), four)
    assert not in_order(Lexicographic((SortColumn(1),)), four)
