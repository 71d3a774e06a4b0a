"""The price of opening a file: from timed openings, steady, and within its limits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reconciler.queries.open_price import (
    ENGINE_RATE,
    KEPT_OPENINGS,
    LARGE_READ,
    LEAST_OPENINGS,
    LEAST_READS,
    MOST_BYTES,
    PRESET,
    Opening,
    OpenPrice,
    measured_price,
)
from reconciler.queries.read_cost import read_shape
from reconciler.queries.table_view import CHUNK_OPENS, OPEN_BYTES, ROW_GROUP_OPENS, table_view
from reconciler.state.openings import open_price, record_openings
from reconciler.state.state import StateStore
from tests.advisor.worlds import KEY, arrived
from tests.queries.test_read_cost import one_of

MIB = 1 << 20
LATE = Opening(0.056)
"""4 MiB at the rate of an engine."""


def price(openings: list[Opening], before: OpenPrice = PRESET) -> OpenPrice:
    return measured_price(openings, before, 7)


def test_few_openings_leave_the_price_as_it_is() -> None:
    few = [LATE] * (LEAST_OPENINGS - 1)
    assert price(few) == PRESET
    assert price(few, OpenPrice(8 * MIB, 64, 1)) == OpenPrice(8 * MIB, 64, 1)
    assert price([*few, LATE]) == OpenPrice(4 * MIB, LEAST_OPENINGS, 7)


def test_it_is_the_median_opening_in_powers_of_two_within_limits() -> None:
    odd = [LATE] * 6 + [Opening(30.0)] * 2 + [Opening(0.0)] * 2
    assert price(odd).bytes == 4 * MIB
    assert price([Opening(0.0004)] * 20) == OpenPrice(OPEN_BYTES, 20, 7)  # a local disk
    assert price([Opening(9.0)] * 20).bytes == MOST_BYTES


def test_a_storage_that_reads_slowly_makes_openings_cheaper() -> None:
    size = 64 * LARGE_READ
    fast = Opening(LATE.opened, 0.01, size, 1)
    slow = Opening(LATE.opened, 2.0 * size / ENGINE_RATE, size, 1)
    assert price([fast] * LEAST_OPENINGS).bytes == 4 * MIB
    assert price([slow] * LEAST_OPENINGS).bytes == 2 * MIB
    # Too few of these reads, or reads that only wait, show no rate.
    assert price([LATE] * 9 + [slow] * (LEAST_READS - 1)).bytes == 4 * MIB
    assert price([replace(slow, bytes=LARGE_READ - 1)] * 9).bytes == 4 * MIB


def test_what_a_read_waits_for_its_requests_is_not_its_rate() -> None:
    size, columns = 64 * LARGE_READ, 3
    waits = columns * LATE.opened / 2.0 + size / ENGINE_RATE
    assert price([Opening(LATE.opened, waits, size, columns)] * 9).bytes == 4 * MIB


@pytest.mark.parametrize(("factor", "stays"), [(0.65, True), (1.6, True), (0.5, False), (2, False)])
def test_a_measured_price_leaves_its_place_only_clearly(factor: float, stays: bool) -> None:
    before = OpenPrice(4 * MIB, 20, 1)
    now = price([Opening(factor * LATE.opened)] * 20, before)
    assert (now.bytes == before.bytes) is stays
    assert now.measured_ms == 7


def test_the_state_keeps_the_latest_openings_and_their_price(tmp_path: Path) -> None:
    store = StateStore(tmp_path)
    assert open_price(store, "a") == PRESET
    record_openings(store, "a", [])
    assert open_price(store, "a") == PRESET
    for _ in range(LEAST_OPENINGS):
        record_openings(store, "a", [LATE])
    assert open_price(store, "a").bytes == 4 * MIB
    assert open_price(store, "b") == PRESET
    record_openings(store, "a", [Opening(4 * LATE.opened)] * KEPT_OPENINGS)
    found = open_price(StateStore(tmp_path), "a")
    assert (found.bytes, found.openings) == (16 * MIB, KEPT_OPENINGS)


def test_a_row_group_waits_for_one_of_the_two_requests_that_make_openings_dear() -> None:
    table = arrived(np.random.default_rng(0), rows=4_000, rows_per_file=1_000, jitter=1)
    table = replace(table, files=tuple(f.in_groups(250) for f in table.files))
    demand = one_of(KEY, 0, 999)  # four row groups of one file
    near = OPEN_BYTES * (1.0 + 4 * (ROW_GROUP_OPENS + 2 * CHUNK_OPENS))
    for dear in (0, 7 * MIB):
        view = table_view(table.file_table(), table.row_groups(), None, 1 << 20, OPEN_BYTES + dear)
        cost = 1_000 * 16 + near + dear + 4 * dear / 2
        assert read_shape(view, demand).cost.tolist() == pytest.approx([cost], rel=1e-3)
