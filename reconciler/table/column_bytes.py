"""Predicts the bytes of a column in a file not written yet, from the files that hold it now.

A Parquet column chunk is a dictionary of its distinct values and an index of log2(distinct) bits
per row, or plain values if a dictionary would not pay. Merging many small files writes a dictionary
once instead of many times, and sorting leaves fewer distinct values per row group: utilization has
to be adjusted for encoding and compression (WAIR section 5.2). The effect of compression on either
part is taken from the files themselves, so that writing them again unchanged predicts no change.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reconciler.table.filetable import Float64
from reconciler.table.number_bytes import AS_EVEN, AS_RISING, in_no_order, known_width, rising
from reconciler.table.row_group_bytes import PAGE_ROWS
from reconciler.table.runs import bytes_in_runs

MOST_DISTINCT = 1e15
"""A domain so large that no value ever repeats."""

NEWTON_STEPS = 6
"""Steps from which on `domain_of` no longer changes, whatever the share."""

REPEATS_MORE = 0.9
"""A column without a dictionary gets one if that takes this share of its present bytes."""

SELDOM_REPEATED = 0.9
"""Share of distinct values in a page from which on compressors find no value twice."""

RUN_BYTES = 4
"""Bytes of one run in an index: its length and the number of its value."""

PAGE_HEADER, DICTIONARY_HEADER = 60.0, 24.0
"""Bytes of a column chunk that do not grow with its values: headers, statistics, frames."""

DOMAINS = tuple(np.exp2(np.arange(0.0, 50.0, 1.0 / 16.0)).tolist())

INDEX_SLACK = 0.06
"""Bits per row by which an index may exceed its whole bits: headers of runs and pages."""

RUN_HEADERS = 24.0
"""Bytes by which the index of a short chunk may exceed that."""


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """A column as the files store it now, on average over their row groups."""

    rows: float
    """Rows of a row group."""
    bytes: float
    """Stored bytes per row."""
    dictionary: float
    """Stored bytes of the dictionary page per row; 0 if values are plain."""
    distinct: float
    """Number of distinct values of one row group."""
    width: int
    """Bytes of a raw value."""
    ordered: bool = False
    """Whether rows are in the column's order, which makes it smaller."""
    skew: float = 1.0
    """Entropy of its values divided by that of as many equally frequent ones."""
    run: float = 1.0
    """Mean number of consecutive rows with the same value, of which an encoding stores one; 1 if
    every row counts."""
    filled: float = 1.0
    """Share of the rows that have a value; NULL and NaN are none."""

    @property
    def overhead(self) -> float:
        return PAGE_HEADER + (DICTIONARY_HEADER if self.dictionary > 0.0 else 0.0)

    @property
    def per_value(self) -> float:
        """Stored bytes of one plain value: a dictionary page holds its values plainly."""
        if self.dictionary <= 0.0:
            return max(self.bytes - PAGE_HEADER / self.rows, 0.0)
        return max(self.dictionary * self.rows - DICTIONARY_HEADER, 0.0) / self.distinct

    @property
    def per_index_bit(self) -> float:
        """Stored bits of one bit of the index: below 1 where values are skewed or in runs."""
        if self.dictionary <= 0.0:
            return 1.0
        index = max(self.bytes - self.dictionary - PAGE_HEADER / self.rows, 0.0)
        return 8.0 * index / _bits(np.array(self.distinct)).item()


@dataclass(frozen=True, slots=True)
class Neighbours:
    """What a new order of rows does to a column, measured on rows of the table."""

    data: float
    """Bytes of the column's data pages in the new order, divided by the present bytes."""
    run: float
    """Mean number of consecutive rows with the same value in the new order."""
    per_bit: float = 0.0
    """Stored bits per bit of the dictionary index (`index_bits`); 0 without a dictionary."""
    plain: float = 0.0
    """Stored bytes of a row without a dictionary; 0 with one."""


