"""Predicted column sizes of merged and sorted files against files really written."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from reconciler.advisor.simulate.layout import Layout
from reconciler.advisor.simulate.merged import merged_whole
from reconciler.advisor.simulate.pool import Pool, build_pool
from reconciler.advisor.simulate.slices import LEAST_SHARE, MOST_SHARE, slice_domain, written_share
from reconciler.advisor.simulate.whatif import simulate
from reconciler.catalog.footers import read_row_groups
from reconciler.catalog.observe import observe_table
from reconciler.plan.ordering import Lexicographic
from reconciler.queries.stored_columns import StoredColumns, stored_columns
from reconciler.queries.table_view import TableView, table_view
from reconciler.state.sketch import SketchedFiles, sample_rows
from reconciler.table.filetable import UNKNOWN
from reconciler.table.row_group_bytes import PAGE_ROWS
from reconciler.table.sampled_domain import sampled_domain
from reconciler.table.schema import SortColumn
from reconciler.table.spans import Spans
from tests.conftest import sqlite_catalog

WIDTHS = {"id": 8, "buyer": 8, "day": 4, "price": 8, "rate": 8, "kind": 24, "clerk": 24, "note": 24,
          "one": 4}  # fmt: skip
SAMPLED = ("day", "kind", "buyer")
NAMES = dict(enumerate(WIDTHS, start=1))
IDS = {name: number for number, name in NAMES.items()}


@functools.cache
def make_rows(count: int, seed: int = 1) -> pa.Table:
    random = np.random.default_rng(seed)
    cents = random.integers(90_000, 50_000_000, count)
    words = np.array(["blue", "deep", "final", "quick", "slow", "fox", "bold", "even", "pinto"])
    notes = words[random.integers(0, len(words), (count, 6))]
    return pa.table(
        {
            "id": pa.array(np.arange(count) * 4 + random.integers(0, 4, count)),
            "buyer": pa.array(random.integers(1, 60_000, count)),
            "day": pa.array(random.integers(8_000, 10_400, count).astype(np.int32)).cast(
                pa.date32()
            ),
            "price": pa.array([Decimal(int(c)).scaleb(-2) for c in cents], pa.decimal128(15, 2)),
            "rate": pa.array(random.random(count)),
            "kind": pa.array(np.array(["air", "mail", "rail", "ship", "truck"])[
                random.integers(0, 5, count)]),
            "clerk": pa.array([f"Clerk#{n:09d}" for n in random.integers(0, 800, count)]),
            "note": pa.array([" ".join(row) for row in notes]),
            "one": pa.array(np.zeros(count, dtype=np.int32)),
        }
    )  # fmt: skip


@dataclass(frozen=True)
class World:
    """An Iceberg table as found, with every footer and sketches of the predicate columns."""

    rows: pa.Table
    view: TableView
    folder: Path


def world(
    folder: Path,
    rows: pa.Table,
    per_file: int,
    sampled: tuple[str, ...],
    as_we_write: Callable[[pa.Table, Path], Any] | None = None,
) -> World:
    """as_we_write: writes the files again, as a rewrite would have, where they are not to be
    pyiceberg's."""
    (folder / "warehouse").mkdir()
    config = sqlite_catalog(folder)
    catalog = SqlCatalog(config.name, **dict(config.properties))
    catalog.create_namespace("s")
    table = catalog.create_table("s.t", rows.schema)
    with table.transaction() as transaction:
        for start in range(0, len(rows), per_file):
            transaction.append(rows.slice(start, per_file))
    seen = observe_table(config, ("s", "t"), folder / "cache")
    order = np.argsort(seen.files.columns[IDS["id"]].lower)
    files = seen.files.take(order)
    every = np.arange(len(files))
    for path in (Path(path.removeprefix("file://")) for path in files.path if as_we_write):
        as_we_write(pq.read_table(path), path)
    footers = read_row_groups(config, files, every)
    sizes = {
        field: np.bincount(footers.file, known).astype(np.int64)
        for field, known in footers.column_sizes.items()
    }
    files = replace(files, column_sizes=sizes)
    sample = sample_rows(SketchedFiles(config, files), every, [IDS[name] for name in sampled])
    return World(rows, table_view(files, footers, sample, 128 << 20), folder)


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., World]:
    """Worlds by their arguments, each written once: that is what takes the time."""

    @functools.cache
    def made(
        rows: int, per_file: int, sampled: tuple[str, ...] = SAMPLED, sorted_by: str = ""
    ) -> World:
        table = make_rows(rows)
        folder = tmp_path_factory.mktemp("world")
        if not sorted_by:
            return world(folder, table, per_file, sampled)
        return world(folder, table.sort_by(sorted_by), per_file, sampled, as_we_write=written)

    return made


