"""Which snapshots must be kept, by the rules of Iceberg's table specification ("Snapshot retention
policy") and by what we need ourselves.

Pure, so that the planner (on an observation) and the executor (on the live table) judge alike.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reconciler.table import numbers
from reconciler.table.flags import flag
from reconciler.table.summary_keys import PLAN_ID

MAIN = "main"
BRANCH = "branch"
GC_PROPERTY = "gc.enabled"
DELETE_PROPERTY = "s3.delete-enabled"
ANY_AGE_MS, ALL = (1 << 63) - 1, (1 << 31) - 1
"""The greatest age in milliseconds and the greatest number of snapshots that a table can ask to
keep."""
LAST_MS = 253_402_300_799_000
"""The last second of the year 9999, after which no time is shown."""
DUE_SHARE = 0.1
"""Share of a table's snapshots that must be old: a table with a commit a minute would else have a
new plan every minute."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A retained snapshot, as retention and replicas judge it."""

    id: int
    """Its id."""
    parent: int | None
    """Id of the snapshot that it was made on; None for a root."""
    timestamp_ms: int
    """Its commit time in epoch milliseconds."""
    summary: Mapping[str, str] = field(default_factory=dict)
    """Its summary, as the commit wrote it."""
    operation: str = ""
    """"append", "overwrite", "replace" or "delete"; "" if missing."""


@dataclass(frozen=True, slots=True)
class Ref:
    """A branch or a tag with its own retention."""

    name: str
    """Name of the ref."""
    type: str
    """"branch" or "tag"."""
    snapshot_id: int
    """The snapshot that it points at."""
    least: int | None = None
    """Fewest snapshots of the branch to keep; None if the ref does not say."""
    max_age_ms: int | None = None
    """Age in milliseconds up to which the branch's snapshots are kept; None if the ref does not
    say."""


@dataclass(frozen=True, slots=True)
class SnapshotLog:
    """Every retained snapshot, and every ref, main included."""

    snapshots: tuple[Snapshot, ...] = ()
    """The retained snapshots."""
    refs: tuple[Ref, ...] = ()
    """The branches and tags."""
    published: frozenset[int] = frozenset()
    """Ids of the snapshots that added manifests of main's head; empty unless
    `audits.with_published` has filled it in."""

    @property
    def by_id(self) -> dict[int, Snapshot]:
        return {snapshot.id: snapshot for snapshot in self.snapshots}

    @property
    def heads(self) -> frozenset[int]:
        """Return the snapshots that a branch or a tag points at."""
        return frozenset(ref.snapshot_id for ref in self.refs)

    @property
    def main(self) -> tuple[Snapshot, ...]:
        """Return the snapshots of main, newest first."""
        head = next((ref.snapshot_id for ref in self.refs if ref.name == MAIN), None)
        return tuple(line(self.by_id, head))


NO_SNAPSHOTS = SnapshotLog()


@dataclass(frozen=True, slots=True)
class Retention:
    """spec.maintenance.expireSnapshots, with what the table's own properties ask for."""

    max_age_ms: int
    """Milliseconds for which every snapshot is kept."""
    least: int
    """Number of snapshots of each branch that are kept whatever their age."""
    needed: frozenset[int] = frozenset()
    """Ids of snapshots from which work of ours starts. They are kept, with everything that main
    holds since."""


def snapshot_log(body: Mapping[str, Any]) -> SnapshotLog:
    """Return the log of table metadata in the JSON form of the specification."""
    head = body.get("current-snapshot-id")
    refs = dict(body.get("refs") or {})
    if head is not None and int(head) != -1:
        refs.setdefault(MAIN, {"snapshot-id": head, "type": BRANCH})
    return SnapshotLog(
        tuple(_snapshot(item) for item in body.get("snapshots") or ()),
        tuple(_ref(name, item) for name, item in sorted(refs.items())),
    )


def _snapshot(body: Mapping[str, Any]) -> Snapshot:
    parent = body.get("parent-snapshot-id")
    return Snapshot(
        int(body["snapshot-id"]),
        None if parent is None else int(parent),
        int(body["timestamp-ms"]),
        dict(body.get("summary") or {}),
        str((body.get("summary") or {}).get("operation", "")),
    )


def _ref(name: str, body: Mapping[str, Any]) -> Ref:
    return Ref(
        name,
        str(body["type"]),
        int(body["snapshot-id"]),
        body.get("min-snapshots-to-keep"),
        body.get("max-snapshot-age-ms"),
    )


def line(by_id: Mapping[int, Snapshot], head: int | None) -> Iterator[Snapshot]:
    """Yield the snapshots from `head` back to the root, or to where the history has expired."""
    current = None if head is None else by_id.get(head)
    while current is not None:
        yield current
        current = None if current.parent is None else by_id.get(current.parent)


def may_delete(properties: Mapping[str, str]) -> bool:
    """Whether the table's files may be deleted; they may not if others could refer to them."""
    return flag(properties, GC_PROPERTY, default=True)


