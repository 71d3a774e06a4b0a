"""What waits on a branch is dropped only for an attempt that may be settled; without a JVM."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.engines.commit import fence
from reconciler.engines.schedule import processes
from reconciler.errors import BlockedError
from reconciler.plan.execution import Intent
from tests.commit.test_requests import Table
from tests.engines.commit.test_audit import engine_of, waiting
from tests.spark.ledger import FileLease, FileLedger


def test_the_batches_of_an_attempt_that_still_runs_stay_on_their_branch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(tmp_path / "own")
    engine = engine_of(table)
    ledger, lease = FileLedger(tmp_path / "ledger.db"), FileLease(tmp_path / "ledger.db")
    for attempt, branch, writer in (
        ("p-1-a", "dead", processes.identity(4_999_999)),
        ("p-1-b", "running", processes.own_identity(None)),
    ):
        waiting(engine, attempt, branch)
        base = engine.head()
        assert base is not None
        opened = Intent(
            engine.uuid(), ("jobs", "t"), "p-1", attempt, 0, ("a",), base, "", (), (), writer
        )
        ledger.record_intent(opened)
    monkeypatch.setattr(fence, "JVM_EXIT_SECONDS", 0.0)
    with pytest.raises(BlockedError):
        fence.resolve(table.config, ("jobs", "t"), engine, ledger, lease, lambda _: None)
    assert sorted(engine.refs()) == ["main", "running"]
    assert [one.attempt_id for one in ledger.open_intents(engine.uuid())] == ["p-1-b"]
