"""Decides about housekeeping: what the policy's `maintenance` asks for, once it is due.

Housekeeping changes no row and no data file that a kept snapshot needs. It is planned apart from
the rewrites, and carried out after them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from reconciler.advisor.advice import Rejected, ScoredAction
from reconciler.advisor.judge.candidate import rejected
from reconciler.advisor.situation import Situation
from reconciler.format import plural
from reconciler.plan import reasons
from reconciler.plan.actions.expire_snapshots import ExpireSnapshots
from reconciler.plan.actions.remove_orphans import RemoveOrphans
from reconciler.plan.actions.remove_specs import RemoveSpecs
from reconciler.plan.actions.rewrite_manifests import RewriteManifests
from reconciler.plan.prediction import MANIFESTS, Prediction
from reconciler.plan.sentence import Sentence, sentence
from reconciler.table import numbers
from reconciler.table.catalog_policies import EXPIRY, METADATA, ORPHANS
from reconciler.table.metadata import TableMetadata
from reconciler.table.numbers import number
from reconciler.table.orphans import Asked, Search
from reconciler.table.retention import (
    Freed,
    Retention,
    due_ms,
    enough,
    freed,
    of_table,
    old,
)
from reconciler.table.spec_use import history_ms
from reconciler.table.times import HOUR_MS

ORPHAN_FILES, SPECS = "remove orphans", "remove partition specs"
MANIFEST_BYTES = 8 << 20
"""Iceberg's default size of a manifest."""
LEAST_MANIFESTS = 4
"""Manifests fewer in all, or a query, below which a rewrite is not worth a commit."""
MICROS_AN_ENTRY = 200
"""CPU time of reading an entry three times and writing it twice."""


@dataclass(frozen=True, slots=True)
class Upkeep:
    """Housekeeping that is due, and what was considered and is not due."""

    actions: tuple[ScoredAction, ...] = ()
    """The actions to carry out."""
    rejected: tuple[Rejected, ...] = ()
    """What was considered and is not planned."""
    due_ms: int | None = None
    """When the next housekeeping is due, in epoch milliseconds; None if none is to come."""

    def __add__(self, more: Upkeep) -> Upkeep:
        times = [time for time in (self.due_ms, more.due_ms) if time is not None]
        return Upkeep(
            self.actions + more.actions, self.rejected + more.rejected, min(times, default=None)
        )


def housekeeping(situation: Situation) -> Upkeep:
    """Return manifests to rewrite, then snapshots to expire: these may hold the old manifests; then
    partition specs that no snapshot uses, and files that nothing refers to."""
    if situation.facts.refused:
        return Upkeep()
    settings, bounds = situation.settings, situation.settings.metadata.bounds
    found = Upkeep()
    if settings.rewrite_manifests:
        found = _unless(situation, (METADATA,), "rewrite manifests") or _manifests(situation)
    if settings.expire:
        asked = bounds.retention(settings.expire)
        found += _unless(situation, (EXPIRY,)) or _expire(situation, asked)
    if settings.remove_specs_ms is not None:
        found += _specs(situation, settings.remove_specs_ms)
    if settings.remove_orphans:
        search = settings.remove_orphans
        found += _unless(situation, (ORPHANS,), ORPHAN_FILES) or _orphans(situation, search)
    return found


def _unless(
    situation: Situation, kinds: tuple[str, ...], what: str = "expire snapshots"
) -> Upkeep | None:
    """Return that a policy of the catalog forbids it, None if none does."""
    why = situation.settings.metadata.bounds.forbids(kinds)
    return _not(situation, reasons.CATALOG_POLICY, why, what) if why else None


def _manifests(situation: Situation) -> Upkeep:
    """Rewrite manifests that are small, or over which the files of each partition are scattered."""
    present = situation.given.manifests
    properties = situation.settings.metadata.properties
    size = number(properties, numbers.MANIFEST_BYTES, MANIFEST_BYTES)
    after = max(1, math.ceil(int(present.bytes.sum()) / size))
    now, then = present.read_now, present.read_after(after)
    fewer = len(present) - after
    if fewer < LEAST_MANIFESTS and now - then < LEAST_MANIFESTS:
        return Upkeep()
    if len(present) < 2 * after and now < 2 * then:
        return Upkeep()
    action = RewriteManifests(tuple(sorted(present.path)), manifests=after)
    table, total = situation.table, int(present.bytes.sum())
    label = f"{action.label(table.schema, table.specs)}, {now:.1f} -> {then:.1f} read per query"
    entries = int(present.files.sum())
    spent = round(entries * MICROS_AN_ENTRY / 1000)
    predicted = Prediction(
        label=label,
        reason=f"a query of one partition reads {now:.1f} of {len(present)} manifests",
        files_in=len(present),
        files_out=after,
        groups=1,
        bytes_in=total,
        bytes_out=total,
        cpu_millis=spent,
        millis=spent,
        unit=MANIFESTS,
        kind=action.kind,
    )
    return Upkeep((ScoredAction(action, predicted),))


