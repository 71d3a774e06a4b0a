"""Recommends what to declare: partitioning, ordering, file size and row-group size (PTO).

One frozen input, one frozen answer, no I/O: `loop.recommend` reads and prints. Today's layout, the
default, the expert's and the best few are compared by the same labels. Each candidate that is not
chosen keeps the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from reconciler.advisor.measure.totals import WORSE
from reconciler.advisor.pto.column_use import usage
from reconciler.advisor.pto.fallen import TOO_THIN, fell, text_of_pair
from reconciler.advisor.pto.methods.base import Choice
from reconciler.advisor.pto.methods.baselines import default_layout, expert
from reconciler.advisor.pto.methods.registry import DEFAULT_METHOD, METHODS
from reconciler.advisor.pto.objective import Costs, reading_cost
from reconciler.advisor.pto.partitionings import (
    NO_INGEST,
    CommitFiles,
    Ingest,
    RefusedSpec,
    commit_files,
    partitionings,
)
from reconciler.advisor.pto.present import present_footers, present_readings
from reconciler.advisor.pto.recommendation import (
    DeclaredLayout,
    FrontPoint,
    LayoutReading,
    Recommendation,
    RowGroup,
)
from reconciler.advisor.pto.sensitivity import best_few, sensitivity
from reconciler.advisor.pto.sizes import SMALLEST_FILE, declared_row_group, size_grid
from reconciler.advisor.pto.sort_schemes import orderings, schemes, with_third
from reconciler.advisor.pto.space import (
    LEAST_ROWS_OF_GROUP,
    TIE,
    CandidateLayout,
    Label,
    Space,
    rated,
    rows_asked,
    sampled_enough,
    simplest,
    skips_nothing,
)
from reconciler.advisor.pto.trees import TREE_OF_CUTS, UNSEEN, tries_trees
from reconciler.advisor.pto.unseen import by_other_queries
from reconciler.advisor.simulate.pool import Pool, build_pool
from reconciler.format import iec
from reconciler.plan.grouping import SMALL_SHARE
from reconciler.plan.ordering import ARRIVAL
from reconciler.queries.shape import Shape
from reconciler.queries.table_view import TableView, row_group_count
from reconciler.table.filetable import Float64
from reconciler.table.schema import PartitionSpec

MOST_ROWS = 600_000
THIN_ROWS, SCREEN_ROWS = 8_192, 24_576
"""Rows that widths are estimated from, and that a first choice of orderings is made on."""

PER_SPEC = 4
"""Sorts, and curves, of each partitioning that are simulated in all sizes."""

SCREENED_SPECS = 4
"""Partitionings for which every ordering is screened."""

LEAST_GAIN = 0.03
"""Share of today's cost that a layout has to save, or what there is stays."""

WIDEST = 3.0
"""Multiple of the sample's correction at the upper end of the interval."""

MODEL_ERROR = 0.05
"""Share by which the bytes read of written layouts differ from the simulation at the median
(bench.recommend_on_spark): what no sample shows."""


@dataclass(frozen=True)
class RecommendInput:
    """The input of a recommendation."""

    view: TableView
    """The table with its sample, and the row groups of the files whose footers were read."""
    present: PartitionSpec
    """The table's present partition spec."""
    demands: tuple[Shape, ...]
    """The recorded queries, by shape."""
    costs: Costs
    """What opening files and reading row groups costs."""
    rho: float
    """Cost of rewriting a byte, in bytes of reading."""
    horizon_ms: int
    """Time over which reading and rewriting are weighed, in milliseconds."""
    ingest: Ingest = NO_INGEST
    """What other writers append."""
    method: str = DEFAULT_METHOD
    """Name of the method that searches, a key of METHODS."""
    seed: int = 0
    """Seed of the method's random choices."""
    keep_partitioning: bool = False
    """Whether the present partitioning is the only candidate."""
    windows: tuple[tuple[str, tuple[Shape, ...]], ...] = ()
    """(name, queries) of other windows of the log, for the sensitivity."""
    unbounded: frozenset[int] = frozenset()
    """Columns whose bounds a rewrite leaves out of the manifest."""
    by_spark: str = ""
    """Why Spark has to write the table, which ends files by size and not at the leaves of a tree;
    "" if it does not."""


def recommend(given: RecommendInput) -> Recommendation:
    """Return the recommendation. Raises LookupError if the sample has no rows, ValueError for a
    method that does not exist."""
    if given.method not in METHODS:
        raise ValueError(given.method)
    columns = _columns(given)
    pool = build_pool(given.view, columns, MOST_ROWS)
    thin = build_pool(given.view, columns, THIN_ROWS)
    screen = build_pool(given.view, columns, SCREEN_ROWS)
    if pool is None or thin is None or screen is None:
        raise LookupError("no row was sampled")
    space, refused = search_space(given, pool, thin, screen)
    today = _today(given, space)
    try:
        choice = METHODS[given.method](space, given.seed)
    except LookupError:
        return _too_thin(space, today, refused)
    return _answer(given, space, today, choice, refused)


