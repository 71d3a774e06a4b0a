"""Gathers what a recommendation needs, and makes it: observe, read queries, sample, simulate.

Writes nothing to the user's catalog; the sample is kept in the state store. Bad input ends as one
error that says what is missing.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module

import numpy as np

from reconciler.advisor.choose.properties import DISTRIBUTION_MODE
from reconciler.advisor.pto.methods.registry import DEFAULT_METHOD, METHODS, NEEDS
from reconciler.advisor.pto.objective import PRESETS, Costs, costs_of_plans
from reconciler.advisor.pto.partitionings import Ingest
from reconciler.advisor.pto.recommend import MOST_ROWS, RecommendInput, recommend
from reconciler.advisor.pto.recommendation import Recommendation
from reconciler.advisor.qdtree.uncut import uncut
from reconciler.errors import UserError
from reconciler.format import plural
from reconciler.loop.advised import filtered_columns, on_live_files, with_footer
from reconciler.loop.ports import RecordedQueries, Target
from reconciler.loop.reader import Reader
from reconciler.plan.ledger import throughput
from reconciler.queries.demanded import demands, predicate_columns
from reconciler.queries.open_price import OpenPrice
from reconciler.queries.rewrite_cost import Throughput, rho_from
from reconciler.queries.shape import Shape, Workload
from reconciler.queries.table_view import footer_model, table_view
from reconciler.state.row_blocks import sample_blocks
from reconciler.state.sketch import (
    MOST_FILES,
    TableSample,
    least_bytes,
    sample_table,
    sampled_files,
)
from reconciler.table.block_ids import owned_column
from reconciler.table.filetable import FileTable
from reconciler.table.left_to_spark import DEFAULT_ROW_GROUP, OTHER_FORMAT, why_left_to_spark
from reconciler.table.metrics_modes import unbounded_columns
from reconciler.table.observation import Observation
from reconciler.table.sample import RowGroups
from reconciler.table.schema import Field
from reconciler.table.times import DAY_MS

HORIZON_MS = 30 * DAY_MS
SAMPLE_BYTES = 10 << 30
SAMPLE_ROWS = 120_000
"""Rows of a sample unless more are asked for: about 100 for each of 1,200 row groups."""

MOST_BLOCK_BYTES = 512 << 20
"""Column chunks read for blocks of neighbouring rows, at most."""

MOST_COLUMNS = 32
"""Filtered columns that are sampled, the most frequent first."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a recommendation is made."""

    method: str = DEFAULT_METHOD
    """Name of the method that searches the layouts."""
    costs: str = ""
    """Name of a preset of prices; "" for those by which the table's plans are made."""
    horizon_ms: int = HORIZON_MS
    """Time in milliseconds over which reading is weighed against rewriting."""
    sample_bytes: int = SAMPLE_BYTES
    """Most bytes that are read for the sample."""
    sample_rows: int = SAMPLE_ROWS
    """Most rows in the sample."""
    keep_partitioning: bool = False
    """Whether only layouts with the present partitioning are considered."""
    seed: int = 20260101
    """Seed of the methods that use random numbers."""


@dataclass(frozen=True)
class Gathered:
    """What a recommendation of one table is made from."""

    target: Target
    """The table's catalog and name."""
    observation: Observation
    """The table as it was observed."""
    queries: RecordedQueries
    """The recorded queries."""
    options: Options
    """How the recommendation is to be made."""
    sample: TableSample
    """Sampled rows of the table."""
    throughput: Throughput
    """The time model of rewrites."""
    given: RecommendInput
    """The input of the search for a layout."""


@dataclass(frozen=True)
class Recommended(Gathered):
    """A recommendation with everything that it was made from."""

    recommendation: Recommendation
    """The chosen layout and the others, with their costs."""
    made: dt.datetime
    """When it was made."""


def not_cut(made: Recommended) -> list[str]:
    """Return which conditions of the queries the recommended tree of cuts does not serve."""
    answer = made.recommendation
    if answer.chosen is None or answer.chosen.ordering.tree is None:
        return []
    reads = answer.today.by_demand.tolist()
    return list(filter(None, [uncut(made.given.demands, reads, made.observation.schema)]))


def recommended(target: Target, reader: Reader, options: Options, now: dt.datetime) -> Recommended:
    """Return the recommendation for a table. Raises UserError for input that allows none."""
    checked(options)
    return on_live_files(target, reader, lambda seen: _on(seen, target, reader, options, now))


