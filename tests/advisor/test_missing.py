"""IS NULL, IS NAN and their negations, predicted of a rewrite, against files really written."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog

from bench.replay.table import empty_table
from reconciler.advisor.simulate.layout import Layout
from reconciler.advisor.simulate.merged import merged_whole
from reconciler.advisor.simulate.missing import CLASSES, NULL, counts, held, missing
from reconciler.advisor.simulate.pool import build_pool
from reconciler.advisor.simulate.whatif import simulate
from reconciler.catalog.footers import read_row_groups
from reconciler.catalog.observe import observe_table
from reconciler.plan.ordering import Hilbert, Lexicographic, Ordering, order_rows
from reconciler.queries.demanded import demands
from reconciler.queries.fragments import Fragment, workload_of_fragments
from reconciler.queries.predicate import Comparison, IsNaN, IsNull, Not, Predicate, Ref
from reconciler.queries.read_cost import read_shape
from reconciler.queries.shape import Shape
from reconciler.queries.table_view import TableView, table_view
from reconciler.state.sketch import SketchedFiles, sample_rows
from reconciler.table.filetable import UNKNOWN, ColumnBounds, FileTable
from reconciler.table.schema import Field, Schema, SortColumn
from reconciler.table.values import Kind
from tests.advisor.worlds import DAY
from tests.conftest import sqlite_catalog
from tests.examples import examples

TIME, DEVICE, TEMP, NOTE = 1, 2, 3, 4
NAMES = ("time", "device", "temp", "note")
ASKED: dict[str, Predicate] = {
    "nan": IsNaN(Ref(TEMP)),
    "not nan": Not(IsNaN(Ref(TEMP))),
    "null": IsNull(Ref(NOTE)),
    "not null": Not(IsNull(Ref(NOTE))),
}


def make_rows(count: int, nans: float, nulls: float, only_before: float = 1.0) -> pa.Table:
    """In order of time; NaN and NULL in the given shares of the first part of the rows."""
    random = np.random.default_rng(7)
    early = np.arange(count) < only_before * count
    temp, note = random.normal(20.0, 5.0, count), random.integers(0, 500, count)
    temp[early & (random.random(count) < nans)] = np.nan
    gone = early & (random.random(count) < nulls)
    return pa.table({
        "time": pa.array(np.arange(count)),
        "device": pa.array(random.integers(0, 1_000, count)),
        "temp": pa.array(temp),
        "note": pa.array(note, mask=gone),
    })  # fmt: skip


def stored(folder: Path, pieces: list[pa.Table], counted: bool = True) -> TableView:
    """The pieces as an Iceberg table of a file each, in order of the pieces.

    counted: with the NaN counts that Java's writers leave in the manifest and pyiceberg's do not.
    """
    (folder / "warehouse").mkdir(parents=True)
    config = sqlite_catalog(folder)
    catalog = SqlCatalog(config.name, **dict(config.properties))
    catalog.create_namespace("s")
    table = catalog.create_table("s.t", pieces[0].schema)
    with table.transaction() as transaction:
        for piece in pieces:
            transaction.append(piece)
    files = observe_table(config, ("s", "t"), folder / "cache").files
    files = files.take(np.argsort(files.sequence, kind="stable"))
    assert files.columns[TEMP].nans.tolist() == [UNKNOWN] * len(pieces)
    if counted:
        files = _with_nans(files)
    every = np.arange(len(files))
    sample = sample_rows(SketchedFiles(config, files), every, [TIME, DEVICE, TEMP, NOTE])
    return table_view(files, read_row_groups(config, files, every), sample, 1 << 40, 1_000)


def _with_nans(files: FileTable) -> FileTable:
    found = []
    for path in files.path:
        column = pq.read_table(path.removeprefix("file://"))["temp"]
        found.append(int(np.isnan(column.to_numpy(zero_copy_only=False)).sum()))
    temp = replace(files.columns[TEMP], nans=np.array(found))
    return replace(files, columns={**files.columns, TEMP: temp})


def questions(view: TableView) -> dict[str, Shape]:
    found = {}
    for name, predicate in ASKED.items():
        fragment = Fragment(
            source="log", position=1, table_uuid="u", predicate=predicate, literals=(), moving=(),
            projection=(TEMP, NOTE), weight=1.0, event_ms=DAY, engine="spark",
        )  # fmt: skip
        (found[name],) = demands(workload_of_fragments([fragment]), view.files.schema, DAY)
    return found


def files_read(view: TableView) -> dict[str, int]:
    return {name: int(read_shape(view, asked).files[0]) for name, asked in questions(view).items()}


def sorted_as_spark(rows: pa.Table, ordering: Ordering) -> pa.Table:
    places = []
    for column in ordering.key:
        values = rows[NAMES[column.field_id - 1]]
        null = values.is_null().to_numpy()
        filled = values.fill_null(0).to_numpy()
        ranks = np.unique(filled, return_inverse=True)[1].astype(np.int64)
        places.append(np.where(null, -1, ranks))  # numpy ranks NaN above all, as Spark does
    return rows.take(order_rows(ordering, places, np.arange(len(rows))))


def cut(rows: pa.Table, count: int) -> list[pa.Table]:
    edges = np.linspace(0, len(rows), count + 1).astype(int)
    return [rows.slice(a, b - a) for a, b in pairwise(edges)]


def predicted_and_true(
    folder: Path,
    rows: pa.Table,
    key: tuple[SortColumn, ...],
    curve: type[Ordering] = Lexicographic,
    *,
    outputs: int = 8,
    chunks: int = 1,
    counted: bool = True,
) -> tuple[dict[str, int], dict[str, int]]:
    """Files that each question reads after the rewrite, predicted and found."""
    before = stored(folder / "before", cut(rows, 8), counted)
    count = len(before.files)
    chunk = np.arange(count) * chunks // count
    pool = build_pool(before, [TIME, DEVICE, TEMP, NOTE])
    assert pool is not None
    layout = Layout(curve(key), int(before.files.bytes.sum() / outputs), 1 << 40, chunk, 1_000)
    size = simulate(layout, pool, ()).written.views[0].files.bytes.sum()
    # A little more: how many rows a row group has changes what they take.
    layout = replace(layout, target_bytes=int(1.03 * size / outputs))
    outcome = simulate(layout, pool, tuple(questions(before).values()))
    predicted = {
        name: int(reading.files[0]) for name, reading in zip(ASKED, outcome.readings, strict=True)
    }
    assert outcome.written.files == outputs
    written = []
    for part in cut(rows, chunks):
        written += cut(sorted_as_spark(part, curve(key)), outputs // chunks)
    return predicted, files_read(stored(folder / "after", written))


@pytest.mark.parametrize("counted", [True, False])
def test_nan_and_null_scattered_over_all_files_are_still_in_all_of_them(tmp_path, counted):
    rows = make_rows(24_000, 0.01, 0.01)
    predicted, true = predicted_and_true(tmp_path, rows, (SortColumn(DEVICE),), counted=counted)
    assert predicted == true == dict.fromkeys(ASKED, 8)


@pytest.mark.parametrize("chunks", [1, 2])
@pytest.mark.parametrize("direction", ["asc", "desc"])
@pytest.mark.parametrize("column", [TEMP, NOTE])
def test_the_sorted_column_s_own_are_at_the_ends_of_each_group(tmp_path, column, direction, chunks):
    """Half of the rows too: then some files hold nothing else."""
    rows = make_rows(16_000, 0.02, 0.55)
    predicted, true = predicted_and_true(
        tmp_path, rows, (SortColumn(column, direction),), chunks=chunks
    )
    own = "nan" if column == TEMP else "null"
    assert true[own] < 8
    for name in ASKED:
        assert true[name] <= predicted[name] <= true[name] + chunks, (name, predicted, true)


def test_nan_and_null_of_one_part_of_the_data_stay_where_the_files_hold_them(tmp_path):
    rows = make_rows(24_000, 0.05, 0.05, only_before=0.25)
    predicted, true = predicted_and_true(tmp_path, rows, (SortColumn(DEVICE),), chunks=4)
    assert predicted == true == {"nan": 2, "not nan": 8, "null": 2, "not null": 8}


def test_nan_and_null_that_go_with_the_key_are_seen_in_the_sample(tmp_path):
    rows = make_rows(24_000, 0.2, 0.2, only_before=0.25)
    shuffled = rows.take(np.random.default_rng(1).permutation(len(rows)))
    predicted, true = predicted_and_true(tmp_path, shuffled, (SortColumn(TIME),))
    assert predicted == true == {"nan": 2, "not nan": 8, "null": 2, "not null": 8}


@pytest.mark.parametrize("share", [0.0004, 0.01, 0.3])
def test_along_a_hilbert_curve_no_file_that_holds_them_is_left_out(tmp_path, share):
    rows = make_rows(24_000, share, share)
    key = (SortColumn(TEMP), SortColumn(DEVICE))
    predicted, true = predicted_and_true(tmp_path, rows, key, Hilbert)
    assert true["nan"] > 0
    assert all(predicted[name] >= true[name] for name in ASKED), (predicted, true)


@pytest.mark.parametrize(("column", "most"), [(TEMP, 1), (DEVICE, 8)])
def test_a_nan_too_rare_to_be_sampled_is_known_from_the_inputs_counts(tmp_path, column, most):
    rows = make_rows(24_000, 0.0, 0.0)
    temp = rows["temp"].to_numpy().copy()
    temp[[1, 9_001, 20_001]] = np.nan
    rows = rows.set_column(2, "temp", pa.array(temp))
    predicted, true = predicted_and_true(tmp_path, rows, (SortColumn(column),))
    assert 1 <= true["nan"] <= predicted["nan"] == most
    assert predicted["null"] == true["null"] == 0


@pytest.mark.parametrize("share", [0.0, 0.02])
def test_merged_files_hold_what_their_inputs_hold(tmp_path, share):
    rows = make_rows(8_000, share, share, only_before=0.25)
    before = stored(tmp_path / "before", cut(rows, 8))
    merged = merged_whole(before, np.arange(8) // 2, 1 << 40)
    assert files_read(merged) == files_read(stored(tmp_path / "after", cut(rows, 4)))
    assert files_read(merged)["nan"] == (1 if share else 0)


def test_a_file_of_nothing_but_null_takes_no_bounds_from_those_it_is_merged_with(tmp_path):
    rows = make_rows(4_000, 0.0, 1.0, only_before=0.25)
    before = stored(tmp_path / "before", cut(rows, 4))
    assert before.files.columns[NOTE].bounded.tolist() == [False, True, True, True]
    merged = merged_whole(before, np.arange(4) // 2, 1 << 40).files.columns[NOTE]
    after = stored(tmp_path / "after", cut(rows, 2)).files.columns[NOTE]
    for name in ("lower", "upper", "has_lower", "has_upper", "nulls"):
        assert getattr(merged, name).tolist() == getattr(after, name).tolist(), name


@settings(max_examples=examples(15), deadline=None)
@given(seed=st.integers(0, 200), direction=st.sampled_from(["asc", "desc"]))
def test_bounds_prove_no_less_than_is_read_of_a_sorted_column_with_null_and_nan(seed, direction):
    random = np.random.default_rng(seed)
    pieces = []
    for low in random.integers(0, 50, 10):
        piece = low + np.floor(random.random(40) * random.integers(1, 40))
        piece[random.random(40) < random.random()] = np.nan
        piece[0] = low
        pieces.append(np.ma.masked_array(piece, random.random(40) < random.random() * 0.8))
    pieces = [p for p in pieces if not p.mask.all() and not np.isnan(p.compressed()).all()]
    columns, records = _zone_maps(pieces), np.array([40] * len(pieces))
    base = _bare(records, columns)
    count = 4
    layout = Layout(
        Lexicographic((SortColumn(TEMP, direction),)), int(np.ceil(base.bytes.sum() / 1.1 / count)),
        1 << 40, np.zeros(len(base), dtype=np.int64), 1_000,
    )  # fmt: skip
    wanted = [_equal_to(float(value)) for value in range(0, 90, 3)]
    asked = demands(workload_of_fragments(wanted), base.schema, DAY)
    proved = simulate(layout, base, asked)
    assert proved is not None
    joined = np.ma.concatenate(pieces)
    place = np.where(joined.mask, -np.inf, np.where(np.isnan(joined.data), np.inf, joined.data))
    ordered = joined[np.argsort(-place if direction == "desc" else place, kind="stable")]
    edges = np.linspace(0, len(ordered), len(proved.written.views[0].files) + 1)
    outputs = [ordered[int(np.floor(a)) : int(np.ceil(b))] for a, b in pairwise(edges)]
    for demand, reading in zip(asked, proved.readings, strict=True):
        for number, literal in enumerate(np.asarray(demand.literals[0])):
            holding = sum(bool((out.compressed() == literal).any()) for out in outputs)
            assert holding <= reading.files[number]


def _equal_to(value: float) -> Fragment:
    return Fragment(
        source="log", position=int(value), table_uuid="u",
        predicate=Comparison(Ref(TEMP), "=", 0), literals=(value,), moving=(None,),
        projection=(TEMP,), weight=1.0, event_ms=DAY, engine="spark",
    )  # fmt: skip


def _zone_maps(pieces: list[np.ma.MaskedArray]) -> ColumnBounds:
    valued = [p.compressed()[~np.isnan(p.compressed())] for p in pieces]
    yes = np.ones(len(pieces), dtype=bool)
    counts = np.array([len(p) for p in pieces])
    return ColumnBounds(
        TEMP, Kind.FLOAT, np.array([v.min() for v in valued]), np.array([v.max() for v in valued]),
        yes, yes, np.array([int(p.mask.sum()) for p in pieces]),
        np.array([int(np.isnan(p.compressed()).sum()) for p in pieces]), counts, counts, ~yes,
    )  # fmt: skip


def _bare(records: np.ndarray, column: ColumnBounds) -> FileTable:
    schema = Schema(1, (Field(TEMP, "temp", "double"),))
    rows = {TEMP: np.zeros(int(records.sum()))}
    files = empty_table(schema).append(rows, int(records[0]), 0, int(records[0])).file_table()
    return replace(files, columns={TEMP: column})


@given(st.data())
def test_what_the_sample_saw_is_always_held_and_what_no_input_has_never_is(data):
    count = data.draw(st.integers(1, 40))
    of = np.array(data.draw(st.lists(st.sampled_from(CLASSES), min_size=count, max_size=count)))
    null = of == NULL
    zeros, records = np.zeros(1, dtype=np.int64), np.array([count])
    column = ColumnBounds(
        NOTE, Kind.INT, zeros, zeros, null[:1], null[:1], np.array([int(null.sum())]), zeros,
        records, records, null[:1],
    )  # fmt: skip
    file, own = np.zeros(count, dtype=np.int64), np.ones(count, dtype=bool)
    rows = missing(column, records, null, np.zeros(count, dtype=bool), file, own)
    order = np.argsort(null, kind="stable") if data.draw(st.booleans()) else np.arange(count)
    starts = np.unique([0, *data.draw(st.lists(st.integers(0, count - 1), max_size=4))])
    lengths = np.diff(np.append(starts, count))
    found = held(counts(rows, order, np.ones(count), starts), lengths)
    seen = np.logical_or.reduceat(null[order], starts)
    assert ((found[NULL] > 0) >= seen).all()
    assert (found[NULL] <= lengths).all()
    assert found[NULL].any() == null.any()
    assert not found[2].any()
