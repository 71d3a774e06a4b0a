"""What the state store knows of a table's past."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from reconciler.advisor.measure.credit import Credit
from reconciler.plan.conflicts import NO_CONFLICTS, Conflicts
from reconciler.plan.ledger import (
    LedgerEntry,
    ReadCheck,
)
from reconciler.queries.open_price import PRESET, OpenPrice
from reconciler.queries.rewrite_cost import RunTimes
from reconciler.table.filetable import FileTable


@dataclass(frozen=True, slots=True)
class History:
    """What the state store knows of a table's past."""

    entries: tuple[LedgerEntry, ...] = ()
    """Outcomes of executed actions, each with its prediction."""
    checks: tuple[ReadCheck, ...] = ()
    """What the recorded queries read before and after each plan."""
    rho: tuple[float, ...] = ()
    """Measured costs of a rewritten byte in bytes of reading, oldest first."""
    runs: tuple[RunTimes, ...] = ()
    """Times of executions of all tables."""
    open_price: OpenPrice = PRESET
    """Cost of opening a file, with how it is known."""
    conflicts: Conflicts = NO_CONFLICTS
    """Conflicts with other writers in a row until now."""
    credits: Mapping[str, Credit] = field(default_factory=dict)
    """What later queries did not read, by plan id; a plan is absent where that is unknown."""
    held: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The data files that stay as they are, by hash of the policy; each with the plan that was
    taken back (`plan.undo.held_files`)."""
    replaced: tuple[FileTable, ...] = ()
    """Files of other writers that past rewrites replaced, as far as the ledger keeps them."""
