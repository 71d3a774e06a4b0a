"""The runbook, docs/operations/conditions.md: every reason with its cause and remedy.

    python -m reconciler.api.runbook > docs/operations/conditions.md

Written from reconciler.api.conditions for whoever is looking at a condition and wants to act; a
test holds the page equal to what this prints.
"""

from __future__ import annotations

import sys

from reconciler.api.conditions import CONVERGED_ORDER, EXPLANATIONS, ConditionType, Reason

_HEAD = """\
# Conditions: every reason, its cause, its remedy

<!-- Written by `python -m reconciler.api.runbook` from reconciler/api/conditions.py. -->

`kubectl describe tl NAME` and `layoutctl status` show a reason for each condition; its message has
the object, the time or the number. The [policy reference](../reference/policy.md) lists the same
reasons by condition.

- `Ready` is about the spec, its references and the catalog. An object that waits for approval, for
  budget or for a window is ready.
- `Stalled` is true only if this object, or one that it refers to, must change before work can go
  on. A policy is stalled as soon as one of its tables is, with that table's reason; it stays
  ready, and its other tables go on.
- `Reconciling` is true for the seconds in which the operator evaluates a new generation.
- `Converged` is the goal. While it is not true, its reason is the first that applies in this list;
  a reason of `Stalled` comes right after `OwnedElsewhere`:
"""


def runbook() -> str:
    """The whole page."""
    order = ", ".join(f"`{reason.value}`" for reason in CONVERGED_ORDER)
    return "\n".join([f"{_HEAD}  {order}.\n", _index(), *map(_section, sorted(EXPLANATIONS))])


def _index() -> str:
    rows = []
    for kind in ConditionType:
        reasons = [reason for reason, entry in EXPLANATIONS.items() if kind in entry.types]
        links = ", ".join(f"[{reason.value}](#{reason.value.lower()})" for reason in reasons)
        rows.append(f"| `{kind.value}` | {links} |")
    return "| Condition | Reasons |\n|---|---|\n" + "\n".join(rows) + "\n"


def _section(reason: Reason) -> str:
    entry = EXPLANATIONS[reason]
    types = ", ".join(f"`{kind.value}`" for kind in entry.types)
    remedy = entry.remedy or "Nothing to do."
    head = f"## {reason.value}\n\nReason of {types}."
    return f"{head}\n\n**Cause.** {entry.cause}\n\n**Remedy.** {remedy}\n"


if __name__ == "__main__":
    sys.stdout.write(runbook())
