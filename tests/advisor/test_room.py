"""What unattended plans may risk, and that a table never loses much more than it earned."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.replay.table import arriving
from reconciler.advisor.advice import EARLY_SHARE, AdviceInput, Debt, Settings
from reconciler.advisor.choose.arrival_order import WHY
from reconciler.advisor.choose.recluster import Proposals, recluster
from reconciler.advisor.decide import decide
from reconciler.advisor.judge.candidate import (
    debt_room,
    planned_layout,
    readings_of,
    weigh,
    what_if,
)
from reconciler.advisor.judge.room import (
    admitted,
    possible_loss,
    promised,
    reserve_is_due,
    room_left,
)
from reconciler.advisor.simulate.pool import build_pool
from reconciler.advisor.situation import Situation, situation_of
from reconciler.plan import reasons
from reconciler.plan.actions.rewrite import Cluster, Recluster
from reconciler.plan.ordering import Lexicographic
from reconciler.queries.fragments import workload_of_fragments
from reconciler.queries.predicate import fields_of
from reconciler.queries.shape import Workload
from reconciler.replay.policies.ours import ours
from reconciler.replay.run import Replay, Step, replay
from reconciler.table.schema import SortColumn
from tests.advisor.worlds import (
    DATE,
    DAY,
    KEY,
    PART,
    ROW_BYTES,
    SETTINGS,
    advise,
    arrived,
    range_query,
    range_workload,
    workload,
)

UNATTENDED = replace(SETTINGS, early_share=EARLY_SHARE)
FILES, ROWS = 12, 500


def _table(rows: int = 40_000, per_file: int = 2_000):
    return arrived(np.random.default_rng(0), rows=rows, rows_per_file=per_file)


def _asked(count: int) -> Workload:
    return workload(range_workload(np.random.default_rng(1), PART, count, 1_000, 100_000))


def _situation(work: Workload, settings: Settings = UNATTENDED) -> Situation:
    table = _table()
    files = table.file_table()
    sample = table.sample(np.arange(len(files)), 256)
    return situation_of(AdviceInput(files, work, settings, table.row_groups(), sample))


def _earning(situation: Situation) -> float:
    return sum(asked.weight * asked.now for asked in situation.expected.groups)


def _sorted_by(situation: Situation, column: int):
    rows = np.arange(len(situation.table))
    layout = planned_layout(situation, rows, Lexicographic((SortColumn(column),)))
    outcome = what_if(situation, rows, layout, build_pool(situation.facts.view, [PART, DATE, KEY]))
    return weigh(situation, rows, layout, readings_of(situation, rows), outcome)


def test_an_unattended_plan_rewrites_no_more_than_the_table_earned() -> None:
    table, work = _table(), _asked(60)
    (whole,) = advise(table, work).actions
    (part,) = advise(table, work, UNATTENDED).actions
    assert 0 < len(part.action.inputs) < len(whole.action.inputs)
    assert part.predicted.cost <= EARLY_SHARE * _earning(_situation(work)) < whole.predicted.cost
    (later,) = advise(table, _asked(600), UNATTENDED).actions
    assert len(later.action.inputs) > len(part.action.inputs)


def test_where_no_prefix_fits_the_room_the_reason_is_that_it_is_not_earned() -> None:
    spent = replace(UNATTENDED, debt=Debt(spent=EARLY_SHARE * _earning(_situation(_asked(60)))))
    advice = advise(_table(), _asked(60), spent)
    assert not advice.actions
    (item,) = [item for item in advice.rejected if item.reason == reasons.NOT_EARNED]
    assert item.saving_low > item.cost


def test_a_better_layout_promises_no_less_than_the_table_that_nobody_rewrote() -> None:
    """The promise is a share of what doing nothing would read, also of what it would in a year."""
    work, table, size = _asked(200), _table(), ROW_BYTES * 2_000
    sort = Cluster(
        ordering=Lexicographic((SortColumn(PART),)), target_bytes=size, row_group_bytes=size,
        inputs=tuple(sorted(file.path for file in table.files)),
    )  # fmt: skip
    sorted_by_part = table.apply(sort, DAY)
    known = replace(UNATTENDED, replaced=(table.file_table(),))
    given = sorted_by_part.given(work, known)
    before, after = _situation(work), situation_of(given)
    assert after.expected.yearly < 0.2 * before.expected.yearly
    assert promised(after) == pytest.approx(promised(before))


def test_what_the_plan_has_chosen_before_leaves_less_room() -> None:
    """Deletes that the same plan applies, say, have used a part of it, or all."""
    situation = _situation(_asked(60))
    alone = sum(one.cost for one in recluster(situation).candidates)
    room = room_left(situation, 0.0)
    assert 0.0 < alone <= room

    def after(cost: float) -> Proposals:
        return recluster(situation.after(replace(situation.spent, cost=cost)))

    for part in (0.25, 0.5):
        assert sum(one.cost for one in after(part * room).candidates) <= (1.0 - part) * room
    used_up = after(room)
    assert not used_up.candidates
    assert reasons.NOT_EARNED in {one.reason for one in used_up.rejected}


def _with_debt(situation: Situation, debt: Debt) -> Situation:
    given = replace(situation.given, settings=replace(situation.settings, debt=debt))
    return replace(situation, given=given)


def _with_changes(situation: Situation, changes: int) -> Situation:
    outlook = replace(situation.expected.outlook, changes=changes)
    return replace(situation, expected=replace(situation.expected, outlook=outlook))


def test_the_possible_loss_is_the_cost_and_what_queries_in_file_order_lose() -> None:
    situation = _situation(_asked(200))
    guarded = [
        fields_of(a.guard.predicate) for a in situation.expected.groups if a.guard is not None
    ]
    assert set().union(*guarded) == {KEY, DATE}
    scattering, keeping = (
        possible_loss(situation, _sorted_by(situation, column)) for column in (PART, KEY)
    )
    assert keeping.exposure < 0.2 * scattering.exposure
    assert scattering.total == scattering.cost + scattering.exposure
    a_day = _earning(situation) / 10.0  # of ten days, in which every file is read
    until_seen = scattering.exposure - scattering.cost  # putting back costs the rewrite once more
    assert a_day < until_seen < 1.5 * a_day  # their condition's column is read as well
    assert scattering.standing == scattering.spare == 0.0  # nobody has rewritten a file yet


def _laid_out(work: Workload, column: int, count: int) -> Situation:
    """The table after its first `count` files were sorted by the column."""
    table, size = _table(), ROW_BYTES * 2_000
    action = Cluster(
        ordering=Lexicographic((SortColumn(column),)), target_bytes=size, row_group_bytes=size,
        inputs=tuple(sorted(file.path for file in table.files[:count])),
    )  # fmt: skip
    table = table.apply(action, DAY)
    files = table.file_table()
    sample = table.sample(np.arange(len(files)), 256)
    return situation_of(AdviceInput(files, work, UNATTENDED, table.row_groups(), sample))


def _in_one_file(column: int, groups: int, **known: object) -> Situation:
    """A table of twelve files, sorted into one by the column. known: of `look`'s input."""
    table = arrived(np.random.default_rng(0), rows=FILES * ROWS, rows_per_file=ROWS)
    size = ROW_BYTES * ROWS * FILES
    action = Cluster(
        ordering=Lexicographic((SortColumn(column),)), target_bytes=size,
        row_group_bytes=size // groups, inputs=tuple(sorted(file.path for file in table.files)),
    )  # fmt: skip
    before, table = table.file_table(), table.apply(action, DAY)
    asked = range_workload(np.random.default_rng(1), KEY, 200, 60, FILES * ROWS)
    settings = replace(
        UNATTENDED, replaced=(before,), debt=Debt(spent=1e9), target_bytes=size // FILES,
        row_group_bytes=size // FILES, leads=known.pop("leads", {}),
    )  # fmt: skip
    footers = table.row_groups() if known.pop("footers", True) else None
    files, sample = table.file_table(), table.sample([0], 1_024)
    if plan := known.pop("plan", ""):
        files = replace(files, path=np.array([f"data/layout-{plan}-1/a.parquet"], dtype=object))
    return situation_of(AdviceInput(files, workload(asked), settings, footers, sample))


