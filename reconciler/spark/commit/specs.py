"""Partition specs in the JVM: read as values, and the metadata with another one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from reconciler.spark.session import iceberg
from reconciler.table.schema import SpecField, spec_terms


def fields_of(spec: Any) -> tuple[SpecField, ...]:
    """Return what a spec (org.apache.iceberg.PartitionSpec) partitions by, void fields left out."""
    return tuple(
        SpecField(int(field.sourceId()), str(field.transform().toString()))
        for field in iceberg.each(spec.fields())
        if not field.transform().isVoid()
    )


def added(spark: Any, table: Any, base: Any, wanted: Sequence[SpecField]) -> Any:
    """Return the metadata `base` (org.apache.iceberg.TableMetadata) with a spec of these fields
    beside the present ones; writers keep the default one.

    Field ids and names are those that Iceberg's own evolution of the default spec gives.
    """
    update, schema, present = table.updateSpec(), table.schema(), set()
    kept = set[str]()
    for field in iceberg.each(table.spec().fields()):
        own = SpecField(int(field.sourceId()), str(field.transform().toString()))
        if own in wanted:
            present.add(own)
            kept.add(str(field.name()))
        elif not field.transform().isVoid():
            update.removeField(str(field.name()))
    for field in wanted:
        if field not in present:
            update.addField(_name(schema, field, kept), _term(spark, schema, field))
    return base.addPartitionSpec(update.apply())


def _term(spark: Any, schema: Any, field: SpecField) -> Any:
    """Return the org.apache.iceberg.expressions.Term of a field."""
    make = spark._jvm.org.apache.iceberg.expressions.Expressions
    column = str(schema.findColumnName(field.source_id))
    function, _, argument = field.transform.partition("[")
    if function == "identity":
        return make.ref(column)
    if argument:
        return getattr(make, function)(column, int(argument.rstrip("]")))
    return getattr(make, function)(column)


def _name(schema: Any, field: SpecField, kept: Collection[str]) -> Any:
    """Return a name of the field that no column has, and no field that stays (kept); None for
    Iceberg's own."""
    column = str(schema.findColumnName(field.source_id))
    function, _, argument = field.transform.partition("[")
    if function == "identity":
        return None
    short = "trunc" if function == "truncate" else function
    name = "_".join([column, short, *([argument.rstrip("]")] if argument else [])])
    while schema.findField(name) is not None or name in kept:
        name += "_part"
    return name


def text(spec: Any) -> str:
    """Return a spec (org.apache.iceberg.PartitionSpec) in its canonical terms."""
    return ", ".join(spec_terms(fields_of(spec))) or "unpartitioned"


def terms(table: Any) -> dict[int, tuple[str, ...]]:
    """Return what each spec of the table partitions by, by its id."""
    every = iceberg.java_values(table.specs())
    return {int(spec.specId()): spec_terms(fields_of(spec)) for spec in every}