def written(rows: pa.Table, path: Path) -> dict[str, int]:
    """Column chunk bytes of one file, written with dictionaries where Java's writer keeps them."""
    first = rows.slice(0, PAGE_ROWS)
    kept = []
    for name, width in WIDTHS.items():
        distinct = pc.count_distinct(first[name]).as_py()
        bits = max(1, int(np.ceil(np.log2(max(distinct, 2)))))
        if distinct * width + len(first) * bits / 8 < len(first) * width:
            kept.append(name)
    pq.write_table(
        rows, path, compression="zstd", use_dictionary=kept, row_group_size=len(rows),
        store_decimal_as_integer=True, dictionary_pagesize_limit=64 << 20,
    )  # fmt: skip
    group = pq.read_metadata(path).row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    return {c.path_in_schema: c.total_compressed_size for c in columns}


def sizes_of(view: TableView) -> dict[str, int]:
    return {NAMES[field]: int(known.sum()) for field, known in view.files.column_sizes.items()}


CASES = [(40, 1_500, 0.08), (15, 10_000, 0.08), (60, 200, 0.20)]
"""Files, rows of each, and how far the sum of all columns may be off: of files of a few kilobytes
the compressor's own learning is a great part."""

SMALL = 0.02
"""Columns are judged one by one where they are more than this share of all."""


@pytest.mark.parametrize(("files", "per_file", "within"), CASES)
def test_merged_files_take_the_column_bytes_that_were_predicted(
    worlds, tmp_path, files, per_file, within
):
    found = worlds(files * per_file, per_file)
    merged = merged_whole(found.view, np.zeros(files, dtype=np.int64), 128 << 20)
    _compare(found, sizes_of(merged), written(found.rows, tmp_path / "merged.parquet"), within)


@pytest.mark.parametrize(("files", "per_file", "within"), CASES)
def test_sorted_files_take_the_column_bytes_that_were_predicted(
    worlds, tmp_path, files, per_file, within
):
    found = worlds(files * per_file, per_file)
    layout = Layout(
        Lexicographic((SortColumn(IDS["day"]),)), 1 << 40, 1 << 40, np.zeros(files, dtype=np.int64)
    )
    after = simulate(layout, _pool(found), ()).written.views[0]
    actual = written(found.rows.sort_by("day"), tmp_path / "sorted.parquet")
    _compare(found, sizes_of(after), actual, within)


