"""Carries out the kinds that rewrite data files: groups of inputs, written side by side."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace

from reconciler.engines.actions.content import POLL_SECONDS, ContentExecutor
from reconciler.engines.commit import batch, standing
from reconciler.engines.commit.batch import Part
from reconciler.engines.commit.operations import RewriteFiles
from reconciler.engines.delete_file import DeleteFile, of_paths
from reconciler.engines.manifests import Tasks, WrittenFile
from reconciler.engines.schedule import input_forms, inputs, refused, vanished, write
from reconciler.engines.schedule.attempt import Attempt
from reconciler.engines.schedule.group import Group, batches, make_groups
from reconciler.engines.schedule.run import Run
from reconciler.engines.schedule.written import Written
from reconciler.engines.snapshots import changed_lately
from reconciler.engines.task_file import Deletes
from reconciler.format import count, iec, plural
from reconciler.plan.actions.rewrite import Rewrite
from reconciler.plan.actions.state import ActionState
from reconciler.plan.execution import FAILED, Event, Outcome
from reconciler.table.block_ids import key_of
from reconciler.table.schema import SortColumn

HOT_MILLISECONDS = 60_000
"""A file that another writer changed so lately may well change again while it is rewritten."""


class RewriteExecutor(ContentExecutor[Rewrite]):
    """Carries out the rewrites of one plan, all of one kind."""

    tasks: Tasks
    """The inputs on the head that was judged last."""

    def __init__(self, run: Run, items: Sequence[tuple[str, Rewrite]]) -> None:
        super().__init__(run, items)
        self.known_deletes: dict[str, Deletes] = {}
        """The deletes of each input on the snapshot on which the plan was last found to stand."""
        self.started: dict[int, Group] = {}
        """Groups of the attempt that were begun, by number."""
        self.sent: set[int] = set()
        """Numbers of the groups whose batch was sent."""
        self.cores = run.backend.cores

    # Judging

    def check(self) -> None:
        run = self.run
        paths = [path for _, action in self.items for path in action.inputs]
        tasks = standing.judged_tasks(run.table, run.request, paths, run.shown)
        standing.check_inputs(run.table, run.request, self.items, tasks, run.shown)
        self.known_deletes = {path: file.deletes for path, file in tasks.items()}
        inputs.refuse_files(run.table, tasks, run.shown)
        input_forms.refuse_unsound(run, tasks.values(), self._deletes_on(tasks))

    def _deletes_on(self, tasks: Tasks) -> list[DeleteFile]:
        """Return the delete files that apply to the inputs."""
        paths = {p for file in tasks.values() for p in vanished.files_of(file)} - set(tasks)
        if not paths:
            return []
        run = self.run
        head = standing.judged_snapshot(run.table, run.request, run.shown)
        return of_paths(run.table.delete_files(head), paths)

    def states(self, head: int, done: Collection[str]) -> dict[str, ActionState]:
        run = self.run
        wanted = [path for _, action in self.items for path in action.inputs]
        keys = [_describing_columns(action) for _, action in self.items]
        columns = inputs.columns_to_describe(keys)
        self.tasks = run.table.tasks(head, wanted, columns)
        now = run.table.facts().metadata
        return {
            key: standing.judge(action, key in done, self.known_deletes, self.tasks, now)
            for key, action in self.items
        }

    def _pending(self) -> list[tuple[str, Rewrite]]:
        """After a conflict, files that another writer has just changed wait for the next plan: it
        is about to change them again. Unless it changes all of them."""
        pending, run = super()._pending(), self.run
        if not run.conflicts or not pending:
            return pending
        lately = changed_lately(run.table.ancestors(), HOT_MILLISECONDS, run.attempts)
        hot = run.table.touched_by(self.tasks, lately) if lately else frozenset()
        left = [
            (key, replace(action, inputs=tuple(p for p in action.inputs if p not in hot)))
            for key, action in pending
        ]
        cool = [(key, action) for key, action in left if action.inputs]
        waiting = sum(len(a.inputs) for _, a in pending) - sum(len(a.inputs) for _, a in cool)
        if not cool or not waiting:
            return pending
        run.say("waiting", f"{plural(waiting, 'file')} another writer has just changed: left out")
        return cool

    def input_bytes(self, paths: Sequence[str]) -> int:
        return sum(self.tasks[path].size for path in paths)

    def needed(self, head: int, paths: Sequence[str]) -> Iterable[str]:
        live = self.run.table.tasks(head, paths)
        return (path for file in live.values() for path in vanished.files_of(file))

    # One attempt

    def work(self, attempt: Attempt, pending: Sequence[tuple[str, Rewrite]]) -> bool:
        self.started, self.sent = {}, set()
        groups = [group for item in pending for group in self._groups(*item)]
        conflicts = False
        pool = ThreadPoolExecutor(self.cores, thread_name_prefix="group")
        futures = [
            pool.submit(self._rewrite, attempt, number, len(groups), group)
            for number, group in enumerate(groups)
        ]
        try:
            commits = batches(groups, self.run.request.max_commits)
            for number, members in enumerate(commits, start=1):
                written = self._collect([futures[i] for i in members], groups, members)
                if self.run.stopped:
                    break
                if written is None or not self._commit(attempt, number, written, len(groups)):
                    conflicts = True
        finally:
            for future in futures:
                future.cancel()
            self._cancel_jobs(attempt, [i for i, future in enumerate(futures) if not future.done()])
            pool.shutdown(wait=True)
        return conflicts

    def dropped(self, attempt: Attempt) -> tuple[Outcome, ...]:
        """A group that was begun is charged in full, because how far it came is unknown."""
        begun = [
            (group, attempt.repeated.get(f"{attempt.id}/{number}", 0))
            for number, group in self.started.items()
            if number not in self.sent
        ]
        return tuple(
            Outcome(
                attempt.id, 0, action_id, FAILED, None,
                sum(group.bytes + more for group, more in begun if group.action_id == action_id),
                0, 0, 0, 0, 0.0, 0.0, "dropped before its commit",
            )
            for action_id in sorted({group.action_id for group, _ in begun})
        )  # fmt: skip

    def _groups(self, action_id: str, action: Rewrite) -> list[Group]:
        run = self.run
        own = {path: self.tasks[path] for path in action.inputs}
        files = inputs.describe(run.table, own, action.ordering.key)
        if action.grouped_by is not None:
            files = inputs.by_target(run.table, own, action.grouped_by, files)
        elif action.ordering.tree is not None:
            files = inputs.by_leaf(run.table, own, action.ordering.tree, files)
        target = action.target_in(run.table.properties())
        merge = run.request.group_bytes or None
        shares = dict(zip(run.request.action_ids, run.request.written_shares, strict=False))
        return make_groups(action_id, action, files, target, merge, shares.get(action_id, 1.0))

    # Groups

    def _rewrite(self, attempt: Attempt, number: int, groups: int, group: Group) -> Written:
        title = _title(group, number, groups)
        self.started[number] = group

        def begun(memory: int) -> None:
            within = f" in at most {iec(memory)} of memory" if memory else ""
            text = f"{title}  reading{within}"
            self.run.say("start", text, group.action_id)

        own = self.tasks.subset(file.path for file in group.inputs)
        try:
            written = write.rewrite_group(
                attempt, number, group, own, begun, max(1, self.cores // groups)
            )
        except Exception as error:
            named = attempt.backend.pinpointed(attempt, number, own, error)
            refused.record(self.run, attempt, own, named or error)
            if named is None:
                raise
            raise named from error
        self.run.on_event(_verified_event(written, groups))
        return written

    def _collect(
        self,
        futures: Sequence[Future[Written]],
        groups: Sequence[Group],
        members: Sequence[int],
    ) -> list[Written] | None:
        """Return the batch's groups when all are written; None if another writer replaced their
        inputs."""
        waiting = set(futures)
        while waiting and not self.run.stopping():
            finished, waiting = wait(waiting, POLL_SECONDS, FIRST_COMPLETED)
            for future in finished:
                error = future.exception()
                if error is not None and not self._is_conflict(groups, members, error):
                    raise error
        if self.run.stopping():
            return []
        failed = [i for i, f in zip(members, futures, strict=True) if f.exception() is not None]
        if not failed:
            return [future.result() for future in futures]
        self.run.conflicts += 1
        title = _title(groups[failed[0]], failed[0], len(groups))
        self.run.say("conflict", f"{title}  CONFLICT: its files were removed while it was read")
        return None

    def _is_conflict(
        self, groups: Sequence[Group], members: Sequence[int], error: BaseException
    ) -> bool:
        """Return whether other writers removed the unreadable file. Raises if the head needs it."""
        if not vanished.may_have_vanished(self.run.table.errors, error):
            return False
        paths = [file.path for i in members for file in groups[i].inputs]
        self.require_files(paths, error)
        return True

    def _cancel_jobs(self, attempt: Attempt, running: Sequence[int]) -> None:
        """Cancel the jobs of running groups, and those that their threads are about to start.

        A write has several jobs. Spark remembers only a thousand cancelled names, so other groups
        are left out.
        """
        attempt.cancelled.set()
        steps = ("write", "verify")
        self.run.backend.cancel(f"{attempt.id}/{n}/{step}" for n in running for step in steps)

    # Commits

    def _commit(
        self, attempt: Attempt, number: int, written: Sequence[Written], groups: int
    ) -> bool:
        """Send one batch; return False if it was refused and its files were dropped."""
        self.run.require_lease()
        paths = [file.path for one in written for file in one.group.inputs]
        tasks = attempt.table.tasks(attempt.snapshot_id, paths)
        files = [file for one in written for file in one.files]
        operation = replace(self._operation(attempt, tasks, files), trees=_trees(written))
        parts = [_part(one, groups) for one in written]
        try:
            return batch.send(self.run, attempt, number, operation, parts)
        finally:
            if number in attempt.sent:
                self.sent.update(one.number for one in written)

    def _operation(
        self, attempt: Attempt, tasks: Tasks, files: Sequence[WrittenFile]
    ) -> RewriteFiles:
        return RewriteFiles(tasks, files, attempt.sequence_number)


def _trees(written: Sequence[Written]) -> tuple[str, ...]:
    """Return the keys of the trees by which all block ids in these files are true; () if files kept
    ids of others."""
    blocks = [group.blocks for group in written]
    if any(one is None for one in blocks):
        return ()
    trees = [one.tree for one in blocks if one is not None]
    return tuple(sorted({key_of(tree) for tree in trees if tree is not None}))


def _describing_columns(action: Rewrite) -> tuple[SortColumn, ...]:
    """Return the columns whose bounds decide which inputs are grouped, and how they are cut."""
    by = action.grouped_by
    return (*action.ordering.key, *([SortColumn(by.source_id)] if by is not None else []))


def _part(written: Written, groups: int) -> Part:
    """Return a written group as a part of its batch. groups: number of groups of the attempt."""
    group = written.group
    # A try that was killed has taken as much CPU as the one that ended, for all that is known.
    tries = 1.0 + written.repeated_bytes / max(group.bytes, 1)
    return Part(
        action_id=group.action_id,
        title=_title(group, written.number, groups),
        verified=_verified_event(written, groups),
        inputs=tuple(file.path for file in group.inputs),
        outputs=written.paths,
        read_bytes=group.bytes + written.repeated_bytes,
        written_bytes=written.bytes,
        rows=written.rows,
        cpu_seconds=written.cpu_seconds * tries,
        verify_cpu_seconds=written.verify_cpu_seconds,
        seconds=written.seconds,
    )


def _title(group: Group, number: int, groups: int) -> str:
    files = plural(len(group.inputs), "file")
    return f"{group.action.verb} {number + 1}/{groups}  {files} {iec(group.bytes)}"


def _verified_event(written: Written, groups: int) -> Event:
    """Return the line of progress of a group whose rows were compared. groups: of the attempt."""
    group = written.group
    done = "read ok  sort ok" if group.action.ordering.key else "read ok"
    rows = count(written.rows)
    compared = ", hash equal" if written.hashed else " (counts only)"
    text = f"{_title(group, written.number, groups)}  {done}  verify rows {rows} = {rows}{compared}"
    if written.by_spark:
        text += f"  written by Spark: {written.by_spark}"
    return Event("verified", text, group.action_id)