@dataclass(frozen=True, slots=True)
class NewOrder:
    """What a new file's order of rows does to a column."""

    reordered: bool = False
    """Whether another column's order gives rows new neighbours. Then a plain number costs its bits
    (in the present order a value may follow from the one before it), and a column in whose order
    the rows are now loses its runs."""
    reach: Float64 | None = None
    """The distance from the least to the greatest value of each row group; None if values are not
    whole numbers."""
    wider: Float64 | None = None
    """The bits by which the distance between neighbours grows, of whole numbers that grow from row
    to row now; a compressor stores them."""
    then: Neighbours | None = None
    """What the new order does to the column, if that was measured."""
    distinct: Float64 | None = None
    """The values of each row group; None for those that its runs draw."""
    together: Float64 | float = 1.0
    """The rows that follow each other with the same value, in a further column of the sort key."""
    sorted: npt.NDArray[np.bool_] | None = None
    """Which row groups are sorted by the column itself, bool[row groups]; None for none. A
    compressor stores the distance of their numbers."""


@dataclass(frozen=True, slots=True)
class PerRow:
    """What a column takes per row. Arrays are float64[row groups]."""

    bytes: Float64
    """Stored bytes."""
    dictionary: Float64
    """Those of them that its dictionary takes; 0 without one."""


def bytes_per_row(
    now: StoredColumn, rows: Float64, domain: Float64, order: NewOrder = NewOrder()
) -> Float64:
    """Return the bytes of `stored_per_row`."""
    return stored_per_row(now, rows, domain, order).bytes


def stored_per_row(
    now: StoredColumn, rows: Float64, domain: Float64, order: NewOrder = NewOrder()
) -> PerRow:
    """Return the stored bytes per row in row groups of `rows` rows, each with values from `domain`
    ones.

    Unless the new order was measured, it is never more than now, and than what smaller row groups
    repeat: a writer that did better will hardly do worse.
    """
    then, distinct = order.then, order.distinct
    run = then.run if then is not None else now.run
    draws = _draws(now, run)
    if distinct is None:
        distinct = distinct_in(domain, rows * draws)
    loses_runs = order.reordered and (now.ordered or order.wider is not None)
    own = _value_bytes(now, rows, order.reach, order.wider)
    index, listed = _coded(now, rows, own, distinct, order)
    plain = _plain(now, rows, own, order)
    if order.reordered and order.reach is not None:
        if order.wider is not None:
            plain = _scattered(now, own, rows, order.reach, order.wider)
        else:
            random = np.minimum(_random_bytes(domain, order.reach, rows), now.width) / run
            plain = np.maximum(plain, random)
    if order.sorted is not None and order.reach is not None and known_width(now.width):
        apart = rising(np.log2(np.maximum(order.reach / rows, 1.0)), now.width)
        plain = np.where(order.sorted, np.minimum(plain, apart), plain)
    if then is None:
        plain = plain / order.together
    # Runs that were not measured count as NULLs, which take no part in the first page.
    drawing = (1.0, 1.0) if then is None else (min(draws, 1.0 / run), _draws(now, now.run))
    pays = _dictionary_pays(now, rows, domain, drawing)
    whole = np.where(pays, index + listed, plain) + now.overhead / rows
    found = whole
    if not loses_runs and then is None:
        found = np.minimum(found, now.bytes + _repeated(now, rows, distinct))
    found = np.maximum(found, now.overhead / rows)
    # Where the whole is limited, index and dictionary are both so much smaller.
    return PerRow(found, np.where(pays, (listed + DICTIONARY_HEADER / rows) * found / whole, 0.0))


def _coded(
    now: StoredColumn, rows: Float64, own: Float64, distinct: Float64, order: NewOrder
) -> tuple[Float64, Float64]:
    """Return the bytes per row of the index and of the dictionary. own: bytes of a value in the
    present order."""
    then, per_bit, bits, listed = order.then, now.per_index_bit, _bits(distinct), own
    if then is None:
        if order.reordered and (now.ordered or order.wider is not None):
            per_bit = max(per_bit, now.skew)
        index = per_bit * bits / 8.0
        return np.minimum(index, bytes_in_runs(index, order.together)), listed * distinct / rows
    if then.per_bit:
        # Blocks span little of what is in order: mixed, they look more alike than all rows.
        least = now.skew if order.reordered and now.ordered else 0.0
        per_bit, bits = max(then.per_bit, least), index_bits(distinct)
    if order.reordered and order.wider is not None and order.reach is not None:
        # A dictionary lists values as they come: what grew from row to row does so no more.
        listed = _scattered(now, own, rows, order.reach, order.wider)
    return per_bit * bits / 8.0, listed * distinct / rows


