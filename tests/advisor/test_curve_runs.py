"""Columns of a curve whose values repeat, against files that are written along it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from reconciler.advisor.simulate.layout import Layout
from reconciler.advisor.simulate.pool import build_pool
from reconciler.advisor.simulate.whatif import simulate
from reconciler.catalog.footers import read_row_groups
from reconciler.catalog.observe import observe_table
from reconciler.plan.ordering import Hilbert
from reconciler.queries.table_view import table_view
from reconciler.rewrite.curve import fit_curve
from reconciler.state.sketch import SketchedFiles, sample_rows
from reconciler.table.schema import SortColumn
from tests.conftest import sqlite_catalog

FILES, ROWS, GROUPS, SAMPLED = 8, 240_000, 12, 12_000
NAMES = ("late", "minutes", "fare")


def _rows() -> pa.Table:
    """Delays pile up at few minutes, minutes in the air lie about their mean, fares are apart."""
    random = np.random.default_rng(5)
    columns = (
        random.gamma(0.6, 30.0, ROWS) - 8.0,
        random.gamma(2.0, 60.0, ROWS) + 20.0,
        random.gamma(4.0, 90.0, ROWS),
    )
    return pa.table(
        {
            name: np.rint(values).astype(np.int32)
            for name, values in zip(NAMES, columns, strict=True)
        }
    )


def _predicted(folder: Path, rows: pa.Table, key: Hilbert, size: int) -> dict[int, float]:
    """Return the predicted bytes per row of each column, from a twentieth of the rows."""
    (folder / "warehouse").mkdir()
    config = sqlite_catalog(folder)
    catalog = SqlCatalog(config.name, **dict(config.properties))
    catalog.create_namespace("s")
    table = catalog.create_table("s.t", rows.schema)
    for start in range(0, ROWS, ROWS // FILES):
        table.append(rows.slice(start, ROWS // FILES))
    seen, every = observe_table(config, ("s", "t"), folder / "cache"), np.arange(FILES)
    sample = sample_rows(SketchedFiles(config, seen.files), every, [1, 2, 3])
    footers = read_row_groups(config, seen.files, every)
    pool = build_pool(table_view(seen.files, footers, sample, 128 << 20), [1, 2, 3], SAMPLED)
    assert pool is not None
    layout = Layout(key, 1 << 40, size, np.zeros(FILES, dtype=np.int64))
    files = simulate(layout, pool, ()).written.views[0].files
    return {field: float(files.column_sizes[field].sum()) / ROWS for field in (1, 2, 3)}


def _written(path: Path, rows: pa.Table, fields: tuple[int, ...]) -> tuple[dict[int, float], int]:
    """Return the written bytes per row of each column along the curve, and of a row group."""
    scores = np.stack([rows[field - 1].to_numpy().astype(np.float64) for field in fields])
    order = np.argsort(fit_curve(scores).position(scores), kind="stable")
    pq.write_table(
        rows.take(pa.array(order)), path, compression="zstd", compression_level=3,
        row_group_size=ROWS // GROUPS,
    )  # fmt: skip
    footer = pq.read_metadata(path)
    columns = [
        footer.row_group(group).column(column) for group in range(GROUPS) for column in range(3)
    ]
    sizes = np.array([one.total_compressed_size for one in columns]).reshape(GROUPS, 3)
    each = sizes.sum(axis=0) / ROWS
    return dict(enumerate(each.tolist(), 1)), int(sizes.sum()) // GROUPS


@pytest.mark.parametrize("fields", [(1, 2), (1, 3), (1, 2, 3)])
def test_repeated_values_along_a_curve_are_stored_as_runs(tmp_path, fields):
    """A sample of a twentieth shows runs of one row where the table has runs of two to thirty."""
    rows = _rows()
    written, size = _written(tmp_path / "curve.parquet", rows, fields)
    key = Hilbert(tuple(SortColumn(field) for field in fields))
    predicted = _predicted(tmp_path, rows, key, size)
    for field in (1, 2, 3):
        assert predicted[field] == pytest.approx(written[field], rel=0.2, abs=0.03), NAMES[
            field - 1
        ]
    assert sum(predicted.values()) == pytest.approx(sum(written.values()), rel=0.05)
