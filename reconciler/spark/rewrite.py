"""Executes a plan on one table: attempts of groups, verified, committed in batches, exactly once.

The CLI, the demo and the driver call `execute`; `resume` settles what a crash left. The priorities:
never lose or duplicate a row, never leave files behind, continue after conflicts. Contract: design
section 5 (safety) and the definitions of plan, group, batch, lease and fence.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from reconciler.api.catalog_config import CatalogConfig
from reconciler.errors import BlockedError, ReconcilerError, UnknownCommitError
from reconciler.format import count, iec
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.rewrite import Rewrite
from reconciler.plan.actions.state import ActionState, Validity
from reconciler.plan.execution import (
    COMMITTED,
    CONFLICT,
    FAILED,
    UNKNOWN_OUTCOME,
    ActionResult,
    Event,
    ExecutionRequest,
    ExecutionResult,
    Intent,
    Lease,
    Ledger,
    Outcome,
)
from reconciler.plan.standing import Fallen, base_text
from reconciler.spark import (
    cleanup,
    commit,
    damage,
    fence,
    iceberg,
    inputs,
    metadata,
    metadata_files,
    processes,
    session,
    stage,
    standing,
    vanished,
    write,
)
from reconciler.spark.group import Compression, Group, batches, make_groups, task_bytes
from reconciler.spark.history import Committed
from reconciler.spark.iceberg import LiveTable
from reconciler.spark.scan import Deletes, ScanTasks, scan_tasks
from reconciler.spark.translate import java_message, lost_jvm, translate, translated
from reconciler.spark.write import Attempt, Written

RENEW_SECONDS = 20.0
LEASE_SECONDS = 60.0
"""Seconds until a lease expires that is not renewed (definitions: Lease)."""
POLL_SECONDS = 0.2
COMPARABLE = 4
"""A group up to this factor smaller predicts how another one compresses."""

OnEvent = Callable[[Event], None]
Result = TypeVar("Result")


def execute(
    request: ExecutionRequest,
    spark: Any,
    ledger: Ledger,
    lease: Lease,
    on_event: OnEvent,
    should_stop: Callable[[], bool],
) -> ExecutionResult:
    """Run the request's actions; return their results.

    Conflicts are handled within the request's bounds. Raises if nothing more can be done:
    BlockedError (lease, veto, live branch), VerificationError, UnknownCommitError, UserError,
    UnavailableError. Whatever is raised, the table holds only whole verified commits.
    """
    with translated(f"rewrite {'.'.join(request.table)}"):
        return _Execution(request, spark, ledger, lease, on_event, should_stop).run()


def resume(
    catalog: CatalogConfig,
    table: tuple[str, ...],
    spark: Any,
    ledger: Ledger,
    lease: Lease,
    on_event: OnEvent,
) -> int:
    """Settle what earlier attempts on the table left open; return their number."""
    with translated(f"resume work on {'.'.join(table)}"):
        name = iceberg.qualified(catalog, table)
        loaded = iceberg.load(spark, name)
        uuid = str(loaded.operations().current().uuid())
        with _holding(lease, uuid, _attempt_id("resume", loaded)):
            return fence.resolve(spark, catalog, loaded, name, ledger, lease, on_event)


def _attempt_id(plan_id: str, table: Any) -> str:
    """Return planId + attempt + read snapshot; the attempt is a time, so that no id is used
    twice."""
    snapshot = table.currentSnapshot()
    return f"{plan_id}-{time.time_ns() // 1000:x}-{snapshot.snapshotId() if snapshot else 0}"


@contextlib.contextmanager
def _holding(lease: Lease, uuid: str, attempt_id: str) -> Iterator[Callable[[], str]]:
    """Hold the lease and renew it; yield a function that returns why it was lost, "" if it is
    held."""
    lease.acquire(uuid, attempt_id)
    lost: list[str] = []
    ended = threading.Event()

    def renew() -> None:
        renewed = time.monotonic()
        while not ended.wait(RENEW_SECONDS):
            try:
                lease.renew()
                renewed = time.monotonic()
            except BlockedError as error:
                lost.append(error.what)
                return
            except Exception as error:  # e.g. a locked state directory
                if time.monotonic() - renewed > LEASE_SECONDS:
                    why = error.what if isinstance(error, ReconcilerError) else repr(error)
                    lost.append(f"the lease could not be renewed: {why}")
                    return

    thread = threading.Thread(target=renew, name="lease", daemon=True)
    thread.start()
    try:
        yield lambda: lost[0] if lost else ""
    finally:
        ended.set()
        thread.join()
        if not lost:
            lease.release()


class _Execution:
    """The state of one execution; `run` is its only entry."""

    def __init__(
        self,
        request: ExecutionRequest,
        spark: Any,
        ledger: Ledger,
        lease: Lease,
        on_event: OnEvent,
        should_stop: Callable[[], bool],
    ) -> None:
        self.request, self.spark, self.ledger, self.lease = request, spark, ledger, lease
        self.on_event, self.should_stop = on_event, should_stop
        self.name = iceberg.qualified(request.catalog, request.table)
        self.shown = ".".join((request.catalog.name, *request.table))
        self.table = iceberg.load(spark, self.name)
        self.live = LiveTable(spark, self.name, self.table)
        self.writer = processes.own_identity(iceberg.jvm_pid(spark))
        self.cores = max(1, int(spark.sparkContext.defaultParallelism))
        self.attempts: list[str] = []
        self.outcomes: list[Outcome] = []
        self.own: set[int] = set()
        self.own_since_read: set[int] = set()  # newer than the snapshot that the attempt reads
        self.started: dict[int, Group] = {}
        self.written: list[_Done] = []
        self.sent: set[int] = set()
        self.committed: set[str] = set()  # files of ours that were committed
        self.done_ids: set[str] = set()  # actions that commits of this execution carry
        self.known_deletes: dict[str, Deletes] = {}  # by input, when the plan was judged last
        self.in_doubt = False  # a batch was sent, and its outcome is not recorded
        self.conflicts = 0
        self.stopped = False
        self.lease_lost: Callable[[], str] = lambda: ""

    def run(self) -> ExecutionResult:
        started = time.monotonic()
        first = _attempt_id(self.request.plan_id, self.table)
        with _holding(self.lease, self.request.table_uuid, first) as self.lease_lost:
            fence.resolve(
                self.spark, self.request.catalog, self.table, self.name, self.ledger, self.lease,
                self.on_event,
            )  # fmt: skip
            self._again_if_vanished(self._check_table)
            self._change_metadata()
            self._rewrite_until_done()
            results = self._results()
        return ExecutionResult(
            tuple(self.attempts),
            results,
            tuple(self.outcomes),
            len(self.own),
            self.conflicts,
            self.stopped,
            time.monotonic() - started,
        )

    def _check_table(self) -> None:
        """Raise for reasons that apply to the whole request, before anything is written."""
        self.table.refresh()
        standing.require_plan(self.table, self.request, self.shown)
        standing.refuse_rolled_back(self.table, self.request.plan_id, self.shown)
        if not self.request.allow_live_branches:
            standing.refuse_live_branches(self.spark, self.table, self.shown)
        if not any(action.work for action in self.request.actions):
            inputs.refuse_unsafe(self.spark, self.table, {}, self.shown)
            return
        tasks = standing.judged_tasks(self.spark, self.table, self.request, self.shown)
        standing.check_inputs(self.table, self.request, tasks, self.shown)
        self.known_deletes = {path: file.deletes for path, file in tasks.items()}
        inputs.refuse_unsafe(self.spark, self.table, tasks, self.shown)

    # Metadata actions

    def _change_metadata(self) -> None:
        for action_id, action in self._items():
            if action.work:
                continue
            self.table.refresh()
            state = metadata.judge(self.table, action)
            if state.validity is Validity.PENDING:
                self._commit_metadata(action_id, action)
            else:
                self._say_skipped(action_id, action, state)

    def _say_skipped(self, action_id: str, action: Action, state: ActionState) -> None:
        if state.validity is Validity.LOST:
            self._say("skipped", f"{action.verb}  SKIPPED: {state.why}", action_id)

    def _commit_metadata(self, action_id: str, action: Action) -> None:
        started = time.monotonic()
        attempt_id = _attempt_id(self.request.plan_id, self.table)
        self.attempts.append(attempt_id)
        intent = self._intent(attempt_id, 1, "", (action_id,), (), ())
        state, detail = metadata.apply(self.spark, self.table, action)
        if state.validity is not Validity.PENDING:
            self._say_skipped(action_id, action, state)
            return
        self.ledger.record_intent(intent)  # it leaves no files: nothing to settle after a crash
        seconds = time.monotonic() - started
        outcome = Outcome(
            attempt_id, 1, action_id, COMMITTED, None, 0, 0, 0, 0, 0, 0.0, seconds, detail
        )
        self._record(intent, (outcome,))
        self._say("property", f"{action.verb} {detail}", action_id)

    def _rewrites(self) -> list[tuple[str, Rewrite]]:
        return [(id_, action) for id_, action in self._items() if isinstance(action, Rewrite)]

    def _items(self) -> list[tuple[str, Action]]:
        return list(zip(self.request.action_ids, self.request.actions, strict=True))

    # Attempts

    def _rewrite_until_done(self) -> None:
        for number in range(self.request.max_attempts):
            pending, tasks = self._pending()
            if not pending or tasks is None or self._stopping():
                return
            if not self._within_budget(pending, tasks):
                return
            if number:
                self._back_off(number, sum(len(action.inputs) for _, action in pending))
            if not self._attempt(pending, tasks):
                return

    def _within_budget(self, pending: Sequence[tuple[str, Rewrite]], tasks: ScanTasks) -> bool:
        """Whether the budgets still cover an attempt, after what was read already."""
        wanted = sum(tasks[path].size for _, a in pending for path in a.inputs)
        read = sum(outcome.read_bytes for outcome in self.outcomes)
        cpu = sum(outcome.cpu_seconds for outcome in self.outcomes)
        limit, cpu_limit = self.request.bytes_limit, self.request.cpu_limit_seconds
        over_bytes = limit is not None and read + wanted > limit
        over_cpu = cpu_limit is not None and read > 0 and cpu * (1 + wanted / read) > cpu_limit
        if over_bytes or over_cpu:
            self._say("stopped", "the budget does not cover another attempt on what is left")
        return not (over_bytes or over_cpu)

    def _pending(self) -> tuple[list[tuple[str, Rewrite]], ScanTasks | None]:
        """Return the rewriting actions with only valid inputs, and the head's scan tasks."""
        states, tasks = self._again_if_vanished(self._judge)
        pending = [
            (action_id, replace(action, inputs=states[action_id].standing))
            for action_id, action in self._rewrites()
            if action_id in states and states[action_id].standing
        ]
        return pending, tasks

    @staticmethod
    def _again_if_vanished(read: Callable[[], Result]) -> Result:
        """The result of reading the current metadata. What was removed while it was read, because
        another writer moved the head on, is read once more from the new head."""
        try:
            return read()
        except Exception as error:
            if not vanished.may_have_vanished(error):
                raise
            return read()

    def _judge(self) -> tuple[dict[str, ActionState], ScanTasks | None]:
        """How the rewriting actions stand on the head, and its scan tasks (None without any).

        Once the plan's snapshot has left the history, what is not done is lost.
        """
        self.table.refresh()
        rewrites = self._rewrites()
        if not rewrites:
            return {}, None
        snapshot = self.table.currentSnapshot()
        if snapshot is None:
            return {key: _fallen(Fallen.ROLLED_BACK, self.request) for key, _ in rewrites}, None
        wanted = [path for _, action in rewrites for path in action.inputs]
        keys = [action.ordering.key for _, action in rewrites]
        columns = inputs.columns_to_describe(self.table, keys, len(wanted))
        tasks = scan_tasks(self.spark, self.table, int(snapshot.snapshotId()), wanted, columns)
        done = standing.actions_in_history(self.table, self.request) | self.done_ids
        states = {
            action_id: standing.judge(action, action_id in done, self.known_deletes, tasks)
            for action_id, action in rewrites
        }
        fallen = standing.fallen_on(self.table, self.request)
        if fallen is not None:
            states |= {
                key: _fallen(fallen, self.request)
                for key, state in states.items()
                if state.validity is not Validity.DONE
            }
        return states, tasks

    def _back_off(self, number: int, files: int) -> None:
        seconds = self.request.backoff_seconds * 2 ** (number - 1)
        self._say("retry", f"planned again: {files} files; next attempt in {seconds:.0f} s")
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self._stopping():
            time.sleep(POLL_SECONDS)

    def _attempt(self, pending: Sequence[tuple[str, Rewrite]], tasks: ScanTasks) -> bool:
        """Run one attempt on the current head; return True if conflicts left something to do."""
        attempt = self._open_attempt()
        self.started, self.sent = {}, set()
        opened = self._intent(
            attempt.id, 0, attempt.prefix, tuple(i for i, _ in pending), (), (), attempt.snapshot_id
        )
        self.ledger.record_intent(opened)
        try:
            groups = [group for item in pending for group in self._groups(*item, tasks)]
            conflicts = self._run_batches(attempt, groups, tasks)
        except BaseException as error:
            # An interrupted commit may still succeed: the next run settles the attempt.
            if self.in_doubt or lost_jvm(error):
                raise
            self._give_up(attempt, opened)
            if not self._overtaken(error, pending):
                raise
            return True
        self._close_attempt(attempt, opened)
        return conflicts

    def _overtaken(self, error: BaseException, pending: Sequence[tuple[str, Action]]) -> bool:
        """Whether metadata that the attempt reads was removed with the snapshot that needed it.

        Raises if a file is missing that the head needs.
        """
        if not vanished.may_have_vanished(error):
            return False
        paths = [path for _, action in pending for path in action.inputs]
        vanished.require_files(self.spark, self.table, paths, error, self.shown)
        self.conflicts += 1
        self._say("conflict", "CONFLICT: the snapshot it reads expired meanwhile")
        return True

    def _open_attempt(self) -> Attempt:
        snapshot = self.table.currentSnapshot()
        attempt_id = _attempt_id(self.request.plan_id, self.table)
        self.attempts.append(attempt_id)
        self.own_since_read = set()
        return Attempt(
            spark=self.spark,
            id=attempt_id,
            name=self.shown,
            table=iceberg.load(self.spark, self.name),
            snapshot_id=int(snapshot.snapshotId()),
            sequence_number=int(snapshot.sequenceNumber()),
            prefix=f"{stage.data_location(self.table)}/layout-{attempt_id}",
            verify=self.request.verify,
        )

    def _give_up(self, attempt: Attempt, opened: Intent) -> None:
        """Close the attempt after an error, which remains the one that is raised."""
        try:
            self._close_attempt(attempt, opened)
        except Exception as second:
            why = second.what if isinstance(second, ReconcilerError) else str(second)
            self._say("left", f"the files of this run stay until the next one: {why}")

    def _close_attempt(self, attempt: Attempt, opened: Intent) -> None:
        cleanup.remove_leftovers(
            self.spark, attempt.table, self.name, attempt.prefix, self.committed
        )
        dropped = self._dropped(attempt)
        self.outcomes.extend(dropped)
        self.ledger.record_outcomes(opened, (*dropped, fence.closed(opened)))

    def _dropped(self, attempt: Attempt) -> tuple[Outcome, ...]:
        """Return outcomes for groups that were never sent: their reads count as spent.

        A group that was begun is charged in full, because how far it came is unknown.
        """
        begun = [group for number, group in self.started.items() if number not in self.sent]
        return tuple(
            Outcome(
                attempt.id, 0, action_id, FAILED, None,
                sum(group.bytes for group in begun if group.action_id == action_id),
                0, 0, 0, 0, 0.0, 0.0, "dropped before its commit",
            )
            for action_id in sorted({group.action_id for group in begun})
        )  # fmt: skip

    def _groups(self, action_id: str, action: Rewrite, tasks: ScanTasks) -> list[Group]:
        own = {path: tasks[path] for path in action.inputs}
        files = inputs.describe(self.table, own, action.ordering.key)
        target = action.target_bytes or int(
            self.table.properties().get(stage.TARGET_SIZE) or stage.DEFAULT_TARGET
        )
        merge = self.request.group_bytes or None
        shares = dict(zip(self.request.action_ids, self.request.written_shares, strict=False))
        return make_groups(
            action_id, action, files, target, self._task_bytes(), self.cores, merge,
            shares.get(action_id, 1.0),
        )  # fmt: skip

    def _task_bytes(self) -> int:
        if self.request.group_bytes:
            return self.request.group_bytes
        return task_bytes(*session.task_memory(self.spark))

    # Groups and batches

    def _run_batches(self, attempt: Attempt, groups: Sequence[Group], tasks: ScanTasks) -> bool:
        conflicts = False
        pool = ThreadPoolExecutor(self.cores, thread_name_prefix="group")
        futures = [
            pool.submit(self._rewrite, attempt, number, len(groups), group, tasks)
            for number, group in enumerate(groups)
        ]
        try:
            for batch, members in enumerate(batches(groups, self.request.max_commits), start=1):
                written = self._collect([futures[i] for i in members], groups, members)
                if self.stopped:
                    break
                if written is None or not self._commit(attempt, batch, written, len(groups)):
                    conflicts = True
        finally:
            for future in futures:
                future.cancel()
            self._cancel_jobs(attempt, [i for i, future in enumerate(futures) if not future.done()])
            pool.shutdown(wait=True)
        return conflicts

    def _rewrite(
        self,
        attempt: Attempt,
        number: int,
        groups: int,
        group: Group,
        tasks: ScanTasks,
    ) -> Written:
        self.on_event(
            Event(
                "start", f"{_title(group, number, groups)}  reading", group.action_id, number + 1,
                groups, group.bytes,
            )
        )  # fmt: skip
        group = replace(group, expected=self._expected(group))
        self.started[number] = group
        own = tasks.subset(file.path for file in group.inputs)
        try:
            written = write.rewrite_group(attempt, number, group, own)
        except Exception as error:
            named = damage.pinpointed(attempt, number, own, error)
            if named is None:
                raise
            raise named from error
        self.written.append(_Done.of(written))
        self.on_event(
            Event(
                "verified", f"{_title(group, number, groups)}  {_checks(written)}",
                group.action_id, number + 1, groups, group.bytes,
            )
        )  # fmt: skip
        return written

    def _expected(self, group: Group) -> Compression | None:
        """Return the compression measured in earlier groups of the action.

        Rows of one table in the same order compress alike, if they come from files of similar size.
        """
        live = group.live_bytes
        told = [
            done
            for done in self.written
            if done.action_id == group.action_id and done.live_bytes * COMPARABLE >= live
        ]
        read, written = sum(done.live_bytes for done in told), sum(done.bytes for done in told)
        if not read or not written:
            return None
        pages = (done.page_bytes for done in told if done.page_bytes is not None)
        return Compression(written / read, next(pages, None))

    def _collect(
        self,
        futures: Sequence[Future[Written]],
        groups: Sequence[Group],
        members: Sequence[int],
    ) -> list[Written] | None:
        """Return the batch's groups when all are written; None if another writer replaced their
        inputs."""
        waiting = set(futures)
        while waiting:
            if self._stopping():
                return []
            finished, waiting = wait(waiting, POLL_SECONDS, FIRST_COMPLETED)
            for future in finished:
                error = future.exception()
                if error is not None and not self._is_conflict(groups, members, error):
                    raise error
        failed = [i for i, f in zip(members, futures, strict=True) if f.exception() is not None]
        if not failed:
            return [future.result() for future in futures]
        self.conflicts += 1
        title = _title(groups[failed[0]], failed[0], len(groups))
        self._say("conflict", f"{title}  CONFLICT: its files were removed while it was read")
        return None

    def _is_conflict(
        self, groups: Sequence[Group], members: Sequence[int], error: BaseException
    ) -> bool:
        """Return whether other writers removed the unreadable file. Raises if the head needs it."""
        if not vanished.may_have_vanished(error):
            return False
        paths = [file.path for i in members for file in groups[i].inputs]
        vanished.require_files(self.spark, self.table, paths, error, self.shown)
        return True

    def _require_lease(self) -> None:
        if self.lease_lost():
            raise BlockedError(
                self.lease_lost(),
                details=("Uncommitted work was dropped.",),
                do="see who else works on the table, then run the command again",
            )

    def _stopping(self) -> bool:
        self._require_lease()
        if self.should_stop() and not self.stopped:
            self.stopped = True
            self._say("stopped", "stopping: dropping what is not committed")
        return self.stopped

    def _cancel_jobs(self, attempt: Attempt, running: Sequence[int]) -> None:
        """Cancel the jobs of running groups, and those that their threads are about to start.

        A write has several jobs. Spark remembers only a thousand cancelled names, so other groups
        are left out.
        """
        context = self.spark.sparkContext._jsc.sc()
        for number in running:
            for step in ("write", "verify"):
                context.cancelJobGroupAndFutureJobs(f"{attempt.id}/{number}/{step}")

    # Commits

    def _commit(
        self, attempt: Attempt, batch: int, written: Sequence[Written], groups: int
    ) -> bool:
        """Send one batch; return False if it was refused and its files were dropped."""
        self._require_lease()
        paths = tuple(sorted(file.path for part in written for file in part.group.inputs))
        staged = self._staged(attempt, paths)
        self.sent.update(part.number for part in written)
        actions = tuple(dict.fromkeys(part.group.action_id for part in written))
        commits = commit.prepare(self.live)
        intent = replace(
            self._intent(
                attempt.id, batch, attempt.prefix, actions, paths,
                tuple(path for part in written for path in part.paths), attempt.snapshot_id,
            ),
            commits=tuple(prepared.uuid for prepared in commits),
        )  # fmt: skip
        self.ledger.record_intent(intent)
        self.in_doubt = True
        self._say("commit", f"committing batch {batch}: {count(len(paths))} files", actions[0])
        files = [file for part in written for file in part.files]
        sent = commit.send(
            self.live,
            commit.Batch(
                staged, intent, files, self.own_since_read,
                self.request.allow_live_branches,
            ),
            commits,
        )  # fmt: skip
        if isinstance(sent, commit.Unknown):
            sent = self._settle(intent, sent, written)
        if isinstance(sent, Committed):
            self.own.add(sent.snapshot_id)
            self.own_since_read.add(sent.snapshot_id)
            self.committed.update(intent.outputs)
            self.done_ids.update(intent.action_ids)
            self._record(intent, _outcomes(intent, written, COMMITTED, sent.snapshot_id, ""))
            self._say_committed(written, groups, sent.snapshot_id)
            return True
        assert isinstance(sent, commit.Refused)
        self._refused(attempt, intent, written, sent, groups)
        return False

    def _staged(self, attempt: Attempt, paths: Sequence[str]) -> commit.Staged:
        return commit.Staged(
            self.request.table_uuid,
            int(attempt.table.operations().current().currentSchemaId()),
            attempt.snapshot_id,
            attempt.sequence_number,
            scan_tasks(self.spark, attempt.table, attempt.snapshot_id, paths),
        )

    def _settle(
        self, intent: Intent, sent: commit.Unknown, written: Sequence[Written]
    ) -> commit.Sent:
        """Settle a commit whose call failed with an unknown outcome."""
        if sent.lost:
            raise UnknownCommitError(
                f"the Spark process ended while it committed to {self.shown}",
                details=("Whether the commit arrived is not known; its files were left alone.",),
                do="run the command again: it finds out, cleans up and goes on",
            )
        self._record(intent, _outcomes(intent, written, UNKNOWN_OUTCOME, None, sent.why))
        self._say("unknown", f"the commit's outcome is unknown ({sent.why}); finding out")
        try:
            outcomes = fence.settle(
                self.request.catalog, self.live, intent, True, self.on_event, sent.asserted
            )
        except ReconcilerError:
            raise
        except Exception as error:
            why = java_message(error)
            raise UnknownCommitError(
                f"whether a commit to {self.shown} arrived could not be found out",
                details=(f"{sent.why}; then: {why}", "Its files were left alone."),
                do="run the command again: it finds out, cleans up and goes on",
            ) from error
        committed = outcomes[0].snapshot_id
        self._remove_metadata(intent, committed)
        if committed is not None:
            return Committed(committed)
        return commit.Refused(sent.why, conflict=False, unwritable=sent.unwritable)

    def _remove_metadata(self, intent: Intent, committed: int | None) -> None:
        """Remove what the commits of a settled batch wrote, except the files of the successful
        one."""
        try:
            metadata_files.remove_of_commits(self.live, intent.commits, committed)
        except Exception as error:
            self._say("left", f"metadata files of a commit stay: {java_message(error)}")

    def _refused(
        self,
        attempt: Attempt,
        intent: Intent,
        written: Sequence[Written],
        sent: commit.Refused,
        groups: int,
    ) -> None:
        write.discard(attempt.table, intent.outputs)
        state = CONFLICT if sent.conflict else FAILED
        self._record(intent, _outcomes(intent, written, state, None, sent.why))
        self.conflicts += sent.conflict
        word = "CONFLICT" if sent.conflict else "REFUSED"
        for part in written:
            title = _title(part.group, part.number, groups)
            self._say("conflict", f"{title}  {word}: {sent.why}", part.group.action_id)
        size = sum(part.bytes for part in written)
        self._say(
            "removed",
            f"removed {count(len(intent.outputs))} files this run wrote ({iec(size)}); "
            "nothing of this batch was committed",
        )
        if sent.denied:
            raise commit.denied(self.shown, sent.why)
        if sent.unwritable is not None:
            raise translate(sent.unwritable, f"commit to {self.shown}") from sent.unwritable
        if sent.fenced:
            raise BlockedError(
                f"{self.shown}: {sent.why}",
                details=("Nothing more was committed by this one.",),
                do="see who else works on the table, then run the command again",
            )
        if sent.live:
            raise standing.live_branch_error(self.shown, sent.live)
        if sent.rolled_back:
            standing.refuse_rolled_back(self.table, self.request.plan_id, self.shown)

    # Records and messages

    def _intent(
        self,
        attempt_id: str,
        batch: int,
        prefix: str,
        actions: tuple[str, ...],
        read: tuple[str, ...],
        outputs: tuple[str, ...],
        snapshot_id: int | None = None,
    ) -> Intent:
        if snapshot_id is None:
            snapshot = self.table.currentSnapshot()
            snapshot_id = 0 if snapshot is None else int(snapshot.snapshotId())
        return Intent(
            self.request.table_uuid,
            self.request.table,
            self.request.plan_id,
            attempt_id,
            batch,
            actions,
            snapshot_id,
            prefix,
            read,
            outputs,
            self.writer,
        )

    def _record(self, intent: Intent, outcomes: tuple[Outcome, ...]) -> None:
        self.ledger.record_outcomes(intent, outcomes)
        if outcomes[0].state != UNKNOWN_OUTCOME:
            self.in_doubt = False
            self.outcomes.extend(outcomes)

    def _say(self, phase: str, text: str, action_id: str = "") -> None:
        self.on_event(Event(phase, text, action_id))

    def _say_committed(self, written: Sequence[Written], groups: int, snapshot_id: int) -> None:
        for part in written:
            text = f"{_title(part.group, part.number, groups)}  {_checks(part)}"
            self.on_event(
                Event(
                    "committed", f"{text}  commit {iceberg.short(snapshot_id)}",
                    part.group.action_id, part.number + 1, groups, part.group.bytes, snapshot_id,
                )
            )  # fmt: skip

    def _results(self) -> tuple[ActionResult, ...]:
        """Return the state of every action on the resulting head."""
        states, _ = self._again_if_vanished(self._judge)
        results = []
        for action_id, action in self._items():
            state = states.get(action_id) or metadata.judge(self.table, action)
            results.append(ActionResult(action_id, state.validity, state.standing, state.why))
        return tuple(results)


