"""Carries out the maintenance of delete files; the data files stay.

All actions of a kind are carried out together: what they read is staged once, and what they write
is committed in one batch, or in a few if there are many positions.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any, TypeVar

from reconciler.engines.actions.content import POLL_SECONDS, ContentExecutor
from reconciler.engines.commit import batch, standing
from reconciler.engines.commit.batch import Part
from reconciler.engines.commit.operations import Operation, RemoveDeletes, RowDelta, still_dangling
from reconciler.engines.delete_file import DeleteFile, of_paths
from reconciler.engines.deletes import compact, convert, replacement
from reconciler.engines.deletes.replacement import Replacement
from reconciler.engines.schedule import input_forms, refused, vanished, witnessing
from reconciler.engines.schedule.attempt import Attempt
from reconciler.engines.schedule.run import Run
from reconciler.format import count, iec
from reconciler.plan.actions.delete_maintenance import (
    CompactDeletes,
    ConvertDeletes,
    DeleteMaintenance,
    RemoveDanglingDeletes,
)
from reconciler.plan.actions.state import ActionState, Facts
from reconciler.plan.execution import FAILED, Event, Outcome
from reconciler.table.deletes import PartitionKey

SomeDeletes = TypeVar("SomeDeletes", bound=DeleteMaintenance)
Items = Sequence[tuple[str, SomeDeletes]]

BATCH_ROWS = 20_000_000
"""Rows of delete files that one commit replaces, unless the plan would need too many commits. After
a conflict as few as they allow: the next one costs less."""


class DeleteExecutor(ContentExecutor[SomeDeletes], ABC):
    """Carries out actions on delete files."""

    def __init__(self, run: Run, items: Items[SomeDeletes]) -> None:
        super().__init__(run, items)
        self.files: list[DeleteFile] = []
        """Delete files of the snapshot that was read last."""
        self.read_of: int | None = None
        """Id of this snapshot."""
        self.begun: dict[str, int] = {}
        """Bytes read by each action whose batch was begun and not sent, by its id."""

    # Judging

    def _read(self, snapshot_id: int) -> None:
        """Read the delete files of a snapshot, which never changes, unless they are known."""
        if self.read_of != snapshot_id:
            files = self.run.table.delete_files(snapshot_id)
            self.run.table.require_once(files)
            self.files, self.read_of = files, snapshot_id

    def check(self) -> None:
        run = self.run
        self._read(standing.judged_snapshot(run.table, run.request, run.shown))
        known = {file.path for file in self.files}
        standing.check_inputs(run.table, run.request, self.items, known, run.shown)

    def states(self, head: int, done: Collection[str]) -> dict[str, ActionState]:
        self._read(head)
        paths = frozenset(file.path for file in self.files)
        applying = self.applying(head)
        return {
            key: action.judge(Facts(done=key in done, live=paths, applying=applying))
            for key, action in self.items
        }

    def applying(self, head: int) -> frozenset[str]:
        """Return the inputs that apply to a live data file; empty where no action asks."""
        return frozenset()

    def input_bytes(self, paths: Sequence[str]) -> int:
        return sum(file.size for file in of_paths(self.files, paths))

    def needed(self, head: int, paths: Sequence[str]) -> Iterable[str]:
        run = self.run
        live = of_paths(run.table.delete_files(head), paths)
        inputs = [file.path for file in live]
        return [*inputs, *run.table.tasks_under(head, inputs)]

    # One attempt

    def work(self, attempt: Attempt, pending: Items[SomeDeletes]) -> bool:
        self.begun = {}
        conflicts = False
        for number, items in enumerate(self._batches(pending), start=1):
            if self.run.stopping():
                break
            self.begun |= {key: self.input_bytes(action.inputs) for key, action in items}
            conflicts |= not self._carried_out(attempt, number, items)
        return conflicts

    def dropped(self, attempt: Attempt) -> tuple[Outcome, ...]:
        return tuple(
            Outcome(
                attempt.id, 0, key, FAILED, None, size, 0, 0, 0, 0, 0.0, 0.0,
                "dropped before its commit",
            )
            for key, size in self.begun.items()
        )  # fmt: skip

    @abstractmethod
    def _carried_out(self, attempt: Attempt, number: int, items: Items[SomeDeletes]) -> bool:
        """Commit one batch; return False if another writer's commit prevents it."""

    def _batches(self, pending: Items[SomeDeletes]) -> Iterator[list[tuple[str, SomeDeletes]]]:
        """Yield the actions of each commit. Deletes that apply to every partition make it one: a
        data file must not get a delete file from two batches that do not know of each other."""
        rows = [
            sum(file.rows for file in of_paths(self.files, action.inputs)) for _, action in pending
        ]
        inputs = [path for _, action in pending for path in action.inputs]
        shared = any(file.everywhere and file.keys for file in of_paths(self.files, inputs))
        least = BATCH_ROWS if not self.run.conflicts else 1
        most = max(least, -(-sum(rows) // max(1, self.run.request.max_commits - 1)))
        items: list[tuple[str, SomeDeletes]] = []
        held = 0
        for item, size in zip(pending, rows, strict=True):
            if items and held + size > most and not shared:
                yield items
                items, held = [], 0
            items.append(item)
            held += size
        if items:
            yield items

    def _send(
        self,
        attempt: Attempt,
        number: int,
        items: Items[SomeDeletes],
        operation: Operation,
        made: Replacement,
    ) -> bool:
        sizes = {key: self.begun[key] for key, _ in items}
        parts = [*_parts(items, self.files, made, sizes), *self._settled_with(items, made)]
        for part in parts:
            self.run.on_event(part.verified)
        try:
            return batch.send(self.run, attempt, number, operation, parts)
        finally:
            if number in attempt.sent:
                for key in sizes:
                    del self.begun[key]

    def _settled_with(self, items: Items[SomeDeletes], made: Replacement) -> list[Part]:
        """Return parts of the plan's other actions whose inputs all went into the new delete
        files: the commit carries them too."""
        request = self.run.request
        removed = {file.path for file in made.removed}
        own = {key for key, _ in items}
        pairs = zip(request.action_ids, request.actions, strict=True)
        settled = [
            (key, action)
            for key, action in pairs
            if key not in own and action.inputs and removed.issuperset(action.inputs)
        ]
        return [
            Part(
                key, action.verb, Event("verified", f"{action.verb}  {made.proof}", key),
                action.inputs, (), 0, 0, 0, 0.0, 0.0, 0.0,
            )
            for key, action in settled
        ]  # fmt: skip


class RemoveDanglingExecutor(DeleteExecutor[RemoveDanglingDeletes]):
    def applying(self, head: int) -> frozenset[str]:
        inputs = [path for _, action in self.items for path in action.inputs]
        files = of_paths(self.files, inputs)
        left = still_dangling(self.run.table, head, files)
        return frozenset(file.path for file in files) - _only(left, files)

    def input_bytes(self, paths: Sequence[str]) -> int:
        """Only metadata are read."""
        return 0

    def _carried_out(
        self, attempt: Attempt, number: int, items: Items[RemoveDanglingDeletes]
    ) -> bool:
        inputs = [path for _, action in items for path in action.inputs]
        removed = of_paths(self.files, inputs)
        proof = f"{count(len(removed))} apply to no data file"
        made = Replacement(removed=removed, proof=proof)
        return self._send(attempt, number, items, RemoveDeletes(removed), made)


def _only(left: Sequence[DeleteFile], files: Sequence[DeleteFile]) -> frozenset[str]:
    """Return the paths of which every delete file is left: vectors share one."""
    identities = {file.identity for file in left}
    kept = {file.path for file in files if file.identity not in identities}
    return frozenset(file.path for file in left) - kept


class ReplacingExecutor(DeleteExecutor[SomeDeletes], ABC):
    """Writes new delete files in a thread of its own, so that a stop is obeyed meanwhile."""

    def check(self) -> None:
        super().check()
        input_forms.refuse_unsound(self.run, deletes=self._inputs())

    def _inputs(self) -> list[DeleteFile]:
        paths = [path for _, action in self.items for path in action.inputs]
        return of_paths(self.files, paths)

    @abstractmethod
    def make(self, attempt: Attempt, base: str, inputs: Sequence[DeleteFile]) -> Replacement:
        """Write what replaces the delete files. base: names its jobs."""

    def _carried_out(self, attempt: Attempt, number: int, items: Items[SomeDeletes]) -> bool:
        run = self.run
        paths = [path for _, action in items for path in action.inputs]
        inputs = of_paths(self.files, paths)
        base = f"{attempt.id}/{number}"
        size = sum(self.begun[key] for key, _ in items)
        title = f"{items[0][1].verb}  {count(len(paths))} delete files {iec(size)}"
        run.say("start", f"{title}  reading", items[0][0])
        try:
            with ThreadPoolExecutor(1, thread_name_prefix="deletes") as pool:
                future = pool.submit(self._measured, attempt, base, inputs)
                made = self._awaited(attempt, future, base, paths)
        finally:  # the budgets count what tasks that died have read, however this ends
            self.begun[items[0][0]] += attempt.repeated.get(base, 0)
        if made is None:
            return run.stopped
        assert made.tasks is not None
        operation = RowDelta(made.tasks, made.added, made.removed)
        return self._send(attempt, number, items, operation, made)

    def _measured(self, attempt: Attempt, base: str, inputs: Sequence[DeleteFile]) -> Replacement:
        started = time.monotonic()
        try:
            made = self.make(attempt, base, inputs)
            assert made.tasks is not None
            with replacement.uncommitted(attempt, [file.path for file in made.added]):
                hidden, verified = witnessing.same_deletes(
                    attempt, base, made.tasks, self.files, made.added, made.removed
                )
        except Exception as error:
            refused.record(self.run, attempt, {file.path for file in inputs}, error)
            raise
        return replace(
            made,
            proof=made.proof or replacement.compared(hidden),
            cpu_seconds=made.cpu_seconds + attempt.backend.spent(f"{base}/write"),
            verify_cpu_seconds=verified + attempt.backend.spent(f"{base}/verify"),
            seconds=time.monotonic() - started,
        )

    def _awaited(
        self, attempt: Attempt, future: Future[Replacement], base: str, paths: Sequence[str]
    ) -> Replacement | None:
        """Return what was made; None if this run stops, or a file was removed while it was
        read."""
        while not future.done():
            wait([future], POLL_SECONDS)
            if self.run.stopping():
                attempt.cancelled.set()
                self.run.backend.cancel([f"{base}/write", f"{base}/verify"])
                wait([future])
                return None
        error = future.exception()
        if error is None:
            return future.result()
        if not vanished.may_have_vanished(self.run.table.errors, error):
            raise error
        self.require_files(paths, error)
        self.run.conflicts += 1
        self.run.say("conflict", "CONFLICT: its files were removed while they were read")
        return None


class CompactExecutor(ReplacingExecutor[CompactDeletes]):
    def make(self, attempt: Attempt, base: str, inputs: Sequence[DeleteFile]) -> Replacement:
        return compact.replacement_for(attempt, base, inputs, self.files)


class ConvertExecutor(ReplacingExecutor[ConvertDeletes]):
    """Converts equality deletes to positions."""

    def __init__(self, run: Run, items: Items[ConvertDeletes]) -> None:
        super().__init__(run, items)
        self.hidden_rows = convert.HiddenRows()
        """What its attempts found, so that a conflict costs only what another writer touched."""
        self.checked: int | None = None
        """The snapshot whose bounds were compared last."""

    def check(self) -> None:
        super().check()
        run, files = self.run, self._inputs()
        convert.refuse(run.table, run.shown, files)
        assert self.read_of is not None
        paths = [file.path for file in files]
        under = run.table.tasks_under(self.read_of, paths)
        input_forms.refuse_unsound(run, under.values())
        run.backend.refuse_left_out(run, self.read_of, files)
        self.checked = self.read_of

    def input_bytes(self, paths: Sequence[str]) -> int:
        """The delete files, and the identity columns of the data files that they apply to and that
        no attempt has read as they are."""
        run = self.run
        head = run.table.head()
        assert head is not None  # the files are of one
        files = of_paths(self.files, paths)
        return super().input_bytes(paths) + convert.key_bytes(
            run.table, head, files, self.files, self.hidden_rows
        )

    def make(self, attempt: Attempt, base: str, inputs: Sequence[DeleteFile]) -> Replacement:
        if attempt.snapshot_id != self.checked:
            attempt.backend.refuse_left_out(self.run, attempt.snapshot_id, self._inputs())
            self.checked = attempt.snapshot_id
        return convert.replacement_for(attempt, base, inputs, self.files, self.hidden_rows)


def _parts(
    items: Items[Any], files: Sequence[DeleteFile], made: Replacement, sizes: Mapping[str, int]
) -> list[Part]:
    """Return each action's part of a batch: its partition's new delete files, and a share of the
    times by the bytes that it reads (sizes). The first one also has what was folded in."""
    named = {path for _, action in items for path in action.inputs}
    folded = {file.path for file in made.removed} - named
    owners = _owners(items, files)
    first = items[0][0]
    parts = []
    for number, (key, action) in enumerate(items, start=1):
        taken = f"{count(len(action.inputs))} delete files {iec(sizes[key])}"
        title = f"{action.verb} {number}/{len(items)}  {taken}"
        text = f"{title}  {made.proof}"
        own = [f for f in made.added if owners.get(f.partition_key, first) == key]
        share = (sizes[key] + 1) / (sum(sizes.values()) + len(items))
        inputs = {*action.inputs, *folded} if key == first else {*action.inputs}
        part = Part(
            action_id=key,
            title=title,
            verified=Event("verified", text, key),
            inputs=tuple(sorted(inputs)),
            outputs=tuple(dict.fromkeys(file.path for file in own)),
            read_bytes=sizes[key],
            written_bytes=sum(file.size for file in own),
            rows=sum(file.rows for file in own),
            cpu_seconds=made.cpu_seconds * share,
            verify_cpu_seconds=made.verify_cpu_seconds * share,
            seconds=made.seconds * share,
        )
        parts.append(part)
    return parts


def _owners(items: Items[Any], files: Sequence[DeleteFile]) -> dict[PartitionKey, str]:
    """Return the action of each partition. Of deletes that apply to every
    partition it is the first action that has some."""
    owners: dict[PartitionKey, str] = {}
    for key, action in items:
        for file in of_paths(files, action.inputs):
            owners.setdefault(file.partition_key, key)
    return owners
