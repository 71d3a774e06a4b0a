"""Measures what queries read from a layout, in planned bytes, template by template.

Planned bytes are the projected column chunks of surviving row groups plus footers, over the footers
of all files: what an engine that prunes like Iceberg has to read, independent of caches and clocks.
The same queries can be measured on any layout of the same rows, which is how the demo compares
before, after, and Iceberg's own sort. Spark's own count of files is shown beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog.footers import read_row_groups
from reconciler.catalog.observe import observe_table
from reconciler.demo.tpch import Query
from reconciler.queries.fragments import Fragment, workload_of_fragments
from reconciler.queries.read_cost import read_shape
from reconciler.queries.table_view import TableView, table_view
from reconciler.table.schema import Schema
from reconciler.workload_log.sql import SqlReader
from reconciler.workload_log.tables import KnownTable, SchemaMap

DIALECT = "spark"


@dataclass(frozen=True, slots=True)
class Reading:
    """Planned bytes and data files of one execution, over all tables measured."""

    bytes: float
    files: float


Views = Mapping[str, TableView]
"""Fact tables as scans see them, by the name that queries use."""


def views_of(config: CatalogConfig, tables: Mapping[str, tuple[str, ...]], cache: Path) -> Views:
    """Return the tables as they are laid out now, with every footer. tables: name in queries ->
    identifier."""
    views = {}
    for name, identifier in tables.items():
        seen = observe_table(config, identifier, cache)
        every = np.arange(len(seen.files), dtype=np.int64)
        groups = read_row_groups(config, seen.files, every)
        views[name] = table_view(seen.files, groups, None, row_group_bytes=128 << 20)
    return views


def readings(views: Views, queries: Sequence[Query], others: Mapping[str, Schema]) -> list[Reading]:
    """Return, per query in order, what it reads from the tables. others: schemas that it joins."""
    total = [np.zeros(len(queries)), np.zeros(len(queries))]
    for name, fragments in _fragments(views, queries, others).items():
        for batch in workload_of_fragments(fragments).shapes:
            read = read_shape(views[name], batch)
            # Fragments carry the query's number as their event time, and batches keep that order.
            np.add.at(total[0], batch.event_ms, read.bytes)
            np.add.at(total[1], batch.event_ms, read.files)
    return [Reading(float(size), float(files)) for size, files in zip(*total, strict=True)]


def _fragments(
    views: Views, queries: Sequence[Query], others: Mapping[str, Schema]
) -> dict[str, list[Fragment]]:
    """Return the queries' fragments on each table of the layout, read from their SQL."""
    schemas = {name: view.files.schema for name, view in views.items()}
    known: dict[tuple[str, ...], KnownTable] = {
        (name,): KnownTable(name, name, schema) for name, schema in {**others, **schemas}.items()
    }
    reader = SqlReader(DIALECT, SchemaMap(known))
    found: dict[str, list[Fragment]] = {name: [] for name in schemas}
    for number, query in enumerate(queries):
        reads = reader.extract(query.sql, event_ms=number)
        for place, read in enumerate(reads if isinstance(reads, list) else ()):
            if read.table.name in found:
                found[read.table.name].append(replace(read.fragment, position=place))
    return found
