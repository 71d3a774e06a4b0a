"""Layouts written by pyarrow instead of Spark: which real rewrites a brute force is worth.

The rows of a table are sorted, cut into files of the target size and committed to a copy, whose
footers tell what the queries to come would read. It takes a fraction of a rewrite by Spark, and it
uses nothing of the what-if: real rows, real files, real bounds. Encodings are pyarrow's, so that
only the ranking counts; the best ones are then rewritten by Spark.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.table import Table
from pyiceberg.transforms import parse_transform

from bench.tables.drawn import Drawn
from bench.tables.play import NAMESPACE, ONE_FILE, TARGET, Place, Seen, look, read_of
from reconciler.plan.grouping import arrivals
from reconciler.plan.ordering import Ordering, order_rows
from reconciler.queries.shape import Workload
from reconciler.table.filetable import Int64
from reconciler.table.row_group_bytes import output_files
from reconciler.table.schema import Schema

OWN_TARGET = 512 << 20
ROW_GROUP_ROWS = "write.parquet.row-group-limit"


def read_cost(
    place: Place,
    drawn: Drawn,
    seen: Seen,
    parts: Sequence[pa.Table],
    ordering: Ordering,
    row_group_bytes: int,
    later: Workload,
) -> float:
    """Return the cost of the later queries if each of these parts were written in the ordering.

    parts: the rows of one partition each, in order of arrival. row_group_bytes: stored size of a
    row group, 0 for one a file.
    """
    name = f"{drawn.name}_trial"
    slices, rows_of_group = [], ONE_FILE
    for part in parts:
        ordered = part.take(pa.array(_order(part, ordering, seen.observation.schema)))
        size = _stored_bytes(ordered)
        if row_group_bytes:
            rows_of_group = min(rows_of_group, round(len(part) * row_group_bytes / size))
        edges = np.linspace(
            0, len(part), int(output_files(size, drawn.target or OWN_TARGET)) + 1
        ).astype(int)
        slices += [ordered.slice(a, b - a) for a, b in itertools.pairwise(edges)]
    table = _created(place, drawn, name, slices[0].schema, max(rows_of_group, 1))
    with table.transaction() as transaction:
        for one in slices:
            transaction.append(one)
    cost = read_of(look(place, name).view, later).cost
    place.catalog.drop_table(f"{NAMESPACE}.{name}")
    return cost


def parts_of(place: Place, drawn: Drawn, name: str, seen: Seen, rows: Int64) -> list[pa.Table]:
    """Return the live rows of these files per partition, in order of arrival."""
    if (
        drawn.changes
    ):  # position deletes: a scan leaves them out, and such a table has one partition
        return [place.catalog.load_table(f"{NAMESPACE}.{name}").scan().to_arrow()]
    return [pa.concat_tables(_files(seen, mine)) for mine in _by_partition(seen, rows)]


def _by_partition(seen: Seen, rows: Int64) -> Iterator[Int64]:
    files = seen.observation.files
    rows = rows[np.argsort(arrivals(files)[rows], kind="stable")]
    for number in np.unique(files.partition[rows]):
        yield rows[files.partition[rows] == number]


def _files(seen: Seen, rows: Int64) -> Iterator[pa.Table]:
    for path in seen.observation.files.path[rows]:
        yield pq.read_table(str(path).removeprefix("file://"))


def _order(part: pa.Table, ordering: Ordering, schema: Schema) -> Int64:
    ranks = [
        np.asarray(
            pc.rank(_column(part, schema.name_of(column.field_id)), null_placement="at_start",
                    tiebreaker="dense")
        ).astype(np.int64)
        for column in ordering.key
    ]  # fmt: skip
    return order_rows(ordering, ranks, np.arange(len(part)))


def _column(part: pa.Table, name: str) -> pa.ChunkedArray:
    first, *inner = name.split(".")
    column = part.column(first)
    return pc.struct_field(column, inner) if inner else column


def _stored_bytes(rows: pa.Table) -> int:
    sink = io.BytesIO()
    pq.write_table(rows, sink, compression="zstd")
    return sink.tell()


def _created(place: Place, drawn: Drawn, name: str, schema: pa.Schema, rows_of_group: int) -> Table:
    properties = {TARGET: str(ONE_FILE), ROW_GROUP_ROWS: str(rows_of_group)}
    table = place.catalog.create_table(f"{NAMESPACE}.{name}", schema, properties=properties)
    if drawn.partition:
        with table.update_spec() as spec:
            for column, transform in drawn.partition:
                spec.add_field(column, parse_transform(transform), f"{column}_part")
    return table
