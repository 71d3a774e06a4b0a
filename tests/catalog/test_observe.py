"""Observation equals pyiceberg's own reading, decodes each manifest once, and names what is bad."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import random
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, TruncateTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog.observe import observe_table
from reconciler.errors import ReconcilerError, UnsupportedError, UserError
from reconciler.table.filetable import UNKNOWN
from reconciler.table.observation import Observation
from reconciler.table.values import Kind, decode_wide_decimal
from tests.catalog.reference import assert_same
from tests.examples import seeds
from tests.said import Said

Look = Callable[..., Observation]
D = decimal.Decimal

EVERYTHING = Schema(
    NestedField(1, "flag", BooleanType(), required=False),
    NestedField(2, "small", IntegerType(), required=False),
    NestedField(3, "big", LongType(), required=False),
    NestedField(4, "f", FloatType(), required=False),
    NestedField(5, "d", DoubleType(), required=False),
    NestedField(6, "price", DecimalType(9, 2), required=False),
    NestedField(7, "wide", DecimalType(38, 10), required=False),
    NestedField(8, "day", DateType(), required=False),
    NestedField(9, "clock", TimeType(), required=False),
    NestedField(10, "ts", TimestampType(), required=False),
    NestedField(11, "tstz", TimestamptzType(), required=False),
    NestedField(12, "text", StringType(), required=False),
    NestedField(13, "raw", BinaryType(), required=False),
    NestedField(14, "fix", FixedType(4), required=False),
    NestedField(15, "id", UUIDType(), required=False),
    NestedField(
        16,
        "place",
        StructType(
            NestedField(17, "lat", DoubleType(), required=False),
            NestedField(18, "town", StringType(), required=False),
        ),
        required=False,
    ),
)


def row(number: int) -> dict[str, Any]:
    """Values that straddle zero, with nulls, NaN and long and non-ASCII strings among them."""
    sign = -1 if number % 2 else 1
    moment = dt.datetime(1969, 12, 31, 23) + dt.timedelta(hours=number * 7, microseconds=number)
    return {
        "flag": number % 3 == 0,
        "small": sign * number * 1000,
        "big": sign * (2**40 + number),
        "f": math.nan if number % 4 == 3 else sign * number / 4,
        "d": None if number % 5 == 4 else sign * number / 3,
        "price": D(sign * number) / 4,
        "wide": D(f"{sign * (9 * 10**27 + number)}.0123456789"),
        "day": dt.date(1969, 12, 30) + dt.timedelta(days=number),
        "clock": dt.time(number % 24, 1, 2, number),
        "ts": moment,
        "tstz": moment.replace(tzinfo=dt.UTC),
        "text": ["", "é" * 20 + str(number), "kurz", "\U0001f600" * 17][number % 4],
        "raw": bytes([255] * 20) if number % 4 == 1 else bytes([number, 0, 255]),
        "fix": number.to_bytes(4, "big"),
        "id": uuid.UUID(int=number * 2**120).bytes,
        "place": {"lat": number / 7, "town": f"town {number}"} if number % 3 else None,
    }


def rows(table: Any, numbers: range) -> pa.Table:
    return pa.Table.from_pylist([row(n) for n in numbers], schema=table.schema().as_arrow())


def simple(table: Any, **columns: list[Any]) -> pa.Table:
    return pa.table(columns, schema=table.schema().as_arrow())


@pytest.mark.parametrize("version", ["1", "2"])
def test_every_primitive_type_is_read_as_pyiceberg_reads_it(
    catalog: Any, look: Look, version: str
) -> None:
    table = catalog.create_table("sales.t", EVERYTHING, properties={"format-version": version})
    for start in range(0, 24, 4):
        table.append(rows(table, range(start, start + 4)))
    seen = look()
    assert seen.format_version == int(version)
    assert_same(table, seen)
    assert set(seen.files.columns) == {*range(1, 16), 17, 18}
    assert seen.schema.name_of(18) == "place.town"


@pytest.mark.parametrize("version", ["1", "2"])
@pytest.mark.parametrize(
    ("source", "transform"),
    [
        (1, IdentityTransform()), (2, IdentityTransform()), (6, IdentityTransform()),
        (7, IdentityTransform()), (8, IdentityTransform()), (12, TruncateTransform(3)),
        (3, BucketTransform(5)), (10, DayTransform()), (15, IdentityTransform()),
    ],
)  # fmt: skip
def test_partition_values_are_in_the_domain_of_their_transform(
    catalog: Any, look: Look, version: str, source: int, transform: Any
) -> None:
    spec = PartitionSpec(PartitionField(source, 1000, transform, "p"))
    try:
        table = catalog.create_table(
            "sales.t", EVERYTHING, partition_spec=spec, properties={"format-version": version}
        )
        table.append(rows(table, range(7)))
    except (NotImplementedError, pa.ArrowNotImplementedError, ValueError, TypeError) as error:
        pytest.skip(f"pyiceberg cannot write it: {error}")
    seen = look()
    assert_same(table, seen)
    assert len(seen.files.groups()) == len({p for _, p in seen.files.partitions})


def test_evolved_specs_keep_each_files_own_spec(catalog: Any, look: Look) -> None:
    table = catalog.create_table("sales.t", EVERYTHING)
    table.append(rows(table, range(4)))
    with table.update_spec() as update:
        update.add_field("small", BucketTransform(3), "b")
    table.append(rows(table, range(4)))
    with table.update_spec() as update:
        update.add_identity("day")
        update.remove_field("b")
    table.append(rows(table, range(4)))
    seen = look()
    assert_same(table, seen)
    assert {spec for spec, _ in seen.files.partitions} == {0, 1, 2}
    assert seen.files.default_spec_id == 2


def test_renamed_added_and_dropped_columns_are_matched_by_field_id(
    catalog: Any, look: Look
) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.int64())])
    table = catalog.create_table("sales.t", schema)
    table.append(simple(table, a=[1, 2], b=["x", "y"], c=[5, 6]))
    with table.update_schema() as update:
        update.rename_column("a", "renamed")
        update.delete_column("b")
    with table.update_schema() as update:
        update.add_column("b", LongType())
    table.append(simple(table, renamed=[7], c=[8], b=[9]))
    seen = look()
    assert_same(table, seen)
    ids = {field.name: field.field_id for field in seen.schema.fields}
    assert ids == {"renamed": 1, "c": 3, "b": 4}
    new = seen.files.columns[4]
    assert sorted(new.bounded.tolist()) == [False, True]
    assert UNKNOWN in new.nulls


def test_promoted_columns_keep_the_bounds_of_older_files(catalog: Any, look: Look) -> None:
    schema = Schema(
        NestedField(1, "i", IntegerType(), required=False),
        NestedField(2, "f", FloatType(), required=False),
        NestedField(3, "n", DecimalType(9, 2), required=False),
    )
    table = catalog.create_table("sales.t", schema)
    table.append(simple(table, i=[-5, 5], f=[-0.5, 0.25], n=[D("-1.25"), D("7.5")]))
    with table.update_schema() as update:
        update.update_column("i", LongType())
        update.update_column("f", DoubleType())
        update.update_column("n", DecimalType(30, 2))
    table.append(simple(table, i=[2**40], f=[1e300], n=[D("1") * 10**20]))
    seen = look()
    assert_same(table, seen)
    assert seen.files.columns[1].bounded.all()
    assert sorted(seen.files.columns[1].lower.tolist()) == [-5, 2**40]
    assert sorted(seen.files.columns[2].lower.tolist()) == [-0.5, 1e300]
    assert seen.files.columns[3].kind is Kind.BYTES
    narrow, wide = sorted(seen.files.columns[3].lower.tolist())
    assert decode_wide_decimal(narrow) == -125
    assert decode_wide_decimal(wide) == 10**22


def test_missing_metrics_are_unknown_and_never_zero(catalog: Any, look: Look) -> None:
    table = catalog.create_table(
        "sales.t",
        pa.schema([("a", pa.int64()), ("b", pa.int64()), ("c", pa.string())]),
        properties={
            "write.metadata.metrics.default": "none",
            "write.metadata.metrics.column.b": "counts",
        },
    )
    table.append(simple(table, a=[1], b=[2], c=["x"]))
    seen = look()
    assert_same(table, seen)
    a, b = seen.files.columns[1], seen.files.columns[2]
    assert not a.bounded.any() and not b.bounded.any()
    assert a.nulls.tolist() == [UNKNOWN] and b.nulls.tolist() == [0]


@pytest.mark.parametrize("mode", ["truncate(16)", "truncate(4)", "full"])
def test_truncated_bounds_are_marked_and_equal_ones_are_not(
    catalog: Any, look: Look, mode: str
) -> None:
    table = catalog.create_table(
        "sales.t",
        pa.schema([("s", pa.string())]),
        properties={"write.metadata.metrics.default": mode},
    )
    table.append(simple(table, s=["a" * 30, "ü" * 30]))
    table.append(simple(table, s=["abc", "abd"]))
    table.append(simple(table, s=["b" * 4, "b" * 4]))
    seen = look()
    assert_same(table, seen)
    column = seen.files.columns[1]
    by_lower = dict(zip(column.lower.tolist(), column.truncated.tolist(), strict=True))
    cut = next(key for key in by_lower if key.startswith(b"aa"))
    assert by_lower[cut] is (mode != "full")
    assert by_lower[b"abc"] is False
    assert by_lower[b"bbbb"] is False


def test_wide_bounds_are_cut_soundly(catalog: Any, look: Look) -> None:
    table = catalog.create_table(
        "sales.t",
        pa.schema([("s", pa.string()), ("raw", pa.binary())]),
        properties={"write.metadata.metrics.default": "full"},
    )
    values = ["m" * 100, "mm" * 80 + "z"]
    table.append(simple(table, s=values, raw=[b"\x01" * 80, b"\xff" * 90]))
    seen = look()
    text, raw = seen.files.columns[1], seen.files.columns[2]
    assert text.lower[0] <= min(values).encode() and len(text.lower[0]) == 64
    assert text.upper[0] >= max(values).encode() and len(text.upper[0]) <= 64
    assert text.truncated[0]
    assert raw.lower[0] == b"\x01" * 64
    assert not raw.has_upper[0]


def test_an_empty_table_has_no_files_and_no_snapshot(catalog: Any, look: Look) -> None:
    catalog.create_table("sales.t", EVERYTHING)
    seen = look()
    assert len(seen.files) == 0
    assert seen.snapshot_id is None
    assert seen.ancestry == () and seen.manifests == 0
    assert seen.files.groups() == []


def test_deleted_files_are_not_live(catalog: Any, look: Look) -> None:
    table = catalog.create_table("sales.t", pa.schema([("a", pa.int64())]))
    for number in range(4):
        table.append(simple(table, a=[number]))
    table.delete("a == 2")
    seen = look()
    assert_same(table, seen)
    assert sorted(seen.files.columns[1].lower.tolist()) == [0, 1, 3]


def test_a_warm_look_reads_no_manifest_and_a_new_one_only_its_own(catalog: Any, look: Look) -> None:
    table = catalog.create_table("sales.t", pa.schema([("a", pa.int64())]))
    for number in range(3):
        table.append(simple(table, a=[number]))
    first = look()
    assert (first.manifests, first.manifests_read) == (3, 3) and first.bytes_read > 0
    again = look()
    assert (again.manifests, again.manifests_read, again.bytes_read) == (3, 0, 0)
    assert_same(table, again)
    table.append(simple(table, a=[9]))
    assert look().manifests_read == 1
    with table.update_schema() as update:
        update.add_column("b", LongType())
        update.rename_column("a", "z")
    evolved = look()
    assert evolved.manifests_read == 0
    assert_same(catalog.load_table("sales.t"), evolved)


def test_many_small_segments_are_merged_and_still_complete(
    catalog: Any, look: Look, tmp_path: Path
) -> None:
    table = catalog.create_table("sales.t", pa.schema([("a", pa.int64())]))
    for number in range(12):
        table.append(simple(table, a=[number]))
        look()
    seen = look()
    assert seen.manifests_read == 0
    assert_same(table, seen)
    assert len(list((tmp_path / "cache").rglob("*.segment"))) <= 9


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "foreign"])
def test_a_damaged_cache_is_rewritten(
    catalog: Any, look: Look, tmp_path: Path, damage: str
) -> None:
    table = catalog.create_table("sales.t", pa.schema([("a", pa.int64())]))
    table.append(simple(table, a=[1, 2]))
    look()
    (segment,) = (tmp_path / "cache").rglob("*.segment")
    data = segment.read_bytes()
    changed = {
        "cut": data[:-3],
        "flip": data[:-3] + bytes([data[-3] ^ 1]) + data[-2:],
        "empty": b"",
        "foreign": b"hello, world, this is not a segment",
    }
    segment.write_bytes(changed[damage])
    seen = look()
    assert seen.manifests_read == 1
    assert_same(table, seen)
    assert look().manifests_read == 0


def test_a_cache_that_cannot_be_written_is_not_an_error(
    catalog: Any, config: CatalogConfig, tmp_path: Path
) -> None:
    from reconciler.catalog.observe import observe_table

    table = catalog.create_table("sales.t", pa.schema([("a", pa.int64())]))
    table.append(simple(table, a=[1]))
    (tmp_path / "blocked").write_text("a file, not a directory")
    seen = observe_table(config, ("sales", "t"), tmp_path / "blocked")
    assert_same(table, seen)


def _manifest_path(table: Any) -> Path:
    (manifest,) = table.current_snapshot().manifests(table.io)
    return Path(manifest.manifest_path.removeprefix("file://"))


def _forget_manifests() -> None:
    from pyiceberg import manifest

    manifest._manifest_cache.clear()


@pytest.mark.parametrize("damage", ["cut", "garbage", "missing", "not avro"])
def test_a_bad_manifest_is_named_with_what_to_do(catalog: Any, look: Look, damage: str) -> None:
    table = catalog.create_table("sales.t", pa.schema([("a", pa.int64())]))
    table.append(simple(table, a=[1]))
    path = _manifest_path(table)
    data = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(data[:-20])
    elif damage == "garbage":
        path.write_bytes(data[:-60] + bytes(40) + data[-20:])
    else:
        path.write_bytes(b"PAR1" + data)
    with pytest.raises(UserError) as raised:
        look()
    assert path.name in raised.value.what
    assert raised.value.do


@pytest.mark.parametrize("seed", seeds(12))
def test_garbage_in_place_of_a_manifest_list_is_named(catalog: Any, look: Look, seed: int) -> None:
    """Decoders meet sizes below zero and streams that are none, and say so in many ways."""
    table = catalog.create_table("sales.t", pa.schema([("a", pa.int64())]))
    table.append(simple(table, a=[1]))
    path = Path(table.current_snapshot().manifest_list.removeprefix("file://"))
    draw, data = random.Random(seed), bytearray(path.read_bytes())
    if seed % 2:
        data = bytearray(draw.randbytes(500))
    else:
        at = draw.randrange(len(data) - 40)
        data[at : at + 32] = draw.randbytes(32)
    path.write_bytes(bytes(data))
    _forget_manifests()
    try:
        look()
    except ReconcilerError as error:
        assert path.name in error.what or "manifest" in error.what
        assert error.exit_code in (1, 5)


def test_a_column_type_that_is_not_known_is_not_damage(
    catalog: Any, look: Look, said: Said
) -> None:
    table = catalog.create_table("sales.t", pa.schema([("a", pa.int64()), ("v", pa.string())]))
    table.append(simple(table, a=[1], v=["x"]))
    path = Path(table.metadata_location.removeprefix("file://"))
    path.write_text(path.read_text().replace('"type":"string"', '"type":"variant"'))
    with pytest.raises(UnsupportedError) as refused:
        look()
    said(refused.value)


def test_a_missing_manifest_list_is_named(catalog: Any, look: Look, said: Said) -> None:
    table = catalog.create_table("sales.t", pa.schema([("a", pa.int64())]))
    table.append(simple(table, a=[1]))
    Path(table.current_snapshot().manifest_list.removeprefix("file://")).unlink()
    _forget_manifests()
    with pytest.raises(ReconcilerError) as refused:
        look()
    said(refused.value)


def test_only_other_writers_overwrites_and_deletes_are_recent_writes(
    catalog: Any, look: Look
) -> None:
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "a"))
    schema = Schema(NestedField(1, "a", LongType()), NestedField(2, "b", LongType()))
    table = catalog.create_table("sales.t", schema, partition_spec=spec)
    table.append(simple(table, a=[1, 2, 3], b=[1, 2, 3]))
    table.overwrite(
        simple(table, a=[2], b=[9]),
        overwrite_filter="a == 2",
        snapshot_properties={"layout.attempt-id": "ours"},
    )
    assert look().recent_writes == ()
    table.delete("a == 3")
    head = table.current_snapshot()
    (write,) = look().recent_writes
    assert (write.snapshot_id, write.operation) == (head.snapshot_id, "delete")
    assert write.partitions == ((0, (3,)),)
    assert look(now_ms=head.timestamp_ms + 3_600_001).recent_writes == ()
    ours = look().files.layout_written
    assert ours.tolist().count(True) == 1


def test_metadata_basics_are_reported(catalog: Any, look: Look) -> None:
    table = catalog.create_table("sales.t", EVERYTHING, properties={"owner.name": "x"})
    table.append(rows(table, range(3)))
    with table.update_sort_order() as update:
        update.asc("day", IdentityTransform())
        update.desc("small", IdentityTransform())
    table = catalog.load_table("sales.t")
    table.manage_snapshots().create_tag(table.current_snapshot().snapshot_id, "v1").commit()
    seen = look()
    assert seen.uuid == str(table.metadata.table_uuid)
    assert seen.properties["owner.name"] == "x"
    assert seen.sort_order_text == "day, small desc"
    assert seen.metadata.sort_terms == (
        "identity(8) asc nulls-last", "identity(2) desc nulls-last",
    )  # fmt: skip
    assert {(ref.name, ref.type) for ref in seen.refs} == {("main", "branch"), ("v1", "tag")}
    assert [s.snapshot_id for s in seen.ancestry] == [table.current_snapshot().snapshot_id]
    assert seen.name == "rec.sales.t"


def test_several_manifests_of_several_schemas_decode_in_order(catalog: Any, look: Look) -> None:
    table = catalog.create_table("sales.t", pa.schema([("a", pa.int64())]))
    for number in range(5):
        table.append(simple(table, a=[number]))
    with table.update_spec() as update:
        update.add_identity("a")
    for number in range(5, 8):
        table.append(simple(table, a=[number]))
    seen = look()
    assert_same(table, seen)
    assert np.unique(seen.files.sequence).tolist() == list(range(1, 9))


def test_whether_files_may_be_deleted_is_said_by_the_catalog_or_by_the_table(
    catalog: Any, config: CatalogConfig, look: Look, tmp_path: Path
) -> None:
    catalog.create_table("sales.t", Schema(NestedField(1, "n", LongType(), required=False)))
    assert look().metadata.removes_nothing == ""
    keeping = replace(config, properties={**config.properties, "s3.delete-enabled": "false"})
    seen = observe_table(keeping, ("sales", "t"), tmp_path / "cache")
    assert "s3.delete-enabled" in seen.metadata.removes_nothing
    table = catalog.load_table("sales.t")
    table.transaction().set_properties({"s3.delete-enabled": "false"}).commit_transaction()
    assert look().metadata.files_stay
