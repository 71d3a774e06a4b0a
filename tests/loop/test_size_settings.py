"""Who names the sizes of files and row groups, and what is left for the what-if to choose."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reconciler.loop.decision_settings import settings_for
from reconciler.loop.history import History
from reconciler.loop.ports import RecordedQueries
from reconciler.queries.coverage import Coverage
from reconciler.queries.fragments import workload_of_fragments
from reconciler.table.left_to_spark import ROW_GROUP
from reconciler.table.numbers import FILE_BYTES
from tests.cli.observations import lineitem
from tests.loop.test_step import policy

NOTHING = workload_of_fragments([])


@pytest.mark.parametrize(
    ("files", "properties", "chosen"),
    [
        ({}, {}, (True, True)),
        ({"targetSize": "Auto", "rowGroupSize": "Auto"}, {}, (True, True)),
        ({"targetSize": "64Mi"}, {}, (False, True)),
        ({}, {FILE_BYTES: "1000000"}, (False, True)),
        ({}, {FILE_BYTES: "no size"}, (True, True)),
        ({"rowGroupSize": "64Mi"}, {}, (True, False)),
        ({}, {ROW_GROUP: "1000000"}, (True, False)),
        ({}, {ROW_GROUP: "128MB"}, (True, True)),
    ],
)
def test_a_size_is_chosen_where_neither_policy_nor_table_names_one(
    files: dict[str, str], properties: dict[str, str], chosen: tuple[bool, bool]
) -> None:
    asked: Any = policy("t", layout={"files": files})
    seen = lineitem(12, 3)
    seen = replace(seen, metadata=replace(seen.metadata, properties=properties))
    settings = settings_for(
        asked, seen, History(), RecordedQueries(NOTHING, Coverage(1.0, "bytes"), NOTHING),
        target_bytes=1, now_ms=0,
    )  # fmt: skip
    assert (settings.target_auto, settings.row_group_auto) == chosen
