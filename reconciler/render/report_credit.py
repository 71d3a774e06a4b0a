"""The facts of the report on the debt of past rewrites, and on what new ones may cost."""

from __future__ import annotations

from reconciler.advisor.advice import Debt
from reconciler.api.prices import Prices
from reconciler.format import iec, saved_text
from reconciler.plan.money import beside, read_money


def credit_facts(
    debt: Debt, room: float | None, *, exact: bool, prices: Prices | None
) -> tuple[tuple[str, str], ...]:
    """Return (name, value) lines, in bytes of reading and in money if there are prices.

    room: what rewrites for the queries may cost now; None where none is planned. exact: whether
    the savings are known, and not only bounded.
    """

    def text(size: float) -> str:
        return beside(iec(size), read_money(prices, size))

    owed = debt.outstanding
    earned = f"none: {text(-owed)} more saved than spent" if owed < 0 else "none"
    return (
        ("Credit: spent on rewrites", text(debt.spent)),
        ("Credit: realised savings", saved_text(debt.realised, exact)),
        ("Credit: outstanding", text(owed) if owed > 0 else earned),
        ("Credit: room for rewrites", "-" if room is None else text(room)),
    )
