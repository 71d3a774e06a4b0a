"""The values that fields of the documents choose from."""

from __future__ import annotations

from enum import StrEnum


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
    QD_TREE = "QdTree"
    DECLARED = "Declared"
    NONE = "None"


class TreeMethod(StrEnum):
    AUTO = "Auto"
    GREEDY = "Greedy"
    WOODBLOCK = "Woodblock"


class Curve(StrEnum):
    LEXICOGRAPHIC = "Lexicographic"
    HILBERT = "Hilbert"


class ReclusterMethod(StrEnum):
    ADAPTIVE = "Adaptive"
    LITERAL = "Literal"


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
    AUTO = "Auto"
    LOCAL = "Local"
    SPARK = "Spark"


class PolicyEngineType(StrEnum):
    AUTO = "Auto"
    LOCAL = "Local"
    SPARK = "Spark"
    EARLIER = "KubernetesJob"
    """What earlier versions stored where nobody chose: it counts as none."""


class CatalogType(StrEnum):
    REST = "rest"
    SQL = "sql"


class SourceType(StrEnum):
    SQL_LOG = "SqlLog"
    SPARK_EVENT_LOG = "SparkEventLog"


class Literals(StrEnum):
    KEEP = "Keep"
