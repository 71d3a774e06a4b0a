"""What a table's metadata say, in the words of the model."""

from __future__ import annotations

import json

from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import LongType, NestedField

from reconciler.catalog.metadata import schema_of
from reconciler.rewrite.columns import Stored, with_ids
from reconciler.table.physical import NAME_MAPPING


def test_an_entry_of_a_name_mapping_may_lack_names() -> None:
    """The specification ("Column Projection") has them optional: a column that no file has yet."""
    text = json.dumps([{"field-id": 1, "names": ["id"]}, {"field-id": 2}])
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "v", LongType()))
    metadata = new_table_metadata(
        schema, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "file:/t", {NAME_MAPPING: text}
    )
    assert schema_of(metadata).name_mapping == ((("id",), 1),)
    (column,) = with_ids([Stored(None, "id", "BIGINT")], text)
    assert column.field_id == 1
