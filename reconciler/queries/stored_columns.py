"""Present sizes of the columns of a group of files, and the number of distinct values of its
slices.

Input of the what-if for `table.column_bytes`, from three sources: column sizes in the manifests,
dictionary sizes in the footers, and the joint sample, which has only the columns that queries
filter on. For the other columns the size of the dictionary index gives the distinct values, and
bounds show how far files share them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from reconciler.queries.table_view import (
    NO_FOOTER,
    FooterBytes,
    TableView,
    footer_model,
    type_width,
)
from reconciler.table.column_bytes import (
    MOST_DISTINCT,
    StoredColumn,
    distinct_from_index,
    distinct_from_runs,
    distinct_in,
    domain_of,
    levels_bytes,
    whole_bytes,
)
from reconciler.table.filetable import UNKNOWN, Bool, FileTable, Float64, Int64
from reconciler.table.fractions import digits_reach
from reconciler.table.number_bytes import known_width, rising
from reconciler.table.runs import runs_of
from reconciler.table.sample import RowSample
from reconciler.table.sampled_domain import LEAST_ROWS, sampled_domain
from reconciler.table.spans import Spans, spans_of
from reconciler.table.values import Kind

LONGEST_INDEX_BITS = 24.0
"""Bits per row that no index of a dictionary takes: writers give up one of more than 2 MiB, which
is 21 bits for values of one byte. Levels and headers take a few more. Beyond, some rows are
plain."""

COMPRESSIBLE = 0.75
"""Sorted numbers, as in a dictionary, are stored in less than this share of their width."""

RANDOM_FLOAT = 7.5
"""Stored bytes of a double of random digits: no dictionary takes more for each of its values."""

LEAST_RUN = 1.2
"""Mean rows of a run from which a column's values count as coming in runs."""

ORDER_FILES = 16
"""Number of files checked for being in order."""

IN_ORDER_BYTES = 0.5
"""Numbers in no order take more than this beside the bytes of their file's range."""

IN_ANY_ORDER_BYTES = 0.1
"""Numbers in no order take more than this beside `whole_bytes`: 0.3 to 0.5."""

HARDLY_REPEATED = 0.9
"""Share of distinct values from which rows count as if none repeated."""

ORDERED = 0.5
"""Rows are in order if neighbours are closer than this share of their distance in random order."""


@dataclass(frozen=True)
class StoredColumns:
    """What the columns of a group of files take now. Every mapping is by field id."""

    columns: Mapping[int, StoredColumn]
    """The columns as stored; one has no entry if the footers do not give its dictionary sizes."""
    domain: Mapping[int, float]
    """Number of values from which one row group of a column draws."""
    spans: Mapping[int, Spans]
    """Ranges of the files' values; a column has no entry if a file has no bounds of it."""
    steps: Mapping[int, float]
    """Mean distance between neighbouring rows, of columns that grow from row to row within a
    file."""
    footer: FooterBytes = NO_FOOTER
    """Bytes of the footers of files written like these."""

    def grows(self, field: int | None) -> bool:
        """Whether a column grows with time: in its order rows stay where they are."""
        return field is not None and field in self.steps and self.spans[field].apart


def stored_columns(view: TableView) -> StoredColumns:
    """Return every column of the view with known sizes and known dictionary sizes.

    The view keeps the answer: each candidate layout of a table asks for it.
    """
    if "stored" not in view.derived:
        view.derived["stored"] = _stored_columns(view)
    found: StoredColumns = view.derived["stored"]
    return found


def _stored_columns(view: TableView) -> StoredColumns:
    columns: dict[int, StoredColumn] = {}
    domain: dict[int, float] = {}
    spans: dict[int, Spans] = {}
    steps: dict[int, float] = {}
    for field, known in view.files.column_sizes.items():
        if (known == UNKNOWN).any():
            continue
        span = spans_of(view.files, field)
        found = _stored(view, field, known, span)
        if found is None:
            continue
        columns[field] = found
        most = span.mean if span is not None and span.discrete else MOST_DISTINCT
        draws = np.array([found.rows / found.run if found.run > 1.0 else found.rows * found.filled])
        drawn = domain_of(np.array([found.distinct]), draws).item()
        domain[field] = min(drawn, most)
        if found.run > 1.0:  # the table has at most one value for each of its runs
            runs = max(float(view.files.records.sum()) / found.run, 1.0)
            domain[field] = min(domain[field], runs)
        if span is not None:
            spans[field] = span
            step = _step(found, span, view.files)
            steps |= {} if step is None else {field: step}
    return StoredColumns(columns, domain, spans, steps, footer_model(view))


