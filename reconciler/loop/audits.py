"""What becomes of the batches that wait on a branch of a table: a person's approval, or the end.

Pure. They are dropped where the policy does not ask for them as they are any more, where another
writer changed what they replace, and where nobody approved them in time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reconciler.advisor.advice import Audited, ScoredAction
from reconciler.api.choices import ResultApproval
from reconciler.api.documents import TableLayoutPolicy
from reconciler.format import count, plural, utc
from reconciler.plan.actions.audited import Discard, Publish
from reconciler.plan.actions.state import Facts, Validity
from reconciler.plan.plan import policy_hash
from reconciler.plan.prediction import Prediction
from reconciler.plan.reasons import partition_text
from reconciler.table.audits import WaitingBatch
from reconciler.table.observation import Observation


def audited(policy: TableLayoutPolicy, seen: Observation, now_ms: int) -> Audited | None:
    """Return what becomes of the waiting batches, None if there are none."""
    if not seen.waiting:
        return None
    until = _until_ms(policy, seen.waiting)
    valid = [one for one in seen.waiting if not _changed(seen, one)]
    why = _unwanted(policy, seen.waiting, now_ms, until)
    if not why and not valid:
        why = _changed(seen, seen.waiting[0])
    if why:
        return Audited(_dropped(seen, why), seen.snapshot_id, until)
    ages = {item.snapshot_id: item.sequence_number for item in seen.ancestry}
    base = min((one.base for one in valid), key=ages.__getitem__)
    return Audited(tuple(_published(seen, one, until) for one in valid), base, until)


def waits_under(policy: TableLayoutPolicy) -> str:
    """Return the hash of a policy whose batches wait for a person, "" for any other."""
    wanted = policy.spec.safety.approval is ResultApproval.REQUIRED
    return policy_hash(policy) if wanted else ""


def _until_ms(policy: TableLayoutPolicy, waiting: Sequence[WaitingBatch]) -> int:
    oldest = min(one.at_ms for one in waiting)
    return oldest + policy.spec.approval.plan_ttl_seconds * 1000


def _unwanted(
    policy: TableLayoutPolicy, waiting: Sequence[WaitingBatch], now_ms: int, until_ms: int
) -> str:
    """Return why the policy does not want the batches, whatever became of the table."""
    branch, digest = policy.spec.safety.branch, waits_under(policy)
    if not digest:
        return "the policy does not require an approval of results any more"
    if any(one.branch != branch for one in waiting):
        return f"the policy names branch {branch} now"
    if any(one.policy != digest for one in waiting):
        return "the policy asks for another layout now"
    if now_ms >= until_ms:
        return f"nobody approved it until {utc(until_ms)} (planTTL)"
    return ""


def _changed(seen: Observation, batch: WaitingBatch) -> str:
    """Return why the batch does not fit main any more, "" if it may."""
    if batch.missing:
        return f"the files of snapshot {batch.snapshot_id} are gone"
    ages = {item.snapshot_id: item.sequence_number for item in seen.ancestry}
    if batch.base not in ages:
        return f"the snapshot {batch.base} that it was made from is not in main's history any more"
    newer = np.flatnonzero(seen.files.newest_delete > ages[batch.base])
    facts = Facts(
        live=seen.files.row_of.keys() | seen.deletes.paths,
        changed=frozenset(seen.files.path[newer]),
        metadata=seen.metadata,
    )
    state = _publish(batch).judge(facts)
    return "" if state.validity is Validity.PENDING else state.why


def _publish(batch: WaitingBatch) -> Publish:
    return Publish(batch.inputs, batch.branch, batch.snapshot_id)


def _published(seen: Observation, batch: WaitingBatch, until_ms: int) -> ScoredAction:
    action = _publish(batch)
    why = (
        f"plan {batch.plan_id} was carried out on the branch and verified; look at "
        f"VERSION AS OF {batch.snapshot_id} before {utc(until_ms)}"
    )
    label = f"{action.label(seen.schema, seen.files.specs)} by {count(len(batch.outputs))}"
    place = _place(seen, batch)
    label = f"{label}, {place}" if place else label
    return ScoredAction(action, Prediction(label=label, reason=why, kind=action.kind))


def _place(seen: Observation, batch: WaitingBatch) -> str:
    """Return the one partition of the data files that the batch replaces, "" if it has none or
    several."""
    files = seen.files
    rows = [files.row_of[path] for path in batch.inputs if path in files.row_of]
    numbers = set(files.partition[rows].tolist())
    if len(numbers) != 1:
        return ""
    spec_id, values = files.partitions[numbers.pop()]
    return partition_text(files.specs[spec_id], values, seen.schema)


def _dropped(seen: Observation, why: str) -> tuple[ScoredAction, ...]:
    found = []
    for branch in dict.fromkeys(one.branch for one in seen.waiting):
        own = tuple(sorted(o.snapshot_id for o in seen.waiting if o.branch == branch))
        action = Discard(branch, own)
        label = f"{action.label(seen.schema, seen.files.specs)}, {plural(len(own), 'commit')}"
        found.append(ScoredAction(action, Prediction(label=label, reason=why, kind=action.kind)))
    return tuple(found)
