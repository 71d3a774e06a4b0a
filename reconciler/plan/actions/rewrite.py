"""Actions that rewrite data files of one (spec id, partition) in some ordering: what they share,
and the five kinds that add little to it."""

from __future__ import annotations

import hashlib
import json
from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from reconciler.plan.actions.base import Action
from reconciler.plan.actions.content import PartitionAction
from reconciler.plan.actions.state import ActionState, Facts, with_columns, with_cuts
from reconciler.plan.grouping import Extents, Grouping
from reconciler.plan.ordering import ARRIVAL, Ordering, ordering_from_canonical
from reconciler.plan.reasons import partition_text
from reconciler.table.cut_tree import Tree
from reconciler.table.numbers import FILE_BYTES, number
from reconciler.table.schema import PartitionSpec, Schema, SpecField

DEFAULT_TARGET = 512 << 20
"""Bytes of a data file of a table that says nothing."""


@dataclass(frozen=True, slots=True)
class Rewrite(PartitionAction, ABC):
    """Writes the rows of data files into others."""

    ordering: Ordering = ARRIVAL
    """The order in which rows are written."""
    target_bytes: int = 0
    """Bytes of a data file to write; 0: the table's own size."""
    row_group_bytes: int = 0
    """Bytes of a row group to write; 0: the table's own size."""
    block_column: str = field(default="", kw_only=True)
    """Column that gets the numbers of the tree's leaves; "" if none does."""

    work: ClassVar[str | None] = "sort"
    rewrites_data: ClassVar[bool] = True
    by: ClassVar[str] = " by "
    """What stands between the verb and the ordering in its title."""

    @property
    def into(self) -> int:
        """Return the id of the spec that its outputs get."""
        return self.spec_id

    @property
    def grouped_by(self) -> SpecField | None:
        """The field by whose values, instead of the key's, inputs are grouped; None without one."""
        return None

    @property
    def ordered_columns(self) -> int:
        """Return the number of columns that its rows are ordered by, and moved to their partitions
        by."""
        return len(self.ordering.key) + len(self.moves_by or ())

    def target_in(self, properties: Mapping[str, str]) -> int:
        """Return the bytes of a data file to write: its own, else those of a table with these
        properties."""
        return self.target_bytes or number(properties, FILE_BYTES, DEFAULT_TARGET)

    @property
    def trees(self) -> tuple[Tree, ...]:
        return () if self.ordering.tree is None else (self.ordering.tree,)

    def groups(self, files: Extents, *, target_bytes: int, merge_bytes: int | None) -> Grouping:
        """Return which inputs are read, written and committed together."""
        return self.ordering.groups(files, target_bytes=target_bytes, merge_bytes=merge_bytes)

    def judge(self, facts: Facts) -> ActionState:
        fields = (field.source_id for field in self.moves_by or ())
        needed = (*(column.field_id for column in self.ordering.key), *fields)
        state = with_columns(super(Rewrite, self).judge(facts), facts, needed)
        return with_cuts(state, facts, self.trees)

    def canonical(self) -> dict[str, Any]:
        body = super(Rewrite, self).canonical() | self.ordering.canonical()
        if self.target_bytes:
            body["targetBytes"] = self.target_bytes
        if self.row_group_bytes:
            body["rowGroupBytes"] = self.row_group_bytes
        if self.block_column:
            body["blockColumn"] = self.block_column
        return body

    @classmethod
    def from_canonical(cls, body: Mapping[str, Any]) -> Self:
        return replace(
            super(Rewrite, cls).from_canonical(body),
            ordering=ordering_from_canonical(body),
            target_bytes=body.get("targetBytes", 0),
            row_group_bytes=body.get("rowGroupBytes", 0),
            block_column=body.get("blockColumn", ""),
        )

    @classmethod
    def title(cls, ordering: Ordering, schema: Schema) -> str:
        """Return `recluster by l_shipdate`, `bin-pack in order of a` or `bin-pack`."""
        text = ordering.text(schema)
        return cls.verb + (cls.by + text if text else "")

    def key_text(self, schema: Schema) -> str:
        return self.ordering.text(schema)

    def label(self, schema: Schema, specs: Mapping[int, PartitionSpec]) -> str:
        spec = specs.get(self.spec_id)
        place = partition_text(spec, self.partition, schema) if spec else ""
        return self.title(self.ordering, schema) + (f", {place}" if place else "")

    def layout(self) -> str:
        """Return a hash of the target layout without the inputs, 16 hex digits: equal for two
        actions of one partition with the same ordering and sizes."""
        body = self.canonical()
        del body["type"], body["inputs"]
        text = json.dumps(body, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def as_rewrite(action: Action) -> Rewrite | None:
    """Return the action if it rewrites data files, else None."""
    return action if isinstance(action, Rewrite) else None


@dataclass(frozen=True, slots=True)
class BinPack(Rewrite):
    """Small files, merged into larger ones. Rows stay in order of arrival or of a key."""

    kind: ClassVar[str] = "BinPack"
    verb: ClassVar[str] = "bin-pack"
    work: ClassVar[str | None] = "pack"
    by: ClassVar[str] = " in order of "
    least_inputs: ClassVar[int] = 2


@dataclass(frozen=True, slots=True)
class Cluster(Rewrite):
    """Files sorted by the key that the policy declares, where they have drifted from it."""

    kind: ClassVar[str] = "Cluster"
    verb: ClassVar[str] = "cluster"


@dataclass(frozen=True, slots=True)
class Recluster(Rewrite):
    """Files sorted by the key that pays back under the recorded queries (WAIR)."""

    kind: ClassVar[str] = "Recluster"
    verb: ClassVar[str] = "recluster"
    rests_on_workload: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Restore(Rewrite):
    """Files of a plan that is taken back, in the order in which their rows lay before it."""

    kind: ClassVar[str] = "Restore"
    verb: ClassVar[str] = "lay back"


@dataclass(frozen=True, slots=True)
class ApplyDeletes(Rewrite):
    """Data files with many deleted rows, rewritten without these rows: a major compaction of
    "Petabyte-Scale Row-Level Operations in Data Lakehouses", section 5."""

    kind: ClassVar[str] = "ApplyDeletes"
    verb: ClassVar[str] = "apply deletes"
    work: ClassVar[str | None] = "pack"
    by: ClassVar[str] = " in order of "

    def judge(self, facts: Facts) -> ActionState:
        """Deletes added since the plan are applied with the others."""
        return super(ApplyDeletes, self).judge(replace(facts, changed=()))
