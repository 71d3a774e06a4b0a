"""What is left of an action that was cut short, and when the last of what waits may run."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from reconciler.advisor.advice import HORIZON_MS, Rejected, Settings
from reconciler.format import utc
from reconciler.loop.decision_settings import quiet_partitions, quiet_period
from reconciler.loop.remaining import begun, left_of
from reconciler.loop.waiting import quiet_ends, ripens_ms, waiting
from reconciler.plan.actions.rewrite import BinPack
from reconciler.plan.actions.state import PARTLY, ActionState, Validity
from reconciler.plan.conflicts import Conflicts
from reconciler.plan.plan import DeleteState, PlannedAction, action_document
from reconciler.plan.prediction import Prediction
from reconciler.plan.reasons import BELOW_COST, QUIET_PERIOD, RECENTLY_WRITTEN
from reconciler.plan.sentence import sentence
from reconciler.table.observation import Observation, RecentWrite
from tests.cli.observations import lineitem
from tests.loop.test_step import policy
from tests.said import Said

MINUTE = 60_000
NOON = 1_763_640_000_000


def _paths(seen: Observation, partition: int) -> tuple[str, ...]:
    rows = np.flatnonzero(seen.files.partition == partition)
    return tuple(str(seen.files.path[row]) for row in rows)


def _held(seen: Observation, partition: int, reason: str = QUIET_PERIOD) -> Rejected:
    paths = _paths(seen, partition)
    return Rejected(
        sentence("bin-pack"), reason, sentence("why"), len(paths), 1 << 20, inputs=paths
    )


def _written(seen: Observation, partition: int, at_ms: int) -> RecentWrite:
    return RecentWrite(1, at_ms, "overwrite", (seen.files.partitions[partition],))


def test_what_waits_ends_a_quiet_period_after_the_last_change_of_its_partition() -> None:
    seen = lineitem(12, 3)
    writes = (
        _written(seen, 0, NOON),
        _written(seen, 1, NOON + 5 * MINUTE + 1),
        _written(seen, 0, NOON - MINUTE),
    )
    seen = replace(seen, recent_writes=writes)
    rules = Settings(quiet_ms=10 * MINUTE)
    turned = (_held(seen, 0), _held(seen, 2, BELOW_COST), _held(seen, 1))
    first, last = NOON + 10 * MINUTE, NOON + 15 * MINUTE + 1_000
    assert quiet_ends(turned, seen, rules) == [first, None, last]
    advice: Any = SimpleNamespace(rejected=turned, upkeep_due_ms=None)
    held = waiting(advice, seen, rules)
    assert held is not None
    assert (held.rewrites, held.bytes, held.first_ms, held.last_ms) == (2, 2 << 20, first, last)
    assert held.files == sum(len(_paths(seen, number)) for number in (0, 1))
    assert utc(first) in held.text() and utc(last) in held.text()
    assert (held.quiet_ms, held.conflicts, held.document()["conflicts"]) == (10 * MINUTE, 0, 0)
    nothing: Any = SimpleNamespace(rejected=turned[1:2], upkeep_due_ms=None)
    assert waiting(nothing, seen, rules) is None


def test_no_partition_is_quiet_in_a_period_of_no_length_though_a_clock_is_ahead() -> None:
    seen = lineitem(12, 3)
    seen = replace(seen, recent_writes=(_written(seen, 1, NOON + MINUTE),))
    quiet = {period: quiet_partitions(seen, period, NOON) for period in (0, 1_000)}
    assert quiet == {0: frozenset(), 1_000: frozenset({1})}


@pytest.mark.parametrize(
    ("declared", "conflicts", "found"),
    [
        ("0s", Conflicts(), (0, 0)),
        ("0s", Conflicts(data=2), (2 * MINUTE, 2)),
        ("2m", Conflicts(data=2), (2 * MINUTE, 0)),
        ("2m", Conflicts(data=1, rest=3), (4 * MINUTE, 3)),
        ("1h", Conflicts(data=9), (60 * MINUTE, 0)),
    ],
)
def test_conflicts_in_a_row_lengthen_a_quiet_period_that_is_shorter(
    declared: str, conflicts: Conflicts, found: tuple[int, int]
) -> None:
    spec = policy("t", layout={"files": {"quietPeriod": declared}}).spec
    assert quiet_period(spec, conflicts) == found


def test_what_waits_because_of_conflicts_says_how_many_and_until_when(said: Said) -> None:
    seen = lineitem(12, 3)
    seen = replace(seen, recent_writes=(_written(seen, 0, NOON),))
    rules = Settings(quiet_ms=4 * MINUTE, conflicts=3)
    advice: Any = SimpleNamespace(rejected=(_held(seen, 0),), upkeep_due_ms=None)
    held = waiting(advice, seen, rules)
    assert held is not None
    assert (held.document()["conflicts"], held.last_ms) == (3, NOON + 4 * MINUTE)
    assert ripens_ms(advice, seen, rules) == NOON + 4 * MINUTE
    said(held.text())


def test_time_alone_ends_quiet_periods_and_the_hysteresis_of_what_we_wrote() -> None:
    seen = lineitem(12, 3)
    seen = replace(seen, recent_writes=(_written(seen, 0, NOON),))
    rules = Settings(quiet_ms=10 * MINUTE)

    def ripens(*turned: Rejected) -> int | None:
        advice: Any = SimpleNamespace(rejected=turned, upkeep_due_ms=None)
        return ripens_ms(advice, seen, rules)

    ours = _held(seen, 1, RECENTLY_WRITTEN)
    written = int(seen.files.added_ms[seen.files.partition == 1].max())
    aged = -(-(written + HORIZON_MS) // 1_000) * 1_000
    assert ripens() is None and ripens(_held(seen, 2, BELOW_COST)) is None
    assert ripens(_held(seen, 0)) == NOON + 10 * MINUTE
    assert ripens(ours) == aged
    assert ripens(ours, _held(seen, 0)) == min(aged, NOON + 10 * MINUTE)


def test_an_action_cut_short_counts_by_its_live_files() -> None:
    seen = lineitem(12, 3)
    live = _paths(seen, 0)
    gone = tuple(f"{path}.gone" for path in live)
    total = 2 * int(seen.files.bytes[seen.files.partition == 0].sum())
    planned = Prediction(
        label="bin-pack", files_in=2 * len(live), bytes_in=total, files_out=4, groups=2,
        cpu_millis=1_000, millis=500, saving=-1, cost=80,
    )  # fmt: skip
    action = BinPack(inputs=tuple(sorted(live + gone)))
    item = PlannedAction("a01", action, DeleteState(0, 0, 0), planned)
    state = ActionState(Validity.PENDING, live, PARTLY)
    assert begun({"a01": state})
    assert not begun({"a01": ActionState(Validity.PENDING, action.inputs)})
    proposal: Any = SimpleNamespace(observation=seen)
    left = action_document(left_of(proposal, item, state))
    assert left["id"] == "a01" and left["inputs"] == sorted(live)
    assert left["predicted"] == {
        "label": f"bin-pack ({len(live)} of its {2 * len(live)} files left)",
        "filesIn": len(live), "bytesIn": total // 2, "filesOut": 2, "groups": 1,
        "cpuMillis": 500, "millis": 250, "saving": -1, "cost": 40,
    }  # fmt: skip
    assert item.predicted == planned