def checked(options: Options) -> None:
    """Raise UserError for a method or costs that do not exist, and for a method whose package is
    not installed: before anything is read."""
    if options.method not in METHODS:
        raise UserError(
            f'there is no method "{options.method}"', do=f"name one of {', '.join(METHODS)}"
        )
    if options.costs and options.costs not in PRESETS:
        raise UserError(
            f'there are no costs called "{options.costs}"', do=f"name one of {', '.join(PRESETS)}"
        )
    if options.method in NEEDS:
        try:
            import_module(NEEDS[options.method])
        except ModuleNotFoundError as missing:
            raise UserError(
                f'the method "{options.method}" needs the package {missing.name}, which is not '
                "installed",
                details=("Nothing was read or changed.",),
                do='pip install "table-layout-reconciler[learn]", or leave out --method',
            ) from missing


def gathered(
    seen: Observation, target: Target, reader: Reader, options: Options, now: dt.datetime
) -> Gathered:
    """Return what is known of an observed table. Raises UserError for input that allows no
    recommendation."""
    queries = reader.recorded_queries(seen)
    wanted = _demands(seen, queries.workload, options)
    columns = _columns(seen.files, queries.workload)
    chosen = _footers(seen.files)
    footers = reader.footers(target, seen, chosen)
    _enough_budget(seen.files, footers, columns, options.sample_bytes)
    files, now_ms = reader.sketched_files(target, seen), int(now.timestamp() * 1000)
    sample = sample_table(
        files, columns, rows=min(options.sample_rows, MOST_ROWS), budget=options.sample_bytes,
        footers=footers, now_ms=now_ms, read=reader.read_sketches,
    )  # fmt: skip
    blocks = sample_blocks(
        files, _by_projection(seen.files, queries.workload, columns),
        budget=min(MOST_BLOCK_BYTES, options.sample_bytes - sample.bytes_read), footers=footers,
        now_ms=now_ms,
    )  # fmt: skip
    sample = replace(sample, bytes_read=sample.bytes_read + blocks.bytes_read)
    history = reader.history(seen.uuid)
    costs = costs_of(options, history.open_price)
    view = table_view(
        seen.files, footers, sample.rows, DEFAULT_ROW_GROUP, round(costs.file), blocks.blocks
    )
    given = RecommendInput(
        view=view,
        present=seen.files.specs[seen.files.default_spec_id],
        demands=wanted,
        costs=replace(costs, footer=footer_model(view)),
        rho=rho_from(history.rho).value,
        horizon_ms=options.horizon_ms,
        ingest=ingest_of(seen),
        method=options.method,
        seed=options.seed,
        keep_partitioning=options.keep_partitioning,
        windows=_windows(queries.workload, seen, options),
        unbounded=unbounded(seen),
        by_spark=by_spark(seen),
    )
    return Gathered(target, seen, queries, options, sample, throughput(history.entries), given)


def unbounded(seen: Observation) -> frozenset[int]:
    """Return the columns by which nothing is laid out: those without bounds, and that of block ids,
    which names the leaves of a present tree."""
    owned = owned_column(seen.metadata)
    found = unbounded_columns(seen.schema, seen.properties, seen.metadata.sorted_columns)
    return found if owned is None else found | {owned}


def by_spark(seen: Observation) -> str:
    """Return why Spark has to write the table, "" if the engine in Arrow can."""
    columns = [(field.name, field.type) for field in seen.schema.fields]
    other = [OTHER_FORMAT] if seen.delete_files.other_format.any() else []
    return why_left_to_spark(columns, seen.properties, other)


def _on(
    seen: Observation, target: Target, reader: Reader, options: Options, now: dt.datetime
) -> Recommended:
    found = gathered(seen, target, reader, options, now)
    return Recommended(**vars(found), recommendation=recommend(found.given), made=now)


def _demands(seen: Observation, workload: Workload, options: Options) -> tuple[Shape, ...]:
    name = seen.name
    if not len(seen.files):
        raise UserError(f"{name} has no data file", do="write rows first; nothing was changed")
    if workload.empty:
        raise UserError(
            f"no queries are known for {name}",
            details=("A layout is recommended for recorded queries, and there are none.",),
            do="import a log with `layoutctl workload import`",
        )
    wanted = demands(workload, seen.schema, options.horizon_ms, keeps_up=True)
    known = seen.schema.by_id
    useful = [
        demand
        for demand in wanted
        if demand.prunable and predicate_columns(demand.predicate, seen.schema)
    ]
    if not useful:
        raise UserError(
            f"no recorded query of {name} filters on a column that a layout could serve",
            details=(
                f"{workload.queries:,.0f} queries are known; all read the whole table.",
                *_dropped(workload, known),
            ),
            do="`layoutctl workload show` lists them; nothing was changed",
        )
    return wanted


