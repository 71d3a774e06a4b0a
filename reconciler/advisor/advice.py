"""The input and the result of the advisor, as plain values.

`decide.decide(AdviceInput) -> Advice` is the only entry of the advisor. The loop freezes a plan
from the advice, the CLI prints it (plan, explain), and the ledger keeps its predictions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from reconciler.advisor.deletes.mode import ModeChoice
from reconciler.advisor.measure.credit import Credit
from reconciler.advisor.qdtree.woodblock import Training
from reconciler.plan.actions.base import Action
from reconciler.plan.ordering import ARRIVAL, Ordering
from reconciler.plan.prediction import Prediction
from reconciler.plan.prediction_interval import PRIOR_CALIBRATION, Calibration, Interval
from reconciler.plan.sentence import Sentence
from reconciler.plan.trial import Trial
from reconciler.queries.forecasts.chosen import chosen_forecast
from reconciler.queries.rates import NO_OUTLOOK, Outlook, RateForecast
from reconciler.queries.rewrite_cost import PRIOR_RHO, PRIOR_THROUGHPUT, Rho, Throughput
from reconciler.queries.shape import Workload
from reconciler.queries.table_view import OPEN_BYTES
from reconciler.table.deletes import NO_DELETE_FILES, DeleteTable
from reconciler.table.filetable import FileTable
from reconciler.table.manifests import NO_MANIFESTS, ManifestTable
from reconciler.table.metadata import TableMetadata
from reconciler.table.operations import NO_OPERATIONS, Operations
from reconciler.table.orphans import NO_ORPHANS, Orphans, Search
from reconciler.table.refusals import Refusal
from reconciler.table.replica import WantedReplica
from reconciler.table.retention import Retention
from reconciler.table.sample import RowGroups, RowSample
from reconciler.table.schema import SpecField
from reconciler.table.times import DAY_MS
from reconciler.table.writers import NO_WRITERS, Writers

HORIZON_MS = 7 * DAY_MS
EARLY_SHARE = 0.10
"""`Settings.early_share` of plans that run without an approval."""

AGGRESSIVENESS: Mapping[str, tuple[float, float | None, float]] = {
    "Conservative": (2.0, None, 0.0),
    "Balanced": (1.0, None, 0.0),
    "Aggressive": (0.5, 10.0, 1.0),
}
"""alpha of Eq. 4, the per-query allowance c of Eq. 5 in readings of a file (None: Eq. 5 is not
applied), and beta of Eq. 6 in openings of a file."""


@dataclass(frozen=True, slots=True)
class Objectives:
    """The policy's objectives; None where the policy has none."""

    max_scan_amplification: float | None = None
    """Greatest bytes read per byte that matches (`totals.amplification`)."""
    max_small_file_percent: float | None = None
    """Greatest percentage of files that are small and could be merged."""
    max_deleted_rows_percent: float | None = None
    """Greatest percentage of rows that are deleted but still stored."""
    max_file_count: int | None = None
    """Greatest number of data files."""


NO_OBJECTIVES = Objectives()


@dataclass(frozen=True, slots=True)
class Debt:
    """What past reclustering cost and saved, from the ledger (WAIR, Eq. 2 and 5)."""

    spent: float = 0.0
    """Cost in bytes of reading: rho x input bytes of past rewrites, conflicts included."""
    realised: float = 0.0
    """Bytes of reading that later queries saved, by the zone maps before and after; negative if
    they read more."""

    @property
    def outstanding(self) -> float:
        return self.spent - self.realised

    def after(self, rho: Rho, rewritten: float, earned: Iterable[Credit]) -> Debt:
        """Return the debt after rewrites of so many input bytes of the table's data, and what later
        queries did not read because of those and earlier ones. Where that is a bound, the lower one
        counts.

        A commit may hold rewrites of several kinds, and what they saved is known of all together.
        So the cost of all counts as well, whatever spoke for them.
        """
        realised = sum(one.table_least for one in earned)
        return Debt(self.spent + rho.value * rewritten, self.realised + realised)


