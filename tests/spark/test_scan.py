"""Scan tasks: what their JSON says, and that work over many files takes a fixed number of calls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from py4j.clientserver import JavaClient
from py4j.java_gateway import GatewayClient
from py4j.protocol import MEMORY_COMMAND_NAME

from reconciler.engines.schedule import inputs
from reconciler.engines.task_file import NO_DELETES
from reconciler.errors import UnsupportedError
from reconciler.plan.actions.rewrite import BinPack, Cluster, Rewrite
from reconciler.plan.actions.state import Validity
from reconciler.spark.fallback import stage
from reconciler.spark.schedule.scan import scan_tasks
from tests.spark.tables import Bench

pytestmark = pytest.mark.spark


def _head(bench: Bench, name: str) -> int:
    return int(bench.table(name).currentSnapshot().snapshotId())


def _paths(bench: Bench, name: str) -> list[str]:
    return bench.paths(name)


def _files(bench: Bench, name: str, files: int) -> None:
    bench.sql(
        f"INSERT INTO {bench.full(name)} SELECT /*+ REPARTITION({files}) */ "
        f"id, concat('s', id % 7), id * 2 FROM range({files * 20})"
    )


@contextmanager
def _counted() -> Iterator[list[str]]:
    """Commands sent to the JVM within the block, but for those that let go of objects: when they
    are sent is up to Python's garbage collector."""
    sent: list[str] = []
    original = GatewayClient.send_command, JavaClient.send_command

    def counting(which: int):  # type: ignore[no-untyped-def]
        def send(self, command, *rest, **named):  # type: ignore[no-untyped-def]
            if not command.startswith(MEMORY_COMMAND_NAME):
                sent.append(command)
            return original[which](self, command, *rest, **named)

        return send

    GatewayClient.send_command, JavaClient.send_command = counting(0), counting(1)
    try:
        yield sent
    finally:
        GatewayClient.send_command, JavaClient.send_command = original


def test_a_file_is_described_as_its_manifest_entry(bench: Bench) -> None:
    name = bench.create("id bigint, s string, v bigint")
    _files(bench, name, 3)
    paths = _paths(bench, name)
    found = scan_tasks(bench.spark, bench.table(name), _head(bench, name), paths, [1, 2])
    assert list(found) == paths
    for file, row in zip(found.values(), sorted(bench.files(name)), strict=True):
        assert (file.path, file.size, file.rows) == (
            row.file_path, row.file_size_in_bytes, row.record_count,
        )  # fmt: skip
        assert file.format == "PARQUET"
        assert not file.encrypted
        assert file.deletes == NO_DELETES
        low, high = row.readable_metrics["id"].lower_bound, row.readable_metrics["id"].upper_bound
        assert inputs.decode_bound("long", file.lower[1]) == low
        assert inputs.decode_bound("long", file.upper[1]) == high
        assert set(file.lower) == {1, 2}
        assert file.nulls == {1: 0, 2: 0}


def test_a_partition_value_may_hold_what_other_programs_take_for_a_line_break(
    bench: Bench,
) -> None:
    name = bench.create("id bigint, s string, v bigint", partitioned="s")
    bench.sql(
        f"INSERT INTO {bench.full(name)} VALUES "
        "(1, 'a\u2028b', 1), (2, 'c\x85d', 2), (3, 'e\nf', 3), (4, 'g\x1eh', 4)"
    )
    paths = _paths(bench, name)
    found = scan_tasks(bench.spark, bench.table(name), _head(bench, name), paths, [1])
    assert list(found) == paths
    assert [file.rows for file in found.values()] == [1, 1, 1, 1]


def test_statistics_are_found_under_the_name_that_a_column_had_then(bench: Bench) -> None:
    name = bench.create("id bigint, s string, v bigint")
    _files(bench, name, 1)
    bench.sql(f"ALTER TABLE {bench.full(name)} RENAME COLUMN s TO renamed")
    bench.sql(f"ALTER TABLE {bench.full(name)} ADD COLUMN late bigint")
    found = scan_tasks(
        bench.spark, bench.table(name), _head(bench, name), _paths(bench, name), [2, 4]
    )
    assert [set(file.lower) for file in found.values()] == [{2}]


