"""Computes the table before and after the chosen actions: per shape, in total, and for objectives.

Numbers are of the recorded window (planned bytes, docs/design/definitions.md#read-cost). After =
now minus what the actions' inputs contribute plus what their simulated outputs would.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from reconciler.advisor.advice import ObjectiveJudgement, Objectives, ShapeEffect
from reconciler.advisor.deletes.limits import outrun
from reconciler.advisor.judge.candidate import Candidate
from reconciler.advisor.situation import Situation, is_quiet
from reconciler.format import plural
from reconciler.plan.prediction_interval import Interval
from reconciler.queries.read_cost import ShapeReading, scan_amplification
from reconciler.queries.shape import Shape
from reconciler.queries.table_view import projected_bytes, row_group_count
from reconciler.table.deletes import deleted_rows
from reconciler.table.filetable import Bool, FileTable, Float64, Int64
from reconciler.table.row_group_bytes import row_groups_of

WORSE = 1.01
"""Multiple of what queries read now, above which a change is said to make them worse."""


class Effect(Protocol):
    """What each shape reads before and after an action, of the files that it concerns."""

    @property
    def before(self) -> tuple[ShapeReading, ...]: ...

    @property
    def after(self) -> tuple[ShapeReading, ...]: ...


@dataclass(frozen=True)
class Totals:
    """What each query reads and opens before and after the actions.

    Each field has an array for each shape: float64[queries of the shape].
    """

    bytes_now: tuple[Float64, ...]
    """Bytes that the query reads now."""
    bytes_after: tuple[Float64, ...]
    """Bytes that the query would read after the actions."""
    files_now: tuple[Float64, ...]
    """Number of data files that the query opens now."""
    files_after: tuple[Float64, ...]
    """Number of data files that the query would open after the actions."""
    cost_now: tuple[Float64, ...]
    """Cost of reading and of opening files now, in bytes of reading."""
    cost_after: tuple[Float64, ...]
    """Cost of reading and of opening files after the actions, in bytes of reading."""


def totals(situation: Situation, candidates: Sequence[Effect]) -> Totals:
    """Return, per query, what is read and opened before and after the candidates."""
    now = situation.expected.savings.readings
    after_bytes = [reading.bytes.copy() for reading in now]
    after_files = [reading.files.copy() for reading in now]
    after_cost = [reading.cost.copy() for reading in now]
    for candidate in candidates:
        for number in range(len(now)):
            before, then = candidate.before[number], candidate.after[number]
            after_bytes[number] += then.bytes - before.bytes
            after_files[number] += then.files - before.files
            after_cost[number] += then.cost - before.cost
    return Totals(
        tuple(reading.bytes for reading in now),
        tuple(np.maximum(values, 0.0) for values in after_bytes),
        tuple(reading.files for reading in now),
        tuple(np.maximum(values, 0.0) for values in after_files),
        tuple(reading.cost for reading in now),
        tuple(np.maximum(values, 0.0) for values in after_cost),
    )


def saved_by_opening(situation: Situation, made: Candidate) -> float:
    """Return the saving if queries opened the same share of the new, fewer files, in bytes. What is
    not opened because its bounds exclude it is skipped data."""
    opened = sum(
        float(demand.executions @ was.files)
        for demand, was in zip(situation.expected.demands, made.before, strict=True)
    )
    fewer = opened * (1.0 - made.files_out / max(len(made.rows), 1))
    return fewer * situation.settings.open_bytes


def saved_by_density(situation: Situation, made: Candidate) -> float:
    """Return the saving if queries read the same share of the new, denser files, in bytes."""
    if not situation.expected.demands:
        return 0.0
    saved, files = 0.0, situation.part(made.rows).files
    for demand, was in zip(situation.expected.demands, made.before, strict=True):
        stored = float(projected_bytes(files, demand.projection).sum())
        written = sum(float(projected_bytes(t, demand.projection).sum()) for t in made.written)
        saved += float(demand.executions @ was.bytes) * (1.0 - written / max(stored, 1.0))
    return saved


def window_bytes(situation: Situation, per_query: Sequence[Float64]) -> float:
    return float(
        sum(
            float(demand.weight @ values)
            for demand, values in zip(situation.expected.demands, per_query, strict=True)
        )
    )


def shape_effects(situation: Situation, sums: Totals) -> tuple[ShapeEffect, ...]:
    """Return the effect per shape over the window, the most expensive first."""
    effects = []
    for number, demand in enumerate(situation.expected.demands):
        queries = float(demand.weight.sum())
        now = float(demand.weight @ sums.bytes_now[number])
        after = float(demand.weight @ sums.bytes_after[number])
        effects.append(
            ShapeEffect(
                shape_id=demand.shape_id,
                queries=queries,
                bytes_now=now,
                bytes_after=after,
                files_now=float(demand.weight @ sums.files_now[number]) / max(queries, 1e-9),
                files_after=float(demand.weight @ sums.files_after[number]) / max(queries, 1e-9),
                worse=is_worse(demand, sums.bytes_now[number], sums.bytes_after[number]),
            )
        )
    return tuple(sorted(effects, key=lambda e: (-e.bytes_now, e.shape_id)))


def is_worse(demand: Shape, now: Float64, after: Float64) -> bool:
    """Whether the queries read more than before; of moving windows, those to come."""
    times = demand.executions if demand.moving else demand.weight
    return float(times @ after) > WORSE * float(times @ now)


def amplification(situation: Situation, bytes_read: Sequence[Float64]) -> float:
    """Return the window's scan amplification on the present layout."""
    return amplification_after(situation, bytes_read, ())


