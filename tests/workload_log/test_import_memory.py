"""An import of a long log keeps no query that it has stored."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from bench.workload_import import COLUMNS, query
from reconciler.queries.fragments import Fragment
from reconciler.state.state import StateStore
from reconciler.table.schema import Field, Schema
from reconciler.workload_log import sql_log
from reconciler.workload_log.sql import SqlReader
from reconciler.workload_log.sql_log import SqlLogImport
from reconciler.workload_log.tables import KnownTable, SchemaMap

LINES, BATCH = 1_200, 120


class CountingStore(StateStore):
    """A store that counts the objects of the process after each commit."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.objects: list[int] = []

    def append_fragments(self, fragments: Iterable[Fragment]) -> None:
        super().append_fragments(fragments)
        del fragments
        gc.collect()
        self.objects.append(len(gc.get_objects()))


def test_objects_do_not_grow_with_the_queries_that_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit leaves some 20 objects of manifests; a kept query would leave one at least."""
    monkeypatch.setattr(sql_log, "BATCH", BATCH)
    log = tmp_path / "log.jsonl"
    lines = [{"sql": query(n % 50), "timestamp": 1_760_000_000_000 + n} for n in range(LINES)]
    log.write_text("".join(json.dumps(one) + "\n" for one in lines))
    fields = (Field(n + 1, name, kind) for n, (name, kind) in enumerate(COLUMNS))
    schema = Schema(0, tuple(fields))
    tables = SchemaMap({("db", n): KnownTable(n, n, schema) for n in ("t", "u")})
    store = CountingStore(tmp_path / "state")
    tally = SqlLogImport(SqlReader("trino", tables), store).run(log)
    commits = len(store.objects)
    assert tally.kept == LINES and commits >= LINES // BATCH
    late = store.objects[commits // 2 :]
    assert (late[-1] - late[0]) / (len(late) - 1) < BATCH / 2
