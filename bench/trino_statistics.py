"""Statistics that Trino's ANALYZE collected, as Trino shows them after a rewrite and an expiry.

Part of `bench.trino_reads`. The number of distinct values is a sketch in a Puffin file that Trino
wrote; it is true as long as the rows do not change. Trino shows it for the current snapshot if a
file is listed for this one or for one before it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench.lake import Lake

EXPIRY = "  maintenance: {expireSnapshots: {olderThan: 1s, retainLast: 1}}\n"


def analyzed(lake: Lake, rows: pa.Table, by: str, ask: Callable[[str], Any]) -> list[str]:
    """Have Trino analyze a table of these rows, then layoutctl sort it by a column and expire all
    snapshots but the last; return what Trino shows otherwise than before.

    rows: without fixed-size binaries, for a table with which Trino 476 shows no statistics.
    """
    name = "analyzed"
    table = lake.opened().create_table(f"lake.{name}", rows.schema)
    for start in range(4):
        table.append(rows.take(list(range(start, len(rows), 4))))
    ask(f"ANALYZE {name}")
    before = _distinct(name, ask)
    if not any(before.values()):
        return [f"{name}: ANALYZE left no number of distinct values"]
    wrong = _written_by_trino(lake, name)
    apply = [*lake.applying(f"mode: Declared, keys: [{by}]"), f"rec.lake.{name}"]
    for what in ("the rewrite", "the expiry"):
        lake.run(apply)
        with (lake.directory / "policy.yaml").open("a") as policy:
            policy.write(EXPIRY)
        if _distinct(name, ask) != before:
            wrong.append(f"{name}: after {what} Trino shows {_distinct(name, ask)}, not {before}")
    metadata = table.refresh().metadata
    kept = [one.snapshot_id for one in metadata.snapshots]
    listed = [one.snapshot_id for one in metadata.statistics]
    if not kept == listed == [metadata.current_snapshot_id]:
        wrong.append(f"{name}: statistics are listed for {listed}, the snapshots are {kept}")
    return wrong


def _distinct(name: str, ask: Callable[[str], Any]) -> dict[str, float]:
    """Return the number of distinct values by column, as far as Trino knows it."""
    shown = ask(f"SHOW STATS FOR {name}")
    return {row[0]: row[2] for row in shown if row[0] is not None and row[2] is not None}


def _written_by_trino(lake: Lake, name: str) -> list[str]:
    """Return a problem unless the only statistics file is one of Trino's."""
    (listed,) = lake.opened().load_table(f"lake.{name}").metadata.statistics
    written = Path(listed.statistics_path.removeprefix("file://")).read_bytes()
    return [] if b"Trino" in written else [f"{name}: Trino did not write {listed.statistics_path}"]
