"""Storage that takes no files while a batch is committed: said once, and nothing is done twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reconciler.errors import AccessDeniedError, ReconcilerError, UnavailableError
from reconciler.plan.actions.rewrite import Cluster
from reconciler.spark.commit import java_commit
from tests.spark.tables import Bench

pytestmark = pytest.mark.spark


class _Unwritable:
    """An update whose first manifest cannot be written."""

    def __init__(self, spark: Any, message: str) -> None:
        java = spark._jvm.java
        self.thrown = java.lang.RuntimeException("Failed", java.io.IOException(message))

    def set(self, *named: str) -> None: ...

    def validateWith(self, guard: Any) -> None: ...

    def commit(self) -> None:
        error = RuntimeError("py4j")
        error.java_exception = self.thrown  # type: ignore[attr-defined]
        raise error


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("No space left on device", UnavailableError),
        ("/w/t/metadata/m0.avro (Read-only file system)", AccessDeniedError),
    ],
)
def test_a_commit_that_cannot_be_written_ends_the_run_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, message: str, kind: type[ReconcilerError]
) -> None:
    table = bench.create("id bigint")
    for number in range(4):
        bench.sql(f"INSERT INTO {bench.full(table)} VALUES ({number}), ({10 - number})")
    before = bench.rows(table)
    request = bench.request(table, bench.action(table, Cluster, "id"))
    with monkeypatch.context() as patch:
        unwritable = _Unwritable(bench.spark, message)
        patch.setattr(java_commit, "filled_with", lambda *arguments: unwritable)
        with pytest.raises(kind, match=table):
            bench.run(request)
    assert [event.phase for event in bench.events].count("commit") == 1
    assert bench.ledger.open_intents(request.table_uuid) == ()
    location = str(bench.table(table).location()).removeprefix("file:")
    assert list(Path(location).glob("data/layout-*")) == []
    assert bench.run(request).commits == 1
    assert bench.rows(table) == before
