"""Computes the settings of a decision from a policy, an observed table and its ledger.

Pure: the caller has done the reading. Errors name the field of the policy that cannot be met.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from reconciler.advisor.advice import (
    AGGRESSIVENESS,
    EARLY_SHARE,
    NO_DEBT,
    Debt,
    DeletePolicy,
    Objectives,
    Settings,
    TreeSettings,
)
from reconciler.advisor.pto.sizes import expert_row_group
from reconciler.api.choices import (
    ApprovalMode,
    DeleteMode,
    DistributionMode,
    FormatVersion,
    ManifestRewrite,
    ReclusterMethod,
    TreeMethod,
)
from reconciler.api.documents import (
    Approval,
    BudgetSpec,
    PolicySpec,
    QdTree,
    TableLayoutPolicy,
)
from reconciler.errors import KeyNotFoundError, UnsupportedError
from reconciler.loop.audits import audited
from reconciler.loop.history import History
from reconciler.loop.migration import migration_of
from reconciler.loop.ports import RecordedQueries
from reconciler.loop.replica_settings import replica_settings
from reconciler.plan.budget import Budget
from reconciler.plan.conflicts import Conflicts
from reconciler.plan.ledger import (
    chosen_sizes,
    cpu_calibration,
    read_calibration,
    rewrites_data,
    throughput,
    written_bases,
    written_layouts,
    written_leads,
)
from reconciler.plan.ordering import ordering_of
from reconciler.plan.plan import policy_hash
from reconciler.plan.small_files import declared_target_bytes
from reconciler.queries.forecasts.chosen import chosen_forecast
from reconciler.queries.forecasts.window import window_once
from reconciler.queries.rewrite_cost import Rho, rho_from
from reconciler.queries.shape import Workload
from reconciler.table.left_to_spark import DEFAULT_ROW_GROUP, ROW_GROUP
from reconciler.table.numbers import number
from reconciler.table.observation import Observation, RecentWrite
from reconciler.table.operations import Encoding
from reconciler.table.orphans import NO_ORPHANS, Orphans, Search
from reconciler.table.replica import SeenReplica
from reconciler.table.retention import Retention
from reconciler.table.schema import Field, Schema, SortColumn
from reconciler.table.values import partition_identity


@dataclass(frozen=True, slots=True)
class Searched:
    """What was looked for besides the table before the decision."""

    needed: frozenset[int] = frozenset()
    """Snapshots that must not expire."""
    orphans: Orphans = NO_ORPHANS
    """Orphan files that were found."""
    replica: SeenReplica | None = None
    """The table that has the replica's name; None if nobody looked."""


def settings_for(
    policy: TableLayoutPolicy,
    observation: Observation,
    history: History,
    queries: RecordedQueries,
    *,
    target_bytes: int,
    now_ms: int,
    searched: Searched = Searched(),
) -> Settings:
    """Return the settings of one decision. Raises UserError for keys that do not exist or have no
    order, and for a write mode that the table's format version does not have."""
    spec, workload = policy.spec, queries.workload
    _require_mode(policy, observation)
    rho = rho_from(history.rho)
    quiet = quiet_period(spec, history.conflicts)
    settings = _asked_for(policy, observation, workload, target_bytes)
    return replace(
        settings,
        chosen_sizes=chosen_sizes(history.entries),
        quiet_partitions=quiet_partitions(observation, quiet.ms, now_ms),
        quiet_ms=quiet.ms,
        conflicts=quiet.conflicts,
        now_ms=now_ms,
        rho=rho,
        open_bytes=history.open_price.bytes,
        openings=history.open_price.openings,
        opened_ms=history.open_price.measured_ms,
        throughput=throughput(history.entries, history.runs),
        debt=debt(history, rho),
        replaced=history.replaced,
        written=written_layouts(history.entries),
        bases=written_bases(history.entries),
        leads=written_leads(history.entries),
        calibration=read_calibration(history.checks),
        coverage=queries.coverage.share,
        deletes=_by_commits(settings.deletes, observation, quiet.ms, now_ms),
        migration=migration_of(policy, observation, workload, history.entries, history.checks),
        cpu_calibration=cpu_calibration(history.entries),
        replica=replica_settings(spec, observation, searched.replica),
        expire=_expire(spec, searched.needed),
        orphans=searched.orphans,
        audited=audited(policy, observation, now_ms),
        undone=history.held.get(policy_hash(policy), {}) if history.held else {},
    )