@pytest.mark.parametrize(("version", "dropped"), [(1, False), (1, True), (2, True)])
def test_files_are_described_whatever_became_of_their_spec(
    bench: Bench, iceberg_catalog: Any, version: int, dropped: bool
) -> None:
    """Iceberg prints neither files of a spec of void fields nor of a column that was dropped."""
    merge = "'write.delete.mode'='merge-on-read', 'write.distribution-mode'='none'"
    name = bench.create("id bigint, g int", f"'format-version'='{version}', {merge}", "g")
    bench.sql(f"INSERT INTO {bench.full(name)} SELECT id, 1 FROM range(50)")
    if version > 1:
        bench.sql(f"DELETE FROM {bench.full(name)} WHERE id % 10 = 3")
    table = iceberg_catalog.load_table(("jobs", name))
    with table.update_spec() as spec:
        spec.remove_field("g")
    if dropped:
        with table.update_schema(allow_incompatible_changes=True) as schema:
            schema.delete_column("g")
    bench.sql(f"REFRESH TABLE {bench.full(name)}")
    columns = "id" if dropped else "id, 2"
    for _ in range(2):
        bench.sql(f"INSERT INTO {bench.full(name)} SELECT {columns} FROM range(50)")
    files = {row.file_path: row for row in bench.files(name)}
    found = scan_tasks(bench.spark, bench.table(name), _head(bench, name), list(files), [1])
    assert list(found) == sorted(files)
    for path, file in found.items():
        row = files[path]
        assert (file.size, file.rows) == (row.file_size_in_bytes, row.record_count)
        low = row.readable_metrics["id"].lower_bound
        assert inputs.decode_bound("long", file.lower[1]) == low
        assert file.spec_id == row.spec_id
        old = row.spec_id == 0
        assert bool(file.deletes.positions) == (old and version > 1)
        assert file.format == "PARQUET" and not file.deletes.equality
    assert sum(file.deleted for file in found.values()) == (5 if version > 1 else 0)
    assert len({file.sequence for file in found.values()}) == (3 if version > 1 else 1)
    before = bench.rows(name)
    current = max(row.spec_id for row in files.values())
    inside = tuple(sorted(path for path, row in files.items() if row.spec_id == current))
    action = bench.action(name, Cluster, "id", inputs=inside, spec_id=current)
    if version == 1 and dropped:  # the void field in its spec has no column
        with pytest.raises(UnsupportedError):
            bench.run(bench.request(name, action))
        assert bench.rows(name) == before
        return
    assert bench.run(bench.request(name, action)).done
    assert bench.rows(name) == before
    assert len(bench.paths(name)) == len(files) - len(inside) + 1


def test_only_live_files_are_found(bench: Bench) -> None:
    name = bench.create("id bigint, s string, v bigint")
    _files(bench, name, 2)
    paths = _paths(bench, name)
    found = scan_tasks(bench.spark, bench.table(name), _head(bench, name), [paths[1], "gone"])
    assert list(found) == [paths[1]]


def test_deletes_are_reported_by_file(bench: Bench) -> None:
    merge_on_read = "'format-version'='2', 'write.delete.mode'='merge-on-read'"
    name = bench.create("id bigint, s string, v bigint", merge_on_read)
    _files(bench, name, 2)
    before = dict.fromkeys(_paths(bench, name))
    bench.sql(f"DELETE FROM {bench.full(name)} WHERE id = 3")
    found = scan_tasks(bench.spark, bench.table(name), _head(bench, name), before)
    touched = [file for file in found.values() if file.deletes.positions]
    assert len(touched) == 1
    assert not touched[0].deletes.equality


def test_tasks_are_staged_in_the_order_that_was_asked_for(bench: Bench) -> None:
    name = bench.create("id bigint, s string, v bigint")
    _files(bench, name, 3)
    paths = _paths(bench, name)
    tasks = scan_tasks(bench.spark, bench.table(name), _head(bench, name), paths)
    wanted = [paths[2], paths[0]]
    java = tasks.subset(wanted).java_tasks(wanted)
    assert [str(java.get(i).file().location()) for i in range(java.size())] == wanted
    with stage.staged(bench.spark, bench.table(name), "some-set", java):
        assert stage.read(bench.spark, "some-set").count() == sum(tasks[p].rows for p in wanted)


@pytest.mark.parametrize("kind", [Cluster, BinPack])
def test_calls_to_the_jvm_do_not_grow_with_the_files(bench: Bench, kind: type[Rewrite]) -> None:
    calls = []
    for files in (4, 4, 24):
        name = bench.create("id bigint, s string, v bigint")
        _files(bench, name, files)
        key = ("id",) if kind is Cluster else ()
        action = bench.action(name, kind, *key, target_bytes=1 << 30)
        request = bench.request(name, action)
        with _counted() as sent:
            result = bench.run(request)
        assert [state.state for state in result.actions] == [Validity.DONE]
        calls.append(len(sent))
    assert calls[2] < calls[1] * 1.1


def test_rows_by_duckdb_are_those_of_a_query(bench: Bench) -> None:
    """What most tests of this folder compare rows by: `Bench.rows`."""
    name = bench.create(
        "b boolean, i int, id bigint, f float, d double, s string, day date, at timestamp_ntz, "
        "price decimal(10,2)"
    )
    assert bench.rows(name) == bench.queried(name) == {}
    bench.sql(
        f"INSERT INTO {bench.full(name)} VALUES "
        "(true, 1, 7, float(0.1), double('NaN'), 'it''s', date '1969-12-31', "
        "timestamp_ntz '2026-01-02 03:04:05.000006', 1.50), "
        "(false, -1, 8, float('-0.0'), 1e300, '', date '2026-01-02', "
        "timestamp_ntz '1969-01-01 00:00:00', -0.01), "
        "(NULL, NULL, 9, NULL, NULL, NULL, NULL, NULL, NULL)"
    )
    assert bench._decoded(name) is not None
    assert bench.rows(name) == bench.queried(name) and bench.ids(name) == [7, 8, 9]
    bench.sql(f"ALTER TABLE {bench.full(name)} ADD COLUMN later string")
    assert bench._decoded(name) is None
    assert bench.rows(name) == bench.queried(name) and bench.ids(name) == [7, 8, 9]
