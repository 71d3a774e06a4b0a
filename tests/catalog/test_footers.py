"""Footers and sketches: what the files hold, in the domains that bounds and literals live in."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.types import DecimalType, DoubleType, LongType, NestedField, StructType

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog import sketch_reader
from reconciler.catalog.footers import GroupStats, read_footer, read_row_groups, zone_map
from reconciler.catalog.parquet import Leaf, column_at, domain_array
from reconciler.errors import UserError
from reconciler.state import sketch
from reconciler.state.sketch import SketchedFiles, sample_rows
from reconciler.state.state import StateStore
from reconciler.table.filetable import UNKNOWN
from reconciler.table.observation import Observation
from reconciler.table.schema import Field, Schema
from reconciler.table.values import Kind
from tests.catalog.test_observe import EVERYTHING, rows, simple
from tests.encoding import encode
from tests.said import Said

Look = Callable[..., Observation]


def every(seen: Observation) -> np.ndarray:
    return np.arange(len(seen.files))


def test_row_group_bounds_hold_their_rows_and_agree_with_the_manifest(
    catalog: Any, look: Look, config: CatalogConfig
) -> None:
    table = catalog.create_table(
        "sales.t", EVERYTHING, properties={"write.parquet.row-group-limit": "4"}
    )
    for start in range(0, 20, 10):
        table.append(rows(table, range(start, start + 10)))
    seen = look()
    found = read_row_groups(config, seen.files, every(seen))
    assert found.has_footer.all() and (found.footer_bytes > 0).all()
    assert np.bincount(found.file).tolist() == [3, 3]
    assert found.records.tolist() == [4, 4, 2] * 2
    for field_id, column in seen.files.columns.items():
        groups = found.columns[field_id]
        for row in range(len(seen.files)):
            mine = (found.file == row) & groups.bounded
            if not column.bounded[row] or column.truncated[row]:
                continue
            assert groups.lower[mine].tolist(), field_id
            assert min(groups.lower[mine].tolist()) == column.lower[row], field_id
            assert max(groups.upper[mine].tolist()) == column.upper[row], field_id
            assert groups.nulls[mine].sum() <= column.nulls[row] or column.nulls[row] == UNKNOWN
    sizes = seen.files.columns[3].sizes
    by_file = np.bincount(found.file, weights=found.column_sizes[3])
    assert np.array_equal(by_file.astype(np.int64), sizes)


def test_only_the_chosen_files_have_a_footer(
    catalog: Any, look: Look, config: CatalogConfig
) -> None:
    table = catalog.create_table("sales.t", pa.schema([("a", pa.int64())]))
    for number in range(3):
        table.append(simple(table, a=[number]))
    seen = look()
    found = read_row_groups(config, seen.files, np.array([2]))
    assert found.has_footer.tolist() == [False, False, True]
    assert found.footer_bytes.tolist()[:2] == [UNKNOWN, UNKNOWN]
    assert found.file.tolist() == [2]
    assert not read_row_groups(config, seen.files, np.array([], dtype=np.int64)).has_footer.any()


def test_renamed_added_and_promoted_columns_are_found_by_field_id(
    catalog: Any, look: Look, config: CatalogConfig
) -> None:
    schema = pa.schema([("a", pa.int32()), ("f", pa.float32()), ("n", pa.decimal128(9, 2))])
    table = catalog.create_table("sales.t", schema)
    table.append(simple(table, a=[-3, 7], f=[-0.5, 2.5], n=[Decimal("-1.25"), Decimal("2")]))
    with table.update_schema() as update:
        update.rename_column("a", "b")
        update.update_column("a", LongType())
        update.update_column("f", DoubleType())
        update.update_column("n", DecimalType(38, 2))
        update.add_column("extra", LongType())
    seen = look()
    found = read_row_groups(config, seen.files, every(seen))
    assert (found.columns[1].lower[0], found.columns[1].upper[0]) == (-3, 7)
    assert (found.columns[2].lower[0], found.columns[2].upper[0]) == (-0.5, 2.5)
    assert found.columns[3].kind is Kind.BYTES
    assert found.columns[3].lower[0] == encode("decimal(38, 2)", "-1.25")
    assert 4 not in found.columns
    sample = sample_rows(SketchedFiles(config, seen.files), every(seen), [1, 2, 3, 4])
    assert sample.values[1].tolist() == [-3, 7]
    assert sample.values[3].tolist() == [
        encode("decimal(38, 2)", "-1.25"), encode("decimal(38, 2)", "2"),
    ]  # fmt: skip
    assert sample.null[4].all()


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_time_units_of_other_writers_are_converted_outwards(tmp_path: Path, unit: str) -> None:
    from pyiceberg.io.pyarrow import PyArrowFileIO

    from reconciler.catalog.footers import read_footer
    from reconciler.table.schema import Field, Schema

    moment = 1_700_000_000_123
    scale = {"ms": 1, "us": 10**3, "ns": 10**6}[unit]
    values = pa.array([moment * scale, (moment + 5) * scale + (1 if unit == "ns" else 0)])
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"ts": values.cast(pa.timestamp(unit))}), path, coerce_timestamps=None)
    schema = Schema(0, (Field(1, "ts", "timestamp"),))
    footer = read_footer(PyArrowFileIO(), f"file://{path}", schema)
    chunk = footer.groups[0].chunks[1]
    assert chunk.lower == moment * 1000
    assert chunk.upper == (moment + 5) * 1000 + (1 if unit == "ns" else 0)


def test_a_sample_is_systematic_joint_and_weighted(
    catalog: Any, look: Look, config: CatalogConfig
) -> None:
    table = catalog.create_table("sales.t", pa.schema([("a", pa.int64()), ("b", pa.int64())]))
    values = list(range(10_000))
    table.append(simple(table, a=values, b=[-v if v % 3 else None for v in values]))
    table.append(simple(table, a=[1, 2, 3], b=[-1, -2, None]))
    seen = look()
    sample = sample_rows(SketchedFiles(config, seen.files), every(seen), [1, 2])
    big = int(np.argmax(seen.files.records))
    assert np.bincount(sample.file).tolist() in ([1024, 3], [3, 1024])
    chosen = sample.file == big
    assert abs(sample.weight[chosen].sum() - 10_000) < 1e-6
    assert sample.weight[~chosen].tolist() == [1.0, 1.0, 1.0]
    assert np.diff(sample.values[1][chosen]).min() >= 9
    known = ~sample.null[2]
    assert np.array_equal(sample.values[2][known], -sample.values[1][known])
    assert np.array_equal(sample.null[2], sample.values[1] % 3 == 0)


def test_every_type_is_sampled_in_its_domain(
    catalog: Any, look: Look, config: CatalogConfig
) -> None:
    table = catalog.create_table("sales.t", EVERYTHING)
    data = rows(table, range(16))
    table.append(data)
    seen = look()
    ids = sorted(seen.files.columns)
    sample = sample_rows(SketchedFiles(config, seen.files), every(seen), ids)
    for field_id in ids:
        field = seen.schema.by_id[field_id]
        top, _, member = field.name.partition(".")
        expected = data.column(top).to_pylist()
        if member:
            expected = [None if value is None else value[member] for value in expected]
        for position, value in enumerate(expected):
            assert sample.null[field_id][position] == (value is None), field.name
            if value is None or value != value:
                continue
            if hasattr(value, "bytes"):
                value = value.bytes
            wanted = encode(field.type, value)
            wanted = wanted[:64].rstrip(b"\0") if isinstance(wanted, bytes) else wanted
            assert sample.values[field_id][position] == wanted, field.name


def test_sketches_are_kept_and_files_are_not_opened_again(
    catalog: Any, look: Look, config: CatalogConfig, tmp_path: Path
) -> None:
    table = catalog.create_table("sales.t", pa.schema([("a", pa.int64()), ("b", pa.string())]))
    table.append(simple(table, a=[1, 2, 3], b=["x", None, "z"]))
    seen = look()
    store = StateStore(tmp_path / "state")
    first = sample_rows(SketchedFiles(config, seen.files, store, seen.uuid), every(seen), [1, 2])
    Path(seen.files.path[0].removeprefix("file://")).unlink()
    again = sample_rows(SketchedFiles(config, seen.files, store, seen.uuid), every(seen), [2])
    assert again.values[2].tolist() == first.values[2].tolist() == [b"x", b"", b"z"]
    assert again.null[2].tolist() == [False, True, False]


def test_sketches_whose_rows_were_chosen_otherwise_are_taken_anew(
    catalog: Any,
    look: Look,
    config: CatalogConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = catalog.create_table("sales.t", pa.schema([("a", pa.int64())]))
    table.append(simple(table, a=list(range(10_000))))
    seen, store = look(), StateStore(tmp_path / "state")

    def take() -> list[int]:
        found = sample_rows(SketchedFiles(config, seen.files, store, seen.uuid), every(seen), [1])
        return list(found.values[1].tolist())

    first = take()
    for module in (sketch_reader, sketch):
        monkeypatch.setattr(module, "SAMPLE_ROWS", 10)
    assert take() == first
    monkeypatch.setattr(sketch, "VERSION", sketch.VERSION + 1)
    assert len(take()) == 10
    assert len(take()) == 10


def test_a_missing_data_file_is_named_with_what_to_do(
    catalog: Any, look: Look, config: CatalogConfig, said: Said
) -> None:
    table = catalog.create_table("sales.t", pa.schema([("a", pa.int64())]))
    table.append(simple(table, a=[1]))
    seen = look()
    path = Path(seen.files.path[0].removeprefix("file://"))
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    for action in (
        lambda: read_row_groups(config, seen.files, every(seen)),
        lambda: sample_rows(SketchedFiles(config, seen.files), every(seen), [1]),
    ):
        with pytest.raises(UserError) as raised:
            action()
        said(raised.value)
        assert path.name in raised.value.what
    path.unlink()
    with pytest.raises(UserError) as raised:
        read_row_groups(config, seen.files, every(seen))
    said(raised.value)
    assert raised.value.do


def test_files_without_field_ids_are_matched_by_name(
    catalog: Any, look: Look, config: CatalogConfig, tmp_path: Path
) -> None:
    table = catalog.create_table("sales.t", pa.schema([("a", pa.int64()), ("d", pa.date32())]))
    path = tmp_path / "imported.parquet"
    data = pa.table({"d": [dt.date(2024, 1, 2), dt.date(2024, 2, 3)], "a": [5, 6]})
    pq.write_table(data, path)
    table.add_files([f"file://{path}"])
    seen = look()
    found = read_row_groups(config, seen.files, every(seen))
    assert (found.columns[1].lower[0], found.columns[1].upper[0]) == (5, 6)
    assert found.columns[2].lower[0] == encode("date", dt.date(2024, 1, 2))
    assert sample_rows(SketchedFiles(config, seen.files), every(seen), [1]).values[1].tolist() == [
        5,
        6,
    ]


def test_files_without_field_ids_are_matched_by_the_names_their_columns_had(
    catalog: Any, look: Look, config: CatalogConfig, tmp_path: Path
) -> None:
    table = catalog.create_table("sales.t", pa.schema([("a", pa.int64()), ("b", pa.int64())]))
    path = tmp_path / "imported.parquet"
    inner = pa.array([{"x": 1}, {"x": 2}], pa.struct([("x", pa.int64())]))
    pq.write_table(pa.table({"a": [5, 6], "b": [0, 1], "s": inner}), path)
    with table.update_schema() as update:
        update.add_column("s", StructType(NestedField(10, "x", LongType())))
    table.add_files([f"file://{path}"])
    with table.update_schema() as update:
        update.rename_column("a", "renamed")
        update.rename_column("s.x", "y")
    seen = look()
    ids = {field.name: field.field_id for field in seen.schema.fields}
    found = read_row_groups(config, seen.files, every(seen))
    assert found.columns[ids["renamed"]].upper.tolist() == [6]
    assert found.columns[ids["s.y"]].upper.tolist() == [2]
    assert sample_rows(SketchedFiles(config, seen.files), every(seen), [1]).values[1].tolist() == [
        5,
        6,
    ]


@pytest.mark.parametrize("allowed", [16 << 20, 0])
def test_a_sorted_file_is_sampled_over_all_its_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: int
) -> None:
    """One row group of it knows nothing of the others' values: they were taken for not there."""
    monkeypatch.setattr(sketch_reader, "GROUP_BYTES", allowed)
    values = [None] * 4_000 + list(range(4_000))
    names = [None if value is None else f"key-{value:05d}" for value in values]
    table = pa.table({"k": pa.array(values, pa.int64()), "s": pa.array(names)})
    found = _sketch_of(tmp_path, table, Field(1, "k", "long"), Field(2, "s", "string"))
    assert len(found) == sketch_reader.SAMPLE_ROWS
    for field_id in (1, 2):
        assert found.null[field_id].tolist() == [True] * 512 + [False] * 512
    assert found.values[1][512:] == pytest.approx(
        np.arange(512) * 7.8 + 4, abs=8 if allowed else 1_000
    )
    real = {name.encode() for name in names if name is not None}
    drawn = found.values[2][512:]
    for number, part in enumerate(np.split(drawn, 4)):
        low, high = f"key-{number * 1_000:05d}".encode(), f"key-{number * 1_000 + 999:05d}".encode()
        assert (part >= low).all() and (part <= high).all()
        assert len(set(part.tolist())) == 128
        assert allowed == 0 or set(part.tolist()) <= real


