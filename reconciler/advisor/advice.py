"""The input and the result of the advisor, as plain values.

`decide.decide(AdviceInput) -> Advice` is the only entry of the advisor. The loop freezes a plan
from the advice, the CLI prints it (plan, explain), and the ledger keeps its predictions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from reconciler.advisor.deletes.mode import ModeChoice
from reconciler.plan.actions.base import Action
from reconciler.plan.ordering import ARRIVAL, Ordering
from reconciler.plan.prediction import Prediction
from reconciler.plan.prediction_interval import PRIOR_CALIBRATION, Calibration, Interval
from reconciler.plan.sentence import Sentence
from reconciler.plan.trial import Trial
from reconciler.queries.fragments import Workload
from reconciler.queries.rates import NO_OUTLOOK, Outlook, RateForecast, regime_forecast
from reconciler.queries.rewrite_cost import PRIOR_RHO, PRIOR_THROUGHPUT, Rho, Throughput
from reconciler.queries.table_view import OPEN_BYTES
from reconciler.table.deletes import NO_DELETE_FILES, DeleteTable
from reconciler.table.filetable import FileTable
from reconciler.table.manifests import NO_MANIFESTS, ManifestTable
from reconciler.table.metadata import TableMetadata
from reconciler.table.operations import NO_OPERATIONS, Operations
from reconciler.table.orphans import NO_ORPHANS, Orphans, Search
from reconciler.table.refusals import Refusal
from reconciler.table.retention import Retention
from reconciler.table.sample import RowGroups, RowSample
from reconciler.table.schema import SpecField
from reconciler.table.times import DAY_MS
from reconciler.table.writers import NO_WRITERS, Writers

HORIZON_MS = 7 * DAY_MS
EARLY_SHARE = 0.10
"""`Settings.early_share` of plans that run without an approval."""

AGGRESSIVENESS: Mapping[str, tuple[float, float | None]] = {
    "Conservative": (2.0, None),
    "Balanced": (1.0, None),
    "Aggressive": (0.5, 10.0),
}
"""alpha of Eq. 4, and the per-query allowance c of Eq. 5 (None: Eq. 5 is not applied)."""


@dataclass(frozen=True, slots=True)
class Objectives:
    """The policy's objectives; None where not given."""

    max_scan_amplification: float | None = None
    max_small_file_percent: float | None = None
    max_deleted_rows_percent: float | None = None
    max_file_count: int | None = None


NO_OBJECTIVES = Objectives()


@dataclass(frozen=True, slots=True)
class Debt:
    """Cost and savings of past reclustering, in bytes of reading (Eq. 2 and 5), from the ledger.

    spent: rho x input bytes of past rewrites, conflicts included. realised: bytes that later
    queries read less (negative: more), computed from the zone maps before and after.
    """

    spent: float = 0.0
    realised: float = 0.0

    @property
    def outstanding(self) -> float:
        return self.spent - self.realised


NO_DEBT = Debt()


@dataclass(frozen=True, slots=True)
class DeletePolicy:
    """spec.deletes. mode: "Auto" | "Keep" | "CopyOnWrite" | "MergeOnRead". compaction: "Auto" |
    "Minor" | "Major" | "Hybrid" | "Disabled". format_version: "Keep" | "Auto" | "Upgrade".

    conflicting: indexes into FileTable.partitions that other writers changed lately by commits
    with which one of delete files would conflict. compacted_ms: when another engine last compacted
    the table, None if the retained history has no such commit.
    """

    mode: str = "Keep"
    compaction: str = "Disabled"
    format_version: str = "Keep"
    conflicting: frozenset[int] = frozenset()
    compacted_ms: int | None = None

    @property
    def majors(self) -> bool:
        return self.compaction in ("Auto", "Major", "Hybrid")

    @property
    def minors(self) -> bool:
        return self.compaction in ("Auto", "Minor", "Hybrid")

    @property
    def declared(self) -> bool:
        """Whether the policy asks for maintenance even where it does not pay for the queries."""
        return self.compaction in ("Minor", "Major", "Hybrid")


@dataclass(frozen=True, slots=True)
class Migration:
    """spec.layout.partitioning, if Declared. fields: of the declared spec, () for unpartitioned.

    spec_id: of that spec, or the one that it will get; exists: whether the table has it. present:
    id of the spec that writers follow. accepted: names of the risks that the policy accepts.
    trial: whether one is asked for; tried: what it found, None before it.
    """

    fields: tuple[SpecField, ...]
    spec_id: int
    exists: bool
    present: int
    accepted: frozenset[str] = frozenset()
    writers: Writers = NO_WRITERS
    trial: bool = False
    tried: Trial | None = None

    @property
    def columns(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(field.source_id for field in self.fields))


