"""The ledger as the next plan reads it: spending, accuracy of predictions, and debt.

`reconciler.state.state` stores the entries; the functions here turn them into budget charges,
throughput, calibration and the debt of Eq. 2 (WAIR section 4.2), and into `history`'s lines.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from reconciler.format import plural
from reconciler.plan.actions import KINDS
from reconciler.plan.budget import Spent
from reconciler.plan.execution import (
    COMMITTED,
    WAITING,
    ExecutionResult,
    Outcome,
    attempt_started_ms,
)
from reconciler.plan.prediction import Prediction, total
from reconciler.plan.prediction_interval import Calibration, calibrate
from reconciler.queries.rewrite_cost import (
    Rows,
    RunTimes,
    Throughput,
    ThroughputSample,
    modelled_cpu,
    throughput_from,
)

LONGEST_RUN = dt.timedelta(hours=24, minutes=12)
"""After this time the run of a Job has certainly ended: Kubernetes stops it at its active deadline,
and kills it after its grace period."""

SHRUNK = 2 / 3
"""If files have less than this share of the expected bytes, a second rewrite would write fewer of
them."""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One outcome with the prediction that it is compared with."""

    table_uuid: str
    """UUID of the table."""
    plan_id: str
    """The plan's id."""
    at_ms: int
    """When the outcome was recorded, in epoch milliseconds."""
    outcome: Outcome
    """What was measured."""
    predicted: Prediction = field(default_factory=Prediction)
    """The plan's prediction for this action; empty if the plan is no longer known."""

    @property
    def action_type(self) -> str:
        return self.predicted.kind or ""

    @property
    def committed(self) -> bool:
        return self.outcome.state == COMMITTED

    @property
    def written(self) -> bool:
        """Whether its files were written and verified, and are in the table or wait on a branch."""
        return self.outcome.state in (COMMITTED, WAITING)


def written_layouts(entries: Iterable[LedgerEntry]) -> dict[str, frozenset[str]]:
    """Return, by plan, the layouts (`Rewrite.layout`) written by exactly one of its committed
    actions.

    Files of two actions may be worth merging although each action's files are sorted. So may files
    that came out much smaller than expected, because their number followed from the expected size.
    """
    wrote: dict[tuple[str, str], list[LedgerEntry]] = {}
    for entry in entries:
        layout = entry.predicted.layout
        if entry.written and layout is not None:
            wrote.setdefault((entry.plan_id, layout), []).append(entry)
    return _by_plan(
        place for place, parts in wrote.items()
        if len({entry.outcome.action_id for entry in parts}) == 1 and not _shrank(parts)
    )  # fmt: skip


def chosen_sizes(entries: Iterable[LedgerEntry]) -> dict[str, int]:
    """Return, by plan, the least size of files that one of its committed rewrites chose itself."""
    found: dict[str, int] = {}
    for entry in entries:
        size = entry.predicted.target_bytes
        if entry.written and size:
            found[entry.plan_id] = min(size, found.get(entry.plan_id, size))
    return found


def written_bases(entries: Iterable[LedgerEntry]) -> dict[str, frozenset[str]]:
    """Return, by plan, the bases (Prediction.basis) of its committed rewrites."""
    return _by_plan(
        (entry.plan_id, entry.predicted.basis)
        for entry in entries
        if entry.written and entry.predicted.basis is not None
    )


def written_leads(entries: Iterable[LedgerEntry]) -> dict[str, frozenset[int | None]]:
    """Return, by plan, the columns that lead the orders of its committed rewrites
    (Prediction.lead)."""
    return _by_plan(
        (entry.plan_id, entry.predicted.lead)
        for entry in entries
        if entry.written and rewrites_data(entry)
    )


Value = TypeVar("Value")


def _by_plan(pairs: Iterable[tuple[str, Value]]) -> dict[str, frozenset[Value]]:
    found: dict[str, set[Value]] = {}
    for plan, value in pairs:
        found.setdefault(plan, set()).add(value)
    return {plan: frozenset(values) for plan, values in found.items()}