def test_row_groups_that_hold_the_same_values_lend_each_other_what_they_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Moved by a little, equal values of two row groups would look like different ones."""
    monkeypatch.setattr(sketch_reader, "GROUP_BYTES", 0)
    random = np.random.default_rng(3)
    cities = np.array([f"city {number:03d}" for number in range(200)])
    price = random.integers(0, 1_000, 20_000) * 100
    table = pa.table({"city": cities[random.integers(0, 200, 20_000)], "price": price})
    found = _sketch_of(tmp_path, table, Field(1, "city", "string"), Field(2, "price", "long"))
    assert set(found.values[1].tolist()) <= {city.encode() for city in cities}
    assert not (found.values[2] % 100).any()


@pytest.mark.parametrize("allowed", [16 << 20, 30_000, 0])
def test_no_row_of_a_file_is_sampled_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: int
) -> None:
    """Repetitions would be taken for few distinct values, and these for small columns."""
    monkeypatch.setattr(sketch_reader, "GROUP_BYTES", allowed)
    number = np.random.default_rng(4).permutation(64_000)
    found = _sketch_of(tmp_path, pa.table({"id": number}), Field(1, "id", "long"))
    assert len(np.unique(found.values[1])) >= (1_024 if allowed else 990)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("statistics", [True, False, ["long", "string"]])
@pytest.mark.parametrize("group_rows", [300, 1_999])
def test_rows_of_every_type_are_lent_within_the_bounds_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statistics: Any, group_rows: int
) -> None:
    monkeypatch.setattr(sketch_reader, "GROUP_BYTES", 0)
    random, count = np.random.default_rng(5), 2_000
    wide = sorted(Decimal(int(x)).scaleb(-2) for x in random.integers(-(10**18), 10**18, count))
    texts = sorted("é" * int(x * 80) + str(x) if x > 0.3 else "" for x in random.random(count))
    columns = {
        "long": pa.array(np.sort(random.integers(-(2**63), 2**63 - 1, count))),
        "int": pa.array([None] * count, pa.int32()),
        "double": pa.array(np.where(random.random(count) < 0.1, np.inf, 1e308)),
        "float": pa.array(np.full(count, np.nan, dtype=np.float32)),
        "string": pa.array([None if x % 7 == 0 else text for x, text in enumerate(texts)]),
        "binary": pa.array([bytes(int(x * 4)) + b"\1\0" for x in random.random(count)]),
        "uuid": pa.array(sorted(random.bytes(16) for _ in range(count)), pa.binary(16)),
        "decimal(38, 2)": pa.array(wide, pa.decimal128(38, 2)),
        "date": pa.array(np.sort(random.integers(0, 20_000, count)).astype(np.int32)).cast(
            pa.date32()
        ),
        "timestamp_ns": pa.array(np.sort(random.integers(0, 10**18, count)), pa.timestamp("ns")),
        "boolean": pa.array(random.random(count) < 0.5),
    }
    fields = [Field(number, kind, kind) for number, kind in enumerate(columns, start=1)]
    path = str(tmp_path / "file.parquet")
    pq.write_table(pa.table(columns), path, row_group_size=group_rows, write_statistics=statistics)
    schema = Schema(0, tuple(fields))
    found = sketch_reader.sketch_file(PyArrowFileIO(), path, schema, fields)
    groups = read_footer(PyArrowFileIO(), path, schema).groups
    judged = 0
    for field in fields:
        bounds, here = zone_map(field, groups), found.values[field.field_id]
        assert len(here) == len(found) == sketch_reader.SAMPLE_ROWS
        here = here[~found.null[field.field_id]]
        if bounds.bounded.all() and len(here):
            judged += 1
            assert (here >= np.sort(bounds.lower)[0]).all(), field
            assert (here <= np.sort(bounds.upper)[-1]).all(), field
    assert judged >= (8 if statistics is True else 0)
    if statistics is True:
        assert found.null[2].all() and 0.13 < found.null[5].mean() < 0.16


def _sketch_of(tmp_path: Path, table: pa.Table, *fields: Field) -> sketch_reader.Sketch:
    path = str(tmp_path / "file.parquet")
    pq.write_table(table, path, row_group_size=1_000)
    return sketch_reader.sketch_file(PyArrowFileIO(), path, Schema(0, fields), fields)


def test_the_row_groups_of_a_sketch_are_evenly_spaced_and_always_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "wide.parquet")
    random = np.random.default_rng(1)
    rows = pa.table({"k": random.random(8_000), "other": random.random(8_000)})
    pq.write_table(rows, path, row_group_size=1_000, use_dictionary=False, compression="none")
    fields = (Field(1, "k", "double"), Field(2, "other", "double"))
    one, both = (
        read_footer(PyArrowFileIO(), path, Schema(0, chosen)).groups
        for chosen in (fields[:1], fields)
    )
    monkeypatch.setattr(sketch_reader, "GROUP_BYTES", 33_000)  # of 8,000 bytes each
    chosen = sketch_reader.chosen_groups(one, path).tolist()
    assert chosen in ([0, 2, 4, 6], [1, 3, 5, 7])
    assert chosen == sketch_reader.chosen_groups(one, path).tolist()
    assert len(sketch_reader.chosen_groups(both, path)) == 2


def test_columns_that_a_writer_in_rust_stored_as_views_can_be_sampled() -> None:
    texts = pa.table({"s": pa.array(["a", None, "b"], pa.string_view())})
    column = column_at(texts, Leaf(0, ("s",), False))
    values, null = domain_array(Field(1, "s", "string"), column.take(pa.array([2, 1])))
    assert (values.tolist(), null.tolist()) == ([b"b", b""], [False, True])


def test_a_file_with_views_of_strings_is_sampled(tmp_path: Path) -> None:
    """Arrow's schema in the footer asks for views, from which Arrow cannot take rows."""
    texts = pa.array([f"t{n % 7}" if n % 3 else None for n in range(2_000)], pa.string_view())
    raw = pa.array([b"x"] * 2_000, pa.binary_view())
    path = tmp_path / "views.parquet"
    pq.write_table(pa.table({"s": texts, "b": raw}), path, row_group_size=500)
    assert pq.read_schema(path).field("s").type == pa.string_view()
    fields = (Field(1, "s", "string"), Field(2, "b", "binary"))
    schema = Schema(0, fields)
    found = sketch_reader.sketch_file(
        PyArrowFileIO(), str(path), schema, fields, rows=100, most=1 << 20
    )
    assert len(found) == 100 and set(found.values[2].tolist()) == {b"x"}
    assert set(found.values[1][~found.null[1]].tolist()) == {f"t{n}".encode() for n in range(7)}
    block = sketch_reader.block_of(PyArrowFileIO(), str(path), schema, fields, 1, 50)
    assert len(block) == 50 and int(block.null[1].sum()) == 17


@given(st.lists(st.integers(1, 1_000), min_size=1, max_size=12), st.floats(0, 1.2), st.text())
def test_row_groups_of_a_sketch_keep_a_limit_of_bytes_that_pays_for_the_smallest(
    sizes: list[int], share: float, path: str
) -> None:
    groups = [GroupStats(10, {1: size}, {}, {}) for size in sizes]
    most = max(min(sizes), int(share * sum(sizes)))
    chosen = sketch_reader.chosen_groups(groups, path, most)
    assert len(chosen) == len(set(chosen.tolist())) > 0
    assert sum(sizes[number] for number in chosen) <= most
    if most >= sum(sizes):
        assert chosen.tolist() == list(range(len(sizes)))
