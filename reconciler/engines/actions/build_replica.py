"""Builds a replica: a second table with the source's rows in the leaves of another tree.

Spark writes the rows of the source's snapshot at the beginning, each leaf to files of its own; the
witness compares them with the source's, by count and hash; only then the record that names both
snapshots is committed to the source. What ends before leaves a snapshot of the replica that no
record names, and that nobody is routed to. It is charged to budgets as a build that ends well.

Only a table that says whose replica it is, and whose rows nobody else has changed, is written to.
Each commit names the metadata of which that was judged.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from reconciler.engines.actions.one_by_one import Begun, OneByOneExecutor
from reconciler.engines.answers import Kind
from reconciler.engines.backend import Copied, Copies, CopyWork
from reconciler.engines.commit import metadata
from reconciler.engines.schedule import asking, described
from reconciler.engines.schedule.attempt import Attempt
from reconciler.engines.schedule.opening import opening_of
from reconciler.engines.table import Table
from reconciler.errors import BlockedError, ReconcilerError, VerificationError
from reconciler.format import count, iec
from reconciler.plan.actions.build_replica import BuildReplica
from reconciler.plan.actions.set_properties import SetProperties
from reconciler.plan.actions.state import ActionState, Facts, Validity
from reconciler.plan.execution import COMMITTED, FAILED, Outcome
from reconciler.rewrite.comparison import Fingerprint, WitnessWork
from reconciler.rewrite.files import DataFile
from reconciler.table.replica import (
    LEAST_KEPT_MS,
    OF,
    RECORD,
    Replica,
    Standing,
    grown,
    not_ours,
    not_the_recorded,
    replaced,
    replica_of,
    since,
    standing,
)

ANEW = "it is to be built anew"
NONE_KEPT = -1
"""Time for which no replaced snapshot stays, in milliseconds."""


@dataclass(frozen=True, slots=True)
class _Written:
    """Rows that were written and compared."""

    record: Replica
    """The record of the replica that has them."""
    rows: int
    """Number of the rows."""
    files_in: int
    """Number of the source's files that were read."""
    files_out: int
    """Number of files that were written."""
    size_out: int
    """Bytes of the latter."""


@dataclass(slots=True)
class _Used:
    """What a build has used so far, however it ends."""

    read_bytes: int = 0
    """Bytes of the source's files that are read; 0 before writing begins."""
    verify_cpu_seconds: float = 0.0
    """CPU seconds of comparing rows."""