@pytest.mark.parametrize(
    ("column", "known", "displaced"),
    [
        (PART, {}, True),
        (KEY, {}, False),
        (PART, {"footers": False}, True),
        (KEY, {"footers": False}, True),  # no ledger: nothing shows the order
        (PART, {"footers": False, "plan": "p-1", "leads": {"p-1": frozenset({PART})}}, True),
        (KEY, {"footers": False, "plan": "p-1", "leads": {"p-1": frozenset({KEY})}}, False),
        (KEY, {"footers": False, "plan": "p-1", "leads": {"p-1": frozenset({None, KEY})}}, True),
    ],
)
def test_a_file_that_overlaps_no_other_is_displaced_by_its_own_row_groups(
    column: int, known: dict[str, object], displaced: bool
) -> None:
    situation = _in_one_file(column, FILES, **dict(known))
    assert situation.expected.untouched is not None
    assert situation.expected.untouched.natural[0] == KEY
    assert situation.expected.untouched.displaced.tolist() == [displaced]
    if known.get("footers", True):
        assert reserve_is_due(situation) == displaced


def test_one_file_of_another_order_is_put_back() -> None:
    chosen = decide(_in_one_file(PART, FILES).given).actions
    assert [item.action.ordering for item in chosen] == [Lexicographic((SortColumn(KEY),))]


