"""What work costs in money, by the prices of a catalog's document (`spec.prices`).

The one place where bytes, requests, CPU time and stored bytes become money. Without prices nothing
has a cost in money, and nothing is printed.
"""

from __future__ import annotations

from dataclasses import dataclass

TIB, GIB = 1 << 40, 1 << 30
HOUR_SECONDS = 3600.0
MONTH_DAYS = 365.25 / 12


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


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of a catalog; 0 where a resource is free or no price is given."""

    currency: str
    """Code of the currency, such as EUR, which is printed beside each amount."""
    cpu_hour: float = 0.0
    """Price of an hour of one core."""
    tib_read: float = 0.0
    """Price of reading one TiB."""
    requests1000: float = 0.0
    """Price of 1,000 requests."""
    gib_month: float = 0.0
    """Price of keeping one GiB for a month of 365.25 / 12 days."""

    def of(self, used: Usage) -> float:
        """Return the money that the usage costs:

        cpuHour x CPU s / 3600 + tibRead x bytes / 2^40 + requests1000 x requests / 1000
        + gibMonth x byte days / (2^30 x 365.25 / 12)
        """
        return (
            self.cpu_hour * used.cpu_seconds / HOUR_SECONDS
            + self.tib_read * used.read_bytes / TIB
            + self.requests1000 * used.requests / 1000.0
            + self.gib_month * used.stored_byte_days / (GIB * MONTH_DAYS)
        )

    def text(self, used: Usage) -> str:
        """Return what the usage costs as people read it, with the currency."""
        return self.amount(self.of(used))

    def amount(self, money: float) -> str:
        """Return money as people read it, with the currency."""
        return money_text(money, self.currency)


def money_text(amount: float, currency: str) -> str:
    """Return an amount with two decimals, three significant digits where it is below 0.10: a
    positive amount never prints as zero."""
    if amount and abs(amount) < 0.1:
        return f"{amount:.3g} {currency}" if abs(amount) >= 1e-4 else f"< 0.0001 {currency}"
    return f"{amount:,.2f} {currency}"
