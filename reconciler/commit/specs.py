"""A partition spec beside the present ones, as Iceberg's own evolution of the default spec makes
it.

Ids and names of its fields follow `BaseUpdatePartitionSpec` of Apache Iceberg 1.12: a field that
some spec of the table had before gets its old id back, since readers compare partitions by it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from reconciler.commit.manifest import schema_of
from reconciler.plan.actions.partition_specs import next_spec_id
from reconciler.table.metadata import dotted_names
from reconciler.table.schema import SpecField, spec_terms

FieldBody = Mapping[str, Any]
"""A field of a spec as the specification writes it in JSON."""
VOID = "void"
SHORT = {"truncate": "trunc"}
"""Names of transforms in the names of fields, where they differ."""


class NameTaken(ValueError):
    """A field of the spec has the name that a new one would get."""


def added(metadata: Mapping[str, Any], wanted: Sequence[SpecField]) -> dict[str, Any]:
    """Return a spec of these fields in JSON, with the id that follows those of the table.

    In format 1 a field that goes leaves a void one in its place: its files hold no field ids.
    Raises NameTaken: no reader takes two fields of one name.
    """
    names = dotted_names(schema_of(metadata))
    default, first = default_spec(metadata), int(metadata["format-version"]) == 1
    fields: list[dict[str, Any]] = []
    present: set[SpecField] = set()
    for one in default["fields"]:
        own = _value(one)
        if own in wanted:
            present.add(own)
        if own in wanted or one["transform"] == VOID:
            fields.append(dict(one))
        elif first:
            fields.append({**one, "transform": VOID})
    kept = {str(one["name"]) for one in fields if one["transform"] != VOID}
    last = int(metadata["last-partition-id"])
    for field in wanted:
        if field in present:
            continue
        name = _name(names, field, kept)
        known = None if first else _before(metadata, field, name)
        last += known is None
        made = known or _body(field, name or names[field.source_id], last)
        _free(fields, str(made["name"]))
        if made["name"] in kept:
            raise NameTaken(str(made["name"]))
        fields.append(dict(made))
    numbers = [int(one["spec-id"]) for one in metadata["partition-specs"]]
    return {"spec-id": next_spec_id(numbers), "fields": fields}


def default_spec(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the spec that writers follow, in JSON."""
    return spec_of(metadata, int(metadata["default-spec-id"])) or {"fields": []}


def spec_of(metadata: Mapping[str, Any], spec_id: int) -> Mapping[str, Any] | None:
    """Return a spec in JSON, None if there is none of this id."""
    found = (one for one in metadata["partition-specs"] if int(one["spec-id"]) == spec_id)
    return next(found, None)


def text(spec: Mapping[str, Any]) -> str:
    """Return a spec as people write it."""
    own = (_value(one) for one in spec["fields"] if one["transform"] != VOID)
    return ", ".join(spec_terms(own)) or "unpartitioned"


def _value(one: FieldBody) -> SpecField:
    return SpecField(int(one["source-id"]), str(one["transform"]))


def _body(field: SpecField, name: str, number: int) -> dict[str, Any]:
    return {
        "source-id": field.source_id, "field-id": number, "name": name,
        "transform": field.transform,
    }  # fmt: skip


def _before(metadata: Mapping[str, Any], field: SpecField, name: str) -> FieldBody | None:
    """Return the field as a spec of the table had it before, None if none had it. name: "" for any
    name."""
    every = (one for spec in metadata["partition-specs"] for one in spec["fields"])
    found = (one for one in every if _value(one) == field and name in ("", one["name"]))
    return next(found, None)


def _name(names: Mapping[int, str], field: SpecField, kept: Collection[str]) -> str:
    """Return a name of the field that no column has, and no field that stays (kept); "" for the
    column's own."""
    function, _, argument = field.transform.partition("[")
    if function == "identity":
        return ""
    parts = [names[field.source_id], SHORT.get(function, function), argument.rstrip("]")]
    name = "_".join(part for part in parts if part)
    while name in names.values() or name in kept:
        name += "_part"
    return name


def _free(fields: Iterable[dict[str, Any]], name: str) -> None:
    """Rename a void field that has the name of a new one."""
    for one in fields:
        if one["name"] == name and one["transform"] == VOID:
            one["name"] = f"{name}_{one['field-id']}"
