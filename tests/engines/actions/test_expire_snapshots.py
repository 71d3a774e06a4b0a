"""What an expiry asks of the live table, without a JVM."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from reconciler.engines.actions.expire_snapshots import ExpireExecutor
from reconciler.plan.actions.expire_snapshots import ExpireSnapshots
from reconciler.plan.actions.state import Facts, Validity
from reconciler.table.metadata import TableMetadata
from reconciler.table.retention import BRANCH, MAIN, Ref, Snapshot, SnapshotLog

TEN = tuple(Snapshot(n, n - 1 or None, 1000 * n) for n in range(1, 11))
HUNDRED_YEARS_MS = 100 * 365 * 86_400_000


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
