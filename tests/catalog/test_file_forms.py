"""What footers say about columns is decoded as it is stored, and read once per file."""

from __future__ import annotations

import base64
import contextlib
import io
import random
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io import load_file_io

from reconciler.catalog import file_forms
from reconciler.catalog.file_forms import FormCache, form_from, read_forms, through
from reconciler.catalog.parquet import footer_in, open_parquet, with_footer
from reconciler.catalog.positions import positions_in
from reconciler.rewrite.files import TableShape
from reconciler.rewrite.read import Damaged, Reader
from reconciler.rewrite.storage import Opening, Scratch
from reconciler.table import parquet_schema
from reconciler.table.parquet_schema import NotParquetError, schema_in
from reconciler.table.physical import RLE, SPLIT, FileForm, WrongRows, WrongSize

UUID = "3f9a1c0b-77de-4c21-a0be-000000000001"


def parquet(*arrays: Any, **options: Any) -> bytes:
    out = io.BytesIO()
    fields = [
        pa.field(f"c{i}", a.type, metadata={"PARQUET:field_id": str(i + 1)})
        for i, a in enumerate(arrays)
    ]
    pq.write_table(pa.table(list(arrays), schema=pa.schema(fields)), out, **options)
    return out.getvalue()


def form(data: bytes) -> FileForm:
    return form_from(lambda wanted: data[len(data) - wanted :], len(data))


KINDS: list[tuple[pa.DataType, str, str, dict[str, Any]]] = [
    (pa.timestamp("ms"), "INT64", "TIMESTAMP(MILLIS,local)", {}),
    (pa.timestamp("us", "UTC"), "INT64", "TIMESTAMP(MICROS,UTC)", {}),
    (pa.timestamp("ns"), "INT64", "TIMESTAMP(NANOS,local)", {"version": "2.6"}),
    (pa.timestamp("ns"), "INT96", "", {"use_deprecated_int96_timestamps": True}),
    (pa.uint32(), "INT32", "INTEGER(32,unsigned)", {}),
    (pa.int8(), "INT32", "INTEGER(8,signed)", {}),
    (pa.int64(), "INT64", "", {}),
    (pa.float16(), "FIXED_LEN_BYTE_ARRAY", "FLOAT16", {}),
    (pa.string(), "BYTE_ARRAY", "STRING", {}),
    (pa.binary(), "BYTE_ARRAY", "", {}),
    (pa.binary(3), "FIXED_LEN_BYTE_ARRAY", "", {}),
    (pa.decimal128(9, 2), "FIXED_LEN_BYTE_ARRAY", "DECIMAL(9,2)", {}),
    (pa.decimal128(9, 2), "INT32", "DECIMAL(9,2)", {"store_decimal_as_integer": True}),
    (pa.date32(), "INT32", "DATE", {}),
    (pa.time64("us"), "INT64", "TIME(MICROS,local)", {}),
    (pa.uuid(), "FIXED_LEN_BYTE_ARRAY", "UUID", {}),
]


@pytest.mark.parametrize(("kind", "physical", "annotation", "options"), KINDS)
def test_a_column_is_described_as_the_file_has_it(
    kind: pa.DataType, physical: str, annotation: str, options: dict[str, Any]
) -> None:
    found = form(parquet(pa.nulls(3, kind), **options)).schema.children[0]
    assert (found.name, found.field_id) == ("c0", 1)
    assert (found.physical, found.annotation) == (physical, annotation)


def test_every_leaf_is_the_one_that_pyarrow_sees() -> None:
    """The decoder of ours and pyarrow's agree on names, types and lengths of nested schemas."""
    kinds = [
        pa.list_(pa.struct([("a", pa.int32()), ("b", pa.list_(pa.binary(5)))])),
        pa.map_(pa.string(), pa.struct([("x", pa.decimal128(20, 3)), ("y", pa.bool_())])),
        pa.struct([("m", pa.map_(pa.int64(), pa.list_(pa.string())))]),
        pa.float64(),
    ]
    data = parquet(*(pa.nulls(2, kind) for kind in kinds))
    seen = pq.ParquetFile(io.BytesIO(data)).schema
    leaves = [node for node in form(data).schema.walk() if node.physical]
    assert [(n.name, n.physical, n.length) for n in leaves] == [
        (seen.column(i).name, seen.column(i).physical_type, seen.column(i).length or 0)
        for i in range(len(seen))
    ]


