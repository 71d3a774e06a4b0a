"""A table's metadata in the JVM: as values, and changed so that a catalog takes it for one state
alone."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from reconciler.plan.actions.set_sort_order import sort_term
from reconciler.plan.actions.state import Facts
from reconciler.spark.commit import specs
from reconciler.spark.session import iceberg
from reconciler.table.metadata import TableMetadata
from reconciler.table.retention import MAIN


def facts(table: Any) -> Facts:
    """Return what actions that change metadata are judged by, from the table as last refreshed."""
    version = iceberg.format_version(table)
    return Facts(
        metadata=TableMetadata(
            dict(table.properties()),
            sort_terms(table),
            version,
            specs.terms(table),
            int(table.spec().specId()),
            columns=frozenset(json.loads(table.schema().idToName().keySet().toString())),
            schema_id=int(table.schema().schemaId()),
        )
    )


def document(spark: Any, metadata: Any) -> dict[str, Any]:
    """Return table metadata in the JSON form of the specification: one call, however long it
    is."""
    parser = spark._jvm.org.apache.iceberg.TableMetadataParser
    return dict(json.loads(str(parser.toJson(metadata))))


def sort_terms(table: Any) -> tuple[str, ...]:
    """Return the table's sort order in canonical form (actions.sort_term)."""
    return terms_of(table.sortOrder())


def terms_of(order: Any) -> tuple[str, ...]:
    """Return the terms of an org.apache.iceberg.SortOrder."""
    return tuple(
        sort_term(
            str(part.transform().toString()),
            int(part.sourceId()),
            str(part.direction().name()),
            str(part.nullOrder().toString()),
        )
        for part in iceberg.each(order.fields())
    )


def hold(spark: Any, base: Any, builder: Any, names: Iterable[str] = (MAIN,)) -> None:
    """Have the catalog refuse the change that is built once one of these branches and tags has
    another snapshot than in `base`.

    A REST catalog compares only what the request requires, and Iceberg requires a ref's snapshot
    only where the request sets the ref (org.apache.iceberg.UpdateRequirements). So its retention is
    changed, and set back in the same request.
    """
    refs = spark._jvm.org.apache.iceberg.SnapshotRef
    for name in names:
        ref = base.ref(name)
        if ref is None:
            continue
        other = refs.builderFrom(ref)
        if ref.isBranch():
            other.minSnapshotsToKeep(1 + (ref.minSnapshotsToKeep() or 1))
        else:
            other.maxRefAgeMs(1 + (ref.maxRefAgeMs() or 1))
        builder.setRef(name, other.build())
        builder.setRef(name, ref)
