"""Who carries out which kind of action. Only here an execution asks for an action's kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reconciler.engines.actions.audited import DiscardExecutor, PublishExecutor
from reconciler.engines.actions.base import Executor
from reconciler.engines.actions.build_replica import ReplicaExecutor
from reconciler.engines.actions.deletes import (
    CompactExecutor,
    ConvertExecutor,
    RemoveDanglingExecutor,
)
from reconciler.engines.actions.expire_snapshots import ExpireExecutor
from reconciler.engines.actions.metadata_change import MetadataExecutor
from reconciler.engines.actions.migrate import MigrateExecutor
from reconciler.engines.actions.partition_specs import AddSpecExecutor, SwitchSpecExecutor
from reconciler.engines.actions.remove_orphans import OrphansExecutor
from reconciler.engines.actions.remove_specs import RemoveSpecsExecutor
from reconciler.engines.actions.rewrite import RewriteExecutor
from reconciler.engines.actions.rewrite_manifests import ManifestsExecutor
from reconciler.engines.actions.roll_back import RollBackExecutor
from reconciler.engines.actions.set_block_column import BlockColumnExecutor
from reconciler.engines.actions.upgrade_format import UpgradeExecutor
from reconciler.engines.schedule.run import Run
from reconciler.plan.actions.audited import Discard, Publish
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.build_replica import BuildReplica
from reconciler.plan.actions.delete_maintenance import (
    CompactDeletes,
    ConvertDeletes,
    RemoveDanglingDeletes,
)
from reconciler.plan.actions.expire_snapshots import ExpireSnapshots
from reconciler.plan.actions.migrate import Migrate
from reconciler.plan.actions.partition_specs import AddSpec, SwitchSpec
from reconciler.plan.actions.remove_orphans import RemoveOrphans
from reconciler.plan.actions.remove_specs import RemoveSpecs
from reconciler.plan.actions.rewrite import ApplyDeletes, BinPack, Cluster, Recluster, Restore
from reconciler.plan.actions.rewrite_manifests import RewriteManifests
from reconciler.plan.actions.roll_back import RollBack
from reconciler.plan.actions.set_block_column import SetBlockColumn
from reconciler.plan.actions.set_properties import SetProperties
from reconciler.plan.actions.set_sort_order import SetSortOrder
from reconciler.plan.actions.upgrade_format import UpgradeFormat

EXECUTORS: Mapping[type[Action], type[Executor[Any]]] = {
    SetProperties: MetadataExecutor,
    SetSortOrder: MetadataExecutor,
    UpgradeFormat: UpgradeExecutor,
    SetBlockColumn: BlockColumnExecutor,
    AddSpec: AddSpecExecutor,
    Migrate: MigrateExecutor,
    BinPack: RewriteExecutor,
    Cluster: RewriteExecutor,
    Recluster: RewriteExecutor,
    Restore: RewriteExecutor,
    RollBack: RollBackExecutor,
    ApplyDeletes: RewriteExecutor,
    ConvertDeletes: ConvertExecutor,
    CompactDeletes: CompactExecutor,
    RemoveDanglingDeletes: RemoveDanglingExecutor,
    SwitchSpec: SwitchSpecExecutor,
    BuildReplica: ReplicaExecutor,
    RewriteManifests: ManifestsExecutor,
    ExpireSnapshots: ExpireExecutor,
    RemoveSpecs: RemoveSpecsExecutor,
    RemoveOrphans: OrphansExecutor,
    Publish: PublishExecutor,
    Discard: DiscardExecutor,
}
"""Executors in the order in which they run. Properties and sort order are set first, so that
writers and rewrites follow them. Data files are rewritten before what deletes their rows, because a
rewrite names the deletes of its inputs. Files are moved to a new partition spec before the writers
are switched to it. Housekeeping comes last."""


def executors_of(run: Run) -> list[Executor[Any]]:
    """Return the executors of the request's actions, each with its own actions."""
    request = run.request
    items = list(zip(request.action_ids, request.actions, strict=True))
    own = {
        executor: [item for item in items if EXECUTORS[type(item[1])] is executor]
        for executor in EXECUTORS.values()
    }
    return [executor(run, found) for executor, found in own.items() if found]
