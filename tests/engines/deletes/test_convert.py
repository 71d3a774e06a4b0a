"""Which columns of equality deletes a conversion compares."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.engines.delete_file import DeleteFile
from reconciler.engines.deletes import convert
from reconciler.engines.schedule.inputs import all_ids, types_of
from reconciler.errors import UnsupportedError
from reconciler.table.deletes import PartitionKey

SCHEMA = {"type": "struct", "fields": [
    {"id": 1, "name": "id", "type": "long"},
    {"id": 2, "name": "s", "type": {"type": "struct", "fields": [
        {"id": 3, "name": "x", "type": "int"}]}},
    {"id": 4, "name": "l", "type": {"type": "list", "element-id": 5, "element": {
        "type": "struct", "fields": [{"id": 6, "name": "y", "type": "int"}]}}},
    {"id": 7, "name": "m", "type": {"type": "map", "key-id": 8, "key": "string",
                                    "value-id": 9, "value": "int"}},
]}  # fmt: skip
TABLE: Any = SimpleNamespace(schema=lambda: SCHEMA)


def deletes(*keys: int) -> DeleteFile:
    return DeleteFile(None, "d", 0, PartitionKey(0, ""), True, 1, "", keys, "PARQUET", 1, 1)


@pytest.mark.parametrize("keys", [(1,), (3,), (1, 3), (99,), ()])
def test_columns_outside_of_lists_and_maps_are_compared(keys: tuple[int, ...]) -> None:
    convert.refuse(TABLE, "t", [deletes(*keys)])


@pytest.mark.parametrize(("key", "name"), [(6, "l.element.y"), (8, "m.key"), (9, "m.value")])
def test_a_member_of_a_list_or_a_map_is_named(key: int, name: str) -> None:
    with pytest.raises(UnsupportedError) as raised:
        convert.refuse(TABLE, "t", [deletes(1), deletes(key)])
    assert name in raised.value.what


def test_every_column_has_its_id_and_one_outside_of_lists_its_type() -> None:
    assert all_ids(SCHEMA) == set(range(1, 10))
    assert types_of(TABLE) == {1: "long", 2: "struct", 3: "int", 4: "list", 7: "map"}