def _dropped(workload: Workload, known: Mapping[int, Field]) -> tuple[str, ...]:
    """Return how many queries filter on columns that were dropped since they were recorded."""
    lost = sum(
        float(batch.weight.sum())
        for batch in workload.shapes
        if any(field not in known for field in filtered_columns(Workload((batch,), 0, 0)))
    )
    return (f"{lost:,.0f} of them filtered on columns that were dropped since.",) if lost else ()


def _columns(files: FileTable, workload: Workload) -> list[int]:
    """Return the columns to sample: filtered ones, the most frequent first, and the spec's own."""
    weight: dict[int, float] = {}
    for batch in workload.shapes:
        for field in filtered_columns(Workload((batch,), 0, 0)):
            weight[field] = weight.get(field, 0.0) + float(batch.weight.sum())
    known = files.schema.by_id
    usable = [
        field
        for field in sorted(weight, key=lambda f: (-weight[f], f))
        if field in known and known[field].kind is not None and field in files.columns
    ]
    spec = files.specs[files.default_spec_id]
    own = [f.source_id for f in spec.fields if f.transform != "void" and f.source_id in known]
    return list(dict.fromkeys((*usable[:MOST_COLUMNS], *own)))


def _by_projection(files: FileTable, workload: Workload, first: Sequence[int]) -> list[int]:
    """Return all columns: `first`, then those that queries read, the most frequent first."""
    weight: dict[int, float] = {}
    for batch in workload.shapes:
        for field in batch.projection:
            weight[field] = weight.get(field, 0.0) + float(batch.weight.sum())
    every = sorted(files.schema.by_id, key=lambda field: (-weight.get(field, 0.0), field))
    return list(dict.fromkeys((*first, *every)))


def _footers(files: FileTable) -> np.ndarray:
    """Return the files whose footers are read: all, or as many as a sample reads."""
    known = with_footer(files)
    return known if len(known) <= MOST_FILES else sampled_files(files)


def _enough_budget(
    files: FileTable, footers: RowGroups, columns: Sequence[int], budget: int
) -> None:
    """Refuse a budget that does not pay for one row group of every file that is sampled."""
    chosen = sampled_files(files)
    least = int(least_bytes(chosen, footers, columns).sum())
    if budget < least:
        raise UserError(
            f"--sample-bytes {budget} is less than one row group and the footer of each of "
            f"{plural(len(chosen), 'file')}: {least} bytes",
            details=("Every file has to be represented in the sample. No column was read.",),
            do=f"give at least --sample-bytes {least}",
        )


def costs_of(options: Options, price: OpenPrice) -> Costs:
    """Return the costs of the preset that is asked for, else those of the table's plans."""
    return PRESETS[options.costs] if options.costs else costs_of_plans(price)


def ingest_of(seen: Observation) -> Ingest:
    """Return what other writers append, by the summaries of the retained snapshots."""
    appends = [s for s in seen.ancestry if s.operation == "append" and not s.ours]
    spread = seen.properties.get(DISTRIBUTION_MODE) in ("hash", "range")
    added = [int(snapshot.summary.get("added-data-files", 0)) for snapshot in appends]
    files = float(np.mean(added)) if added else 0.0
    times = [snapshot.timestamp_ms for snapshot in appends]
    days = (max(times) - min(times)) / DAY_MS if times else 0.0
    if len(appends) < 2 or days < 1.0:
        return Ingest(files=files, spread=spread)  # a bulk load within a day does not give a rate
    size = sum(int(snapshot.summary.get("added-files-size", 0)) for snapshot in appends)
    return Ingest(len(appends) / days, size / days, files, spread)


def _windows(
    workload: Workload, seen: Observation, options: Options
) -> tuple[tuple[str, tuple[Shape, ...]], ...]:
    """Return the demands of the first and the last half of the log."""
    middle = (workload.since_ms + workload.until_ms) // 2
    halves = (
        ("the first half of the log", _during(workload, workload.since_ms, middle)),
        ("the last half of the log", _during(workload, middle + 1, workload.until_ms)),
    )
    return tuple(
        (name, demands(part, seen.schema, options.horizon_ms, keeps_up=True))
        for name, part in halves
        if part.shapes
    )


def _during(workload: Workload, first_ms: int, last_ms: int) -> Workload:
    parts = (shape.since(first_ms, last_ms) for shape in workload.shapes)
    kept = tuple(part for part in parts if len(part))
    return replace(workload, shapes=kept, since_ms=first_ms, until_ms=last_ms)