def _columns(given: RecommendInput) -> list[int]:
    """Return the ids of the sampled columns, which are those that queries filter and those of the
    present spec."""
    sample = given.view.sample
    return sorted(sample.values) if sample is not None else []


def search_space(
    given: RecommendInput, pool: Pool, thin: Pool, screen: Pool
) -> tuple[Space, tuple[RefusedSpec, ...]]:
    """Return the candidates: every partitioning with its best orderings, in all sizes."""
    used = usage(thin, given.demands)
    live = float(pool.files.live_bytes.sum())
    per_row = live / max(float(pool.weight.sum()), 1.0)
    sizes = size_grid(live, per_row)
    specs, refused = partitionings(
        used, pool, given.present, least_bytes=SMALL_SHARE * SMALLEST_FILE,
        written_bytes=SMALL_SHARE * min(s.target_bytes for s in sizes), ingest=given.ingest,
    )  # fmt: skip
    if given.keep_partitioning:
        specs = specs[:1]
    found = schemes(used, pool)
    every = (ARRIVAL, *orderings(used, pool, found))
    paper = min(len(found), len(every) - 1)
    whole = Space(
        pool, thin, specs, every, paper, sizes, given.demands, used, given.costs, given.rho,
        given.horizon_ms, present_readings(given.view, given.demands),
        row_group_count(given.view), given.ingest, given.unbounded, given.by_spark,
    )  # fmt: skip
    return _screened(whole, screen), refused


