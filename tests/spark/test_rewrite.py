"""A rewrite keeps every row, clusters by the key, and leaves nothing else behind."""

from __future__ import annotations

import itertools

import pytest

from reconciler.plan.actions.rewrite import BinPack, Cluster
from reconciler.plan.actions.state import Validity
from reconciler.plan.ordering import Hilbert
from tests.spark.tables import Bench

pytestmark = pytest.mark.spark


def _shuffled(bench: Bench, name: str, files: int = 4, rows: int = 500) -> None:
    """Files that all cover the whole range of id and v."""
    columns = f"n * {files} + file, concat('v', hash(n, file)), (n * 7919) % 1000"
    bench.fill(name, files, rows, columns)


@pytest.mark.parametrize(
    ("parts", "group_bytes"),
    [(1, 0), (2, 0), (6, 1)],
    ids=["one task", "slices that reread", "slices by a shuffle"],
)
def test_cluster_sorts_files_apart(bench: Bench, parts: int, group_bytes: int) -> None:
    name = bench.create("id bigint, s string, v bigint")
    _shuffled(bench, name)
    before = bench.rows(name)
    size = bench.size(name)
    action = bench.action(name, Cluster, "id", target_bytes=size // parts)
    result = bench.run(bench.request(name, action, group_bytes=group_bytes))
    assert bench.rows(name) == before
    assert [state.state for state in result.actions] == [Validity.DONE]
    assert result.commits == 1
    ranges = sorted(
        (file.readable_metrics.id.lower_bound, file.readable_metrics.id.upper_bound)
        for file in bench.files(name)
    )
    assert len(ranges) == parts
    assert all(left[1] < right[0] for left, right in itertools.pairwise(ranges))
    assert bench.leftovers(name) == []
    assert bench.ledger.open_intents(bench.request(name).table_uuid) == ()
    (outcome,) = bench.ledger.outcomes()
    assert (outcome.state, outcome.rows, outcome.files_in) == ("committed", 2000, 4)
    assert outcome.cpu_seconds > outcome.verify_cpu_seconds > 0


@pytest.mark.parametrize("keyed", [True, False], ids=["sorted", "packed"])
def test_an_odd_number_of_files_is_shared_by_two_tasks_in_whole_files(
    bench: Bench, keyed: bool
) -> None:
    """Two and a half files a task would end each in a file too many, of half a file."""
    name = bench.create("id bigint, s string")
    bench.fill(name, 15, 5_000, "n * 15 + file, sha2(concat(n, '-', file), 256)")
    before = bench.rows(name)
    size = bench.size(name)
    kind, key = (Cluster, ("id",)) if keyed else (BinPack, ())
    target = size // 3 if keyed else size // 3 + 1
    action = bench.action(name, kind, *key, target_bytes=target)
    assert bench.run(bench.request(name, action)).done
    assert bench.rows(name) == before
    sizes = [file.file_size_in_bytes for file in bench.files(name)]
    assert len(sizes) == 3
    assert min(sizes) > 0.75 * target


def test_deleted_rows_do_not_count_for_the_number_of_files(bench: Bench) -> None:
    """Nine tenths of the rows are deleted: one file of the target is left, not eight small ones."""
    name = bench.create(
        "id bigint, s string",
        properties="'format-version' = '2', 'write.delete.mode' = 'merge-on-read',"
        " 'write.delete.granularity' = 'file'",
    )
    bench.fill(name, 8, 2_000, "n * 8 + file, sha2(concat(n, '-', file), 256)")
    size = bench.size(name)
    bench.sql(f"DELETE FROM {bench.full(name)} WHERE id % 80 >= 8")
    before = bench.rows(name)
    action = bench.action(name, Cluster, "id", target_bytes=size // 8)
    assert bench.run(bench.request(name, action)).done
    assert bench.rows(name) == before
    assert sum(before.values()) == 1_600
    assert len(bench.paths(name)) == 1


def test_summary_names_plan_action_and_attempt(bench: Bench) -> None:
    name = bench.create("id bigint, s string, v bigint")
    _shuffled(bench, name, files=2, rows=10)
    result = bench.run(bench.request(name, bench.action(name, Cluster, "id")))
    summary = dict(bench.table(name).currentSnapshot().summary())
    assert summary["layout.plan-id"] == "p-1"
    assert summary["layout.action-ids"] == "a01"
    assert summary["layout.attempt-id"] == result.attempts[0]
    assert all(f"/layout-{result.attempts[0]}/" in file.file_path for file in bench.files(name))


def test_hilbert_clusters_both_columns(bench: Bench) -> None:
    name = bench.create("id bigint, s string, v bigint")
    _shuffled(bench, name)
    before = bench.rows(name)
    size = bench.size(name)
    action = bench.action(name, Cluster, "id", "v", curve=Hilbert, target_bytes=size // 8)
    bench.run(bench.request(name, action, group_bytes=1))
    assert bench.rows(name) == before
    files = bench.files(name)
    assert len(files) == 8
    for column, width in (("id", 2000), ("v", 1000)):
        spans = [
            file.readable_metrics[column].upper_bound - file.readable_metrics[column].lower_bound
            for file in files
        ]
        assert sum(spans) / len(spans) < 0.75 * width


def test_bin_pack_merges_small_files(bench: Bench) -> None:
    name = bench.create("id bigint, s string, v bigint")
    _shuffled(bench, name, files=5, rows=20)
    before = bench.rows(name)
    result = bench.run(bench.request(name, bench.action(name, BinPack)))
    assert bench.rows(name) == before
    assert len(bench.paths(name)) == 1
    assert result.done