@dataclass(frozen=True, slots=True)
class Settings:
    """All parameters of the decisions, resolved from policy, table and ledger.

    mode, ordering, apply_to_writes: spec.layout.clustering; ARRIVAL unless Declared.
    target_bytes, row_group_bytes: resolved sizes; target_explicit, row_group_explicit: the policy
    names the size, so it is also set as a table property. target_auto, row_group_auto: neither
    policy nor table names the size, so that a rewrite may choose its own. chosen_sizes: by plan,
    the least size of files that its rewrites chose so (ledger.chosen_sizes).
    distribution_mode: how writers distribute rows, as Iceberg's property spells it; None leaves it
    as it is.
    metadata: the table's present properties and sort order.
    quiet_partitions: indexes into FileTable.partitions that other writers changed within quiet_ms.
    conflicts: in a row, which made it longer than declared; 0 if none did.
    now_ms: time of the decision, used only for hysteresis. horizon_ms: payback horizon.
    open_bytes: cost of opening a file, in bytes read; openings: that it was measured from, the last
    of them at opened_ms; 0 for the preset.
    most_bytes, most_cpu_seconds: the largest action that the tightest budget can ever admit, None
    without a limit. budget_ms: after which time, at the earliest, a budget admits as much again.
    debt_share: limit of the debt of reclustering, as a share of a year's reading (Eq. 2's
    cost_limit). early_share: limit of what may have been lost so far, as a share of what was read,
    where nobody approves the plan; None without a limit.
    forecast: how rates over the horizon follow from the recorded queries.
    retention_ms: rows' remaining life from now, None where unlimited.
    coverage: explained share of the recorded bytes. seed: of the bootstrap.
    written: per plan, the layouts that each of its actions wrote (ledger.written_layouts). bases:
    per plan, what its rewrites for the workload followed from (ledger.written_bases).
    deletes: how deletes are encoded and maintained. migration: the declared partition spec, None to
    keep the present one. cpu_calibration: actual / predicted CPU time of executed actions.
    expire: which snapshots to keep, None to expire none. rewrite_manifests: where planning a query
    reads too many. remove_orphans: which files count as such, None to remove none; orphans: found.
    remove_specs_ms: how long a partition spec must be unused to be removed, None to remove none.
    audited: what becomes of batches that wait on a branch, None if there are none.
    """

    mode: str = "WorkloadAware"
    ordering: Ordering = ARRIVAL
    apply_to_writes: bool = False
    alpha: float = 1.0
    allowance: float | None = None
    target_bytes: int = 512 << 20
    row_group_bytes: int = 128 << 20
    target_explicit: bool = False
    row_group_explicit: bool = False
    row_group_auto: bool = False
    target_auto: bool = False
    chosen_sizes: Mapping[str, int] = field(default_factory=dict)
    distribution_mode: str | None = None
    metadata: TableMetadata = field(default_factory=TableMetadata)
    min_input_files: int = 5
    quiet_partitions: frozenset[int] = frozenset()
    quiet_ms: int = 0
    conflicts: int = 0
    now_ms: int = 0
    horizon_ms: int = HORIZON_MS
    forecast: RateForecast = regime_forecast
    retention_ms: int | None = None
    rho: Rho = PRIOR_RHO
    open_bytes: int = OPEN_BYTES
    openings: int = 0
    opened_ms: int = 0
    throughput: Throughput = PRIOR_THROUGHPUT
    most_bytes: int | None = None
    most_cpu_seconds: float | None = None
    budget_ms: int = 0
    debt: Debt = NO_DEBT
    debt_share: float = 0.02
    early_share: float | None = None
    objectives: Objectives = NO_OBJECTIVES
    calibration: Calibration = PRIOR_CALIBRATION
    coverage: float = 1.0
    min_coverage: float = 0.5
    seed: int = 20260101
    written: Mapping[str, frozenset[str]] = field(default_factory=dict)
    bases: Mapping[str, frozenset[str]] = field(default_factory=dict)
    deletes: DeletePolicy = DeletePolicy()
    migration: Migration | None = None
    cpu_calibration: Calibration = PRIOR_CALIBRATION
    expire: Retention | None = None
    rewrite_manifests: bool = False
    remove_orphans: Search | None = None
    orphans: Orphans = NO_ORPHANS
    remove_specs_ms: int | None = None
    audited: Audited | None = None


