"""Reads the declared partition spec of a policy against the table that it is declared for.

Errors name the field of the policy that the table cannot have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from reconciler.advisor.advice import Migration
from reconciler.api.choices import PartitioningMode
from reconciler.api.documents import PartitionFieldSpec, TableLayoutPolicy
from reconciler.errors import KeyNotFoundError, UserError
from reconciler.plan.actions.partition_specs import wanted_spec_id
from reconciler.plan.execution import plan_of_file
from reconciler.plan.ledger import LedgerEntry, ReadCheck
from reconciler.plan.trial import trial_of
from reconciler.queries import transforms
from reconciler.queries.shape import Shape, Workload
from reconciler.table.observation import Observation
from reconciler.table.schema import Field, Schema, SpecField, spec_terms
from reconciler.table.writers import writers_of


def migration_of(
    policy: TableLayoutPolicy,
    observation: Observation,
    workload: Workload,
    entries: Sequence[LedgerEntry],
    checks: Sequence[ReadCheck],
) -> Migration | None:
    """Return the declared spec and who uses the table; None to keep the present spec.

    entries, checks: of the table, in which a trial is looked for.

    Raises UserError for a spec that the table cannot have.
    """
    declared = policy.spec.layout.partitioning
    if declared.mode is not PartitioningMode.DECLARED:
        return None
    fields = declared_fields(policy, observation.schema)
    accepted = frozenset(risk.value for risk in declared.accept)
    migration = migration_to(fields, observation, workload, accepted)
    if not declared.trial:
        return migration
    files = observation.files
    plans = {plan_of_file(str(path)) for path in files.path[files.spec_id == migration.spec_id]}
    return replace(migration, trial=True, tried=trial_of(entries, checks, plans))


def migration_to(
    fields: tuple[SpecField, ...],
    observation: Observation,
    workload: Workload,
    accepted: frozenset[str] = frozenset(),
) -> Migration:
    """Return the migration of a table to a spec, with what its history reports of its writers."""
    specs, present = observation.metadata.specs, observation.metadata.default_spec_id
    spec_id = wanted_spec_id(specs, present, spec_terms(fields))
    others = [item.summary for item in observation.ancestry if not item.ours]
    return Migration(
        fields=fields,
        spec_id=spec_id,
        exists=spec_id in specs,
        present=present,
        accepted=accepted,
        writers=writers_of(
            others,
            observation.operations,
            logged=_queries(workload, lambda batch: batch.merged),
            joins=_queries(workload, lambda batch: batch.grouped),
        ),
    )


def _queries(workload: Workload, share: Callable[[Shape], float]) -> int:
    """Return how many recorded queries are of a kind. share: of the weight of a shape."""
    return round(sum(float(batch.weight.sum()) * share(batch) for batch in workload.shapes))


def declared_fields(policy: TableLayoutPolicy, schema: Schema) -> tuple[SpecField, ...]:
    """Return spec.layout.partitioning.fields by the ids of their columns."""
    where = f"{policy.origin}: spec.layout.partitioning.fields"
    declared = policy.spec.layout.partitioning.fields or ()
    fields = tuple(
        SpecField(_column(f"{where}[{number}]", one, schema).field_id, one.transform)
        for number, one in enumerate(declared)
    )
    _refuse_redundant(where, fields, schema)
    return fields


def _column(where: str, wanted: PartitionFieldSpec, schema: Schema) -> Field:
    found = schema.find(wanted.column)
    if found is None:
        near = ", ".join(field.name for field in schema.fields[:12])
        raise KeyNotFoundError(
            f'{where}: the table has no column "{wanted.column}"',
            details=(f"It has {near}{' and more' if len(schema.fields) > 12 else ''}.",),
            do="name existing columns in spec.layout.partitioning.fields",
        )
    function, _ = transforms.parse(wanted.transform)
    if found.repeated or not transforms.partitions(function, found.type):
        raise UserError(
            f"{where}: {wanted.transform} cannot partition column "
            f'"{wanted.column}" of type {found.type}',
            details=(f"{function} takes {_types_of(function)}.",),
            do="choose another transform or another column",
        )
    return found


def _types_of(function: str) -> str:
    return ", ".join(transforms.PARTITIONED_TYPES[function])


def _refuse_redundant(where: str, fields: Sequence[SpecField], schema: Schema) -> None:
    """Raise for a field that is named twice, and for two times of one column: the finer one says
    all."""
    seen: dict[tuple[int, str], SpecField] = {}
    for field in fields:
        function = transforms.parse(field.transform)[0]
        kind = "time" if function in transforms.PERIODS else field.transform
        other = seen.setdefault((field.source_id, kind), field)
        if other is not field:
            raise UserError(
                f"{where}: {other.text(schema)} and {field.text(schema)} are redundant",
                details=("Iceberg refuses two partition fields of which one implies the other.",),
                do="keep one of them",
            )
