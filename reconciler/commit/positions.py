"""The rows that a position delete file hides, as DuckDB reads them."""

from __future__ import annotations

import tempfile

QUERY = "SELECT pos FROM read_parquet(?) WHERE file_path = ?"


def read(data: bytes, data_file: str) -> frozenset[int]:
    """Return the rows of a data file. data: the whole delete file."""
    import duckdb

    with tempfile.NamedTemporaryFile(suffix=".parquet") as copy, duckdb.connect() as sql:
        copy.write(data)
        copy.flush()
        return frozenset(row for (row,) in sql.execute(QUERY, [copy.name, data_file]).fetchall())
