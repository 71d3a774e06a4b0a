"""Work held back by the quiet period (until when), or refused: for good because of what files hold,
or because of a live branch or the times in the metadata.

A table whose only work is held back by the quiet period is Converged (nothing is admitted or
blocked), but not for long; a reader of "nothing to do" needs to know what comes next, and when.
Nothing about the table changes when that time comes, so the operator, which plans only tables that
have changed, must know the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reconciler.advisor.advice import HORIZON_MS, Advice, Rejected, Settings
from reconciler.api.documents import TableLayoutPolicy
from reconciler.format import duration, iec, plural, utc
from reconciler.plan import reasons
from reconciler.table.branches import live_branch, of_observation
from reconciler.table.clock import REMEDY, ahead_text
from reconciler.table.filetable import Partition
from reconciler.table.observation import Observation


@dataclass(frozen=True, slots=True)
class Waiting:
    """Rewrites that only the quiet period prevents."""

    rewrites: int
    """Number of rewrites."""
    files: int
    """Number of their input files."""
    bytes: int
    """Bytes of their input files."""
    first_ms: int
    """When the first of their partitions leaves the quiet period, in epoch milliseconds."""
    last_ms: int
    """When the last of their partitions leaves the quiet period, in epoch milliseconds."""
    quiet_ms: int
    """Length of the quiet period in milliseconds, as lengthened by conflicts."""
    conflicts: int
    """Conflicts in a row that lengthened the quiet period; 0 for the declared one."""

    @property
    def until(self) -> str:
        first, last = utc(self.first_ms), utc(self.last_ms)
        return last if first == last else f"{first}, the last until {last}"

    def text(self) -> str:
        """Return `1 rewrite of 12 files (1.2 MiB) waits until ...`, and why."""
        rewrites, files = plural(self.rewrites, "rewrite"), plural(self.files, "file")
        waits = "waits" if self.rewrites == 1 else "wait"
        return (
            f"{rewrites} of {files} ({iec(self.bytes)}) {waits} until {self.until} "
            f"(quiet period after another writer's change{self._lengthened()})"
        )

    def _lengthened(self) -> str:
        if not self.conflicts:
            return ""
        times = plural(self.conflicts, "conflict")
        return f", {duration(self.quiet_ms / 1000)} because of {times} in a row"

    def document(self) -> dict[str, Any]:
        return {
            "rewrites": self.rewrites,
            "files": self.files,
            "bytes": self.bytes,
            "from": utc(self.first_ms),
            "until": utc(self.last_ms),
            "conflicts": self.conflicts,
        }


def waiting(advice: Advice, observation: Observation, settings: Settings) -> Waiting | None:
    """Return the rewrites that wait, None if there are none."""
    held = [item for item in advice.rejected if item.reason == reasons.QUIET_PERIOD]
    if not held:
        return None
    ends = [end for end in quiet_ends(held, observation, settings) if end is not None]
    if not ends:
        return None
    return Waiting(
        rewrites=len(held),
        files=sum(item.files for item in held),
        bytes=sum(item.bytes for item in held),
        first_ms=min(ends),
        last_ms=max(ends),
        quiet_ms=settings.quiet_ms,
        conflicts=settings.conflicts,
    )


def quiet_ends(
    rejected: Sequence[Rejected], observation: Observation, settings: Settings
) -> list[int | None]:
    """Return, per candidate, when its partition's quiet period ends; None if it does not wait for
    one."""
    if not any(item.reason == reasons.QUIET_PERIOD for item in rejected):
        return [None] * len(rejected)
    last = _last_changes(observation)
    files = observation.files

    def end(item: Rejected) -> int | None:
        if item.reason != reasons.QUIET_PERIOD:
            return None
        numbers = {int(files.partition[files.row_of[path]]) for path in item.inputs}
        places = {files.partitions[number] for number in numbers}
        changes = [last[place] for place in places if place in last]
        return _whole_second(max(changes) + settings.quiet_ms) if changes else None

    return [end(item) for item in rejected]


def excepted(advice: Advice) -> str:
    """Return which files no rewrite takes, whatever the queries, and why; "" if there are none."""
    for_good = (reasons.NOT_REWRITABLE, reasons.REFUSED_FILES, reasons.UNDONE)
    return "; ".join(str(item.why) for item in advice.rejected if item.reason in for_good)


def refused(observation: Observation, policy: TableLayoutPolicy) -> str:
    """Return why `apply` would refuse the table now, and what to do; "" if it would not."""
    ahead = ahead_text(observation.ahead_ms)
    if ahead:
        return f"apply refuses while {ahead}; {REMEDY}"
    allowed = policy.spec.safety.allow_live_branches
    live = "" if allowed else live_branch(of_observation(observation))
    if not live:
        return ""
    return (
        f"apply refuses while {live} is live: publish or drop it, "
        "or set spec.safety.allowLiveBranches: true"
    )


def ripens_ms(advice: Advice, observation: Observation, settings: Settings) -> int | None:
    """Return the first time, in ms, at which a rejected rewrite may be decided differently without
    a change.

    Quiet periods end, snapshots grow old, and hysteresis ends: files that we wrote within the
    horizon need twice the saving. None if only a change of the table, its queries or its policy can
    help.
    """
    moments = [end for end in quiet_ends(advice.rejected, observation, settings) if end is not None]
    files = observation.files
    for item in advice.rejected:
        if item.reason == reasons.RECENTLY_WRITTEN and item.inputs:
            rows = [files.row_of[path] for path in item.inputs]
            moments.append(_whole_second(int(files.added_ms[rows].max()) + HORIZON_MS))
    if advice.upkeep_due_ms is not None:
        moments.append(_whole_second(advice.upkeep_due_ms))
    return min(moments, default=None)


def _last_changes(observation: Observation) -> Mapping[tuple[int, Partition], int]:
    """Return, per partition, the time of the last overwrite or delete by another writer."""
    last: dict[tuple[int, Partition], int] = {}
    for write in observation.recent_writes:
        for place in write.partitions:
            last[place] = max(last.get(place, 0), write.timestamp_ms)
    return last


def _whole_second(moment_ms: int) -> int:
    """Round up to a second, so that the period has passed at the time that is shown."""
    return -(-moment_ms // 1000) * 1000