def _step(column: StoredColumn, span: Spans, files: FileTable) -> float | None:
    """Return the mean distance between neighbouring rows of a column of whole numbers that grows
    from row to row within a file; None if rows are in no order within files.

    In no order, a number takes at least the bits of its file's range if it has all digits, as
    numbers that grow with time do. Numbers that files share, and that hardly repeat, take at least
    the bits of as many numbers as a row group has rows.
    """
    if not span.discrete:
        return None
    least = np.log2(max(span.mean, 2.0)) / 8.0 + IN_ORDER_BYTES
    if not span.apart:
        distinct = column.rows if column.dictionary <= 0.0 else column.distinct
        if min(distinct, span.mean) < HARDLY_REPEATED * column.rows:
            return None
        if not column.ordered:
            least = whole_bytes(np.log2([max(column.rows, 2.0)])).item() + IN_ANY_ORDER_BYTES
    if column.per_value > least:
        return None
    return max(span.mean * len(files) / max(float(files.records.sum()), 1.0), 1.0)


def _stored(view: TableView, field: int, known: Int64, span: Spans | None) -> StoredColumn | None:
    groups, dictionaries = view.row_groups, view.dictionary_bytes
    known_field = view.files.schema.by_id.get(field)
    if known_field is not None and known_field.repeated:
        return None  # how many values a row has is not known
    if groups is None or dictionaries is None or field not in dictionaries:
        return None
    sizes, dictionary = groups.column_sizes[field], dictionaries[field]
    known_sizes = (sizes > 0) & (dictionary != UNKNOWN) & (groups.records > 0)
    if not known_sizes.any():
        return None
    alike = _stored_alike(known_sizes, dictionary > 0, groups.records)
    rows = float(groups.records[alike].sum())
    share = float(dictionary[alike].sum()) / float(sizes[alike].sum())
    here, mean_rows = float(sizes[alike].sum()) / rows, rows / int(alike.sum())
    everywhere = float(known.sum()) / max(float(view.files.records.sum()), 1.0)
    mean = float(sizes[known_sizes].sum()) / float(groups.records[known_sizes].sum())
    everywhere *= here / mean
    if share > 0.0 and 8.0 * here * (1.0 - share) > LONGEST_INDEX_BITS:
        plain = _plain_bytes(here, here * share * mean_rows, mean_rows)
        everywhere, here, share = everywhere * plain / here, plain, 0.0
    ordered = in_order(view.sample, field)
    chunk = _Chunk(
        view, field, span, mean_rows, here * share * mean_rows, here * (1.0 - share) * mean_rows,
        type_width(_raw_type(view, field)), _filled(view, field),
    )  # fmt: skip
    # Rows in order repeat their values in one run each; other runs come back.
    distinct, run = chunk.distinct(1.0 if ordered else _run_in_blocks(view, field))
    if ordered and share > 0.0:
        distinct = chunk.distinct_in_order(distinct)
    return StoredColumn(
        mean_rows, everywhere, everywhere * share, max(distinct, 1.0), chunk.width, ordered,
        _skew(view.sample, field) if ordered else 1.0, run, chunk.filled,
    )  # fmt: skip


def _stored_alike(known: Bool, coded: Bool, records: Int64) -> Bool:
    """Return the row groups of the known ones that have a dictionary, or those without one,
    whichever have more rows: a mean of both is like neither."""
    more = records[known & coded].sum() >= records[known & ~coded].sum()
    return known & (coded if more else ~coded)