def test_ways_of_storing_that_not_every_reader_reads_are_found() -> None:
    flags, numbers = pa.array([True, None, False] * 20), pa.array(range(60))
    assert form(parquet(numbers, flags)).stored == ()
    assert form(parquet(numbers, flags, data_page_version="2.0")).stored == ((1, RLE),)
    split = {"use_dictionary": False, "column_encoding": {"c0": SPLIT}}
    assert form(parquet(numbers, **split)).stored == ((0, SPLIT),)
    assert form(parquet(pa.array([1.5, 2.5]), **split)).stored == ()
    assert form(parquet(numbers, compression="brotli")).stored == ((0, "BROTLI"),)


def test_a_footer_longer_than_the_first_read_is_read_whole() -> None:
    data = parquet(*(pa.array([i]) for i in range(1_500)))
    assert len(form(data).schema.children) == 1_500


def test_damaged_footers_are_not_parquet_whatever_the_damage() -> None:
    data = parquet(pa.array(["a"]), pa.array([[1]]))
    length = int.from_bytes(data[-8:-4], "little")
    footer, chance = data[-8 - length : -8], random.Random(7)
    for _ in range(2_000):
        broken = bytearray(footer)
        for _ in range(chance.randint(1, 4)):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        with contextlib.suppress(NotParquetError):
            schema_in(bytes(broken[: chance.randint(1, len(broken))]))
    for wrong in (b"", b"PAR1", data[:-1], data[:-8] + b"\xff\xff\xff\x7fPAR1"):
        with pytest.raises(NotParquetError):
            form(wrong)


class Files:
    """A FileIO over a folder, which counts what it opens."""

    def __init__(self, root: Path) -> None:
        self.root, self.opened = root, 0

    def new_input(self, path: str) -> Any:
        self.opened += 1
        return type("Input", (), {"open": lambda _: (self.root / path).open("rb")})()


def test_encrypted_columns_under_a_plain_footer_are_not_read(tmp_path: Path) -> None:
    """pyarrow ends the process of whoever asks for such a column."""
    import pyarrow.parquet.encryption as pe

    class Keys(pe.KmsClient):
        def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
            return base64.b64encode(key_bytes)

        def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
            return base64.b64decode(wrapped_key)

    configured = pe.EncryptionConfiguration(
        footer_key="f", column_keys={"c": ["s"]}, plaintext_footer=True
    )
    sealed = pe.CryptoFactory(lambda _: Keys()).file_encryption_properties(
        pe.KmsConnectionConfig(), configured
    )
    rows, path = pa.table({"id": [1], "s": ["x"]}), tmp_path / "sealed.parquet"
    with pq.ParquetWriter(path, rows.schema, encryption_properties=sealed) as writer:
        writer.write_table(rows)
    data = path.read_bytes()
    with pytest.raises(NotParquetError):
        form_from(lambda wanted: data[len(data) - wanted :], len(data))
    with pytest.raises(pa.ArrowInvalid):
        footer_in(lambda wanted: data[len(data) - wanted :], len(data), "")
    location = f"file://{path}"
    with pytest.raises(pa.ArrowInvalid):
        open_parquet(load_file_io({}), location)
    with pytest.raises(pa.ArrowInvalid):
        positions_in(load_file_io({}), location)
    with Scratch(Opening({}, None)) as scratch, pytest.raises(Damaged) as damaged:
        Reader(TableShape((), {}, None, False), scratch).parquet(location)
    assert damaged.value.path == location


