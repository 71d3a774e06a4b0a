"""Branches that a rewrite of main would keep from being published (write-audit-publish).

The job asks the live table once more before it works (jobs.standing); this is for who reads a plan
before that.
"""

from __future__ import annotations

from reconciler.core.observation import Observation


def live_branch(observation: Observation) -> str:
    """`branch audit` or `staged snapshot 7 (wap.id q1)`, the first that is live; "" for none.

    A branch is live when its head is no snapshot of main's history: a rewrite of main would end
    its fast-forward. Under write.wap.enabled one that still stands at main's head is live too.
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
