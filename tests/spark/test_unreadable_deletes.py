"""Delete files that are cut or whose bytes changed: named, and the table stays as it was."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from reconciler.errors import TableDamagedError
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.delete_maintenance import CompactDeletes, ConvertDeletes
from reconciler.plan.actions.rewrite import ApplyDeletes
from tests.spark.equality import add_equality_delete, delete_paths, on_disk
from tests.spark.tables import Bench

pytestmark = pytest.mark.spark

MERGE_ON_READ = "'write.delete.mode'='merge-on-read', 'write.delete.granularity'='partition'"


def _table(bench: Bench, version: int) -> str:
    name = bench.create("id bigint, d int", f"'format-version'='{version}', {MERGE_ON_READ}")
    for start in (0, 40):
        rows = f"SELECT /*+ COALESCE(1) */ id + {start}, cast(id % 2 AS int) FROM range(40)"
        bench.sql(f"INSERT INTO {bench.full(name)} {rows}")
    return name


def _vectors(bench: Bench, name: str) -> str:
    """Delete two rows, of two data files; on format 3 one file has both vectors."""
    bench.sql(f"DELETE FROM {bench.full(name)} WHERE id IN (3, 43)")
    (path,) = set(delete_paths(bench, name))
    return path


def _compact(bench: Bench) -> tuple[str, str, Action]:
    name = _table(bench, 2)
    path = _vectors(bench, name)
    return name, path, CompactDeletes(inputs=(path,))


def _convert_beside_vectors(bench: Bench) -> tuple[str, str, Action]:
    name = _table(bench, 3)
    path = _vectors(bench, name)
    keys = add_equality_delete(bench, name, {"id": pa.array([5, 45], pa.int64())})
    return name, path, ConvertDeletes(inputs=(keys,))


def _apply_keys(bench: Bench) -> tuple[str, str, Action]:
    name = _table(bench, 2)
    path = add_equality_delete(bench, name, {"id": pa.array([3, 43], pa.int64())})
    return name, path, bench.action(name, ApplyDeletes)


def _apply_vectors(bench: Bench) -> tuple[str, str, Action]:
    name = _table(bench, 3)
    return name, _vectors(bench, name), bench.action(name, ApplyDeletes)


def _cut(body: bytes) -> bytes:
    return body[:30]


def _changed(body: bytes) -> bytes:
    """Where Parquet has its first page and Puffin its first vector."""
    return body[:12] + bytes(255 - byte for byte in body[12:32]) + body[32:]


@pytest.mark.parametrize(
    ("made", "damage"),
    [
        (_compact, _changed),
        (_convert_beside_vectors, _cut),
        (_apply_keys, _changed),
        (_apply_vectors, _cut),
        (_apply_vectors, _changed),
    ],
)
def test_an_unreadable_delete_file_is_named_and_the_table_stays(
    bench: Bench,
    made: Callable[[Bench], tuple[str, str, Action]],
    damage: Callable[[bytes], bytes],
) -> None:
    name, path, action = made(bench)
    file = on_disk(path)
    file.write_bytes(damage(file.read_bytes()))
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    request = bench.request(name, action)
    with pytest.raises(TableDamagedError) as caught:
        bench.run(request)
    assert path in caught.value.render()
    assert bench.table(name).currentSnapshot().snapshotId() == request.base_snapshot_id
    assert bench.leftovers(name) == []
