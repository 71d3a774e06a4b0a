"""Replays a table's recorded queries under several policies: what they would have cost.

What the table holds now is taken apart by the times of its files: those of the past stand at the
start, later ones arrive at their time. Nothing but footers and a sample of rows is read of it, and
nothing is written to it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from reconciler.advisor.advice import NO_DEBT, DeletePolicy, Settings
from reconciler.api.documents import TableLayoutPolicy
from reconciler.errors import UserError
from reconciler.format import plural, utc
from reconciler.loop.advised import (
    filtered_columns,
    on_live_files,
    sampled_columns,
    target_size,
    with_footer,
)
from reconciler.loop.decision_settings import budgets_of, settings_for
from reconciler.loop.history import History
from reconciler.loop.ports import Ports, RecordedQueries, Target
from reconciler.queries.predicate import bounded_fields_of
from reconciler.queries.shape import Shape, Workload
from reconciler.replay.observed import ObservedTable
from reconciler.replay.policies.depth_driven import depth_driven
from reconciler.replay.policies.fixed import (
    do_nothing,
    rebuild_each,
    rebuild_tree,
    sort_everything,
    sort_new_data,
)
from reconciler.replay.policies.literal_wair import literal_wair
from reconciler.replay.policies.oracle import sorted_for_free
from reconciler.replay.policies.ours import within
from reconciler.replay.result import Replayed, Result
from reconciler.replay.run import Policy, Replay, ReplayTable, Step, replay
from reconciler.table.filetable import Int64
from reconciler.table.observation import Observation
from reconciler.table.orphans import NO_ORPHANS
from reconciler.table.times import DAY_MS

MOST_SAMPLED = 2_000
"""Files of which footers and rows are read; others are taken to be like the nearest of these."""
MOST_BATCHES = 1_000
"""Batches of one replay: a decision after each takes a second or so."""


@dataclass(frozen=True, slots=True)
class Span:
    """Which part of the log is replayed, and in which steps."""

    days: int
    """Days before the last recorded query."""
    every_ms: int
    """Length of a batch in milliseconds; a decision is taken after each."""


@dataclass(frozen=True, slots=True)
class Rival:
    """A policy that is compared."""

    name: str
    """What the output calls it."""
    policy: TableLayoutPolicy
    """The policy whose settings hold."""
    baseline: str = ""
    """A name in BASELINES or FREE, if the advisor does not decide; "" if it does."""


Progress = Callable[[str, int, int], None]
"""(policy, finished batches of all policies, batches of all policies)."""


def replay_table(
    target: Target,
    rivals: Sequence[Rival],
    span: Span,
    ports: Ports,
    now: dt.datetime,
    progress: Progress,
) -> Replayed:
    """Return what the table's recorded queries would have cost under each policy.

    Raises UserError if no queries are recorded.
    """
    return on_live_files(
        target, ports, lambda seen: _replayed(seen, target, rivals, span, ports, now, progress)
    )


def _replayed(
    seen: Observation,
    target: Target,
    rivals: Sequence[Rival],
    span: Span,
    ports: Ports,
    now: dt.datetime,
    progress: Progress,
) -> Replayed:
    queries, history = ports.recorded_queries(seen), ports.history(seen.uuid)
    workload = queries.recorded  # first rows are a range of the present files alone
    _require_queries(seen, workload)
    settings = [_settings(rival.policy, seen, history, queries, ports, now) for rival in rivals]
    table = _read(seen, target, workload, settings[0], ports)
    batches = _batches(workload, span)
    arrivals, notes = _arrivals(seen, batches)
    later = np.concatenate([*arrivals, np.zeros(0, dtype=np.int64)])
    gone = np.flatnonzero(seen.files.added_ms > batches.ends[-1])
    if len(gone) and len(gone) == len(table):
        notes.append("all files came after the last query: they stand at the start")
        gone = gone[:0]
    start = table.at(np.setdiff1d(np.arange(len(table)), np.union1d(later, gone)))
    steps = _steps(table, workload, batches, arrivals)
    before = [shape.since(0, batches.since - 1) for shape in workload.shapes]
    play = _Play(seen, workload, start, steps, [one for one in before if len(one)])
    results: list[Result] = []
    for rival, chosen in zip(rivals, settings, strict=True):

        def done(finished: int, name: str = rival.name) -> None:
            progress(name, len(results) * len(steps) + finished, len(rivals) * len(steps))

        found = play.of(rival, chosen, results, done)
        results.append(Result(rival.name, found, chosen.rho.value))
    return Replayed(
        table=seen.name,
        uuid=seen.uuid,
        since_ms=batches.since,
        ends_ms=tuple(batches.ends),
        queries=tuple(float(sum(s.weight.sum() for s in step.queries)) for step in steps),
        files_before=len(start),
        files_arrived=len(later),
        open_bytes=settings[0].open_bytes,
        notes=(*notes, *_left_out(seen, table, gone)),
        results=tuple(results),
    )


def _require_queries(seen: Observation, workload: Workload) -> None:
    if workload.empty:
        raise UserError(
            f"no query on {seen.name} is recorded, so there is nothing to replay",
            do="layoutctl workload import FILE",
        )


def _settings(
    policy: TableLayoutPolicy,
    seen: Observation,
    history: History,
    queries: RecordedQueries,
    ports: Ports,
    now: dt.datetime,
) -> Settings:
    """Return the settings of the policy without what the table's real past says, which a replay
    has a past of its own for."""
    settings = settings_for(
        policy, seen, history, queries,
        target_bytes=target_size(policy, seen), now_ms=int(now.timestamp() * 1000),
    )  # fmt: skip
    price = ports.open_price(seen.uuid)
    return replace(
        settings,
        open_bytes=price.bytes,
        chosen_sizes={},
        written={},
        bases={},
        debt=NO_DEBT,
        quiet_partitions=frozenset(),
        conflicts=0,
        deletes=DeletePolicy(),
        migration=None,
        expire=None,
        rewrite_manifests=False,
        remove_orphans=None,
        orphans=NO_ORPHANS,
        remove_specs_ms=None,
        audited=None,
    )


def _read(
    seen: Observation, target: Target, workload: Workload, settings: Settings, ports: Ports
) -> ObservedTable:
    """Return the whole table as it is now, with footers and a sample of its files' rows."""
    known = with_footer(seen.files)
    if len(known) > MOST_SAMPLED:
        known = known[np.arange(MOST_SAMPLED) * len(known) // MOST_SAMPLED]
    columns = sampled_columns(workload, settings, seen.files)
    if not columns or not len(known):
        return ObservedTable(seen.files, None, None)
    groups = ports.footers(target, seen, known)
    sample = ports.sketch(target, seen, known, columns)
    return ObservedTable(seen.files, groups, sample)


@dataclass(frozen=True, slots=True)
class _Batches:
    """The batches of queries between which a replay decides."""

    since: int
    """Start of the first batch, in epoch milliseconds."""
    ends: list[int]
    """End of each batch, in epoch milliseconds; a query at the end belongs to the next batch."""


def _batches(workload: Workload, span: Span) -> _Batches:
    """Return the batches of the span, which begin at whole multiples of their length; the last one
    ends behind the last query."""
    until = (workload.until_ms // span.every_ms + 1) * span.every_ms
    length = min(span.days * DAY_MS, until - workload.since_ms)
    count = max(1, -(-length // span.every_ms))
    if count > MOST_BATCHES:
        raise UserError(
            f"{count:,} batches are more than {MOST_BATCHES:,}, a decision each",
            do="a longer --every, or fewer --days",
        )
    since = until - count * span.every_ms
    return _Batches(since, [since + (number + 1) * span.every_ms for number in range(count)])


def _arrivals(seen: Observation, batches: _Batches) -> tuple[list[Int64], list[str]]:
    """Return the files that arrive in each batch, as rows of the file table, and what is to be
    said about the others.

    A file that replaced others holds rows that came before: it stands at the start. So do the first
    files of a table that is younger than its log, because its queries read something.
    """
    files = seen.files
    replaced = {one.timestamp_ms for one in seen.ancestry if one.operation == "replace"}
    moved = files.layout_written | np.isin(files.added_ms, sorted(replaced))
    within = (files.added_ms >= batches.since) & (files.added_ms <= batches.ends[-1])
    number = np.searchsorted(batches.ends, files.added_ms, side="right")
    number = np.minimum(number, len(batches.ends) - 1)
    arrivals = [
        np.flatnonzero(within & ~moved & (number == batch)).astype(np.int64)
        for batch in range(len(batches.ends))
    ]
    notes = []
    first = next((batch for batch, rows in enumerate(arrivals) if len(rows)), 0)
    if first > 0 and not (moved | (files.added_ms < batches.since)).any():
        since = utc(int(files.added_ms[arrivals[first]].min()))
        notes.append(
            f"the table is younger than its log: {plural(len(arrivals[first]), 'file')} of {since} "
            "and later stand at the start"
        )
        arrivals[first] = arrivals[first][:0]
    if count := int(np.count_nonzero(within & moved)):
        notes.append(
            f"{plural(count, 'file')} were rewritten since {utc(batches.since)}: their rows stand "
            "at the start, in the order that they have now"
        )
    return arrivals, notes


def _left_out(seen: Observation, table: ObservedTable, gone: Int64) -> list[str]:
    """Return what of the table the replay does not show."""
    notes = []
    if len(gone):
        notes.append(f"{plural(len(gone), 'file')} came after the last query and are left out")
    if len(seen.delete_files):
        notes.append("deletes are not replayed: files count as they are now")
    sampled = 0 if table.sample is None else len(np.unique(table.sample.file))
    if sampled < len(table):
        notes.append(
            f"rows of {sampled:,} of {len(table):,} files were sampled; the others are taken to be "
            "like the nearest of them"
        )
    return notes


def _steps(
    table: ObservedTable, workload: Workload, batches: _Batches, arrivals: Sequence[Int64]
) -> list[Step[ObservedTable]]:
    steps, begin = [], batches.since
    for end, rows in zip(batches.ends, arrivals, strict=True):
        asked = tuple(shape.since(begin, end - 1) for shape in workload.shapes)
        steps.append(Step(_arriving(table, rows), tuple(one for one in asked if len(one)), end))
        begin = end
    return steps


def _arriving(table: ObservedTable, rows: Int64) -> Callable[[ObservedTable], ObservedTable] | None:
    if not len(rows):
        return None
    new = table.at(rows)
    return lambda now: now.with_files(new)


@dataclass(frozen=True, slots=True)
class _Play:
    """What all policies are replayed on."""

    seen: Observation
    """The table as it is now."""
    workload: Workload
    """All recorded queries."""
    table: ObservedTable
    """The table before the first step."""
    steps: Sequence[Step[ObservedTable]]
    """The batches."""
    before: Sequence[Shape]
    """Queries from before the first step."""

    def of(
        self,
        rival: Rival,
        settings: Settings,
        others: Sequence[Result],
        done: Callable[[int], None],
    ) -> Replay[ObservedTable]:
        """Return the costs under one policy. others: those that were replayed before."""
        if rival.baseline in FREE:
            columns = _columns(self.seen, self.workload)
            return sorted_for_free(
                self.table, self.steps, settings, columns,
                before=FREE[rival.baseline], done=done,
            )  # fmt: skip
        policy = within(budgets_of(rival.policy.spec))
        if rival.baseline:
            moved = others[1].replay.rewritten_bytes if len(others) > 1 else np.zeros(1)
            given = BaselineInput(self.seen, self.workload, float(moved.mean()))
            policy = BASELINES[rival.baseline](given)
        return replay(self.table, self.steps, policy, settings, before=self.before, done=done)


def _most_filtered(seen: Observation, workload: Workload) -> int:
    """Return the column that most executions filter on."""
    columns = _columns(seen, workload)
    if not columns:
        raise UserError(
            f"no recorded query on {seen.name} filters on a column with bounds",
            do="leave out --baseline",
        )
    return max(columns, key=lambda column: (_filtering(workload.shapes, column), -column))


def _filtering(shapes: Sequence[Shape], column: int) -> float:
    return sum(
        float(one.weight.sum()) for one in shapes if column in bounded_fields_of(one.predicate)
    )


def _columns(seen: Observation, workload: Workload) -> list[int]:
    return [one for one in filtered_columns(workload) if one in seen.files.columns]


@dataclass(frozen=True, slots=True)
class BaselineInput:
    """What a baseline is made from."""

    seen: Observation
    """The table."""
    workload: Workload
    """All recorded queries: keys are chosen by them, also of batches to come."""
    batch_bytes: float
    """Bytes that the table's own policy rewrote after a batch, on average."""

    @property
    def key(self) -> int:
        """The column that most executions filter on."""
        return _most_filtered(self.seen, self.workload)


BASELINES: dict[str, Callable[[BaselineInput], Policy[ReplayTable]]] = {
    "none": lambda given: do_nothing,
    "sort-all": lambda given: sort_everything(given.key),
    "sort-new": lambda given: sort_new_data(given.key),
    "sort-weekly": lambda given: rebuild_each(7 * DAY_MS, _columns(given.seen, given.workload)),
    "depth-driven": lambda given: depth_driven(given.key, given.batch_bytes),
    "literal-wair": lambda given: literal_wair(),
    "literal-wair-one-key": lambda given: literal_wair(hybrid=False),
    "new-tree": lambda given: rebuild_tree,
}
"""Policies that the advisor does not decide, by the names that `replay --baseline` takes."""

FREE = {"free-before": True, "free-after": False}
"""Sorts that are not charged, by the names that `replay --baseline` takes: whether they come before
the queries of a batch."""
