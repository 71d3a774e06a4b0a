"""How inputs are divided into groups: key neighbours together, nothing twice."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.engines.schedule.group import InputFile, batches, make_groups
from reconciler.engines.schedule.native import fitting_rows
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.rewrite import BinPack, Cluster
from reconciler.plan.ordering import Hilbert, Lexicographic
from reconciler.rewrite.memory import ROWS_FACTOR
from reconciler.table.schema import SortColumn

MIB = 1 << 20
SORT = Cluster(ordering=Lexicographic((SortColumn(1),)))
PACK = BinPack()


def _file(
    name: str, low: int | None, high: int | None, size: int = 10 * MIB, rows: int = 200_000
) -> InputFile:
    return InputFile(name, size, rows, low, high)


def _names(groups: list) -> list[list[str]]:
    return [[file.path for file in group.inputs] for group in groups]


def test_files_apart_in_the_key_are_separate_groups_where_nothing_is_merged() -> None:
    files = [_file("a", 0, 10), _file("b", 5, 20), _file("c", 20, 30), _file("d", 40, 50)]
    groups = make_groups("a01", SORT, files, 10 * MIB, merge_bytes=1)
    assert _names(groups) == [["a", "b"], ["c"], ["d"]]


def test_small_neighbours_share_a_group() -> None:
    files = [_file("a", 0, 10, MIB), _file("b", 20, 30, MIB), _file("c", 40, 50, MIB)]
    groups = make_groups("a01", SORT, files, 10 * MIB)
    assert _names(groups) == [["a", "b", "c"]]
    assert groups[0].files == 1


def test_output_files_are_as_many_as_the_plan_s_share_of_live_bytes_fills() -> None:
    files = [_file(str(i), 0, 100, 10 * MIB) for i in range(8)]
    for share, count in ((1.0, 8), (0.7, 6), (0.05, 1)):
        (group,) = make_groups("a01", SORT, files, 10 * MIB, written_share=share)
        assert group.files == count


def test_constant_files_of_one_value_stay_together() -> None:
    files = [_file("a", 7, 7), _file("b", 7, 7), _file("c", 8, 8)]
    assert _names(make_groups("a01", SORT, files, MIB, 1)) == [["a", "b"], ["c"]]


def test_a_file_without_bounds_may_hold_anything() -> None:
    files = [_file("a", 0, 1), _file("b", None, None), _file("c", 5, 6)]
    assert _names(make_groups("a01", SORT, files, MIB)) == [["a", "b", "c"]]


def test_a_curve_takes_all_inputs_together() -> None:
    action = Cluster(ordering=Hilbert((SortColumn(1), SortColumn(2))))
    files = [_file("a", 0, 1), _file("b", 5, 6)]
    assert _names(make_groups("a01", action, files, MIB)) == [["a", "b"]]


def test_a_huge_overlapping_set_is_cut_in_order_of_midpoints() -> None:
    files = [InputFile(f"{9 - i:02d}", 10 << 30, 1000, i, 50 + i) for i in range(4)]
    groups = make_groups("a01", SORT, files[::-1], 512 * MIB)
    assert _names(groups) == [["08", "09"], ["07"], ["06"]]


@pytest.mark.parametrize("action", [SORT, PACK])
@given(
    spans=st.lists(
        st.tuples(st.integers(0, 50), st.integers(0, 20), st.integers(1, 40)),
        min_size=1,
        max_size=30,
    ),
)
def test_every_input_is_in_exactly_one_group(
    action: Action, spans: list[tuple[int, int, int]]
) -> None:
    files = [_file(str(i), a, a + b, size * MIB) for i, (a, b, size) in enumerate(spans)]
    groups = make_groups("a01", action, files, 32 * MIB)
    paths = [path for names in _names(groups) for path in names]
    assert sorted(paths) == sorted(file.path for file in files)


@given(groups=st.integers(1, 200), commits=st.integers(1, 12))
def test_batches_hold_whole_groups_in_order(groups: int, commits: int) -> None:
    parts = batches([None] * groups, commits)  # type: ignore[list-item]
    assert list(itertools.chain(*parts)) == list(range(groups))
    assert len(parts) <= commits
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize(
    ("memory", "rows"),
    [(10_000 * MIB, 1_000_000), (1_500 * MIB, 1_000_000), (400 * MIB, 279_620), (1, 250_000)],
)
def test_row_groups_are_as_large_as_a_task_can_hold_but_no_less_than_a_quarter(
    memory: int, rows: int
) -> None:
    """A row group of 100 bytes a row that is asked for has a million rows, 1.4 GiB in memory."""
    (group,) = make_groups("a01", PACK, [_file("a", None, None, 200 * MIB, 2 * MIB)] * 2, 1 << 40)
    assert fitting_rows(group, 1_000_000, memory) == rows
    assert rows * 100 * ROWS_FACTOR <= memory or rows == 250_000
