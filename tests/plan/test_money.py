"""Money is the formula beside the code, computed here with exact fractions."""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.advisor.measure.credit import Credit
from reconciler.api.prices import Prices
from reconciler.cli.fleet import rewrite_of
from reconciler.cli.history import render_history
from reconciler.plan.money import (
    TIB,
    Usage,
    carrying_out,
    cost_of,
    money_text,
    plan_money,
    reading,
    saved_by,
    storing,
)
from reconciler.plan.prediction import Total
from reconciler.queries.rewrite_cost import READ_CPU_PER_BYTE
from tests.cli.plans import past_plans
from tests.examples import examples
from tests.render.fleets import table

PRICES = Prices("EUR", Decimal("0.05"), Decimal(5), Decimal("0.0004"), Decimal("0.021"))
AMOUNTS = st.integers(0, 2**53)
DECIMALS = st.decimals(0, 10**6, places=4)


@settings(max_examples=examples(60), deadline=None)
@given(AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS, DECIMALS, DECIMALS, DECIMALS, DECIMALS)
def test_a_cost_is_the_sum_of_what_each_resource_costs(
    size: int, requests: int, seconds: int, stored: int,
    cpu: Decimal, read: Decimal, thousand: Decimal, month: Decimal,
) -> None:  # fmt: skip
    expected = (
        Fraction(cpu) * seconds / 3600
        + Fraction(read) * size / 1024**4
        + Fraction(thousand) * requests / 1000
        + Fraction(month) * stored / 1024**3 / (Fraction(36525, 100) / 12)
    )
    found = cost_of(
        Prices("USD", cpu, read, thousand, month), Usage(size, requests, seconds, stored)
    )
    assert found == pytest.approx(float(expected), rel=1e-9, abs=1e-12)


def test_a_resource_without_a_price_and_a_free_one_cost_nothing() -> None:
    used = Usage(2.0**40, 1000, 3600, 2.0**30 * 30)
    assert cost_of(Prices("EUR"), used) == 0.0
    assert cost_of(Prices("EUR", tib_read=Decimal(7)), used) == 7.0


def test_storing_a_gibibyte_for_a_month_costs_its_price() -> None:
    assert cost_of(PRICES, storing(2.0**30)) == pytest.approx(0.021)


def test_reading_decodes_what_it_reads() -> None:
    used = reading(10.0**9, 4)
    assert (used.read_bytes, used.requests) == (10.0**9, 4)
    assert used.cpu_seconds == pytest.approx(READ_CPU_PER_BYTE * 10.0**9)


def test_a_plan_costs_its_work_and_saves_reading_and_openings() -> None:
    work = Total(
        files_in=90, files_out=10, bytes_in=2**40, cpu_millis=7_200_000, saving=3 * 2**40,
        saving_opening=2**40,
    )  # fmt: skip
    assert carrying_out(work) == Usage(2**40, 100, 7_200.0)
    saved = saved_by(work, 2**20)
    assert (saved.read_bytes, saved.requests) == (2 * 2**40, 2**20)
    found = plan_money(PRICES, work, 2**20)
    assert found["cost"] == pytest.approx(5 + 0.1 + 0.00004)
    cpu = 2 * 2**40 * READ_CPU_PER_BYTE / 3600 * 0.05
    assert found["saves"] == pytest.approx(10 + cpu + 2**20 / 1000 * 0.0004, abs=1e-6)


@pytest.mark.parametrize(
    ("amount", "number"),
    [(0.0, "0.00"), (1234.567, "1,234.57"), (0.0123456, "0.0123"), (-2.0, "-2.00"),
     (0.00001, "< 0.0001"), (-0.00001, "> -0.0001"), (0.099999, "0.1")],
)  # fmt: skip
def test_a_positive_amount_never_prints_as_zero(amount: float, number: str) -> None:
    assert money_text(amount, "EUR") == f"{number} EUR"


def test_history_and_fleet_say_the_same_money_where_a_later_plan_replaced_files() -> None:
    """The first plan saved 3 TiB until the second one replaced its files, and 2 TiB since; the
    second one saved 1 TiB more than it."""
    first, second = past_plans()
    plans = [
        replace(first, realised=Credit(3.0 * TIB, 3.0 * TIB, 5.0 * TIB, 5.0 * TIB, 9.0, 0.0, 1, 2)),
        replace(second, realised=Credit(1.0 * TIB, 1.0 * TIB, TIB, TIB, 9.0, 0.0, 1, 2)),
    ]
    fleet = table(1, rewrites=tuple(map(rewrite_of, plans)))
    entries = [entry.outcome for plan in plans for entry in plan.entries]
    spent = sum(
        Fraction("0.05") * Fraction(one.cpu_seconds) / 3600 + Fraction(5 * one.read_bytes, TIB)
        for one in entries
    )
    saved = 6 * 5 + Fraction("0.05") * Fraction(READ_CPU_PER_BYTE) * 6 * TIB / 3600
    assert fleet.spent_money(PRICES) == pytest.approx(float(spent))
    assert fleet.saved == 6 * TIB
    text = " ".join(render_history("t", plans, 100, PRICES).split())
    assert [float(one) for one in re.findall(r"([\d.]+) EUR", text)] == [
        round(float(spent), 2), round(float(saved), 2),
    ]  # fmt: skip
