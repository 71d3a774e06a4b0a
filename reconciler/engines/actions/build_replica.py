"""Builds a replica: a second table with the source's rows in the leaves of another tree.

Spark writes the rows, each leaf to files of its own; the witness compares them with the source's,
by count and hash; only then the record that names both snapshots is committed to the source. What
ends before leaves a snapshot of the replica that no record names, and that nobody is routed to. It
is charged to budgets as a build that ends well.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from reconciler.engines.actions.one_by_one import Begun, OneByOneExecutor
from reconciler.engines.backend import Copies, Table
from reconciler.engines.commit import metadata
from reconciler.engines.schedule import witnessing
from reconciler.engines.schedule.attempt import Attempt
from reconciler.engines.schedule.opening import opening_of
from reconciler.errors import BlockedError, ReconcilerError, VerificationError
from reconciler.format import count, iec
from reconciler.plan.actions.build_replica import BuildReplica
from reconciler.plan.actions.set_properties import SetProperties
from reconciler.plan.actions.state import ActionState, Facts, Validity
from reconciler.plan.execution import COMMITTED, FAILED, Outcome
from reconciler.rewrite.comparison import Fingerprint, Work
from reconciler.rewrite.files import DataFile
from reconciler.table.replica import (
    OF,
    RECORD,
    Replica,
    Standing,
    grown,
    line_of,
    not_the_recorded,
    replica_of,
    standing,
)

ANEW = "it is to be built anew"
KEPT_MS = 3_600_000
"""Age up to which old snapshots of a replica stay for queries that still read them."""


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
        log = self.run.table.log()
        return action.judge(replace(facts, metadata=replace(facts.metadata, log=log)))

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
        """Write all rows."""
        self._require_ours(action, copies)
        tasks = copies.every_task(source.snapshot_id)
        wanted = witnessing.inputs_of(source, tasks, witnessing.live_deletes(source))
        size = sum(file.size for file in wanted)
        self._make_room(action, copies, size)
        self.used.read_bytes = size
        own = _properties(source.table)
        copies.write_all(action.tree, action.target_bytes, own, _job(source.id))
        made = copies.found()
        head = None if made is None else next(iter(made.ancestors()), None)
        assert made is not None and head is not None  # it was written
        copies.expire(KEPT_MS)
        self._require_budget(action, copies)
        if head.parent is not None:
            raise self._disturbed(action.table)
        files = _added(made, [head.id])
        rows = self._compare(source, wanted, self._replica(source, made, head.id, action), files)
        total = sum(file.size for file in files)
        record = Replica(
            action.table, made.uuid(), head.id, source.snapshot_id, source.table.schema_id(),
            action.tree, total, total, made.schema_id(),
        )  # fmt: skip
        return _Written(record, rows, len(wanted), len(files), total)

    def _appended(self, source: Attempt, action: BuildReplica, copies: Copies) -> _Written | None:
        """Write the rows that were appended to the source; None where the replica is not the one
        that was recorded, or has no room for them."""
        base = replace(source.table.facts().metadata, log=source.table.log())
        record, made = replica_of(base.properties), copies.found()
        if record is None or made is None or record.tree != action.tree:
            return None
        found, before = standing(record, base), made.head()
        main = line_of(made.log().main)
        other = not_the_recorded(record, made.uuid(), made.schema_id(), main)
        if found.standing is not Standing.BEHIND or other:
            return None
        wanted = _added(source.table, found.appended)
        size = sum(file.size for file in wanted)
        if copies.held_bytes() + size > action.budget_bytes:
            return None
        self.used.read_bytes = size
        copies.write_appended(
            action.tree, (record.source_snapshot_id, source.snapshot_id),
            max(1, round(size / max(action.target_bytes, 1))), _job(source.id),
        )  # fmt: skip
        made.refresh()
        head = next(iter(made.ancestors()))
        if head.parent != before:
            return None
        self._require_budget(action, copies)
        files = _added(made, [head.id])
        rows = self._compare(source, wanted, self._replica(source, made, head.id, action), files)
        more = sum(file.size for file in files)
        now = grown(record, head.id, source.snapshot_id, record.bytes + more)
        return _Written(now, rows, len(wanted), len(files), more)

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
        """Return the number of rows. Raises VerificationError where rows differ, BlockedError where
        the source was written to meanwhile."""
        before = self._seen(source, wanted)
        after = self._seen(made, files)
        if before == after:
            return after.rows
        seen = source.table.head(), source.table.schema_id()
        source.table.refresh()
        if (source.table.head(), source.table.schema_id()) != seen:
            raise self._disturbed(self.run.shown)
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
        table = replace(witnessing.table_of(attempt), lineage=False)
        name = f"layoutctl-replica-{attempt.id}"
        seen = witnessing.look(attempt, name, Work(table, tuple(files)))
        self.used.verify_cpu_seconds += seen.cpu_seconds
        return seen.fingerprint

    def _disturbed(self, name: str) -> BlockedError:
        return BlockedError(
            f"{name} was written to while the replica of {self.run.shown} was built",
            details=("The replica is not used.",),
            do="run the command again when the writers are quieter",
        )

    # Room

    def _require_ours(self, action: BuildReplica, copies: Copies) -> None:
        """Raise BlockedError if a table of this name is not a replica of the source."""
        made = copies.found()
        if made is not None and made.properties().get(OF) != self.run.request.table_uuid:
            raise BlockedError(
                f"a table named {action.table} exists, and is no replica of {self.run.shown}",
                details=("Nothing was written to it.",),
                do="name another table in spec.layout.clustering.qdTree.replica, or drop it",
            )

    def _make_room(self, action: BuildReplica, copies: Copies, size: int) -> None:
        """Empty the replica that is built anew if both do not fit. Raises BlockedError if the new
        one does not."""
        if size > action.budget_bytes:
            raise BlockedError(
                f"the replica of {self.run.shown} takes about {iec(size)}",
                details=(f"budgetBytes is {iec(action.budget_bytes)}. Nothing was written.",),
                do="raise budgetBytes, or remove the replica from the policy",
            )
        if copies.found() is not None and copies.held_bytes() + size > action.budget_bytes:
            self._record(None)
            copies.empty()

    def _require_budget(self, action: BuildReplica, copies: Copies) -> None:
        """Remove the replica's old snapshots if they do not fit beside what was written. Raises
        BlockedError, and empties the replica, if that alone is beyond the budget."""
        if copies.held_bytes() <= action.budget_bytes:
            return
        copies.expire(-1)
        size = copies.held_bytes()
        if size <= action.budget_bytes:
            return
        self._record(None)
        copies.empty()
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
        cpu = run.backend.spent(_job(begun.attempt_id)).cpu_seconds + used.verify_cpu_seconds
        outcome = Outcome(
            begun.attempt_id, 1, key, FAILED if written is None else COMMITTED, None,
            used.read_bytes, *sums, cpu, time.monotonic() - begun.started, why,
            used.verify_cpu_seconds,
        )  # fmt: skip
        run.record(intent, (outcome,))


def _job(attempt_id: str) -> str:
    """Return the name of the engine's jobs that write the replica."""
    return f"{attempt_id}/1/write"


def _added(table: Table, snapshots: Sequence[int]) -> tuple[DataFile, ...]:
    """Return the data files that these snapshots added."""
    return witnessing.outputs_of([one for n in snapshots for one in table.content_of(n).added])


def _properties(table: Table) -> dict[str, str]:
    """Return the source's properties that say how files are written, and whose replica it is."""
    own = table.properties().items()
    kept = {name: value for name, value in own if name.startswith("write.parquet.")}
    return {**kept, "format-version": str(table.format_version()), OF: table.uuid()}