NO_DEBT = Debt()


@dataclass(frozen=True, slots=True)
class DeletePolicy:
    """spec.deletes, with the recent commits of others that concern it."""

    mode: str = "Keep"
    """How writers encode deletes: "Auto", "Keep", "CopyOnWrite" or "MergeOnRead"."""
    compaction: str = "Disabled"
    """What is done about existing deletes: "Auto", "Minor", "Major", "Hybrid" or "Disabled"."""
    format_version: str = "Keep"
    """Whether the table may be upgraded: "Keep", "Auto" or "Upgrade"."""
    conflicting: frozenset[int] = frozenset()
    """Indexes into FileTable.partitions that other writers changed within the quiet period by
    commits that would conflict with a commit of delete files."""
    compacted_ms: int | None = None
    """When another engine last compacted the table, in epoch milliseconds; None if the retained
    history has no such commit."""

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
    """spec.layout.partitioning where its mode is Declared."""

    fields: tuple[SpecField, ...]
    """Fields of the declared spec, () for an unpartitioned table."""
    spec_id: int
    """Id of the declared spec, or the id that it will get."""
    exists: bool
    """Whether the table has the declared spec already."""
    present: int
    """Id of the spec that writers follow now."""
    accepted: frozenset[str] = frozenset()
    """Names of the risks that the policy accepts (`Risk.name`)."""
    writers: Writers = NO_WRITERS
    """What the retained history and the workload show of the table's other writers."""
    trial: bool = False
    """Whether the policy asks for a trial before all files move."""
    tried: Trial | None = None
    """What the last trial found; None before it, or where no trial is asked for."""

    @property
    def columns(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(field.source_id for field in self.fields))


WORKLOAD_AWARE, QD_TREE = "WorkloadAware", "QdTree"
"""Modes that choose the order of rows by the recorded queries."""


@dataclass(frozen=True, slots=True)
class TreeSettings:
    """How trees of cuts are found, and what is written of them."""

    climbs: bool = True
    """Whether a greedy tree is improved."""
    steps: int = 200
    """Attempts to do so."""
    least_rows: int = 0
    """Rows that a leaf has at least; 0: by the size of files."""
    episodes: int = 0
    """Of Woodblock, which improves the tree after that; 0: it is not asked."""
    block_column: str = ""
    """Column that gets the number of each row's leaf; "" for none."""


