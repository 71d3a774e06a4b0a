"""The demo's directory and tables: nobody else's files are touched, data arrive in order."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.demo import data
from reconciler.errors import UserError
from tests.said import Said

SCALE = data.Scale(scale_factor=0.01, parts=4, late_parts=1, target_bytes=1 << 20)


def test_a_directory_that_the_demo_did_not_make_is_refused_and_kept(
    tmp_path: Path, said: Said
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("irreplaceable")
    with pytest.raises(UserError) as refused:
        data.prepare(mine)
    said(refused.value)
    assert [path.name for path in mine.iterdir()] == ["thesis.txt"]


def test_a_second_demo_starts_afresh_but_keeps_generated_data(tmp_path: Path) -> None:
    place = data.prepare(tmp_path / "demo")
    (place.warehouse / "old").write_text("")
    place.database.write_text("")
    place.generated.mkdir()
    (place.generated / "kept").write_text("")
    again = data.prepare(tmp_path / "demo")
    assert not (again.warehouse / "old").exists()
    assert not again.database.exists()
    assert (again.generated / "kept").exists()


def test_orders_arrive_in_key_order_one_append_a_part(tmp_path: Path) -> None:
    place = data.prepare(tmp_path / "demo")
    generated = data.generate(place, SCALE)
    catalog = data.open_catalog(place)
    data.create_tables(catalog, generated)
    data.arrive(catalog, generated, SCALE.first_parts)
    table = catalog.load_table(("tpch", "orders"))
    assert len(table.snapshots()) == 3
    keys = [
        table.scan(snapshot_id=s.snapshot_id, selected_fields=("o_orderkey",)).to_arrow()[0]
        for s in table.snapshots()
    ]
    largest = [max(column.to_pylist()) for column in keys]
    assert largest == sorted(largest)
    assert largest[-1] <= SCALE.largest_order


def test_a_copy_has_the_same_files_and_an_identity_of_its_own(tmp_path: Path) -> None:
    place = data.prepare(tmp_path / "demo")
    generated = data.generate(place, SCALE)
    catalog = data.open_catalog(place)
    data.create_tables(catalog, generated)
    data.arrive(catalog, generated, SCALE.first_parts)
    data.copy_of(catalog, "lineitem", "copy")
    source, copy = (catalog.load_table(("tpch", name)) for name in ("lineitem", "copy"))
    paths = [
        {task.file.file_path for task in table.scan().plan_files()} for table in (source, copy)
    ]
    assert paths[0] == paths[1]
    assert source.metadata.table_uuid != copy.metadata.table_uuid
    assert source.scan().count() == copy.scan().count()
