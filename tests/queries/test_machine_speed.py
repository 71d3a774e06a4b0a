"""What the ledger says of the machine, and how sure that is."""

from __future__ import annotations

import math

import pytest

from reconciler.queries.machine_speed import UNKNOWN, UNKNOWN_SPEED, Speed, speed_of
from reconciler.queries.rewrite_cost import (
    RunTimes,
    ThroughputSample,
    modelled_cpu,
    throughput_from,
)


def width(speed: Speed) -> float:
    return math.log(speed.high / speed.low)


def test_without_measurements_a_machine_may_be_twice_as_fast_or_as_slow() -> None:
    assert speed_of([], [], []) == speed_of([math.nan, 0.0], [], []) == UNKNOWN_SPEED
    assert UNKNOWN_SPEED.ends == (1 / UNKNOWN, UNKNOWN)
    assert UNKNOWN_SPEED.label == "model"


def test_the_range_narrows_with_the_evidence_and_its_spread_widens_it() -> None:
    slow = 2.0
    ladder = [
        UNKNOWN_SPEED,
        speed_of([], [], [slow]),
        speed_of([], [slow], []),
        speed_of([slow], [], []),
        speed_of([slow] * 5, [], []),
        speed_of([slow] * 5, [slow] * 5, []),
    ]
    widths = [width(each) for each in ladder]
    assert widths == sorted(widths, reverse=True)
    assert len(set(widths)) == len(widths) - 1  # a run elsewhere says as much as a sort here
    scales = [each.scale for each in ladder]
    assert scales == sorted(scales) and scales[-1] < 2.0
    scattered = speed_of([0.5, 1.0, 2.0, 4.0, 8.0], [], [])
    assert width(scattered) > width(ladder[4])
    for each in ladder:
        assert each.low < each.scale < each.high


def test_some_doubt_stays_however_much_was_measured() -> None:
    """Rewrites are not statements: what they say of these has an end."""
    few, many = speed_of([1.0] * 20, [], []), speed_of([1.0] * 20_000, [], [])
    assert few.scale == many.scale == pytest.approx(1.0)
    assert width(few) == pytest.approx(width(many), rel=0.05)
    assert many.high > 1.3


@pytest.mark.parametrize("kind", ["pack", "sort"])
def test_the_ledger_of_the_table_comes_before_runs_on_others(kind: str) -> None:
    model = modelled_cpu(kind, 10**8, 20, True)
    own = [ThroughputSample(kind, 10**8, 3.0 * model, 1.0, 20)]
    runs = [RunTimes(None, 1.0, 1, tasks=1.0, cpu=1.0, model=2.0)]
    mine, theirs = throughput_from(own, runs).speed, throughput_from([], runs).speed
    assert (mine.label, mine.actions, mine.runs) == ("measured", 1, 0)
    assert (theirs.label, theirs.actions, theirs.runs) == ("other tables", 0, 1)
    assert theirs.scale < 1.0 < mine.scale < 3.0


@pytest.mark.parametrize("kind", ["pack", "sort"])
def test_small_actions_and_short_runs_say_nothing_of_the_machine(kind: str) -> None:
    """Their CPU is mostly that of their start: a tenth of it is no fast machine."""
    model = modelled_cpu(kind, 50_000, 4, True)
    small = [ThroughputSample(kind, 50_000, model / 10, 1.0, 4)] * 20
    short = [RunTimes(None, 1.0, 1, tasks=0.1, cpu=0.1, model=0.9)]
    found = throughput_from(small, short)
    assert found.label == "measured"
    assert found.speed == UNKNOWN_SPEED
