"""Finds branches that could not be published any more after a rewrite of main
(write-audit-publish).

One question for every reader: of a plan (on an observation), and of a job, before it works and
again at its commit (on the live table, engines.commit.standing).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from reconciler.table.audits import is_own
from reconciler.table.flags import flag
from reconciler.table.observation import Observation


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch other than main."""

    name: str
    """Name of the branch."""
    snapshot_id: int
    """Id of its head."""
    on_main: bool
    """Whether its head is a snapshot of main's history."""


@dataclass(frozen=True, slots=True)
class Branches:
    """The branches and staged commits that a rewrite of main may disturb."""

    head: int | None
    """Snapshot of main; None for an empty table."""
    others: tuple[Branch, ...]
    """The other branches."""
    audited: bool = False
    """Whether `write.wap.enabled` is set."""
    staged: tuple[tuple[int, str], ...] = ()
    """(snapshot id, wap.id) of the snapshots outside of main's history; filled for audited tables
    only."""
    published: Collection[str] = ()
    """The wap.ids that main's history has; filled for audited tables only."""


def audits_writes(properties: Mapping[str, str]) -> bool:
    """Whether writers may stage commits, which are published later (write-audit-publish)."""
    return flag(properties, "write.wap.enabled", default=False)


def live_branch(branches: Branches) -> str:
    """Return the first live branch, as `branch audit` or `staged snapshot 7 (wap.id q1)`, "" if
    none.

    A branch is live if its head is not in main's history: a rewrite of main would prevent its
    fast-forward. With write.wap.enabled a branch that is still at main's head is live too.
    """
    for branch in branches.others:
        at_head = branches.audited and branch.snapshot_id == branches.head
        if not branch.on_main or at_head:
            return f"branch {branch.name}"
    for snapshot_id, wap_id in branches.staged:
        if wap_id not in branches.published:
            return f"staged snapshot {snapshot_id} (wap.id {wap_id})"
    return ""


def of_observation(observation: Observation) -> Branches:
    """Return the branches without those that an audit of ours left behind: the next run drops
    them."""
    on_main = {snapshot.snapshot_id for snapshot in observation.ancestry}
    beside = {snapshot.snapshot_id: snapshot.summary for snapshot in observation.other_snapshots}
    audited = audits_writes(observation.properties)
    others = tuple(
        Branch(ref.name, ref.snapshot_id, ref.snapshot_id in on_main)
        for ref in observation.refs
        if ref.name != "main"
        and ref.type == "branch"
        and not is_own(beside.get(ref.snapshot_id, {}), ref.name)
    )
    if not audited:
        return Branches(observation.snapshot_id, others)
    staged = ((s.snapshot_id, s.summary.get("wap.id")) for s in observation.other_snapshots)
    published = (s.summary.get("published-wap-id") for s in observation.ancestry)
    return Branches(
        observation.snapshot_id,
        others,
        audited,
        tuple((snapshot_id, wap_id) for snapshot_id, wap_id in staged if wap_id),
        frozenset(wap_id for wap_id in published if wap_id),
    )