def amplification_after(
    situation: Situation, bytes_read: Sequence[Float64], candidates: Sequence[Candidate]
) -> float:
    """Return the window's scan amplification on the layout that the candidates leave.

    Both terms use that layout, not the present one: a few matching rows cost one of its row groups,
    and matching rows are stored as densely as the rest of their new files.
    """
    kept = np.ones(len(situation.table), dtype=np.bool_)
    for candidate in candidates:
        kept[candidate.rows] = False
    rest = situation.facts.view if kept.all() else situation.facts.view.take(np.flatnonzero(kept))
    groups = row_group_count(rest) + sum(_groups_written(made) for made in candidates)
    matching, floors = [], []
    for number, demand in enumerate(situation.expected.demands):
        size = projected_bytes(situation.table, demand.projection)
        needed = situation.expected.savings.readings[number].matching
        whole = float(size[kept].sum())
        for made in candidates:
            stored = sum(float(projected_bytes(t, demand.projection).sum()) for t in made.written)
            change = stored / max(float(size[made.rows].sum()), 1.0) - 1.0
            needed = needed + change * made.before[number].matching
            whole += stored
        matching.append(np.maximum(needed, 0.0))
        floors.append(whole / max(groups, 1.0))
    return scan_amplification(situation.expected.demands, bytes_read, matching, floors)


def _groups_written(made: Candidate) -> float:
    return float(sum(row_groups_of(t.bytes, made.row_group_bytes).sum() for t in made.written))


def amplification_label(situation: Situation) -> str:
    """Return "sampled" if some file was sketched, else "bound"."""
    sample = situation.facts.view.sample
    return "bound" if sample is None or not len(sample) else "sampled"


def judge_objectives(
    situation: Situation,
    amplification_now: float,
    amplification_after: Interval,
    small: tuple[float, float] | None,
    files_after: int,
) -> tuple[ObjectiveJudgement, ...]:
    """Judge every given objective against now and after.

    small: percentage of files that are small and mergeable, now and after; files that cannot be
    merged do not fail an objective. None if it was not found out, because no objective is about it.
    """
    wanted: Objectives = situation.settings.objectives
    table = situation.table
    judged = []
    if wanted.max_scan_amplification is not None and np.isfinite(amplification_now):
        judged.append(
            _straddling("maxScanAmplification", wanted.max_scan_amplification,
                        amplification_now, amplification_after)
        )  # fmt: skip
    if wanted.max_small_file_percent is not None and small is not None:
        judged.append(_plain("maxSmallFilePercent", wanted.max_small_file_percent, *small))
    if wanted.max_deleted_rows_percent is not None:
        judged.append(_deleted_rows(situation, wanted.max_deleted_rows_percent))
    if wanted.max_file_count is not None:
        judged.append(_plain("maxFileCount", float(wanted.max_file_count), len(table), files_after))
    return tuple(judged)


