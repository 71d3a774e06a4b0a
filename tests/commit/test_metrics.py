"""Metrics of written files, beside what pyarrow computes from the same rows."""

from __future__ import annotations

import datetime as dt
import math
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pydantic import TypeAdapter
from pyiceberg.conversions import from_bytes
from pyiceberg.types import IcebergType

from reconciler.commit import fields
from reconciler.commit.entries import Entries
from reconciler.commit.metrics import above, ends
from reconciler.rewrite import arrow
from reconciler.rewrite.columns import columns_of
from reconciler.rewrite.task import FileProperties, Output
from reconciler.rewrite.write import FileWriter

KINDS = {
    1: ("b", "boolean"), 2: ("i", "int"), 3: ("l", "long"), 4: ("f", "float"), 5: ("d", "double"),
    6: ("small", "decimal(9, 2)"), 7: ("wide", "decimal(38, 6)"), 8: ("day", "date"),
    9: ("at", "timestamp"), 10: ("s", "string"), 11: ("raw", "binary"),
}  # fmt: skip
LONG = "ä" * 5000
ROWS: dict[str, list[Any]] = {
    "b": [True, False, None, True],
    "i": [5, -7, None, 3],
    "l": [1 << 40, -1, None, 0],
    "f": [1.5, float("nan"), None, -2.5],
    "d": [float("nan"), float("nan"), None, float("nan")],
    "small": [Decimal("1.25"), Decimal("-99.99"), None, Decimal("0.00")],
    "wide": [Decimal("1.000001"), Decimal("-12345678901234567890.5"), None, Decimal("7")],
    "day": [dt.date(1969, 12, 31), dt.date(2020, 2, 29), None, dt.date(1, 1, 1)],
    "at": [dt.datetime(2020, 1, 1, 0, 0, 0, 1), dt.datetime(1900, 1, 1), None,
           dt.datetime(2000, 1, 1)],
    "s": ["b", LONG, None, "a"],
    "raw": [b"\x00", b"\xff" * 20, None, b"\x01"],
}  # fmt: skip


def metadata(properties: dict[str, str], order: list[int]) -> dict[str, Any]:
    body = [
        {"id": key, "name": name, "required": False, "type": kind}
        for key, (name, kind) in KINDS.items()
    ]
    sort = [{"source-id": one, "transform": "identity", "direction": "asc",
             "null-order": "nulls-first"} for one in order]  # fmt: skip
    return {
        "format-version": 2, "current-schema-id": 0, "default-sort-order-id": 1,
        "schemas": [{"type": "struct", "schema-id": 0, "fields": body}],
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "sort-orders": [{"order-id": 1, "fields": sort}], "properties": properties,
    }  # fmt: skip


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Output:
    """A file of two row groups."""
    columns = columns_of(metadata({}, [])["schemas"][0])
    path = tmp_path_factory.mktemp("metrics") / "file.parquet"
    writer = FileWriter(path, columns, FileProperties())
    table = pa.table(ROWS, schema=arrow.schema_of(columns))
    writer.write(table.slice(0, 2))
    writer.write(table.slice(2))
    writer.close()
    return writer.output("file:///x.parquet")


def made(output: Output, properties: dict[str, str], order: tuple[int, ...] = ()) -> Any:
    body = metadata(properties, list(order))
    return Entries(body, properties, 0, 1).of(output, {}).file.values()


def value(key: int, raw: bytes) -> Any:
    return from_bytes(TypeAdapter(IcebergType).validate_python(KINDS[key][1]), raw)


def test_bounds_and_counts_are_those_of_the_rows(output: Output) -> None:
    found = made(output, {"write.metadata.metrics.default": "full"})
    assert found[fields.RECORDS] == 4
    assert found[fields.VALUES] == dict.fromkeys(KINDS, 4)
    assert found[fields.NULLS] == dict.fromkeys(KINDS, 1)
    assert found[fields.NANS] == {4: 1, 5: 3}
    assert 5 not in found[fields.LOWER]  # no number
    for key, (name, kind) in KINDS.items():
        if key == 5:
            continue
        known = [one for one in ROWS[name] if one is not None]
        known = [one for one in known if not (isinstance(one, float) and math.isnan(one))]
        ends = [value(key, found[side][key]) for side in (fields.LOWER, fields.UPPER)]
        assert [_plain(one) for one in ends] == [_plain(min(known)), _plain(max(known))], kind


def _plain(one: Any) -> Any:
    if isinstance(one, dt.datetime):
        return pc.cast(pa.scalar(one, pa.timestamp("us")), pa.int64()).as_py()
    if isinstance(one, dt.date):
        return (one - dt.date(1970, 1, 1)).days
    return one


def test_sizes_are_those_of_the_chunks(output: Output) -> None:
    found = made(output, {})
    assert found[fields.COLUMN_SIZES].keys() == KINDS.keys()
    assert 0 < sum(found[fields.COLUMN_SIZES].values()) < output.size
    assert found[fields.SPLITS] == list(output.split_offsets)


def test_texts_are_cut_to_characters(output: Output) -> None:
    found = made(output, {"write.metadata.metrics.default": "truncate(3)"})
    assert found[fields.LOWER][10].decode() == "a"
    upper = found[fields.UPPER][10].decode()
    assert len(upper) == 3
    assert upper > LONG
    assert found[fields.LOWER][11] == b"\x00"
    assert 11 not in found[fields.UPPER]  # nothing short is above


