"""Moving windows: what a plan rewrites is read by windows to come, and saves what it says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.replay.table import SimulatedTable, arriving, empty_table
from reconciler.advisor.advice import AdviceInput, Settings
from reconciler.advisor.decide import decide
from reconciler.queries.demanded import demands
from reconciler.queries.fragments import Fragment, workload_of_fragments
from reconciler.queries.moving_windows import with_movement
from reconciler.queries.predicate import And, Comparison, Ref
from reconciler.queries.read_cost import read_shape
from reconciler.queries.rewrite_cost import Rho
from reconciler.queries.shape import Workload
from reconciler.queries.table_view import table_view
from reconciler.replay.policies.ours import ours
from reconciler.replay.run import replay
from reconciler.table.schema import Field, Schema

HOUR, DAY = 3_600_000, 86_400_000
DEVICE, TIME, VALUE = 1, 2, 3
SCHEMA = Schema(
    1,
    (
        Field(DEVICE, "device", "long"),
        Field(TIME, "ts", "timestamp"),
        Field(VALUE, "value", "double"),
    ),
)
DAYS, ROWS, FILES, ROW_BYTES, DEVICES = 14, 16_000, 8, 24, 100
SINCE = And((Comparison(Ref(DEVICE), "=", 0), Comparison(Ref(TIME), ">=", 1)))
SETTINGS = Settings(
    target_bytes=ROW_BYTES * ROWS // FILES,
    row_group_bytes=ROW_BYTES * ROWS // FILES,
    open_bytes=2_000,
    now_ms=DAYS * DAY,
)
OLDEST = {  # of a window that begins now, in milliseconds before now
    "exact": (lambda at: at - DAY, DAY),
    "hour": (lambda at: at // HOUR * HOUR - DAY, DAY + HOUR),
    "day": (lambda at: at // DAY * DAY - DAY, DAY),
    "five days": (lambda at: at - 5 * DAY, 5 * DAY),
}


def sensors(random: np.random.Generator) -> SimulatedTable:
    """Daily files in order of arrival; devices are anywhere."""
    table = empty_table(SCHEMA)
    for day in range(DAYS):
        rows = {
            DEVICE: random.integers(0, DEVICES, ROWS),
            TIME: (np.sort(random.integers(0, DAY * 1000, ROWS)) + day * DAY * 1000),
            VALUE: random.random(ROWS),
        }
        table = table.append(rows, ROWS // FILES, (day + 1) * DAY, ROWS // FILES)
    return table


def asked(random: np.random.Generator, form: str, since: int, until: int, count: int) -> Workload:
    low, _ = OLDEST[form]
    events = np.sort(random.integers(since, until, count))
    return with_movement(
        workload_of_fragments(
            Fragment(
                "log", number, "u", SINCE, (int(random.integers(DEVICES)), int(low(at)) * 1000),
                (None, None), (DEVICE, TIME, VALUE), 1.0, int(at), "x",
            )
            for number, at in enumerate(events)
        ),
        SCHEMA,
        {},
    )  # fmt: skip


def cost(table: SimulatedTable, workload: Workload) -> float:
    view = table_view(
        table.file_table(), table.row_groups(), None, SETTINGS.row_group_bytes, SETTINGS.open_bytes
    )
    wanted = demands(workload, SCHEMA, SETTINGS.horizon_ms)
    return sum(float(d.weight @ read_shape(view, d).cost) for d in wanted)


@pytest.mark.parametrize("form", OLDEST)
def test_only_rows_of_windows_to_come_are_rewritten(form: str) -> None:
    random = np.random.default_rng(7)
    table = sensors(random)
    files = table.file_table()
    past = asked(random, form, 0, DAYS * DAY, 400)
    sample = table.sample(np.arange(len(files)), 256)
    advice = decide(AdviceInput(files, past, SETTINGS, table.row_groups(), sample))
    future = asked(random, form, DAYS * DAY, (DAYS + 7) * DAY, 200)
    before = cost(table, future)
    outside = rewritten = 0
    for item in advice.actions:
        for file in table.files:
            if file.path in item.action.inputs:
                age = DAYS * DAY - table.values[TIME][file.rows] // 1000
                rewritten += len(file.rows)
                outside += int((age > OLDEST[form][1]).sum())
        table = table.apply(item.action, SETTINGS.now_ms)
    claimed = sum(item.predicted.saving or 0 for item in advice.actions)
    assert rewritten > 0
    assert outside <= 0.1 * rewritten
    assert 0.7 * claimed <= before - cost(table, future) <= 1.4 * claimed
    assert claimed <= 1.1 * before


@pytest.mark.parametrize(("queries", "pays"), [(400, True), (150, False)])
def test_a_file_in_which_the_window_begins_is_rewritten_only_if_windows_still_read_enough_of_it(
    queries: int, pays: bool
) -> None:
    """A file is rewritten as a whole: half of its rows are in no window to come."""
    random, table = np.random.default_rng(7), empty_table(SCHEMA)
    for half in (0, *range(1, 2 * DAYS, 2)):  # the first and the last file are of half a day
        days = 0.5 if half in (0, 2 * DAYS - 1) else 1.0
        times = half * DAY // 2 + np.sort(random.integers(0, int(days * DAY), int(ROWS * days)))
        rows = {DEVICE: random.integers(0, DEVICES, len(times)), TIME: times * 1000,
                VALUE: random.random(len(times))}  # fmt: skip
        table = table.append(rows, ROWS, int(times[-1]), ROWS // FILES)
    settings = replace(SETTINGS, open_bytes=0)
    files = table.file_table()
    past = asked(random, "exact", 0, DAYS * DAY, queries)
    sample = table.sample(np.arange(len(files)), 512)
    advice = decide(AdviceInput(files, past, settings, table.row_groups(), sample))
    chosen = {path for item in advice.actions for path in item.action.inputs}
    newest = [file.path for file in table.files][-2:]
    assert chosen == set(newest if pays else newest[1:])


@pytest.mark.parametrize("queries", [40, 900])
def test_windows_to_come_are_spread_finely_over_the_horizon(queries: int) -> None:
    """Data that leaves the windows within hours is read until then."""
    past = asked(np.random.default_rng(3), "exact", 0, DAYS * DAY, queries)
    (demand,) = demands(past, SCHEMA, SETTINGS.horizon_ms)
    since = np.asarray(demand.literals[1])[demand.executions > 0] / 1000
    share = np.sort((since + DAY - past.until_ms) / SETTINGS.horizon_ms)
    assert 0.0 < share[0] < 0.02
    assert 0.98 < share[-1] < 1.0
    assert np.diff(share).max() < 0.03


@pytest.mark.parametrize("window_days", [1, 5])
def test_windows_that_move_while_data_arrives_rewrite_little(window_days):
    """A day of data a day, and 30 queries a day for the last days of one device: rows are rewritten
    once at most, and it pays."""
    days, rows = 20, 4_000
    random = np.random.default_rng(3)
    events = np.sort(random.integers(0, days * DAY, 30 * days))
    lows = [(int(random.integers(DEVICES)), int(at - window_days * DAY) * 1000) for at in events]
    log = with_movement(
        workload_of_fragments(
            Fragment(
                "log", number, "u", SINCE, literals, (None, None), (DEVICE, TIME, VALUE), 1.0,
                int(at), "x",
            )
            for number, (at, literals) in enumerate(zip(events, lows, strict=True))
        ),
        SCHEMA,
        {},
    )  # fmt: skip
    steps = []
    for day in range(days):
        times = np.sort(random.integers(0, DAY * 1000, rows)) + day * DAY * 1000
        data = {
            DEVICE: random.integers(0, DEVICES, rows), TIME: times, VALUE: random.random(rows)
        }  # fmt: skip
        asked_then = tuple(one.since(day * DAY, (day + 1) * DAY - 1) for one in log.shapes)
        steps.append(arriving(data, rows // 2, asked_then, (day + 1) * DAY))
    size = ROW_BYTES * rows // 2
    settings = replace(
        SETTINGS, target_bytes=size, row_group_bytes=size // 4, rho=Rho(4.0, "measured")
    )
    found = replay(empty_table(SCHEMA), steps, ours, settings)
    ingested = days * rows * ROW_BYTES
    assert found.rewritten.sum() / settings.rho.value <= 2.0 * ingested
    assert found.ratio <= 1.05
    if window_days == 5:
        assert found.rewritten.sum() > 0.0 and found.ratio < 0.6, "and reading gains by it"
