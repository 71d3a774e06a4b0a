"""The same table through a real REST catalog server: observe, footers, wrong names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog.footers import read_row_groups
from reconciler.catalog.load import connect, list_namespaces, list_tables
from reconciler.catalog.observe import observe_table
from reconciler.errors import TableNotFoundError
from tests.catalog.reference import assert_same

pytestmark = pytest.mark.rest


def test_a_table_of_a_rest_catalog_is_observed(rest_catalog: CatalogConfig, tmp_path: Path) -> None:
    catalog = connect(rest_catalog)
    catalog.create_namespace_if_not_exists("looked")
    table = catalog.create_table("looked.at", pa.schema([("a", pa.int64()), ("s", pa.string())]))
    table.append(pa.table({"a": [1, 2], "s": ["x", None]}))
    table.append(pa.table({"a": [5], "s": ["y"]}))
    seen = observe_table(rest_catalog, ("looked", "at"), tmp_path)
    assert_same(table, seen)
    rows = np.arange(2)
    for identifier in (None, ("looked", "at")):
        groups = read_row_groups(rest_catalog, seen.files, rows, identifier=identifier)
        assert groups.records.sum() == 3
    assert ("looked",) in map(tuple, list_namespaces(catalog, rest_catalog, 20))
    assert ("looked", "at") in list_tables(catalog, rest_catalog, ("looked",), 20)
    with pytest.raises(TableNotFoundError) as raised:
        observe_table(rest_catalog, ("looked", "att"), tmp_path)
    assert any('"at"' in detail for detail in raised.value.details)
    with pytest.raises(TableNotFoundError):
        observe_table(rest_catalog, ("nowhere", "att"), tmp_path)