@pytest.mark.parametrize("files", [1, 3, 7])
def test_output_files_are_as_many_as_sorted_rows_fill(worlds, tmp_path, files):
    """Not as many as the inputs' bytes would: forty files repeat their dictionaries."""
    found = worlds(60_000, 1_500)
    size = sum(written(found.rows.sort_by("day"), tmp_path / "sorted.parquet").values())
    assert found.view.files.total_bytes > 1.4 * size
    key, every = (SortColumn(IDS["day"]),), np.zeros(len(found.view.files), dtype=np.int64)
    layout = Layout(Lexicographic(key), size // files, 1 << 40, every)
    outcome = simulate(layout, _pool(found), ())
    assert outcome.written.files == files
    assert outcome.written.views[0].files.total_bytes == pytest.approx(size, rel=0.08)


@pytest.mark.parametrize(("key", "files"), [("day", 8.0), ("day", 10.75), ("buyer", 4.75)])
def test_as_many_files_are_simulated_as_what_they_repeat_fills(worlds, tmp_path, key, files):
    """One file fewer repeats fewer dictionaries, so that the rows still fit into the others."""
    found = worlds(60_000, 1_500)
    size = sum(written(found.rows.sort_by("day"), tmp_path / "sorted.parquet").values())
    pool, every = _pool(found), np.zeros(len(found.view.files), dtype=np.int64)
    layout = Layout(Lexicographic((SortColumn(IDS[key]),)), int(size / files), 1 << 40, every)
    outcome = simulate(layout, pool, ()).written
    sizes = outcome.views[0].files.column_sizes
    share = written_share(pool.files, pool.stored, sizes, outcome.files)
    assert outcome.files == layout.files_of(share * pool.files.live_bytes.sum())


@pytest.mark.parametrize("per_file", [200, 600])
def test_footers_of_merged_files_are_not_counted_as_written(tmp_path, per_file):
    rows = make_rows(9_000)
    found = world(tmp_path, rows, per_file, SAMPLED)
    view = found.view
    known = stored_columns(view)
    sizes = merged_whole(view, np.zeros(len(view.files), dtype=np.int64), 128 << 20).files
    share = written_share(view.files, known, sizes.column_sizes, 1)
    written(rows, tmp_path / "merged.parquet")
    size = (tmp_path / "merged.parquet").stat().st_size
    assert share == pytest.approx(size / view.files.total_bytes, rel=0.35)
    half = replace(view.files, position_deleted=view.files.records // 2)
    merged = {field: size / 2.0 for field, size in sizes.column_sizes.items()}
    assert written_share(half, known, merged, 1) == pytest.approx(share, abs=0.01)


def test_what_no_footer_or_manifest_tells_is_taken_to_keep_its_bytes(tmp_path):
    """Metrics mode "none" leaves a column out of every manifest entry."""
    found = world(tmp_path, make_rows(12_000), 600, SAMPLED)
    files, known = found.view.files, stored_columns(found.view)
    every = np.zeros(len(files), dtype=np.int64)
    sizes = merged_whole(found.view, every, 128 << 20).files.column_sizes
    share = written_share(files, known, sizes, 1)
    assert share < 0.8
    note = IDS["note"]
    incomplete = {field: size for field, size in files.column_sizes.items() if field != note}
    once = {**files.column_sizes, note: np.where(every == every[0], UNKNOWN, 0)}
    for column_sizes in (incomplete, once):
        less = written_share(replace(files, column_sizes=column_sizes), known, sizes, 1)
        assert share < less < 1.0
    nothing = StoredColumns({}, {}, {}, {})
    assert written_share(files, nothing, sizes, 1) == 1.0
    assert written_share(files, known, files.column_sizes, len(files)) == 1.0
    assert written_share(files, known, {f: n * 9 for f, n in sizes.items()}, 1) == MOST_SHARE
    assert written_share(files, known, {f: n * 0 for f, n in sizes.items()}, 1) == LEAST_SHARE
    none = files.take(np.zeros(0, dtype=np.int64))
    assert written_share(none, known, sizes, 0) == 1.0


def _pool(found: World) -> Pool:
    pool = build_pool(found.view, [IDS[name] for name in SAMPLED])
    assert pool is not None
    return pool


def _compare(
    found: World, predicted: dict[str, int], actual: dict[str, int], within: float
) -> None:
    now = sizes_of(found.view)
    shown = {name: (now[name], predicted[name], actual[name]) for name in now}
    assert sum(predicted.values()) == pytest.approx(sum(actual.values()), rel=within), shown
    assert sum(actual.values()) < 0.85 * sum(now.values())
    for name, size in actual.items():
        assert predicted[name] <= 1.01 * max(now[name], size) + 1, shown
        assert predicted[name] == pytest.approx(
            size, rel=2.0 * within + 0.1, abs=SMALL * sum(now.values())
        ), shown


@pytest.mark.parametrize("sampled", [SAMPLED, ("rate",)])
def test_writing_the_same_files_again_is_predicted_to_change_next_to_nothing(tmp_path, sampled):
    found = world(tmp_path, make_rows(30_000), 5_000, sampled, as_we_write=written)
    now = sizes_of(found.view)
    again = sizes_of(merged_whole(found.view, np.arange(6), 128 << 20))
    for name, size in now.items():
        assert again[name] <= size + 6
        assert again[name] == pytest.approx(size, rel=0.05, abs=0.002 * sum(now.values())), name


def test_without_footers_merged_columns_are_taken_to_keep_their_bytes(tmp_path):
    found = world(tmp_path, make_rows(6_000), 1_000, SAMPLED)
    bare = table_view(found.view.files, None, None, 128 << 20)
    merged = merged_whole(bare, np.zeros(6, dtype=np.int64), 128 << 20)
    assert sizes_of(merged) == sizes_of(bare)


@pytest.mark.parametrize("now", ["day", "kind", "clerk", "buyer"])
@pytest.mark.parametrize("then", ["day", "clerk", "buyer"])
def test_rows_that_leave_the_order_of_one_column_for_another_s_cost_it_its_runs(
    worlds, tmp_path, now, then
):
    """Else a sorted table would for ever seem to be better sorted by some other column."""
    sampled = (*SAMPLED, "clerk")
    found = worlds(60_000, 60_000, sampled, now)
    pool = build_pool(found.view, [IDS[name] for name in sampled])
    assert pool is not None
    key = (SortColumn(IDS[then]),)
    layout = Layout(Lexicographic(key), 1 << 40, 1 << 40, np.zeros(1, dtype=np.int64))
    predicted = sizes_of(simulate(layout, pool, ()).written.views[0])
    actual = written(found.rows.sort_by(then), tmp_path / "sorted.parquet")
    judged = sum(actual[name] for name in sampled)
    assert sum(predicted[name] for name in sampled) == pytest.approx(judged, rel=0.2), (
        sizes_of(found.view), predicted, actual,
    )  # fmt: skip


def drawn(slices: list[np.ndarray], rows: float = 300_000.0) -> np.ndarray:
    """Estimated domains of slices that were sampled as given."""
    values = np.concatenate(slices)
    ranks = np.unique(values, return_inverse=True)[1].reshape(-1).astype(np.int64)
    starts = np.cumsum([0, *(len(one) for one in slices[:-1])]).astype(np.int64)
    native = np.ones(len(ranks), dtype=bool)
    return sampled_domain(ranks, native, starts, np.full(len(slices), rows))


@pytest.mark.parametrize("discrete", [False, True])
def test_files_over_the_same_range_share_their_values(discrete: bool) -> None:
    """Their extremes differ at random, and so do the ranks of these; side by side they add up."""
    random = np.random.default_rng(5)
    file, starts = np.arange(12), np.zeros(1, dtype=np.int64)
    low, high = random.permutation(12).astype(float), 12.0 + random.permutation(12)
    beside = 2.0 * np.arange(12)
    for first, last, grows in ((low, high, discrete), (beside, beside + 1.0, True)):
        span = Spans(first, last, float((last - first + 1.0).mean()), discrete)
        found = slice_domain(StoredColumns({}, {1: 5.0}, {1: span}, {}), 1, file, starts)
        assert (found > 5.0).all() == grows


def test_few_rows_without_a_repetition_do_not_mean_few_values() -> None:
    """20 slices of 200 rows out of the same 200,000 keys: hardly a key comes twice in a slice."""
    random = np.random.default_rng(3)
    found = drawn([random.integers(0, 200_000, 200) for _ in range(20)])
    assert np.median(found) == pytest.approx(200_000, rel=0.5)


def test_slices_whose_rows_repeat_have_few_values_of_their_own() -> None:
    random = np.random.default_rng(4)
    found = drawn([random.integers(1_000 * n, 1_000 * (n + 1), 200) for n in range(20)])
    assert (found < 4_000).all()
    flags = drawn([random.integers(0, 2, 200) + n // 10 for n in range(20)])
    assert (flags < 3).all()


def test_values_are_counted_alike_in_cells_and_by_a_sort(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(6)
    slices = [random.integers(0, 40 + 300 * n, 150 + 60 * n) for n in range(8)]
    in_cells = drawn(slices)
    monkeypatch.setattr("reconciler.table.sampled_domain.MOST_CELLS", 0)
    assert drawn(slices).tolist() == in_cells.tolist()


def test_times_of_rows_in_another_order_take_the_bits_of_their_distance(tmp_path):
    """Rows of one buyer stay in order of arrival, further apart than those of a file."""
    random = np.random.default_rng(3)
    count = 40_000
    at = np.sort(random.integers(0, 14 * 86_400_000_000, count))
    rows = pa.table({
        "id": pa.array(at), "buyer": pa.array(random.integers(0, 400, count)),
    })  # fmt: skip
    found = world(tmp_path, rows, 4_000, ("id", "buyer"))
    pool = build_pool(found.view, [2])
    assert pool is not None
    layout = Layout(Lexicographic((SortColumn(2),)), 1 << 40, 1 << 40, np.zeros(10, dtype=np.int64))
    predicted = sizes_of(simulate(layout, pool, ()).written.views[0])
    order = pc.sort_indices(rows, [("buyer", "ascending"), ("id", "ascending")])
    path = tmp_path / "sorted.parquet"
    pq.write_table(rows.take(order), path, compression="zstd", use_dictionary=["buyer"])
    actual = pq.read_metadata(path).row_group(0).column(0).total_compressed_size
    assert predicted["id"] == pytest.approx(actual, rel=0.12)
    by_time = replace(layout, ordering=Lexicographic((SortColumn(1),)))
    pool = build_pool(found.view, [1, 2])
    assert pool is not None
    kept = sizes_of(simulate(by_time, pool, ()).written.views[0])
    assert kept["id"] <= sizes_of(found.view)["id"]


@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("arrived", ["one after the other", "side by side"])
def test_unique_keys_that_rows_are_sorted_by_gain_the_order_that_other_numbers_lose(
    tmp_path, arrived, dictionary
):
    """Files hold `id` in ascending order, and `buyer`, once each, in none."""
    random = np.random.default_rng(5)
    count, per_file = 40_000, 4_000
    numbers = np.arange(count) * 7 + random.integers(0, 7, count)
    if arrived == "side by side":
        numbers = np.sort(random.permutation(numbers).reshape(-1, per_file), axis=1).reshape(-1)
    rows = pa.table({"id": pa.array(numbers), "buyer": pa.array(random.permutation(count))})
    plainly = functools.partial(pq.write_table, compression="zstd", use_dictionary=False)
    found = world(tmp_path, rows, per_file, ("buyer",), as_we_write=None if dictionary else plainly)
    pool = build_pool(found.view, [2])
    assert pool is not None
    layout = Layout(Lexicographic((SortColumn(2),)), 1 << 40, 1 << 40, np.zeros(10, dtype=np.int64))
    predicted = sizes_of(simulate(layout, pool, ()).written.views[0])
    path = tmp_path / "sorted.parquet"
    plainly(rows.sort_by("buyer"), path)
    footer = pq.read_metadata(path).row_group(0)
    for number, name in enumerate(rows.column_names):
        size = footer.column(number).total_compressed_size
        assert predicted[name] == pytest.approx(size, rel=0.15), name


def test_a_dictionary_that_a_writer_gave_up_halfway_does_not_make_small_row_groups_denser(tmp_path):
    """pyiceberg lists a megabyte of values before it writes the rest of a column plainly."""
    random = np.random.default_rng(3)
    count = 300_000
    rows = pa.table({
        "id": np.arange(count) // 80, "rate": random.random(count),
        "clerk": [f"n{number}" for number in random.integers(0, 10**9, count)],
    })  # fmt: skip
    found = world(tmp_path, rows, count, ("id",))
    pool = build_pool(found.view, [1])
    assert pool is not None
    layout = Layout(
        Lexicographic((SortColumn(1),)), 1 << 40, 100 << 10, np.zeros(1, dtype=np.int64)
    )
    predicted = simulate(layout, pool, ()).written.views[0].files.column_sizes
    path = tmp_path / "small.parquet"
    pq.write_table(rows, path, row_group_size=8_000, compression="zstd", use_dictionary=["id"])
    footer = pq.read_metadata(path)
    for column in (1, 2):
        groups = map(footer.row_group, range(footer.num_row_groups))
        actual = sum(group.column(column).total_compressed_size for group in groups)
        assert float(predicted[column + 1].sum()) == pytest.approx(actual, rel=0.2)


@pytest.mark.parametrize("share", [0.5, 0.92, 0.99])
def test_a_column_that_is_mostly_null_takes_what_its_values_do(tmp_path, share):
    """Also in smaller row groups than now: its few values repeat no more than those of others."""
    random = np.random.default_rng(5)
    count, each = 40_000, 5_000
    buyers = pa.array(random.integers(0, 10**6, count), mask=random.random(count) < share)
    rows = pa.table({"id": pa.array(random.permutation(count)), "buyer": buyers})
    found = world(tmp_path, rows, 10_000, ("id",))
    pool = build_pool(found.view, [1])
    assert pool is not None
    path = tmp_path / "sorted.parquet"
    pq.write_table(
        rows.sort_by("id"), path, compression="zstd", use_dictionary=False, row_group_size=each
    )
    footer = pq.read_metadata(path)
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    actual = sum(group.column(1).total_compressed_size for group in groups)
    row = sum(group.column(n).total_compressed_size for group in groups for n in (0, 1)) / count
    layout = Layout(
        Lexicographic((SortColumn(1),)), 1 << 40, int(row * each), np.zeros(4, dtype=np.int64)
    )
    predicted = sizes_of(simulate(layout, pool, ()).written.views[0])["buyer"]
    assert predicted == pytest.approx(actual, rel=0.25)


def test_lists_keep_their_bytes(tmp_path):
    """How many values a row has is in no footer, so that an index shows nothing."""
    tags = [[f"t{x}" for x in range(number % 4)] for number in range(3_000)]
    rows = pa.table({"k": list(range(3_000)), "tags": tags})
    catalog = sqlite_catalog(tmp_path)
    (tmp_path / "warehouse").mkdir(exist_ok=True)
    made = SqlCatalog(catalog.name, **dict(catalog.properties))
    made.create_namespace("db")
    table = made.create_table("db.t", rows.schema)
    table.append(rows)
    files = observe_table(catalog, ("db", "t"), tmp_path / "cache").files
    view = table_view(files, read_row_groups(catalog, files, np.arange(1)), None, 128 << 20)
    element = next(f.field_id for f in files.schema.fields if f.repeated)
    assert element in files.column_sizes
    assert element not in stored_columns(view).columns
