"""The leaves of a tree of cuts as the report draws them: what they hold, and how often they are
read (Yang et al., "Qd-tree: Learning Data Layouts for Big Data Analytics", section 3.3).

A query reads a leaf if the cuts above it do not rule the query out.
"""

from __future__ import annotations

import numpy as np

from reconciler.plan.leaf_drift import meets
from reconciler.queries.block_routing import described
from reconciler.queries.predicate import push_not
from reconciler.queries.pruning import may_match, simplify
from reconciler.queries.shape import Shape, Workload
from reconciler.render.report_model import LeafMap
from reconciler.table.cut_tree import LEAF, Tree, leaves_of_ranks
from reconciler.table.filetable import ColumnBounds, FileTable, Float64, Int64
from reconciler.table.sample import RowSample
from reconciler.table.schema import Schema

CELLS = 4_000_000
"""Queries or files x leaves that are judged at once: bounds the memory, changes no result."""
MANY = 1 << 40
"""Rows that a leaf may have, for all that its cuts say."""


def leaf_map(tree: Tree, files: FileTable, sample: RowSample | None, workload: Workload) -> LeafMap:
    """Return the leaves. sample: rows of some of the files, over the columns that the tree cuts;
    None without any."""
    held = leaf_bytes(tree, files, sample)
    order = [
        files.schema.name_of(field) if field in files.schema.by_id else "" for field in tree.inner
    ]
    return LeafMap(
        columns=tuple(files.schema.name_of(field) for field in tree.by_weight),
        bytes=held,
        reads=leaf_reads(tree, files.schema, workload),
        boxes=boxes(tree, held),
        sorted_by=tuple(order),
    )


def leaf_bytes(tree: Tree, files: FileTable, sample: RowSample | None) -> Float64:
    """Return the bytes of the live rows of each leaf, float64[leaves].

    Those of a file are divided as its sampled rows are. A file without any is divided among the
    leaves that its bounds meet, as the sampled rows of all files are.
    """
    live = files.live_bytes.astype(np.float64)
    every: Float64 = np.zeros(tree.leaves)
    weight: Float64 = np.zeros(len(files))
    found: Float64 = np.zeros(tree.leaves)
    if sample is not None and len(sample):
        leaf = _leaf_of(tree, sample)
        every += np.bincount(leaf, sample.weight, tree.leaves)
        weight += np.bincount(sample.file, sample.weight, len(files))
        each = sample.weight * live[sample.file] / weight[sample.file]
        found += np.bincount(leaf, each, tree.leaves)
    unknown, step = np.flatnonzero(weight == 0.0), max(1, CELLS // tree.leaves)
    for start in range(0, len(unknown), step):
        some = unknown[start : start + step]
        met = meets(files, tree, some)
        likely = met * every
        share = np.where(likely.any(axis=1, keepdims=True), likely, met)
        found += (live[some] / np.maximum(share.sum(axis=1), 1e-9)) @ share
    return found


def _leaf_of(tree: Tree, sample: RowSample) -> Int64:
    """Return the leaf of each sampled row."""
    known = {}
    for field in tree.cut_columns:
        values, null = sample.values[field], sample.null[field]
        nan = np.isnan(values) & ~null if values.dtype.kind == "f" else np.zeros_like(null)
        valued = ~null & ~nan
        distinct, ranks = np.unique(values[valued], return_inverse=True)
        places = np.full(len(values), -1, dtype=np.int64)
        places[valued] = ranks.reshape(-1)
        places[nan] = len(distinct)
        known[field] = places, distinct
    return leaves_of_ranks(tree, known, len(sample))


def leaf_reads(tree: Tree, schema: Schema, workload: Workload) -> Float64:
    """Return the recorded executions that read each leaf as a share of all, float64[leaves]."""
    kinds = {field: known.kind for field, known in schema.by_id.items() if known.kind is not None}
    columns = {
        field: described(tree, field, kinds[field]) for field in tree.of_column if field in kinds
    }
    read = np.zeros(tree.leaves)
    step = max(1, CELLS // tree.leaves)
    for shape in workload.shapes:
        for start in range(0, len(shape), step):
            read += _reading(shape.take(np.arange(start, min(start + step, len(shape)))),
                             columns, schema, tree.leaves)  # fmt: skip
    return read / max(workload.queries, 1e-9)


def _reading(
    shape: Shape, columns: dict[int, ColumnBounds], schema: Schema, leaves: int
) -> Float64:
    """Return the executions that read each leaf, float64[leaves]."""
    if shape.full_scan:
        return np.full(leaves, float(shape.weight.sum()))
    wanted = simplify(push_not(shape.predicate), schema)
    records = np.full(leaves, MANY, dtype=np.int64)
    opened = may_match(
        wanted, shape.literals, columns, records, schema=schema, queries=len(shape)
    )  # fmt: skip
    found: Float64 = shape.weight @ opened
    return found


def boxes(tree: Tree, held: Float64) -> Float64:
    """Return the place of each leaf in the unit square as left, bottom, width and height,
    float64[leaves, 4]: the square is parted as the tree parts the bytes, along its longer side."""
    before = np.concatenate(([0.0], np.cumsum(held)))
    found = np.zeros((tree.leaves, 4))
    open_at = [(0.0, 0.0, 1.0, 1.0)]
    leaf = 0
    for at, (_, node, leaves) in enumerate(tree.walk()):
        left, bottom, width, height = open_at.pop()
        if node == LEAF:
            found[leaf] = left, bottom, width, height
            leaf += 1
            continue
        below = tree.leaves_left_of(at)
        whole = before[leaf + leaves] - before[leaf]
        share = (before[leaf + below] - before[leaf]) / whole if whole > 0.0 else below / leaves
        if width >= height:
            one, rest = width * share, width * (1.0 - share)
            open_at += [(left + one, bottom, rest, height), (left, bottom, one, height)]
        else:
            one, rest = height * share, height * (1.0 - share)
            open_at += [(left, bottom + one, width, rest), (left, bottom, width, one)]
    return found
