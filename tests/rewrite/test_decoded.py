"""The memory of a rewrite as its plan predicts it from footers, beside what Arrow allocates."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reconciler.rewrite import decoded as decoding
from reconciler.rewrite import memory, rewriting
from reconciler.rewrite.columns import Column
from reconciler.rewrite.decoded import DecodedSizes
from reconciler.rewrite.files import DataFile
from reconciler.rewrite.task import Key, Order, Resources, Task
from reconciler.table import parquet_schema
from tests.rewrite.model import table_of
from tests.rewrite.spills import noted_spills

ROWS, FILES = 20_000, 3
PLENTY = Resources(1 << 40)
Make = Callable[[np.random.Generator], pa.Array]


def _long(random: np.random.Generator) -> pa.Array:
    """Texts that compress 20 to 1, no two of them equal."""
    return pa.array([f"{n:016x}" * 24 for n in random.integers(0, 1 << 62, ROWS)])


def _of(distinct: int, length: int, nulls: float = 0.0) -> Make:
    """Texts of which each occurs many times, so that they are stored as a dictionary."""

    def make(random: np.random.Generator) -> pa.Array:
        words = np.array([f"{n:06d}" * (length // 6) for n in range(distinct)], dtype=object)
        found = words[random.integers(0, distinct, ROWS)]
        return pa.array(found, mask=random.random(ROWS) < nulls)

    return make


def _numbers(random: np.random.Generator) -> pa.Array:
    return pa.array(random.integers(-(1 << 62), 1 << 62, ROWS))


def _nested(random: np.random.Generator) -> pa.Array:
    ends = np.concatenate([[0], np.cumsum(random.integers(0, 8, ROWS))]).astype(np.int32)
    return pa.ListArray.from_arrays(ends, pa.array(random.integers(0, 1 << 40, ends[-1])))


COLUMNS: dict[str, tuple[str, Make]] = {
    "numbers": ("long", _numbers),
    "texts that compress": ("string", _long),
    "few texts": ("string", _of(20, 600)),
    "many repeated texts": ("string", _of(4_000, 600)),
    "repeated texts and NULL": ("string", _of(4_000, 600, 0.5)),
}
LEVELS = {"sizes": True, "no sizes": False}


def _written(directory: Path, makes: dict[str, tuple[str, Make]]) -> tuple[Any, list[DataFile]]:
    random, files = np.random.default_rng(3), []
    columns = [Column(1, "k", "long")]
    columns += [Column(n, f"c{n}", kind) for n, (kind, _) in enumerate(makes.values(), 2)]
    for number in range(FILES):
        arrays = [_numbers(random), *(make(random) for _, make in makes.values())]
        fields = [
            pa.field(c.name, a.type, metadata={"PARQUET:field_id": str(c.field_id)})
            for c, a in zip(columns, arrays, strict=True)
        ]
        path = directory / f"{number}.parquet"
        made = pa.table(arrays, schema=pa.schema(fields))
        pq.write_table(made, path, compression="zstd", dictionary_pagesize_limit=8 << 20)
        files.append(DataFile(f"file:{path}", ROWS, path.stat().st_size))
    return table_of(columns), files


def _noted(files: list[DataFile]) -> DecodedSizes:
    found = DecodedSizes()
    for file in files:
        path = Path(file.path.removeprefix("file:"))
        metadata = pq.read_metadata(path)
        end = path.read_bytes()[-8 - metadata.serialized_size : -8]
        found.note(file.path, metadata, end)
    return found


@pytest.mark.parametrize("sizes", LEVELS)
@pytest.mark.parametrize("kind", COLUMNS)
def test_a_sort_takes_no_more_than_is_predicted_and_spills_by_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, sizes: str
) -> None:
    if not LEVELS[sizes]:
        monkeypatch.setattr(decoding, "text_sizes", lambda _: [])
    table, files = _written(tmp_path, {kind: COLUMNS[kind]})
    paths = (f"file:{tmp_path}/out-ATTEMPT.parquet",)
    decoded = _noted(files).of([file.path for file in files])
    task = Task(table, tuple(files), Order((Key(1),)), paths, FILES * ROWS, decoded=decoded)
    predicted = memory.in_one_pass(task)
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    monkeypatch.setattr(rewriting, "_use_pool", lambda: pa.set_memory_pool(pool))
    spills = noted_spills(monkeypatch)
    try:
        rewriting.rewritten(task, None, PLENTY)
        assert not spills
        assert pool.max_memory() <= 1.3 * predicted, (pool.max_memory(), predicted)
        assert predicted <= 4 * pool.max_memory(), (pool.max_memory(), predicted)
        rewriting.rewritten(task, None, Resources(predicted - 1))
        assert spills
    finally:
        pa.set_memory_pool(before)


def test_nested_values_are_counted(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    path, values = tmp_path / "a.parquet", _nested(random)
    pq.write_table(pa.table({"l": values}), path)
    found = _noted([DataFile(f"file:{path}", ROWS, path.stat().st_size)])
    assert 0.9 * values.nbytes <= found.of([f"file:{path}"]) <= 1.6 * values.nbytes


def test_a_column_is_a_dictionary_only_if_it_is_in_every_file(tmp_path: Path) -> None:
    random, files = np.random.default_rng(3), []
    for number, make in enumerate((_of(20, 600), _of(20, 600), _long)):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({"s": make(random)}), path)
        files.append(DataFile(f"file:{path}", ROWS, path.stat().st_size))
    found = _noted(files)
    few, *_ = paths = [file.path for file in files]
    assert found.of([few]) < 8 * ROWS
    assert found.of(paths) > 3 * 350 * ROWS
    assert found.of([*paths, "file:/unknown"]) == 0


def test_further_files_follow_from_those_whose_sizes_were_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, files = _written(tmp_path, {"s": COLUMNS["many repeated texts"]})
    each = _noted(files)
    monkeypatch.setattr(decoding, "MOST_PARSED", 1)
    first = _noted(files)
    paths = [file.path for file in files]
    assert first.of(paths) == pytest.approx(each.of(paths), rel=0.05)


def test_the_sizes_of_texts_are_those_that_the_writer_says(tmp_path: Path) -> None:
    path, values = tmp_path / "a.parquet", ["abc", None, "de" * 30, ""] * 100
    pq.write_table(pa.table({"n": range(400), "s": values}), path, row_group_size=200)
    metadata = pq.read_metadata(path)
    end = path.read_bytes()[-8 - metadata.serialized_size : -8]
    assert parquet_schema.text_sizes(end) == [[None, 63 * 50]] * 2
    with pytest.raises(parquet_schema.NotParquetError):
        parquet_schema.text_sizes(end[: len(end) // 2])


@pytest.mark.parametrize("cut", [0, 1, 7, 100])
def test_what_cannot_be_read_of_a_footer_stays_unknown(tmp_path: Path, cut: int) -> None:
    _, files = _written(tmp_path, {"s": COLUMNS["many repeated texts"]})
    metadata = pq.read_metadata(files[0].path.removeprefix("file:"))
    found = DecodedSizes()
    found.note("a", metadata, b"\x15" * cut)
    found.note("b", object(), b"")
    assert found.of(["a"]) > 0 and "b" not in found
