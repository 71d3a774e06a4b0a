"""Who carries out which kind of action. The only place where Spark asks for an action's kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reconciler.plan.actions.audited import Discard, Publish
from reconciler.plan.actions.base import Action
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
from reconciler.plan.actions.rewrite import ApplyDeletes, BinPack, Cluster, Recluster
from reconciler.plan.actions.rewrite_manifests import RewriteManifests
from reconciler.plan.actions.set_block_column import SetBlockColumn
from reconciler.plan.actions.set_properties import SetProperties
from reconciler.plan.actions.set_sort_order import SetSortOrder
from reconciler.plan.actions.upgrade_format import UpgradeFormat
from reconciler.spark.actions.audited import DiscardExecutor, PublishExecutor
from reconciler.spark.actions.base import Executor
from reconciler.spark.actions.deletes import (
    CompactExecutor,
    ConvertExecutor,
    RemoveDanglingExecutor,
)
from reconciler.spark.actions.expire_snapshots import ExpireExecutor
from reconciler.spark.actions.migrate import MigrateExecutor
from reconciler.spark.actions.partition_specs import AddSpecExecutor, SwitchSpecExecutor
from reconciler.spark.actions.remove_orphans import OrphansExecutor
from reconciler.spark.actions.remove_specs import RemoveSpecsExecutor
from reconciler.spark.actions.rewrite import RewriteExecutor
from reconciler.spark.actions.rewrite_manifests import ManifestsExecutor
from reconciler.spark.actions.set_block_column import BlockColumnExecutor
from reconciler.spark.actions.set_properties import PropertiesExecutor
from reconciler.spark.actions.set_sort_order import SortOrderExecutor
from reconciler.spark.actions.upgrade_format import UpgradeExecutor
from reconciler.spark.schedule.run import Run

EXECUTORS: Mapping[type[Action], type[Executor[Any]]] = {
    SetProperties: PropertiesExecutor,
    SetSortOrder: SortOrderExecutor,
    UpgradeFormat: UpgradeExecutor,
    SetBlockColumn: BlockColumnExecutor,
    AddSpec: AddSpecExecutor,
    Migrate: MigrateExecutor,
    BinPack: RewriteExecutor,
    Cluster: RewriteExecutor,
    Recluster: RewriteExecutor,
    ApplyDeletes: RewriteExecutor,
    ConvertDeletes: ConvertExecutor,
    CompactDeletes: CompactExecutor,
    RemoveDanglingDeletes: RemoveDanglingExecutor,
    SwitchSpec: SwitchSpecExecutor,
    RewriteManifests: ManifestsExecutor,
    ExpireSnapshots: ExpireExecutor,
    RemoveSpecs: RemoveSpecsExecutor,
    RemoveOrphans: OrphansExecutor,
    Publish: PublishExecutor,
    Discard: DiscardExecutor,
}
"""In this order they run: writers and rewrites follow the properties that are set first, and data
files are rewritten before what deletes their rows: a rewrite names the deletes of its inputs. Files
are moved to a new partition spec before the writers are switched to it. Housekeeping comes last."""


def executors_of(run: Run) -> list[Executor[Any]]:
    """Return the executors of the request's actions, each with its own actions."""
    request = run.request
    items = list(zip(request.action_ids, request.actions, strict=True))
    own = {
        executor: [item for item in items if EXECUTORS[type(item[1])] is executor]
        for executor in EXECUTORS.values()
    }
    return [executor(run, found) for executor, found in own.items() if found]
