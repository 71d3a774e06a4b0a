"""What is not done tells why, and the reason is the one that explains it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reconciler.advisor.advice import Advice, Rejected
from reconciler.plan import reasons
from reconciler.plan.ordering import Lexicographic
from reconciler.table.schema import SortColumn
from tests.advisor.worlds import (
    DATE,
    DAY,
    KEY,
    PART,
    SETTINGS,
    advise,
    arrived,
    range_query,
    range_workload,
    workload,
)

UNTIL = 2_000
SETTLED = replace(SETTINGS, now_ms=UNTIL * DAY)
QUIET = frozenset({0})


def _table(seed: int = 0, **kwargs):
    return arrived(np.random.default_rng(seed), rows=60_000, **kwargs)


def _gone_by(weight: float):
    """Queries of a window that has moved past what the table holds."""
    random = np.random.default_rng(0)
    days = random.integers(1_000, 1_100, 60)
    return [
        range_query(i, DATE, int(day), int(day) + 7, weight=weight,
                    event_ms=(UNTIL - 60 + i) * DAY, moving=(3, 10))
        for i, day in enumerate(days)
    ]  # fmt: skip


def _rare(weight: float):
    """Queries without a window, that could be spared much and do not pay for it."""
    found = range_workload(np.random.default_rng(1), PART, 60, 1_000, 100_000, weight=weight)
    return [replace(f, event_ms=(UNTIL - 60 + f.position) * DAY, position=100 + f.position)
            for f in found]  # fmt: skip


def _of(advice: Advice, reason: str) -> list[Rejected]:
    return [item for item in advice.rejected if item.reason == reason]


@pytest.mark.parametrize(("moving", "fixed", "moved"), [(20.0, 0.01, True), (0.01, 0.05, False)])
def test_a_window_that_moved_explains_only_what_it_would_have_saved(moving, fixed, moved):
    advice = advise(_table(jitter=400), workload(_gone_by(moving), _rare(fixed)), SETTLED)
    assert advice.actions == ()
    assert bool(_of(advice, reasons.WINDOW_MOVED)) is moved
    assert _of(advice, reasons.BELOW_COST) or moved


@pytest.mark.parametrize("short", [1.05, 1.5, 1.9])
def test_what_needs_twice_the_saving_says_so_beside_the_number(short, said):
    table = _table()
    work = workload(range_workload(np.random.default_rng(0), PART, 40, 1_000, 100_000))
    (scored,) = advise(table, work).actions
    value = SETTINGS.rho.value * scored.predicted.saving_low / scored.predicted.cost / short
    costly = replace(SETTINGS, rho=replace(SETTINGS.rho, value=value))
    written = tuple(replace(f, ours=True, added_ms=SETTINGS.now_ms) for f in table.files)
    recent = _of(advise(replace(table, files=written), work, costly), reasons.RECENTLY_WRITTEN)
    assert recent
    (form,) = {item.why.form for item in recent}
    said("N".join(form))


@pytest.mark.parametrize(
    ("saving", "needed", "numbers"),
    [(0.4, 1.0, ("0.4",)), (0.98, 1.0, ("1.0", "1")), (1.5, 2.0, ("1.5", "2"))],
)
def test_a_saving_that_is_short_shows_of_what(saving, needed, numbers, said):
    short = reasons.short_of(saving, 1.0, needed)
    assert short.numbers == numbers
    said(short)


def test_a_saving_too_uncertain_to_count_on_is_not_called_a_loss(said):
    torn = reasons.torn(-1.4, 4.5, 1.0)
    assert torn.numbers == ("4.5", "1.4")
    said(torn)


@pytest.mark.parametrize(
    ("table", "work", "settings"),
    [
        (_table(), range_workload(np.random.default_rng(0), PART, 60, 1_000, 100_000, weight=5),
         SETTINGS),
        (_table(rows_per_file=200), [], SETTINGS),
        (_table(jitter=400), [],
         replace(SETTINGS, mode="Declared", ordering=Lexicographic((SortColumn(DATE),)))),
    ],
)  # fmt: skip
def test_the_quiet_period_names_just_what_would_be_done_without_it(table, work, settings):
    free = advise(table, workload(work), settings)
    held = advise(table, workload(work), replace(settings, quiet_partitions=QUIET))
    assert held.actions == ()
    waits = _of(held, reasons.QUIET_PERIOD)
    assert [item.inputs for item in waits] == [item.action.inputs for item in free.actions]
    done = free.actions[0].predicted.label
    assert done and str(waits[0].what).startswith(done)
    assert f", {waits[0].files} files" in str(waits[0].what)
    assert not _of(held, reasons.WELL_CLUSTERED)


def test_a_table_with_nothing_to_do_waits_for_no_quiet_period():
    work = workload(range_workload(np.random.default_rng(0), KEY, 80, 30_000, 60_000, weight=20))
    advice = advise(_table(jitter=1), work, replace(SETTINGS, quiet_partitions=QUIET))
    assert advice.actions == ()
    assert not _of(advice, reasons.QUIET_PERIOD)
    assert _of(advice, reasons.WELL_CLUSTERED)


def test_files_that_may_be_rewritten_are_sketched_before_those_that_wait():
    work = workload(range_workload(np.random.default_rng(0), PART, 60, 1_000, 100_000, weight=5))
    waiting = advise(_table(), work, replace(SETTINGS, quiet_partitions=QUIET), rows_per_file=0)
    assert len(waiting.wanted_sketches)
    assert reasons.NO_SAMPLE not in {item.reason for item in waiting.rejected}
