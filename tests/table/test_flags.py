"""A table's properties that are true or false are read as Iceberg reads them."""

from __future__ import annotations

import pytest

from reconciler.catalog.chains import chain_of
from reconciler.commit import merging
from reconciler.commit.metadata import DELETE_AFTER, removed_files
from reconciler.engines.schedule.native import blooms_of
from reconciler.table.branches import audits_writes
from reconciler.table.flags import flag
from reconciler.table.retention import may_delete

TEXTS = [
    ("true", True), ("True", True), ("TRUE", True), ("false", False), ("False", False),
    ("yes", False), ("1", False), (" true", False), ("", False),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), TEXTS)
def test_true_in_any_case_is_true_and_all_else_is_false(text: str, value: bool) -> None:
    assert flag({"a": text}, "a", not value) is value
    assert may_delete({"gc.enabled": text}) is value
    body = {"format-version": 2, "location": "l", "properties": {"gc.enabled": text}}
    assert chain_of(body).registers is not value
    assert audits_writes({"write.wap.enabled": text}) is value
    assert merging.settings({merging.ENABLED: text}).enabled is value
    log = {"metadata-log": [{"metadata-file": "m"}]}
    assert removed_files(log, {"properties": {DELETE_AFTER: text}}) == (["m"] if value else [])
    bloom = {"write.parquet.bloom-filter-enabled.column.c": text}
    assert (blooms_of(bloom, 10) != {}) is value


def test_what_is_not_set_has_its_default() -> None:
    assert flag({}, "a", True) and not flag({}, "a", False)
    assert may_delete({}) and merging.settings({}).enabled
    assert (
        not audits_writes({})
        and removed_files({"metadata-log": [{"metadata-file": "m"}]}, {}) == []
    )