def _plain(now: StoredColumn, rows: Float64, own: Float64, order: NewOrder) -> Float64:
    """Return the bytes per row without a dictionary, of rows that keep their neighbours or whose
    new ones were measured. own: as `_coded` takes it."""
    if order.then is not None:
        measured = now.per_value * order.then.data if now.dictionary <= 0.0 else order.then.plain
        return np.full(len(rows), measured) if measured else own
    if now.dictionary > 0.0 and now.run > 1.0:  # as many rows have no value
        return own / now.run + levels_bytes(1.0 / now.run, 1.0)
    return own


def _draws(now: StoredColumn, run: float) -> float:
    """Return the share of rows that draw a value: one of each run, which NULLs do not end."""
    return 1.0 / run if now.run > 1.0 else now.filled


def _repeated(now: StoredColumn, rows: Float64, distinct: Float64) -> Float64:
    """Return the bytes per row by which dictionary and headers weigh more in row groups that are
    smaller than now."""
    own = now.overhead / now.rows
    more = now.overhead / rows
    if now.dictionary > 0.0:
        own += now.per_value * now.distinct / now.rows
        more = more + now.per_value * distinct / rows
    return np.where(rows < now.rows, np.maximum(more - own, 0.0), 0.0)


def _random_bytes(domain: Float64, reach: Float64, rows: Float64) -> Float64:
    """Return the stored bytes of numbers in random order.

    If they repeat within a page, choosing between the distinct ones costs bytes; if they do not,
    their digits do, for example of times that are whole seconds in microseconds.
    """
    page = np.minimum(rows, PAGE_ROWS)
    repeats = distinct_in(domain, page) < SELDOM_REPEATED * page
    return whole_bytes(_bits(np.where(repeats, domain, np.maximum(reach, domain))))


def _value_bytes(
    now: StoredColumn, rows: Float64, reach: Float64 | None, wider: Float64 | None
) -> Float64:
    """Return the bytes of a plain value in Java's writer, if rows stay as they are: of a number
    what it takes there, whatever wrote the files that are there now."""
    same = np.full(len(rows), now.per_value)
    if reach is None or not known_width(now.width):
        return same
    if wider is not None:
        rises = rising(_bits(reach) - wider, now.width)
        return np.where(same <= AS_RISING * rises, np.minimum(same, rises), same)
    share = _draws(now, now.run) if now.dictionary <= 0.0 else 1.0  # a NULL takes none
    even = share * in_no_order(_bits(reach), now.width, np.minimum(rows, PAGE_ROWS))
    return same if now.ordered else np.where(same >= AS_EVEN * even, even, same)


def _scattered(
    now: StoredColumn, own: Float64, rows: Float64, reach: Float64, wider: Float64
) -> Float64:
    """Return the bytes of numbers that grew from row to row, where they do so no more. own: before
    that."""
    apart = own + wider / 8.0
    if known_width(now.width):
        none = in_no_order(_bits(reach), now.width, np.minimum(rows, PAGE_ROWS))
        apart = np.minimum(apart, none)
    return np.maximum(own, np.minimum(apart, now.width))


def whole_bytes(bits: Float64) -> Float64:
    """Return bytes in which the last, partly filled one is counted half-way as a whole one:
    compressors work on bytes."""
    return (bits / 8.0 + np.ceil(bits / 8.0)) / 2.0


def index_bits(distinct: Float64) -> Float64:
    """Return the bits of a row in an index of so many values: a page takes whole bits, the number
    of values is an estimate, so the last bit counts half-way as a whole one."""
    return (_bits(distinct) + np.ceil(_bits(distinct))) / 2.0


