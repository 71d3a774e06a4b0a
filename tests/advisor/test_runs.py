"""How often a byte is rewritten while rows keep arriving."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from bench.replay.table import SimulatedTable, arriving, empty_table
from reconciler.advisor.advice import Advice
from reconciler.advisor.choose import keys
from reconciler.advisor.judge.candidate import may_pass, refusal
from reconciler.advisor.situation import situation_of
from reconciler.plan import reasons
from reconciler.plan.actions.rewrite import Cluster
from reconciler.plan.ordering import Lexicographic
from reconciler.queries.fragments import workload_of_fragments
from reconciler.queries.rewrite_cost import Rho
from reconciler.replay.policies.fixed import sort_everything
from reconciler.replay.policies.ours import ours
from reconciler.replay.run import Replay, replay
from reconciler.table.schema import SortColumn
from tests.advisor.worlds import (
    DATE,
    DAY,
    PART,
    ROW_BYTES,
    SCHEMA,
    SETTINGS,
    advise,
    arriving_rows,
    range_query,
    range_workload,
    workload,
)

ROWS = 400
SIZE = ROW_BYTES * ROWS
SMALL = replace(SETTINGS, target_bytes=SIZE, row_group_bytes=SIZE, open_bytes=SIZE // 32)


def _fed(queries: int, policy, days: int) -> Replay:
    random = np.random.default_rng(1)
    steps = []
    for day in range(days):
        lows = random.integers(0, 99_000, queries).tolist()
        asked = workload_of_fragments(
            range_query(1_000 * day + n, PART, low, low + 400, event_ms=day * DAY + n)
            for n, low in enumerate(lows)
        ).shapes
        rows = arriving_rows(random, ROWS, first=day * ROWS)
        steps.append(arriving(rows, ROWS, asked, day * DAY + DAY // 2))
    settings = replace(SMALL, rho=Rho(4.0, "measured"))
    return replay(empty_table(SCHEMA), steps, policy, settings)


@pytest.mark.parametrize(("queries", "days"), [(5, 32), (40, 16)])
def test_while_rows_arrive_a_byte_is_rewritten_twice_at_most_on_average(
    queries: int, days: int
) -> None:
    run, whole = _fed(queries, ours, days), _fed(queries, sort_everything(PART), days)
    assert run.rewritten.any()
    assert run.rewritten.sum() <= 2.0 * 4.0 * SIZE * days
    cost, least = (float(r.read.sum() + r.rewritten.sum()) for r in (run, whole))
    assert cost <= 1.4 * least
    assert run.ratio < 0.6


def _table(new: int, column: int = PART, old: int = 8) -> SimulatedTable:
    """`old` files that one plan sorted by the column, then `new` ones in order of arrival."""
    random = np.random.default_rng(0)
    table = empty_table(SCHEMA).append(arriving_rows(random, old * ROWS), ROWS, 0, ROWS)
    sort = Cluster(
        ordering=Lexicographic((SortColumn(column),)), target_bytes=SIZE, row_group_bytes=SIZE,
        inputs=tuple(sorted(file.path for file in table.files)),
    )  # fmt: skip
    table = table.apply(sort, 12 * DAY)
    if not new:
        return table
    rows = arriving_rows(random, new * ROWS, first=old * ROWS)
    return table.append(rows, ROWS, 13 * DAY, ROWS)


def _advised(table: SimulatedTable, queries: int = 200) -> Advice:
    asked = range_workload(np.random.default_rng(1), PART, queries, 400, 100_000)
    return advise(table, workload(asked), SMALL)


def _inputs(advice: Advice) -> Sequence[str]:
    return [path for item in advice.actions for path in item.action.inputs]


def test_a_sorted_run_waits_until_it_grows_and_new_files_are_sorted_beside_it() -> None:
    few = _advised(_table(new=2))
    assert not few.actions
    assert reasons.GROWS_TOO_LITTLE in {item.reason for item in few.rejected}
    beside = _inputs(_advised(_table(new=4)))
    assert len(beside) == 4
    assert not any(path.startswith("layout") for path in beside)
    assert len(_inputs(_advised(_table(new=60)))) == 68


def test_a_run_does_not_wait_if_it_pays_back_within_hours() -> None:
    assert len(_inputs(_advised(_table(new=2), queries=40_000))) == 10


def test_another_key_waits_for_no_growth() -> None:
    advice = _advised(_table(new=0, column=DATE))
    assert len(_inputs(advice)) == 8


def _new_files(table: SimulatedTable) -> Sequence[str]:
    return [file.path for file in table.files if not file.ours]


def test_new_files_are_sorted_for_what_they_save_however_much_else_is_read() -> None:
    """Queries that no order serves read the whole table: no saving is a large share of that."""
    narrow = range_workload(np.random.default_rng(1), PART, 100, 400, 100_000)
    whole = range_workload(np.random.default_rng(1), PART, 200, 100_000, 100_000)
    table = _table(new=4, old=60)
    found = advise(table, workload(narrow, whole), SMALL)
    assert _inputs(found) == _new_files(table)
    predicted = found.actions[0].predicted
    assert predicted.saving_low is not None and predicted.cost is not None
    assert predicted.saving_low > 2 * predicted.cost


def test_new_files_are_sorted_alone_where_ends_of_a_run_would_join_them() -> None:
    """The run is in the order of the present queries, but older than they are."""
    random = np.random.default_rng(1)
    before = range_workload(random, DATE, 100, 20, 1_000)
    asked = range_workload(random, PART, 120, 400, 100_000)
    after = [replace(one, event_ms=one.event_ms + 14 * DAY) for one in asked]
    table = _table(new=4, old=40)
    assert _inputs(advise(table, workload(before, after), SMALL)) == _new_files(table)


def test_files_of_too_little_reading_are_refused_by_what_they_could_save_at_most() -> None:
    asked = range_workload(np.random.default_rng(1), PART, 40, 400, 100_000)
    situation = situation_of(_table(new=0, column=DATE, old=100).given(workload(asked), SMALL))
    seen = set()
    for count in (1, 3, 5, 6, 8, 20, 100):
        rows, possible = np.arange(count), may_pass(situation, np.arange(count))
        found = keys.ranked(situation, rows, np.ones(1), [PART], lambda made: False)
        why = refusal(situation, found[0], 0.0)
        assert possible or why is not None
        seen.add((possible, why is None))
    assert {(False, False), (True, True)} <= seen
