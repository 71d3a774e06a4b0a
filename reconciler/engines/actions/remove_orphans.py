"""Deletes those files of a plan to which still nobody refers.

The table's metadata, with every branch and tag, is read again right before, and everybody else who
may refer to the files is asked again. The lease keeps other attempts of ours away, and those that
were open are settled by then. Nothing is committed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from reconciler.catalog.listing import Resolver
from reconciler.engines.actions.one_by_one import OneByOneExecutor
from reconciler.engines.commit import cleanup
from reconciler.engines.schedule.run import Run
from reconciler.format import count, iec, plural
from reconciler.plan.actions.remove_orphans import RemoveOrphans
from reconciler.plan.actions.state import ActionState, Facts, Validity
from reconciler.table.orphans import Candidates, Listed, Search, old_files
from reconciler.table.paths import key_of


class OrphansExecutor(OneByOneExecutor[RemoveOrphans]):
    def __init__(self, run: Run, items: Sequence[tuple[str, RemoveOrphans]]) -> None:
        super().__init__(run, items)
        self._refused = ""

    def may_begin(self) -> bool:
        return not self.run.stopping()

    def state(self, action: RemoveOrphans, facts: Facts) -> ActionState:
        if self._refused and not facts.done:
            return ActionState(Validity.LOST, why=self._refused)
        return action.judge(facts)

    def commit(self, key: str, action: RemoveOrphans) -> None:
        run, begun = self.run, self.begin()
        gone, self._refused = self._orphans(action)
        if self._refused:
            self.say_skipped(key, action, ActionState(Validity.LOST, why=self._refused))
            return
        run.require_lease()
        files, size, _ = cleanup.discard(run.table, gone)
        left = len(action.files) - files
        detail = f"{plural(files, 'file')} removed ({iec(size)})"
        if left:
            detail += f"; {count(left)} of the plan are gone, younger, or referred to by now"
        self.record(begun, key, detail)
        run.done_ids.add(key)
        run.say("property", f"{action.verb}: {detail}", key)

    def _orphans(self, action: RemoveOrphans) -> tuple[dict[str, int], str]:
        """Return the bytes of those of the planned files that are orphans now, and why nothing may
        be removed."""
        run = self.run
        location = run.table.location().rstrip("/")
        planned = {key_of(path) for path in action.files}
        listed = [
            file
            for name in sorted({_directory(path, location) for path in action.files})
            for file in self._listed(name)
            if key_of(file.path) in planned
        ]
        run.table.refresh()
        old = old_files(listed, location, Search(action.older_than_ms), int(time.time() * 1000))
        left = Candidates(old, location)
        resolver = Resolver()
        resolver.strike(left, run.table.mentioned([file.path for file in old]))
        resolver.strike(left, run.table.metadata_log())
        free = {file.path: file.size for file in left.oldest()}
        return run.unclaimed(free)

    def _listed(self, directory: str) -> list[Listed]:
        found = self.run.table.listed(directory)
        return [Listed(path, size, changed) for path, (size, changed) in found.items()]


def _directory(path: str, location: str) -> str:
    """Return the directory of the table that the file lies below, in the spelling of the
    location."""
    below = key_of(path)[len(key_of(location)) :].lstrip("/")
    return f"{location}/{below.partition('/')[0]}"
