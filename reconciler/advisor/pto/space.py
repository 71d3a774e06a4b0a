"""The search space of layouts of one table, and the label of a layout in it.

PTO, sections 3.2 and 3.3: a candidate is a partition spec, an ordering and sizes; its label is
found by simulating it on the sample. All methods choose in the same space by the same labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Lock
from typing import NamedTuple, TypeVar

import numpy as np

from reconciler.advisor.choose.trees import CLEARLY
from reconciler.advisor.pto.column_use import Usage
from reconciler.advisor.pto.objective import Costs, reading_cost
from reconciler.advisor.pto.partitionings import NO_INGEST, Ingest, Partitioning
from reconciler.advisor.pto.sizes import SMALLEST_FILE, in_row_groups, simulated_sizes
from reconciler.advisor.simulate.arrangement import row_order_of
from reconciler.advisor.simulate.grid import (
    Grid,
    GridReadings,
    SizedRows,
    in_any_size,
    simulate_sizes,
)
from reconciler.advisor.simulate.layout import Sizes
from reconciler.advisor.simulate.pool import Pool
from reconciler.advisor.simulate.target import target_partitions
from reconciler.plan.grouping import SMALL_SHARE
from reconciler.plan.ordering import ARRIVAL, CutTree, Ordering
from reconciler.queries.shape import Shape
from reconciler.table.filetable import Float64, Int64
from reconciler.table.schema import SortColumn
from reconciler.table.times import DAY_MS

Mixed = TypeVar("Mixed", float, Float64)

WORKERS = 2

MARGIN = 1.0 - CLEARLY
"""Share of what a tree leaves to read that is added to its cost where it is compared with keys."""

UNSORTED = 0
"""The first ordering of a space: rows stay in order of arrival."""

SURE_ROWS = 40
"""Sampled rows per smallest row group from which the order of candidates can be relied on."""

TIE = 0.01
"""Share of the least cost within which a simpler layout is preferred: predictions are no better."""

LEAST_SKIPPED = 0.03
"""Share of the rows that an order has to spare, or it does not help queries to skip."""

LEAST_ROWS_OF_GROUP = 10.0
"""Sampled rows in the smallest simulated row groups, below which a layout is not judged: the sample
would flatter it. 40 rank layouts well, 100 nearly as all rows do."""


@dataclass(frozen=True, slots=True, order=True)
class CandidateLayout:
    """One candidate of a Space."""

    spec: int
    """Index into `Space.partitionings`."""
    ordering: int
    """Number of the ordering, as `Space.ordering` takes it."""
    sizes: Sizes
    """Sizes of files and row groups."""


class RewrittenBytes(NamedTuple):
    """Bytes that are rewritten for a layout."""

    first: float
    """To get there."""
    later: float
    """Over the horizon, to stay there."""


@dataclass(frozen=True, slots=True)
class GrownTree:
    """A tree of cuts that is a candidate."""

    ordering: CutTree
    """The order of rows by the tree."""
    least_rows: int
    """Rows that each leaf has at least."""


@dataclass(frozen=True)
class Label:
    """The simulated effect of a candidate."""

    candidate: CandidateLayout
    """The candidate."""
    reading: float
    """Cost of reading over the horizon, in bytes of reading."""
    rewrite: float
    """Cost of rewriting over the horizon, to get there and to stay there, in bytes of reading."""
    window: Float64
    """float64[demands], bytes read in the recorded window."""
    opened: float
    """Number of files opened in the recorded window."""
    files: float
    """Number of data files of the table."""
    row_groups: float
    """Number of row groups, if every file is rewritten."""
    sampled_rows: float
    """Sampled rows of the smallest row groups (their 10th percentile)."""
    bytes_written: float
    """Stored bytes of the table, if every file is rewritten."""
    rewrite_bytes: float
    """Bytes that are rewritten over the horizon, the first rewrite included."""
    first_rewrite_bytes: float
    """Bytes that are rewritten once, to get there."""
    ahead: Float64
    """float64[demands], bytes read over the horizon."""
    opened_ahead: float
    """Number of files opened over the horizon."""
    rows: float
    """Rows of the row groups that are read over the horizon, if every file is rewritten."""

    @property
    def total(self) -> float:
        return self.reading + self.rewrite


@dataclass(frozen=True)
class Space:
    """The candidates of one table, and what their labels depend on."""

    pool: Pool
    """The sampled rows that candidates are simulated on."""
    thin: Pool
    """A thinner pool of the same files, which is enough to estimate bytes per row."""
    partitionings: tuple[Partitioning, ...]
    """The candidate partitionings."""
    orderings: tuple[Ordering, ...]
    """The candidate orderings; the first is ARRIVAL."""
    paper_orderings: int
    """Number of orderings after the first that are Algorithm 1's."""
    sizes: tuple[Sizes, ...]
    """The grid of file and row-group sizes."""
    demands: tuple[Shape, ...]
    """The recorded queries, by shape."""
    usage: Usage
    """The columns that the queries filter, and how often."""
    costs: Costs
    """What opening files and reading row groups costs."""
    rho: float
    """Cost of rewriting a byte, in bytes of reading."""
    horizon_ms: int
    """Time over which reading and rewriting are weighed, in milliseconds."""
    present: GridReadings
    """What the demands read of the present files."""
    groups_before: float = 0.0
    """Number of row groups of the present files."""
    ingest: Ingest = NO_INGEST
    """What other writers append."""
    unbounded: frozenset[int] = frozenset()
    """Columns whose bounds a rewrite leaves out of the manifest."""
    by_spark: str = ""
    """Why Spark has to write the table, which writes no trees; "" if it does not."""
    trees: dict[int, GrownTree] = field(default_factory=dict)
    """Trees of cuts that were grown for this space, by the numbers that candidates have as their
    ordering."""
    row_orders: dict[int, Int64] = field(default_factory=dict)
    """int64[rows of the pool], the pool's rows in an order that no Ordering describes
    (`methods.mddl`), by the number that candidates have as their ordering."""

    @cached_property
    def live_bytes(self) -> float:
        return float(self.pool.files.live_bytes.sum())

    @cached_property
    def bytes_per_row(self) -> float:
        return self.live_bytes / max(float(self.pool.weight.sum()), 1.0)

    @cached_property
    def candidates(self) -> tuple[CandidateLayout, ...]:
        return tuple(
            CandidateLayout(spec, ordering, sizes)
            for spec in range(len(self.partitionings))
            for ordering in self.orderings_of(spec)
            for sizes in self.sizes_of(spec)
        )

    def sizes_of(self, spec: int) -> tuple[Sizes, ...]:
        """Return the sizes of the grid whose files a partition fills, so that no plan counts them
        as small; if there are none, files as large as a partition."""
        most = self.most_file(spec)
        fitting = tuple(size for size in self.sizes if size.target_bytes <= most)
        return fitting or in_row_groups(max(int(most), SMALLEST_FILE), self.bytes_per_row)

    def most_file(self, spec: int) -> float:
        """Return the largest file that may be declared with a partitioning, in bytes."""
        item = self.partitionings[spec]
        if item.present or item.partitions < 2:
            return np.inf
        return self.live_bytes / item.partitions / SMALL_SHARE

    def orderings_of(self, spec: int) -> tuple[int, ...]:
        """Return the orderings that are candidates under a partitioning.

        A column that partitions by its values is the same in all rows of a partition. Orderings
        that differ only in such columns are one candidate, the one without them.
        """
        fields = self.partitionings[spec].spec.fields
        same = {field.source_id for field in fields if field.transform == "identity"}
        kinds = {_kind(ordering, frozenset()) for ordering in self.orderings}
        return tuple(
            number
            for number, ordering in enumerate(self.orderings)
            if not same & {column.field_id for column in ordering.key}
            or _kind(ordering, same) not in kinds
        )

    def schemes_of(self, spec: int) -> tuple[int, ...]:
        """Return the paper's sort schemes that are candidates under a partitioning; no order where
        none is."""
        mine = self.orderings_of(spec)
        return tuple(n for n in mine if 1 <= n <= self.paper_orderings) or (UNSORTED,)

    @cached_property
    def labels(self) -> tuple[Label, ...]:
        """Return the labels of all candidates."""
        return self.label(self.candidates)

    @cached_property
    def simulated(self) -> tuple[Sizes, ...]:
        """Return the sizes at which the bytes of rows are simulated."""
        return simulated_sizes(self.sizes, self.bytes_per_row)

    @cached_property
    def _made(self) -> dict[int, Int64]:
        return {}

    @cached_property
    def _lock(self) -> Lock:
        return Lock()

    def row_order(self, ordering: int) -> Int64:
        """Return the pool's rows in the order of an ordering, computed once."""
        if ordering in self.row_orders:
            return self.row_orders[ordering]
        with self._lock:
            if ordering not in self._made:
                self._made[ordering] = row_order_of(self.pool, self.ordering(ordering))
            return self._made[ordering]

    def ordering(self, number: int) -> Ordering:
        if number in self.trees:
            return self.trees[number].ordering
        return ARRIVAL if number in self.row_orders else self.orderings[number]

    def add_tree(self, tree: GrownTree) -> int:
        """Return the number of a tree as an ordering, by which candidates name it from now on."""
        number = len(self.orderings) + len(self.trees)
        known = [n for n, one in self.trees.items() if one == tree]
        if known:
            return known[0]
        self.trees[number] = tree
        return number

    def arrangement(self, spec: int, ordering: int) -> SizedRows:
        chosen = self.partitionings[spec]
        return in_any_size(
            self.pool, chosen.spec, self.ordering(ordering), thin=self.thin,
            simulated=self.simulated, row_order=self.row_order(ordering), target=chosen.target,
        )  # fmt: skip

    def label(
        self, candidates: Sequence[CandidateLayout], *, widening: float = 1.0
    ) -> tuple[Label, ...]:
        """Return the labels, in the order of the candidates."""
        together: dict[tuple[int, int], list[CandidateLayout]] = {}
        for candidate in candidates:
            together.setdefault((candidate.spec, candidate.ordering), []).append(candidate)
        for ordering in dict.fromkeys(ordering for _, ordering in together):
            self.row_order(ordering)

        def work(item: tuple[tuple[int, int], list[CandidateLayout]]) -> list[Label]:
            (spec, ordering), mine = item
            return self.labelled(self.arrangement(spec, ordering), mine, widening=widening)

        with ThreadPoolExecutor(WORKERS) as executor:
            found = [label for labels in executor.map(work, together.items()) for label in labels]
        by_candidate = {label.candidate: label for label in found}
        return tuple(by_candidate[candidate] for candidate in candidates)

    def labelled(
        self,
        rows: SizedRows,
        candidates: Sequence[CandidateLayout],
        *,
        widening: float = 1.0,
    ) -> list[Label]:
        """Return the labels of candidates whose rows are arranged alike."""
        sizes = [candidate.sizes for candidate in candidates]
        grid = simulate_sizes(
            rows, sizes, self.demands, widening=widening, unbounded=self.unbounded
        )
        return self._labels(candidates, grid)

    def _labels(self, candidates: Sequence[CandidateLayout], grid: Grid) -> list[Label]:
        costs = reading_cost(self.costs, grid.readings, self.demands).sum(axis=1)
        now = float(reading_cost(self.costs, self.present, self.demands).sum())
        before, groups_before = len(self.pool.files), self.groups_before
        labels = []
        for row, candidate in enumerate(candidates):
            first, later = self.rewritten(candidate)
            cost, window = float(costs[row]), grid.readings.window[row]
            opened, files = float(grid.readings.opened[row].sum()), float(grid.files[row])
            groups, ahead = float(grid.row_groups[row]), grid.readings.bytes[row]
            opened_ahead = float(grid.readings.files[row].sum())
            if self._packs(candidate):
                # Files that are not rewritten are read as they are today.
                share = min(first / max(self.live_bytes, 1.0), 1.0)
                cost, files = _mixed(share, cost, now), _mixed(share, files, before)
                window = _mixed(share, window, self.present.window[0])
                opened = _mixed(share, opened, float(self.present.opened.sum()))
                groups = _mixed(share, groups, groups_before)
                ahead = _mixed(share, ahead, self.present.bytes[0])
                opened_ahead = _mixed(share, opened_ahead, float(self.present.files.sum()))
            labels.append(
                Label(
                    candidate, cost, self.rho * (first + later), window, opened, files,
                    groups, float(grid.sampled_rows[row]), float(grid.bytes_written[row]),
                    first + later, first, ahead, opened_ahead, float(grid.rows[row]),
                )
            )  # fmt: skip
        return labels

    def _packs(self, candidate: CandidateLayout) -> bool:
        """Whether the candidate is the present spec without a sort, in which only small files are
        rewritten."""
        return self.partitionings[candidate.spec].present and candidate.ordering == UNSORTED

    def rewritten(self, candidate: CandidateLayout) -> RewrittenBytes:
        """Return the bytes that are rewritten for a candidate.

        Rows in order of arrival under the present spec: only small files are merged, with others of
        their partition. Anything else rewrites the table once, and a sorted one what is ingested.
        """
        files = self.pool.files
        if self._packs(candidate):
            small = files.bytes < SMALL_SHARE * candidate.sizes.target_bytes
            beside = np.bincount(files.partition[small], minlength=len(files.partitions))
            merged = small & (beside[files.partition] > 1)
            return RewrittenBytes(float(files.live_bytes[merged].sum()), 0.0)
        days = self.horizon_ms / DAY_MS
        later = self.ingest.bytes * days if candidate.ordering != UNSORTED else 0.0
        return RewrittenBytes(self.live_bytes, later)

    def on(self, pool: Pool, thin: Pool) -> Space:
        """Return the same space over another pool of the same files."""
        specs = tuple(
            replace(item, target=target_partitions(pool, item.spec)) for item in self.partitionings
        )
        return replace(self, pool=pool, thin=thin, partitionings=specs, row_orders={})


