"""Deletes those files of a plan that the table still does not refer to.

What the metadata refers to is read again right before, with every branch and tag. The lease keeps
other attempts of ours away, and those that were open are settled by then. Nothing is committed.
"""

from __future__ import annotations

import time
from typing import Any

from reconciler.format import count, iec, plural
from reconciler.plan.actions.remove_orphans import RemoveOrphans
from reconciler.spark import cleanup, metadata, reachable
from reconciler.spark.actions.one_by_one import OneByOneExecutor
from reconciler.table.orphans import Listed, Search, orphans_of, place_of


class OrphansExecutor(OneByOneExecutor[RemoveOrphans]):
    def may_begin(self) -> bool:
        return not self.run.stopping()

    def commit(self, key: str, action: RemoveOrphans) -> None:
        run, begun = self.run, self.begin()
        gone = self._orphans(action)
        run.require_lease()
        files, size = reachable.delete(run.table, gone)
        left = len(action.files) - files
        detail = f"{plural(files, 'file')} removed ({iec(size)})"
        if left:
            detail += f"; {count(left)} of the plan are gone, younger, or referred to by now"
        self.record(begun, key, detail)
        run.done_ids.add(key)
        run.say("property", f"{action.verb}: {detail}", key)

    def _orphans(self, action: RemoveOrphans) -> dict[str, int]:
        """Return the bytes of those of the planned files that are orphans now."""
        run = self.run
        planned = {place_of(path) for path in action.files}
        location = str(run.table.location()).rstrip("/")
        listed = [
            file
            for name in sorted({_directory(path, location) for path in action.files})
            for file in self._listed(name)
        ]
        run.table.refresh()
        rows = reachable.files(run.spark, reachable.frozen(run.spark, run.table))
        referenced = {place_of(row.path) for row in rows.select("path").collect()}
        referenced |= {place_of(path) for path in _metadata_files(run.spark, run.table)}
        search = Search(action.older_than_ms)
        found = orphans_of(listed, location, referenced, search, int(time.time() * 1000))
        return {f.path: f.size for f in found.files if place_of(f.path) in planned}

    def _listed(self, directory: str) -> list[Listed]:
        found = cleanup.listed(self.run.spark, self.run.table, directory)
        return [Listed(path, size, changed) for path, (size, changed) in found.items()]


def _directory(path: str, location: str) -> str:
    """Return the directory of the table that the file lies below, in the spelling of the
    location."""
    below = place_of(path)[len(place_of(location)) :].lstrip("/")
    return f"{location}/{below.partition('/')[0]}"


def _metadata_files(spark: Any, table: Any) -> list[str]:
    """Return the present metadata file and those of the metadata log."""
    current = table.operations().current()
    log = metadata.document(spark, current).get("metadata-log") or ()
    return [str(current.metadataFileLocation()), *(str(one["metadata-file"]) for one in log)]
