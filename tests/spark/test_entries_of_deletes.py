"""Manifest entries that are not sound: a file in two, and bounds that are not the file's."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from reconciler.errors import (
    ReconcilerError,
    RefusedInputsError,
    UnsupportedError,
    VerificationError,
)
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.delete_maintenance import (
    CompactDeletes,
    ConvertDeletes,
    RemoveDanglingDeletes,
)
from reconciler.plan.actions.rewrite import ApplyDeletes, BinPack
from reconciler.plan.actions.rewrite_manifests import RewriteManifests
from reconciler.plan.actions.state import Validity
from reconciler.plan.execution import ExecutionRequest
from reconciler.spark.session import iceberg
from reconciler.table.refusals import WRONG_BOUNDS
from tests.spark.equality import (
    add_equality_delete,
    add_position_delete,
    delete_paths,
    java_file,
)
from tests.spark.tables import Bench

pytestmark = pytest.mark.spark


def _table(bench: Bench) -> str:
    """Rows 0, 2, 4, 6 in one file, and 1, 3, 5, 7 in another."""
    name = bench.create("id bigint", "'format-version'='2'")
    for part in (0, 1):
        bench.append(name, {"id": [2 * n + part for n in range(4)]})
    return name


def _refused(
    bench: Bench, request: ExecutionRequest, kind: type[ReconcilerError]
) -> ReconcilerError:
    with pytest.raises(kind) as caught:
        bench.run(request)
    name = request.table[-1]
    assert bench.table(name).currentSnapshot().snapshotId() == request.base_snapshot_id
    assert bench.leftovers(name) == []
    return caught.value


def _converting(bench: Bench, name: str) -> Action:
    path = add_equality_delete(bench, name, {"id": pa.array([3], pa.int64())})
    return ConvertDeletes(inputs=(path,))


def _compacting(bench: Bench, name: str) -> Action:
    file = str(bench.files(name)[0].file_path)
    both = (file.encode(), file.encode())
    return CompactDeletes(inputs=(add_position_delete(bench, name, [(file, 1)], "", both),))


def _dangling(bench: Bench, name: str) -> Action:
    return RemoveDanglingDeletes(inputs=_compacting(bench, name).inputs)


def _packing(bench: Bench, name: str) -> Action:
    return bench.action(name, BinPack, target_bytes=1 << 20)


@pytest.mark.parametrize("made", [_converting, _compacting, _dangling, _packing])
def test_a_data_file_in_two_entries_is_named_with_both(
    bench: Bench, made: Callable[[Bench, str], Action]
) -> None:
    name = _table(bench)
    table, path = bench.table(name), str(bench.files(name)[0].file_path)
    if made is _dangling:
        action = made(bench, name)
    table.newFastAppend().appendFile(java_file(table, path)).commit()
    if made is not _dangling:
        action = made(bench, name)
    rows = bench.rows(name)
    shown = _refused(bench, bench.request(name, action), UnsupportedError).render()
    manifests = {
        str(manifest.path())
        for manifest in iceberg.each(bench.table(name).currentSnapshot().dataManifests(table.io()))
    }
    assert path in shown and sum(manifest in shown for manifest in manifests) == 2
    assert bench.rows(name) == rows


def test_manifests_with_a_file_in_two_entries_are_rewritten(bench: Bench) -> None:
    name = _table(bench)
    table = bench.table(name)
    table.newFastAppend().appendFile(java_file(table, bench.files(name)[0].file_path)).commit()
    rows = bench.rows(name)
    assert rows.total() == 12
    inputs = tuple(
        str(manifest.path())
        for manifest in iceberg.each(bench.table(name).currentSnapshot().allManifests(table.io()))
    )
    action = RewriteManifests(inputs=inputs)
    assert bench.run(bench.request(name, action)).done and bench.rows(name) == rows


@pytest.mark.parametrize("made", [_converting, _compacting])
def test_a_delete_file_in_two_entries_is_named_with_both(
    bench: Bench, made: Callable[[Bench, str], Action]
) -> None:
    name = _table(bench)
    action = made(bench, name)
    table = bench.table(name)
    manifest = table.currentSnapshot().deleteManifests(table.io()).get(0)
    readers = bench.spark._jvm.org.apache.iceberg.ManifestFiles
    reader = readers.readDeleteManifest(manifest, table.io(), table.specs())
    file = reader.iterator().next().copy()
    reader.close()
    table.newRowDelta().addDeletes(file).commit()
    rows = bench.rows(name)
    assert rows.total() == 7
    shown = _refused(bench, bench.request(name, action), UnsupportedError).render()
    assert shown.count("sequence number") == 2 and action.inputs[0] in shown
    apply = bench.action(name, ApplyDeletes)
    assert bench.run(bench.request(name, apply, plan="p-2")).done and bench.rows(name) == rows


def _long(value: int) -> bytes:
    return value.to_bytes(8, "little", signed=True)


FAR = (_long(1_000), _long(1_000))


def test_equality_deletes_that_wrong_bounds_leave_out_stay(bench: Bench) -> None:
    """Iceberg shows the row, other readers do not; a conversion must not decide it."""
    name = _table(bench)
    path = add_equality_delete(bench, name, {"id": pa.array([4], pa.int64())}, bounds={"id": FAR})
    rows = bench.rows(name)
    assert rows.total() == 8
    action = ConvertDeletes(inputs=(path,))
    shown = _refused(bench, bench.request(name, action), RefusedInputsError).render()
    assert path in shown and '"id"' in shown
    ((refusal,),) = bench.ledger.refused.values()
    assert (refusal.path, refusal.reason) == (path, WRONG_BOUNDS)
    dangling = RemoveDanglingDeletes(inputs=(path,))
    (outcome,) = bench.run(bench.request(name, dangling, plan="p-2")).actions
    assert outcome.state is Validity.LOST
    assert delete_paths(bench, name, 2) == (path,) and bench.rows(name) == rows


def test_equality_deletes_that_right_bounds_leave_out_are_converted(bench: Bench) -> None:
    name = bench.create("id bigint", "'format-version'='2'")
    for first in (0, 100):
        bench.append(name, {"id": [first, first + 1]})
    key = {"id": pa.array([100], pa.int64())}
    path = add_equality_delete(bench, name, key, bounds={"id": (_long(100), _long(100))})
    rows = bench.rows(name)
    assert rows.total() == 3
    assert bench.run(bench.request(name, ConvertDeletes(inputs=(path,)))).done
    assert bench.rows(name) == rows and delete_paths(bench, name, 2) == ()


def test_a_data_file_whose_wrong_bounds_leave_deletes_out_is_refused(bench: Bench) -> None:
    name = _table(bench)
    table, core = bench.table(name), bench.spark._jvm.org.apache.iceberg
    path = str(bench.files(name)[0].file_path)
    tasks = iceberg.each(table.newScan().includeColumnStats().planFiles())
    whole = next(task.file() for task in tasks if str(task.file().location()) == path)
    far, none = bench.spark._jvm.java.util.HashMap(), whole.nullValueCounts()
    far.put(1, bench.spark._jvm.java.nio.ByteBuffer.wrap(FAR[0]))
    metrics = core.Metrics(whole.recordCount(), None, None, none, None, far, far)
    wrong = core.DataFiles.builder(table.spec()).copy(whole).withMetrics(metrics).build()
    table.newDelete().deleteFile(whole).commit()
    table.newFastAppend().appendFile(wrong).commit()
    keys = {"id": pa.array([2, 3, 4, 5], pa.int64())}
    deleted = add_equality_delete(bench, name, keys, bounds={"id": (_long(2), _long(5))})
    request = bench.request(name, ConvertDeletes(inputs=(deleted,)))
    shown = _refused(bench, request, RefusedInputsError).render()
    assert path in shown and deleted not in shown


def test_positions_of_other_files_than_the_bounds_name_stay(bench: Bench) -> None:
    """Iceberg applies them to one file, other readers to both."""
    name = _table(bench)
    first, second = (str(row.file_path) for row in bench.files(name))
    path = add_position_delete(
        bench, name, [(first, 0), (second, 0)], "", bounds=(first.encode(), first.encode())
    )
    rows = bench.rows(name)
    assert rows.total() == 7
    for number, action in enumerate(
        (CompactDeletes(inputs=(path,)), bench.action(name, ApplyDeletes, inputs=(first,)))
    ):
        request = bench.request(name, action, plan=f"p-{number}")
        error = _refused(bench, request, VerificationError)
        assert path in error.render()
    assert bench.rows(name) == rows
