"""Inputs as their manifest entries describe them."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from reconciler.engines.schedule.inputs import by_leaf, describe
from reconciler.engines.task_file import TaskFile
from reconciler.table.cut_tree import Cut, made
from reconciler.table.schema import SortColumn
from reconciler.table.values import encode_wide_decimal


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


@pytest.mark.parametrize(
    ("kind", "cuts", "ends"),
    [
        ("long", (-5, 7), [(-9).to_bytes(8, "little", signed=True), (6).to_bytes(4, "little")]),
        ("double", (-0.5, 2.0), [struct.pack("<d", -1.0), struct.pack("<f", 1.5)]),
        ("string", (b"b", b"x" * 63 + b"z"), [b"a", b"x" * 70]),
        ("decimal(9,2)", (-5, 7), [(-9).to_bytes(2, "big", signed=True), b"\6"]),
        (
            "decimal(30,2)", (encode_wide_decimal(-5), encode_wide_decimal(7)),
            [(-9).to_bytes(2, "big", signed=True), b"\6"],
        ),
    ],
)  # fmt: skip
def test_files_lie_between_leaves_by_bounds_of_every_type(
    kind: str, cuts: tuple[Any, Any], ends: list[bytes]
) -> None:
    """Three leaves: the bounds of the first file are in the first two, those of the second are not
    known, the third has NULL alone, and the fourth is in the last leaf."""
    tree = made((Cut(1, cuts[0]), None, (Cut(1, cuts[1]), None, None)), [0, 0, 0])
    last = {"string": b"y", "double": struct.pack("<d", 9.0)}
    high = last.get(kind, b"\x20" if kind.startswith("decimal") else (32).to_bytes(8, "little"))
    files = {
        "a": TaskFile("a", "PARQUET", 9, 1, lower={1: ends[0]}, upper={1: ends[1]}),
        "b": TaskFile("b", "PARQUET", 9, 1, upper={1: ends[1]}),
        "c": TaskFile("c", "PARQUET", 9, 4, nulls={1: 4}),
        "d": TaskFile("d", "PARQUET", 9, 1, lower={1: high}, upper={1: high}),
    }
    table: Any = Table(kind)
    found = by_leaf(table, files, tree, describe(table, files, ()))
    assert [(one.low, one.high) for one in found] == [(0, 1), (0, 2), (0, 0), (2, 2)]