def drops_dictionary(distinct: int, rows: int, width: int) -> bool:
    """Return whether Java's writer drops the dictionary after a first page of these rows."""
    index = rows * np.ceil(np.log2(max(distinct, 2))) / 8.0
    return bool(distinct * width + index >= rows * width)


def _dictionary_pays(
    now: StoredColumn, rows: Float64, domain: Float64, draws: tuple[float, float]
) -> npt.NDArray[np.bool_]:
    """Return whether Java's writer keeps the dictionary. draws: share of rows that draw a value,
    then and now.

    It drops it if index and dictionary of the first page are not smaller than the raw values. A
    dictionary that is missing now stays missing unless values repeat more: the domain is an
    estimate, the missing dictionary is a fact.
    """
    limit = 1.0
    if now.dictionary <= 0.0:
        all_rows, own_draws = np.array([now.rows]), draws[1]
        own_domain = domain_of(np.array([now.distinct]), all_rows * own_draws)
        own = _dictionary_share(now, all_rows, own_domain, own_draws).item()
        limit = REPEATS_MORE * min(own, 1.0)
    return _dictionary_share(now, rows, domain, draws[0]) < limit


def _dictionary_share(now: StoredColumn, rows: Float64, domain: Float64, draws: float) -> Float64:
    """Return the bytes of index and dictionary of a first page, divided by its raw values."""
    page = np.minimum(rows, PAGE_ROWS)
    distinct = distinct_in(domain, page * draws)
    return (distinct * now.width + page * np.ceil(_bits(distinct)) / 8.0) / (page * now.width)


def _bits(distinct: Float64) -> Float64:
    return np.log2(np.maximum(distinct, 2.0))


def distinct_in(domain: Float64, rows: Float64) -> Float64:
    """Return the distinct values among rows drawn evenly from a domain: D (1 - e^(-n/D))."""
    return np.minimum(-domain * np.expm1(-rows / domain), rows)


def distinct_of_runs(domain: Float64, runs: Float64, per_value: float) -> Float64:
    """Return the distinct values among runs drawn from those of a table, in which each value of the
    domain has `per_value` runs: none is drawn twice, so that keys show one value for each run.
    D (1 - (1 - n / (D m))^m)."""
    missed = np.maximum(1.0 - runs / (domain * per_value), 0.0) ** per_value
    return np.minimum(domain * (1.0 - missed), runs)


def domain_of(distinct: Float64, rows: Float64) -> Float64:
    """Return the domain that shows this many distinct values in this many rows: inverts
    `distinct_in`, between 1 and MOST_DISTINCT.

    With x = n / D and the share r of distinct rows, r x = 1 - e^-x. Newton's method comes from
    above, where the difference is convex: x is at most 1 / r, and at most 2 (1 - r) / r.
    """
    share = np.clip(distinct / rows, 1.0 / MOST_DISTINCT, 1.0)
    each = np.minimum(1.0, 2.0 * (1.0 - share)) / share
    for _ in range(NEWTON_STEPS):
        lost = np.expm1(-each)
        each -= (share * each + lost) / np.maximum(share - 1.0 - lost, 1e-300)
    repeating = each > rows / MOST_DISTINCT
    return np.where(repeating, np.clip(rows / np.where(repeating, each, 1.0), 1.0, MOST_DISTINCT),
                    MOST_DISTINCT)  # fmt: skip


def unseen_values(once: Float64, twice: Float64) -> Float64:
    """Return how many values a sample does not show that shows so many once, and twice.

    f0 = f1 (f1 - 1) / (2 (f2 + 1)) (Chao, "Nonparametric Estimation of the Number of Classes in a
    Population", bias-corrected).
    """
    found: Float64 = once * np.maximum(once - 1.0, 0.0) / (2.0 * (twice + 1.0))
    return found


