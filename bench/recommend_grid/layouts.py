"""All layouts of a table that a brute force tries: priced on all rows, and the best ones written.

A layout is a partition spec, an order of rows, and sizes of files and row groups. Bounds of files
and row groups are exact; bytes of a column are those of one file in the same order, until the
layout is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.recommend_grid.kinds import Kind, Query
from bench.recommend_grid.price import Found, Pieces, pieces_of, priced
from bench.recommend_on_spark.by_arrow import options_of, size_of, write_file, written
from reconciler.advisor.simulate.layout import Sizes
from reconciler.plan.ordering import ARRIVAL, Hilbert, Lexicographic, Ordering
from reconciler.queries import transforms
from reconciler.rewrite.leaves import files_at
from reconciler.table.cut_tree import Tree
from reconciler.table.filetable import Int64
from reconciler.table.row_group_bytes import output_files, row_group_rows
from reconciler.table.schema import PartitionSpec, Schema, SortColumn

MIB = 1 << 20
PER_FILE = (1, 2, 4, 8, 16, 32, 64, 128, 256)
LEAST_GROUP, LEAST_FILE = 500, MIB
MOST_PARTS, LEAST_PART = 100, 256 << 10
MOST_COLUMNS = 4
"""Filtered columns of which every pair and triple is tried as a key, the most frequent ones."""
ORDERED, WRITTEN = 24, 8
"""Specs with orders whose own column sizes are measured, and layouts that are written."""
FINER = (0.7, 1.4)


@dataclass(frozen=True, slots=True)
class Spec:
    """A partitioning. text: for people; part: int64[rows], the partition of each row; buckets: by
    column, the bucket of a value, where queries for one value skip by it; by_part: by column, the
    bucket of each partition."""

    text: str
    part: Int64
    buckets: Mapping[str, Callable[[Any], int]]
    by_part: Mapping[str, Int64]


@dataclass(frozen=True)
class Layout:
    spec: Spec
    ordering: Ordering
    sizes: Sizes

    def text(self, schema: Schema) -> str:
        sizes = self.sizes
        order = self.ordering.text(schema) or "unsorted"
        return (
            f"{self.spec.text} / {order} / {sizes.target_bytes / MIB:.1f} MiB / "
            f"{sizes.row_group_bytes >> 10} KiB"
        )


@dataclass(frozen=True)
class Laid:
    """A table whose rows can be put into any layout. schema: with the ids of the real table."""

    kind: Kind
    schema: Schema

    @cached_property
    def ids(self) -> dict[str, int]:
        return {field.name: field.field_id for field in self.schema.fields}

    @cached_property
    def values(self) -> dict[str, np.ndarray]:
        return {name: self._values(name) for name in self.kind.filtered}

    def _values(self, name: str) -> np.ndarray:
        column = self.kind.rows[name]
        if pa.types.is_timestamp(column.type):
            return column.cast(pa.int64()).to_numpy()
        if pa.types.is_date(column.type):
            return column.cast(pa.int32()).to_numpy()
        found = column.to_numpy(zero_copy_only=False)
        return found.astype("S") if found.dtype.kind in "OU" else found

    @cached_property
    def ranked(self) -> dict[str, tuple[np.ndarray, Int64]]:
        found = {}
        for name, values in self.values.items():
            distinct, ranks = np.unique(values, return_inverse=True)
            found[name] = distinct, ranks.reshape(-1).astype(np.int64)
        return found

    @cached_property
    def by_rank(self) -> tuple[Query, ...]:
        """Return the queries in ranks, which are the values of in-memory bounds."""

        def ranks(name: str, low: Any, high: Any) -> tuple[int, int]:
            distinct, _ = self.ranked[name]
            ends = [one.encode() if isinstance(one, str) else one for one in (low, high)]
            return (
                int(np.searchsorted(distinct, ends[0], side="left")),
                int(np.searchsorted(distinct, ends[1], side="right")) - 1,
            )

        return tuple(
            replace(query, ranges={name: ranks(name, *span) for name, span in query.ranges.items()})
            for query in self.kind.queries
        )

    def order(self, part: Int64, ordering: Ordering) -> tuple[Int64, Int64 | None]:
        """Return the rows in the order in which they are written, and their leaves in a tree."""
        names = [self.schema.name_of(column.field_id) for column in ordering.key]
        ranks = [self.ranked[name][1] for name in names]
        distinct = [self.ranked[name][0] for name in names]
        keys = ordering.sort_keys(ranks, distinct) if ordering.key else ()
        rows = np.lexsort((np.arange(len(part)), *reversed(keys), part)).astype(np.int64)
        leaf = ordering.leaf_of(ranks, distinct) if ordering.key else None
        return rows, None if leaf is None else leaf[rows]

    def spec_of(self, spec: PartitionSpec) -> Spec:
        code = np.zeros(len(self.kind.rows), dtype=np.int64)
        texts, buckets, by_row = [], {}, {}
        for field in spec.fields:
            name = self.schema.name_of(field.source_id)
            found, transform = self._part(name, field.transform)
            code = code * (int(found.max()) + 1) + found
            texts.append(f"{field.transform}({name})")
            if transform is not None:
                buckets[name], by_row[name] = transform, found
        _, first, part = np.unique(code, return_index=True, return_inverse=True)
        by_part = {name: found[first] for name, found in by_row.items()}
        return Spec(", ".join(texts) or "none", part.reshape(-1), buckets, by_part)

    def _part(self, name: str, transform: str) -> tuple[Int64, Callable[[Any], int] | None]:
        distinct, ranks = self.ranked[name]
        kind = self.schema.by_id[self.ids[name]].type
        results = transforms.apply(transform, kind, distinct)
        values, of_rank = np.unique(results, return_inverse=True)
        if not transform.startswith("bucket"):
            return of_rank.reshape(-1)[ranks].astype(np.int64), None

        def bucket(value: Any) -> int:
            given = np.array([value.encode() if isinstance(value, str) else value])
            one = transforms.apply(transform, kind, given.astype(distinct.dtype))
            return int(np.searchsorted(values, one)[0])

        return of_rank.reshape(-1)[ranks].astype(np.int64), bucket

    def specs(self) -> Iterator[Spec]:
        """Yield no partitions, and each column's values, times and ranges that make a few."""
        size = size_of(self.kind.rows, 50_000)
        yield self.spec_of(PartitionSpec(0))
        for name in self.kind.filtered[:MOST_COLUMNS]:
            kind = self.schema.by_id[self.ids[name]].type
            if kind == "date" or kind.startswith("timestamp"):
                wanted: tuple[str, ...] = ("day", "month", "year")
            elif kind in ("int", "long"):
                wanted = ("identity", *(f"truncate[{10**power}]" for power in range(1, 7)))
            else:
                wanted = ("identity",) if kind == "string" else ()
            for transform in wanted:
                found, _ = self._part(name, transform)
                parts = int(found.max()) + 1
                if 1 < parts <= min(MOST_PARTS, size / LEAST_PART):
                    yield Spec(f"{transform}({name})", found, {}, {})

    def orderings(self) -> tuple[Ordering, ...]:
        columns = [SortColumn(self.ids[name]) for name in self.kind.filtered]
        few = columns[:MOST_COLUMNS]
        found: list[Ordering] = [ARRIVAL, *(Lexicographic((one,)) for one in columns)]
        for count in (2, 3):
            found += [Lexicographic(key) for key in permutations(few, count)]
            found += [Hilbert(key) for key in combinations(few, count)]
        if len(columns) > MOST_COLUMNS - 1:
            found.append(Hilbert(tuple(few)))
        return tuple(found)

    def sizes(self, whole: int) -> tuple[Sizes, ...]:
        per_row = whole / len(self.kind.rows)
        files = [MIB << power for power in range(10) if MIB << power < 4 * whole]
        return tuple(
            Sizes(size, size // count)
            for size in files
            for count in PER_FILE
            if size // count >= LEAST_GROUP * per_row
        )

    def widths(self, rows: Int64, each: int) -> dict[str, float]:
        """Return the stored bytes of a row, by column, in this order."""
        sink = pa.BufferOutputStream()
        write_file(self.kind.rows.take(pa.array(rows)), sink, each)
        footer = pq.read_metadata(pa.BufferReader(sink.getvalue()))
        found = dict.fromkeys(self.kind.rows.column_names, 0.0)
        for group in range(footer.num_row_groups):
            for place in range(footer.num_columns):
                chunk = footer.row_group(group).column(place)
                found[chunk.path_in_schema] += chunk.total_compressed_size / len(rows)
        return found

    def in_memory(
        self, spec: Spec, rows: Int64, sizes: Sizes, widths: Mapping[str, float]
    ) -> Pieces:
        """Return the row groups of a layout without writing it: bounds of all rows, in ranks."""
        per_row, part = sum(widths.values()), spec.part[rows]
        begins = np.flatnonzero(np.diff(part, prepend=-1))
        ends = np.append(begins[1:], len(rows))
        most = row_group_rows(sizes.row_group_bytes, per_row)
        edges: list[np.ndarray] = []
        owner: list[np.ndarray] = []
        files = 0
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            count = int(output_files((end - begin) * per_row, sizes.target_bytes))
            cuts = begin + (end - begin) * np.arange(count + 1) // count
            for first, last in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
                groups = -(-(last - first) // most)
                each = -(-(last - first) // groups)
                starts = np.arange(first, last, each)
                edges.append(starts)
                owner.append(np.full(len(starts), files))
                files += 1
        at = np.concatenate(edges)
        held = np.diff(np.append(at, len(rows)))
        bounds = {}
        for name, (_, ranks) in self.ranked.items():
            mine = ranks[rows]
            bounds[name] = np.minimum.reduceat(mine, at), np.maximum.reduceat(mine, at)
        return Pieces(
            np.concatenate(owner), bounds, {name: held * width for name, width in widths.items()},
            np.full(files, 200.0 * len(widths)), int(per_row * len(rows)),
        )  # fmt: skip

    def written(self, layout: Layout, folder: Path) -> Found:
        """Write a layout and return what the queries read of its files."""
        spec, sizes = layout.spec, layout.sizes
        rows, leaf = self.order(spec.part, layout.ordering)
        part = spec.part[rows]
        begins = np.flatnonzero(np.diff(part, prepend=-1))
        ends = np.append(begins[1:], len(rows))
        paths, owner = [], []
        for number, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True)):
            where = folder / f"{number:05d}"
            where.mkdir(parents=True)
            held = self.kind.rows.take(pa.array(rows[begin:end]))
            tree = layout.ordering.tree
            mine = list(
                written(held, sizes, where)
                if leaf is None or tree is None
                else _along_leaves(held, tree, leaf[begin:end], sizes, where)
            )
            paths += mine
            owner += [int(part[begin])] * len(mine)
        buckets = {
            name: (bucket, spec.by_part[name][np.array(owner)])
            for name, bucket in spec.buckets.items()
        }
        return priced(pieces_of(paths, self.kind.filtered), self.kind.queries, buckets)


def _along_leaves(
    rows: pa.Table, tree: Tree, leaf: Int64, sizes: Sizes, folder: Path
) -> Iterator[Path]:
    """Write files that end at leaves, as the engine divides them into row groups."""
    per_row = size_of(rows, row_group_rows(sizes.row_group_bytes, 1.0 * rows.nbytes / len(rows)))
    per_row /= len(rows)
    own, held = np.unique(leaf, return_counts=True)
    most = row_group_rows(sizes.row_group_bytes, per_row)
    begin = 0
    file_rows = sizes.target_bytes / per_row
    for number, groups in enumerate(files_at(tree, own, held, file_rows, most)):
        path = folder / f"{number:05d}.parquet"
        _in_runs(rows.slice(begin, sum(groups)), np.cumsum(groups).tolist(), path)
        begin += sum(groups)
        yield path


def _in_runs(rows: pa.Table, ends: Sequence[int], path: Path) -> None:
    options = options_of(rows, max(len(rows) // len(ends), 1))
    with pq.ParquetWriter(path, rows.schema, **options) as writer:
        first = 0
        for end in ends:
            writer.write_table(rows.slice(first, end - first), row_group_size=end - first)
            first = end


def best_of_all(laid: Laid, folder: Path) -> list[tuple[Layout, Found]]:
    """Return the layouts that were written, the cheapest to read first: coarse to fine, all in
    memory by the column sizes of unsorted rows, then the best orders by their own, then files."""
    arrival = np.arange(len(laid.kind.rows))
    plain = laid.widths(arrival, 20_000)
    sizes = laid.sizes(int(sum(plain.values()) * len(arrival)))
    kinds: list[tuple[float, Spec, Ordering, Int64]] = []
    few = sizes[:: max(len(sizes) // 8, 1)]
    for spec in laid.specs():
        for ordering in laid.orderings():
            rows, _ = laid.order(spec.part, ordering)
            cost = min(
                priced(laid.in_memory(spec, rows, size, plain), laid.by_rank).cost for size in few
            )
            kinds.append((cost, spec, ordering, rows.astype(np.int32)))
    kinds.sort(key=lambda kind: kind[0])
    found: list[tuple[float, Layout]] = []
    for _, spec, ordering, rows in kinds[:ORDERED]:
        widths = laid.widths(rows, 20_000)
        mine = [
            (priced(laid.in_memory(spec, rows, size, widths), laid.by_rank).cost, size)
            for size in sizes
        ]
        _, near = min(mine, key=lambda one: one[0])
        for of_file in (*FINER, 1.0):
            for of_group in (*FINER, 1.0):
                file = int(near.target_bytes * of_file)
                size = Sizes(file, min(file, int(near.row_group_bytes * of_group)))
                pieces = laid.in_memory(spec, rows, size, widths)
                mine.append((priced(pieces, laid.by_rank).cost, size))
        mine.sort(key=lambda one: one[0])
        found += [(cost, Layout(spec, ordering, size)) for cost, size in mine[:2]]
    found.sort(key=lambda one: one[0])
    done = [
        (layout, laid.written(layout, folder / f"rival{number}"))
        for number, (_, layout) in enumerate(found[:WRITTEN])
    ]
    return sorted(done, key=lambda one: one[1].cost)