def test_a_footer_is_read_by_one_request_and_a_long_one_by_two(tmp_path: Path) -> None:
    class Counting(io.BytesIO):
        reads = 0

        def read(self, size: int | None = -1) -> bytes:
            self.reads += 1
            return super().read(size)

    short = Counting(parquet(pa.array([1, 2])))
    assert (with_footer(short, "").metadata.num_rows, short.reads) == (2, 1)
    many = io.BytesIO()
    pq.write_table(pa.table({f"column{n}": [1] for n in range(2_000)}), many)
    long = Counting(many.getvalue())
    assert (with_footer(long, "").metadata.num_columns, long.reads) == (2_000, 2)
    with pytest.raises(pa.ArrowInvalid):
        with_footer(io.BytesIO(b""), "")


def test_forms_are_read_side_by_side_and_a_wrong_size_is_told_from_a_missing_file(
    tmp_path: Path,
) -> None:
    data = parquet(pa.array([1, 2]))
    (tmp_path / "a").write_bytes(data)
    (tmp_path / "torn").write_bytes(data[:-3])
    files = [("a", len(data)), ("gone", 10), ("torn", len(data) - 3)]
    found = read_forms(files, through(Files(tmp_path)))  # type: ignore[arg-type]
    assert found.keys() == {"a"}
    (tmp_path / "cut").write_bytes(data[: len(data) // 2])
    cut = [("cut", len(data))]
    assert read_forms(cut, through(Files(tmp_path))) == {}  # type: ignore[arg-type]
    for size in (len(data) - 9, len(data) + 5, 4, 0):
        found = read_forms([("a", size)], through(Files(tmp_path)))  # type: ignore[arg-type]
        assert found == {"a": WrongSize(size, len(data))}


def test_files_of_a_slow_store_are_read_side_by_side(tmp_path: Path) -> None:
    data, threads = parquet(pa.array([1, 2])), set[int]()

    def slow(file: tuple[str, int]) -> FileForm:
        threads.add(threading.get_ident())
        time.sleep(3 * file_forms.SLOW_SECONDS)
        return form(data)

    found = read_forms([(str(n), len(data)) for n in range(12)], slow)
    assert len(found) == 12 and len(threads) > 2


def test_a_schema_is_the_same_whatever_was_decoded_before() -> None:
    """Schemas begin alike here, and one is the start of another."""
    columns = {"a": pa.array([1, 2]), "b": pa.array(["x", None]), "c": pa.array([[1.5], []])}
    every = [
        parquet(*(columns[name][:rows] for name in names))
        for names in ("a", "ab", "abc", "ac", "b", "bc", "c", "ba", "cab", "cb")
        for rows in (1, 2)
    ]
    alone = []
    for data in every:
        parquet_schema._recent = ()
        alone.append(form(data).schema)
    assert len(set(alone)) == 10
    assert [form(data).schema for data in every * 2] == alone * 2
    assert len(parquet_schema._recent) == parquet_schema.MOST_RECENT


def test_what_is_known_of_a_file_is_kept_by_table_path_and_size(tmp_path: Path) -> None:
    forms = {
        "a": form(parquet(pa.array([[1]]), pa.array([True]), data_page_version="2.0")),
        "b": WrongSize(7, 9),
        "d": WrongRows(7, 9),
    }
    FormCache(tmp_path).keep(UUID, {"a": 5, "b": 7, "d": 4}, forms)
    again = FormCache(tmp_path)
    assert again.known(UUID, [("a", 5), ("b", 7), ("c", 1), ("d", 4)]) == forms
    assert again.known(UUID, [("a", 6)]) == {}
    assert again.known("another", [("a", 5)]) == {}
    again.keep(UUID, {"b": 7, "c": 1}, {"c": forms["a"]})
    assert again.known(UUID, [("a", 5), ("b", 7), ("c", 1)]) == {"b": forms["b"], "c": forms["a"]}


def test_a_cache_that_cannot_be_used_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "forms.db").write_bytes(b"no database at all" * 100)
    cache = FormCache(tmp_path)
    cache.keep(UUID, {"b": 7}, {"b": WrongSize(7, 9)})
    assert cache.known(UUID, [("b", 7)]) == {}