@dataclass(frozen=True, slots=True)
class Settings:
    """All parameters of the decisions, resolved from policy, table and ledger."""

    mode: str = WORKLOAD_AWARE
    """Mode of spec.layout.clustering: "WorkloadAware", "QdTree", "Declared" or "None"."""
    trees: TreeSettings = TreeSettings()
    """How trees of cuts are found."""
    replica: WantedReplica | None = None
    """The second table of the policy; None for none."""
    ordering: Ordering = ARRIVAL
    """The declared order of rows; ARRIVAL where the policy names no keys."""
    apply_to_writes: bool = False
    """Whether the declared key also becomes the table's sort order, for writers to follow."""
    alpha: float = 1.0
    """Factor of Eq. 4: a rewrite must save more than this multiple of its cost."""
    allowance: float | None = None
    """Allowance c of Eq. 5 for each query, in readings of one file; None: Eq. 5 is not applied."""
    literal: bool = False
    """Whether the paper's own formulas decide what is reclustered, without a what-if."""
    beta_openings: float = 0.0
    """Price beta of Eq. 6 for a file that a query skips, in openings of a file. Only the literal
    method adds it; the what-if counts each opening by its price anyway."""
    target_bytes: int = 512 << 20
    """Target size of data files in bytes."""
    row_group_bytes: int = 128 << 20
    """Target size of row groups in bytes."""
    target_explicit: bool = False
    """Whether the policy names the size of files, so that it is also set as a table property."""
    row_group_explicit: bool = False
    """Whether the policy names the size of row groups, so that it is also set as a table
    property."""
    row_group_auto: bool = False
    """Whether neither policy nor table names the size of row groups, so that a rewrite may choose
    its own."""
    target_auto: bool = False
    """Whether neither policy nor table names the size of files, so that a rewrite may choose its
    own."""
    chosen_sizes: Mapping[str, int] = field(default_factory=dict)
    """By plan id, the least size of files in bytes that one of its rewrites chose itself
    (ledger.chosen_sizes)."""
    distribution_mode: str | None = None
    """How writers distribute rows, as Iceberg's property spells it; None leaves the property as it
    is."""
    metadata: TableMetadata = field(default_factory=TableMetadata)
    """The table's present metadata: properties, sort order, specs and snapshots."""
    min_input_files: int = 5
    """Fewest files that are worth a merge."""
    quiet_partitions: frozenset[int] = frozenset()
    """Indexes into FileTable.partitions that another writer overwrote or deleted from within the
    quiet period."""
    quiet_ms: int = 0
    """The quiet period in milliseconds."""
    conflicts: int = 0
    """Number of conflicts in a row that made the quiet period longer than declared; 0 if none
    did."""
    now_ms: int = 0
    """Time of the decision, in epoch milliseconds."""
    horizon_ms: int = HORIZON_MS
    """Payback horizon in milliseconds: savings of later queries do not count."""
    forecast: RateForecast = chosen_forecast
    """How the rates over the horizon follow from the recorded queries."""
    rho: Rho = PRIOR_RHO
    """Cost of a rewritten byte in bytes of reading, with its source."""
    open_bytes: int = OPEN_BYTES
    """Cost of opening a file, in bytes of reading."""
    openings: int = 0
    """Number of measured openings behind `open_bytes`; 0 for the preset."""
    opened_ms: int = 0
    """When the last of these openings was measured, in epoch milliseconds; 0 for the preset."""
    throughput: Throughput = PRIOR_THROUGHPUT
    """Model of the times that actions take."""
    most_bytes: int | None = None
    """Most bytes that the tightest budget can admit in one action; None without a limit."""
    most_cpu_seconds: float | None = None
    """Most CPU seconds that the tightest budget can admit in one action; None without a limit."""
    budget_ms: int = 0
    """Milliseconds after which, at the earliest, a budget admits as much again."""
    debt: Debt = NO_DEBT
    """Cost and savings of past rewrites for the workload."""
    debt_share: float = 0.02
    """Limit of the debt as a share of a year's reading (Eq. 2's cost_limit)."""
    early_share: float | None = None
    """Limit of what may be lost before it is earned, as a share of what queries read so far, where
    plans may run without an approval; None without a limit."""
    replaced: tuple[FileTable, ...] = ()
    """Files of other writers that past rewrites replaced; () where no limit depends on them."""
    objectives: Objectives = NO_OBJECTIVES
    """The policy's objectives."""
    calibration: Calibration = PRIOR_CALIBRATION
    """Quantiles of actual / predicted reading after past plans."""
    coverage: float = 1.0
    """Share of the recorded bytes that the workload explains."""
    min_coverage: float = 0.5
    """Least coverage at which the workload is acted on."""
    seed: int = 20260101
    """Seed of the bootstrap."""
    written: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By plan id, hashes of the layouts that exactly one of its actions wrote, so that the same
    rewrite is not planned again (ledger.written_layouts)."""
    bases: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By plan id, what its rewrites for the workload followed from: values of `Situation.basis`
    (ledger.written_bases)."""
    leads: Mapping[str, frozenset[int | None]] = field(default_factory=dict)
    """By plan id, the columns that lead the orders of its rewrites (ledger.written_leads)."""
    deletes: DeletePolicy = DeletePolicy()
    """How deletes are encoded and maintained."""
    migration: Migration | None = None
    """The declared partition spec; None to keep the present one."""
    cpu_calibration: Calibration = PRIOR_CALIBRATION
    """Quantiles of actual / predicted CPU time of executed actions."""
    expire: Retention | None = None
    """Which snapshots to keep; None to expire none."""
    rewrite_manifests: bool = False
    """Whether manifests are rewritten where planning a query reads too many of them."""
    remove_orphans: Search | None = None
    """Which files may be removed as orphans; None to remove none."""
    orphans: Orphans = NO_ORPHANS
    """The orphan files that were found."""
    remove_specs_ms: int | None = None
    """Milliseconds for which a partition spec must be unused to be removed; None to remove none."""
    undone: Mapping[str, str] = field(default_factory=dict)
    """By path of a data file, the id of the plan that was taken back and for which it stays."""
    audited: Audited | None = None
    """What becomes of batches that wait on a branch; None if there are none."""

    @property
    def by_workload(self) -> bool:
        """Whether the recorded queries choose the order of rows."""
        return self.mode in (WORKLOAD_AWARE, QD_TREE)