def of_table(retention: Retention, properties: Mapping[str, str]) -> Retention:
    """Return the retention that keeps what the policy or the table's properties ask for, whichever
    keeps more: every snapshot where a property is set and cannot be read."""
    if any(numbers.is_unread(properties, name) for name in numbers.RETENTION):
        return Retention(ANY_AGE_MS, ALL, retention.needed)
    return Retention(
        max(retention.max_age_ms, numbers.number(properties, numbers.MAX_AGE_MS, 0)),
        max(retention.least, numbers.number(properties, numbers.LEAST_SNAPSHOTS, 0)),
        retention.needed,
    )


def _counted(text: str | None) -> int:
    """Return a count of a snapshot's summary, 0 if it has none."""
    try:
        return int(text or 0)
    except ValueError:
        return 0


def kept(log: SnapshotLog, retention: Retention, now_ms: int) -> frozenset[int]:
    """Return the snapshots that must be kept.

    - Each snapshot that a ref points at.
    - The newest snapshots of each branch, by its own retention or else by the given one.
    - Young snapshots outside of every branch.
    - Staged snapshots that are not published.
    - Commits of ours that somebody rolled back: they show that the plan must not be repeated.
    - Main's snapshots since each of `needed`, which other parts still read.
    - Main's snapshots since the head of each branch that main has passed: they show that the branch
      holds nothing of its own, and allow to fast-forward it.
    """
    by_id = log.by_id
    found = set(log.heads)
    referenced = set(found)
    for ref in log.refs:
        if ref.type != BRANCH:
            continue
        branch = tuple(line(by_id, ref.snapshot_id))
        referenced.update(snapshot.id for snapshot in branch)
        found.update(_young(branch, ref, retention, now_ms))
    main = log.main
    passed = {ref.snapshot_id for ref in log.refs if ref.type == BRANCH and ref.name != MAIN}
    found.update(_since(main, retention.needed | passed))
    found.update(retention.needed & by_id.keys())
    published = {snapshot.summary.get("published-wap-id") for snapshot in main}
    for snapshot in log.snapshots:
        if snapshot.id in referenced:
            continue
        staged = snapshot.summary.get("wap.id")
        young = snapshot.timestamp_ms >= now_ms - retention.max_age_ms
        if young or (staged and staged not in published) or PLAN_ID in snapshot.summary:
            found.add(snapshot.id)
    return frozenset(found)


def _young(
    branch: Sequence[Snapshot], ref: Ref, retention: Retention, now_ms: int
) -> Iterator[int]:
    """Yield a branch's snapshots from its head to the first that may expire."""
    least = retention.least if ref.least is None else ref.least
    age = retention.max_age_ms if ref.max_age_ms is None else ref.max_age_ms
    for number, snapshot in enumerate(branch):
        if number >= least and snapshot.timestamp_ms < now_ms - age:
            return
        yield snapshot.id


def _since(main: Sequence[Snapshot], needed: Collection[int]) -> Iterator[int]:
    """Yield main's snapshots from its head to the oldest that is needed."""
    places = [number for number, snapshot in enumerate(main) if snapshot.id in needed]
    yield from (snapshot.id for snapshot in main[: max(places, default=-1) + 1])


def old(log: SnapshotLog, retention: Retention, now_ms: int) -> frozenset[int]:
    """Return the snapshots that may expire."""
    return frozenset(log.by_id.keys() - kept(log, retention, now_ms))


def enough(log: SnapshotLog) -> int:
    """Return how many snapshots must be old for a plan that expires them."""
    return max(1, math.ceil(DUE_SHARE * len(log.snapshots)))


def due_ms(log: SnapshotLog, retention: Retention, now_ms: int) -> int | None:
    """Return the first time after now at which enough snapshots are old, if nothing else happens;
    None if that never comes."""
    ages = [retention.max_age_ms, *(ref.max_age_ms for ref in log.refs if ref.max_age_ms)]
    times = {one.timestamp_ms + age + 1 for one in log.snapshots for age in ages}
    later = sorted(time for time in times if now_ms < time <= LAST_MS)
    first = bisect_left(later, True, key=lambda at: len(old(log, retention, at)) >= enough(log))
    return later[first] if first < len(later) else None


@dataclass(frozen=True, slots=True)
class Freed:
    """Content files that only expired snapshots hold, by the summaries of the commits that removed
    them."""

    files: int
    """Number of files."""
    bytes: int
    """Bytes of the files."""
    bounds: str
    """"exact", or "at most" where a kept snapshot before the expired ones may hold some too."""


def freed(log: SnapshotLog, expired: Collection[int]) -> Freed:
    """Return what expiring these snapshots frees.

    A file that a snapshot of main removed was live in its parent; nobody needs it once every
    snapshot before is gone.
    """
    files = size = 0
    bounds = "exact"
    older_kept = False
    for snapshot in reversed(log.main):
        if snapshot.parent in expired:
            summary = snapshot.summary
            removed = _counted(summary.get("deleted-data-files"))
            removed += _counted(summary.get("removed-delete-files"))
            files += removed
            size += _counted(summary.get("removed-files-size"))
            bounds = "at most" if removed and older_kept else bounds
        older_kept = older_kept or snapshot.id not in expired
    return Freed(files, size, bounds)
