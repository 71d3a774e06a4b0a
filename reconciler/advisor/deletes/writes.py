"""Plans what writers of updates and deletes do next: their mode, and the table's format version.

Metadata only. The choice of a way to write is `mode`'s; here it becomes actions, and sentences for
those who read the plan.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from reconciler.advisor.advice import Rejected
from reconciler.advisor.deletes.apply_cost import POSITION_SECONDS
from reconciler.advisor.deletes.mode import (
    WORTH,
    CostInputs,
    ModeChoice,
    mode_choices,
    property_changes,
    seconds_text,
)
from reconciler.advisor.judge.candidate import rejected
from reconciler.advisor.situation import Situation
from reconciler.plan import reasons
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.set_properties import SetProperties
from reconciler.plan.actions.upgrade_format import UpgradeFormat
from reconciler.plan.prediction_interval import Interval
from reconciler.table.operations import Encoding, Kind
from reconciler.table.times import DAY_MS

COMPACTED_LATELY_MS = 7 * DAY_MS
"""How long a compaction by another engine speaks against an upgrade: it may run again."""
LEAST_SAVED = 1.0
"""CPU seconds a day that an upgrade must save for certain: it cannot be undone."""
NEWEST = 3
BUCKETS = re.compile(r"bucket\[(\d+)\]")


@dataclass(frozen=True)
class Writes:
    """How writers are to write updates and deletes from now on."""

    actions: tuple[tuple[Action, str], ...] = ()
    """(action, why, for people): changes of metadata."""
    rejected: tuple[Rejected, ...] = ()
    """Changes that were considered and are not planned."""
    choices: tuple[ModeChoice, ...] = ()
    """The choice for each kind of row-level operation."""
    notes: tuple[str, ...] = ()
    """Advice on what other writers decide, for people."""


def planned_writes(situation: Situation) -> Writes:
    """Return the changes of write modes and format version that the policy asks for."""
    inputs = cost_inputs(situation)
    choices = mode_choices(inputs, situation.given.operations)
    policy, present = situation.settings.deletes, situation.settings.metadata.properties
    actions: list[tuple[Action, str]] = [
        (SetProperties(tuple((n, present.get(n)) for n, _ in one.properties), one.properties),
         one.why)
        for one in property_changes(policy.mode, inputs, choices)
    ]  # fmt: skip
    upgrades, refused = _upgrade(situation, choices)
    notes = (*_format_note(situation, choices), *_equality_note(situation), *_join_note(situation))
    return Writes((*actions, *upgrades), refused, choices, notes)


def cost_inputs(situation: Situation) -> CostInputs:
    """Return what the costs depend on. Without trusted queries the readings are unknown."""
    settings, table = situation.settings, situation.table
    whole = float((situation.expected.burden.reads * table.bytes).sum()) / max(table.total_bytes, 1)
    return CostInputs(
        files=table,
        format_version=settings.metadata.format_version,
        properties=settings.metadata.properties,
        reads_per_day=whole * DAY_MS / settings.horizon_ms if situation.trusted else None,
        throughput=settings.throughput,
        rewriting=settings.cpu_calibration,
    )


def _upgrade(
    situation: Situation, choices: tuple[ModeChoice, ...]
) -> tuple[list[tuple[Action, str]], tuple[Rejected, ...]]:
    policy, version = situation.settings.deletes, situation.settings.metadata.format_version
    if policy.format_version == "Keep" or version >= NEWEST:
        return [], ()
    gain = daily_gain(choices)
    nothing = np.zeros(0, dtype=np.int64)
    what = f"upgrade from format version {version} to {NEWEST}"
    compacted = policy.compacted_ms
    if compacted is not None and situation.settings.now_ms - compacted < COMPACTED_LATELY_MS:
        why = reasons.SENTENCES[reasons.COMPACTED_ELSEWHERE]
        return [], (rejected(situation, what, reasons.COMPACTED_ELSEWHERE, why, nothing),)
    if policy.format_version == "Upgrade":
        return [(UpgradeFormat(version, NEWEST), "spec.deletes.formatVersion is Upgrade")], ()
    if gain is not None and _pays(choices):
        return [(UpgradeFormat(version, NEWEST), f"saves {seconds_text(gain)} CPU s a day")], ()
    why = "how often the table is read between two operations is unknown"
    if gain is not None:
        why = f"vectors save {seconds_text(gain)} CPU s a day: too little, or too uncertain"
    return [], (rejected(situation, what, reasons.UPGRADE_UNPAID, why, nothing),)


def daily_gain(choices: tuple[ModeChoice, ...]) -> Interval | None:
    """Return the CPU seconds a day that deletion vectors would save, None if that is unknown."""
    known = [(one.upgraded, one.per_day) for one in choices if one.upgraded is not None]
    if not known:
        return None
    low, mid, high = (
        sum(getattr(gain, end) * per_day for gain, per_day in known)
        for end in ("low", "mid", "high")
    )
    return Interval(low, mid, high, known[0][0].label)


def _pays(choices: tuple[ModeChoice, ...]) -> bool:
    """Whether the gain is certain, and worth a change that cannot be undone."""
    costed = [one for one in choices if one.costs]
    now = sum(dict(one.costs)[one.chosen].mid * one.per_day for one in costed)
    sure = sum(
        one.sure_upgrade * dict(one.costs)[one.best].mid * one.per_day
        for one in costed
        if one.upgraded is not None
    )
    return sure > max(WORTH * now, LEAST_SAVED)


def _format_note(situation: Situation, choices: tuple[ModeChoice, ...]) -> list[str]:
    gain = daily_gain(choices)
    keeps = situation.settings.deletes.format_version == "Keep"
    if gain is None or not keeps or not _pays(choices):
        return []
    return [
        f"Format version {NEWEST} would save {seconds_text(gain)} CPU s a day by deletion vectors; "
        "spec.deletes.formatVersion: Auto upgrades the table, which cannot be undone."
    ]


def _equality_note(situation: Situation) -> list[str]:
    """What equality deletes cost readers: whether to write them is the writer's choice."""
    table, burden = situation.table, situation.expected.burden
    files = int(situation.given.deletes.equality.sum())
    hit = table.equality_deletes > 0
    if not hit.any():
        return []
    now = float(burden.seconds[hit].sum())
    converted = POSITION_SECONDS * float((burden.positions + burden.hidden)[hit].sum())
    by = sorted({
        one.engine for one in situation.given.operations.every
        if one.encoding is Encoding.EQUALITY and one.engine
    })  # fmt: skip
    writers = f", written by {', '.join(by)}" if by else ""
    count = "1 equality delete file" if files == 1 else f"{files:,} equality delete files"
    return [
        f"{count}{writers}: a reading of all rows spends {now:.2g} CPU s on them, on positions "
        f"{converted:.2g}. Whether to write them is the writer's choice; spec.deletes.mode "
        "does not change it."
    ]


def _join_note(situation: Situation) -> list[str]:
    """Which bucket counts of a source let MERGE join without a shuffle (section 4.4): one that the
    other is divisible by, of the same column."""
    merges = any(one.kind is Kind.MERGE for one in situation.given.operations.every)
    spec = situation.table.specs[situation.table.default_spec_id]
    buckets = [
        (situation.table.schema.name_of(field.source_id), int(found[1]))
        for field in spec.fields
        if (found := BUCKETS.fullmatch(field.transform))
    ]
    if not merges or not buckets:
        return []
    (column, count), *_ = buckets
    divisors = [str(n) for n in range(1, count + 1) if count % n == 0][-4:]
    return [
        f"MERGE joins without a shuffle if ON compares {column} and the source is bucketed by it "
        f"into a divisor or a multiple of {count} buckets: {', '.join(divisors)}, {2 * count}."
    ]