@dataclass(frozen=True, slots=True)
class _Chunk:
    """The mean column chunk of a row group, of which the number of values is sought."""

    view: TableView
    """The files, with their sample and blocks."""
    field: int
    """Field id of the column."""
    span: Spans | None
    """The range of each file's values; None if a file has no bounds."""
    rows: float
    """Rows of the row group."""
    dictionary: float
    """Stored bytes of the dictionary, 0 without one."""
    index: float
    """Stored bytes of the rest: of an index, or of values."""
    width: int
    """Bytes of a value in plain encoding."""
    filled: float
    """Share of rows with a value that is neither NULL nor NaN."""

    @property
    def most(self) -> float:
        """Return the whole numbers of a file's range, MOST_DISTINCT of other values."""
        discrete = self.span is not None and self.span.discrete
        return self.span.mean if self.span is not None and discrete else MOST_DISTINCT

    def distinct(self, run: float) -> tuple[float, float]:
        """Return the values of the chunk, and for how many rows one is drawn: by the rows sampled
        from each file, by blocks of rows, else by the index. run: rows of a run in the blocks."""
        found = _sampled_distinct(self.view, self.field, self.rows, self.filled)
        if found is None and _in_blocks(self.view, self.field):
            draws = self.rows / run if run > 1.0 else self.rows * self.filled
            found = _distinct_in_blocks(self.view, self.field, draws, run)
            if found is not None:
                found = min(max(found, min(draws, self.dictionary / self.width)), self.most)
        elif found is None:
            # Nothing but an index shows the values, and a NULL has no place in it.
            present = max(self.rows * (1.0 - _null_share(self.view, self.field)), 1.0)
            return self._by_index(present), self.rows / present
        return self._by_index(self.rows) if found is None else found, run

    def _by_index(self, present: float) -> float:
        """Return the values that the bytes of the index show. present: rows that are not NULL."""
        if self.dictionary <= 0.0:
            return min(present, self.most)
        kind, reach = _kind(self.view, self.field), self.most
        # Decimal fractions such as prices repeat; numbers of arbitrary digits do not compress.
        repeats = kind is Kind.FLOAT and self.dictionary / self.rows / self.width < COMPRESSIBLE
        if repeats:
            reach = digits_reach(self.view.files.columns[self.field]) or reach
        index = self.index - levels_bytes(present, self.rows)
        most_bytes = RANDOM_FLOAT if kind is Kind.FLOAT and self.width == 8 else self.width
        found = distinct_from_index(present, index, reach, repeats=repeats)
        return min(max(found, min(present, self.dictionary / most_bytes)), self.most)

    def distinct_in_order(self, distinct: float) -> float:
        """Return the values of a chunk whose rows are in the column's order.

        Rows a fixed step apart are never of the same run, so that a sample shows too many values.
        But if a dictionary of only as many values as there are runs would hardly be compressed,
        there are more values: where each row follows the one before it, the index is what
        compresses well.
        """
        discrete = self.span is not None and self.span.discrete
        runs = distinct_from_runs(self.rows, self.index)
        if self.dictionary <= (COMPRESSIBLE if discrete else 1.0) * runs * self.width:
            distinct = min(distinct, runs)
        if discrete:  # a sorted dictionary stores distances
            value = sorted_value_bytes(self.most / distinct, self.width)
            distinct = min(max(distinct, self.dictionary / value), self.most, self.rows)
        return distinct


def _filled(view: TableView, field: int) -> float:
    """Return the share of rows with a value that is neither NULL nor NaN, by the rows that were
    read; 1 if none were."""
    taken = view.blocks.rows if view.blocks is not None else view.sample
    if taken is None or field not in taken.values or not len(taken):
        return 1.0
    return max(1.0 - float(_missing(taken, field).mean()), 1.0 / len(taken))


def _missing(taken: RowSample, field: int) -> Bool:
    """Return which rows are NULL or NaN, bool[rows]."""
    values, null = taken.values[field], taken.null[field]
    return null | np.isnan(values) if values.dtype.kind == "f" else null


def sorted_value_bytes(apart: float, width: int) -> float:
    """Return the stored bytes of a whole number of `width` bytes that is so far from the one before
    it."""
    bits = float(np.log2(max(apart, 1.0)))
    if not known_width(width):
        return min(bits / 8.0, float(width))
    return float(rising(np.array([bits]), width)[0])


def _plain_bytes(stored: float, dictionary: float, rows: float) -> float:
    """Return the stored bytes of a plain value of a column whose writer gave up its dictionary
    within a row group: its first rows, about one for each value of the dictionary, have an index.

    stored: bytes per row. dictionary: bytes of its page. rows: of a row group.
    """
    plain = stored
    for _ in range(4):
        indexed = min(dictionary / plain, rows)
        plain = stored - indexed / rows * np.log2(max(indexed, 2.0)) / 8.0
    return float(plain)


def _kind(view: TableView, field: int) -> Kind | None:
    known = view.files.schema.by_id.get(field)
    return None if known is None else known.kind


def _raw_type(view: TableView, field: int) -> str:
    """Decimals of up to 18 digits are stored as integers."""
    kind = view.files.schema.by_id[field].type if field in view.files.schema.by_id else "long"
    if not kind.startswith("decimal"):
        return kind
    digits = int(kind.split("(")[1].split(",")[0])
    return "int" if digits <= 9 else "long" if digits <= 18 else kind


