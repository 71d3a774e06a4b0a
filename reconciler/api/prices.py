"""Prices of a catalog (`spec.prices`), by which `plan/money` says what work costs."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated


@dataclass(frozen=True, slots=True)
class Prices:
    """spec.prices of a catalog; a price is 0 where the resource is free or none is given."""

    currency: str
    """Code of the currency, such as EUR, which is printed beside each amount."""
    cpu_hour: Annotated[Decimal, "cpuHour", "decimal"] = Decimal(0)
    """Price of an hour of one core."""
    tib_read: Annotated[Decimal, "tibRead", "decimal"] = Decimal(0)
    """Price of reading one TiB."""
    requests1000: Annotated[Decimal, "requests1000", "decimal"] = Decimal(0)
    """Price of 1,000 requests."""
    gib_month: Annotated[Decimal, "gibMonth", "decimal"] = Decimal(0)
    """Price of storing one GiB for a month of 365.25 / 12 days."""
