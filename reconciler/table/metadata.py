"""What a table's metadata holds besides its files, as actions are judged by it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from reconciler.table.retention import NO_SNAPSHOTS, SnapshotLog

_TERM_COLUMN = re.compile(r"\((\d+)\) ")


@dataclass(frozen=True, slots=True)
class TableMetadata:
    """Read by `catalog.metadata` for plans, and by `spark.commit.metadata` for executions.

    sort_terms: the default sort order in canonical form (actions.set_sort_order.sort_term).
    format_version: of Apache Iceberg's table specification. specs: per partition spec the canonical
    forms of its fields (SpecField.term), void ones left out; default_spec_id: of the spec that
    writers follow. log: its snapshots and refs. orphans: paths of files that nobody refers to;
    unused_specs: ids of specs that no manifest of any snapshot has; None if they were not searched.
    orphans_refused: why no file may be removed as an orphan, "" if that is not known.
    columns: field ids of the current schema, None if they were not read.
    """

    properties: Mapping[str, str] = field(default_factory=dict)
    sort_terms: tuple[str, ...] = ()
    format_version: int = 2
    specs: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    default_spec_id: int = 0
    log: SnapshotLog = NO_SNAPSHOTS
    orphans: frozenset[str] | None = None
    unused_specs: frozenset[int] | None = None
    orphans_refused: str = ""
    columns: frozenset[int] | None = None

    def dropped(self, columns: Iterable[int]) -> int | None:
        """Return the first of these field ids that the schema does not have; None for none."""
        known = self.columns
        return None if known is None else next((one for one in columns if one not in known), None)

    @property
    def old_specs(self) -> tuple[int, ...]:
        """Return the ids of the specs that are neither the newest nor the one that writers follow,
        in ascending order."""
        newest = max(self.specs, default=0)
        return tuple(sorted(self.specs.keys() - {newest, self.default_spec_id}))

    @property
    def sorted_columns(self) -> frozenset[int]:
        """Return the field ids of the sort order's columns."""
        found = (_TERM_COLUMN.search(term) for term in self.sort_terms)
        return frozenset(int(match.group(1)) for match in found if match)