def _shrank(entries: Sequence[LedgerEntry]) -> bool:
    """Whether the same rewrite of its own output might write fewer files."""
    expected = sum(_expected_bytes(entry) for entry in entries)
    written = sum(entry.outcome.written_bytes for entry in entries)
    return sum(entry.outcome.files_out for entry in entries) > 1 and written < SHRUNK * expected


def _expected_bytes(entry: LedgerEntry) -> float:
    """Return the bytes that the plan predicted to be written for the bytes that were read."""
    read, size = entry.outcome.read_bytes, entry.predicted.rewrite_bytes
    written = entry.predicted.bytes_out
    return read * (size if written is None else written) / size if size > 0 else read


@dataclass(frozen=True, slots=True)
class ReadCheck:
    """What the recorded queries of the window read before a plan was carried out, as predicted, and
    afterwards."""

    plan_id: str
    """The plan's id."""
    at_ms: int
    """When it was measured, in epoch milliseconds."""
    before: int
    """Planned bytes before."""
    predicted: int
    """Planned bytes that the plan predicted."""
    actual: int
    """Planned bytes afterwards."""
    complete: bool
    """Whether every action of the plan was carried out, so that the prediction is comparable."""
    saved: int | None = None
    """Measured saving of the window in bytes, opened files included; None in a record that has only
    bytes."""
    cost_before: int | None = None
    """Cost of reading and opening files before, in bytes; None in an older record."""
    cost_predicted: int | None = None
    """Cost that the plan predicted, in bytes; None in an older record."""
    cost_actual: int | None = None
    """Cost afterwards, in bytes; None in an older record."""
    files_before: int | None = None
    """Number of data files before; None in an older record."""
    files_predicted: int | None = None
    """Number of data files that the plan predicted; None in an older record."""
    files_actual: int | None = None
    """Number of data files afterwards; None in an older record."""

    @property
    def harm(self) -> bool:
        """Whether the recorded queries cost more than before, opened files counted."""
        return self.saving < 0

    @property
    def saving(self) -> int:
        """Bytes-equivalent of reading, to be compared with the cost of the rewrite."""
        return self.before - self.actual if self.saved is None else self.saved


@dataclass(frozen=True, slots=True)
class Reservation:
    """Write-ahead charge of one execution: the predicted cost of its admitted actions.

    It is recorded before the execution starts, and settled when every attempt that it began has its
    outcomes. One that is never settled counts in full, because nobody knows how far the work came:
    as of now while its run may live, and as of the run's end from then on.
    """

    id: str
    """Unique id of the reservation."""
    table_uuid: str
    """UUID of the table."""
    plan_id: str
    """The plan's id."""
    policy: str
    """Key of the policy whose budgets are charged."""
    rewrite_bytes: int
    """Predicted bytes of input files."""
    cpu_seconds: float
    """Predicted CPU seconds."""
    at_ms: int = 0
    """When it was recorded, in epoch milliseconds by the store's clock."""
    settled: bool = False
    """Whether the execution has ended and its outcomes count instead."""
    used_cpu_seconds: float = 0.0
    """CPU seconds that a settled execution used and that no outcome reports."""
    ended_ms: int | None = None
    """When it was settled, or its run was seen to have ended without that, in epoch milliseconds;
    None for neither."""


@dataclass(frozen=True, slots=True)
class Charged:
    """One charge against budgets, and the policy it belongs to."""

    policy: str
    """Key of the policy whose budgets are charged."""
    table_uuid: str
    """UUID of the table."""
    plan_id: str
    """The plan's id."""
    spent: Spent
    """What is charged, as of when the work ended or was reserved."""
    until: dt.datetime | None = None
    """When the run of an open reservation has certainly ended; None for work that has ended."""

    def at(self, now: dt.datetime) -> Spent:
        """Return the charge as of the last moment, up to now, at which the work may have been
        done."""
        if self.until is None:
            return self.spent
        return replace(self.spent, at=max(self.spent.at, min(now, self.until)))


