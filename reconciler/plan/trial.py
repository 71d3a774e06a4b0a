"""What the trial of a partition spec on a part of the table found, against the prediction."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from reconciler.format import iec
from reconciler.plan.ledger import LedgerEntry, ReadCheck, read_calibration

TRIAL = "trial"
"""`Prediction.evidence` of a migration that is one."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What a trial of a migration found."""

    plan: str
    """Id of the plan that carried it out."""
    check: ReadCheck | None
    """What the recorded queries read before and after, None without queries."""
    low: float
    """Lower end of the 80 % interval of the saving, as a share of the predicted saving."""

    @property
    def held(self) -> bool:
        """Whether the queries save at least what the interval of the prediction begins with."""
        found = self.check
        if found is None or not found.complete:
            return False
        predicted = found.before - found.predicted
        share = self.low if predicted >= 0 else 2.0 - self.low
        return found.before - found.actual >= share * predicted

    def text(self) -> str:
        if self.check is None:
            return "the trial was carried out; no recorded query shows what it brings"
        found = self.check
        verdict = "as predicted" if self.held else "not as predicted"
        return (
            f"the trial was carried out: the recorded queries read {iec(found.before)} before, "
            f"{iec(found.actual)} after it, predicted were {iec(found.predicted)}: {verdict}"
        )

    def document(self) -> dict[str, Any]:
        """Return it as plan documents hold it, which have no floats."""
        body: dict[str, Any] = {"plan": self.plan, "held": self.held, "text": self.text()}
        if self.check is not None:
            found = self.check
            body |= {"before": found.before, "predicted": found.predicted, "found": found.actual}
        return body


def trial_of(
    entries: Sequence[LedgerEntry], checks: Sequence[ReadCheck], plans: Collection[str]
) -> Trial | None:
    """Return the last trial that one of these plans committed, None without one.

    plans: those that wrote the live files of the declared spec, so that the trial of another spec,
    or one that was rolled back, does not count.
    """
    tried = [
        entry
        for entry in entries
        if entry.committed and entry.predicted.evidence == TRIAL and entry.plan_id in plans
    ]
    if not tried:
        return None
    plan = max(tried, key=lambda entry: entry.at_ms).plan_id
    found = [check for check in checks if check.plan_id == plan]
    check = max(found, key=lambda one: one.at_ms, default=None)
    since = [one for one in checks if check is not None and one.at_ms < check.at_ms]
    return Trial(plan, check, read_calibration(since).low)
