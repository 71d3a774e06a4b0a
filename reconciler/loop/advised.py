"""From a table as it is now to advice: what a decision needs is observed, read and sampled here.

The I/O is passed in as `Ports`; the decision itself is `advisor.decide`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from reconciler.advisor.advice import Advice, AdviceInput, Rejected, Settings
from reconciler.advisor.choose.declared import footers_to_read
from reconciler.advisor.decide import decide
from reconciler.advisor.migration.risks import other_specs
from reconciler.advisor.situation import situation_of
from reconciler.api.documents import TableLayoutPolicy
from reconciler.errors import FileMissingError
from reconciler.loop.decision_settings import (
    Searched,
    orphan_search,
    settings_for,
    specs_unused_ms,
    unattended,
)
from reconciler.loop.file_checks import files_read
from reconciler.loop.history import History
from reconciler.loop.ports import Ports, RecordedQueries, Target
from reconciler.loop.replica_settings import replica_name
from reconciler.plan import reasons
from reconciler.plan.sentence import sentence
from reconciler.plan.small_files import auto_target_bytes
from reconciler.plan.standing import head_of, judge
from reconciler.queries.predicate import bounded_fields_of, pairs_of
from reconciler.queries.shape import Workload
from reconciler.table.catalog_policies import ORPHANS
from reconciler.table.damage import damage_of
from reconciler.table.filetable import FileTable, Int64
from reconciler.table.observation import Observation
from reconciler.table.orphans import NO_ORPHANS, Orphans
from reconciler.table.replica import SeenReplica
from reconciler.table.sample import RowGroups
from reconciler.table.spec_use import idle_specs

FEW_FILES = 128
"""Tables of at most this many files are planned with the footers of all of them.

The reading before and after a rewrite then has the same basis: row groups. Every plan makes these
requests; they cost no more than two rounds of sketches.
"""

LOOKS = 3
"""Times that a table is looked at when other writers remove files that are about to be read."""

CHECK_ROUNDS = 8
"""Times that the advice is made again without refused files; what is left, the executor refuses."""

SKETCH_ROUNDS = 3
"""Maximum rounds of sketches; each round may change which other files are worth sketching."""


TREE_ROUNDS = 2
"""Times that the advice is made again with trees by Woodblock: better ones may change what else is
rewritten."""

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Advised:
    """The advice on a table, with what it was made from."""

    observation: Observation
    """The table as it was advised on."""
    queries: RecordedQueries
    """The recorded queries of the table."""
    history: History
    """What the state store has of the table."""
    settings: Settings
    """The settings of the decision."""
    advice: Advice
    """What is to be done."""
    row_groups: RowGroups | None
    """The row groups of the footers that were read; None if none was."""


def advised(target: Target, policy: TableLayoutPolicy, ports: Ports, now: dt.datetime) -> Advised:
    """Return advice on the table as it is now, with what it was made from.

    A data file may be removed between the look at the table and the read of its footer. If another
    writer replaced it, the newer table is advised on.
    """
    return on_live_files(target, ports, lambda seen: _advised_on(seen, target, policy, ports, now))


def on_live_files(target: Target, ports: Ports, work: Callable[[Observation], Found]) -> Found:
    """Do work that reads data files of the table as it is now; see `advised`."""
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
    queries = ports.recorded_queries(seen)
    history = ports.history(seen.uuid)
    history = replace(history, credits=ports.credits(seen, queries, history))
    if unattended(policy.spec.approval):
        history = replace(history, replaced=ports.replaced(seen, history))
    seen, orphans = _with_orphans(seen, target, policy, ports, now)
    seen = _with_unused_specs(seen, target, policy, ports, now)
    settings = settings_for(
        policy,
        seen,
        history,
        queries,
        target_bytes=target_size(policy, seen),
        now_ms=_ms(now),
        searched=Searched(
            needed_snapshots(policy, seen, ports, now), orphans, _replica(target, policy, ports)
        ),
    )
    advice, row_groups, settings = advise(target, seen, queries.workload, settings, ports)
    return Advised(seen, queries, history, settings, advice, row_groups)


def _with_orphans(
    seen: Observation, target: Target, policy: TableLayoutPolicy, ports: Ports, now: dt.datetime
) -> tuple[Observation, Orphans]:
    """Search for orphan files where the policy asks for it, and return the observation with what
    was found.

    No listing is due within a day after one that found none. Then no orphan is known, and an action
    that was planned to remove some counts as done.
    """
    search = orphan_search(policy.spec, seen)
    facts = seen.metadata
    if search is None or _lost(seen) or facts.removes_nothing:
        return seen, NO_ORPHANS
    if facts.bounds.forbids((ORPHANS,)) or facts.bounds.keeps_orphans(search.age_ms, _ms(now)):
        return seen, NO_ORPHANS
    under_way = [one.prefix for one in ports.work(seen.uuid).attempts if one.prefix]
    found = ports.orphans(target, seen.uuid, search, _ms(now), under_way)
    paths = frozenset(file.path for file in found.files)
    facts = replace(facts, orphans=paths, orphans_refused=found.refused)
    return replace(seen, metadata=facts), found


def _with_unused_specs(
    seen: Observation, target: Target, policy: TableLayoutPolicy, ports: Ports, now: dt.datetime
) -> Observation:
    """Look for partition specs that no snapshot uses, where the policy asks for it and the history
    is long enough to show it: all manifest lists are read."""
    unused_ms = specs_unused_ms(policy.spec)
    if unused_ms is None or _lost(seen):
        return seen
    found = idle_specs(seen.metadata, seen.files, seen.delete_files, unused_ms, _ms(now))
    if not found:
        return seen
    unused = ports.unused_specs(target, found)
    return replace(seen, metadata=replace(seen.metadata, unused_specs=unused))


def _replica(target: Target, policy: TableLayoutPolicy, ports: Ports) -> SeenReplica | None:
    """Look at the table that has the replica's name, where the policy asks for a replica."""
    name = replica_name(policy.spec)
    return ports.replica(target, name) if name else None


