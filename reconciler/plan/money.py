"""What work costs in money, by the prices of a catalog's document (`spec.prices`).

The one place where bytes, requests, CPU time and stored bytes become money. Without prices nothing
has a cost in money, and nothing is printed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.api.prices import Prices
from reconciler.plan.prediction import Total
from reconciler.queries.rewrite_cost import READ_CPU_PER_BYTE

TIB, GIB = 1 << 40, 1 << 30
HOUR_SECONDS = 3600.0
MONTH_DAYS = 365.25 / 12
SMALLEST = 1e-4
"""Amounts below it are printed as less than it."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What is used of each resource that has a price."""

    read_bytes: float = 0.0
    """Bytes read from the store."""
    requests: float = 0.0
    """Requests to the store, such as openings of files."""
    cpu_seconds: float = 0.0
    """CPU time in seconds."""
    stored_byte_days: float = 0.0
    """Bytes kept in the store, each times the days for which it is kept."""


def cost_of(prices: Prices, used: Usage) -> float:
    """Return the money that the usage costs:

    cpuHour x CPU s / 3600 + tibRead x bytes / 2^40 + requests1000 x requests / 1000
    + gibMonth x byte days / (2^30 x 365.25 / 12)
    """
    return (
        float(prices.cpu_hour) * used.cpu_seconds / HOUR_SECONDS
        + float(prices.tib_read) * used.read_bytes / TIB
        + float(prices.requests1000) * used.requests / 1000.0
        + float(prices.gib_month) * used.stored_byte_days / (GIB * MONTH_DAYS)
    )


def reading(size: float, openings: float = 0.0) -> Usage:
    """Return what queries use to read `size` bytes from files that they open `openings` times:

    CPU s = READ_CPU_PER_BYTE x bytes, because an engine decodes what it reads.
    """
    return Usage(size, openings, READ_CPU_PER_BYTE * size)


def rewriting(size: float, rho: float) -> Usage:
    """Return what rewriting `size` bytes uses, where only that is known of the work: each byte is
    read, and takes the CPU time of reading rho bytes. Requests are not counted."""
    return Usage(size, 0.0, rho * READ_CPU_PER_BYTE * size)


def storing(size: float) -> Usage:
    """Return what keeping `size` bytes for a month uses."""
    return Usage(stored_byte_days=size * MONTH_DAYS)


def carrying_out(work: Total) -> Usage:
    """Return what the actions are predicted to use: each input is read, each output is written by
    a request. What they store until old snapshots expire is not counted: when is not known."""
    return Usage(work.bytes_in, work.files_in + work.files_out, work.cpu_seconds)


def saved_by(work: Total, open_bytes: int) -> Usage:
    """Return what the actions are predicted to save queries over the payback horizon. Of bytes of
    reading, those that fewer openings save are requests: bytes / open_bytes."""
    openings = work.saving_opening / open_bytes if open_bytes else 0.0
    return reading(work.saving - work.saving_opening, openings)


def plan_money(prices: Prices, work: Total, open_bytes: int) -> dict[str, str | float]:
    """Return what carrying out a plan costs, and what it saves over the payback horizon."""
    return {
        "currency": prices.currency,
        "cost": round(cost_of(prices, carrying_out(work)), 6),
        "saves": round(cost_of(prices, saved_by(work, open_bytes)), 6),
    }


def plan_money_text(money: Mapping[str, Any]) -> str:
    """Return `0.12 EUR to carry out; saves 3.40 EUR in 7 days`. money: of `plan_money`."""
    cost, saves = (money_text(money[key], money["currency"]) for key in ("cost", "saves"))
    return f"{cost} to carry out; saves {saves} in 7 days"


def read_money(prices: Prices | None, size: float) -> str:
    """Return what it costs queries to read `size` bytes, as printed; "" without prices."""
    return "" if prices is None else cost_text(prices, reading(size))


def status_money(
    prices: Prices, pending: Total, open_bytes: int, rewritten: int, cpu_seconds: float
) -> dict[str, str | float]:
    """Return what the pending actions cost and save, and what past ones have `spent`.

    rewritten, cpu_seconds: what past actions have read and computed, in bytes and seconds.
    """
    spent = cost_of(prices, Usage(rewritten, 0.0, cpu_seconds))
    return {**plan_money(prices, pending, open_bytes), "spent": round(spent, 6)}


def run_money(
    prices: Prices, predicted: Total, rewritten: int, cpu_seconds: float
) -> dict[str, str | float]:
    """Return what a run was predicted to cost, and what it has cost by the bytes that it read and
    its CPU seconds. Requests are counted in neither, because a run does not count them."""
    foreseen = Usage(predicted.bytes_in, 0.0, predicted.cpu_seconds)
    return {
        "currency": prices.currency,
        "predicted": round(cost_of(prices, foreseen), 6),
        "actual": round(cost_of(prices, Usage(rewritten, 0.0, cpu_seconds)), 6),
    }


def beside(size: str, money: str) -> str:
    """Return a size with its money, `1.2 GiB (0.03 EUR)`; the size alone where money is ""."""
    return f"{size} ({money})" if money else size


def cost_text(prices: Prices, used: Usage) -> str:
    """Return what the usage costs as people read it, with the currency."""
    return money_text(cost_of(prices, used), prices.currency)


def money_text(amount: float, currency: str) -> str:
    """Return an amount with two decimals, three significant digits where it is below 0.10: a
    positive amount never prints as zero."""
    if amount and abs(amount) < SMALLEST:
        return f"< {SMALLEST:.4f} {currency}" if amount > 0 else f"> -{SMALLEST:.4f} {currency}"
    number = f"{amount:.3g}" if amount and abs(amount) < 0.1 else f"{amount:,.2f}"
    return f"{number} {currency}"
