"""The documents as typed values: policies, table layouts and catalogs.

A value is made from a document that has passed validation, with the schema's defaults filled in;
`to_document` prints it back. A field is annotated with its key in the document if that is not its
camelCase form, and with its quantity; nothing else defines how a field is read.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, TypeVar

from reconciler.api.quantities import (
    format_bytes,
    format_decimal,
    format_duration,
    parse_bytes,
    parse_decimal,
    parse_duration,
)
from reconciler.api.schema import CATALOG, POLICY, TABLE_LAYOUT, spec_schema, with_defaults
from reconciler.api.version import API_VERSION

AUTO = "Auto"
DEFAULT_NAMESPACE = "default"


class PartitioningMode(StrEnum):
    KEEP = "Keep"
    DECLARED = "Declared"


class ClusteringMode(StrEnum):
    WORKLOAD_AWARE = "WorkloadAware"
    DECLARED = "Declared"
    NONE = "None"


class Curve(StrEnum):
    LEXICOGRAPHIC = "Lexicographic"
    HILBERT = "Hilbert"


class Aggressiveness(StrEnum):
    CONSERVATIVE = "Conservative"
    BALANCED = "Balanced"
    AGGRESSIVE = "Aggressive"


class DeleteMode(StrEnum):
    AUTO = "Auto"
    KEEP = "Keep"
    COPY_ON_WRITE = "CopyOnWrite"
    MERGE_ON_READ = "MergeOnRead"


class DeleteCompaction(StrEnum):
    AUTO = "Auto"
    MINOR = "Minor"
    MAJOR = "Major"
    HYBRID = "Hybrid"
    DISABLED = "Disabled"


class Verification(StrEnum):
    FULL = "Full"
    SAMPLED = "Sampled"
    COUNTS = "Counts"


class ApprovalMode(StrEnum):
    MANUAL = "Manual"
    AUTOMATIC = "Automatic"


class EngineType(StrEnum):
    KUBERNETES_JOB = "KubernetesJob"


class CatalogType(StrEnum):
    REST = "rest"
    SQL = "sql"


class SourceType(StrEnum):
    SQL_LOG = "SqlLog"
    SPARK_EVENT_LOG = "SparkEventLog"


class Literals(StrEnum):
    KEEP = "Keep"


def _size_or_auto(value: str | int) -> int | None:
    return None if value == AUTO else parse_bytes(value)


def _format_size_or_auto(value: int | None) -> str:
    return AUTO if value is None else format_bytes(value)


_QUANTITIES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "bytes": (parse_bytes, format_bytes),
    "duration": (parse_duration, format_duration),
    "decimal": (parse_decimal, format_decimal),
    "size": (_size_or_auto, _format_size_or_auto),
}


@dataclass(frozen=True, slots=True)
class TableSelector:
    include: tuple[str, ...]
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Objectives:
    """None: no objective. Percentages are whole numbers, 0 to 100."""

    max_scan_amplification: Annotated[Decimal | None, "maxScanAmplification", "decimal"] = None
    max_small_file_percent: int | None = None
    max_deleted_rows_percent: int | None = None
    max_file_count: int | None = None


@dataclass(frozen=True, slots=True)
class PartitionFieldSpec:
    """transform: Iceberg's string form, e.g. "identity", "month", "bucket[16]"."""

    column: str
    transform: str


