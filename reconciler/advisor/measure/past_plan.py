"""Plans that were carried out: what each one cost and what later queries saved by it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from reconciler.advisor.advice import HORIZON_MS
from reconciler.advisor.measure.credit import Credit
from reconciler.plan.ledger import LedgerEntry, ReadCheck
from reconciler.table.times import DAY_MS


@dataclass(frozen=True, slots=True)
class PastPlan:
    """A plan that was carried out at least in part."""

    plan_id: str
    """The plan's id."""
    entries: tuple[LedgerEntry, ...]
    """The outcomes of its actions, each with its prediction."""
    realised: Credit | None
    """What later queries did not read because of it; None if that is unknown."""
    rho: float
    """Cost of a rewritten byte in bytes of reading."""
    open_bytes: int
    """Cost of opening a file in bytes of reading."""
    check: ReadCheck | None = None
    """What the recorded queries read before, as predicted and afterwards; None if nothing was
    measured."""

    @property
    def at_ms(self) -> int:
        return max(entry.at_ms for entry in self.entries)

    @property
    def read_bytes(self) -> int:
        return sum(entry.outcome.read_bytes for entry in self.entries)

    @property
    def cpu_seconds(self) -> float:
        return sum(entry.outcome.cpu_seconds for entry in self.entries)

    @property
    def cost(self) -> float:
        return self.rho * self.read_bytes

    @property
    def measured(self) -> Credit | None:
        """What it saved, None if no query that shows it has run since."""
        return None if self.realised is None or self.realised.none_ran else self.realised

    @property
    def too_early(self) -> bool:
        """Whether less than a day of queries has run since."""
        seen = self.measured
        return seen is None or seen.until_ms - seen.since_ms < DAY_MS

    @property
    def harm(self) -> bool:
        """Whether queries cost more than before: later ones, or the recorded ones until a day of
        later ones is known."""
        seen = self.measured
        if seen is None or self.too_early:
            return self.check is not None and self.check.harm
        return seen.most < 0

    @property
    def not_paid(self) -> bool:
        """Whether its horizon of 7 days has passed and it saved less than it cost."""
        seen = self.measured
        if seen is None:
            return False
        return seen.until_ms - self.at_ms >= HORIZON_MS and seen.most < self.cost


def past_plans(
    entries: Iterable[LedgerEntry],
    checks: Iterable[ReadCheck],
    credits: Mapping[str, Credit],
    rho: float,
    open_bytes: int,
) -> list[PastPlan]:
    """Return every plan of a table's ledger, oldest first. credits: by plan id."""
    found: dict[str, list[LedgerEntry]] = {}
    for entry in entries:
        if entry.outcome.action_id:
            found.setdefault(entry.plan_id, []).append(entry)
    last = {check.plan_id: check for check in checks}
    return [
        PastPlan(plan, tuple(own), credits.get(plan), rho, open_bytes, last.get(plan))
        for plan, own in found.items()
    ]
