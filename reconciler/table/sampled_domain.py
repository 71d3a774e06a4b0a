"""How many values the slices of a column draw from, estimated from sampled rows."""

from __future__ import annotations

import numpy as np

from reconciler.table.column_bytes import distinct_in, domain_of, extrapolated
from reconciler.table.filetable import Bool, Float64, Int64

_Profile = tuple[Float64, Float64, Float64, Float64]

MOST_CELLS = 8
"""Cells of slices and values for each row, up to which counting in cells is faster than a sort."""

LEAST_ROWS = 32
"""Least sampled rows of a slice; with fewer it uses the estimate of the whole group."""


def sampled_domain(ranks: Int64, native: Bool, starts: Int64, rows: Float64) -> Float64:
    """Return the number of values from which each slice of `rows` rows draws, estimated from its
    sample.

    ranks: of the values in physical order, -1 for NULL. native: rows sampled from their own file,
    not borrowed. starts: first sampled row per slice. float64[slices].
    """
    number = np.zeros(len(ranks), dtype=np.int64)
    number[starts] = 1
    number = np.cumsum(number) - 1
    usable = native & (ranks >= 0)
    sampled = np.bincount(number[native], minlength=len(starts)).astype(np.float64)
    profile = _profile(number[usable], ranks[usable], len(starts))
    own = _domain(profile, sampled, rows)
    thin = sampled < np.minimum(LEAST_ROWS, rows)
    if not (thin | _mostly_once(profile)).any():
        return own
    nowhere = np.zeros(int(usable.sum()), dtype=np.int64)
    together = _profile(nowhere, ranks[usable], 1)
    whole = _domain(together, sampled.sum(keepdims=True), rows.sum(keepdims=True))[0]
    return np.where(thin | ((own < whole) & _may_draw_from(profile, whole)), whole, own)


def _mostly_once(profile: _Profile) -> Bool:
    """Return the slices where most values were seen once: their estimate is a guess."""
    _, once, _, valued = profile
    found: Bool = 2.0 * once > valued
    return found


def _may_draw_from(profile: _Profile, domain: float) -> Bool:
    """Return whether the slice's sample is consistent with `domain` although it shows few
    repetitions.

    Most of its values were seen once, and it has no more repeated rows than rows drawn from that
    domain would have, within two standard deviations: a few hundred rows without a repetition only
    show that there are many values.
    """
    seen, _, _, valued = profile
    expected = valued - distinct_in(np.full(len(valued), domain), valued)
    most = expected + 2.0 * np.sqrt(expected) + 1.0
    alike: Bool = _mostly_once(profile) & (valued - seen <= most)
    return alike


def _domain(profile: _Profile, sampled: Float64, rows: Float64) -> Float64:
    """Return the domain size per slice, from the profile of its rows with a value.

    sampled: number of sampled rows, including those without a value.
    """
    seen, once, twice, valued = profile
    filled = np.maximum(rows * valued / np.maximum(sampled, 1.0), 1.0)
    distinct = np.maximum(extrapolated(seen, once, twice, valued, filled), 1.0)
    return domain_of(distinct, filled)


def _profile(number: Int64, ranks: Int64, slices: int) -> _Profile:
    """Return, per slice, the distinct values, those seen once, those seen twice, and the rows."""
    top = int(ranks.max(initial=0)) + 1
    rows = np.bincount(number, minlength=slices).astype(np.float64)
    code = number * top + ranks
    if slices * top <= MOST_CELLS * max(len(ranks), 1):  # counted in cells, without a sort
        seen = np.bincount(code, minlength=slices * top).reshape(slices, top)

        def total(mask: Bool) -> Float64:
            return np.count_nonzero(mask, axis=1).astype(np.float64)
    else:
        codes, seen = np.unique(code, return_counts=True)
        owner = codes // top

        def total(mask: Bool) -> Float64:
            return np.bincount(owner[mask], minlength=slices).astype(np.float64)

    return total(seen > 0), total(seen == 1), total(seen == 2), rows
