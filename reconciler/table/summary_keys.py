"""Keys in the summaries of snapshots, for all who write or find them."""

from __future__ import annotations

from collections.abc import Mapping

PLAN_ID = "layout.plan-id"
ACTION_IDS = "layout.action-ids"
"""The actions that the commit carries out, joined by commas."""
ATTEMPT_ID = "layout.attempt-id"
BATCH = "layout.batch"
"""Number of the commit batch within the attempt."""
BLOCK_TREES = "layout.block-trees"
"""Keys of the trees by which all block ids in the added files are true, joined by commas."""
FENCE = "layout.fence"
"""Key of an empty append that fences a batch off: its value is attempt/batch, with batch 0 for all.
No batch that it names can commit any more."""

COUNTED = "total-data-files"
"""A count that every summary with counts has."""
BEYOND_APPENDS = ("added-delete-files", "deleted-data-files", "removed-delete-files")
"""Counts that an append does not have."""


def only_appends(operation: str, summary: Mapping[str, str]) -> bool:
    """Return whether a snapshot added data files and nothing else, by its operation and its counts:
    not every writer of deletes names the operation that the specification asks for. A summary
    without counts says nothing."""
    beyond = any(summary.get(name, "0") != "0" for name in BEYOND_APPENDS)
    return operation == "append" and COUNTED in summary and not beyond
