"""Why a file is or is not rewritten: the reasons, as constants and as sentences.

Decisions attach one of these constants to every candidate they reject; `plan` prints them under
"CONSIDERED, NOT DONE", `explain` per file. Numbers are passed in; nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Sequence

from reconciler.plan.sentence import Sentence, sentence
from reconciler.table.schema import PartitionField, PartitionSpec, Schema
from reconciler.table.values import Scalar, show

NO_WORKLOAD = "NoWorkload"
LOW_COVERAGE = "LowCoverage"
NO_SAMPLE = "NoSample"
NO_TREE = "NoTree"
NOT_INSTALLED = "PackageNotInstalled"
NO_BLOCK_IDS = "NoBlockIds"
NOT_CUT = "NotCut"
NO_REPLICA = "NoReplica"
REPLICA_WAITS = "ReplicaWaits"
NOT_PRUNABLE = "NotPrunable"
WELL_CLUSTERED = "WellClustered"
WINDOW_MOVED = "WindowMovedPast"
BELOW_COST = "BelowCost"
BELOW_FLOOR = "BelowFloor"
RECENTLY_WRITTEN = "RecentlyWritten"
GROWS_TOO_LITTLE = "GrowsTooLittle"
NOTHING_NEW = "NothingNew"
DEBT = "OverDebtLimit"
ALLOWANCE = "OverAllowance"
NOT_EARNED = "NotEarnedYet"
RAISES_READS = "RaisesReads"
OTHER_KEY = "OtherKeyIsBetter"
QUIET_PERIOD = "QuietPeriod"
TOO_FEW_FILES = "TooFewSmallFiles"
DRIFT_WAITS = "DriftWaits"
NOT_REWRITABLE = "NotRewritable"
REFUSED_FILES = "RefusedFiles"
UNDONE = "Undone"
ALREADY_CHOSEN = "InputsAlreadyChosen"
FEW_DELETED = "FewDeletedRows"
FEW_DELETE_FILES = "FewDeleteFiles"
NOT_DUE = "MaintenanceNotDue"
COMPACTION_OFF = "CompactionOff"
COMPACTED_ELSEWHERE = "CompactedElsewhere"
UPGRADE_UNPAID = "UpgradeDoesNotPay"
NOT_REMOVABLE = "NotRemovable"
LEFT_TO_SERVICE = "LeftToService"
NOT_PROVEN = "NotProven"
SPEC_IN_USE = "SpecInUse"
SAME_AGAIN = "SameAgain"
LARGER_THAN_BUDGET = "LargerThanBudget"
MIGRATION_REFUSED = "MigrationRefused"
TRIAL_FIRST = "TrialFirst"
NO_TRIAL = "NoTrialPossible"
BRANCH_WAITS = "BranchWaits"
CATALOG_POLICY = "CatalogPolicy"

MATCHES_MOST = "the queries match nearly every row: no layout can skip anything"
NOT_ANALYSED = "none of the queries could be analysed: each counts as a scan of the whole table"
NO_CONDITION = (
    "no query has a condition on this table that files could be skipped by; conditions on "
    "expressions do not count"
)
CONDITION_ELSEWHERE = (
    "the queries have conditions on other tables only, which this one is joined with: they skip "
    "none of its files"
)
READS_LITTLE = "the queries that a layout could serve read too little beside the others"
NO_ORDERED_COLUMN = "all conditions are on columns whose values have no order"
"""The sentences of NOT_PRUNABLE."""
OF_QUERIES = {
    MATCHES_MOST: " match nearly every row",
    NOT_ANALYSED: " could not be analysed and count as scans of the whole table",
    NO_CONDITION: " have no condition on this table that files could be skipped by",
    CONDITION_ELSEWHERE: " have conditions on joined tables only",
    READS_LITTLE: " could skip files, but read too little beside the others",
}
"""What is said of some of the queries, where others are of another kind."""


SENTENCES = {
    NO_WORKLOAD: "no queries are known for this table, so no workload-aware action",
    LOW_COVERAGE: "the fragments explain too little of the recorded bytes",
    NO_TREE: "no sample of its files is known, no cut of the queries leaves enough rows on both "
    "sides, or Spark has to write the table",
    NOT_INSTALLED: "a package is not installed",
    NO_BLOCK_IDS: "rows of the trees get no block ids",
    NOT_CUT: "bounds of files say nothing of these conditions",
    NO_REPLICA: "the table cannot have a replica, or none helps",
    REPLICA_WAITS: "files of the table are rewritten first; a later plan sees what they leave",
    NO_SAMPLE: "column bounds do not show a saving; a sample of its files might",
    NOT_PRUNABLE: MATCHES_MOST,
    WELL_CLUSTERED: "no file is only partly needed: the layout already serves the queries",
    WINDOW_MOVED: "the queries stop reading this data before a rewrite has paid for itself",
    BELOW_COST: "saves less than it costs",
    BELOW_FLOOR: "saves less than 0.1 % of its partition's yearly read cost",
    RECENTLY_WRITTEN: "rewritten within the horizon, which needs twice the saving",
    GROWS_TOO_LITTLE: "was sorted for these queries before; too little data has been added since",
    NOTHING_NEW: "sorted for the same queries and settings before, and no data is new",
    DEBT: "past rewrites have not paid back yet (WAIR Eq. 2)",
    ALLOWANCE: "exceeds the realised savings and the per-query allowance (WAIR Eq. 5)",
    NOT_EARNED: "its cost and what other queries may read more exceed what past savings allow",
    RAISES_READS: "the queries would read more than opening fewer files saves",
    OTHER_KEY: "another key saves more on the same files",
    QUIET_PERIOD: "another writer changed the partition within the quiet period",
    DRIFT_WAITS: "too little has drifted to be worth a rewrite yet",
    TOO_FEW_FILES: "fewer mergeable small files than minInputFiles",
    NOT_REWRITABLE: "is encrypted, or has a type or a format that is not rewritten yet",
    REFUSED_FILES: "a reader may misread it, or a run found that it cannot be rewritten",
    UNDONE: "a plan for it was taken back under this policy",
    SAME_AGAIN: "the same rewrite produced these files; repeating it changes nothing",
    LARGER_THAN_BUDGET: "its smallest useful part is larger than the tightest budget can admit",
    MIGRATION_REFUSED: "its writers or its files do not admit another partition spec",
    TRIAL_FIRST: "waits for the trial of the declared partition spec on one partition",
    NO_TRIAL: "the policy asks for a trial, but the budget admits no whole partition; raise the "
    "budget, or remove spec.layout.partitioning.trial to move all files",
    CATALOG_POLICY: "a policy of the catalog does not allow it",
    BRANCH_WAITS: "a branch holds work that waits for approval",
    ALREADY_CHOSEN: "its files belong to a better action of this plan",
    FEW_DELETED: "too few of its rows are deleted",
    FEW_DELETE_FILES: "fewer delete files for a data file than minInputFiles",
    NOT_DUE: "the maintenance is worth its cost only after more operations",
    COMPACTION_OFF: "spec.deletes.compaction does not ask for it",
    COMPACTED_ELSEWHERE: (
        "another engine compacted this table of format version 3 within 7 days; Iceberg's "
        "compaction of position deletes can make it unreadable while a DELETE runs, so this plan "
        "leaves the deletes alone"
    ),
    UPGRADE_UNPAID: "saves too little, or the saving is too uncertain",
    SPEC_IN_USE: "retained snapshots have files of every old spec, and none is expired for this",
    NOT_PROVEN: "a table or a metadata file that may refer to its files could not be read",
    LEFT_TO_SERVICE: (
        "s3.delete-enabled is false: the store deletes no file for a client, and its service "
        "removes what is not needed"
    ),
    NOT_REMOVABLE: "the table sets gc.enabled=false: its files may belong to other tables too",
}


def partition_text(spec: PartitionSpec, values: Sequence[Scalar | None], schema: Schema) -> str:
    """Return the partition as text: `ts_month=2026-09, country=de`, "" for an unpartitioned
    spec."""
    parts = [
        f"{field.name}={_partition_value(field, value, schema)}"
        for field, value in zip(spec.fields, values, strict=False)
        if field.transform != "void"
    ]
    return ", ".join(parts)


def _partition_value(field: PartitionField, value: Scalar | None, schema: Schema) -> str:
    if value is None:
        return "null"
    if field.transform == "year":
        return str(1970 + int(value))
    if field.transform == "month":
        return f"{1970 + int(value) // 12}-{int(value) % 12 + 1:02d}"
    if field.transform == "day":
        return show("date", value)
    if field.transform == "hour":
        return show("timestamp", int(value) * 3_600_000_000)
    source = schema.by_id.get(field.source_id)
    bucketed = field.transform.startswith("bucket")
    return show("int" if bucketed or source is None else source.type, value)


def by_queries(kinds: Sequence[tuple[str, int]]) -> Sentence:
    """Return why no layout helps queries of several kinds: of OF_QUERIES, each with how many are of
    it."""
    text, parts = "no layout can skip much: of the queries, ", []
    for kind, queries in kinds:
        parts += [text, f"{queries:,}"]
        text = f"{OF_QUERIES[kind]}, "
    return sentence(*parts, OF_QUERIES[kinds[-1][0]])


def without_woodblock(package: str) -> Sentence:
    """Return why a tree was not looked for by Woodblock, and what to do about it."""
    return sentence(
        f'the package "{package}" is not installed, so the tree is a greedy one, improved by '
        'climbing; pip install "table-layout-reconciler[woodblock]", or name another method in '
        "spec.layout.clustering.qdTree"
    )


def times_cost(saving: float, cost: float) -> Sentence:
    """Return a saving relative to its cost, as plans print it: `saves 0.4x its cost`."""
    if cost <= 0.0:
        return sentence("at no cost")
    verb = "saves" if saving >= 0.0 else "loses"
    return sentence(f"{verb} ", _times(saving, cost), "x its cost")


def torn(low: float, expected: float, cost: float) -> Sentence:
    """Return the text for an expected saving that is too uncertain. low: its 10th percentile, which
    decides."""
    if cost <= 0.0:
        return sentence("at no cost")
    return sentence(
        "expected to save ", _times(expected, cost), "x its cost, but loses ",
        _times(low, cost), "x in the worst 10 % of cases",
    )  # fmt: skip


def not_earned(loss: float, room: float, cost: float) -> Sentence:
    """Return the text for a rewrite that may lose more than past savings allow."""
    if cost <= 0.0:
        return sentence("other queries may read more than past savings allow")
    return sentence(
        "may lose ", _times(loss, cost), "x its cost if the queries change; past savings allow ",
        _times(room, cost), "x",
    )  # fmt: skip


def below_floor(percent: float, whole: str) -> Sentence:
    """Return the text for a saving below the floor. whole: what the percentage is of."""
    return sentence("saves ", f"{percent:.2f}", f" % of {whole}; 0.1 % is needed")


def _times(saving: float, cost: float) -> str:
    ratio = abs(saving) / cost
    return f"{ratio:.1f}" if ratio >= 0.1 else f"{ratio:.2g}"


def short_of(saving: float, cost: float, needed: float) -> Sentence:
    """Return `times_cost`, with the required multiple if the number alone does not show that it is
    too low.

    needed: the multiple of the cost that a saving has to exceed.
    """
    short = times_cost(saving, cost)
    if needed == 1.0 and saving < 0.9 * cost:
        return short
    return short + sentence("; more than ", f"{needed:g}", "x is needed")
