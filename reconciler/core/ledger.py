"""The ledger as the next plan reads it: what was spent, how well predictions held, what is owed.

`reconciler.catalog.state` stores the entries; the functions here turn them into budget charges,
throughput, calibration and the debt of Eq. 2 (WAIR section 4.2), and into `history`'s lines.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reconciler.core.budget import Spent
from reconciler.core.cost import WORK_KINDS, Throughput, ThroughputSample, throughput_from
from reconciler.core.execution import COMMITTED, Outcome, attempt_started_ms
from reconciler.core.interval import Calibration, calibrate

SHRUNK = 2 / 3
"""Files below this share of the bytes expected would be fewer, were they written again."""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One outcome with the prediction it is measured against.

    at_ms: when it was recorded. predicted: the plan's claims for this action (plan.PlannedAction),
    empty where the plan is no longer known; "type" is the action's type.
    """

    table_uuid: str
    plan_id: str
    at_ms: int
    outcome: Outcome
    predicted: Mapping[str, Any] = field(default_factory=dict)

    @property
    def action_type(self) -> str:
        return str(self.predicted.get("type", ""))

    @property
    def committed(self) -> bool:
        return self.outcome.state == COMMITTED


def written_layouts(entries: Iterable[LedgerEntry]) -> dict[str, frozenset[str]]:
    """By plan, the layouts (actions.layout_of) that just one committed action of it wrote.

    Files of two actions may well be merged, sorted as each of them is. So may files that came out
    much smaller than was expected: how many there are followed from that.
    """
    wrote: dict[tuple[str, str], list[LedgerEntry]] = {}
    for entry in entries:
        if entry.committed and "layout" in entry.predicted:
            place = (entry.plan_id, str(entry.predicted["layout"]))
            wrote.setdefault(place, []).append(entry)
    found: dict[str, set[str]] = {}
    for (plan, layout), told in wrote.items():
        if len({entry.outcome.action_id for entry in told}) == 1 and not _shrank(told):
            found.setdefault(plan, set()).add(layout)
    return {plan: frozenset(layouts) for plan, layouts in found.items()}


def _shrank(entries: Sequence[LedgerEntry]) -> bool:
    """Whether the same rewrite of what came out might write fewer files."""
    expected = sum(_expected_bytes(entry) for entry in entries)
    written = sum(entry.outcome.written_bytes for entry in entries)
    return sum(entry.outcome.files_out for entry in entries) > 1 and written < SHRUNK * expected


def _expected_bytes(entry: LedgerEntry) -> float:
    """What the plan told would be written of the bytes that were read."""
    read, told = entry.outcome.read_bytes, entry.predicted
    size = int(told.get("bytesIn", 0))
    return read * int(told.get("bytesOut", size)) / size if size > 0 else read


@dataclass(frozen=True, slots=True)
class ReadCheck:
    """The window's planned bytes before, predicted and found after one plan was carried out.

    at_ms: when it was measured. complete: every action of the plan was carried out, so that the
    prediction is comparable. saved: what the window was found to save, opened files included, as a
    plan's savings are; None in a record that has bytes alone.
    """

    plan_id: str
    at_ms: int
    before: int
    predicted: int
    actual: int
    complete: bool
    saved: int | None = None

    @property
    def saving(self) -> int:
        """Bytes-equivalent of reading, to be held against the cost of the rewrite."""
        return self.before - self.actual if self.saved is None else self.saved


@dataclass(frozen=True, slots=True)
class Reservation:
    """Write-ahead charge of one execution: what its admitted actions are predicted to cost.

    Recorded before the execution starts, settled when every attempt it began is accounted for in
    outcomes. One that is never settled counts in full, from the moment it was made: how far work
    came that died is not known, and unknown charges all.

    id: unique. policy: whose budgets it counts on (loop.step.policy_key). at_ms: when it was
    recorded, by the store's clock.
    """

    id: str
    table_uuid: str
    plan_id: str
    policy: str
    rewrite_bytes: int
    cpu_seconds: float
    at_ms: int = 0
    settled: bool = False


@dataclass(frozen=True, slots=True)
class Charged:
    """One charge on budgets and whose it is."""

    policy: str
    table_uuid: str
    plan_id: str
    spent: Spent


