"""ORDER BY ... LIMIT reads like a range: what DuckDB reads of real files, and what is laid out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.replay.table import SimulatedTable
from reconciler.plan.actions.rewrite import Recluster
from reconciler.queries.first_rows import last_of, with_first_rows
from reconciler.queries.fragments import Fragment, workload_of_fragments
from reconciler.queries.predicate import TRUE, Comparison, First, Ref
from reconciler.queries.read_cost import read_shape
from reconciler.queries.shape import Workload
from reconciler.queries.table_view import table_view
from tests.advisor.worlds import DAY, KEY, PART, ROW_BYTES, SETTINGS, advise, apply, arrived

FILES, ROWS, WANTED = 24, 2_000, 10
SMALL = replace(SETTINGS, target_bytes=ROW_BYTES * ROWS, row_group_bytes=ROW_BYTES * ROWS)


def _table(files: int = FILES, rows: int = ROWS) -> SimulatedTable:
    return arrived(np.random.default_rng(0), rows=files * rows, rows_per_file=rows)


def _asking(column: int, *, descending: bool, count: int = 200, rows: int = WANTED) -> Workload:
    return workload_of_fragments(
        Fragment(
            source="log", position=n, table_uuid="u",
            predicate=First(Ref(column), descending, rows), literals=(), moving=(),
            projection=(1, 2, 3, 4), weight=1.0, event_ms=n * 10 * DAY // count, engine="duckdb",
        )
        for n in range(count)
    )  # fmt: skip


def _read(table: SimulatedTable, work: Workload) -> float:
    """The share of the table that a query reads."""
    files = table.file_table()
    (shape,) = with_first_rows(work, files).shapes
    view = table_view(files, table.row_groups(), None, SMALL.row_group_bytes, 0)
    return float(read_shape(view, shape).bytes.mean() / files.bytes.sum())


@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize(("column", "rows"), [(PART, 10), (PART, 2_000), (KEY, 10), (KEY, 5_000)])
def test_the_last_of_the_first_rows_is_found_from_bounds(
    column: int, rows: int, descending: bool
) -> None:
    table = _table()
    values = np.sort(table.values[column])
    real = int(values[-rows] if descending else values[rows - 1])
    found = last_of(First(Ref(column), descending, rows), table.file_table())
    assert found is not None
    assert abs(found - real) < 0.002 * float(np.ptp(values))


NS, LEAST, MOST = 1_700_000_000_000_000_000, -(2**63), 2**63 - 1
MOMENTS = (NS + 1, NS + 1), (NS + 1_000, NS + 2_000)
ENDS = (LEAST, LEAST), (MOST, MOST)


@pytest.mark.parametrize(
    ("ranges", "rows", "descending", "real", "read"),
    [
        (MOMENTS, 10, False, NS + 1, 1),
        (MOMENTS, 10, True, NS + 1_990, 1),
        (MOMENTS, 1_500, False, NS + 1_500, 2),
        (((NS - 2_000, NS - 1_000), (NS - 1, NS - 1)), 10, True, NS - 1, 1),
        (((NS + 1, NS + 1),) * 2, 5_000, True, NS + 1, 2),
        (ENDS, 10, False, LEAST, 1),
        (ENDS, 10, True, MOST, 1),
        (((LEAST, MOST),) * 2, 5_000, False, MOST, 2),
    ],
)
def test_numbers_that_floats_do_not_tell_apart_leave_the_files_of_the_first_rows(
    ranges: tuple[tuple[int, int], ...], rows: int, descending: bool, real: int, read: int
) -> None:
    """Each of the two files has 1,000 rows."""
    files = _table(2, 1_000).file_table()
    low, high = (np.array(side, dtype=np.int64) for side in zip(*ranges, strict=True))
    files.columns[PART] = replace(files.columns[PART], lower=low, upper=high)
    found = last_of(First(Ref(PART), descending, rows), files)
    assert found is not None and abs(found - real) <= 1
    asked = _asking(PART, descending=descending, count=1, rows=rows)
    (shape,) = with_first_rows(asked, files).shapes
    view = table_view(files, None, None, SMALL.row_group_bytes, 0)
    assert read_shape(view, shape).files.tolist() == [read]


def test_a_column_without_bounds_is_read_whole() -> None:
    table, work = _table().file_table(), _asking(PART, descending=True)
    column = table.columns[PART]
    table.columns[PART] = replace(column, has_upper=np.zeros(len(table), dtype=np.bool_))
    (shape,) = with_first_rows(work, table).shapes
    assert isinstance(shape.predicate, First)
    view = table_view(table, None, None, SMALL.row_group_bytes, 0)
    assert read_shape(view, shape).files.tolist() == [FILES] * len(shape)


def test_queries_of_the_latest_rows_are_worth_an_order_by_their_column() -> None:
    table, work = _table(), _asking(PART, descending=True)
    known = with_first_rows(work, table.file_table())
    (shape,) = known.shapes
    assert isinstance(shape.predicate, Comparison)
    assert shape.shape_id == work.shapes[0].shape_id
    advice = advise(table, known, SMALL)
    (planned,) = [item.action for item in advice.actions]
    assert isinstance(planned, Recluster)
    assert planned.ordering.key[0].field_id == PART
    after = apply(table, advice, SMALL)
    assert _read(after, work) < 0.1 < 0.4 < _read(table, work)


def test_without_their_order_they_read_everything_and_nothing_is_laid_out() -> None:
    work = _asking(PART, descending=True)
    plain = workload_of_fragments(
        Fragment("log", n, "u", TRUE, (), (), (1, 2, 3, 4), 1.0, n * DAY // 20, "spark")
        for n in range(200)
    )
    assert not advise(_table(), plain, SMALL).actions
    assert not advise(_table(), work, SMALL).actions, "not replaced by a comparison"


class _Counting:
    """A file of which the bytes that are read are counted."""

    def __init__(self, file: Any, seen: list[int]) -> None:
        self._file, self._seen = file, seen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read(self, size: int = -1) -> bytes:
        found: bytes = self._file.read(size)
        self._seen.append(len(found))
        return found


def _duckdb_reads(folder: Path, table: SimulatedTable, sql: str) -> float:
    """The bytes that DuckDB reads of real files of the table, relative to reading everything."""
    import duckdb
    import pyarrow as pa
    import pyarrow.parquet as pq
    from fsspec.implementations.local import LocalFileSystem

    paths = _written(folder, table, pa, pq)
    seen: list[int] = []

    class Counted(LocalFileSystem):
        protocol = "counted"

        def open(self, path: str, mode: str = "rb", **options: Any) -> Any:
            return _Counting(super().open(path.removeprefix("counted://"), mode, **options), seen)

    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    connection.register_filesystem(Counted())

    def measured(query: str) -> int:
        seen.clear()
        source = ", ".join(f"'counted://{path}'" for path in paths)
        connection.execute(query.format(t=f"read_parquet([{source}])")).fetchall()
        return sum(seen)

    return measured(sql) / measured("SELECT * FROM {t}")


def _written(folder: Path, table: SimulatedTable, pa: Any, pq: Any) -> Sequence[Path]:
    paths = []
    for file in table.files:
        path = folder / f"{file.path}.parquet"
        names = {field.field_id: field.name for field in table.schema.fields}
        rows = {names[column]: values[file.rows] for column, values in table.values.items()}
        pq.write_table(pa.table(rows), path, row_group_size=file.groups[0])
        paths.append(path)
    return paths


def test_duckdb_reads_less_of_files_in_the_order_it_asks_for(tmp_path: Path) -> None:
    """Whatever the order in which files are listed. It also reads footers, and of the order's
    column more than the model says."""
    rows = 20_000
    size = ROW_BYTES * rows
    settings = replace(SMALL, target_bytes=size, row_group_bytes=size)
    table, work = _table(8, rows), _asking(PART, descending=False)
    known = with_first_rows(work, table.file_table())
    after = apply(table, advise(table, known, settings), settings)
    assert _read(after, work) < 0.5 * _read(table, work)
    for direction in ("ASC", "DESC"):
        sql = f"SELECT * FROM {{t}} ORDER BY part {direction} LIMIT {WANTED}"
        before = _duckdb_reads(tmp_path, table, sql)
        assert _duckdb_reads(tmp_path, after, sql) < 0.6 * before
