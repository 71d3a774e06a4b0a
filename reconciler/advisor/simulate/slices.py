"""How many distinct values a slice of rows has, and which share of its bytes is written again."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from reconciler.queries.stored_columns import StoredColumns
from reconciler.table.filetable import UNKNOWN, FileTable, Float64, Int64

LEAST_SHARE, MOST_SHARE = 0.2, 1.25
"""Limits of the estimate: bytes written per live byte of the inputs, footers of further files left
out."""


def slice_domain(stored: StoredColumns, field: int, file: Int64, starts: Int64) -> Float64:
    """Return the number of values from which slices of a column without a sample draw,
    float64[slices].

    file: row of the file table per row in physical order; starts: first row per slice. Files side
    by side on the column's scale add up their values; files over the same range share them.
    """
    base = np.full(len(starts), stored.domain[field])
    spans = stored.spans.get(field)
    if spans is None or spans.shared:
        return base
    grown = base * np.maximum(spans.reach(file, starts) / spans.mean, 1.0)
    return np.minimum(grown, spans.most(file, starts))


def written_share(
    files: FileTable,
    stored: StoredColumns,
    sizes: Mapping[int, npt.NDArray[np.number]],
    outputs: int,
) -> float:
    """Return the bytes written per live byte of the files, rounded to thousandths as in plans.

    sizes: of columns in the output. Sorted rows compress better, and what many files repeat is
    written once: dictionaries, and footers, which are the part of a file beside its columns if the
    size of each column is known. A column without footer information keeps its bytes. More files
    than before have a footer each.
    """
    live = files.live_bytes
    whole, alive = float(live.sum()), float(live.sum()) / max(float(files.total_bytes), 1.0)
    known = {f: n for f, n in files.column_sizes.items() if not (n == UNKNOWN).any()}
    measured = [field for field in stored.columns if field in sizes and field in known]
    if not measured or whole <= 0.0:
        return 1.0
    beside = max(whole - alive * sum(float(n.sum()) for n in known.values()), 0.0)
    repeated = beside if all(f.field_id in known for f in files.schema.fields) else 0.0
    gone = sum(alive * float(known[field].sum()) - float(sizes[field].sum()) for field in measured)
    gone += repeated * max(1.0 - outputs / len(files), 0.0)
    footer = float(stored.footer.of(np.ones(1))[0]) if repeated else 0.0
    more = footer * max(outputs - len(files), 0)
    return round(min(max(1.0 - gone / whole, LEAST_SHARE), MOST_SHARE) + more / whole, 3)