class ReplicaExecutor(OneByOneExecutor[BuildReplica]):
    def state(self, action: BuildReplica, facts: Facts) -> ActionState:
        return action.judge(self.with_log(facts))

    def may_begin(self) -> bool:
        return not self.run.stopping()

    def commit(self, key: str, action: BuildReplica) -> None:
        begun, self.used = self.begin(), _Used()
        try:
            written = self._written(begun, action)
            self.run.require_lease()
            self._record(None if written is None else written.record)
        except BaseException as error:
            self._charge(begun, key, error)
            raise
        self._note(begun, key, written)
        if written is None:
            self.say_skipped(key, action, ActionState(Validity.LOST, why=ANEW))
            return
        size = iec(self.used.read_bytes)
        text = f"{action.verb}  {count(written.rows)} rows, {size}: rows equal"
        self.run.say("committed", text, key)

    def _written(self, begun: Begun, action: BuildReplica) -> _Written | None:
        request, source = self.run.request, self._attempt(begun)
        copies = self.run.backend.copies(request.catalog, request.table, action.table)
        write = self._appended if action.appends else self._whole
        return write(source, action, copies)

    def _attempt(self, begun: Begun) -> Attempt:
        run = self.run
        table = run.table.fresh()
        return Attempt(
            backend=run.backend, id=begun.attempt_id, name=run.shown, table=table,
            snapshot_id=table.head() or begun.base, sequence_number=0, prefix="",
            verify=run.request.verify,
            asked_opening=lambda: opening_of(run.request.catalog, run.request.table),
        )  # fmt: skip

    # Writing

    def _whole(self, source: Attempt, action: BuildReplica, copies: Copies) -> _Written:
        """Write all rows of the source's snapshot at the beginning."""
        made = copies.found()
        if made is not None:
            self._require_ours(action, made)
        tasks = copies.every_task(source.table, source.snapshot_id)
        wanted = described.inputs_of(source, tasks, described.live_deletes(source))
        size = sum(file.size for file in wanted)
        self._require_room(action, size)
        own = _properties(source.table)
        if made is None:
            made = copies.create(source.table, own)
        if made is None:
            raise self._taken(action, "somebody has made it just now")
        self._make_room(action, copies, made, size)
        self._require_ours(action, made)  # as it is now, which the commit requires
        self.used.read_bytes = size
        copied = copies.write_all(source.table, made, tasks, own, _work(source, action))
        self._require_arrived(action, copies, made, copied)
        self._require_budget(action, copies, made)
        files = _added(made, [copied.snapshot_id])
        seen = self._replica(source, made, copied.snapshot_id, action)
        rows = self._compare(source, wanted, seen, files)
        total = sum(file.size for file in files)
        record = Replica(
            action.table, made.uuid(), copied.snapshot_id, source.snapshot_id,
            source.table.schema_id(), action.tree, total, total, made.schema_id(),
        )  # fmt: skip
        return _Written(record, rows, len(wanted), len(files), total)

    def _appended(self, source: Attempt, action: BuildReplica, copies: Copies) -> _Written | None:
        """Write the rows that were appended to the source; None where the replica is not the one
        that was recorded, or has no room for them."""
        base = replace(source.table.facts().metadata, log=source.table.log())
        record, made = replica_of(base.properties), copies.found()
        if record is None or made is None or record.tree != action.tree:
            return None
        found = standing(record, base)
        if found.standing is not Standing.BEHIND:
            return None
        wanted = _added(source.table, found.appended)
        size = sum(file.size for file in wanted)
        self._expire(copies, made, action.kept_ms)
        if copies.held_bytes(made) + size > action.budget_bytes:
            return None
        main = made.log().main
        if not_the_recorded(record, made.uuid(), made.schema_id(), main):
            return None
        self.used.read_bytes = size
        copied = copies.write_appended(
            source.table, made, (record.source_snapshot_id, source.snapshot_id),
            max(1, round(size / max(action.target_bytes, 1))), _work(source, action),
        )  # fmt: skip
        self._require_arrived(action, copies, made, copied)
        self._require_budget(action, copies, made)
        files = _added(made, [copied.snapshot_id])
        seen = self._replica(source, made, copied.snapshot_id, action)
        rows = self._compare(source, wanted, seen, files)
        more = sum(file.size for file in files)
        now = grown(record, copied.snapshot_id, source.snapshot_id, record.bytes + more)
        return _Written(now, rows, len(wanted), len(files), more)

    def _require_arrived(
        self, action: BuildReplica, copies: Copies, made: Table, copied: Copied
    ) -> None:
        """Refresh the replica. Raises BlockedError unless the commit is in the table that was
        judged, and nobody has changed rows since."""
        now = copies.found()
        if now is None or now.uuid() != made.uuid():
            raise self._taken(action, "somebody has put it in place of the replica")
        if copied.answer.kind in (Kind.DENIED, Kind.INVALID, Kind.REFUSED):
            raise metadata.refused(made, copied.answer) from copied.answer.error
        made.refresh()
        line = made.log().main
        if since(copied.snapshot_id, line).standing is not Standing.FRESH:
            raise self._disturbed(action, copied.answer.why)

    # Comparing

    def _replica(self, source: Attempt, made: Table, head: int, action: BuildReplica) -> Attempt:
        config, levels = self.run.request.catalog, (*self.run.request.table[:-1], action.table)
        return replace(
            source, name=".".join((config.name, *levels)), table=made, snapshot_id=head, _known={},
            asked_opening=lambda: opening_of(config, levels),
        )  # fmt: skip

    def _compare(
        self, source: Attempt, wanted: Sequence[DataFile], made: Attempt, files: Sequence[DataFile]
    ) -> int:
        """Return the number of rows. Raises VerificationError where rows differ."""
        before = self._seen(source, wanted)
        after = self._seen(made, files)
        if before == after:
            return after.rows
        self._record(None)
        raise VerificationError(
            f"the replica of {self.run.shown} does not have its rows",
            details=(f"{count(before.rows)} rows were read, {count(after.rows)} are there.",
                     "The replica is not used."),
            do="report this; the table is as it was",
        )  # fmt: skip

    def _seen(self, attempt: Attempt, files: Sequence[DataFile]) -> Fingerprint:
        """Return number and hash of rows. Row ids are no part of them: those of a copy are
        others."""
        table = replace(described.table_of(attempt), lineage=False)
        name = f"layoutctl-replica-{attempt.id}"
        seen = asking.look(attempt, name, WitnessWork(table, tuple(files)))
        self.used.verify_cpu_seconds += seen.cpu_seconds
        return seen.fingerprint

    # Refusals

    def _disturbed(self, action: BuildReplica, why: str) -> BlockedError:
        return BlockedError(
            f"{action.table} was written to while the replica of {self.run.shown} was built",
            said=(why,) if why else (),
            details=("The replica is not used.",),
            do=f"drop {action.table} if its rows are not needed; the next plan builds it",
        )

    def _taken(self, action: BuildReplica, why: str) -> BlockedError:
        return BlockedError(
            f"a table named {action.table} exists, which no build of {self.run.shown} may write to",
            details=(f"{why[0].upper()}{why[1:]}.", "Nothing of it was changed."),
            do="name another table in spec.layout.clustering.qdTree.replica, or drop it",
        )

    def _require_ours(self, action: BuildReplica, made: Table) -> None:
        """Raise BlockedError if a table, as last refreshed, is not for a build to write to."""
        record = replica_of(self.run.table.properties())
        uuid, main = self.run.request.table_uuid, made.log().main
        why = not_ours(uuid, made.properties(), main, record)
        if why:
            raise self._taken(action, why)

    # Room

    def _require_room(self, action: BuildReplica, size: int) -> None:
        """Raise BlockedError if the replica alone is beyond its budget."""
        if size > action.budget_bytes:
            raise BlockedError(
                f"the replica of {self.run.shown} takes about {iec(size)}",
                details=(f"budgetBytes is {iec(action.budget_bytes)}. Nothing was written.",),
                do="raise budgetBytes, or remove the replica from the policy",
            )

    def _make_room(self, action: BuildReplica, copies: Copies, made: Table, size: int) -> None:
        """Remove what was replaced long ago, and empty the replica if it and the new one do not
        fit."""
        for kept_ms in dict.fromkeys((action.kept_ms, min(action.kept_ms, LEAST_KEPT_MS))):
            self._expire(copies, made, kept_ms)
            if copies.held_bytes(made) + size <= action.budget_bytes:
                return
        self._require_ours(action, made)
        self._record(None)
        self._empty(action, copies, made)

    def _empty(self, action: BuildReplica, copies: Copies, made: Table) -> None:
        self._require_arrived(action, copies, made, copies.empty(made))
        self._expire(copies, made, NONE_KEPT)

    def _expire(self, copies: Copies, made: Table, kept_ms: int) -> None:
        """Remove the snapshots that were replaced longer ago. Nothing is removed from a table that
        a build may not write to."""
        record = replica_of(self.run.table.properties())
        log = made.log()
        if not not_ours(self.run.request.table_uuid, made.properties(), log.main, record):
            copies.expire(made, replaced(log, kept_ms, int(time.time() * 1000)))

    def _require_budget(self, action: BuildReplica, copies: Copies, made: Table) -> None:
        """Remove the replica's old snapshots if they do not fit beside what was written. Raises
        BlockedError, and empties the replica, if that alone is beyond the budget."""
        for kept_ms in (min(action.kept_ms, LEAST_KEPT_MS), NONE_KEPT):
            if copies.held_bytes(made) <= action.budget_bytes:
                return
            self._expire(copies, made, kept_ms)
        size = copies.held_bytes(made)
        if size <= action.budget_bytes:
            return
        self._record(None)
        self._empty(action, copies, made)
        raise BlockedError(
            f"the replica of {self.run.shown} takes {iec(size)}",
            details=(f"budgetBytes is {iec(action.budget_bytes)}. It was emptied.",),
            do="raise budgetBytes, or remove the replica from the policy",
        )

    # Recording

    def _record(self, record: Replica | None) -> None:
        """Commit the record to the source, or take it back."""
        table, text = self.run.table, "" if record is None else record.text

        def judge(facts: Facts) -> ActionState:
            done = facts.metadata.properties.get(RECORD, "") == text
            return ActionState(Validity.DONE if done else Validity.PENDING)

        wanted = SetProperties((), ((RECORD, text),))
        metadata.apply(table, judge, lambda: table.change(wanted))

    def _charge(self, begun: Begun, key: str, error: BaseException) -> None:
        """Record what a build used that ended by an error, which remains the one that is raised."""
        try:
            self._note(begun, key, None, self.run.table.errors.error_class(error))
        except Exception as second:
            why = second.what if isinstance(second, ReconcilerError) else str(second)
            self.run.say("left", f"what this build read is not recorded: {why}")

    def _note(self, begun: Begun, key: str, written: _Written | None, why: str = ANEW) -> None:
        """Record the outcome. why: there is no replica, if none was written."""
        run, used, sums = self.run, self.used, (0, 0, 0, 0)
        if written is None and not used.read_bytes:
            return
        if written is not None:
            why = ""
            sums = written.size_out, written.rows, written.files_in, written.files_out
        intent = run.intent(begun.attempt_id, 1, (key,), begun.base)
        run.ledger.record_intent(intent)
        cpu = run.backend.spent(_job(begun.attempt_id)) + used.verify_cpu_seconds
        outcome = Outcome(
            begun.attempt_id, 1, key, FAILED if written is None else COMMITTED, None,
            used.read_bytes, *sums, cpu, time.monotonic() - begun.started, why,
            used.verify_cpu_seconds,
        )  # fmt: skip
        run.record(intent, (outcome,))


def _job(attempt_id: str) -> str:
    """Return the name of the engine's jobs that write the replica."""
    return f"{attempt_id}/1/write"


def _work(source: Attempt, action: BuildReplica) -> CopyWork:
    return CopyWork(action.tree, action.target_bytes, _job(source.id))


def _added(table: Table, snapshots: Sequence[int]) -> tuple[DataFile, ...]:
    """Return the data files that these snapshots added."""
    return described.outputs_of([one for n in snapshots for one in table.content_of(n).added])


def _properties(table: Table) -> dict[str, str]:
    """Return the source's properties that say how files are written, and whose replica it is."""
    own = table.properties().items()
    kept = {name: value for name, value in own if name.startswith("write.parquet.")}
    return {**kept, "format-version": str(table.format_version()), OF: table.uuid()}
