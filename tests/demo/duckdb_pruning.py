"""What DuckDB's reader of Iceberg tables prunes by, for counts of the files that it opens."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from reconciler.table.filetable import UNKNOWN, ColumnBounds, FileTable


def as_duckdb_prunes(files: FileTable) -> FileTable:
    """Return the files with what DuckDB does not prune by left out: that a column holds only NULLs.

    Such a column has no bounds, and DuckDB opens its file for every condition on it, where Spark
    does not.
    """

    def without(column: ColumnBounds) -> ColumnBounds:
        only = (column.nulls == files.records) & ~column.has_lower & ~column.has_upper
        return replace(column, nulls=np.where(only, UNKNOWN, column.nulls))

    return replace(files, columns={key: without(each) for key, each in files.columns.items()})