def _by_commits(
    deletes: DeletePolicy, observation: Observation, quiet_ms: int, now_ms: int
) -> DeletePolicy:
    """Return the policy on deletes with the recent commits of others that concern it."""
    return replace(
        deletes,
        conflicting=conflicting_partitions(observation, quiet_ms, now_ms),
        compacted_ms=compacted_elsewhere_ms(observation),
    )


def _asked_for(
    policy: TableLayoutPolicy, observation: Observation, workload: Workload, target_bytes: int
) -> Settings:
    """Return the settings that follow from the policy and the table's properties."""
    spec, properties = policy.spec, observation.properties
    clustering, files = spec.layout.clustering, spec.layout.files
    alpha, allowance, beta = AGGRESSIVENESS[spec.recluster.aggressiveness.value]
    literal = spec.recluster.method is ReclusterMethod.LITERAL
    return Settings(
        mode=clustering.mode.value,
        trees=_trees(clustering.qd_tree),
        ordering=ordering_of(clustering.curve.value, sort_key(policy, observation.schema)),
        apply_to_writes=clustering.apply_to_writes,
        alpha=alpha,
        allowance=allowance,
        beta_openings=beta,
        literal=literal,
        forecast=window_once if literal else chosen_forecast,
        target_bytes=target_bytes,
        target_explicit=files.target_bytes is not None,
        target_auto=files.target_bytes is None
        and observation.metadata.bounds.target_bytes is None
        and not declared_target_bytes(properties),
        row_group_bytes=_row_group(policy, observation, workload, target_bytes),
        row_group_explicit=files.row_group_bytes is not None,
        row_group_auto=_chooses_row_groups(policy, observation),
        distribution_mode=_named(files.distribution_mode),
        metadata=observation.metadata,
        min_input_files=files.min_input_files,
        most_bytes=_tightest(budget.max_rewrite_bytes for budget in spec.budgets),
        most_cpu_seconds=_tightest(budget.max_cpu_seconds for budget in spec.budgets),
        budget_ms=_shortest_ms(spec.budgets),
        early_share=EARLY_SHARE if unattended(spec.approval) else None,
        objectives=_objectives(spec),
        deletes=DeletePolicy(
            mode=spec.deletes.mode.value,
            compaction=spec.deletes.compaction.value,
            format_version=spec.deletes.format_version.value,
        ),
        rewrite_manifests=spec.maintenance is not None
        and spec.maintenance.rewrite_manifests is ManifestRewrite.AUTO,
        remove_orphans=orphan_search(spec, observation),
        remove_specs_ms=specs_unused_ms(spec),
    )


def _named(mode: DistributionMode) -> str | None:
    """Return the mode as the table's property has it, None if the property is left as it is."""
    return None if mode is DistributionMode.AUTO else mode.value.lower()


def _chooses_row_groups(policy: TableLayoutPolicy, observation: Observation) -> bool:
    """Whether neither policy nor table names a size of row groups."""
    declared = policy.spec.layout.files.row_group_bytes
    return declared is None and not number(observation.properties, ROW_GROUP, 0)


def _row_group(
    policy: TableLayoutPolicy, observation: Observation, workload: Workload, target_bytes: int
) -> int:
    """Return the size of row groups: without queries, an expert's where none is named."""
    if not (_chooses_row_groups(policy, observation) and workload.empty):
        return row_group_size(policy, observation)
    table = observation.files
    return expert_row_group(target_bytes, table.total_bytes / max(table.total_records, 1))


def _trees(given: QdTree | None) -> TreeSettings:
    usual = TreeSettings()
    if given is None:
        return usual
    steps, least = usual.steps if given.steps is None else given.steps, given.least_rows or 0
    blocks = given.block_column or ""
    if given.method is TreeMethod.WOODBLOCK:
        return TreeSettings(least_rows=least, episodes=steps, block_column=blocks)
    return TreeSettings(given.method is not TreeMethod.GREEDY, steps, least, block_column=blocks)