@dataclass(frozen=True, slots=True)
class Partitioning:
    mode: PartitioningMode
    fields: tuple[PartitionFieldSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class Clustering:
    """keys: column names, most important first; empty unless mode is Declared."""

    mode: ClusteringMode
    curve: Curve
    apply_to_writes: bool
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Files:
    """target_bytes, row_group_bytes: None is Auto."""

    target_bytes: Annotated[int | None, "targetSize", "size"]
    row_group_bytes: Annotated[int | None, "rowGroupSize", "size"]
    min_input_files: int
    quiet_period_seconds: Annotated[int, "quietPeriod", "duration"]


@dataclass(frozen=True, slots=True)
class Layout:
    partitioning: Partitioning
    clustering: Clustering
    files: Files


@dataclass(frozen=True, slots=True)
class Recluster:
    aggressiveness: Aggressiveness


@dataclass(frozen=True, slots=True)
class Deletes:
    mode: DeleteMode
    compaction: DeleteCompaction


@dataclass(frozen=True, slots=True)
class Safety:
    verify: Verification
    allow_live_branches: bool


@dataclass(frozen=True, slots=True)
class BudgetSpec:
    """per_seconds, or schedule (cron), time_zone (None is UTC) and duration_seconds."""

    name: str
    per_seconds: Annotated[int | None, "per", "duration"] = None
    schedule: str | None = None
    time_zone: str | None = None
    duration_seconds: Annotated[int | None, "duration", "duration"] = None
    max_rewrite_bytes: Annotated[int | None, "maxRewriteBytes", "bytes"] = None
    max_cpu_seconds: Annotated[int | None, "maxCpuTime", "duration"] = None


@dataclass(frozen=True, slots=True)
class AutomaticUpTo:
    rewrite_bytes: Annotated[int, "rewriteBytes", "bytes"]


@dataclass(frozen=True, slots=True)
class Approval:
    mode: ApprovalMode
    plan_ttl_seconds: Annotated[int, "planTTL", "duration"]
    automatic_up_to: AutomaticUpTo | None = None
    approved_plans: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Driver:
    cores: int
    memory_bytes: Annotated[int, "memory", "bytes"]


@dataclass(frozen=True, slots=True)
class Executors:
    instances: int
    cores: int
    memory_bytes: Annotated[int, "memory", "bytes"]


@dataclass(frozen=True, slots=True)
class Engine:
    type: EngineType
    driver: Driver
    executors: Executors
    max_concurrent_jobs: int


@dataclass(frozen=True, slots=True)
class Reference:
    name: str


@dataclass(frozen=True, slots=True)
class PolicySpec:
    catalog: Annotated[Reference, "catalogRef"]
    tables: TableSelector
    interval_seconds: Annotated[int, "interval", "duration"]
    suspend: bool
    objectives: Objectives
    layout: Layout
    recluster: Recluster
    deletes: Deletes
    safety: Safety
    approval: Approval
    engine: Engine
    budgets: tuple[BudgetSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a document was read; line is 1-based. Does not affect equality of documents."""

    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.file else "(built in)"


@dataclass(frozen=True, slots=True)
class TableLayoutPolicy:
    """created: RFC 3339 creation time when the API server has stored it, else ""."""

    name: str
    namespace: str
    spec: PolicySpec
    created: str = ""
    origin: Origin = field(default=Origin(), compare=False)


@dataclass(frozen=True, slots=True)
class TableIdentifier:
    namespace: tuple[str, ...]
    name: str

    @property
    def levels(self) -> tuple[str, ...]:
        return (*self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class PolicyReference:
    name: str
    generation: int | None = None


@dataclass(frozen=True, slots=True)
class TableLayoutSpec:
    catalog: Annotated[Reference, "catalogRef"]
    table: TableIdentifier
    policy: Annotated[PolicyReference, "policyRef"]
    suspend: bool
    layout_hash: str | None = None
    approved_plan: str | None = None


@dataclass(frozen=True, slots=True)
class TableLayout:
    name: str
    namespace: str
    spec: TableLayoutSpec
    created: str = ""
    origin: Origin = field(default=Origin(), compare=False)


@dataclass(frozen=True, slots=True)
class PlanStore:
    retention_seconds: Annotated[int, "retention", "duration"]
    uri: str | None = None


@dataclass(frozen=True, slots=True)
class System:
    namespace: tuple[str, ...]
    plans: PlanStore


@dataclass(frozen=True, slots=True)
class Toleration:
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class PodSpec:
    """affinity: as Kubernetes writes it."""

    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    affinity: Mapping[str, Any] = field(default_factory=dict)
    priority_class_name: str | None = None
    image_pull_secrets: tuple[Reference, ...] = ()


@dataclass(frozen=True, slots=True)
class PodMetadata:
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConfigMapKey:
    name: str
    key: str


@dataclass(frozen=True, slots=True)
class VariableSource:
    config_map_key: Annotated[ConfigMapKey, "configMapKeyRef"]


@dataclass(frozen=True, slots=True)
class Variable:
    name: str
    value: str | None = None
    value_from: VariableSource | None = None


@dataclass(frozen=True, slots=True)
class PodTemplate:
    spec: PodSpec | None = None
    metadata: PodMetadata | None = None
    env: tuple[Variable, ...] = ()
    ca_bundle: Annotated[ConfigMapKey | None, "caBundle"] = None


@dataclass(frozen=True, slots=True)
class Jobs:
    service_account_name: str | None = None
    image: str | None = None
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    pod_template: PodTemplate | None = None


@dataclass(frozen=True, slots=True)
class WorkloadSource:
    name: str
    type: SourceType
    uri: str
    dialect: str | None = None


@dataclass(frozen=True, slots=True)
class WorkloadSpec:
    interval_seconds: Annotated[int, "interval", "duration"]
    retention_seconds: Annotated[int, "retention", "duration"]
    literals: Literals
    exclude_columns: tuple[str, ...]
    sources: tuple[WorkloadSource, ...] = ()


@dataclass(frozen=True, slots=True)
class CatalogSpec:
    """properties: pyiceberg's spelling, allowed ones only, without credentials."""

    type: CatalogType
    catalog_name: str
    properties: Mapping[str, str] = field(repr=False)
    interval_seconds: Annotated[int, "interval", "duration"]
    timeout_seconds: Annotated[int, "timeout", "duration"]
    system: System
    jobs: Jobs
    workload: WorkloadSpec
    secret: Annotated[Reference | None, "secretRef"] = None


@dataclass(frozen=True, slots=True)
class IcebergCatalog:
    name: str
    namespace: str
    spec: CatalogSpec
    created: str = ""
    origin: Origin = field(default=Origin(), compare=False)


Document = TableLayoutPolicy | TableLayout | IcebergCatalog

_CLASSES: dict[str, tuple[type[Any], type[Any]]] = {
    POLICY: (TableLayoutPolicy, PolicySpec),
    TABLE_LAYOUT: (TableLayout, TableLayoutSpec),
    CATALOG: (IcebergCatalog, CatalogSpec),
}

T = TypeVar("T")


def from_document(body: Mapping[str, Any], origin: Origin = Origin()) -> Document:
    """Return the typed value of a valid document. Raises KeyError or ValueError on an invalid
    one."""
    outer, inner = _CLASSES[body["kind"]]
    metadata = body["metadata"]
    spec = with_defaults(body["spec"], spec_schema(body["kind"]))
    value: Document = outer(
        name=metadata["name"],
        namespace=metadata.get("namespace") or DEFAULT_NAMESPACE,
        spec=_build(inner, spec),
        created=metadata.get("creationTimestamp") or "",
        origin=origin,
    )
    return value


def to_document(document: Document) -> dict[str, Any]:
    """Return the whole document with its defaults written out, ready for YAML or JSON."""
    metadata = {"name": document.name, "namespace": document.namespace}
    if document.created:
        metadata["creationTimestamp"] = document.created
    return {
        "apiVersion": API_VERSION,
        "kind": type(document).__name__,
        "metadata": metadata,
        "spec": _print(document.spec),
    }


def policy_document(policy: TableLayoutPolicy | PolicySpec) -> dict[str, Any]:
    """Return the spec of a policy as in a document, defaults written out."""
    spec = policy.spec if isinstance(policy, TableLayoutPolicy) else policy
    body: dict[str, Any] = _print(spec)
    return body


Field = tuple[str, str, str, Any]
"""(attribute, key, quantity, type) of one field of a dataclass."""


def document_fields(cls: Any) -> tuple[Field, ...]:
    """Return the fields of one of the dataclasses above, in the order of its document."""
    return _read_fields(cls)


@cache
def _read_fields(cls: Any) -> tuple[Field, ...]:
    hints = typing.get_type_hints(cls, include_extras=True)
    return tuple(_field(item.name, hints[item.name]) for item in dataclasses.fields(cls))


def _field(name: str, hint: Any) -> Field:
    if typing.get_origin(hint) is not Annotated:
        return name, _camel(name), "", hint
    bare, key, *quantity = typing.get_args(hint)
    return name, key, quantity[0] if quantity else "", bare


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _build(cls: type[T], body: Mapping[str, Any]) -> T:
    given = {
        attribute: _QUANTITIES[quantity][0](body[key]) if quantity else _value(hint, body[key])
        for attribute, key, quantity, hint in document_fields(cls)
        if key in body
    }
    return cls(**given)


def _value(hint: Any, value: Any) -> Any:
    origin = typing.get_origin(hint)
    if origin is types.UnionType:  # X | None
        return _value(next(t for t in typing.get_args(hint) if t is not types.NoneType), value)
    if origin is tuple:
        return tuple(_value(typing.get_args(hint)[0], item) for item in value)
    if origin is Mapping:
        return dict(value)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _build(hint, value)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return hint(value)
    return value


def _print(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        body = {}
        for attribute, key, quantity, _ in document_fields(type(value)):
            item = getattr(value, attribute)
            absent = item == () or item == {} or (item is None and quantity != "size")
            if not absent:
                body[key] = _QUANTITIES[quantity][1](item) if quantity else _print(item)
        return body
    if isinstance(value, tuple):
        return [_print(item) for item in value]
    if isinstance(value, StrEnum):
        return value.value
    return dict(value) if isinstance(value, Mapping) else value
