"""Finds branches that could not be published any more after a rewrite of main
(write-audit-publish).

This check is for readers of a plan; the job checks the live table again before it works
(jobs.standing).
"""

from __future__ import annotations

from reconciler.core.observation import Observation


def live_branch(observation: Observation) -> str:
    """Return the first live branch, as `branch audit` or `staged snapshot 7 (wap.id q1)`, "" if
    none.

    A branch is live if its head is not in main's history: a rewrite of main would prevent its
    fast-forward. With write.wap.enabled a branch that is still at main's head is live too.
    """
    on_main = {snapshot.snapshot_id for snapshot in observation.ancestry}
    audited = observation.properties.get("write.wap.enabled") == "true"
    for ref in observation.refs:
        if ref.name == "main" or ref.type != "branch":
            continue
        at_head = audited and ref.snapshot_id == observation.snapshot_id
        if ref.snapshot_id not in on_main or at_head:
            return f"branch {ref.name}"
    published = {snapshot.summary.get("published-wap-id") for snapshot in observation.ancestry}
    for snapshot in observation.other_snapshots if audited else ():
        staged = snapshot.summary.get("wap.id")
        if staged and staged not in published:
            return f"staged snapshot {snapshot.snapshot_id} (wap.id {staged})"
    return ""