def _require_mode(policy: TableLayoutPolicy, observation: Observation) -> None:
    deletes, version = policy.spec.deletes, observation.format_version
    lazy = deletes.mode is DeleteMode.MERGE_ON_READ
    if lazy and version < 2 and deletes.format_version is not FormatVersion.UPGRADE:
        raise UnsupportedError(
            f"{policy.origin}: spec.deletes.mode: MergeOnRead needs format version 2 or later; "
            f"{observation.name} has format version {version}",
            details=("The table was left as it was.",),
            do="spec.deletes.formatVersion: Upgrade, or spec.deletes.mode: CopyOnWrite",
        )


def compacted_elsewhere_ms(observation: Observation) -> int | None:
    """Return when another engine last replaced content files by others with the same rows (a
    compaction), None if the retained history has no such commit. Rewrites of manifests are none."""
    times = [
        one.timestamp_ms
        for one in observation.ancestry
        if one.operation == "replace" and not one.ours and _replaces_files(one.summary)
    ]
    return max(times, default=None)


def _replaces_files(summary: Mapping[str, str]) -> bool:
    return any(
        summary.get(name, "0") != "0" for name in ("deleted-data-files", "removed-delete-files")
    )


def orphan_search(spec: PolicySpec, observation: Observation) -> Search | None:
    """Return which files spec.maintenance.removeOrphans and the catalog's policy let be removed."""
    asked = spec.maintenance.remove_orphans if spec.maintenance else None
    if asked is None:
        return None
    own = Search(asked.age_seconds * 1000, asked.prefix or "")
    return observation.metadata.bounds.search(own)


def specs_unused_ms(spec: PolicySpec) -> int | None:
    asked = spec.maintenance.remove_specs if spec.maintenance else None
    return None if asked is None else asked.unused_seconds * 1000


def _expire(spec: PolicySpec, needed: frozenset[int]) -> Retention | None:
    asked = spec.maintenance.expire_snapshots if spec.maintenance else None
    if asked is None:
        return None
    return Retention(asked.older_than_seconds * 1000, asked.retain_last, needed)


def sort_key(policy: TableLayoutPolicy, schema: Schema) -> tuple[SortColumn, ...]:
    """Return spec.layout.clustering.keys as field ids, all ascending."""
    names = policy.spec.layout.clustering.keys
    return tuple(SortColumn(_key_field(policy, name, schema).field_id) for name in names)


def _key_field(policy: TableLayoutPolicy, name: str, schema: Schema) -> Field:
    where = f"{policy.origin}: spec.layout.clustering.keys"
    found = schema.find(name)
    nested = [field for field in schema.fields if field.name.startswith(f"{name}.")]
    if found is None and nested:
        raise KeyNotFoundError(
            f'{where}: column "{name}" is a struct, list or map and cannot be ordered',
            details=(f"It holds {', '.join(field.name for field in nested[:12])}.",),
            do="name a column of numbers, dates, times, strings or binary; fields of structs too",
        )
    if found is None:
        columns = ", ".join(field.name for field in schema.fields[:12])
        more = "" if len(schema.fields) <= 12 else f" and {len(schema.fields) - 12} more"
        raise KeyNotFoundError(
            f'{where}: the table has no column "{name}"',
            details=(f"It has {columns}{more}.",),
            do="name existing columns in spec.layout.clustering.keys",
        )
    if found.kind is None:
        raise KeyNotFoundError(
            f'{where}: column "{name}" of type {found.type} cannot be ordered',
            details=("A clustering key needs bounds: numbers, dates, times, strings, binary.",),
            do="choose another key",
        )
    return found


class QuietPeriod(NamedTuple):
    """The time without changes by others that a partition must have before it is rewritten."""

    ms: int
    """The time in milliseconds."""
    conflicts: int
    """Number of conflicts in a row that made it longer than declared; 0 if none did."""


def quiet_period(spec: PolicySpec, conflicts: Conflicts) -> QuietPeriod:
    """Return the declared quiet period, or a longer one after conflicts in a row."""
    declared = spec.layout.files.quiet_period_seconds * 1000
    if conflicts.hold_ms <= declared:
        return QuietPeriod(declared, 0)
    return QuietPeriod(conflicts.hold_ms, conflicts.most)


