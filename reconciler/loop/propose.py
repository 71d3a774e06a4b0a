"""Makes one frozen plan for one table: observe, gather evidence, advise, freeze.

This half of the step writes nothing to the user's catalog. `plan`, `apply`, `explain` and `status`
all call it, so that a plan means the same everywhere. Its I/O is passed in as `Ports`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from reconciler.advisor.advice import Advice, AdviceInput, Settings
from reconciler.advisor.decide import decide
from reconciler.api.documents import TableLayoutPolicy
from reconciler.errors import FileMissingError
from reconciler.loop.decision_settings import (
    History,
    done_actions,
    orphan_search,
    row_group_size,
    settings_for,
    specs_unused_ms,
)
from reconciler.loop.evidence import (
    STALE_WORKLOAD_MS,
    evidence_document,
)
from reconciler.loop.ports import Evidence, Ports, Target
from reconciler.plan.actions.base import Consent
from reconciler.plan.actions.state import ActionState, Validity
from reconciler.plan.ledger import trust
from reconciler.plan.plan import Plan, PlannedAction, freeze
from reconciler.plan.small_files import auto_target_bytes
from reconciler.plan.standing import Head, judge
from reconciler.queries.fragments import Workload
from reconciler.queries.table_view import OPEN_BYTES
from reconciler.table.damage import damage_of
from reconciler.table.filetable import FileTable, Int64
from reconciler.table.observation import Observation
from reconciler.table.orphans import NO_ORPHANS, Orphans
from reconciler.table.sample import RowGroups
from reconciler.table.spec_use import idle_specs

FEW_FILES = 128
"""Tables of at most this many files are planned with the footers of all of them.