def charged(
    entries: Sequence[LedgerEntry],
    reservations: Sequence[Reservation] = (),
    besides: str = "",
) -> tuple[Charged, ...]:
    """Return what was spent, and what is reserved or was never settled; each byte counts once.

    Spent is everything that was read for rewriting, conflicts and failures included. An open
    reservation counts with what its own attempts' outcomes do not yet account for. What an attempt
    spent is charged to the policy that reserved for it: a plan may be carried out in part under one
    policy and finished under another. besides: the id of a reservation that does not count.
    """
    made: dict[tuple[str, str], list[Reservation]] = {}
    for held in sorted(reservations, key=lambda item: item.at_ms):
        made.setdefault((held.table_uuid, held.plan_id), []).append(held)
    found = [
        Charged(
            _charged_to(entry, made), entry.table_uuid, entry.plan_id,
            Spent(_moment(entry.at_ms), entry.outcome.read_bytes, _charged_cpu(entry)),
        )
        for entry in entries
        if entry.outcome.read_bytes or entry.outcome.cpu_seconds
    ]  # fmt: skip
    for held in reservations:
        if not held.settled and held.id != besides:
            found += _rest(held, entries, reservations)
        if held.settled and held.used_cpu_seconds:
            ended = held.at_ms if held.ended_ms is None else held.ended_ms
            used = Spent(_moment(ended), 0, held.used_cpu_seconds)
            found.append(Charged(held.policy, held.table_uuid, held.plan_id, used))
    return tuple(found)


def _charged_to(entry: LedgerEntry, made: Mapping[tuple[str, str], Sequence[Reservation]]) -> str:
    began = attempt_started_ms(entry.outcome.attempt_id)
    before = [
        held.policy
        for held in made.get((entry.table_uuid, entry.plan_id), ())
        if began is not None and held.at_ms <= began
    ]
    return before[-1] if before else entry.predicted.policy or ""


def _rest(
    held: Reservation, entries: Sequence[LedgerEntry], reservations: Sequence[Reservation]
) -> list[Charged]:
    """Return the uncovered part of a reservation.

    An attempt belongs to the last reservation of its table and plan made before it began.
    """
    later = [
        other.at_ms
        for other in reservations
        if other.id != held.id
        and (other.table_uuid, other.plan_id) == (held.table_uuid, held.plan_id)
        and other.at_ms > held.at_ms
    ]
    until = min(later, default=None)
    size, cpu = held.rewrite_bytes, held.cpu_seconds
    for entry in entries:
        if (entry.table_uuid, entry.plan_id) != (held.table_uuid, held.plan_id):
            continue
        began = attempt_started_ms(entry.outcome.attempt_id)
        if began is not None and held.at_ms <= began and (until is None or began < until):
            size -= entry.outcome.read_bytes
            cpu -= _charged_cpu(entry)
    if size <= 0 and cpu <= 0.0:
        return []
    rest = Spent(_moment(held.at_ms), max(size, 0), max(cpu, 0.0), held=True, ends=_ends(held))
    return [Charged(held.policy, held.table_uuid, held.plan_id, rest, rest.ends)]


def _ends(held: Reservation) -> dt.datetime | None:
    """Return when the run of an open reservation has certainly ended: at the end that was seen, or
    after the longest time that a run lives. None for an unreadable outcome, which has no run."""
    if not held.plan_id:
        return None
    if held.ended_ms is not None:
        return _moment(held.ended_ms)
    return _moment(held.at_ms) + LONGEST_RUN


def may_live(held: Reservation, now: dt.datetime) -> bool:
    """Whether the run of an open reservation counts as alive, because no end of it was seen."""
    ends = _ends(held)
    return held.ended_ms is None and ends is not None and now < ends


def _charged_cpu(entry: LedgerEntry) -> float:
    """Return the measured CPU seconds; bytes read without a measurement count as predicted."""
    outcome = entry.outcome
    size = entry.predicted.rewrite_bytes
    if outcome.cpu_seconds > 0.0 or size <= 0:
        return outcome.cpu_seconds
    return entry.predicted.cpu_seconds * outcome.read_bytes / size


def _moment(at_ms: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC)


def rewrites_data(entry: LedgerEntry) -> bool:
    """Whether the entry's action replaces data files of the table."""
    kind = KINDS.get(entry.action_type)
    return kind is not None and kind.rewrites_data