def _kind(
    ordering: Ordering, same: AbstractSet[int]
) -> tuple[type[Ordering] | None, tuple[SortColumn, ...]]:
    """Return what rows are ordered by where some columns have one value each. A curve over one
    column is a sort, and no column at all is no order."""
    key = tuple(column for column in ordering.key if column.field_id not in same)
    return type(ordering) if len(key) > 1 else None, key


def _mixed(share: float, one: Mixed, other: Mixed) -> Mixed:
    return share * one + (1.0 - share) * other


def rated(space: Space, label: Label) -> float:
    """Return the cost by which labels are compared: a tree has to be clearly better than a key."""
    tree = label.candidate.ordering in space.trees
    return label.total + (MARGIN * label.reading if tree else 0.0)


def simplest(space: Space, labels: Sequence[Label], least_rows: float = 0.0) -> Label:
    """Return the cheapest label, or one of those that cost hardly more which is simpler to declare:
    the present partitioning, fewer columns, a sort. What skips nothing and only stores less is
    left out.

    least_rows: sampled rows per row group that are asked, 0 for `rows_asked`. Raises LookupError if
    no candidate is sampled well enough.
    """
    left = sampled_enough(labels, least_rows or rows_asked(labels))
    while left:
        least = min(rated(space, label) for label in left)
        near = [label for label in left if rated(space, label) <= (1.0 + TIE) * least]
        picked = min(near, key=lambda label: (*_intricacy(space, label), label.total))
        if not skips_nothing(space, picked):
            return picked
        gone = picked.candidate.spec, picked.candidate.ordering
        left = [x for x in left if (x.candidate.spec, x.candidate.ordering) != gone]
    raise LookupError("no candidate has enough sampled rows per row group")