@dataclass(frozen=True, slots=True)
class _Done:
    """A written group: its action, and how it compressed."""

    action_id: str
    live_bytes: int
    bytes: int
    page_bytes: float | None

    @staticmethod
    def of(written: Written) -> _Done:
        group = written.group
        pages = None if group.expected is None else group.expected.page_bytes
        return _Done(group.action_id, group.live_bytes, written.bytes, pages)


def _fallen(fallen: Fallen, request: ExecutionRequest) -> ActionState:
    return ActionState(Validity.LOST, why=base_text(fallen, request.base_snapshot_id))


def _title(group: Group, number: int, groups: int) -> str:
    files = count(len(group.inputs))
    return f"{group.action.verb} {number + 1}/{groups}  {files} files {iec(group.bytes)}"


def _checks(written: Written) -> str:
    done = "read ok  sort ok" if written.group.action.ordering.key else "read ok"
    rows = count(written.rows)
    compared = ", hash equal" if written.hashed else " (counts only)"
    return f"{done}  verify rows {rows} = {rows}{compared}"


def _outcomes(
    intent: Intent, written: Sequence[Written], state: str, snapshot_id: int | None, detail: str
) -> tuple[Outcome, ...]:
    """Return one outcome per action of the batch: sums over its groups."""
    outcomes = []
    for action_id in intent.action_ids:
        parts = [part for part in written if part.group.action_id == action_id]
        verify_cpu = sum(part.verify_metrics.cpu_seconds for part in parts)
        outcomes.append(
            Outcome(
                intent.attempt_id,
                intent.batch,
                action_id,
                state,
                snapshot_id,
                sum(part.group.bytes for part in parts),
                sum(part.bytes for part in parts),
                sum(part.rows for part in parts),
                sum(len(part.group.inputs) for part in parts),
                sum(len(part.files) for part in parts),
                sum(part.metrics.cpu_seconds for part in parts) + verify_cpu,
                sum(part.seconds for part in parts),
                detail,
                verify_cpu,
            )
        )
    return tuple(outcomes)