@pytest.mark.parametrize(
    ("properties", "order", "bounded", "counted"),
    [
        ({"write.metadata.metrics.default": "counts"}, (), set(), set(KINDS)),
        ({"write.metadata.metrics.default": "counts"}, (2,), {2}, set(KINDS)),
        ({"write.metadata.metrics.default": "none"}, (), set(), set()),
        ({"write.metadata.metrics.column.i": "none"}, (), set(KINDS) - {2, 5, 11},
         set(KINDS) - {2}),
        ({"write.metadata.metrics.default": "none", "write.metadata.metrics.column.l": "full"}, (),
         {3}, {3}),
        ({"write.metadata.metrics.max-inferred-column-defaults": "3"}, (), {1, 2, 3}, {1, 2, 3}),
        ({"write.metadata.metrics.max-inferred-column-defaults": "3"}, (8,), {1, 2, 3, 8},
         {1, 2, 3, 8}),
        ({"write.metadata.metrics.column.i": "nonsense"}, (), set(KINDS) - {5, 11}, set(KINDS)),
    ],
)  # fmt: skip
def test_modes(
    output: Output,
    properties: dict[str, str],
    order: tuple[int, ...],
    bounded: set[int],
    counted: set[int],
) -> None:
    found = made(output, properties, order)
    assert set(found[fields.UPPER]) == bounded
    assert set(found[fields.VALUES]) == counted
    assert set(found[fields.COLUMN_SIZES]) == counted
    assert set(found[fields.NANS]) == counted & {4, 5}


def of_uuids(directory: Path, *groups: list[str]) -> Any:
    """The entry of a file with UUIDs that begin so, a list for each row group."""
    body = metadata({}, [])
    body["schemas"] = [{"type": "struct", "schema-id": 0, "fields": [
        {"id": 1, "name": "u", "required": False, "type": "uuid"}]}]  # fmt: skip
    columns = columns_of(body["schemas"][0])
    writer = FileWriter(directory / "uuids.parquet", columns, FileProperties())
    for group in groups:
        rows = pa.array([bytes.fromhex(one.ljust(32, "0")) for one in group], pa.binary(16))
        writer.write(pa.table({"u": rows}))
    writer.close()
    return Entries(body, {}, 0, 0).of(writer.output("file:///x"), {}).file.values()


@pytest.mark.parametrize(
    ("groups", "bounded"),
    [
        ([["10", "7f"], ["20"]], True),
        ([["80", "ff"]], True),
        ([["10", "f0"]], False),
        ([["10"], ["f0"]], False),
        ([["10" + "00" * 7 + "01", "10" + "00" * 7 + "ff"]], False),
    ],
)
def test_no_reader_misses_a_uuid_by_bounds(
    tmp_path: Path, groups: list[list[str]], bounded: bool
) -> None:
    """Java's readers compare two signed numbers (java.util.UUID.compareTo), others bytes."""
    found = of_uuids(tmp_path, *groups)
    assert (1 in found[fields.LOWER], 1 in found[fields.UPPER]) == (bounded, bounded)
    for one in (bytes.fromhex(text.ljust(32, "0")) for group in groups for text in group):
        low, high = found[fields.LOWER].get(1, one), found[fields.UPPER].get(1, one)
        assert low <= one <= high
        assert struct.unpack(">qq", low) <= struct.unpack(">qq", one) <= struct.unpack(">qq", high)


def nested(directory: Path, *groups: list[str | None], binary: bool = False) -> Any:
    """The entry of a file with these values of `s.a`, a list for each row group."""
    member = {"id": 2, "name": "a", "required": False, "type": "binary" if binary else "string"}
    struct = {"type": "struct", "fields": [member]}
    body = metadata({}, [])
    body["schemas"] = [{"type": "struct", "schema-id": 0, "fields": [
        {"id": 1, "name": "s", "required": False, "type": struct}]}]  # fmt: skip
    columns = columns_of(body["schemas"][0])
    writer = FileWriter(directory / "nested.parquet", columns, FileProperties())
    for group in groups:
        rows = [None if one is None else {"a": one.encode() if binary else one} for one in group]
        writer.write(pa.table({"s": rows}, schema=arrow.schema_of(columns)))
    writer.close()
    properties = {"write.metadata.metrics.column.s.a": "truncate(3)"}
    return Entries(body, properties, 0, 0).of(writer.output("file:///x"), {}).file.values()


@pytest.mark.parametrize("binary", [False, True])
def test_a_value_inside_a_struct_that_is_too_long_for_a_footer(
    tmp_path: Path, binary: bool
) -> None:
    """Its row group has no statistics of values; bounds of the others alone would hide it."""
    found = nested(tmp_path, ["b", None], ["z" * 5000, None], [None], ["a" * 5000], binary=binary)
    assert found[fields.NULLS] == {2: 3}
    assert (found[fields.LOWER], found[fields.UPPER]) == ({2: b"aaa"}, {2: b"zz{"})


def test_a_row_group_that_does_not_say_its_values_has_no_bounds() -> None:
    """Such as one with long values of a fixed size."""

    class Silent:
        has_min_max, num_values, null_count = False, 1, 0

    class Known:
        has_min_max, num_values, min_raw, max_raw = True, 1, b"b", b"b"

    class Empty:
        has_min_max, num_values, null_count = False, 0, 1

    assert ends([Known(), Empty()], "fixed[1]") == (b"b", b"b")
    assert ends([Known(), Silent()], "fixed[1]") is None


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("abc", "abc"),
        ("abcd", "abd"),
        ("ab\U0010ffffd", "ac"),
        ("\U0010ffff" * 4, None),
        ("a" + "\ud7ff" * 4, "a\ud7ff\ue000"),
    ],
)
def test_upper_bounds_of_texts_are_text(text: str, cut: str | None) -> None:
    """The character after U+D7FF is a surrogate, which UTF-8 does not have."""
    assert above(text, 3) == cut
    assert cut is None or cut.encode() >= text.encode()
