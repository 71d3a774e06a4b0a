"""Inputs as their manifest entries describe them."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.engines.schedule.inputs import describe
from reconciler.engines.task_file import TaskFile
from reconciler.table.schema import SortColumn


class Table:
    def __init__(self, kind: str) -> None:
        self.kind = kind

    def schema(self) -> dict[str, Any]:
        return {"fields": [{"id": 1, "name": "u", "required": False, "type": self.kind}]}


@pytest.mark.parametrize(("kind", "bounded"), [("uuid", False), ("fixed[16]", True)])
def test_bounds_of_uuids_in_javas_order_are_none(kind: str, bounded: bool) -> None:
    """The plan groups by file tables, which leave such bounds out too."""
    low, high = b"\xf0" + bytes(15), b"\x10" + bytes(15)
    file = TaskFile("a", "PARQUET", 9, 1, lower={1: low}, upper={1: high})
    table: Any = Table(kind)
    (found,) = describe(table, {"a": file}, (SortColumn(1),))
    assert found.bounded == bounded
