"""Declared drift: decided with reasons, and with small files a fixed point is reached quickly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.plan.drift import Drift, declared_drift, drift_inside
from reconciler.plan.grouping import extents
from reconciler.plan.ordering import Hilbert, Lexicographic, Ordering
from reconciler.plan.small_files import small_files
from reconciler.table.hilbert import hilbert_index
from reconciler.table.schema import SortColumn
from tests.examples import examples
from tests.said import Said
from tests.table.tables import ROW_BYTES, File, column_depth, single_column, table_of

ONE = (SortColumn(1),)
TWO = (SortColumn(1), SortColumn(2))
TARGET = 20 * ROW_BYTES
MIN_FILES = 5

Writer = Callable[[list[tuple[Any, ...]], Sequence[SortColumn]], list[tuple[tuple[Any, ...], ...]]]


def in_key_order(rows: list[tuple[Any, ...]], key: Sequence[SortColumn]) -> list[tuple[Any, ...]]:
    """Spark's order: NULL first ascending, last descending."""
    for column in reversed(key):
        at = column.field_id - 1
        rows = sorted(
            rows,
            key=lambda row: (row[at] is not None, row[at] if row[at] is not None else 0),
            reverse=column.direction == "desc",
        )
    return rows


def cut(rows: Sequence[tuple[Any, ...]], bytes_a_file: int = TARGET) -> list[Any]:
    step = max(bytes_a_file // ROW_BYTES, 1)
    return [tuple(rows[i : i + step]) for i in range(0, len(rows), step)]


def one_sort(rows: list[tuple[Any, ...]], key: Sequence[SortColumn]) -> list[Any]:
    return cut(in_key_order(rows, key))


def writes_less_than_asked(rows: list[tuple[Any, ...]], key: Sequence[SortColumn]) -> list[Any]:
    """A writer whose files always stay at 60 % of the target."""
    return cut(in_key_order(rows, key), TARGET * 6 // 10)


def hilbert_sort(rows: list[tuple[Any, ...]], key: Sequence[SortColumn]) -> list[Any]:
    columns = [[row[c.field_id - 1] for row in rows] for c in key]
    filled = np.array([[-1 if v is None else v for v in column] for column in columns])
    ranks = np.array([np.unique(c, return_inverse=True)[1] for c in filled])
    order = np.argsort(hilbert_index(ranks.astype(np.int64), 16), kind="stable")
    return cut([rows[i] for i in order])


def step(
    files: list[File],
    types: Sequence[str],
    key: Sequence[SortColumn],
    curve: type[Ordering],
    write: Writer,
) -> tuple[list[File], int]:
    """Applies every decision once. Returns the new files and the bytes rewritten."""
    table = table_of(files, types)
    decisions = [d for d in declared_drift(table, curve(tuple(key)), MIN_FILES) if d.rewrite]
    taken = np.concatenate([d.files for d in decisions]) if decisions else None
    packs = small_files(table, TARGET, MIN_FILES, key=key, taken=taken)
    decisions += [d for d in packs if d.rewrite]
    chosen = [i for d in decisions for i in d.files.tolist()]
    assert len(chosen) == len(set(chosen)), "no file is rewritten twice in one plan"
    kept = [file for i, file in enumerate(files) if i not in set(chosen)]
    for decision in decisions:
        rows = [row for i in decision.files for row in files[i].rows]
        partition = files[int(decision.files[0])].partition
        kept += [File(piece, partition, ours=True) for piece in write(rows, key)]
    return kept, sum(files[i].bytes for i in chosen)


def converge(
    files: list[File],
    types: Sequence[str] = ("long", "long"),
    key: Sequence[SortColumn] = TWO,
    curve: type[Ordering] = Lexicographic,
    write: Writer = one_sort,
    rounds: int = 4,
) -> list[File]:
    """The files once nothing is left to do; fails when that takes more than `rounds`."""
    for _ in range(rounds):
        files, rewritten = step(files, types, key, curve, write)
        if not rewritten:
            return files
    raise AssertionError(f"still drifting after {rounds} rounds: {len(files)} files")


CELL = st.one_of(st.none(), st.integers(0, 40))
FILES = st.lists(
    st.builds(
        File,
        st.lists(st.tuples(CELL, CELL), min_size=1, max_size=30).map(tuple),
        st.integers(0, 1),
    ),
    max_size=14,
)
KEYS = st.sampled_from([ONE, TWO, (SortColumn(1, "desc"),), (SortColumn(2), SortColumn(1, "desc"))])


@settings(max_examples=examples(150), deadline=None)
@given(FILES, KEYS, st.sampled_from([one_sort, writes_less_than_asked]))
def test_random_tables_converge(files: list[File], key: Any, write: Writer) -> None:
    after = converge(files, key=key, write=write)
    assert sorted(map(repr, rows_of(after))) == sorted(map(repr, rows_of(files)))


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=25), max_size=12))
def test_string_keys_with_truncated_bounds_converge(values: list[list[int]]) -> None:
    """Files that meet within one truncated prefix seem to overlap and must not."""
    files = [File(tuple((b"%04d-%04d" % (v // 10, v),) for v in file)) for file in values]
    converge(files, ("string",), ONE)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 200)), max_size=400), st.booleans())
def test_random_tables_converge_under_hilbert(rows: list[tuple[int, int]], skewed: bool) -> None:
    rows = [(a if a % 3 or not skewed else 0, b) for a, b in rows]
    files = [File(piece) for piece in cut(rows)]
    converge(files, curve=Hilbert, write=hilbert_sort)


def rows_of(files: list[File]) -> list[tuple[Any, ...]]:
    return [row for file in files for row in file.rows]


def spread(count: int, rows: int = 20, seed: int = 0, width: int = 1000) -> list[File]:
    """Files that each span the whole key range."""
    draw = np.random.default_rng(seed)
    return [
        File(tuple((int(a), int(b)) for a, b in draw.integers(0, width, (rows, 2))))
        for _ in range(count)
    ]


@settings(max_examples=examples(25), deadline=None)
@given(st.integers(8, 60), st.integers(4, 12), st.integers(0, 5))
def test_rewrites_in_bounded_groups_converge_too(count: int, files_a_group: int, seed: int) -> None:
    """An action is carried out group by group in key order, so its outputs may still overlap."""

    def write(rows: list[tuple[Any, ...]], key: Sequence[SortColumn]) -> list[Any]:
        table = table_of([File(piece) for piece in cut(rows)], ("long", "long"))
        groups = Lexicographic(tuple(key)).groups(
            extents(table, tuple(key)), target_bytes=TARGET,
            max_bytes=files_a_group * TARGET,
        )  # fmt: skip
        inputs = cut(rows)
        return [
            piece
            for group in groups.members
            for piece in one_sort([row for i in group for row in inputs[i]], key)
        ]

    after = converge(spread(count, seed=seed), key=ONE, write=write, rounds=12)
    depth = column_depth(table_of(after, ("long", "long")).columns[1], np.full(len(after), 20))
    assert depth.mean < 1.5


def test_an_unsorted_table_is_sorted_in_one_round() -> None:
    files = converge(spread(40), key=ONE, rounds=2)
    depth = column_depth(table_of(files, ("long", "long")).columns[1], np.full(len(files), 20))
    assert (depth.mean, depth.maximum) == (1.0, 1)


def test_an_unsorted_table_is_clustered_in_both_keys_by_hilbert() -> None:
    files = converge(spread(100), curve=Hilbert, write=hilbert_sort, rounds=2)
    table = table_of(files, ("long", "long"))
    for field_id in (1, 2):
        depth = column_depth(table.columns[field_id], np.full(len(files), 20))
        assert depth.mean < 2 * len(files) ** 0.5


def base_and(*extra: File) -> list[File]:
    base = [File(tuple((i * 20 + j, 0) for j in range(20))) for i in range(40)]
    return [*base, *extra]


def wide(rows: int = 20, seed: int = 1) -> File:
    return spread(1, rows, seed, width=800)[0]


def decided(
    files: list[File], key: Any = ONE, curve: type[Ordering] = Lexicographic
) -> list[Drift]:
    return declared_drift(table_of(files, ("long", "long")), curve(tuple(key)), MIN_FILES)


def test_one_wide_append_does_not_rewrite_everything() -> None:
    (only,) = decided(base_and(wide()))
    assert not only.rewrite
    assert only.files.tolist() == [40]
    assert "minInputFiles 5" in only.reason


def test_several_wide_appends_are_merged_among_themselves() -> None:
    (only,) = [d for d in decided(base_and(*(wide(seed=s) for s in range(6)))) if d.rewrite]
    assert only.files.tolist() == list(range(40, 46))


def test_a_quarter_of_unsorted_data_is_merged_with_the_base() -> None:
    (only,) = [d for d in decided(base_and(*(wide(seed=s) for s in range(14)))) if d.rewrite]
    assert len(only.files) == 54


def test_late_data_is_merged_with_its_neighbours_only() -> None:
    late = File(tuple((205 + j, 0) for j in range(10)))
    (only,) = decided(base_and(late))
    assert only.rewrite
    assert only.files.tolist() == [10, 40]


def test_a_slight_overlap_of_neighbours_is_not_drift() -> None:
    table = single_column([(i * 100, i * 100 + 101) for i in range(30)])
    assert not any(d.rewrite for d in declared_drift(table, Lexicographic(tuple(ONE)), MIN_FILES))


def test_equal_keys_and_constant_files_are_not_drift_but_their_second_key_is_judged() -> None:
    equal = [File(tuple((7, 7) for _ in range(20))) for _ in range(20)]
    assert decided(equal, TWO) == []
    crossing = [File(((7, 0), (7, 9))) for _ in range(6)]
    assert decided(crossing, ONE) == []
    (only,) = decided(crossing, TWO)
    assert only.rewrite and len(only.files) == 6


def test_a_sorted_table_with_nulls_at_one_end_is_not_drift() -> None:
    rows = [(None, i) for i in range(30)] + [(i, 0) for i in range(100)]
    assert not any(d.rewrite for d in decided([File(p) for p in cut(rows)], TWO))


def test_a_giant_file_alone_is_not_drift_and_does_not_join_small_appends() -> None:
    giant = File(tuple((i % 1000, 0) for i in range(2000)))
    assert decided([giant]) == []
    (only,) = decided([giant, wide()])
    assert not only.rewrite


@pytest.mark.parametrize("curve", [Lexicographic, Hilbert])
def test_files_whose_own_row_groups_overlap_have_drifted_inside(curve: type[Ordering]) -> None:
    """Of two files, the first is sorted and the second is not."""
    key = ONE if curve is Lexicographic else TWO
    sort = hilbert_sort if curve is Hilbert else one_sort
    apart = [File(piece) for piece in sort(rows_of(spread(8, seed=3)), key)]
    groups = table_of([*apart, *spread(8, seed=4)], ("long", "long"))
    owner = np.repeat([3, 5], [len(apart), 8])
    assert drift_inside(groups, owner, curve(tuple(key))).tolist() == [5]
    mine = np.arange(len(apart))
    assert drift_inside(groups.take(mine), owner[mine], curve(tuple(key))).tolist() == []


def test_files_without_bounds_are_refused_with_the_column_named(said: Said) -> None:
    table = single_column([(0, 9), (0, 9), (0, 9)])
    bare = replace(table.columns[1], has_upper=np.array([True, True, False]))
    found = declared_drift(replace(table, columns={1: bare}), Lexicographic(tuple(ONE)), MIN_FILES)
    refused = [d for d in found if not d.rewrite]
    assert [d.files.tolist() for d in refused] == [[2]]
    said(refused[0].reason)
    assert [d.files.tolist() for d in found if d.rewrite] == [[0, 1]]
    none = declared_drift(replace(table, columns={}), Lexicographic(tuple(ONE)), MIN_FILES)
    assert [d.rewrite for d in none] == [False]
    said(none[0].reason)


def test_a_hilbert_key_that_holds_one_value_never_drifts() -> None:
    rows = [(5, i * 37 % 1000) for i in range(2000)]
    after = converge([File(p) for p in cut(rows)], curve=Hilbert, write=hilbert_sort, rounds=3)
    assert len(rows_of(after)) == 2000


def test_a_wide_append_to_a_hilbert_table_waits() -> None:
    files = converge(spread(100), curve=Hilbert, write=hilbert_sort)
    assert not any(d.rewrite for d in decided([*files, wide()], TWO, Hilbert))


@pytest.mark.parametrize(
    ("count", "keys"),
    [(5, 2), (6, 2), (8, 2), (30, 2), (9, 3), (12, 3), (40, 3), (20, 4), (24, 4), (47, 4)],
)
def test_files_that_all_span_every_key_are_clustered_however_few(count: int, keys: int) -> None:
    """Above 2^d files, where a curve can do anything. Half of their distinct bounds lie before any
    row and half after, so that by bounds each seems to span no more than half."""
    draw = np.random.default_rng(count)
    files = [
        File(tuple(tuple(row) for row in draw.integers(0, 10**6, (40, keys)).tolist()))
        for _ in range(count)
    ]
    key = tuple(SortColumn(number + 1) for number in range(keys))
    (only,) = declared_drift(table_of(files, ("long",) * keys), Hilbert(tuple(key)), MIN_FILES)
    assert only.rewrite
    assert len(only.files) == count


@pytest.mark.parametrize("appends", [6, 12, 40])
def test_a_file_of_many_rows_may_span_as_much_as_its_share_of_them(appends: int) -> None:
    """However many small files are beside it, a quarter of a curve spans half of each of two axes:
    small appends to large, well clustered files are clustered by themselves."""
    draw = np.random.default_rng(1)

    def within(count: int, x: int, y: int, side: int) -> File:
        rows = draw.integers((x, y), (x + side, y + side), (count, 2))
        return File(tuple(tuple(row) for row in rows.tolist()))

    half = 500_000
    base = [within(4000, x, y, half) for x in (0, half) for y in (0, half)]
    table = table_of([*base, *(within(40, 0, 0, 2 * half) for _ in range(appends))], ("long",) * 2)
    table.bytes[:] = table.records * 1000
    chosen = [d for d in declared_drift(table, Hilbert(tuple(TWO)), MIN_FILES) if d.rewrite]
    assert all(min(d.files.tolist()) >= len(base) for d in chosen)


def test_wide_appends_are_distinguished_from_files_that_share_a_flag() -> None:
    """No curve parts the values of a flag further than in two: spanning both is not unsorted."""
    draw = np.random.default_rng(3)
    rows = [(int(at), int(flag)) for at, flag in zip(
        draw.integers(0, 10**6, 4000), draw.integers(0, 2, 4000), strict=True
    )]  # fmt: skip
    base = [File(tuple(rows[i] for i in piece)) for piece in np.array_split(
        np.argsort([at for at, _ in rows]), 100
    )]  # fmt: skip
    appended = [
        File(tuple((int(at), int(at) % 2) for at in draw.integers(0, 10**6, 40))) for _ in range(24)
    ]
    found = [d for d in decided([*base, *appended], TWO, Hilbert) if d.rewrite]
    assert [d.files.tolist() for d in found] == [list(range(100, 124))]


def test_hilbert_leaves_files_out_whose_second_key_has_no_bounds() -> None:
    files = spread(30)
    table = table_of(files, ("long", "long"))
    bare = replace(table.columns[2], has_lower=np.arange(30) > 4)
    found = declared_drift(
        replace(table, columns={**table.columns, 2: bare}), Hilbert(tuple(TWO)), MIN_FILES
    )
    assert [d.files.tolist() for d in found if not d.rewrite] == [[0, 1, 2, 3, 4]]
    assert [d.files.tolist() for d in found if d.rewrite] == [list(range(5, 30))]


def rewritten_per_byte(appends: int, each: Callable[[int], File], key: Any) -> float:
    """Bytes rewritten per byte of the table when the table is reconciled after every append."""
    files: list[File] = []
    total = 0
    for number in range(appends):
        files.append(each(number))
        for _ in range(4):
            files, rewritten = step(files, ("long", "long"), key, Lexicographic, one_sort)
            total += rewritten
            if not rewritten:
                break
        else:
            raise AssertionError("does not settle")
    return total / sum(file.bytes for file in files)


@pytest.mark.parametrize("key", [ONE, ()], ids=["declared", "sizes only"])
def test_a_byte_is_rewritten_a_logarithmic_number_of_times(key: Any) -> None:
    """Doubling the appends adds a bounded number of rewrites, it does not double them."""

    def append(number: int) -> File:
        return wide(rows=4, seed=number)

    short, long = (rewritten_per_byte(n, append, key) for n in (60, 240))
    assert long < short + 6


def test_decisions_do_not_depend_on_the_order_of_the_files() -> None:
    files = base_and(*(wide(seed=s) for s in range(14)))
    order = np.random.default_rng(3).permutation(len(files))
    (mine,) = [d for d in decided([files[i] for i in order]) if d.rewrite]
    (other,) = [d for d in decided(files) if d.rewrite]
    assert sorted(order[mine.files].tolist()) == other.files.tolist()
