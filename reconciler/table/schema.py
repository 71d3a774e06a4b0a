"""The part of an Iceberg schema and partition spec that layout decisions need, without pyiceberg.

Columns are identified by field id everywhere; names are only for people. A nested struct leaf has a
dotted name; elements of lists and maps have no usable bounds and are listed as not judged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from reconciler.table.values import Kind, kind_of

UNKNOWN_TO_SPARK = {
    "time": "long", "timestamp_ns": "timestamp", "timestamptz_ns": "timestamptz",
    "geometry": "binary", "geography": "binary",
}  # fmt: skip
"""Types that Spark does not have, each with one of Spark's whose values manifests hold in the same
form."""
METADATA_COLUMNS = frozenset(
    ("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id",
     "_last_updated_sequence_number")
)  # fmt: skip
"""Names of the columns that Iceberg's readers add to rows; a table's own columns of these names
hide them."""


@dataclass(frozen=True, slots=True)
class Field:
    """A leaf column."""

    field_id: int
    """Id of the column."""
    name: str
    """Its name; names of nested fields are joined by dots."""
    type: str
    """Its type in Iceberg's spelling."""
    required: bool = False
    """Whether it holds no NULL."""
    repeated: bool = False
    """Whether it is inside a list or map."""
    levels: tuple[str, ...] = ()
    """The names that `name` joins, if one of them contains a dot; () if none does."""

    @property
    def path(self) -> tuple[str, ...]:
        """Return the names from the top-level column down to this leaf."""
        return self.levels or tuple(self.name.split("."))

    @property
    def kind(self) -> Kind | None:
        return None if self.repeated else kind_of(self.type)


@dataclass(frozen=True)
class Schema:
    """name_mapping: (path of names, field id) of the columns of files that were written without
    field ids ("Column Projection" of the Iceberg specification); () if the table has none. alike:
    `names_alike`."""

    schema_id: int
    fields: tuple[Field, ...]
    name_mapping: tuple[tuple[tuple[str, ...], int], ...] = ()
    alike: tuple[str, ...] = ()

    @cached_property
    def by_id(self) -> dict[int, Field]:
        return {field.field_id: field for field in self.fields}

    @cached_property
    def by_name(self) -> dict[str, Field]:
        return {field.name: field for field in self.fields}

    @cached_property
    def _by_path(self) -> dict[tuple[str, ...], Field]:
        return {field.path: field for field in self.fields}

    def find(self, name: str) -> Field | None:
        """Return the field by exact name, else case-insensitively if that is unambiguous."""
        exact = self.by_name.get(name)
        if exact is not None:
            return exact
        folded = [field for field in self.fields if field.name.lower() == name.lower()]
        return folded[0] if len(folded) == 1 else None

    def at(self, path: Sequence[str]) -> Field | None:
        """Return the field whose names, level by level, are these, as `find` compares them.

        `("service.name",)` is a column, `("service", "name")` is a member of a struct.
        """
        exact = self._by_path.get(tuple(path))
        if exact is not None:
            return exact
        field = self.find(".".join(path))
        return field if field is not None and len(field.path) == len(path) else None

    @property
    def reserved(self) -> tuple[str, ...]:
        """Return the top-level columns that are named like metadata columns."""
        tops = dict.fromkeys(field.path[0] for field in self.fields)
        return tuple(name for name in tops if name in METADATA_COLUMNS)

    @property
    def unknown_to_spark(self) -> tuple[Field, ...]:
        """Return the columns of types that Spark does not have."""
        return tuple(
            field for field in self.fields if field.type.partition("(")[0] in UNKNOWN_TO_SPARK
        )

    def name_of(self, field_id: int) -> str:
        field = self.by_id.get(field_id)
        return field.name if field else f"(dropped column {field_id})"


def names_alike(body: Any, within: str = "") -> tuple[str, ...]:
    """Return columns, and fields of one struct, whose names differ only in case.

    Spark with its default settings cannot distinguish them. body: a schema or one of its types, as
    the Iceberg specification writes them in JSON ("Appendix C"); within: the name of the enclosing
    field, with a dot at its end.
    """
    if not isinstance(body, Mapping):
        return ()
    fields = body.get("fields", ())
    folded = Counter(str(field["name"]).lower() for field in fields)
    found = [f"{within}{f['name']}" for f in fields if folded[str(f["name"]).lower()] > 1]
    for field in fields:
        found += names_alike(field["type"], f"{within}{field['name']}.")
    for part in ("element", "key", "value"):
        found += names_alike(body.get(part), f"{within}{part}.")
    return tuple(found)


@dataclass(frozen=True, slots=True)
class PartitionField:
    """A field of a partition spec."""

    source_id: int
    """Field id of the column that it is computed from."""
    field_id: int
    """Its own id, 1000 or more."""
    transform: str
    """Its transform as the specification writes it, such as "identity", "bucket[16]" or "month"."""
    name: str
    """Its name in the spec."""


@dataclass(frozen=True, slots=True)
class SpecField:
    """A partition field that is wanted, by what it does: Iceberg gives its id and its name."""

    source_id: int
    transform: str

    @property
    def term(self) -> str:
        """Canonical form, without a name of a column: `bucket[16](4)`."""
        return f"{self.transform}({self.source_id})"

    def text(self, schema: Schema) -> str:
        """Return `bucket(16, id)`, as Spark and Trino write it; an identity is its column."""
        name = schema.name_of(self.source_id)
        function, _, argument = self.transform.partition("[")
        inside = f"{argument.rstrip(']')}, {name}" if argument else name
        return name if function == "identity" else f"{function}({inside})"


def spec_terms(fields: Iterable[SpecField]) -> tuple[str, ...]:
    return tuple(field.term for field in fields)


def lead_field(fields: Sequence[SpecField]) -> SpecField | None:
    """Return the first field whose transform keeps the order of values, None if none does: bounds
    of files then do not show in which partitions their rows are."""
    kept = ("identity", "truncate", "year", "month", "day", "hour")
    return next((f for f in fields if f.transform.partition("[")[0] in kept), None)


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    spec_id: int
    fields: tuple[PartitionField, ...] = ()

    @property
    def own_fields(self) -> tuple[SpecField, ...]:
        """Return what it partitions by: its fields without the void ones."""
        live = (field for field in self.fields if field.transform != "void")
        return tuple(SpecField(field.source_id, field.transform) for field in live)

    @property
    def unpartitioned(self) -> bool:
        return all(field.transform == "void" for field in self.fields)


@dataclass(frozen=True, slots=True)
class SortColumn:
    """One column of a sort order or clustering key."""

    field_id: int
    """Field id of the column."""
    direction: str = "asc"
    """"asc" or "desc"."""
