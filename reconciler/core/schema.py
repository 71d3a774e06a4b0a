"""The part of an Iceberg schema and partition spec that layout decisions need, without pyiceberg.

Columns are known by field id everywhere; names are only for people. A nested struct leaf has a
dotted name; elements of lists and maps have no usable bounds and are listed as not judged.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from reconciler.core.values import Kind, kind_of

UNKNOWN_TO_SPARK = ("time", "timestamp_ns", "timestamptz_ns", "geometry", "geography")
METADATA_COLUMNS = frozenset(
    ("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id",
     "_last_updated_sequence_number")
)  # fmt: skip
"""Names of what Iceberg's readers add to rows: a table's own columns of these names hide it."""


@dataclass(frozen=True, slots=True)
class Field:
    """A leaf column. type: Iceberg's string; repeated: it lies below a list or map."""

    field_id: int
    name: str
    type: str
    required: bool = False
    repeated: bool = False

    @property
    def kind(self) -> Kind | None:
        return None if self.repeated else kind_of(self.type)


@dataclass(frozen=True)
class Schema:
    """name_mapping: (path of names, field id) of the columns of files that were written without
    field ids ("Column Projection" of the Iceberg specification); () where the table has none."""

    schema_id: int
    fields: tuple[Field, ...]
    name_mapping: tuple[tuple[tuple[str, ...], int], ...] = ()

    @cached_property
    def by_id(self) -> dict[int, Field]:
        return {field.field_id: field for field in self.fields}

    @cached_property
    def by_name(self) -> dict[str, Field]:
        return {field.name: field for field in self.fields}

    def find(self, name: str) -> Field | None:
        """Exact name first, then case-insensitive when that is unambiguous."""
        exact = self.by_name.get(name)
        if exact is not None:
            return exact
        folded = [field for field in self.fields if field.name.lower() == name.lower()]
        return folded[0] if len(folded) == 1 else None

    @property
    def reserved(self) -> tuple[str, ...]:
        """Top-level columns that are named like metadata columns."""
        tops = dict.fromkeys(field.name.partition(".")[0] for field in self.fields)
        return tuple(name for name in tops if name in METADATA_COLUMNS)

    @property
    def ambiguous(self) -> tuple[str, ...]:
        """Columns whose names differ in case only: Spark, as it starts, cannot tell them apart."""
        # Fields are leaves: what they lie in is named by what their own names begin with.
        names = dict.fromkeys(
            ".".join(parts[:depth])
            for parts in (field.name.split(".") for field in self.fields)
            for depth in range(1, len(parts) + 1)
        )
        folded = Counter(name.lower() for name in names)
        return tuple(name for name in names if folded[name.lower()] > 1)

    @property
    def unwritable(self) -> tuple[Field, ...]:
        """Columns of types that Spark, which writes what is rewritten, has no counterpart of."""
        return tuple(
            field for field in self.fields if field.type.partition("(")[0] in UNKNOWN_TO_SPARK
        )

    def name_of(self, field_id: int) -> str:
        field = self.by_id.get(field_id)
        return field.name if field else f"(dropped column {field_id})"


@dataclass(frozen=True, slots=True)
class PartitionField:
    """transform: Iceberg's string form, e.g. "identity", "bucket[16]", "truncate[4]", "month"."""

    source_id: int
    field_id: int
    transform: str
    name: str


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    spec_id: int
    fields: tuple[PartitionField, ...] = ()

    @property
    def unpartitioned(self) -> bool:
        return all(field.transform == "void" for field in self.fields)


@dataclass(frozen=True, slots=True)
class SortColumn:
    """One column of a sort order or clustering key. direction: "asc" | "desc"."""

    field_id: int
    direction: str = "asc"