def _sampled_distinct(view: TableView, field: int, rows: float, filled: float) -> float | None:
    """Return the mean distinct values of a row group, from the rows sampled from each sketched
    file. filled: share of its rows that have a value."""
    sample = view.sample
    if sample is None or field not in sample.values or not len(sample):
        return None
    starts = np.flatnonzero(np.diff(sample.file, prepend=-1))
    ranks = np.unique(sample.values[field], return_inverse=True)[1].reshape(-1)
    ranks = np.where(_missing(sample, field), -1, ranks)
    every = np.ones(len(ranks), dtype=bool)
    of_group = np.full(len(starts), rows)
    domain = sampled_domain(ranks, every, starts, of_group)
    return float(distinct_in(domain, of_group * filled).mean())


def _null_share(view: TableView, field: int) -> float:
    """Return the share of NULLs of a column in its row groups, 0 if unknown."""
    groups = view.row_groups
    known = None if groups is None else groups.columns.get(field)
    if groups is None or known is None or (known.nulls == UNKNOWN).any():
        return 0.0
    return float(known.nulls.sum()) / max(float(groups.records.sum()), 1.0)


def _in_blocks(view: TableView, field: int) -> bool:
    return view.blocks is not None and field in view.blocks.rows.values


def _run_in_blocks(view: TableView, field: int) -> float:
    """Return the rows for which one value is drawn: those of a run, or 1; 1 without blocks."""
    blocks = view.blocks
    if blocks is None or field not in blocks.rows.values:
        return 1.0
    runs = runs_of(blocks.rows.values[field], blocks.rows.null[field], blocks.starts)
    return runs.mean_rows if len(runs.first) and runs.mean_rows >= LEAST_RUN else 1.0


def _distinct_in_blocks(view: TableView, field: int, draws: float, run: float) -> float | None:
    """Return the distinct values of a row group of a column by its blocks; None without blocks or
    without a value. draws: rows or runs of a row group that draw a value. run: rows of each run."""
    blocks = view.blocks
    if blocks is None or field not in blocks.rows.values:
        return None
    values, missing = blocks.rows.values[field], _missing(blocks.rows, field)
    if missing.all():
        return None
    first = runs_of(values, blocks.rows.null[field], blocks.starts).first
    drawn = first if run > 1.0 else np.flatnonzero(~missing)
    ranks = np.unique(values[drawn], return_inverse=True)[1].reshape(-1)
    # Blocks may have more rows than a row group: the domain is that of all of them.
    drawing = np.array([max(draws, float(len(drawn)))])
    every, start = np.ones(len(ranks), dtype=bool), np.zeros(1, dtype=np.int64)
    domain = sampled_domain(ranks, every, start, drawing)
    return float(distinct_in(domain, np.array([draws]))[0])


def in_order(sample: RowSample | None, field: int) -> bool:
    """Return whether rows are in the column's order within their files.

    Sampled rows come in physical order. In random order, neighbours are a third of the ranks apart
    on average; in the column's order, almost nothing.
    """
    if sample is None or field not in sample.values or len(sample) < LEAST_ROWS:
        return False
    starts = np.flatnonzero(np.diff(sample.file, prepend=-1))
    ends = np.append(starts[1:], len(sample))
    asked = np.unique(np.linspace(0, len(starts) - 1, ORDER_FILES).astype(np.int64))
    apart = nearness = 0.0
    for start, end in zip(starts[asked], ends[asked], strict=True):
        own = sample.values[field][start:end][~sample.null[field][start:end]]
        even, counts = np.unique(own, return_inverse=True, return_counts=True)[1:]
        place = _heads((np.cumsum(counts) - counts / 2.0)[even.reshape(-1)])
        nearness += float(np.abs(np.diff(place)).sum())
        apart += float(np.abs(np.diff(np.sort(place)[_shuffle(len(place))])).sum())
    return nearness < ORDERED * apart


def _skew(sample: RowSample | None, field: int) -> float:
    """Return the entropy of a column's values, divided by that of as many equally frequent ones."""
    assert sample is not None  # only a sample shows that rows are in order
    counts = np.unique(sample.values[field][~sample.null[field]], return_counts=True)[1]
    share = counts / counts.sum()
    return float(-(share @ np.log2(share)) / np.log2(max(len(counts), 2)))


def _heads(place: Float64) -> Float64:
    """Return the first of each run, if there are enough to tell an order: rows of one run are
    neighbours whether the runs are in order or not."""
    heads = place[np.diff(place, prepend=np.nan) != 0.0]
    return heads if len(heads) >= LEAST_ROWS else place


def _shuffle(rows: int) -> Int64:
    """Return a shuffled order that is the same in every run: plans are functions of their
    inputs."""
    return np.random.default_rng(rows).permutation(rows)