def _expire(situation: Situation, asked: Retention) -> Upkeep:
    settings = situation.settings
    log, properties = settings.metadata.log, settings.metadata.properties
    if forbidden := _forbidden(settings.metadata):
        return _not(situation, forbidden, "")
    retention = of_table(asked, properties)
    found = old(log, retention, settings.now_ms)
    least = enough(log)
    later = due_ms(log, retention, settings.now_ms)
    if not found:
        return Upkeep(due_ms=later)
    if len(found) < least:
        why = sentence("", str(len(found)), " of ", str(len(log.snapshots)),
                       " snapshots may expire; ", str(least), " are needed")  # fmt: skip
        return replace(_not(situation, reasons.NOT_DUE, why), due_ms=later)
    action = ExpireSnapshots(tuple(sorted(found)), retention.max_age_ms, retention.least)
    predicted = _predicted(situation, action, freed(log, found))
    return Upkeep((ScoredAction(action, predicted),))


def _specs(situation: Situation, unused_ms: int) -> Upkeep:
    """Remove old specs without a use; none while the table is on its way to another spec."""
    settings, table = situation.settings, situation.table
    metadata, migration = settings.metadata, settings.migration
    if not metadata.old_specs:
        return Upkeep()
    if migration is not None and migration.present != migration.spec_id:
        return _not(situation, reasons.SPEC_IN_USE, "the table moves to another spec", SPECS)
    reach = history_ms(metadata.log, settings.now_ms)
    if reach < unused_ms:
        due = settings.now_ms + unused_ms - reach if metadata.log.main else None
        hours, asked = (str(ms // HOUR_MS) for ms in (reach, unused_ms))
        why = sentence("", hours, " h of history are retained; ", asked, " h are needed")
        return replace(_not(situation, reasons.SPEC_IN_USE, why, SPECS), due_ms=due)
    unused = tuple(n for n in metadata.old_specs if n in (metadata.unused_specs or ()))
    if not unused:
        return _not(situation, reasons.SPEC_IN_USE, "", SPECS)
    action = RemoveSpecs(unused, unused_ms)
    predicted = Prediction(
        label=action.label(table.schema, table.specs),
        reason=f"no retained snapshot has a file of them, back to {reach // HOUR_MS} h ago",
        kind=action.kind,
    )
    return Upkeep((ScoredAction(action, predicted),))


def _orphans(situation: Situation, search: Search) -> Upkeep:
    """Remove files that nobody refers to; none where somebody could not be asked."""
    found, table = situation.settings.orphans, situation.table
    if forbidden := _forbidden(situation.settings.metadata):
        return _not(situation, forbidden, "", ORPHAN_FILES)
    bounds = situation.settings.metadata.bounds
    if why := bounds.keeps_orphans(search.age_ms, situation.settings.now_ms):
        return _not(situation, reasons.CATALOG_POLICY, why, ORPHAN_FILES)
    if found.refused:
        return _not(situation, reasons.NOT_PROVEN, found.refused, ORPHAN_FILES)
    if not found.files:
        return Upkeep(due_ms=found.next_ms)
    action = RemoveOrphans(tuple(sorted(file.path for file in found.files)), search.age_ms)
    example = found.files[0].path
    more = f"; {found.left:,} more after them" if found.left else ""
    predicted = Prediction(
        label=action.label(table.schema, table.specs),
        reason=f"nobody refers to them ({_asked(found.asked)}), and they are older than "
        f"{search.age_ms // HOUR_MS} h; for example {example}{more}",
        kind=action.kind,
        removed_files=len(action.files),
        removed_bytes=sum(file.size for file in found.files),
    )
    return Upkeep((ScoredAction(action, predicted),))


def _forbidden(metadata: TableMetadata) -> str:
    """Return the reason why no file of the table may be removed, "" if files may be."""
    if not metadata.removes_nothing:
        return ""
    return reasons.LEFT_TO_SERVICE if metadata.files_stay else reasons.NOT_REMOVABLE


def _asked(asked: Asked) -> str:
    others = plural(asked.tables, "other table")
    found = f" and {plural(asked.metadata, 'metadata file')} of others" if asked.metadata else ""
    return f"asked: this table, {others} of the catalog{found}"


def _not(
    situation: Situation, reason: str, why: Sentence | str, what: str = "expire snapshots"
) -> Upkeep:
    nothing = np.zeros(0, dtype=np.int64)
    return Upkeep(rejected=(rejected(situation, what, reason, why, nothing),))


def _predicted(situation: Situation, action: ExpireSnapshots, found: Freed) -> Prediction:
    table = situation.table
    left = len(situation.settings.metadata.log.snapshots) - len(action.snapshots)
    return Prediction(
        label=action.label(table.schema, table.specs),
        reason=f"older than the policy and the table's properties keep; {left} stay",
        kind=action.kind,
        removed_files=found.files,
        removed_bytes=found.bytes,
        estimate=found.bounds,
    )
