"""The documents as typed values: policies, table layouts and catalogs.

A field is annotated with its key in the document if that is not its camelCase form, and with its
quantity; nothing else defines how `document_codec` reads and prints it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated

from reconciler.api.choices import (
    Aggressiveness,
    ApprovalMode,
    CatalogType,
    ClusteringMode,
    Curve,
    DeleteCompaction,
    DeleteMode,
    DistributionMode,
    EngineType,
    FormatVersion,
    Literals,
    ManifestRewrite,
    MigrationRisk,
    PartitioningMode,
    PolicyEngineType,
    ReclusterMethod,
    ResultApproval,
    SourceType,
    TreeMethod,
    Verification,
)
from reconciler.api.pod_template import PodTemplate, Reference
from reconciler.api.prices import Prices

DEFAULT_NAMESPACE = "default"


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
class ReplicaSpec:
    """spec.layout.clustering.qdTree.replica: a second table with the same rows."""

    table: str
    """Its name, in the table's namespace."""
    budget_bytes: Annotated[int, "budgetBytes", "bytes"]
    """Bytes of storage that it may take."""


@dataclass(frozen=True, slots=True)
class QdTree:
    """spec.layout.clustering.qdTree: how trees of cuts are found."""

    method: TreeMethod = TreeMethod.AUTO
    """Whether, and by what, a greedy tree is improved."""
    steps: int | None = None
    """Attempts to grow a part of the tree better, or episodes; None: as many as usual."""
    least_rows: int | None = None
    """Rows that a leaf has at least; None: by the size of files."""
    block_column: str | None = None
    """Column that gets the number of each row's leaf; None for none."""
    replica: ReplicaSpec | None = None
    """A second table, laid out by another tree; None for none."""


@dataclass(frozen=True, slots=True)
class Clustering:
    """spec.layout.clustering: the order of rows."""

    mode: ClusteringMode
    """What chooses the order."""
    curve: Curve
    """How several declared keys are combined."""
    apply_to_writes: bool
    """Whether declared keys become the table's sort order."""
    keys: tuple[str, ...] = ()
    """Column names, most important first; empty unless mode is Declared."""
    qd_tree: QdTree | None = None
    """How trees are found; None for the defaults, and in other modes."""


@dataclass(frozen=True, slots=True)
class Files:
    """spec.layout.files: how large files are, and when they are merged."""

    target_bytes: Annotated[int | None, "targetSize", "size"]
    """Wanted bytes of a data file; None for Auto."""
    row_group_bytes: Annotated[int | None, "rowGroupSize", "size"]
    """Wanted bytes of a row group; None for Auto."""
    distribution_mode: DistributionMode
    """How writers distribute rows to tasks (the table's `write.distribution-mode`)."""
    min_input_files: int
    """Fewest small files that are worth a merge."""
    quiet_period_seconds: Annotated[int, "quietPeriod", "duration"]
    """Seconds without changes by other writers before a partition is rewritten."""


@dataclass(frozen=True, slots=True)
class PolicyLayout:
    partitioning: Partitioning
    clustering: Clustering
    files: Files


@dataclass(frozen=True, slots=True)
class Recluster:
    method: ReclusterMethod
    """What decides which files are rewritten: what-ifs, or the formulas of WAIR's paper alone."""
    aggressiveness: Aggressiveness
    """How much a rewrite must save for its cost, and how far it may be paid in advance."""


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
    """spec.safety: what is checked before the result of a rewrite is visible."""

    verify: Verification
    """How many of the written rows are compared with the rows read."""
    allow_live_branches: bool
    """Whether to rewrite tables that have branches other than main."""
    allow_other_optimizers: bool
    """Whether to rewrite tables that another program rewrites too."""
    approval: ResultApproval
    """Whether a batch stays on the branch until a person approves it."""
    branch: str | None = None
    """The branch on which results wait; set if and only if `check` is, or approval is required."""
    check: str | None = None
    """The query that each batch has to pass on the branch; None without one."""


@dataclass(frozen=True, slots=True)
class BudgetSpec:
    """One entry of spec.budgets: either a rolling window, or a schedule with a duration."""

    name: str
    """The budget's name, unique within the policy."""
    per_seconds: Annotated[int | None, "per", "duration"] = None
    """Length of the rolling window in seconds; None for a scheduled budget."""
    schedule: str | None = None
    """Cron expression of the times at which the budget opens; None for a rolling window."""
    time_zone: str | None = None
    """IANA name of the time zone of the schedule; None for UTC."""
    duration_seconds: Annotated[int | None, "duration", "duration"] = None
    """Seconds that a scheduled budget stays open; None for a rolling window."""
    max_rewrite_bytes: Annotated[int | None, "maxRewriteBytes", "bytes"] = None
    """Most bytes of input files that may be rewritten; None for no limit."""
    max_cpu_seconds: Annotated[int | None, "maxCpuTime", "duration"] = None
    """Most CPU seconds that rewrites may use; None for no limit."""


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
    driver: Driver
    executors: Executors
    max_concurrent_jobs: int
    type: PolicyEngineType | None = None