def charged(
    entries: Sequence[LedgerEntry],
    reservations: Sequence[Reservation] = (),
    besides: str = "",
) -> tuple[Charged, ...]:
    """What was spent, and what is reserved or was and never settled: each byte counts once.

    Spent is everything that was read for rewriting, conflicts and failures included. Of an open
    reservation the rest counts that its own attempts' outcomes do not account for yet. What an
    attempt spent is charged to the policy that reserved for it: a plan may be carried out in part
    under one policy and finished under another.
    besides: the id of a reservation that is not to count.
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
    return tuple(found)


def _charged_to(entry: LedgerEntry, made: Mapping[tuple[str, str], Sequence[Reservation]]) -> str:
    began = attempt_started_ms(entry.outcome.attempt_id)
    before = [
        held.policy
        for held in made.get((entry.table_uuid, entry.plan_id), ())
        if began is not None and held.at_ms <= began
    ]
    return before[-1] if before else str(entry.predicted.get("policy", ""))


def _rest(
    held: Reservation, entries: Sequence[LedgerEntry], reservations: Sequence[Reservation]
) -> list[Charged]:
    """An attempt belongs to the last reservation of its table and plan made before it began."""
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
    rest = Spent(_moment(held.at_ms), max(size, 0), max(cpu, 0.0))
    return [Charged(held.policy, held.table_uuid, held.plan_id, rest)]


def _charged_cpu(entry: LedgerEntry) -> float:
    """CPU that was measured; what was read without a measurement counts as predicted."""
    outcome = entry.outcome
    size = int(entry.predicted.get("bytesIn", 0))
    if outcome.cpu_seconds > 0.0 or size <= 0:
        return outcome.cpu_seconds
    return int(entry.predicted.get("cpuMillis", 0)) / 1000 * outcome.read_bytes / size


def _moment(at_ms: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC)


def throughput(entries: Sequence[LedgerEntry]) -> Throughput:
    """The throughput model, from committed rewrites of a known kind.

    A commit that was settled after a crash has no measured CPU time and says nothing.
    """
    begun: set[tuple[str, str]] = set()
    samples = []
    for entry in sorted(entries, key=lambda entry: entry.at_ms):
        kind, done = WORK_KINDS.get(entry.action_type), entry.outcome
        if kind is None:
            continue
        first = (entry.plan_id, kind) not in begun
        begun.add((entry.plan_id, kind))
        if entry.committed and done.cpu_seconds > 0:
            samples.append(
                ThroughputSample(
                    kind, done.read_bytes, done.cpu_seconds, done.seconds, done.files_in, first
                )
            )
    return throughput_from(samples)


def read_calibration(checks: Iterable[ReadCheck]) -> Calibration:
    """Actual / predicted bytes read by the window, over completed plans."""
    return calibrate([c.actual / c.predicted for c in checks if c.complete and c.predicted > 0])


def cpu_calibration(entries: Iterable[LedgerEntry]) -> Calibration:
    """Actual / predicted CPU of committed rewrites."""
    return calibrate(
        [
            entry.outcome.cpu_seconds * 1000 / entry.predicted["cpuMillis"]
            for entry in entries
            if entry.committed and entry.predicted.get("cpuMillis")
        ]
    )


def trust(entries: Sequence[LedgerEntry], checks: Sequence[ReadCheck]) -> str:
    """One line on how past predictions held, "" when nothing was carried out yet."""
    done = [entry for entry in entries if entry.committed and entry.action_type in WORK_KINDS]
    if not done:
        return "no action was carried out here yet; intervals are uncalibrated"
    parts = [f"after {len(done)} {'action' if len(done) == 1 else 'actions'} here:"]
    read, cpu = read_calibration(checks), cpu_calibration(done)
    if read.outcomes:
        parts.append(f"bytes read {(read.median - 1) * 100:+.0f} % median;")
    if cpu.outcomes:
        parts.append(f"CPU {(cpu.median - 1) * 100:+.0f} % median")
    label = "" if read.label == "calibrated" else " (uncalibrated below 5 outcomes)"
    return " ".join(parts).rstrip(";") + label