The reading before and after a rewrite then has the same basis: row groups. Every plan makes these
requests; they cost no more than two rounds of sketches.
"""

LOOKS = 3
"""Times that a table is looked at when other writers remove files that are about to be read."""

SKETCH_ROUNDS = 3
"""Maximum rounds of sketches; each round may change which other files are worth sketching."""


def open_bytes_of(plan: Plan | None) -> int:
    """Return the price of opening a file by which a plan was made; the preset where it is not known
    any more."""
    cost = plan.evidence.get("cost") if plan is not None else None
    return int((cost or {}).get("openBytes", OPEN_BYTES))


@dataclass(frozen=True, kw_only=True)
class PlanOnTable:
    """A plan, judged against a table as it was observed.

    states: how each action of the plan stands, by its id. pending: the actions that remain.
    row_groups: of the footers that the plan's readings are based on.
    """

    target: Target
    policy: TableLayoutPolicy
    observation: Observation
    evidence: Evidence
    row_group_bytes: int
    plan: Plan
    states: Mapping[str, ActionState]
    pending: tuple[PlannedAction, ...]
    row_groups: RowGroups | None = None

    @property
    def open_bytes(self) -> int:
        """The price of opening a file by which the plan was made."""
        return open_bytes_of(self.plan)

    @property
    def by_person(self) -> bool:
        """Whether it must be a person who approves the plan, after a look at the result."""
        return any(item.action.consent is Consent.PERSON for item in self.pending)


@dataclass(frozen=True, kw_only=True)
class Proposal(PlanOnTable):
    """A plan with everything it was made from.

    frozen: the plan was not made now but is a standing one; newer: the plan that would be made now,
    if it differs from the frozen one.
    """

    settings: Settings
    history: History
    advice: Advice
    frozen: bool
    newer: Plan | None

    @property
    def stale_workload(self) -> bool:
        return bool(self.plan.evidence.get("workload", {}).get("warning"))


def propose(
    target: Target,
    policy: TableLayoutPolicy,
    ports: Ports,
    *,
    policy_digest: str,
    policy_name: str,
    not_acted_on: Sequence[str],
    now: dt.datetime,
    cores: int,
    refresh: bool = False,
    show_literals: bool = False,
) -> Proposal:
    """Return the standing frozen plan of (table, policy), or a new one from present evidence."""
    quiet_ms = policy.spec.layout.files.quiet_period_seconds * 1000
    target = replace(target, recent_ms=max(target.recent_ms, quiet_ms))
    found = _advised(target, policy, ports, now)
    seen, evidence, history, settings, advice, row_groups = found
    fresh = _freeze(
        target, policy, seen, evidence, settings, history, advice,
        policy_digest=policy_digest, policy_name=policy_name, not_acted_on=not_acted_on,
        now=now, cores=cores, show_literals=show_literals,
    )  # fmt: skip
    standing = None if refresh else _standing(ports, seen, policy_digest, now)
    if settings.audited is not None and standing is not None and standing.id != fresh.id:
        standing = None  # what waits on a branch comes first
    plan = standing or fresh
    states, pending = judged(plan, seen, now)
    return Proposal(
        target=target,
        policy=policy,
        observation=seen,
        evidence=evidence,
        row_group_bytes=settings.row_group_bytes,
        settings=settings,
        history=history,
        advice=advice,
        plan=plan,
        frozen=standing is not None,
        newer=_newer(fresh, plan, pending),
        states=states,
        pending=pending,
        row_groups=row_groups,
    )


def with_standing(proposal: Proposal, plan: Plan, now: dt.datetime) -> Proposal:
    """Return the proposal with another plan that stands in place of the one that was made now."""
    states, pending = judged(plan, proposal.observation, now)
    newer = _newer(proposal.plan, plan, pending)
    return replace(proposal, plan=plan, frozen=True, newer=newer, states=states, pending=pending)


def _newer(fresh: Plan, plan: Plan, pending: Sequence[PlannedAction]) -> Plan | None:
    """Return the plan that would be made now, if it differs from one of which nothing is done."""
    untouched = len(pending) == len(plan.actions)
    return fresh if plan.id != fresh.id and untouched else None


def judged(
    plan: Plan, seen: Observation, now: dt.datetime
) -> tuple[Mapping[str, ActionState], tuple[PlannedAction, ...]]:
    """Return how each action of the plan stands, and those that remain."""
    states = judge(plan, head_of(seen), now).states
    return states, tuple(a for a in plan.actions if states[a.id].validity is Validity.PENDING)


Found = TypeVar("Found")
Advised = tuple[Observation, Evidence, History, Settings, Advice, RowGroups | None]


def _advised(target: Target, policy: TableLayoutPolicy, ports: Ports, now: dt.datetime) -> Advised:
    """Advice on the table as it is now, with what it was made from.

    A data file that was removed between the look at the table and the read of its footer is looked
    for in the table once more: if another writer replaced it, the newer table is advised on.
    """
    return on_live_files(target, ports, lambda seen: _advised_on(seen, target, policy, ports, now))


def on_live_files(target: Target, ports: Ports, work: Callable[[Observation], Found]) -> Found:
    """Do work that reads data files of the table as it is now; see `_advised`."""
    seen = ports.observe(target)
    for _ in range(LOOKS - 1):
        try:
            return work(seen)
        except FileMissingError:
            newer = ports.observe(target)
            if newer.metadata_location == seen.metadata_location:
                raise
            seen = newer
    return work(seen)


def _advised_on(
    seen: Observation,
    target: Target,
    policy: TableLayoutPolicy,
    ports: Ports,
    now: dt.datetime,
) -> Advised:
    evidence, history = ports.evidence(seen), ports.history(seen.uuid)
    seen, orphans = _with_orphans(seen, target, policy, ports, now)
    seen = _with_unused_specs(seen, target, policy, ports, now)
    settings = settings_for(
        policy,
        seen,
        history,
        target_bytes=target_size(policy, seen),
        coverage=evidence.coverage.share,
        now_ms=_ms(now),
        workload=evidence.workload,
        needed=needed_snapshots(policy, seen, ports, now),
        orphans=orphans,
    )
    advice, row_groups, settings = advise(target, seen, evidence.workload, settings, ports)
    return seen, evidence, history, settings, advice, row_groups


def _with_orphans(
    seen: Observation, target: Target, policy: TableLayoutPolicy, ports: Ports, now: dt.datetime
) -> tuple[Observation, Orphans]:
    """Search orphan files where the policy asks for it; what is found is a fact of the table."""
    search = orphan_search(policy.spec)
    if search is None or any(batch.missing for batch in seen.waiting):
        return seen, NO_ORPHANS
    under_way = [one.prefix for one in ports.work(seen.uuid).attempts if one.prefix]
    found = ports.orphans(target, seen.uuid, search, _ms(now), under_way)
    if not found.listed:
        return seen, found
    paths = frozenset(file.path for file in found.files)
    return replace(seen, metadata=replace(seen.metadata, orphans=paths)), found


def _with_unused_specs(
    seen: Observation, target: Target, policy: TableLayoutPolicy, ports: Ports, now: dt.datetime
) -> Observation:
    """Look for partition specs that no snapshot uses, where the policy asks for it and the history
    is long enough to show it: all manifest lists are read."""
    unused_ms = specs_unused_ms(policy.spec)
    if unused_ms is None or any(batch.missing for batch in seen.waiting):
        return seen
    found = idle_specs(seen.metadata, seen.files, seen.delete_files, unused_ms, _ms(now))
    if not found:
        return seen
    unused = ports.unused_specs(target, found)
    return replace(seen, metadata=replace(seen.metadata, unused_specs=unused))


def _ms(moment: dt.datetime) -> int:
    return int(moment.timestamp() * 1000)


def needed_snapshots(
    policy: TableLayoutPolicy, seen: Observation, ports: Ports, now: dt.datetime
) -> frozenset[int]:
    """Return the snapshots from which plans that stand and open attempts start; asked for only
    where snapshots may expire."""
    if policy.spec.maintenance is None or policy.spec.maintenance.expire_snapshots is None:
        return frozenset()
    work, head = ports.work(seen.uuid), head_of(seen)
    bases = {one.base_snapshot_id for one in work.attempts}
    for plan in work.plans:
        if plan.base_snapshot_id is not None and judge(plan, head, now).fallen is None:
            bases.add(plan.base_snapshot_id)
    return frozenset(bases)


def target_size(policy: TableLayoutPolicy, observation: Observation) -> int:
    """Return spec.layout.files.targetSize; for Auto the table's property, else a size by table
    size."""
    explicit = policy.spec.layout.files.target_bytes
    return explicit or auto_target_bytes(observation.files, observation.properties)


def head_of(observation: Observation) -> Head:
    others = (snapshot.snapshot_id for snapshot in observation.other_snapshots)
    history = {item.snapshot_id: item.sequence_number for item in observation.ancestry}
    return Head(
        uuid=observation.uuid,
        files=observation.files,
        deletes=observation.deletes.paths,
        manifests=observation.manifest_table.every,
        done=done_actions(observation),
        metadata=observation.metadata,
        history=history,
        retained=frozenset((*history, *others)),
    )


def advise(
    target: Target,
    observation: Observation,
    workload: Workload,
    settings: Settings,
    ports: Ports,
) -> tuple[Advice, RowGroups | None, Settings]:
    """Return the advice, and the row groups and settings that it is based on.

    The row groups are from the footers of all files if there are few, else, like sketches, only of
    files where they could change the advice. The settings differ by the price of opening a file if
    the sketches measured it: the next plan, which finds the sketches made, has the same price.
    """
    files, columns = observation.files, sampled_columns(workload, settings)
    given = AdviceInput(
        files, workload, settings,
        deletes=observation.delete_files,
        operations=observation.operations,
        manifests=observation.manifest_table,
        damage=damage_of(observation),
    )  # fmt: skip
    sketched = known = np.empty(0, dtype=np.int64)
    if columns and len(files) <= FEW_FILES:
        known = with_footer(files)
        given = replace(given, row_groups=ports.footers(target, observation, known))
    given = replace(given, published=_published(given, target, observation, ports))
    advice = decide(given)
    if len(advice.wanted_footers):
        known = np.union1d(known, advice.wanted_footers).astype(np.int64)
        given = replace(given, row_groups=ports.footers(target, observation, known))
        advice = decide(given)
    for _ in range(SKETCH_ROUNDS):
        wanted = np.union1d(sketched, advice.wanted_sketches).astype(np.int64)
        if len(wanted) == len(sketched) or not columns:
            break
        sketched = wanted
        if not np.isin(sketched, known).all():
            known = np.union1d(known, sketched)
            given = replace(given, row_groups=ports.footers(target, observation, known))
        sample = ports.sketch(target, observation, sketched, columns)
        price = ports.open_price(observation.uuid)
        settings = replace(
            settings, open_bytes=price.bytes, openings=price.openings, opened_ms=price.measured_ms
        )
        given = replace(given, sample=sample, settings=settings)
        advice = decide(given)
    return advice, given.row_groups, settings


def _published(
    given: AdviceInput, target: Target, observation: Observation, ports: Ports
) -> AdviceInput | None:
    """Return the input for the table as it would be if what waits on branches were published."""
    files = observation.published
    if files is None:
        return None
    groups = given.row_groups
    if groups is not None:
        then = replace(observation, files=files)
        groups = ports.footers(target, then, with_footer(files))
    return replace(given, table=files, row_groups=groups)


def place_plan(
    plan: Plan, target: Target, policy: TableLayoutPolicy, ports: Ports, now: dt.datetime
) -> PlanOnTable:
    """Return a frozen plan on the table as it is now. Nothing is planned again."""

    def on(seen: Observation) -> PlanOnTable:
        evidence = ports.evidence(seen)
        states, pending = judged(plan, seen, now)
        return PlanOnTable(
            target=target,
            policy=policy,
            observation=seen,
            evidence=evidence,
            row_group_bytes=row_group_size(policy, seen),
            plan=plan,
            states=states,
            pending=pending,
            row_groups=_planned_row_groups(target, seen, evidence.workload, ports),
        )

    return on_live_files(target, ports, on)


def observed_again(placed: PlanOnTable, ports: Ports, now: dt.datetime) -> PlanOnTable:
    """Return the plan on the table as it is after the execution; no footer is read yet."""
    seen = ports.observe(placed.target)
    states, pending = judged(placed.plan, seen, now)
    return replace(placed, observation=seen, states=states, pending=pending, row_groups=None)


def _planned_row_groups(
    target: Target, seen: Observation, workload: Workload, ports: Ports
) -> RowGroups | None:
    """Return the row groups that a plan of the table was based on, as `advise` chose them.

    The sketched files are found by their stored sketches, which the plan left.
    """
    if not predicate_columns(workload):
        return None
    files, known = seen.files, with_footer(seen.files)
    if len(files) > FEW_FILES:
        sketched = set(ports.sketched(seen.uuid, [str(path) for path in files.path]))
        known = known[[path in sketched for path in files.path[known]]]
        if not len(known):
            return None
    return ports.footers(target, seen, known)


def with_footer(files: FileTable) -> Int64:
    """Return the rows of the files whose footers can be read: Parquet, and not encrypted."""
    return np.flatnonzero(files.parquet & ~files.encrypted).astype(np.int64)


def sampled_columns(workload: Workload, settings: Settings) -> tuple[int, ...]:
    """Return the columns that a sketch reads: those that queries filter on, and those by which a
    declared migration partitions. () without queries."""
    asked = predicate_columns(workload)
    if not asked or settings.migration is None:
        return asked
    return tuple(sorted({*asked, *settings.migration.columns}))


def predicate_columns(workload: Workload) -> tuple[int, ...]:
    """Return the field ids that some fragment filters on."""
    from reconciler.queries.predicate import fields_of

    return tuple(sorted({f for batch in workload.shapes for f in fields_of(batch.predicate)}))


def _standing(
    ports: Ports, observation: Observation, policy_digest: str, now: dt.datetime
) -> Plan | None:
    plan = ports.standing_plan(observation.uuid, policy_digest)
    if plan is None or plan.empty:
        return None
    return plan if judge(plan, head_of(observation), now).fallen is None else None


def _freeze(
    target: Target,
    policy: TableLayoutPolicy,
    observation: Observation,
    evidence: Evidence,
    settings: Settings,
    history: History,
    advice: Advice,
    *,
    policy_digest: str,
    policy_name: str,
    not_acted_on: Sequence[str],
    now: dt.datetime,
    cores: int,
    show_literals: bool,
) -> Plan:
    document = evidence_document(
        advice,
        observation,
        evidence.workload,
        settings,
        coverage=evidence.coverage,
        cores=cores,
        not_acted_on=not_acted_on,
        trust=trust(history.entries, history.checks),
        policy=policy,
        show_literals=show_literals,
    )
    _warn_if_stale(document, evidence.workload, now)
    lifetime = dt.timedelta(seconds=policy.spec.approval.plan_ttl_seconds)
    base = observation.snapshot_id
    if settings.audited is not None:
        base = settings.audited.base
        left = settings.audited.until_ms - int(now.timestamp() * 1000)
        lifetime = dt.timedelta(milliseconds=left) if left > 0 else lifetime
    return freeze(
        catalog=target.catalog.name,
        table=target.identifier,
        table_uuid=observation.uuid,
        policy_digest=policy_digest,
        policy=policy_name,
        base_snapshot_id=base,
        created=now,
        time_to_live=lifetime,
        actions=[(item.action, item.predicted) for item in advice.actions],
        files=observation.files,
        evidence=document,
    )


def _warn_if_stale(document: dict[str, Any], workload: Workload, now: dt.datetime) -> None:
    """Add a warning to the plan if the log is old; Automatic approval then waits."""
    age = _ms(now) - workload.until_ms
    if not workload.empty and age > STALE_WORKLOAD_MS:
        days = age // 86_400_000
        document["workload"]["warning"] = f"its last query is {days} days old"


def files_of(plan_action: PlannedAction, files: FileTable) -> FileTable:
    """Return the action's inputs as rows of the file table."""
    wanted = set(plan_action.action.inputs)
    return files.take(np.array([path in wanted for path in files.path], dtype=bool))