def _rewritten(situation: Situation, files: np.ndarray, column: int):
    rows = np.flatnonzero(files)
    layout = planned_layout(situation, rows, Lexicographic((SortColumn(column),)))
    outcome = what_if(situation, rows, layout, build_pool(situation.part(rows), [PART, DATE, KEY]))
    return weigh(situation, rows, layout, readings_of(situation, rows), outcome)


def test_what_one_rewrite_after_the_other_may_lose_adds_up() -> None:
    untouched, half = _situation(_asked(200)), _laid_out(_asked(200), PART, 10)
    first = possible_loss(untouched, _rewritten(untouched, np.arange(20) < 10, PART))
    second = possible_loss(half, _rewritten(half, ~half.table.layout_written, PART))
    assert first.standing == 0.0
    assert second.standing == pytest.approx(first.exposure, rel=0.2)
    assert second.exposure == pytest.approx(2.0 * first.exposure, rel=0.2)
    assert not admitted(second, room=1.1 * first.total)


def test_putting_back_to_the_order_of_arrival_needs_no_room() -> None:
    asked_again = workload(
        range_workload(np.random.default_rng(1), PART, 200, 1_000, 100_000),
        range_workload(np.random.default_rng(2), KEY, 20, 400, 40_000, start=500),
    )
    situation = _with_debt(_laid_out(asked_again, PART, 16), Debt(realised=1e9))
    back = possible_loss(situation, _rewritten(situation, situation.table.layout_written, KEY))
    assert back.exposure < 0.4 * back.standing
    assert admitted(back, room=0.0)
    untouched = _situation(_asked(200))
    assert not admitted(possible_loss(untouched, _sorted_by(untouched, PART)), room=0.0)
    assert not admitted(back, room=0.0, spent=back.spare)


def test_where_losses_have_used_up_the_reserve_only_the_cost_of_putting_back_is_left() -> None:
    situation = _with_debt(_laid_out(_asked(200), PART, 16), Debt(realised=1e9))
    again = _rewritten(situation, situation.table.layout_written, KEY)
    assert possible_loss(situation, again).spare == possible_loss(situation, again).standing
    found = possible_loss(_with_debt(situation, Debt(spent=1e9)), again)
    assert found.spare == pytest.approx(again.cost)
    assert found.spare < found.standing


def test_the_room_grows_with_reading_and_savings_and_shrinks_with_cost_and_changes() -> None:
    situation = _situation(_asked(200))
    first = room_left(situation, 0.0)
    assert first == pytest.approx(EARLY_SHARE * _earning(situation))
    assert room_left(situation, first) == 0.0
    with_debt = room_left(_with_debt(situation, Debt(realised=2e8, spent=4e5)), 0.0)
    assert with_debt == pytest.approx(EARLY_SHARE * 2e8 + 2e8 - 4e5)  # more than queries show
    restless = _with_changes(situation, 3)
    assert room_left(restless, 0.0) == pytest.approx(first / 4)
    wild = _with_changes(situation, 99)
    assert room_left(wild, 0.0) == pytest.approx(0.02 * _earning(situation))
    approved = replace(situation.settings, early_share=None)
    free = replace(situation, given=replace(situation.given, settings=approved))
    assert room_left(free, 0.0) == float("inf")


def test_losses_of_past_rewrites_shrink_the_room_and_are_never_forgiven() -> None:
    situation = _situation(_asked(200))
    lost = _with_debt(situation, Debt(spent=1e5, realised=-3e5))
    assert room_left(situation, 0.0) - room_left(lost, 0.0) == pytest.approx(4e5)


def _with_replaced(situation: Situation, count: int) -> Situation:
    """The same, with the files known that were replaced by those of `_laid_out`."""
    before = _table().file_table().take(np.arange(count))
    chosen = replace(situation.settings, replaced=(before,))
    return situation_of(replace(situation.given, settings=chosen))


def test_what_nobody_rewrote_is_known_from_the_files_that_were_replaced() -> None:
    by_keys = workload(range_workload(np.random.default_rng(1), KEY, 60, 400, 40_000))
    now, before = _laid_out(by_keys, PART, 16), _situation(by_keys)
    known = _with_replaced(now, 16)
    asked = sum(one.weight * one.untouched for one in known.expected.groups)
    assert asked == pytest.approx(_earning(before))
    assert promised(known) == pytest.approx(EARLY_SHARE * asked)
    assert known.expected.untouched is not None
    assert known.expected.untouched.natural == (KEY, DATE)
    short = _with_replaced(now, 15)  # what is not known whole is estimated
    assert short.expected.untouched is not None
    assert short.expected.untouched.replaced == ()


