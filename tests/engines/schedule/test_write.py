"""What becomes of a group that neither the engine nor Spark can write."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.api.choices import EngineType
from reconciler.engines.schedule import native, refused, write
from reconciler.engines.schedule.refused import NotWritableError
from reconciler.errors import MemoryExhaustedError
from reconciler.spark.session import translate
from reconciler.table.refusals import NOT_WRITABLE, OUT_OF_MEMORY, Refusal


@pytest.mark.parametrize("tree", [None, object()], ids=["a type of the table", "a tree"])
@pytest.mark.parametrize("engine", [EngineType.SPARK, EngineType.LOCAL])
def test_too_little_memory_is_recorded_as_such_where_spark_cannot_write_either(
    tree: Any, engine: EngineType
) -> None:
    """On one machine it is what was free at the time: later plans take the files again."""
    foreign = [] if tree is not None else ["at (time)"]
    attempt: Any = SimpleNamespace(
        name="n.t", table=SimpleNamespace(columns_unknown_to_spark=lambda: foreign),
        cancelled=SimpleNamespace(is_set=lambda: False),
    )  # fmt: skip
    ordering = SimpleNamespace(tree=tree)
    group: Any = SimpleNamespace(
        action=SimpleNamespace(ordering=ordering), inputs=[SimpleNamespace(path="a")]
    )
    kept: list[Refusal] = []
    run: Any = SimpleNamespace(
        request=SimpleNamespace(memory_bytes=1, engine=engine, table_uuid="u"),
        ledger=SimpleNamespace(record_refusals=lambda _, found: kept.extend(found)),
        table=SimpleNamespace(errors=translate),
    )
    for left, error, reason in (
        (native.Unplanned("it is small", for_memory=True), MemoryExhaustedError, OUT_OF_MEMORY),
        (native.Unplanned("it is odd"), NotWritableError, NOT_WRITABLE),
    ):
        kept.clear()
        with pytest.raises(error) as found:
            write._require_writable(attempt, group, left)
        refused.record(run, attempt, ["a"], found.value)
        kept_by_local = engine is EngineType.SPARK or reason == NOT_WRITABLE
        assert [one.reason for one in kept] == [reason] * kept_by_local
