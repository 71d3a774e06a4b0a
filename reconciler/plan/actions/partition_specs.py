"""Partition specs added to a table, and made the one that writers follow: changes of metadata.

The wanted spec is added without being the default, so that files can be moved into its partitions
while writers go on; then the writers are switched. Both compare specs by their fields, whatever
their order: a table that goes back to an earlier spec uses that spec again.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from reconciler.plan.actions.base import Action
from reconciler.plan.actions.state import ActionState, Facts, Validity, with_columns
from reconciler.table.schema import PartitionSpec, Schema, SpecField, spec_terms

EQUALITY_DELETES, DYNAMIC_OVERWRITES = "EqualityDeletes", "DynamicOverwrites"
"""Risks that a policy may accept (spec.layout.partitioning.accept), of those that a later commit
may bring."""
ADDED_BY_EQUALITY = ("added-equality-deletes", "added-equality-delete-files")
"""Keys of a snapshot's summary that count equality deletes which it added."""


def fields_canonical(fields: Sequence[SpecField]) -> list[dict[str, Any]]:
    return [{"sourceId": field.source_id, "transform": field.transform} for field in fields]


def fields_from_canonical(body: Mapping[str, Any]) -> tuple[SpecField, ...]:
    """Return the fields of a canonical form, () where it has none: an unpartitioned spec."""
    return tuple(SpecField(one["sourceId"], one["transform"]) for one in body.get("fields", []))


def same_spec(terms: Iterable[str] | None, fields: Sequence[SpecField]) -> bool:
    """Whether a spec of these terms divides rows as wanted, in whatever order it names fields."""
    return terms is not None and set(terms) == set(spec_terms(fields))


def wanted_spec_id(specs: Mapping[int, Iterable[str]], default: int, wanted: Iterable[str]) -> int:
    """Return the id of the spec with the wanted terms; if there is none, the id that Iceberg gives
    to the next new spec."""
    terms = set(wanted)
    if default in specs and set(specs[default]) == terms:
        return default
    known = [number for number, own in specs.items() if set(own) == terms]
    return max(known) if known else next_spec_id(specs)


def next_spec_id(specs: Iterable[int]) -> int:
    """Return the id that Iceberg gives to a new spec, as of org.apache.iceberg.TableMetadata."""
    return max(specs, default=-1) + 1


def fields_text(fields: Sequence[SpecField], schema: Schema) -> str:
    """Return `day(ts), bucket(16, id)`, "unpartitioned" without fields."""
    return ", ".join(field.text(schema) for field in fields) or "unpartitioned"


@dataclass(frozen=True, slots=True)
class SpecChange(Action, ABC):
    """A change of the table's partition specs, in its metadata alone."""

    spec_id: int = 0
    """Id of the wanted spec, known before the spec exists."""
    fields: tuple[SpecField, ...] = ()
    """Fields of the wanted spec, () for none."""
    old: int = 0
    """Id of the default spec when it was planned."""
    accepted: tuple[str, ...] = ()
    """Names of the risks that the policy accepts, sorted."""

    def canonical(self) -> dict[str, Any]:
        body = {
            "type": self.kind,
            "specId": self.spec_id,
            "fields": fields_canonical(self.fields),
            "specOld": self.old,
        }
        return body | ({"accepted": list(self.accepted)} if self.accepted else {})

    @classmethod
    def from_canonical(cls, body: Mapping[str, Any]) -> Self:
        return cls(
            body.get("specId", 0),
            fields_from_canonical(body),
            body.get("specOld", 0),
            tuple(sorted(body.get("accepted", []))),
        )

    def _pending(self, facts: Facts) -> ActionState:
        needed = (field.source_id for field in self.fields)
        return with_columns(ActionState(Validity.PENDING), facts, needed)

    def danger(self, summaries: Iterable[Mapping[str, str]]) -> str:
        """Return what other writers' commits since the plan speak against it, "" for nothing:
        `advisor.migration.risks` has looked at those before. summaries: of their snapshots."""
        for summary in summaries:
            added = any(summary.get(name, "0") != "0" for name in ADDED_BY_EQUALITY)
            if added and self.fields and EQUALITY_DELETES not in self.accepted:
                return "a writer added equality deletes since"
            replaced = summary.get("replace-partitions") == "true"
            if replaced and DYNAMIC_OVERWRITES not in self.accepted:
                return "a writer replaced whole partitions since"
        return ""


@dataclass(frozen=True, slots=True)
class AddSpec(SpecChange):
    """The declared spec exists; writers follow the old one until they are switched."""

    kind: ClassVar[str] = "AddSpec"
    verb: ClassVar[str] = "add partition spec"

    def judge(self, facts: Facts) -> ActionState:
        specs = facts.metadata.specs
        if same_spec(specs.get(self.spec_id), self.fields):
            return ActionState(Validity.DONE, why="the spec exists")
        if self.spec_id in specs or next_spec_id(specs) != self.spec_id:
            return ActionState(Validity.LOST, why="the table's specs were changed by someone else")
        return self._pending(facts)

    def label(self, schema: Schema, specs: Mapping[int, PartitionSpec]) -> str:
        return f"{self.verb} {fields_text(self.fields, schema)} (writers keep the present one)"


@dataclass(frozen=True, slots=True)
class SwitchSpec(SpecChange):
    """The declared spec becomes the default one, by which every writer then partitions."""

    kind: ClassVar[str] = "SwitchSpec"
    verb: ClassVar[str] = "switch writers"

    def judge(self, facts: Facts) -> ActionState:
        specs, default = facts.metadata.specs, facts.metadata.default_spec_id
        known = specs.get(self.spec_id)
        if known is not None and not same_spec(known, self.fields):
            return ActionState(Validity.LOST, why=f"spec {self.spec_id} is another one now")
        if default == self.spec_id:
            return ActionState(Validity.DONE, why="writers follow the spec")
        if default != self.old:
            return ActionState(Validity.LOST, why="the default spec was changed by someone else")
        return self._pending(facts)

    def label(self, schema: Schema, specs: Mapping[int, PartitionSpec]) -> str:
        return f"{self.verb} to partition spec {fields_text(self.fields, schema)} after the files"
