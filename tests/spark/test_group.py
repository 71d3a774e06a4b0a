"""How inputs are divided into groups: key neighbours together, within memory, nothing twice."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.plan.actions.base import Action
from reconciler.plan.actions.bin_pack import BinPack
from reconciler.plan.actions.cluster import Cluster
from reconciler.plan.actions.migrate import Migrate
from reconciler.plan.ordering import Hilbert, Lexicographic
from reconciler.spark import balance, write
from reconciler.spark import group as write_group
from reconciler.spark.group import Compression, InputFile, batches, make_groups
from reconciler.table.schema import SortColumn, SpecField

MIB = 1 << 20
SORT = Cluster(ordering=Lexicographic((SortColumn(1),)))
PACK = BinPack()


def _file(
    name: str, low: int | None, high: int | None, size: int = 10 * MIB, rows: int = 200_000
) -> InputFile:
    return InputFile(name, size, rows, 4 * size, low, high)


def _names(groups: list) -> list[list[str]]:
    return [[file.path for file in group.inputs] for group in groups]


def test_files_apart_in_the_key_are_separate_groups_where_nothing_is_merged() -> None:
    files = [_file("a", 0, 10), _file("b", 5, 20), _file("c", 20, 30), _file("d", 40, 50)]
    groups = make_groups("a01", SORT, files, 10 * MIB, task_bytes=1, cores=2, merge_bytes=1)
    assert _names(groups) == [["a", "b"], ["c"], ["d"]]


def test_small_neighbours_share_a_group() -> None:
    files = [_file("a", 0, 10, MIB), _file("b", 20, 30, MIB), _file("c", 40, 50, MIB)]
    groups = make_groups("a01", SORT, files, 10 * MIB, task_bytes=64 * MIB, cores=2)
    assert _names(groups) == [["a", "b", "c"]]
    assert (groups[0].files, groups[0].tasks) == (1, 1)


def test_output_files_are_as_many_as_the_plan_s_share_of_live_bytes_fills() -> None:
    files = [_file(str(i), 0, 100, 10 * MIB) for i in range(8)]
    for share, count in ((1.0, 8), (0.7, 6), (0.05, 1)):
        (group,) = make_groups("a01", SORT, files, 10 * MIB, 1 << 30, 2, written_share=share)
        assert group.files == count
        assert replace(group, expected=Compression(0.5)).files == 4


def test_constant_files_of_one_value_stay_together() -> None:
    files = [_file("a", 7, 7), _file("b", 7, 7), _file("c", 8, 8)]
    assert _names(make_groups("a01", SORT, files, MIB, 1, 2, 1)) == [["a", "b"], ["c"]]


def test_a_file_without_bounds_may_hold_anything() -> None:
    files = [_file("a", 0, 1), _file("b", None, None), _file("c", 5, 6)]
    assert _names(make_groups("a01", SORT, files, MIB, 1, 2)) == [["a", "b", "c"]]


def test_a_group_larger_than_memory_gets_more_tasks_but_never_more_than_files() -> None:
    files = [_file(str(i), 0, 100) for i in range(8)]
    (group,) = make_groups("a01", SORT, files, 20 * MIB, task_bytes=110 * MIB, cores=2)
    assert (group.files, group.tasks) == (4, 3)
    (wide,) = make_groups("a01", SORT, files, 40 * MIB, task_bytes=MIB, cores=2)
    assert (wide.files, wide.tasks) == (2, 2)


def test_files_of_few_pages_get_a_task_each() -> None:
    """A file of a wide table ends at 36,000 rows or at 9,900 where all should have 22,900."""

    def tasks(action: Action, rows: int, target: int) -> tuple[int, int]:
        files = [_file(str(i), 0, 100, rows=rows) for i in range(8)]
        (group,) = make_groups("a01", action, files, target, task_bytes=1 << 30, cores=2)
        return group.files, group.tasks

    assert tasks(SORT, 11_500, 20 * MIB) == (4, 4)
    curve = Cluster(ordering=Hilbert((SortColumn(1), SortColumn(2))))
    assert tasks(curve, 11_500, 20 * MIB) == (4, 4)
    assert tasks(SORT, 40_000, 20 * MIB) == (4, 2)  # four pages each
    assert tasks(SORT, 11_500, 2 * MIB) == (40, 2)  # too many cuts
    assert tasks(PACK, 11_500, 20 * MIB) == (4, 2)  # files are whole there


def test_rows_that_move_get_a_task_per_core_before_they_fill_a_file() -> None:
    """Each partition gets a file, so the target does not tell how many there will be."""
    move = Migrate(output_spec_id=1, fields=(SpecField(1, "bucket[1000]"),))
    for size, tasks in ((3 * MIB, 1), (7 * MIB, 1), (8 * MIB, 2), (100 * MIB, 4)):
        (group,) = make_groups("a01", move, [_file("a", 0, 9, size)], 1 << 30, 1 << 30, 4)
        assert (group.files, group.tasks) == (1, tasks)
    (stay,) = make_groups("a01", PACK, [_file("a", 0, 9, 100 * MIB)], 1 << 30, 1 << 30, 4)
    assert stay.tasks == 1


def test_a_curve_takes_all_inputs_together() -> None:
    action = Cluster(ordering=Hilbert((SortColumn(1), SortColumn(2))))
    files = [_file("a", 0, 1), _file("b", 5, 6)]
    assert _names(make_groups("a01", action, files, MIB, 1, 2)) == [["a", "b"]]


def test_a_huge_overlapping_set_is_cut_in_order_of_midpoints() -> None:
    files = [InputFile(f"{9 - i:02d}", 10 << 30, 1000, 40 << 30, i, 50 + i) for i in range(4)]
    groups = make_groups("a01", SORT, files[::-1], 512 * MIB, 1 << 30, 2)
    assert _names(groups) == [["08", "09"], ["07"], ["06"]]


@pytest.mark.parametrize("action", [SORT, PACK])
@given(
    spans=st.lists(
        st.tuples(st.integers(0, 50), st.integers(0, 20), st.integers(1, 40)),
        min_size=1,
        max_size=30,
    ),
    task=st.integers(1, 400),
)
def test_every_input_is_in_exactly_one_group(
    action: Action, spans: list[tuple[int, int, int]], task: int
) -> None:
    files = [_file(str(i), a, a + b, size * MIB) for i, (a, b, size) in enumerate(spans)]
    groups = make_groups("a01", action, files, 32 * MIB, task * MIB, 2)
    paths = [path for names in _names(groups) for path in names]
    assert sorted(paths) == sorted(file.path for file in files)
    assert all(1 <= group.tasks <= group.files for group in groups)


@given(groups=st.integers(1, 200), commits=st.integers(1, 12))
def test_batches_hold_whole_groups_in_order(groups: int, commits: int) -> None:
    parts = batches([None] * groups, commits)  # type: ignore[list-item]
    assert list(itertools.chain(*parts)) == list(range(groups))
    assert len(parts) <= commits
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize(("rows", "files"), [(240_000, 4), (60_000, 3), (118_000, 6), (9_000, 2)])
@pytest.mark.parametrize(
    ("row_group", "held"),
    [(128 * MIB, 9.0), (128 * MIB, 32.0), (128 * MIB, 500.0), (MIB // 4, 9.0), (MIB // 4, 32.0)],
)
def test_a_task_ends_its_files_after_equal_shares_of_the_rows(
    rows, files, row_group, held, monkeypatch
) -> None:
    """A writer counts plain rows until a page is full, and compressed ones from then on."""
    monkeypatch.setattr(write_group, "MOST_CUTS", 0)
    stored = 8.0
    size = int(rows * stored)
    inputs = [InputFile("a", size, rows, 4 * size, 0, 9)]
    (made,) = make_groups("a01", SORT, inputs, size // files, 1 << 40, cores=1)
    pages = Compression(1.0, (held - stored) * write.PAGE_ROWS)
    roll = write.roll_bytes(replace(made, expected=pages), 5, row_group)
    page = min(write.PAGE_ROWS, int(row_group / held))
    ended = next(
        n for n in range(0, 2 * rows, 1_000)
        if stored * (n - n % page) + held * (n % page) >= roll
    )  # fmt: skip
    assert made.files == files
    unreachable = page * (1.0 - stored / held) / 2.0
    slack = (1.0 - balance.SHORT_SHARE) / (2 * files - 1)
    assert abs(ended - rows / files * (1.0 + slack)) <= unreachable + write.PAGE_EDGE * page + 2_000
