"""Written columns have a dictionary where it is smaller than their plain values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from reconciler.rewrite.columns import Column
from reconciler.rewrite.task import FileProperties
from reconciler.rewrite.write import writing

ROWS = 50_000


def test_a_dictionary_is_written_where_it_pays(tmp_path: Path) -> None:
    """Arrow's writer lists the values of every column, whether they repeat or not."""
    random = np.random.default_rng(1)
    columns = (
        Column(1, "id", "long"), Column(2, "price", "double"),
        Column(3, "shop", "int"), Column(4, "clerk", "string"),
        Column(5, "note", "string"),
    )  # fmt: skip
    rows = pa.table({
        "id": pa.array(random.permutation(ROWS)), "price": pa.array(random.random(ROWS)),
        "shop": pa.array(random.integers(0, 50, ROWS).astype(np.int32)),
        "clerk": pa.array([f"Clerk#{n:06d}" for n in random.integers(0, 800, ROWS)]),
        "note": pa.array([f"{n:024d}" for n in random.permutation(ROWS)]),
    })  # fmt: skip
    path = tmp_path / "file.parquet"
    with writing(path, columns, FileProperties()) as made:
        made.write(rows)
    group = pq.read_metadata(path).row_group(0)
    listed = {group.column(n).path_in_schema for n in range(5)
              if group.column(n).has_dictionary_page}  # fmt: skip
    assert listed == {"shop", "clerk"}
    assert group.column(1).total_compressed_size < 8.05 * ROWS
    assert pq.read_table(path).equals(rows)
