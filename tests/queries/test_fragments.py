"""Rates, moving literals and coverage of a workload, at their defined limits."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.queries.coverage import MIXED, MODELLED, RECORDED, WEIGHTS, coverage
from reconciler.queries.fragments import Fragment, workload_of_fragments
from reconciler.queries.moving_windows import keeps_distance
from reconciler.queries.predicate import TRUE, And, Comparison, Predicate, Ref
from reconciler.table.schema import Field, Schema
from tests.queries.single import detected
from tests.table.tables import File, table_of

DAY = 86_400_000
START = 1_760_000_000_000 // DAY * DAY
SCHEMA = Schema(0, (Field(1, "day", "date"), Field(2, "ts", "timestamptz"), Field(3, "n", "long")))
RANGE = And((Comparison(Ref(1), ">=", 0), Comparison(Ref(1), "<=", 1)))


def fragment(
    event_ms: int,
    literals: tuple[int, ...],
    predicate: Predicate = RANGE,
    moving: tuple[int | None, ...] = (None, None),
    **changes: object,
) -> Fragment:
    made = Fragment("log", event_ms, "uuid", predicate, literals, moving, (1,), 1.0, event_ms, "x")
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def window(days_back: int, width: int, count: int = 10, step: int = 1) -> list[Fragment]:
    """One query a step over [day - back, day - back + width], computed anew each time."""
    return [
        fragment(
            START + i * step * DAY + 3_600_000,
            (START // DAY + i * step - days_back, START // DAY + i * step - days_back + width),
        )
        for i in range(count)
    ]


def test_constants_that_keep_their_distance_are_moving() -> None:
    found = detected(window(30, 7), SCHEMA)
    assert {f.moving for f in found} == {(-30, -23)}


def test_fewer_than_eight_events_or_three_days_prove_nothing() -> None:
    assert {f.moving for f in detected(window(1, 7, count=7), SCHEMA)} == {(None, None)}
    two_days = [
        fragment(START + i * 9_000_000, (START // DAY - 1, START // DAY)) for i in range(12)
    ]
    assert {f.moving for f in detected(two_days, SCHEMA)} == {(None, None)}


def test_constants_that_stay_are_fixed() -> None:
    still = [fragment(START + i * DAY, (20_000, 20_090)) for i in range(12)]
    assert {f.moving for f in detected(still, SCHEMA)} == {(None, None)}


def test_a_window_that_moves_at_half_speed_is_not_a_window_of_now() -> None:
    half = [
        fragment(START + i * DAY, (START // DAY + i // 2, START // DAY + i // 2 + 90))
        for i in range(20)
    ]
    assert {f.moving for f in detected(half, SCHEMA)} == {(None, None)}


def test_numbers_never_move() -> None:
    predicate = Comparison(Ref(3), ">=", 0)
    ids = [fragment(START + i * DAY, (START // DAY + i,), predicate, (None,)) for i in range(12)]
    assert {f.moving for f in detected(ids, SCHEMA)} == {(None,)}


def test_exact_offsets_of_a_reader_are_left_alone() -> None:
    exact = [dataclasses.replace(f, moving=(-30, None)) for f in window(30, 7)]
    assert {f.moving for f in detected(exact, SCHEMA)} == {(-30, -23)}
    assert detected(exact, SCHEMA)[0].moving[0] == -30


def test_a_timestamp_window_tolerates_spread_of_a_twentieth_of_its_width() -> None:
    predicate = And((Comparison(Ref(2), ">=", 0), Comparison(Ref(2), "<", 1)))
    day_us, events = 86_400_000_000, [START + i * DAY // 2 for i in range(16)]

    def jittered(spread_us: int) -> list[Fragment]:
        late = [int(spread_us * (2 * i - 15) / 15 * 2) for i in range(16)]
        return [
            fragment(at, (at * 1000 - day_us + late[i * 7 % 16], at * 1000), predicate)
            for i, at in enumerate(events)
        ]

    calm = detected(jittered(int(0.04 * day_us)), SCHEMA)
    assert all(f.moving[0] is not None for f in calm)
    wild = detected(jittered(int(0.08 * day_us)), SCHEMA)
    assert {f.moving[0] for f in wild} == {None}


@given(st.integers(-400, 400), st.integers(0, 60), st.permutations(range(12)))
def test_detection_does_not_depend_on_order_or_distance(
    back: int, width: int, order: list[int]
) -> None:
    items = window(back, width, count=12)
    found = detected([items[i] for i in order], SCHEMA)
    assert {f.moving for f in found} == {(-back, width - back)}


def test_a_slope_beyond_a_tenth_is_refused() -> None:
    event = np.arange(40, dtype=np.float64)
    assert keeps_distance(event * 1.09, event, 100.0, True)
    assert not keeps_distance(event * 1.11, event, 100.0, True)


def test_coverage_is_of_recorded_bytes_where_all_are_recorded() -> None:
    items = [
        fragment(START, (1, 2), recorded_bytes=300),
        fragment(START + 1, (1, 2), recorded_bytes=100, full_scan=True),
        fragment(START + 2, (1, 2), recorded_bytes=200, unbound=RANGE),
    ]
    found = coverage(workload_of_fragments(items), None)
    assert (found.share, found.basis) == (0.5, RECORDED)


def test_coverage_by_weight_says_so() -> None:
    items = [fragment(START, (1, 2), weight=3.0), fragment(START + 1, (1, 2), full_scan=True)]
    found = coverage(workload_of_fragments(items), None)
    assert (found.share, found.basis) == (0.75, WEIGHTS)


def test_no_demand_is_covered() -> None:
    assert coverage(workload_of_fragments([]), None).share == 1.0


def test_coverage_models_what_was_not_recorded() -> None:
    files = table_of([File(tuple((d,) for d in days)) for days in (range(10), range(10, 20))],
                     ["date"])  # fmt: skip
    narrow, whole = fragment(START, (1, 2)), fragment(START + 1, (1, 2), full_scan=True)
    found = coverage(workload_of_fragments([narrow, whole]), files)
    assert found.basis == MODELLED
    assert found.share == pytest.approx(1 / 3)
    half = dataclasses.replace(narrow, recorded_bytes=1000)
    assert coverage(workload_of_fragments([half, whole]), files).basis == MIXED


def test_queries_of_one_condition_are_one_shape_whatever_columns_they_read() -> None:
    """398 shapes of 400 queries: people ask the same question for other columns each time."""
    asked = [
        fragment(START + i, (i, i + 1), projection=(1, 2 + i % 40), weight=1.0) for i in range(400)
    ]
    (shape,) = workload_of_fragments(asked).shapes
    assert len(shape) == 400
    assert len(shape.column_sets) == 40
    assert shape.projection[1] == 1.0
    assert shape.projection[2] == pytest.approx(10 / 400)
    assert sum(shape.projection.values()) == pytest.approx(2.0)


def test_the_commonest_columns_come_first() -> None:
    asked = [
        fragment(START, (0, 1), projection=(1, 3), weight=1.0),
        fragment(START + 1, (0, 1), projection=(1, 2), weight=3.0),
    ]
    (shape,) = workload_of_fragments(asked).shapes
    assert shape.column_sets == (((1, 2), 0.75), ((1, 3), 0.25))


def test_a_query_that_was_not_understood_is_a_shape_of_its_own() -> None:
    asked = [
        fragment(START, (), predicate=TRUE, moving=(), full_scan=full) for full in (False, True)
    ]
    assert len({item.shape_id for item in asked}) == 2
