"""Groups: key neighbours together, nothing twice, the same for the plan and for the execution."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.engines.schedule.group import InputFile, make_groups
from reconciler.engines.schedule.inputs import decode_bound
from reconciler.plan.actions.rewrite import Cluster
from reconciler.plan.grouping import (
    SMALL_SHARE,
    Extents,
    Grouping,
    along_leaves,
    extents,
    merged,
    output_file_of,
    unbounded,
)
from reconciler.plan.ordering import ARRIVAL, Hilbert, Lexicographic, Ordering
from reconciler.table.row_group_bytes import output_files
from reconciler.table.schema import SortColumn
from reconciler.table.stable_order import distinct_ranks, order_of, ranks
from reconciler.table.values import cut_bound
from tests.table.tables import ROW_BYTES, File, table_of

KEY = (SortColumn(1),)
TARGET = 10 * ROW_BYTES

SPANS = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 20), st.integers(2, 40)), min_size=1, max_size=30
)


def files_of(spans: list[tuple[int, int, int]]) -> list[File]:
    """Per span its first value, its length and how many rows it has."""
    return [File(tuple((a + b * (i > 0),) for i in range(rows))) for a, b, rows in spans]


def sized(*sizes: int) -> Extents:
    """Files of those sizes that do not overlap, in key order."""
    ranks = np.arange(len(sizes), dtype=np.int64) * 2
    return Extents(
        np.arange(len(sizes)), np.array(sizes, dtype=np.int64),
        ranks, ranks + 1, np.ones(len(sizes), dtype=np.bool_),
    )  # fmt: skip


def members(groups: Grouping) -> list[list[int]]:
    return [group.tolist() for group in groups.members]


@given(st.integers(1, 10**12), st.integers(1, 10**9))
def test_files_of_one_rewrite_are_not_small_for_the_next(size: int, target: int) -> None:
    count = int(output_files(size, target))
    assert count == 1 or SMALL_SHARE * target <= size / count
    assert size / count <= 1.5 * target


@given(spans=SPANS, keyed=st.booleans(), curve=st.sampled_from([Lexicographic, Hilbert]))
def test_the_plan_and_the_execution_group_alike(
    spans: list[tuple[int, int, int]], keyed: bool, curve: type[Ordering]
) -> None:
    table = table_of(files_of(spans), ("long",))
    table = replace(table, sequence=np.array([(7 * i) % 5 for i in range(len(table))]))
    key = KEY if keyed else ()
    column = table.columns[1]
    inputs = [
        InputFile(
            str(table.path[i]), int(table.bytes[i]), int(table.records[i]),
            int(column.lower[i]), int(column.upper[i]), sequence=int(table.sequence[i]),
        )
        for i in range(len(table))
    ]  # fmt: skip
    planned = (curve(KEY) if keyed else ARRIVAL).groups(extents(table, key), target_bytes=TARGET)
    action = Cluster(ordering=curve(key) if keyed else ARRIVAL)
    run = make_groups("a01", action, inputs, TARGET)
    assert [[str(table.path[i]) for i in group] for group in planned.members] == [
        [file.path for file in group.inputs] for group in run
    ]
    arrivals = [[(file.sequence, file.path) for file in group.inputs] for group in run]
    assert arrivals == [sorted(group) for group in arrivals]
    assert [group.files for group in run] == [
        int(output_files(table.bytes[group].sum(), TARGET)) for group in planned.members
    ]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("boolean", [False, True]),
        ("string", ["x" * 64 + end for end in "abcdefgh"]),
        ("string", ["\U0010ffff" * 16 + end for end in "abc"]),
        ("string", ["ab", "b" * 80, "c"]),
    ],
)
def test_the_plan_and_the_execution_know_the_same_bounds(kind: str, values: list[Any]) -> None:
    """File tables keep 64 bytes of a bound; a boolean is a bound like any other."""
    raw = [bytes([v]) if kind == "boolean" else v.encode() for v in values]
    kept = [int(v) if kind == "boolean" else v.encode() for v in values]
    table = table_of([File(((v,),) * 10) for v in range(len(values))], ("long",))
    low = [cut_bound(v, upper=False) if isinstance(v, bytes) else v for v in kept]
    high = [cut_bound(v, upper=True) if isinstance(v, bytes) else v for v in kept]
    bounded = np.array([v is not None for v in high], dtype=np.bool_)
    column = replace(
        table.columns[1], lower=np.array(low), upper=np.array([v or b"" for v in high])
        if kind == "string" else np.array(high), has_lower=bounded, has_upper=bounded,
    )  # fmt: skip
    table = replace(table, columns={1: column})
    inputs = [
        InputFile(
            str(table.path[i]), int(table.bytes[i]), 10,
            decode_bound(kind, raw[i]), decode_bound(kind, raw[i]),
        )
        for i in range(len(table))
    ]  # fmt: skip
    planned = Lexicographic(KEY).groups(extents(table, KEY), target_bytes=TARGET, merge_bytes=1)
    action = Cluster(ordering=Lexicographic(KEY))
    run = make_groups("a01", action, inputs, TARGET, merge_bytes=1)
    assert [[str(table.path[i]) for i in group] for group in planned.members] == [
        [file.path for file in group.inputs] for group in run
    ]


@pytest.mark.parametrize("seed", range(8))
def test_the_plan_and_the_execution_cut_files_without_bounds_alike(seed: int) -> None:
    """What stands in the place of an unknown bound has no rank among the others."""
    random = np.random.default_rng(seed)
    low = random.choice([-30, -20, -9, 1, 2, 3, 200, 350], 24)
    high = np.maximum(low, random.choice([-5, 3, 50, 210, 399], 24))
    unknown = random.random(24) < 0.2
    ends = [
        (None, None) if absent else (a, b)
        for a, b, absent in zip(low.tolist(), high.tolist(), unknown, strict=True)
    ]
    table = table_of([File(((a,), (b,))) for a, b in ends], ("long",))
    table = replace(table, bytes=np.full(24, 2 << 30, dtype=np.int64))
    inputs = [
        InputFile(str(path), 2 << 30, 2, *pair) for path, pair in zip(table.path, ends, strict=True)
    ]
    planned = Lexicographic(KEY).groups(extents(table, KEY), target_bytes=512 << 20)
    run = make_groups("a01", Cluster(ordering=Lexicographic(KEY)), inputs, 512 << 20)
    assert len(run) > 1
    assert [[str(table.path[i]) for i in group] for group in planned.members] == [
        [file.path for file in group.inputs] for group in run
    ]


@given(spans=SPANS, keyed=st.booleans(), limit=st.integers(1, 400))
def test_every_file_is_in_exactly_one_group_and_none_overlaps_another(
    spans: list[tuple[int, int, int]], keyed: bool, limit: int
) -> None:
    files = extents(table_of(files_of(spans), ("long",)), KEY)
    groups = (Lexicographic(KEY) if keyed else ARRIVAL).groups(
        files, target_bytes=TARGET, merge_bytes=limit * ROW_BYTES
    )
    assert sorted(groups.order.tolist()) == list(range(len(spans)))
    assert [groups.number[group].tolist() for group in groups.members] == [
        [number] * len(group) for number, group in enumerate(groups.members)
    ]
    if keyed:
        reach = [int(files.high[group].max()) for group in groups.members]
        begin = [int(files.low[group].min()) for group in groups.members]
        assert all(b >= e for b, e in zip(begin[1:], reach, strict=False))


def test_neighbours_are_merged_to_a_few_files_and_none_is_left_alone_small() -> None:
    target = 100
    sizes = sized(150, 150, 100, 90, 10, 500, 20, 500, 30)
    groups = Lexicographic(KEY).groups(sizes, target_bytes=target)
    assert members(groups) == [[0, 1, 2], [3, 4], [5], [6, 7, 8]]


@given(
    st.lists(st.integers(0, 9), max_size=14), st.integers(0, 40), st.sampled_from([0.0, 1.5, 5.0])
)
def test_neighbours_are_added_one_by_one_up_to_the_limit(
    sizes: list[int], limit: int, small: float
) -> None:
    starts, held = list[int](), 0
    for number, own in enumerate(sizes):
        if starts and (held + own <= limit or held < small):
            held += own
        else:
            starts.append(number)
            held = own
    if held < small and len(starts) > 1:
        starts.pop()
    each = np.arange(len(sizes), dtype=np.int64)
    found = merged(Grouping(each, each), np.array(sizes, dtype=np.int64), limit, small)
    assert found.starts.tolist() == starts


NUMBERS = st.integers(0, 1 << 61) | st.integers(0, 3)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=20), st.randoms(), st.integers(1, 70_000))
def test_numbers_of_many_digits_are_ordered_as_by_lexsort(
    pairs: list[tuple[int, int]], random: Any, step: int
) -> None:
    first, second = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    last = np.array(random.sample(range(len(pairs)), len(pairs)), dtype=np.int64) * step
    expected = np.lexsort((last, second, first)).tolist()
    assert order_of(first, second, last=last).tolist() == expected
    for values in (
        first,
        first - (1 << 60),
        np.array([str(one).encode() for one in first] + [b""]),
    ):
        distinct, expected = np.unique(values, return_inverse=True)
        assert ranks(values).tolist() == expected.tolist()
        found, again = distinct_ranks(values)
        assert (found.tolist(), again.tolist()) == (distinct.tolist(), expected.tolist())


def test_an_overlapping_set_is_never_split_for_its_number_of_files() -> None:
    """A table that overlaps everywhere is one sort, however many files: the plan must know it."""
    count = 5_000
    files = Extents(
        np.arange(count), np.full(count, 1 << 20, dtype=np.int64),
        np.zeros(count, dtype=np.int64), np.ones(count, dtype=np.int64),
        np.ones(count, dtype=np.bool_),
    )  # fmt: skip
    (group,) = Lexicographic(KEY).groups(files, target_bytes=512 << 20).members
    assert len(group) == count


def test_a_set_larger_than_a_group_may_be_is_cut_at_midpoints() -> None:
    low = np.array([30, 10, 20, 0], dtype=np.int64)
    files = Extents(
        np.arange(4), np.full(4, 10, dtype=np.int64), low, low + 100,
        np.ones(4, dtype=np.bool_),
    )  # fmt: skip
    groups = Lexicographic(KEY).groups(files, target_bytes=1, max_bytes=20)
    assert members(groups) == [[1, 3], [0, 2]]


@given(
    spans=st.lists(
        st.tuples(st.integers(0, 30), st.integers(0, 6), st.integers(1, 40)),
        min_size=1,
        max_size=40,
    ),
    limit=st.integers(20, 200),
)
def test_a_leaf_is_in_two_groups_only_where_its_files_are_larger_than_one(
    spans: list[tuple[int, int, int]], limit: int
) -> None:
    low, length, size = (np.array(part, dtype=np.int64) for part in zip(*spans, strict=True))
    known = np.ones(len(low), dtype=np.bool_)
    files = Extents(np.arange(len(low)), size, low, low + length, known)
    groups = along_leaves(files, limit)
    assert sorted(groups.order.tolist()) == list(range(len(spans)))
    group = groups.number
    assert int(group.max()) + 1 <= 2 * int(size.sum()) // limit + 1
    for leaf in range(37):
        here = (low <= leaf) & (leaf <= low + length)
        if len(np.unique(group[here])) > 1:
            chain = here
            for _ in spans:
                reach = [
                    (low <= b) & (a <= low + length)
                    for a, b in zip(low[chain], (low + length)[chain], strict=True)
                ]
                chain = np.logical_or.reduce(reach)
            assert size[chain].sum() > limit
    for own in groups.members:
        pieces = size[own]
        assert pieces.sum() <= limit + pieces.max() or len(own) == 1


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [
        ([150, 150, 150], [[0, 1, 2]]),
        ([150, 150, 150, 200], [[0, 1], [2, 3]]),
        ([300, 300, 50, 60], [[0], [1, 2, 3]]),
        ([400], [[0]]),
    ],
)
def test_without_a_key_runs_are_of_a_few_files(sizes: list[int], groups: list[list[int]]) -> None:
    files = unbounded(np.arange(len(sizes)), np.array(sizes, dtype=np.int64))
    found = ARRIVAL.groups(files, target_bytes=100)
    assert members(found) == groups


def test_whole_files_go_to_the_output_file_of_their_middle() -> None:
    sizes = np.array([60, 60, 60, 60, 400], dtype=np.int64)
    runs = Grouping(np.arange(5, dtype=np.int64), np.array([0, 4], dtype=np.int64))
    place, count = output_file_of(runs, sizes, 100)
    assert place.tolist() == [0, 0, 1, 1, 4]
    assert count == 6


@pytest.mark.parametrize("curve", [Lexicographic, Hilbert])
@pytest.mark.parametrize("keyed", [True, False])
def test_nothing_and_files_of_no_bytes_can_be_grouped(keyed: bool, curve: type[Ordering]) -> None:
    for sizes in ([], [0], [0, 0, 0], [1 << 50] * 3):
        groups = (curve(KEY) if keyed else ARRIVAL).groups(sized(*sizes), target_bytes=512 << 20)
        assert sorted(groups.order.tolist()) == list(range(len(sizes)))
        assert len(groups.number) == len(sizes)