def _deleted_rows(situation: Situation, limit: float) -> ObjectiveJudgement:
    """Judge the share of deleted rows by its bounds.

    How many rows an equality delete hides, or a position delete file that was not read, is between
    bounds. The lower one can show that the objective is missed; only the upper one that it is met.
    """
    table, taken = situation.table, situation.spent.taken
    rows = deleted_rows(table, situation.given.deletes)
    low_now, low = _share(table, rows.least, taken, int(rows.least.sum()))
    high_now, high = _share(table, rows.most, taken, rows.total_most)
    if high <= limit:
        return _plain("maxDeletedRowsPercent", limit, high_now, high)
    judged = _plain("maxDeletedRowsPercent", limit, low_now, low)
    if judged.state != "met":
        judged = replace(judged, message=f"{low:.4g} against {limit:.4g}; {_why_more(situation)}")
    why = _why_unknown(situation, low, high)
    if not why:
        return judged
    if judged.state == "met":
        return replace(judged, state="unknown", message=why, at_least=True)
    return replace(judged, message=f"at least {judged.message}; {why}", at_least=True)


def _share(table: FileTable, rows: Int64, taken: Bool, total: int) -> tuple[float, float]:
    """Return the percentage of deleted rows now, and after a plan that rewrites the taken files."""
    stored, gone = table.total_records, int(rows[taken].sum())
    left = min(int(rows[~taken].sum()), total)
    return 100.0 * total / max(stored, 1), 100.0 * left / max(stored - gone, 1)


def _why_unknown(situation: Situation, low: float, high: float) -> str:
    """Return why the share after the plan is not known, "" if it is."""
    table, taken = situation.table, situation.spent.taken
    why = []
    hidden = int(((table.equality_deletes > 0) & ~taken).sum())
    if hidden:
        text = (
            f"equality deletes apply to {plural(hidden, 'file')}: how many rows they delete is "
            "unknown until they are converted or applied"
        )
        if (outrun(situation) & ~taken).any():
            text += (
                ", and new ones come sooner than the budgets admit that; by estimate "
                f"{_estimated(situation):.3g} %"
            )
        why.append(text)
    rows = deleted_rows(table, situation.given.deletes)
    if rows.unread and low < high:
        files = plural(rows.unread, "position delete file")
        why.append(
            f"which rows {files} delete was not read: the share is between {low:.3g} and "
            f"{high:.3g} %"
        )
    return "; ".join(why)


def _estimated(situation: Situation) -> float:
    """Return the percentage of deleted rows after the plan, if each key is that of one row."""
    dead, taken = situation.expected.burden.dead, situation.spent.taken
    stored = situation.table.total_records - float(dead[taken].sum())
    return 100.0 * float(dead[~taken].sum()) / max(stored, 1.0)


def _why_more(situation: Situation) -> str:
    """Return why not more deleted rows are dropped."""
    table, policy = situation.table, situation.settings.deletes
    left = (table.position_deleted > 0) & ~situation.spent.taken
    if not policy.majors:
        return f"spec.deletes.compaction is {policy.compaction}: no data file is rewritten for them"
    if (left & is_quiet(situation)).any():
        return "the rest waits for the quiet period"
    if (left & ~situation.facts.rewritable).any():
        return "the other files with deleted rows cannot be rewritten"
    return "what could be rewritten is larger than a budget admits"


def _plain(name: str, limit: float, now: float, after: float) -> ObjectiveJudgement:
    if after <= limit:
        return ObjectiveJudgement(name, limit, now, after, "met", "")
    state = "failing" if after < now else "unreachable"
    message = f"{after:.4g} against {limit:.4g}; no profitable action lowers it further"
    return ObjectiveJudgement(name, limit, now, after, state, message)


def _straddling(name: str, limit: float, now: float, after: Interval) -> ObjectiveJudgement:
    base = _plain(name, limit, now, after.mid)
    if after.low < limit < after.high and after.label != "exact":
        return replace(base, state="probably", message="the interval straddles the limit")
    return base