def extrapolated(
    seen: Float64, once: Float64, twice: Float64, sampled: Float64, rows: Float64
) -> Float64:
    """Return the distinct values in `rows` rows, from a sample with `seen` distinct, `once`,
    `twice` counts.

    Of f0 unseen values n* further rows show f0 (1 - (1 - f1 / (n f0 + f1))^n*) (Colwell et al.,
    "Models and Estimators Linking Individual-Based and Sample-Based Rarefaction, Extrapolation and
    Comparison of Assemblages", Eq. 9).
    """
    unseen = unseen_values(once, twice)
    further = np.maximum(rows - sampled, 0.0)
    chance = once / np.maximum(sampled * unseen + once, 1.0)
    found = unseen * -np.expm1(further * np.log1p(-np.minimum(chance, 1.0 - 1e-12)))
    return np.minimum(seen + found, np.maximum(rows, 1.0))


def levels_bytes(present: float, rows: float) -> float:
    """Return the stored bytes that say which of these rows are NULL, in no order: their entropy."""
    share = min(max(present / max(rows, 1.0), 0.0), 1.0)
    return rows / 8.0 * -sum(part * math.log2(part) for part in (share, 1.0 - share) if part > 0.0)


def distinct_from_runs(rows: float, index_bytes: float) -> float:
    """Return the distinct values of a chunk whose rows are in the column's order: one run per
    value."""
    return min(max((index_bytes - PAGE_HEADER) / RUN_BYTES, 1.0), max(rows, 1.0))


def distinct_from_index(
    rows: float, index_bytes: float, reach: float = MOST_DISTINCT, *, repeats: bool = False
) -> float:
    """Return the distinct values of a dictionary, from the bytes of its index in a chunk of `rows`
    rows.

    The index of a page has whole bits for the values seen so far, so the average over pages shows
    more than the bits of one chunk. The result is the middle, on the scale of bits, between the
    smallest and the largest domain that fit. If no domain is too large to fit, the values count as
    never repeating. reach: whole numbers between the bounds; if that many fit, they are the
    domain, and if the index needs more than values drawn from them evenly would, hardly any
    repeats. repeats: values are known to repeat, and then are as few as fit; but if reach, the
    decimal fractions between the bounds, is known, it is the largest domain that fits, as amounts
    are not spread evenly.
    """
    bits = 8.0 * max(index_bytes - PAGE_HEADER, 0.0) / max(rows, 1.0)
    ends = np.append(np.arange(PAGE_ROWS, rows, PAGE_ROWS), max(rows, 1.0))

    def used(domain: float) -> float:
        return _index_bits(domain, ends)

    least = min(bits - INDEX_SLACK, used(DOMAINS[-1]))
    if reach < DOMAINS[-1] and used(reach) < least:
        if not repeats and used(reach) < least - 8.0 * RUN_HEADERS / max(rows, 1.0):
            return min(reach, max(rows, 1.0))
        if not repeats:
            return float(np.rint(distinct_in(np.array([reach]), ends[-1:])[0]))
        reach = MOST_DISTINCT  # other bounds would have more digits
    first = bisect.bisect_left(DOMAINS, least, key=used)
    after = bisect.bisect_right(DOMAINS, used(DOMAINS[first]), key=used)
    if not repeats and DOMAINS[first] <= reach and used(reach) <= used(DOMAINS[first]):
        return float(np.rint(distinct_in(np.array([reach]), ends[-1:])[0]))
    if after == len(DOMAINS) and not repeats:
        return max(rows, 1.0)
    many = after == len(DOMAINS) and reach >= MOST_DISTINCT
    most = DOMAINS[first] if many else max(min(DOMAINS[after - 1], reach), DOMAINS[first])
    middle = np.array([np.sqrt(DOMAINS[first] * most)])
    return float(np.rint(distinct_in(middle, ends[-1:])[0]))


def _index_bits(domain: float, ends: Float64) -> float:
    """Return the bits per row of the index of a chunk of rows drawn from the domain; ends: of its
    pages."""
    seen = distinct_in(np.full(len(ends), domain), ends)
    whole = np.ceil(np.log2(np.maximum(np.rint(seen), 1.0)))
    return float(whole @ np.diff(ends, prepend=0.0) / ends[-1])