def work_of(entry: LedgerEntry) -> str | None:
    """How the throughput model groups the entry's action (`Action.work`)."""
    kind = KINDS.get(entry.action_type)
    return kind.work if kind else None


def throughput(entries: Sequence[LedgerEntry], runs: Sequence[RunTimes] = ()) -> Throughput:
    """Return the throughput model, from committed rewrites of a known kind. runs: of all tables."""
    return throughput_from(samples_of(entries), runs)


def samples_of(entries: Sequence[LedgerEntry]) -> list[ThroughputSample]:
    """Return what the committed rewrites of a known kind took.

    A commit that was settled after a crash has no measured CPU time and is not used.
    """
    begun: set[tuple[str, str]] = set()
    samples = []
    for entry in sorted(entries, key=lambda entry: entry.at_ms):
        kind, done = work_of(entry), entry.outcome
        if kind is None:
            continue
        first = (entry.plan_id, kind) not in begun
        begun.add((entry.plan_id, kind))
        if entry.written and done.cpu_seconds > 0:
            samples.append(
                ThroughputSample(
                    kind,
                    done.read_bytes,
                    done.cpu_seconds,
                    done.seconds,
                    done.files_in,
                    first,
                    _rows_of(done, entry.predicted),
                )
            )
    return samples


def _rows_of(done: Outcome, predicted: Prediction) -> Rows | None:
    """Return the rows of an outcome, with text as predicted for each; None for a plan that has not
    been predicted by them."""
    if predicted.text_bytes is None or predicted.columns is None or not predicted.rows:
        return None
    text = done.rows * predicted.text_bytes / predicted.rows
    return Rows(done.rows, text, predicted.columns)


def times_of(
    planned: Mapping[str, tuple[str | None, Prediction]], result: ExecutionResult
) -> RunTimes | None:
    """Return the times of one execution; None if it committed nothing that is timed.

    planned: `Action.work` and the prediction, by action id.
    """
    begun: set[str] = set()
    tasks = cpu = model = 0.0
    for done in result.outcomes:
        work, predicted = planned.get(done.action_id, (None, Prediction()))
        if done.state != COMMITTED or work is None or done.cpu_seconds <= 0.0:
            continue
        rows, first = _rows_of(done, predicted), work not in begun
        model += modelled_cpu(work, done.read_bytes, done.files_in, first, rows)
        begun.add(work)
        tasks, cpu = tasks + done.seconds, cpu + done.cpu_seconds
    if not begun or result.conflicts:
        return None
    groups = total(predicted for _, predicted in planned.values()).groups
    return RunTimes(result.start_seconds, result.seconds - tasks, groups, tasks, cpu, model)


def read_calibration(checks: Iterable[ReadCheck]) -> Calibration:
    """Return actual / predicted bytes read by the window, over completed plans."""
    return calibrate([c.actual / c.predicted for c in checks if c.complete and c.predicted > 0])


def cpu_calibration(entries: Iterable[LedgerEntry]) -> Calibration:
    """Return actual / predicted CPU of committed rewrites; that of manifests is not measured."""
    return calibrate(
        [
            entry.outcome.cpu_seconds * 1000 / predicted
            for entry in entries
            if entry.written and work_of(entry) and (predicted := entry.predicted.cpu_millis)
        ]
    )


def trust(entries: Sequence[LedgerEntry], checks: Sequence[ReadCheck]) -> str:
    """Return one line on the accuracy of past predictions, "" if nothing was carried out yet."""
    done = [entry for entry in entries if entry.committed and work_of(entry)]
    if not done:
        return "no past rewrite here to check against; the intervals have a preset width"
    read, cpu = read_calibration(checks), cpu_calibration(done)
    errors = [
        f"{what} {(found.median - 1) * 100:+.0f} %"
        for what, found in (("bytes read", read), ("CPU", cpu))
        if found.outcomes
    ]
    text = f"after {plural(len(done), 'action')} here"
    text += f", actual against predicted: {', '.join(errors)} (median)" if errors else ""
    return text + ("" if read.label == "calibrated" else "; preset intervals below 5 outcomes")