def _screened(space: Space, screen: Pool) -> Space:
    """Keep the orderings that are good under some partitioning, by a few sizes on fewer rows."""
    if len(space.orderings) <= 2 * PER_SPEC + 1:
        return space
    ordered = sorted(space.sizes, key=lambda s: s.row_group_bytes)
    few = (ordered[0], ordered[len(ordered) // 4], ordered[-1 - len(ordered) // 4])
    small = replace(space.on(screen, space.thin), sizes=tuple(dict.fromkeys(few)))
    specs = range(min(SCREENED_SPECS, len(space.partitionings)))
    pairs = [(spec, ordering) for spec in specs for ordering in small.orderings_of(spec)]
    labels = _screening(small, pairs)
    small, more = _with_triples(small, labels)
    labels += _screening(small, more)
    kept = set(range(1 + space.paper_orderings))
    for spec in specs:
        kept |= _best_orderings(small, [x for x in labels if x.candidate.spec == spec])
    return replace(space, orderings=tuple(small.orderings[number] for number in sorted(kept)))


def _screening(small: Space, pairs: Sequence[tuple[int, int]]) -> list[Label]:
    """Return the labels of partitionings with orderings, in each of the few sizes."""
    return list(
        small.label([CandidateLayout(*pair, size) for pair in pairs for size in small.sizes])
    )


def _with_triples(small: Space, labels: Sequence[Label]) -> tuple[Space, list[tuple[int, int]]]:
    """Return the space with sorts by three columns, which begin with the best sorts by two of each
    partitioning, and which of them go with which."""
    orderings, wanted = list(small.orderings), []
    for spec in dict.fromkeys(label.candidate.spec for label in labels):
        best = _best_orderings(small, [x for x in labels if x.candidate.spec == spec])
        for number in sorted(best):
            ordering = small.orderings[number]
            if ordering.curve or len(ordering.key) != 2:
                continue
            for triple in with_third(ordering, small.orderings):
                if triple not in orderings:
                    orderings.append(triple)
                wanted.append((spec, orderings.index(triple)))
    return replace(small, orderings=tuple(orderings)), wanted


def _best_orderings(space: Space, labels: Sequence[Label]) -> set[int]:
    """Return the orderings with the least cost, PER_SPEC sorts and curves each without sorts whose
    last columns add nothing."""
    cost: dict[int, float] = {}
    for label in labels:
        number = label.candidate.ordering
        cost[number] = min(cost.get(number, np.inf), label.total)
    of_key = {space.orderings[number].key: number for number in cost
              if not space.orderings[number].curve}  # fmt: skip
    best: dict[bool, list[int]] = {False: [], True: []}
    for number in sorted(cost, key=lambda number: (cost[number], number)):
        ordering = space.orderings[number]
        shorter = [] if ordering.curve else [ordering.key[:n] for n in range(len(ordering.key))]
        idle = any(
            cost[of_key[key]] <= (1.0 + TIE) * cost[number] for key in shorter if key in of_key
        )
        if not idle and len(best[ordering.curve]) < PER_SPEC:
            best[ordering.curve].append(number)
    return {number for mine in best.values() for number in mine}


def _today(given: RecommendInput, space: Space) -> DeclaredLayout:
    readings = space.present
    reading = float(reading_cost(given.costs, readings, given.demands).sum())
    view = given.view
    groups = float(len(view.row_groups)) if view.row_groups is not None else float("nan")
    files = max(len(view.files), 1)
    window, ahead = float(readings.window.sum()), float(readings.bytes.sum())
    footers = present_footers(view, given.demands)
    return DeclaredLayout(
        "today", given.present, ARRIVAL, int(view.files.total_bytes / files), None,
        LayoutReading(window, window, window, footers.window, float(readings.opened.sum())),
        LayoutReading(ahead, ahead, ahead, footers.ahead, float(readings.files.sum())),
        readings.bytes[0], reading, reading, float(len(view.files)),
        groups if view.label == "exact" else float("nan"), 0.0, 0.0, float("nan"),
    )  # fmt: skip


def _layout(
    name: str, given: RecommendInput, space: Space, label: Label, today: DeclaredLayout
) -> DeclaredLayout:
    candidate, spec = label.candidate, space.partitionings[label.candidate.spec].spec
    tree = space.trees.get(candidate.ordering)
    widths = (1.0, 0.0, WIDEST)
    label, *ends = by_other_queries(space, label, given.view, given.seed, widths)
    row = label.bytes_written / max(float(space.pool.weight.sum()), 1.0)
    group = candidate.sizes.row_group_bytes
    declared = RowGroup(declared_row_group(group), round(group / max(row, 1e-9)))
    inner = np.array([label.row_groups / max(label.files, 1.0)])
    footer = float(space.pool.stored.footer.of(inner)[0])

    def reading(opened: float, *found: Float64) -> LayoutReading:
        read, *others = (float(one.sum()) for one in found)
        low, high = widened(min(read, *others), max(read, *others), label.sampled_rows)
        return LayoutReading(read, low, high, opened * footer, opened)

    worse = tuple(
        int(number)
        for number in np.flatnonzero(label.ahead > WORSE * today.by_demand)
        if label.ahead[number] > 0
    )
    return DeclaredLayout(
        name, spec, space.ordering(candidate.ordering), candidate.sizes.target_bytes, declared,
        reading(label.opened, label.window, *(end.window for end in ends)),
        reading(label.opened_ahead, label.ahead, *(end.ahead for end in ends)),
        label.ahead, label.reading, label.total, label.files, label.row_groups,
        label.rewrite_bytes, label.first_rewrite_bytes, label.sampled_rows, worse,
        leaf_rows=0 if tree is None else tree.least_rows, commit=_commit(given, space, candidate),
    )  # fmt: skip


def _commit(given: RecommendInput, space: Space, candidate: CandidateLayout) -> CommitFiles | None:
    chosen = space.partitionings[candidate.spec]
    if chosen.spec.unpartitioned or given.ingest.spread:
        return None
    return commit_files(space.pool, chosen.target, given.ingest)


def widened(low: float, high: float, sampled_rows: float) -> tuple[float, float]:
    """Return the interval with the error of the model and of the sample. sampled_rows: of the
    smallest row groups; so many rows miss about one part in as many of a row group's range."""
    error = MODEL_ERROR + 1.0 / max(sampled_rows, 1.0)
    return max(low * (1.0 - error), 0.0), high * (1.0 + error)


def _answer(
    given: RecommendInput,
    space: Space,
    today: DeclaredLayout,
    choice: Choice,
    refused: tuple[RefusedSpec, ...],
) -> Recommendation:
    labels, chosen = (*space.labels, *choice.finer), choice.candidate
    by_candidate = {label.candidate: label for label in labels}
    if chosen not in by_candidate:
        by_candidate[chosen] = space.label([chosen])[0]
    picked = by_candidate[chosen]
    front = pareto([today.reading, *(label.reading for label in labels)],
                   [0.0, *(label.rewrite_bytes for label in labels)])  # fmt: skip
    now = FrontPoint("today", None, today.reading, 0.0)
    on_front = {labels[i - 1].candidate for i in front if i}
    named, unjudged = _named(space, given.seed, picked, labels)
    layouts = [
        replace(_layout(name, given, space, label, today), front=label.candidate in on_front)
        for name, label in named
    ]
    keep = _one_file(space) or _keep(today, layouts[0], _only_stored(space, labels, picked))
    if keep and chosen.ordering in space.trees:
        key = _without_trees(space, choice)
        return _answer(given, space, today, key, (*refused, RefusedSpec(TREE_OF_CUTS, UNSEEN)))
    known = {label.candidate: it for (_, label), it in zip(named, layouts, strict=True)}
    return Recommendation(
        today=today,
        chosen=None if keep else layouts[0],
        others=tuple(layouts if keep else layouts[1:]),
        keep=keep,
        refused=(*refused, *_no_trees(space)),
        usage=space.usage,
        labelled=choice.labelled,
        candidates=len(space.candidates),
        finer=len(choice.finer),
        sampled=len(space.pool),
        sampled_rows=picked.sampled_rows,
        sensitivity=sensitivity(given.view, given.windows, space, labels, picked, known),
        fell=(*unjudged, *fell(space, labels, picked)),
        front=tuple(_point(space, labels[i - 1]) if i else now for i in front),
    )


def _named(
    space: Space, seed: int, picked: Label, labels: Sequence[Label]
) -> tuple[list[tuple[str, Label]], list[tuple[str, str]]]:
    """Return the layouts that are shown, by name, and those that the sample cannot judge."""
    named, unjudged = [("best", picked)], []
    for name, method in (("expert", expert), ("default", default_layout)):
        try:
            named.append((name, space.label([method(space, seed).candidate])[0]))
        except LookupError:
            unjudged.append((f"the {name} layout", TOO_THIN))
    rest = [label for label in labels if label.candidate != picked.candidate]
    runners = enumerate(best_few(rest, picked))
    return [*named, *((f"next {place + 1}", label) for place, label in runners)], unjudged


def _without_trees(space: Space, choice: Choice) -> Choice:
    """Return the best key instead of a tree that does not pay."""
    finer = tuple(one for one in choice.finer if one.candidate.ordering not in space.trees)
    key = simplest(space, (*space.labels, *finer)).candidate
    return replace(choice, candidate=key, finer=finer)


def _no_trees(space: Space) -> tuple[RefusedSpec, ...]:
    """Return why no tree of cuts is a candidate where queries filter on enough columns for one."""
    if not space.by_spark or not tries_trees(space):
        return ()
    return (RefusedSpec(TREE_OF_CUTS, f"Spark has to write the table: {space.by_spark}"),)


def _point(space: Space, label: Label) -> FrontPoint:
    candidate, schema = label.candidate, space.pool.files.schema
    what = text_of_pair(space, candidate.spec, candidate.ordering, schema)
    return FrontPoint(what, candidate.sizes, label.reading, label.rewrite_bytes)


def _one_file(space: Space) -> str:
    """Return why a table of one small file should stay as it is, "" for any other."""
    files, least = space.pool.files, min(size.target_bytes for size in space.sizes)
    if len(files) != 1 or space.live_bytes > least:
        return ""
    size = iec(space.live_bytes)
    return f"the table is one file of {size}, less than the smallest file size of {iec(least)}"


def _only_stored(space: Space, labels: Sequence[Label], picked: Label) -> bool:
    """Whether a cheaper layout was left out because no query skips more by it."""
    least = min(sampled_enough(labels, rows_asked(labels)), key=lambda label: rated(space, label))
    cheaper = rated(space, least) < (1.0 - TIE) * rated(space, picked)
    return cheaper and skips_nothing(space, least)


def _keep(today: DeclaredLayout, chosen: DeclaredLayout, only_stored: bool) -> str:
    """Return why today's layout should stay, "" if the chosen one is better. only_stored: whether a
    cheaper one was left out by which no query skips more."""
    if chosen.total < (1.0 - LEAST_GAIN) * today.total:
        return ""
    if only_stored:
        return "no order lets queries skip more rows; some would only store the rows in fewer bytes"
    if chosen.reading < (1.0 - LEAST_GAIN) * today.reading:
        return "no layout saves more reading within the horizon than rewriting the table costs"
    return f"no layout saves {100 * LEAST_GAIN:.0f} % of what today's costs"


def _too_thin(
    space: Space, today: DeclaredLayout, refused: tuple[RefusedSpec, ...]
) -> Recommendation:
    labels = space.labels
    most = max(label.sampled_rows for label in labels)
    return Recommendation(
        today, None, (),
        f"the sample has at most {most:.0f} rows per smallest row group, fewer than "
        f"{LEAST_ROWS_OF_GROUP:.0f}: it would flatter every layout",
        refused, space.usage, 0, len(labels), len(space.pool), most,
    )  # fmt: skip


def pareto(reading: Sequence[float], rewriting: Sequence[float]) -> tuple[int, ...]:
    """Return the positions that no other beats in reading and rewriting at once, by rewriting."""
    order = sorted(range(len(reading)), key=lambda i: (rewriting[i], reading[i], i))
    front: list[int] = []
    for position in order:
        if not front or reading[position] < reading[front[-1]]:
            front.append(position)
    return tuple(front)
