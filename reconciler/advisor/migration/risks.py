"""Reasons not to move a table to another partition spec, each with its evidence and its remedy.

Deleted rows come back, and rows appear twice, where writers assume one spec: an equality delete
applies only to files of its own spec and partition, and a dynamic overwrite replaces only
partitions of the present one. Some risks can be accepted by name in the policy, by somebody who
knows the writers; the others cannot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from reconciler.advisor.advice import Migration
from reconciler.format import plural
from reconciler.plan.actions.partition_specs import DYNAMIC_OVERWRITES, EQUALITY_DELETES
from reconciler.table.deletes import DeleteTable
from reconciler.table.filetable import Bool, FileTable
from reconciler.table.times import DAY_MS

RECENT_MS = 30 * DAY_MS
"""Writers of equality deletes are expected again for so long."""


@dataclass(frozen=True, slots=True)
class Risk:
    """Something that a migration to the declared partition spec may break."""

    name: str
    """Name in spec.layout.partitioning.accept; "" if the risk cannot be accepted."""
    evidence: str
    """What was found in the table, for people."""
    do: str
    """What a person can do about it."""

    def text(self) -> str:
        accept = f", or accept {self.name}" if self.name else ""
        return f"{self.evidence}; {self.do}{accept}"


@dataclass(frozen=True)
class _Facts:
    """What the checks look at."""

    table: FileTable
    """The table's data files."""
    deletes: DeleteTable
    """Its delete files."""
    format_version: int
    """Its format version."""
    migration: Migration
    """The declared partition spec, and what is known of the table's writers."""
    now_ms: int
    """Time of the decision in epoch milliseconds."""


def risks(
    table: FileTable,
    deletes: DeleteTable,
    format_version: int,
    migration: Migration,
    now_ms: int,
) -> tuple[Risk, ...]:
    """Return every risk of the migration, accepted ones too."""
    facts = _Facts(table, deletes, format_version, migration, now_ms)
    found = (check(facts) for check in CHECKS)
    return tuple(risk for risk in found if risk is not None)


def other_specs(table: FileTable, migration: Migration) -> Bool:
    """Return bool[files]: those of a spec that divides rows in another way than the declared."""
    wanted = set(migration.fields)
    same = [number for number, spec in table.specs.items() if set(spec.own_fields) == wanted]
    return ~np.isin(table.spec_id, same)


def hindrances(found: tuple[Risk, ...], migration: Migration) -> tuple[Risk, ...]:
    """Return the risks that nobody has accepted."""
    return tuple(risk for risk in found if risk.name not in migration.accepted)


def _format(facts: _Facts) -> Risk | None:
    if facts.format_version > 1:
        return None
    return Risk(
        "",
        "format version 1 keeps dropped partition fields, which breaks pyiceberg's appends",
        "upgrade the table to format version 2 first",
    )


def _dropped(facts: _Facts) -> Risk | None:
    """Files whose partition Iceberg can no longer write."""
    known, table = facts.table.schema.by_id, facts.table
    broken = [
        number
        for number, spec in table.specs.items()
        if any(field.source_id not in known for field in spec.own_fields)
    ]
    files = int(np.isin(table.spec_id, broken).sum())
    if not files:
        return None
    return Risk(
        "",
        f"{plural(files, 'file')} of a partition spec whose column was dropped cannot be rewritten",
        "write these rows anew (INSERT OVERWRITE) first",
    )


def _alive(facts: _Facts) -> Risk | None:
    alive = int(facts.deletes.equality.sum())
    if not alive or not facts.migration.fields:
        return None
    return Risk(
        "",
        f"{plural(alive, 'equality delete file')} would not apply to files of another spec",
        "have them applied first (spec.deletes.compaction: Hybrid)",
    )


def _upserts(facts: _Facts) -> Risk | None:
    last = facts.migration.writers.equality_ms
    if last is None or not facts.migration.fields or facts.now_ms - last > RECENT_MS:
        return None
    days = plural(max(0, facts.now_ms - last) // DAY_MS, "day")
    return Risk(
        EQUALITY_DELETES,
        f"a writer added equality deletes {days} ago: its next ones miss rows of the old spec",
        "stop it until the migration is complete",
    )


def _overwrites(facts: _Facts) -> Risk | None:
    replaced = facts.migration.writers.replaced
    if not replaced:
        return None
    return Risk(
        DYNAMIC_OVERWRITES,
        f"{plural(replaced, 'commit')} replaced partitions dynamically, which doubles rows that "
        "files of the old spec hold",
        "let the job overwrite by a filter",
    )


def _merges(facts: _Facts) -> Risk | None:
    writers = facts.migration.writers
    places = ((writers.merges, "the history"), (writers.logged, "the query log"))
    seen = [f"{plural(count, 'MERGE')} in {place}" for count, place in places if count]
    if not seen:
        return None
    return Risk(
        "Merges",
        f"{' and '.join(seen)}: with a storage-partitioned join it may fail or shuffle everything "
        "while two specs have files",
        "set spark.sql.sources.v2.bucketing.enabled=false for the job",
    )


def _joins(facts: _Facts) -> Risk | None:
    joins = facts.migration.writers.joins
    if not joins:
        return None
    return Risk(
        "StoragePartitionedJoins",
        f"{plural(joins, 'query', 'queries')} read the table grouped by partition, for a join "
        "without a shuffle, which two specs or another one end",
        "declare the same partitioning for the other tables",
    )


def _unnamed(facts: _Facts) -> Risk | None:
    """Writers like pyiceberg, which cannot write every spec."""
    unnamed, schema = facts.migration.writers.unnamed, facts.table.schema
    names = [schema.name_of(field.source_id) for field in facts.migration.fields]
    nested = [name for name in names if "." in name]
    if not unnamed or (facts.format_version < 3 and not nested):
        return None
    what = "format version 3" if facts.format_version >= 3 else f"partitions of {nested[0]}"
    return Risk(
        "UnnamedWriters",
        f"{plural(unnamed, 'commit')} of a writer that names no engine, as pyiceberg, which "
        f"cannot write {what}",
        "let another engine write the table",
    )


CHECKS: tuple[Callable[[_Facts], Risk | None], ...] = (
    _format, _dropped, _alive, _upserts, _overwrites, _merges, _joins, _unnamed,
)  # fmt: skip