def _lost(seen: Observation) -> bool:
    """Whether files of a batch that waits on a branch are gone."""
    return any(batch.missing for batch in seen.waiting)


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
    """Return spec.layout.files.targetSize; for Auto that of the catalog's policy, else the table's
    property, else a size by table size."""
    explicit = policy.spec.layout.files.target_bytes or observation.metadata.bounds.target_bytes
    return explicit or auto_target_bytes(observation.files, observation.properties)


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
    files, columns = observation.files, sampled_columns(workload, settings, observation.files)
    given = _input_of(target, observation, workload, settings, ports)
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
    advice, given = _with_trees(advice, given, observation, ports)
    return _on_sound_files(advice, given, target, observation, ports), given.row_groups, settings


def _with_trees(
    advice: Advice, given: AdviceInput, observation: Observation, ports: Ports
) -> tuple[Advice, AdviceInput]:
    """Return the advice with the trees that Woodblock finds for it, and the input that has them."""
    for _ in range(TREE_ROUNDS):
        if not advice.wanted_trees:
            break
        found = ports.trained(observation.uuid, advice.wanted_trees)
        if found.missing:
            why = reasons.without_woodblock(found.missing)
            turned = Rejected(sentence("a tree by Woodblock"), reasons.NOT_INSTALLED, why)
            return replace(advice, rejected=(*advice.rejected, turned)), given
        given = replace(given, trained={**given.trained, **found.codes})
        advice = decide(given)
    return advice, given


def _input_of(
    target: Target, observation: Observation, workload: Workload, settings: Settings, ports: Ports
) -> AdviceInput:
    """Return the input without footers and sketches."""
    return AdviceInput(
        observation.files, workload, settings,
        deletes=observation.delete_files,
        operations=observation.operations,
        manifests=observation.manifest_table,
        damage=damage_of(observation),
        refusals=ports.refusals(target, observation),
    )  # fmt: skip


def _on_sound_files(
    advice: Advice, given: AdviceInput, target: Target, observation: Observation, ports: Ports
) -> Advice:
    """Return the advice whose actions read no file that is refused, as far as footers show it.

    What is refused is decided on again without it, which may choose other files.
    """
    for _ in range(CHECK_ROUNDS):
        read = files_read(observation, (item.action for item in advice.actions))
        if not read:
            break
        checked = ports.check_files(target, observation, read)
        if not checked.refusals.keys() - given.refusals.keys():
            return replace(advice, files_read=checked.files, files_unchecked=checked.unread)
        given = replace(given, refusals={**given.refusals, **checked.refusals})
        advice, given = _with_trees(decide(given), given, observation, ports)
    return advice


def _published(
    given: AdviceInput, target: Target, observation: Observation, ports: Ports
) -> AdviceInput | None:
    """Return the input for the table as it would be if what waits on branches were published."""
    files, deletes = observation.published, observation.published_deletes
    if files is None or deletes is None:
        return None
    groups = given.row_groups
    if groups is not None:
        then = replace(observation, files=files)
        groups = ports.footers(target, then, with_footer(files))
    return replace(given, table=files, deletes=deletes, row_groups=groups)


def planned_row_groups(
    target: Target,
    policy: TableLayoutPolicy,
    seen: Observation,
    queries: RecordedQueries,
    ports: Ports,
    now: dt.datetime,
) -> RowGroups | None:
    """Return the row groups that a plan of the table was based on, as `advise` chose them.

    The sketched files are found by their stored sketches, which the plan left.
    """
    if not filtered_columns(queries.workload):
        return None
    files, known = seen.files, with_footer(seen.files)
    if len(files) > FEW_FILES:
        sketched = set(ports.sketched(seen.uuid, [str(path) for path in files.path]))
        known = known[[path in sketched for path in files.path[known]]]
        history, size = ports.history(seen.uuid), target_size(policy, seen)
        settings = settings_for(policy, seen, history, queries, target_bytes=size, now_ms=_ms(now))
        given = _input_of(target, seen, queries.workload, settings, ports)
        known = np.union1d(known, footers_to_read(situation_of(given))).astype(np.int64)
        if not len(known):
            return None
    return ports.footers(target, seen, known)


def with_footer(files: FileTable) -> Int64:
    """Return the rows of the files whose footers can be read: Parquet, and not encrypted."""
    return np.flatnonzero(files.parquet & ~files.encrypted).astype(np.int64)


def sampled_columns(workload: Workload, settings: Settings, files: FileTable) -> tuple[int, ...]:
    """Return the columns that a sketch reads: those that queries filter on, those that they
    compare with each other where trees are cut by that, and those by which a declared migration
    partitions. () where no query filters and no file has to move."""
    asked, migration = set(filtered_columns(workload)), settings.migration
    if not asked and (migration is None or not other_specs(files, migration).any()):
        return ()
    if settings.trees.block_column:
        pairs = (pair for shape in workload.shapes for pair in pairs_of(shape.predicate))
        asked.update(field_id for pair in pairs for field_id in pair.fields)
    if migration is not None:
        asked.update(migration.columns)
    return tuple(sorted(asked))


def filtered_columns(workload: Workload) -> tuple[int, ...]:
    """Return the field ids of conditions that bounds may rule out, ascending."""
    asked = (bounded_fields_of(shape.predicate) for shape in workload.shapes)
    return tuple(sorted({field_id for fields in asked for field_id in fields}))
