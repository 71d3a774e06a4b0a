"""What a decision returns: chosen rewrites, maintenance of delete files, and what was rejected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reconciler.advisor.advice import Rejected
from reconciler.advisor.choose.blocks import block_column_of
from reconciler.advisor.deletes.minor import Minor
from reconciler.advisor.judge.candidate import Candidate
from reconciler.advisor.situation import Situation
from reconciler.plan.actions.rewrite import Rewrite


@dataclass(frozen=True)
class Chosen:
    """A candidate with its action type and the evidence for it."""

    candidate: Candidate
    """The rewrite with its what-if."""
    kind: type[Rewrite]
    """Class of the action that carries it out."""
    evidence: str
    """What justifies the action: "drift", "objective", "workload", "deletes" or "trial"."""
    reason: str
    """Why it is planned, for people."""
    moved: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the action in which it differs from a rewrite within a partition."""
    shows_reason: bool = False
    """Whether the plan shows the reason with the action."""


@dataclass(frozen=True)
class Verdict:
    """What one decision, or all of them, chose."""

    chosen: tuple[Chosen, ...]
    """Rewrites of data files."""
    rejected: tuple[Rejected, ...]
    """What was considered and is not planned."""
    minors: tuple[Minor, ...] = ()
    """Maintenance of delete files."""


def action_of(situation: Situation, item: Chosen) -> Rewrite:
    """Return the action that rewrites the files of a candidate."""
    table, settings, rows = situation.table, situation.settings, item.candidate.rows
    spec_id, values = table.partitions[int(table.partition[rows[0]])]
    given: dict[str, Any] = {
        "spec_id": spec_id,
        "partition": values,
        "ordering": item.candidate.ordering,
        "target_bytes": item.candidate.target_configured or settings.target_bytes,
        "row_group_bytes": item.candidate.row_group_configured or settings.row_group_bytes,
        "block_column": block_column_of(situation, item.candidate.ordering),
        "inputs": table.sorted_paths(rows),
    }
    return item.kind(**{**given, **item.moved})
