"""What an expiry asks of the live table, without a JVM."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from reconciler.engines.actions.expire_snapshots import ExpireExecutor
from reconciler.errors import UnavailableError
from reconciler.plan.actions.expire_snapshots import ExpireSnapshots
from reconciler.plan.actions.state import Facts, Validity
from reconciler.plan.execution import COMMITTED, Outcome
from reconciler.table.metadata import TableMetadata
from reconciler.table.retention import BRANCH, MAIN, Ref, Snapshot, SnapshotLog
from tests.commit.test_requests import Table
from tests.engines.commit.test_audit import engine_of

TEN = tuple(Snapshot(n, n - 1 or None, 1000 * n) for n in range(1, 11))
HUNDRED_YEARS_MS = 100 * 365 * 86_400_000
WHY = "r17"


@pytest.mark.parametrize(
    ("properties", "main", "state"),
    [
        ({}, {}, Validity.PENDING),
        ({"history.expire.min-snapshots-to-keep": "8"}, {}, Validity.PENDING),
        ({"history.expire.min-snapshots-to-keep": "9"}, {}, Validity.LOST),
        ({"history.expire.max-snapshot-age-ms": str(HUNDRED_YEARS_MS)}, {}, Validity.LOST),
        ({}, {"least": 9}, Validity.LOST),
        ({}, {"max_age_ms": HUNDRED_YEARS_MS}, Validity.LOST),
        ({"history.expire.min-snapshots-to-keep": "9"}, {"least": 1}, Validity.PENDING),
        ({"gc.enabled": "False"}, {}, Validity.LOST),
    ],
    ids=("nothing", "as many", "more", "longer", "more of main", "longer of main",
         "main has its own number", "files stay"),
)  # fmt: skip
def test_what_the_table_asks_for_since_the_plan_is_kept(
    properties: dict[str, str], main: dict[str, int], state: Validity
) -> None:
    log = SnapshotLog(TEN, (Ref(MAIN, BRANCH, 10, **main),))
    run = SimpleNamespace(table=SimpleNamespace(log=lambda: log))
    executor = ExpireExecutor(cast(Any, run), ())
    facts = Facts(metadata=TableMetadata(properties, log=log))
    assert executor.state(ExpireSnapshots((1, 2), 0, 1), facts).validity is state


class Run:
    """Everything of a run that an expiry asks for; one of its calls fails after the commit."""

    def __init__(self, table: Table, fails: str) -> None:
        self.table, self.fails = engine_of(table), fails
        self.outcomes: list[Outcome] = []
        self.ledger = SimpleNamespace(record_intent=lambda intent: None)

    def begin_attempt(self) -> str:
        return "p-1-a"

    def intent(self, *_: Any, **named: Any) -> None: ...

    def record(self, _: Any, outcomes: tuple[Outcome, ...]) -> None:
        self.outcomes += outcomes

    def say(self, *_: Any) -> None: ...

    def require_lease(self) -> None:
        self._fail("lease")

    def unclaimed(self, files: dict[str, int]) -> tuple[dict[str, int], str]:
        self._fail("others")
        return files, ""

    def _fail(self, what: str) -> None:
        if what == self.fails:
            raise UnavailableError(WHY, do="again")


@pytest.mark.parametrize("fails", ["lease", "others", ""])
def test_a_failure_after_the_commit_is_recorded_with_it(tmp_path: Path, fails: str) -> None:
    table = Table(tmp_path / "own")
    run = Run(table, fails)
    first = next(iter(run.table.snapshots()))
    ExpireExecutor(cast(Any, run), ()).commit("a", ExpireSnapshots((first.id,), 0, 1))
    (outcome,) = run.outcomes
    assert outcome.state == COMMITTED
    assert (WHY in outcome.detail) is (fails != "")
    assert run.table.has_file(first.manifest_list) is (fails != "")
    run.table.refresh()
    assert run.table.snapshot(first.id) is None
    assert table.rows() == [0, 1, 2]
