"""The documents as typed values: policies, table layouts and catalogs.

A field is annotated with its key in the document if that is not its camelCase form, and with its
quantity; nothing else defines how `document_codec` reads and prints it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any

DEFAULT_NAMESPACE = "default"


class PartitioningMode(StrEnum):
    KEEP = "Keep"
    DECLARED = "Declared"


class MigrationRisk(StrEnum):
    EQUALITY_DELETES = "EqualityDeletes"
    DYNAMIC_OVERWRITES = "DynamicOverwrites"
    MERGES = "Merges"
    STORAGE_PARTITIONED_JOINS = "StoragePartitionedJoins"
    UNNAMED_WRITERS = "UnnamedWriters"


class DistributionMode(StrEnum):
    AUTO = "Auto"
    NONE = "None"
    HASH = "Hash"
    RANGE = "Range"


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


class FormatVersion(StrEnum):
    KEEP = "Keep"
    AUTO = "Auto"
    UPGRADE = "Upgrade"


class ManifestRewrite(StrEnum):
    AUTO = "Auto"


class Verification(StrEnum):
    FULL = "Full"
    SAMPLED = "Sampled"
    COUNTS = "Counts"


class ResultApproval(StrEnum):
    NOT_REQUIRED = "NotRequired"
    REQUIRED = "Required"


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
    """fields: None unless mode is Declared; () declares an unpartitioned table."""

    mode: PartitioningMode
    fields: tuple[PartitionFieldSpec, ...] | None = None
    accept: tuple[MigrationRisk, ...] = ()
    trial: bool | None = None


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
    distribution_mode: DistributionMode
    min_input_files: int
    quiet_period_seconds: Annotated[int, "quietPeriod", "duration"]


@dataclass(frozen=True, slots=True)
class PolicyLayout:
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
    format_version: FormatVersion


@dataclass(frozen=True, slots=True)
class Recommend:
    """interval_seconds: between two recommendations. sample_bytes: most bytes read for one."""

    interval_seconds: Annotated[int, "interval", "duration"]
    sample_bytes: Annotated[int, "sampleBytes", "bytes"]


@dataclass(frozen=True, slots=True)
class SnapshotExpiry:
    """older_than_seconds: younger snapshots stay. retain_last: of each branch, whatever their
    age."""

    older_than_seconds: Annotated[int, "olderThan", "duration"]
    retain_last: int


@dataclass(frozen=True, slots=True)
class OrphanRemoval:
    """age_seconds: younger files stay. prefix: below the table's location, None for all."""

    age_seconds: Annotated[int, "olderThan", "duration"]
    prefix: str | None = None


@dataclass(frozen=True, slots=True)
class SpecRemoval:
    """unused_seconds: for so long no file of the spec may have existed."""

    unused_seconds: Annotated[int, "unusedFor", "duration"]


@dataclass(frozen=True, slots=True)
class Maintenance:
    """None: it is left to others."""

    expire_snapshots: SnapshotExpiry | None = None
    remove_orphans: OrphanRemoval | None = None
    remove_specs: SpecRemoval | None = None
    rewrite_manifests: ManifestRewrite | None = None


@dataclass(frozen=True, slots=True)
class Safety:
    """approval: whether a batch stays on the branch until a person approves it. branch: set if
    and only if check is, or approval is required."""

    verify: Verification
    allow_live_branches: bool
    approval: ResultApproval
    branch: str | None = None
    check: str | None = None


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
    layout: PolicyLayout
    recluster: Recluster
    deletes: Deletes
    safety: Safety
    approval: Approval
    engine: Engine
    budgets: tuple[BudgetSpec, ...] = ()
    recommend: Recommend | None = None
    maintenance: Maintenance | None = None


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