@dataclass(frozen=True)
class AdviceInput:
    """The one frozen input of every decision."""

    table: FileTable
    """The table's live data files."""
    workload: Workload
    """The recorded queries."""
    settings: Settings
    """The parameters of the decisions."""
    row_groups: RowGroups | None = None
    """Row groups of the files whose footers were read; None if no footer was."""
    sample: RowSample | None = None
    """Rows sampled from the files that were sketched; None if no file was."""
    deletes: DeleteTable = NO_DELETE_FILES
    """The table's live delete files."""
    operations: Operations = NO_OPERATIONS
    """Row-level operations in the table's retained history."""
    manifests: ManifestTable = NO_MANIFESTS
    """Manifests of the table's data files."""
    damage: str = ""
    """Why nothing may be done to the table, "" for a sound one."""
    refusals: Mapping[str, Refusal] = field(default_factory=dict)
    """By path, why no action may read the file."""
    published: AdviceInput | None = None
    """The input for the table as it would be if the batches that wait on branches were published;
    None if nothing waits."""
    trained: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The trees that Woodblock has found: codes of their cuts by `Training.name`."""


@dataclass(frozen=True, slots=True)
class ShapeEffect:
    """What the queries of one shape read in the recorded window, before and after the plan."""

    shape_id: str
    """Id of the shape."""
    queries: float
    """Recorded executions."""
    bytes_now: float
    """Bytes that the whole window reads now."""
    bytes_after: float
    """Bytes that the whole window would read after the plan."""
    files_now: float
    """Mean number of data files that a query opens now."""
    files_after: float
    """Mean number of data files that a query would open after the plan."""
    worse: bool
    """Whether the queries read over 1 % more bytes after the plan. For moving windows the expected
    queries count, because the recorded ones will not run again."""


@dataclass(frozen=True, slots=True)
class ScoredAction:
    """An action with what it is predicted to cost and to save."""

    action: Action
    """The action."""
    predicted: Prediction
    """What it is predicted to cost and to save."""


@dataclass(frozen=True, slots=True)
class Audited:
    """What becomes of batches that wait on a branch; nothing else is planned before."""

    actions: tuple[ScoredAction, ...]
    """Actions that publish or discard the batches."""
    base: int | None
    """Id of the snapshot of main by which the deletes of the batches are judged; None if there is
    none."""
    until_ms: int
    """When the batches are dropped, in epoch milliseconds."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A candidate that was considered and not planned."""

    what: Sentence
    """What would have been done."""
    reason: str
    """A constant of `plan.reasons`."""
    why: Sentence
    """Why it is not planned, for people."""
    files: int = 0
    """Number of files that it would have rewritten."""
    bytes: int = 0
    """Bytes of these files."""
    saving: float = float("nan")
    """Its saving in bytes of reading over the horizon; NaN if not estimated."""
    saving_low: float = float("nan")
    """10th percentile of `saving`; NaN if not estimated."""
    cost: float = float("nan")
    """Its cost in bytes of reading; NaN if not estimated."""
    read_after: float = float("nan")
    """Bytes that the recorded window would read with this candidate alone; NaN if not simulated."""
    inputs: tuple[str, ...] = ()
    """Paths of the files, sorted; empty if it concerns no files."""