@dataclass(frozen=True, slots=True)
class CatalogEngine:
    type: EngineType | None = None


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """The spec of a TableLayoutPolicy."""

    catalog: Annotated[Reference, "catalogRef"]
    """The IcebergCatalog whose tables it selects."""
    tables: TableSelector
    """Patterns of the tables that it includes and excludes."""
    interval_seconds: Annotated[int, "interval", "duration"]
    """Seconds between two regular looks at each table."""
    suspend: bool
    """Whether the operator starts nothing new; a running job stops at its next commit boundary."""
    objectives: Objectives
    """Limits that a table has to meet to be Converged."""
    layout: PolicyLayout
    """The wanted partitioning, clustering and files."""
    recluster: Recluster
    """How readily data is rewritten for the queries."""
    deletes: Deletes
    """How deletes are written and compacted."""
    safety: Safety
    """What is checked before the result of a rewrite is visible."""
    approval: Approval
    """Whether a plan needs a person's approval."""
    engine: Engine
    """What runs the rewrites, and with which resources."""
    budgets: tuple[BudgetSpec, ...] = ()
    """Limits on bytes and CPU time; all of them apply."""
    recommend: Recommend | None = None
    """When to recommend a layout; None for never."""
    maintenance: Maintenance | None = None
    """Expiry of snapshots and removal of files; None leaves them to others."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a document was read; line is 1-based. Does not affect equality of documents."""

    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.file else "(built in)"


@dataclass(frozen=True, slots=True)
class TableLayoutPolicy:
    """A policy: the layout that its author wants for a set of tables."""

    name: str
    """The name of the object."""
    namespace: str
    """The namespace of the object."""
    spec: PolicySpec
    """What its author wrote, with defaults filled in."""
    created: str = ""
    """RFC 3339 time at which the API server stored it, "" for a document from a file."""
    origin: Origin = field(default=Origin(), compare=False)
    """The file and line that it was read from, for messages."""


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
    """The spec of a TableLayout: one table under one policy."""

    catalog: Annotated[Reference, "catalogRef"]
    """The IcebergCatalog that holds the table."""
    table: TableIdentifier
    """Namespace and name of the table."""
    policy: Annotated[PolicyReference, "policyRef"]
    """The policy that governs the table."""
    suspend: bool
    """Whether the operator starts nothing new on this table; a running job stops at its next commit
    boundary."""
    layout_hash: str | None = None
    """Hash of the part of the policy that determines a plan; None if the operator has not set
    it."""
    approved_plan: str | None = None
    """Id of the plan that a person approved; None without an approval."""


@dataclass(frozen=True, slots=True)
class TableLayout:
    """One table under its policy: the operator creates it, and a person approves its plans."""

    name: str
    """The name of the object."""
    namespace: str
    """The namespace of the object."""
    spec: TableLayoutSpec
    """The table, its policy and its approval."""
    created: str = ""
    """RFC 3339 time at which the API server stored it, "" for a document from a file."""
    origin: Origin = field(default=Origin(), compare=False)
    """The file and line that it was read from, for messages."""


@dataclass(frozen=True, slots=True)
class PlanStore:
    retention_seconds: Annotated[int, "retention", "duration"]
    uri: str | None = None


@dataclass(frozen=True, slots=True)
class System:
    namespace: tuple[str, ...]
    plans: PlanStore


@dataclass(frozen=True, slots=True)
class Jobs:
    service_account_name: str | None = None
    image: str | None = None
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    pod_template: PodTemplate | None = None


@dataclass(frozen=True, slots=True)
class WorkloadSource:
    """spec.workload.sources[]: one query log of the catalog."""

    name: str
    """Name of the source, unique in the catalog."""
    type: SourceType
    """Whether it is a query history or Spark's event log."""
    uri: str
    """File or directory of the log."""
    dialect: str | None = None
    """Dialect of the statements, None for that of the log's system."""
    format: str | None = None
    """Format of a query history, None to recognise that of each file."""
    map: Mapping[str, str] = field(default_factory=dict)
    """Names of fields in the records, by what they hold."""


@dataclass(frozen=True, slots=True)
class WorkloadSpec:
    """spec.workload: which query logs of the catalog are imported, and what is kept of them."""

    interval_seconds: Annotated[int, "interval", "duration"]
    """Seconds between two imports."""
    retention_seconds: Annotated[int, "retention", "duration"]
    """Seconds after which recorded queries are deleted."""
    literals: Literals
    """What is kept of the values in predicates."""
    exclude_columns: tuple[str, ...]
    """Columns whose values are never kept."""
    sources: tuple[WorkloadSource, ...] = ()
    """The logs to read."""


@dataclass(frozen=True, slots=True)
class CatalogSpec:
    """The spec of an IcebergCatalog."""

    type: CatalogType
    """The kind of catalog."""
    catalog_name: str
    """The name that pyiceberg and Spark use for it."""
    properties: Mapping[str, str] = field(repr=False)
    """Connection properties in pyiceberg's spelling: allowed ones only, without credentials."""
    interval_seconds: Annotated[int, "interval", "duration"]
    """Seconds between two listings of the catalog."""
    timeout_seconds: Annotated[int, "timeout", "duration"]
    """Seconds that one call to the catalog may take."""
    system: System
    """Where the reconciler keeps its own state."""
    engine: CatalogEngine
    """Who carries out plans, where a policy does not say so."""
    jobs: Jobs
    """The image and the account of Jobs for its tables."""
    workload: WorkloadSpec
    """Its query logs."""
    prices: Prices | None = None
    """What reading, computing and storing cost; None if nobody said."""
    secret: Annotated[Reference | None, "secretRef"] = None
    """The Secret with its credentials; None without one."""


@dataclass(frozen=True, slots=True)
class IcebergCatalog:
    """A catalog, and where its state and its query logs are."""

    name: str
    """The name of the object."""
    namespace: str
    """The namespace of the object."""
    spec: CatalogSpec
    """What its author wrote, with defaults filled in."""
    created: str = ""
    """RFC 3339 time at which the API server stored it, "" for a document from a file."""
    origin: Origin = field(default=Origin(), compare=False)
    """The file and line that it was read from, for messages."""


Document = TableLayoutPolicy | TableLayout | IcebergCatalog
