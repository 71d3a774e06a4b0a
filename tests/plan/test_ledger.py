"""What budgets are charged: every byte once, unknown work in full."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.plan.execution import (
    COMMITTED,
    CONFLICT,
    ExecutionResult,
    Outcome,
    attempt_started_ms,
)
from reconciler.plan.ledger import (
    LONGEST_RUN,
    LedgerEntry,
    ReadCheck,
    Reservation,
    charged,
    chosen_sizes,
    cpu_calibration,
    throughput,
    times_of,
    trust,
    written_layouts,
)
from reconciler.plan.prediction import Prediction
from reconciler.plan.run_ids import begun_ms, run_reservation
from reconciler.queries.rewrite_cost import Rows, RunTimes, Throughput, modelled_cpu
from tests.examples import examples
from tests.said import Said

PREDICTED = Prediction(kind="Recluster", policy="team/facts", bytes_in=1_000, cpu_millis=50_000)


def entry(began_ms: int, size: int, cpu: float = 0.0, table: str = "t") -> LedgerEntry:
    attempt = f"p-1-{began_ms * 1000:x}-7"
    outcome = Outcome(attempt, 1, "a01", COMMITTED, 1, size, 0, 0, 1, 1, cpu, 1.0)
    return LedgerEntry(table, "p-1", began_ms + 5, outcome, PREDICTED)


def reserved(at_ms: int, size: int = 1_000, **other: Any) -> Reservation:
    return replace(
        Reservation(f"r{at_ms}", "t", "p-1", "team/facts", size, size / 20, at_ms), **other
    )


def size_of(entries: list[LedgerEntry], held: list[Reservation], besides: str = "") -> int:
    return sum(item.spent.rewrite_bytes for item in charged(entries, held, besides))


def test_an_open_reservation_counts_in_full_and_a_settled_one_as_its_outcomes():
    assert size_of([], [reserved(10)]) == 1_000
    assert size_of([entry(20, 300)], [reserved(10)]) == 1_000
    assert size_of([entry(20, 300)], [reserved(10, settled=True)]) == 300
    assert size_of([entry(20, 1_500)], [reserved(10)]) == 1_500


def test_work_is_set_against_the_reservation_it_ran_under_only():
    killed, resumed = reserved(10), reserved(100)
    assert size_of([], [killed, resumed]) == 2_000
    assert size_of([entry(120, 400)], [killed, resumed]) == 2_000
    assert size_of([entry(120, 400)], [killed, replace(resumed, settled=True)]) == 1_400
    # The killed attempt's own commit, found out later by the resumed one.
    found_out = replace(entry(20, 600), at_ms=130)
    assert size_of([found_out, entry(120, 400)], [killed, replace(resumed, settled=True)]) == 1_400
    assert size_of([entry(20, 400, table="other")], [killed]) == 1_400


def test_a_reservation_that_is_being_decided_on_does_not_count_against_itself():
    assert size_of([], [reserved(10), reserved(20)], besides="r20") == 1_000


def test_each_attempt_is_charged_to_the_policy_that_reserved_for_it():
    """A plan that one policy began, another one finished: no budget of theirs is spared."""
    held = [reserved(10, settled=True), reserved(30, policy="team/next", settled=True)]
    found = charged([entry(20, 300), entry(40, 500)], held)
    spent = {item.policy: item.spent.rewrite_bytes for item in found}
    assert spent == {"team/facts": 300, "team/next": 500}


def test_an_open_reservation_counts_from_when_it_was_made():
    (only,) = charged([], [reserved(86_400_000)])
    assert only.spent.at.isoformat() == "1970-01-02T00:00:00+00:00"
    assert (only.policy, only.table_uuid, only.plan_id) == ("team/facts", "t", "p-1")


@pytest.mark.parametrize("hours", [0, 2, 24, 30])
def test_an_open_reservation_counts_as_of_now_while_its_run_may_live(hours: int) -> None:
    """A window that has moved on must not forget a job that still runs in it."""
    made, hour = 86_400_000, 3_600_000
    (only,) = charged([], [reserved(made)])
    now = dt.datetime.fromtimestamp((made + hours * hour) / 1000, dt.UTC)
    latest = dt.datetime.fromtimestamp(made / 1000, dt.UTC) + LONGEST_RUN
    assert only.at(now).at == min(now, latest)
    (ended,) = charged([], [reserved(made, ended_ms=made + hour)])
    assert ended.at(now).at <= dt.datetime.fromtimestamp((made + hour) / 1000, dt.UTC)
    (done,) = charged([entry(20, 500)], [reserved(10, settled=True)])
    assert (only.spent.held, done.spent.held) == (True, False)
    assert done.at(now) == done.spent


def test_cpu_that_no_outcome_reports_was_used_until_the_settlement() -> None:
    (used,) = charged([], [reserved(10, settled=True, used_cpu_seconds=9.0, ended_ms=7_000)])
    assert used.spent.cpu_seconds == 9.0 and used.spent.at.timestamp() == 7.0


@pytest.mark.parametrize(
    ("number", "expected"),
    [("p-1-2-3e8", 1), ("p-1-2-", None), ("p-1-22-3e8", None), ("r1", None), ("3e8", None)],
)
def test_a_reservation_names_its_run(number: str, expected: int | None) -> None:
    assert begun_ms(number, "p-1", 2) == expected
    assert begun_ms(run_reservation("p-1", 2, 1_000), "p-1", 2) == 1


def test_what_was_read_without_a_measurement_counts_the_cpu_that_was_predicted():
    (dropped,) = charged([entry(20, 500)])
    assert dropped.spent.cpu_seconds == pytest.approx(25.0)
    (measured,) = charged([entry(20, 500, cpu=3.0)])
    assert measured.spent.cpu_seconds == 3.0


@settings(max_examples=examples(50), deadline=None)
@given(
    sizes=st.lists(st.integers(1, 2_000), max_size=6), reservations=st.integers(0, 4),
    settled=st.integers(0, 15),
)  # fmt: skip
def test_charges_are_never_below_what_was_read_nor_above_read_and_reserved(
    sizes, reservations, settled
):
    entries = [entry(15 + 10 * number, size) for number, size in enumerate(sizes)]
    held = [
        reserved(10 + 20 * number, settled=bool(settled >> number & 1))
        for number in range(reservations)
    ]
    whole = size_of(entries, held)
    open_now = sum(r.rewrite_bytes for r in held if not r.settled)
    assert max(sum(sizes), open_now) <= whole <= sum(sizes) + open_now


def test_the_id_of_an_attempt_tells_when_it_began():
    from reconciler.engines.schedule.attempt import new_id

    class Table:
        def head(self) -> None:
            return None

    began = attempt_started_ms(new_id("p-00000000000000000000", Table()))
    assert began is not None
    assert 0 <= began - attempt_started_ms(f"p-x-{began * 1000:x}-0") < 1
    assert began > 1_700_000_000_000
    assert attempt_started_ms("attempt") is None


def test_a_layout_counts_as_written_by_a_plan_when_one_action_of_it_wrote_it():
    def wrote(plan: str, action: str, layout: str, state: str = COMMITTED) -> LedgerEntry:
        made = entry(1_000, 10)
        outcome = replace(
            made.outcome, action_id=action, state=state, written_bytes=made.outcome.read_bytes
        )
        return replace(made, plan_id=plan, outcome=outcome, predicted=Prediction(layout=layout))

    entries = [
        wrote("p-1", "a01", "one"),
        wrote("p-1", "a01", "one"),  # two batches of it
        wrote("p-1", "a02", "two"),
        wrote("p-1", "a03", "two"),
        wrote("p-2", "a01", "three", CONFLICT),
        entry(1_000, 10),  # of a plan made before layouts were noted
    ]
    assert written_layouts(entries) == {"p-1": frozenset({"one"})}


def test_a_rewrite_whose_files_came_out_much_smaller_may_be_done_again():
    """Deleted rows gone, or a sort that compresses: eight files of a tenth of the target."""

    def wrote(plan: str, read: int, written: int, files: int) -> LedgerEntry:
        made = entry(1_000, 10)
        outcome = replace(made.outcome, read_bytes=read, written_bytes=written, files_out=files)
        return replace(made, plan_id=plan, outcome=outcome, predicted=Prediction(layout="one"))

    entries = [
        wrote("p-1", 1_000, 100, 8),
        wrote("p-2", 1_000, 900, 8),
        wrote("p-3", 1_000, 100, 1),  # no fewer than one
    ]
    assert written_layouts(entries) == {"p-2": frozenset({"one"}), "p-3": frozenset({"one"})}
    foreseen = replace(entries[0], predicted=Prediction(layout="one", bytes_in=10, bytes_out=1))
    assert written_layouts([foreseen]) == {"p-1": frozenset({"one"})}


def test_a_plan_s_files_have_the_least_size_that_its_rewrites_chose():
    def chose(plan: str, size: int | None, state: str = COMMITTED) -> LedgerEntry:
        made = entry(1_000, 10)
        outcome = replace(made.outcome, state=state)
        return replace(made, plan_id=plan, outcome=outcome, predicted=Prediction(target_bytes=size))

    entries = [
        chose("p-1", 64), chose("p-1", 16), chose("p-1", None), chose("p-2", None),
        chose("p-3", 16, CONFLICT),
    ]  # fmt: skip
    assert chosen_sizes(entries) == {"p-1": 16}


def test_the_times_of_a_run_are_those_of_its_committed_groups():
    def done(action: str, cpu: float, state: str = COMMITTED) -> Outcome:
        return replace(
            entry(1_000_000, 10).outcome,
            action_id=action,
            state=state,
            cpu_seconds=cpu,
            seconds=2.0,
        )

    def ended(*outcomes: Outcome, conflicts: int = 0) -> ExecutionResult:
        return ExecutionResult((), (), outcomes, 1, conflicts, False, 7.0, start_seconds=5.0)

    wide = Prediction(groups=1, rows=10, text_bytes=300, columns=4)
    works = {
        "a01": ("sort", Prediction(groups=1)), "a02": ("sort", wide), "a03": (None, Prediction()),
    }  # fmt: skip
    first, second = done("a01", 3.0), replace(done("a02", 1.0), rows=2_000_000)
    found = times_of(works, ended(first, second, done("a03", 0.0)))
    model = modelled_cpu("sort", first.read_bytes, first.files_in, True)
    model += modelled_cpu("sort", 0, second.files_in, False, Rows(2_000_000, 60_000_000, 4))
    assert found == RunTimes(5.0, 3.0, 2, tasks=4.0, cpu=4.0, model=model)
    assert times_of(works, ended(done("a01", 3.0, CONFLICT))) is None
    assert times_of(works, ended(first, conflicts=1)) is None


def test_only_the_first_rewrite_of_a_plan_is_taken_to_have_warmed_up_the_jvm():
    prior = Throughput()
    took = [prior.cpu_seconds("sort", 1_000, 1, first) for first in (True, False, False)]
    entries = [entry(20 + n, 1_000, cpu) for n, cpu in enumerate(took)]
    assert throughput(entries[::-1]).cpu_scale["sort"] == pytest.approx(1.0)
    another = [replace(item, plan_id="p-2", at_ms=item.at_ms + 1_000) for item in entries]
    assert throughput([*entries, *another]).cpu_scale["sort"] == pytest.approx(1.0)


def test_the_line_on_trust_shows_how_far_predictions_were_off(said: Said) -> None:
    assert trust([], []).startswith("no ")
    done = [entry(10 + number, 300, cpu=55.0) for number in range(5)]
    read = [ReadCheck(f"p-{n}", n, 200, 100, 97, complete=True) for n in range(5)]
    for text in (trust(done, []), trust(done, read)):
        assert "5 actions" in text and "+10 %" in text
        said(text)
    assert "-3 %" in trust(done, read)


def test_what_no_throughput_is_known_of_does_not_calibrate_cpu_time() -> None:
    measured = replace(PREDICTED, kind="BinPack", cpu_millis=1_000)
    manifests = replace(PREDICTED, kind="RewriteManifests", cpu_millis=1_000)
    rewrites = [replace(entry(n, 10, cpu=2.0), predicted=measured) for n in range(1, 7)]
    others = [replace(entry(n, 10), predicted=manifests) for n in range(7, 20)]
    assert cpu_calibration([*rewrites, *others]) == cpu_calibration(rewrites)
    assert cpu_calibration(rewrites).median == 2.0