MISSED = ("failing", "unreachable", "unknown")
"""The states of an objective that keep a table without work from being Converged."""


@dataclass(frozen=True, slots=True)
class ObjectiveJudgement:
    """Whether the table meets one objective of the policy, now and after the plan."""

    name: str
    """Name of the objective, as the policy spells it."""
    limit: float
    """The greatest value that meets it."""
    now: float
    """The present value."""
    after: float
    """The value after the plan."""
    state: str
    """"met", "failing" (the plan lowers the value, but not to the limit), "probably" (the limit is
    within the interval), "unreachable" (the plan does not lower it) or "unknown"."""
    message: str
    """Why it is not met for certain, "" if it is."""
    at_least: bool = False
    """Whether `now` and `after` are lower bounds, because a part cannot be counted."""


@dataclass(frozen=True)
class Advice:
    """The actions, and everything that a plan prints."""

    actions: tuple[ScoredAction, ...]
    """The actions: changes of metadata first, then rewrites by net saving per cost, maintenance of
    delete files, the switch of the partition spec, and housekeeping."""
    rejected: tuple[Rejected, ...]
    """What was considered and not planned."""
    shapes: tuple[ShapeEffect, ...]
    """The effect on each shape over the window, the shape that reads most first."""
    read_now: float
    """Bytes that the recorded window reads now."""
    read_after: Interval
    """Bytes that the recorded window would read after the plan."""
    cost_now: float
    """`read_now` with the cost of opening files, in bytes of reading."""
    cost_after: Interval
    """`read_after` with the cost of opening files, in bytes of reading."""
    files_now: int
    """Number of data files now."""
    files_after: Interval
    """Number of data files after the plan."""
    storage_now: int
    """Bytes of the live data files."""
    storage_after: int
    """`storage_now` with the bytes that the plan writes: replaced files stay until their snapshots
    expire."""
    amplification_now: float
    """Scan amplification now, over all queries with a condition that can skip data."""
    amplification_after: Interval
    """The same scan amplification after the plan."""
    amplification_label: str
    """How the scan amplification is known: "sampled" or "bound"."""
    objectives: tuple[ObjectiveJudgement, ...]
    """Judgements of the policy's objectives and of a declared migration."""
    payback_hours: float | None
    """Hours until the savings equal the cost; None where either of them is not positive."""
    cost: float
    """Cost of the rewrites and of delete maintenance, in bytes of reading."""
    cpu_seconds: float
    """Predicted CPU time of the rewrites and of delete maintenance, in seconds."""
    seconds: float
    """Predicted wall-clock time of the same in seconds, with the start of a JVM."""
    yearly_read: float
    """Bytes of reading, openings included, of a year of the workload at present rates."""
    wanted_sketches: npt.NDArray[np.int64]
    """int64: rows of the file table whose sampled rows could change the decision."""
    outlook: Outlook = NO_OUTLOOK
    """Why the forecast rates are what they are."""
    modes: tuple[ModeChoice, ...] = ()
    """How each kind of row-level operation is written, and what each way would cost."""
    notes: tuple[str, ...] = ()
    """Advice on deletes, for people."""
    upkeep_due_ms: int | None = None
    """When housekeeping that is not due yet will be, in epoch milliseconds; None if none is to
    come."""
    files_read: int = 0
    """Number of files by other writers that the actions read."""
    files_unchecked: int = 0
    """Those of `files_read` whose footers were not checked."""
    wanted_footers: npt.NDArray[np.int64] = field(
        default_factory=lambda: np.zeros(0, dtype=np.int64)
    )
    """int64: rows of the file table whose row groups could change the decision."""
    room: float | None = None
    """What rewrites for the queries may cost now, those of this plan included, in bytes of reading;
    None while batches wait on a branch."""
    wanted_trees: tuple[Training, ...] = ()
    """What Woodblock would have to search for better trees of the chosen rewrites."""
