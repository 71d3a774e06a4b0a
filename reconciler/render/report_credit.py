"""The facts of the report on the debt of past rewrites, and on what new ones may cost."""

from __future__ import annotations

from reconciler.advisor.advice import Debt
from reconciler.api.prices import Prices
from reconciler.format import iec, saved_text
from reconciler.plan.money import beside, cost_text, rewriting


def credit_facts(
    debt: Debt, room: float | None, *, exact: bool, prices: Prices | None, rho: float
) -> tuple[tuple[str, str], ...]:
    """Return (name, value) lines, in bytes of reading. What rewrites cost is in money as well if
    there are prices: rewriting is not as dear as reading rho times the bytes.

    room: what rewrites for the queries may cost now; None where none is planned. exact: whether
    the savings are known, and not only bounded. rho: what rewriting a byte costs in bytes of
    reading.
    """

    def text(cost: float) -> str:
        money = "" if prices is None else cost_text(prices, rewriting(cost / rho, rho))
        return beside(iec(cost), money)

    owed = debt.outstanding
    earned = f"none: {iec(-owed)} more saved than spent" if owed < 0 else "none"
    return (
        ("Credit: spent on rewrites", text(debt.spent)),
        ("Credit: realised savings", saved_text(debt.realised, exact)),
        ("Credit: outstanding", iec(owed) if owed > 0 else earned),
        ("Credit: room for rewrites", "-" if room is None else text(room)),
    )
