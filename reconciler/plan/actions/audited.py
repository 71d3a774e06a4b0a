"""What becomes of a batch that waits on a branch: it is published to main, or dropped.

Each action names the exact snapshots, so that an approval covers what a person looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from reconciler.format import plural
from reconciler.plan.actions.base import Action, Consent
from reconciler.plan.actions.content import ContentAction, inputs_of
from reconciler.plan.actions.state import ActionState, Facts, Validity
from reconciler.table.audits import waiting_batches
from reconciler.table.schema import PartitionSpec, Schema


@dataclass(frozen=True, slots=True)
class Publish(ContentAction):
    """The content files of one snapshot of the branch are committed to main."""

    branch: str = ""
    """The branch that the snapshot is on."""
    snapshot_id: int = 0
    """Id of the snapshot."""

    kind: ClassVar[str] = "Publish"
    verb: ClassVar[str] = "publish"
    consent: ClassVar[Consent] = Consent.PERSON

    def without_files(self) -> Self:
        return replace(self, inputs=())

    def canonical(self) -> dict[str, Any]:
        """Ids are texts: JSON numbers do not hold them."""
        return {
            "type": self.kind,
            "branch": self.branch,
            "snapshots": [str(self.snapshot_id)],
            "inputs": sorted(self.inputs),
        }

    @classmethod
    def from_canonical(cls, body: Mapping[str, Any]) -> Self:
        (snapshot,) = body.get("snapshots", ["0"])
        return cls(inputs_of(body), body.get("branch", ""), int(snapshot))

    def judge(self, facts: Facts) -> ActionState:
        """All or nothing: the rows of a snapshot were verified together."""
        if facts.done:
            return ActionState(Validity.DONE, why="committed")
        if self.snapshot_id not in _waiting(facts):
            return ActionState(Validity.LOST, why=f"branch {self.branch} was dropped")
        gone = sum(path not in facts.live for path in self.inputs)
        changed = sum(path in facts.changed for path in self.inputs)
        if gone or changed:
            of = plural(len(self.inputs), "input")
            return ActionState(Validity.LOST, why=f"{gone + changed} of its {of} were changed")
        return ActionState(Validity.PENDING, self.inputs)

    def label(self, schema: Schema, specs: Mapping[int, PartitionSpec]) -> str:
        files = plural(len(self.inputs), "file")
        return f"{self.verb} branch {self.branch}, which replaces {files}"


@dataclass(frozen=True, slots=True)
class Discard(Action):
    """The branch is dropped, with the files that only these of its snapshots need."""

    branch: str = ""
    """The branch to drop."""
    snapshots: tuple[int, ...] = ()
    """Ids of the branch's snapshots whose files are removed."""

    kind: ClassVar[str] = "Discard"
    verb: ClassVar[str] = "drop"
    consent: ClassVar[Consent] = Consent.NOBODY

    def canonical(self) -> dict[str, Any]:
        return {
            "type": self.kind,
            "branch": self.branch,
            "snapshots": [str(one) for one in self.snapshots],
        }

    @classmethod
    def from_canonical(cls, body: Mapping[str, Any]) -> Self:
        snapshots = sorted(int(one) for one in body.get("snapshots", []))
        return cls(body.get("branch", ""), tuple(snapshots))

    def judge(self, facts: Facts) -> ActionState:
        if _waiting(facts).isdisjoint(self.snapshots):
            return ActionState(Validity.DONE, why="the branch is gone")
        return ActionState(Validity.PENDING)

    def label(self, schema: Schema, specs: Mapping[int, PartitionSpec]) -> str:
        return f"{self.verb} branch {self.branch}"


def _waiting(facts: Facts) -> frozenset[int]:
    return frozenset(batch.snapshot_id for batch in waiting_batches(facts.metadata.log))