def _intricacy(space: Space, label: Label) -> tuple[int, ...]:
    """Return how much there is to declare, for comparison."""
    item = space.partitionings[label.candidate.spec]
    ordering = space.ordering(label.candidate.ordering)
    tree = ordering.tree is not None
    return not item.present, len(item.spec.fields), tree, len(ordering.key), ordering.curve


def skips_nothing(space: Space, label: Label) -> bool:
    """Whether queries read as many rows without the label's order, or else without its partitions,
    in files and row groups of the same sizes: then it only changes how much the rows take."""
    candidate = label.candidate
    if candidate.ordering != UNSORTED:
        plain = replace(candidate, ordering=UNSORTED)
    elif not space.partitionings[candidate.spec].present:
        plain = replace(candidate, spec=0)
    else:
        return False
    return label.rows > (1.0 - LEAST_SKIPPED) * space.label([plain])[0].rows


def best(labels: Sequence[Label]) -> Label:
    """Return the cheapest label with enough sampled rows; of equals the first.

    Raises LookupError if no candidate is sampled well enough.
    """
    enough = sampled_enough(labels)
    if not enough:
        raise LookupError("no candidate has enough sampled rows per row group")
    return enough[int(np.argmin([label.total for label in enough]))]


def rows_asked(labels: Sequence[Label]) -> float:
    """Return the sampled rows per row group that a label needs to be compared with these: where
    some can be relied on, others are not chosen for what a thin sample promises."""
    sure = any(label.sampled_rows >= SURE_ROWS for label in labels)
    return float(SURE_ROWS) if sure else LEAST_ROWS_OF_GROUP


def sampled_enough(labels: Sequence[Label], least: float = LEAST_ROWS_OF_GROUP) -> list[Label]:
    """Return the labels with enough sampled rows per row group to judge them."""
    return [label for label in labels if label.sampled_rows >= least]
