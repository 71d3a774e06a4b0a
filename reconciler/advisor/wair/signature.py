"""Groups files that benefit from the same key: savings signatures and their clusters (WAIR section
4.4).

A file's saving is split equally over the query's predicate columns; the vectors are normalised and
clustered by DBSCAN with cosine distance. Signatures are rounded to a grid and the distinct points
weighted, which gives the same clusters without comparing all pairs of files. The paper names no
eps, minPts or noise rule: we use eps 0.1 and minPts 5 (clusters did not change between 0.05 and
0.3), and noise joins the cluster with the nearest centroid.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from reconciler.table.filetable import Float64, Int64

GRID = 0.01
EPS = 0.1
MIN_POINTS = 5
MAX_ANCHOR_COLUMNS = 3
NOISE = -1

MOST_CODES = np.iinfo(np.int64).max // 1_000


def signatures(
    by_shape: Float64, shape_columns: Sequence[Sequence[int]], columns: Sequence[int]
) -> Float64:
    """Return the savings per file and column, float64[files, columns], rows of unit length (or
    zero)."""
    vectors = np.zeros((by_shape.shape[1], len(columns)))
    place = {column: i for i, column in enumerate(columns)}
    for saving, used in zip(by_shape, shape_columns, strict=True):
        known = [place[c] for c in used if c in place]
        for column in known:
            vectors[:, column] += saving / len(used)
    length = np.sqrt((vectors**2).sum(axis=1, keepdims=True))
    return vectors / np.where(length > 0, length, 1.0)


def cluster(vectors: Float64, eps: float = EPS, min_points: int = MIN_POINTS) -> Int64:
    """Return the cluster number per vector, from 0 by first appearance; noise joins the nearest."""
    if not len(vectors):
        return np.zeros(0, dtype=np.int64)
    steps = np.rint(vectors / GRID)
    _, first, inverse, counts = np.unique(
        _codes(steps), return_index=True, return_inverse=True, return_counts=True
    )
    points = steps[first] * GRID
    labels = dbscan(points, counts.astype(np.float64), eps, min_points)
    if (labels == NOISE).all():
        return np.zeros(len(vectors), dtype=np.int64)
    centroids = np.stack(
        [
            np.average(points[labels == k], axis=0, weights=counts[labels == k])
            for k in range(labels.max() + 1)
        ]
    )
    noise = labels == NOISE
    labels[noise] = cosine_distance(points[noise], centroids).argmin(axis=1)
    per_vector = labels[inverse.reshape(-1)]
    _, first, numbered = np.unique(per_vector, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[numbered.reshape(-1)].astype(np.int64)


def _codes(steps: Float64) -> Int64:
    """Return one number per point of the grid, in the order of the points."""
    codes = np.zeros(len(steps), dtype=np.int64)
    for column in (steps - steps.min(axis=0)).T.astype(np.int64):
        codes = codes * (int(column.max()) + 1) + column
        if codes.max() > MOST_CODES:
            codes = np.unique(codes, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return codes


def dbscan(points: Float64, weight: Float64, eps: float, min_points: float) -> Int64:
    """Run DBSCAN over weighted distinct points: a point is core if its neighbours weigh enough."""
    near = cosine_distance(points, points) <= eps
    core = near @ weight >= min_points
    labels = np.full(len(points), NOISE, dtype=np.int64)
    number = 0
    for start in np.flatnonzero(core):
        if labels[start] != NOISE:
            continue
        frontier = np.zeros(len(points), dtype=np.bool_)
        frontier[start] = True
        member = frontier.copy()
        while frontier.any():
            reached = near[frontier & core].any(axis=0) & (labels == NOISE)
            frontier = reached & ~member
            member |= reached
        labels[member] = number
        number += 1
    return labels


def cosine_distance(left: Float64, right: Float64) -> Float64:
    """Return 1 - cosine, float64[left, right]; a zero vector is at distance 1 from all."""
    norm = np.sqrt((left**2).sum(axis=1))[:, None] * np.sqrt((right**2).sum(axis=1))[None, :]
    return 1.0 - (left @ right.T) / np.where(norm > 0, norm, 1.0)


def anchor(centroid: Float64) -> tuple[int, ...]:
    """Return the columns of the anchor nearest to the centroid, by falling contribution.

    Anchors are the unit vectors (one column: sort) and equal blends of up to three columns
    (Hilbert). The anchor is only a proposal; the what-if decides which key is best.
    """
    top = [int(i) for i in np.argsort(-centroid, kind="stable")[:MAX_ANCHOR_COLUMNS]]
    best, best_distance = tuple(top[:1]), np.inf
    for size in range(1, len(top) + 1):
        for members in combinations(top, size):
            vector = np.zeros((1, len(centroid)))
            vector[0, list(members)] = 1.0
            distance = float(cosine_distance(vector, centroid[None, :])[0, 0])
            if distance < best_distance - 1e-12:
                best, best_distance = members, distance
    return best


def scattered(centroid: Float64) -> bool:
    """Whether no anchor is near: the savings come from more columns than a curve serves well."""
    vector = np.zeros((1, len(centroid)))
    vector[0, list(anchor(centroid))] = 1.0
    return float(cosine_distance(vector, centroid[None, :])[0, 0]) > EPS


MAX_CURVE_COLUMNS = 6
"""Columns of the longest curve that is tried: each leaves the others fewer bits of the position."""

LEAST_SHARE = 0.05
"""A column with this share of the savings is in keys with others."""
LEAST_ALONE = 0.2
"""If `served` is given, a column is tried alone from this part of `LEAST_SHARE` on.

A column with little to save may be the present order of the files. A rewrite for other reasons
(deletes, many files) should keep it: a sorted column also takes fewer bytes, which pruning alone
does not show.
"""


def candidate_keys(centroid: Float64, served: Float64 | None = None) -> list[tuple[int, ...]]:
    """Return the keys to try: the anchor, every column with a share, Hilbert pairs of the best
    four, and curves along the best three, four and more.

    Pairs lose where people combine conditions on many columns: no pair is in most of the queries.

    served: float64[columns], what the present order of the files saves the queries on a column, as
    a share of what could be saved. A new key scatters such a column, so it is tried as the partner
    of the best ones: its queries have nothing left to save and no share in the signature. It is
    also tried alone: if files are opened or deleted rows are read needlessly, the present order may
    be enough.
    """
    total = max(float(centroid.sum()), 1e-12)
    ranked = [int(i) for i in np.argsort(-centroid, kind="stable") if centroid[i] > 0]
    useful = [i for i in ranked if centroid[i] / total >= LEAST_SHARE] or ranked[:1]
    keys = [anchor(centroid)] if useful else []
    least_alone = LEAST_SHARE * (1.0 if served is None else LEAST_ALONE)
    alone = [i for i in ranked if centroid[i] / total >= least_alone] or useful
    keys += [(i,) for i in alone[:6]]
    keys += [tuple(pair) for pair in combinations(useful[:4], 2)]
    keys += [tuple(useful[:size]) for size in range(3, min(len(useful), MAX_CURVE_COLUMNS) + 1)]
    if served is not None:
        by_served = [int(i) for i in np.argsort(-served, kind="stable") if served[i] >= LEAST_SHARE]
        partners = [i for i in by_served if i not in useful[:4]][:2]
        keys += [(first, partner) for first in useful[:3] for partner in partners]
        keys += [(partner,) for partner in partners]
    return list(dict.fromkeys(keys))