def quiet_partitions(observation: Observation, quiet_ms: int, now_ms: int) -> frozenset[int]:
    """Return the partitions that another writer overwrote or deleted from within the quiet period.

    None in a period of no length, even if a writer's clock is ahead of ours.
    """
    return _changed(observation, quiet_ms, now_ms, observation.recent_writes)


def conflicting_partitions(observation: Observation, quiet_ms: int, now_ms: int) -> frozenset[int]:
    """Return those of them that were changed by commits with which one of delete files conflicts.

    Rewrites of data files conflict, and on format 3 vectors of the same data files. Equality
    deletes do not, nor do position deletes on format 2: both apply besides.
    """
    beside = {Encoding.EQUALITY}
    if observation.format_version < 3:
        beside.add(Encoding.MERGE_ON_READ)
    harmless = {o.snapshot_id for o in observation.operations.every if o.encoding in beside}
    writes = [one for one in observation.recent_writes if one.snapshot_id not in harmless]
    return _changed(observation, quiet_ms, now_ms, writes)


def _changed(
    observation: Observation, quiet_ms: int, now_ms: int, writes: Iterable[RecentWrite]
) -> frozenset[int]:
    since = now_ms - quiet_ms
    recent = {
        (spec_id, partition_identity(values))
        for write in writes
        if quiet_ms and write.timestamp_ms > since
        for spec_id, values in write.partitions
    }
    return frozenset(
        number
        for number, (spec_id, values) in enumerate(observation.files.partitions)
        if (spec_id, partition_identity(values)) in recent
    )


def budgets_of(spec: PolicySpec) -> tuple[Budget, ...]:
    return tuple(
        Budget(
            name=budget.name,
            per_seconds=budget.per_seconds,
            schedule=budget.schedule,
            time_zone=budget.time_zone or "UTC",
            duration_seconds=budget.duration_seconds,
            max_rewrite_bytes=budget.max_rewrite_bytes,
            max_cpu_seconds=budget.max_cpu_seconds,
        )
        for budget in spec.budgets
    )


def _tightest(limits: Iterable[int | None]) -> int | None:
    """Return the least limit; a budget of 0 closes its window, and says nothing about size."""
    return min((limit for limit in limits if limit), default=None)


def _shortest_ms(budgets: Iterable[BudgetSpec]) -> int:
    """Return after which time, at the earliest, a budget admits as much again, in ms: its period,
    or the length of its window."""
    every = ((one.per_seconds or one.duration_seconds or 0) for one in budgets)
    return 1_000 * min(every, default=0)


def debt(history: History, rho: Rho) -> Debt:
    """Return Eq. 2's debt: the cost of all rewrites of the table's data, and what later queries did
    not read because of them."""
    read = sum(entry.outcome.read_bytes for entry in history.entries if rewrites_data(entry))
    return NO_DEBT.after(rho, float(read), history.credits.values())


def unattended(approval: Approval) -> bool:
    """Whether plans may run without anybody's approval."""
    return approval.mode is ApprovalMode.AUTOMATIC or approval.automatic_up_to is not None


def row_group_size(policy: TableLayoutPolicy, observation: Observation) -> int:
    """Return spec.layout.files.rowGroupSize, else the table's property."""
    return policy.spec.layout.files.row_group_bytes or configured_row_group(observation)


def configured_row_group(observation: Observation) -> int:
    """Return the size of row groups by the table's property; Iceberg's default if that is none."""
    return number(observation.properties, ROW_GROUP, DEFAULT_ROW_GROUP)


def _objectives(spec: PolicySpec) -> Objectives:
    wanted = spec.objectives
    amplification = wanted.max_scan_amplification
    return Objectives(
        max_scan_amplification=None if amplification is None else float(amplification),
        max_small_file_percent=_float(wanted.max_small_file_percent),
        max_deleted_rows_percent=_float(wanted.max_deleted_rows_percent),
        max_file_count=wanted.max_file_count,
    )


def _float(value: int | None) -> float | None:
    return None if value is None else float(value)
