"""The kinds of action, listed once here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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

KINDS: Mapping[str, type[Action]] = {
    kind.kind: kind
    for kind in (
        SetProperties, SetSortOrder, UpgradeFormat, SetBlockColumn, AddSpec, Migrate, SwitchSpec,
        BinPack, Cluster, Recluster, Restore, RollBack, ApplyDeletes, ConvertDeletes,
        CompactDeletes, RemoveDanglingDeletes, BuildReplica, RewriteManifests, ExpireSnapshots,
        RemoveSpecs, RemoveOrphans, Publish, Discard,
    )
}  # fmt: skip


def action_from_canonical(body: Mapping[str, Any]) -> Action:
    """Return the action of a canonical form. Raises KeyError or ValueError on a foreign
    document."""
    kind = KINDS.get(body["type"])
    if kind is None:
        raise ValueError(f"{body['type']!r} is not a type of action")
    return kind.from_canonical(body)
