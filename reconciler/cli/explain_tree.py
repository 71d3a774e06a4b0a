"""The trees of cuts in `layoutctl explain --tree`: those that the plan would write, else those that
the table was written by, with what its queries read of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reconciler.loop.local_actor import LocalActor
    from reconciler.loop.propose import Proposal
    from reconciler.plan.actions.rewrite import Rewrite
    from reconciler.plan.ledger import LedgerEntry
    from reconciler.plan.plan import Plan, PlannedAction
    from reconciler.table.cut_tree import Tree

TREE_DEPTH = 4
"""Cuts above the deepest nodes that are shown."""


def not_cut(proposal: Proposal) -> list[str]:
    """Return which conditions of the queries no cut of the planned trees serves."""
    from reconciler.plan.reasons import NOT_CUT

    return [str(one.why) for one in proposal.advice.rejected if one.reason == NOT_CUT]


def trees_document(
    proposal: Proposal, actor: LocalActor, *, show_literals: bool
) -> list[dict[str, Any]]:
    """Return the first levels of each tree that the plan would write. If it writes none, those
    that the table was written by last, each with `files`, `filesOutside` and `shapes`."""
    planned = _along_trees(proposal.plan.actions)
    if planned:
        return [
            {"action": action, **_levels(one, proposal, show_literals=show_literals)}
            for action, one in planned
        ]
    written = written_trees(proposal, executed_plans(proposal.history.entries, actor))
    return [
        _levels(one, proposal, show_literals=show_literals) | _as_read(one, proposal)
        for one in written
    ]


def _along_trees(items: Iterable[PlannedAction]) -> list[tuple[str, Rewrite]]:
    """Return the actions that write rows of the table along a tree, with their ids."""
    from reconciler.plan.actions.rewrite import as_rewrite

    rewrites = ((item.id, as_rewrite(item.action)) for item in items)
    return [
        (action, made)
        for action, made in rewrites
        if made is not None and made.ordering.tree is not None
    ]


def executed_plans(entries: Sequence[LedgerEntry], actor: LocalActor) -> list[Plan]:
    """Return the plans with a committed action, as far as they are stored, in order of
    execution."""
    ids = dict.fromkeys(entry.plan_id for entry in entries if entry.committed)
    found = (actor.store.get_plan(plan_id) for plan_id in ids)
    return [plan for plan in found if plan is not None]


def written_trees(proposal: Proposal, plans: Sequence[Plan]) -> list[Rewrite]:
    """Return what the last plan with a tree wrote along trees, an action for each partition. plans:
    those that were carried out, in order."""
    done = {(e.plan_id, e.outcome.action_id) for e in proposal.history.entries if e.committed}
    for plan in reversed(plans):
        found = _along_trees(item for item in plan.actions if (plan.id, item.id) in done)
        if found:
            return list({(one.spec_id, one.partition): one for _, one in found}.values())
    return []


def planned_or_written(proposal: Proposal, plans: Sequence[Plan]) -> Tree | None:
    """Return the tree that rows of the table are to be written by, else the one that they were
    written by last."""
    planned = [one for _, one in _along_trees(proposal.plan.actions)]
    found = planned or written_trees(proposal, plans)
    return found[0].ordering.tree if found else None


def _levels(made: Rewrite, proposal: Proposal, *, show_literals: bool) -> dict[str, Any]:
    from reconciler.plan.tree_words import lines

    tree, schema = made.ordering.tree, proposal.observation.schema
    assert tree is not None
    shown = lines(tree, schema, TREE_DEPTH, show_literals=show_literals)
    return {
        "tree": tree.name,
        "leaves": tree.leaves,
        "nodes": [{"depth": one.depth, "text": one.text, "leaves": one.leaves} for one in shown],
    }


def _as_read(made: Rewrite, proposal: Proposal) -> dict[str, Any]:
    """Return which files of the partition lie outside of the leaves, by their bounds, and what the
    recorded shapes read of the leaves, and of the table's files. Rows that moved to another spec
    may be in any of its partitions. None is left of a spec that was removed."""
    import numpy as np

    from reconciler.plan.leaf_drift import outside_leaves
    from reconciler.plan.reasons import partition_text
    from reconciler.queries.shape import workload_of
    from reconciler.render.leaf_boxes import leaf_reads

    files, tree = proposal.observation.files, made.ordering.tree
    assert tree is not None
    moved, spec = made.moves_by is not None, files.specs.get(made.into)
    within = [
        place[0] == made.into and (moved or place[1] == made.partition)
        for place in files.partitions
    ]
    own = np.flatnonzero(np.array(within, dtype=np.bool_)[files.partition])
    leaves = {
        shape.shape_id: float(leaf_reads(tree, files.schema, workload_of([shape])).sum())
        for shape in proposal.queries.workload.shapes
    }
    return {
        "partition": ""
        if moved or spec is None
        else partition_text(spec, made.partition, files.schema),
        "files": len(own),
        "filesOutside": len(outside_leaves(files, tree, own)),
        "shapes": [
            {
                "shapeId": one["shapeId"],
                "text": one["text"],
                "queries": one["queries"],
                "leavesPerQuery": round(leaves[one["shapeId"]], 3),
                "filesPerQuery": one["filesNowMilli"] / 1000,
                "bytesPerQuery": round(one["bytesNow"] / max(1, one["queries"])),
            }
            for one in proposal.plan.evidence.get("shapes", [])
            if one["shapeId"] in leaves
        ],
    }
