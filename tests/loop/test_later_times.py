"""A table whose metadata has times of the future takes no commit; plan and apply say so."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.api.catalog_config import CatalogConfig
from reconciler.engines.commit.standing import refuse_later_times
from reconciler.errors import BlockedError
from reconciler.loop.reader import Reader
from reconciler.loop.remaining import shown_document
from reconciler.loop.step import PENDING, state_of
from reconciler.spark.commit.table import JavaTable
from reconciler.table.clock import REMEDY, TOLERATED_MS, ahead_text
from tests.loop.test_file_checks import (  # noqa: F401 (fixtures)
    add,
    config,
    look,
    reader,
    table,
)

DAY_MS = 86_400_000


def move(table: Any, by_ms: int) -> None:  # noqa: F811
    """Add so much to every time of the table's metadata."""
    path = Path(table.refresh().metadata_location.removeprefix("file://"))
    body = json.loads(path.read_text())
    body["last-updated-ms"] += by_ms
    for entry in (*body["snapshots"], *body["snapshot-log"]):
        entry["timestamp-ms"] += by_ms
    path.write_text(json.dumps(body))


@pytest.mark.parametrize(("by_ms", "refused"), [(10 * DAY_MS, True), (10_000, False)])
def test_a_plan_says_by_how_much_the_clock_is_ahead(
    table: Any,  # noqa: F811
    config: CatalogConfig,  # noqa: F811
    reader: Reader,  # noqa: F811
    by_ms: int,
    refused: bool,
) -> None:
    add(table, 3)
    move(table, by_ms)
    proposal = look(config, reader)
    assert proposal.pending
    shown, state = shown_document(proposal)["evidence"], state_of(proposal, None)
    assert state.state == PENDING
    assert ("refused" in shown) is refused
    assert ("10 d ahead" in state.message) is refused


def _table(updated_ms: int, *log_ms: int) -> Any:
    """A table as the JVM has it."""
    log = [SimpleNamespace(timestampMillis=lambda at=at: at) for at in log_ms]
    history = SimpleNamespace(size=lambda: len(log), get=lambda n: log[n])
    now = SimpleNamespace(lastUpdatedMillis=lambda: updated_ms)
    java = SimpleNamespace(
        name=lambda: "t", history=lambda: history,
        operations=lambda: SimpleNamespace(current=lambda: now),
    )  # fmt: skip
    return JavaTable(None, "t", java)


def test_an_execution_is_refused_before_anything_is_written() -> None:
    now = int(time.time() * 1000)
    refuse_later_times(_table(now - 5), "c.s.t")
    refuse_later_times(_table(now + 5, now - 5), "c.s.t")
    for late in (_table(now + DAY_MS), _table(now, now - 5, now + DAY_MS)):
        with pytest.raises(BlockedError) as blocked:
            refuse_later_times(late, "c.s.t")
        assert blocked.value.do == REMEDY


def test_a_minute_is_tolerated() -> None:
    assert ahead_text(TOLERATED_MS) == "" != ahead_text(TOLERATED_MS + 1)
