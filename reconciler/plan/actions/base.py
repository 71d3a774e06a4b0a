"""What every kind of action has in common, for plan, approval and execution.

A kind is one frozen dataclass in a module of its own beside this one, an entry in
`plan.actions.KINDS`, and an executor in `engines.actions.EXECUTORS`. No other module asks which
kind an action is: it asks the action.

The canonical form (docs/design/definitions.md#plan) is RFC 8785 JSON with default fields omitted;
it has no floats, no predictions and no snapshot, so that an append does not change a plan's
identity.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Self

from reconciler.plan.actions.state import ActionState, Facts
from reconciler.table.cut_tree import Tree
from reconciler.table.schema import PartitionSpec, Schema, SpecField


class Consent(StrEnum):
    """Who must agree before an action is carried out."""

    POLICY = "Policy"
    """spec.approval decides."""
    PERSON = "Person"
    """A person, for exactly this plan, whatever spec.approval says."""
    NOBODY = "Nobody"
    """It is carried out without an approval, whatever spec.approval says."""


@dataclass(frozen=True, slots=True)
class Action(ABC):
    """One unit of planned work on one (spec id, partition), or one metadata change."""

    kind: ClassVar[str]
    """What plan documents, the ledger and status call it."""
    verb: ClassVar[str]
    """What plans, progress lines and refusals call it."""
    work: ClassVar[str | None] = None
    """How the throughput model groups it: "pack" | "sort" for data files, "compact-deletes" |
    "convert-deletes" for delete files; None where nothing is written."""
    rewrites_data: ClassVar[bool] = False
    """Whether it replaces data files, so that a delete on one of them conflicts with it."""
    reads_deletes: ClassVar[bool] = False
    """Whether it reads delete files to make others of them."""
    needs_spark: ClassVar[bool] = False
    """Whether only Spark carries it out, and not the local engine."""
    consent: ClassVar[Consent] = Consent.POLICY
    """Who has to agree before the action is carried out."""
    bound_by: ClassVar[tuple[str, ...]] = ()
    """The kinds of work that it does, as policies of a catalog name them to forbid them
    (`table.catalog_policies`)."""
    rests_on_workload: ClassVar[bool] = False
    """Whether it is planned only because of recorded queries."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """Return the paths of the content files that it replaces, data files or delete files, as
        the manifests spell them, sorted."""
        return ()

    @property
    def trees(self) -> tuple[Tree, ...]:
        """Return the trees of cuts that its canonical form names by their hashes: under "tree" if
        it is one, else under "trees"."""
        return ()

    @property
    def moves_by(self) -> tuple[SpecField, ...] | None:
        """Return the fields by which rows get another partition; None if they stay in their own."""
        return None

    @property
    def orphan_age_ms(self) -> int | None:
        """Return the age in milliseconds from which it removes files that nobody refers to; None if
        it removes none."""
        return None

    def without_files(self) -> Self:
        """Return the same kind of work without its inputs, in the form that is kept for long."""
        return self

    def on(self, inputs: tuple[str, ...]) -> Self:
        """Return the same work on these of its inputs only; the action itself where it has no
        inputs."""
        return self

    @abstractmethod
    def canonical(self) -> dict[str, Any]:
        """Return the JSON-able form, without fields that equal their default, and without
        floats."""

    @classmethod
    @abstractmethod
    def from_canonical(cls, body: Mapping[str, Any]) -> Self:
        """Return the action of a canonical form. Raises KeyError on a foreign document."""

    @abstractmethod
    def judge(self, facts: Facts) -> ActionState:
        """Return whether it is pending, done or lost
        (docs/design/definitions.md#validity-per-action)."""

    def key_text(self, schema: Schema) -> str:
        """Return the columns that it sorts by, as in `a, b desc`, without a value of the table; ""
        for none."""
        return ""

    @abstractmethod
    def label(self, schema: Schema, specs: Mapping[int, PartitionSpec]) -> str:
        """Return the line by which plans list it: `recluster by l_shipdate, month=2026-09`."""