def _put_back(debt: Debt, column: int) -> list[int]:
    """Numbers of files that a plan turns back to the order of arrival."""
    work = workload(range_workload(np.random.default_rng(1), column, 60, 400, 40_000))
    situation = _with_replaced(_laid_out(work, PART, 16), 16)
    return [
        len(item.action.inputs)
        for item in decide(_with_debt(situation, debt).given).actions
        if isinstance(item.action, Recluster)
        and item.action.ordering.key == (SortColumn(KEY),)
        and item.predicted.reason == WHY
    ]


def test_files_are_put_back_when_no_more_loss_is_admitted_and_only_then() -> None:
    assert _put_back(Debt(spent=1e7), KEY) == [16]
    assert _put_back(Debt(realised=1e9), KEY) == []
    assert _put_back(Debt(spent=1e7), PART) == []  # these queries gain by the order of parts


def test_past_queries_do_not_get_dearer_because_files_were_rewritten_for_others() -> None:
    asked_of_keys = workload(range_workload(np.random.default_rng(1), KEY, 200, 400, 40_000))
    before = room_left(_situation(asked_of_keys), 0.0)
    after = room_left(_laid_out(asked_of_keys, PART, 16), 0.0)
    assert after < 1.5 * before


def _days(columns: list[int], weight: float = 1.0, each: int = 16) -> list[Step]:
    random = np.random.default_rng(2)
    steps = []
    for day, column in enumerate(columns):
        domain = {PART: 100_000, KEY: FILES * ROWS, DATE: 1_000}[column]
        asked = workload_of_fragments(
            range_query(
                100 * day + n,
                column,
                low,
                low + domain // 100,
                event_ms=day * DAY + n,
                weight=weight,
            )
            for n, low in enumerate(random.integers(0, domain - domain // 100, each).tolist())
        ).shapes
        steps.append(arriving(None, 0, asked, day * DAY + DAY // 2))
    return steps


def _played(columns: list[int], weight: float = 1.0) -> Replay:
    size = ROW_BYTES * ROWS
    chosen = replace(
        UNATTENDED, target_bytes=size, row_group_bytes=size, open_bytes=size // 32, now_ms=0
    )
    return replay(_table(FILES * ROWS, ROWS), _days(columns, weight), ours, chosen)


def test_betrayed_by_its_queries_a_table_has_lost_little_and_follows_them_within_one_import() -> (
    None
):
    run = _played([PART] * 14 + [KEY] * 2 + [PART] * 3)
    assert run.rewritten[:14].any()
    so_far = np.cumsum(run.read + run.rewritten) / np.cumsum(run.untouched)
    assert so_far[4:].max() <= 1.10
    served = run.read[13] / run.untouched[13]
    assert served < 0.6
    assert run.read[17] / run.untouched[17] < 1.25 * served  # the import of day 16 showed them


def test_queries_that_change_every_day_cost_no_more_than_the_promise_on_the_way() -> None:
    run = _played([PART, KEY] * 7)
    so_far = np.cumsum(run.read + run.rewritten) / np.cumsum(run.untouched)
    assert so_far[3:].max() <= 1.10


def test_rare_queries_that_go_to_another_column_cost_no_more_than_the_promise() -> None:
    run = _played([PART] * 20 + [KEY] * 12, weight=0.2)
    assert run.rewritten.any()
    so_far = np.cumsum(run.read + run.rewritten) / np.cumsum(run.untouched)
    assert so_far[3:].max() <= 1.10


def test_a_burst_of_queries_does_not_cost_a_plan_what_the_mean_rate_allows() -> None:
    """Files are chosen within the limit by which the candidate is judged: otherwise all of them are
    refused together, and half of them is what is tried next."""
    plain = replace(SETTINGS, early_share=np.inf)
    calm = _situation(_asked(60), plain)
    (whole,) = recluster(calm).candidates
    yearly = 0.75 * whole.cost / plain.debt_share
    expected = replace(calm.expected, yearly=4.0 * yearly, yearly_mean=yearly)
    burst = replace(calm, expected=expected)
    found = recluster(burst)
    (part,) = found.candidates
    assert 0.7 * whole.cost < part.cost <= debt_room(burst)
    assert [one.reason for one in found.rejected] == [reasons.DEBT]