@dataclass(frozen=True)
class AdviceInput:
    """The one frozen input of every decision. row_groups and sample may be absent.

    deletes: the table's delete files. operations: of its history. manifests: of its data files.
    damage: why nothing may be done to the table, "" for a sound one. refusals: files that no action
    may read, by path. published: the same for the table as it would be if what waits on branches
    were published, None if nothing waits.
    """

    table: FileTable
    workload: Workload
    settings: Settings
    row_groups: RowGroups | None = None
    sample: RowSample | None = None
    deletes: DeleteTable = NO_DELETE_FILES
    operations: Operations = NO_OPERATIONS
    manifests: ManifestTable = NO_MANIFESTS
    damage: str = ""
    refusals: Mapping[str, Refusal] = field(default_factory=dict)
    published: AdviceInput | None = None


@dataclass(frozen=True, slots=True)
class ShapeEffect:
    """One shape over the recorded window, before and after. bytes_*: of the whole window.

    files_*: data files opened per query. worse: reads at least 1 % more bytes than before; of
    moving windows it is those to come that do, since those recorded will not run again.
    """

    shape_id: str
    queries: float
    bytes_now: float
    bytes_after: float
    files_now: float
    files_after: float
    moving: bool
    worse: bool


@dataclass(frozen=True, slots=True)
class ScoredAction:
    """An action with what it is predicted to cost and to save."""

    action: Action
    predicted: Prediction


@dataclass(frozen=True, slots=True)
class Audited:
    """What becomes of batches that wait on a branch; nothing else is planned before.

    base: the snapshot of main by which their deletes are judged. until_ms: when they are dropped.
    """

    actions: tuple[ScoredAction, ...]
    base: int | None
    until_ms: int


@dataclass(frozen=True, slots=True)
class Rejected:
    """A candidate that was considered and not planned. reason: one of `plan.reasons`'s constants.

    files, bytes: what it would have rewritten; inputs: their paths, empty if it concerns no files.
    saving, saving_low, cost: bytes-equivalent over the horizon; NaN if not estimated. read_after:
    bytes read in the window with this candidate instead, NaN if not simulated.
    """

    what: Sentence
    reason: str
    why: Sentence
    files: int = 0
    bytes: int = 0
    saving: float = float("nan")
    saving_low: float = float("nan")
    cost: float = float("nan")
    read_after: float = float("nan")
    inputs: tuple[str, ...] = ()


MISSED = ("failing", "unreachable", "unknown")
"""The states of an objective that keep a table without work from being Converged."""


@dataclass(frozen=True, slots=True)
class ObjectiveJudgement:
    """state: "met" | "failing" | "probably" (the interval straddles) | "unreachable" | "unknown".

    at_least: `now` and `after` are lower bounds, because a part cannot be counted.
    """

    name: str
    limit: float
    now: float
    after: float
    state: str
    message: str
    at_least: bool = False


@dataclass(frozen=True)
class Advice:
    """Actions by net saving per cost (metadata changes first), and everything that a plan prints.

    shapes: per shape over the window; read_now, read_after: planned bytes of the window; cost_now,
    cost_after: the same with the cost of opening files.
    amplification_*: over all scans with a prunable predicate; amplification_label: exact | sampled
    | bound. payback_hours: cost / saving rate. wanted_sketches: files whose sample could change the
    decision; wanted_footers: files whose row groups could. outlook: why the rates are what they
    are. modes: how each kind of row-level operation is written, and what each way costs; notes:
    advice on deletes. upkeep_due_ms: when housekeeping will be due that is not due yet.
    files_read: by the actions, of other writers; files_unchecked: those of them whose footers were
    not read.
    """

    actions: tuple[ScoredAction, ...]
    rejected: tuple[Rejected, ...]
    shapes: tuple[ShapeEffect, ...]
    read_now: float
    read_after: Interval
    cost_now: float
    cost_after: Interval
    files_now: int
    files_after: Interval
    storage_now: int
    storage_after: int
    amplification_now: float
    amplification_after: Interval
    amplification_label: str
    objectives: tuple[ObjectiveJudgement, ...]
    payback_hours: float | None
    cost: float
    cpu_seconds: float
    seconds: float
    yearly_read: float
    wanted_sketches: npt.NDArray[np.int64]
    outlook: Outlook = NO_OUTLOOK
    modes: tuple[ModeChoice, ...] = ()
    notes: tuple[str, ...] = ()
    upkeep_due_ms: int | None = None
    files_read: int = 0
    files_unchecked: int = 0
    wanted_footers: npt.NDArray[np.int64] = field(
        default_factory=lambda: np.zeros(0, dtype=np.int64)
    )
