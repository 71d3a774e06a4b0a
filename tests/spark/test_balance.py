"""Files near the target size, however the rows compress in their new order."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.errors import VerificationError
from reconciler.plan.actions.bin_pack import BinPack
from reconciler.plan.actions.cluster import Cluster
from reconciler.plan.ordering import Hilbert, Ordering
from reconciler.spark import balance, pilot, write
from reconciler.spark import group as write_group
from reconciler.spark.group import Compression, Group, InputFile
from tests.spark.tables import Bench

ROWS = 8_000
"""Of a file. A file that is written rolls after a multiple of 1,000 rows."""


@pytest.mark.parametrize(
    ("sizes", "runs"),
    [
        ([97, 97, 22, 97, 97, 95, 15], [range(1, 3), range(5, 7)]),
        ([97, 97, 22, 60, 97], [range(2, 4)]),
        ([22, 97, 60, 97, 22], [range(2), range(3, 5)]),
        ([10, 10, 10, 10, 100], [range(5)]),
        ([100, 50, 100], []),
        ([30, 30], [range(2)]),
        ([10], []),
        ([], []),
    ],
)
def test_a_short_file_joins_its_smaller_neighbour(sizes: list[int], runs: list[range]) -> None:
    assert balance.short_runs(sizes, 100) == runs


@given(sizes=st.lists(st.integers(0, 250), max_size=30))
def test_no_short_file_is_left_and_no_other_is_touched_without_need(sizes: list[int]) -> None:
    runs = balance.short_runs(sizes, 100)
    assert all(left.stop <= right.start for left, right in itertools.pairwise(runs))
    joined = {i for run in runs for i in run}
    assert all(size >= 50 or len(sizes) == 1 for i, size in enumerate(sizes) if i not in joined)
    for run in runs:
        held = sum(sizes[i] for i in run)
        assert min(sizes[i] for i in run) < 50
        assert held >= 50 or len(run) == len(sizes)


@given(rows=st.lists(st.integers(0, 50), min_size=1, max_size=8), parts=st.integers(1, 6))
def test_parts_are_equal_and_hold_every_row_once_in_order(rows: list[int], parts: int) -> None:
    found = balance.even_parts(rows, parts)
    dealt = [[(p.file, row) for p in part for row in range(p.first, p.end)] for part in found]
    every = [(number, row) for number, own in enumerate(rows) for row in range(own)]
    assert list(itertools.chain(*dealt)) == every
    assert len(dealt) == min(parts, len(every))
    lengths = {len(part) for part in dealt}
    assert 0 not in lengths
    assert not lengths or max(lengths) - min(lengths) <= 1


def _file(name: str, partition: str = "p") -> Any:
    held = SimpleNamespace(toString=lambda own=partition: own)
    return SimpleNamespace(location=lambda: f"s3://b/{name}", partition=lambda: held)


def test_files_of_a_partition_are_in_order_of_task_and_number_or_left_alone() -> None:
    names = ["00001-7-ab-0-1-00001.parquet", "00000-9-ab-0-1-00010.parquet",
             "00000-9-ab-0-1-00002.parquet"]  # fmt: skip
    files = [_file(name) for name in names]
    assert balance.in_written_order(files) == [[files[2], files[1], files[0]]]
    assert balance.in_written_order([*files, _file("part-1.parquet")]) == []
    other = _file(names[1], "q")
    assert balance.in_written_order([files[0], other, files[2]]) == [[files[2], files[0]], [other]]
    assert balance.in_written_order([]) == []


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> list[list[range]]:
    """What was found short, group by group."""
    seen: list[list[range]] = []
    found = balance.short_runs

    def note(sizes: list[int], target_bytes: int) -> list[range]:
        seen.append(found(sizes, target_bytes))
        return seen[-1]

    monkeypatch.setattr(balance, "short_runs", note)
    return seen


@pytest.fixture
def balanced(noted: list[list[range]], monkeypatch: pytest.MonkeyPatch) -> list[list[range]]:
    """What was found short, group by group, where a task writes several files, as it does of many
    rows."""
    monkeypatch.setattr(write_group, "MOST_CUTS", 0)
    return noted


def _readings(bench: Bench, properties: str = "", tables: int = 1, rows: int = ROWS) -> str:
    """Rows in order of arrival: a text that sorted by `sensor` takes next to nothing, and a value
    that no order compresses. The sensors of several tables in one are apart."""
    name = bench.create("sensor bigint, place string, value binary", properties)
    _insert(
        bench, name, 4 * tables,
        f"(id div {4 * rows}) * 100000 + pmod(hash(id), {rows}), "
        f"md5(string(pmod(hash(id), {rows}))), unhex(sha2(string(id), 512))", rows,
    )  # fmt: skip
    return name


def _insert(bench: Bench, name: str, files: int, columns: str, rows: int) -> None:
    """One commit of files with as many rows each, by columns of a number `id`."""
    bench.sql(
        f"INSERT INTO {bench.full(name)} SELECT {columns} FROM range(0, {rows * files}, 1, {files})"
    )


def _sizes(bench: Bench, name: str) -> list[int]:
    return [int(file.file_size_in_bytes) for file in bench.files(name)]


def _in_order(bench: Bench, name: str) -> bool:
    """Whether the files, each from its first row to its last, are one ascending sequence."""
    read = [
        pq.read_table(file.file_path.removeprefix("file:"))["sensor"].to_pylist()
        for file in bench.files(name)
    ]
    rows = list(itertools.chain(*sorted(read, key=lambda of_a_file: (of_a_file[0], of_a_file[-1]))))
    return rows == sorted(rows)


@pytest.mark.spark
@pytest.mark.parametrize(("parts", "verify", "rows"), [(5, "Full", ROWS), (9, "Counts", 20_000)])
def test_files_meet_the_target_though_sorted_rows_take_less(
    bench: Bench, balanced: list[list[range]], parts: int, verify: str, rows: int
) -> None:
    name = _readings(bench, rows=rows)
    before = bench.rows(name)
    target = sum(_sizes(bench, name)) // parts
    action = bench.action(name, Cluster, "sensor", target_bytes=target)
    assert bench.run(bench.request(name, action, verify=verify)).done
    sizes = _sizes(bench, name)
    assert sum(sizes) < 0.9 * parts * target
    assert len(balanced) == 1
    assert balanced[0]
    assert 0.5 * target <= min(sizes) <= max(sizes) < 1.6 * target
    assert _in_order(bench, name)
    assert bench.rows(name) == before
    assert bench.leftovers(name) == []


@pytest.mark.spark
def test_sorted_files_of_few_rows_are_equal_when_they_are_first_written(
    bench: Bench, noted: list[list[range]]
) -> None:
    name = _readings(bench)
    before = bench.rows(name)
    action = bench.action(name, Cluster, "sensor", target_bytes=sum(_sizes(bench, name)) // 5)
    assert bench.run(bench.request(name, action)).done
    written = [int(file.record_count) for file in bench.files(name)]
    assert len(written) == 5
    assert max(written) == pytest.approx(min(written), rel=0.1)
    assert noted == [[]]
    assert _in_order(bench, name)
    assert bench.rows(name) == before


@pytest.mark.spark
def test_row_lineage_is_carried_through_a_second_writing(
    bench: Bench, balanced: list[list[range]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(balance, "output_files", lambda *sizes: 3)  # a part ends inside a file
    name = _readings(bench, "'format-version' = '3'")
    bench.sql(f"UPDATE {bench.full(name)} SET place = 'moved' WHERE sensor < 100")
    lineage = f"SELECT _row_id, _last_updated_sequence_number, * FROM {bench.full(name)}"
    before = Counter(map(str, bench.sql(lineage)))
    target = sum(_sizes(bench, name)) // 5
    action = bench.action(name, Cluster, "sensor", target_bytes=target)
    assert bench.run(bench.request(name, action)).done
    assert balanced[0]
    assert Counter(map(str, bench.sql(lineage))) == before


@pytest.mark.spark
@pytest.mark.parametrize("curve", [None, Hilbert])
def test_a_run_that_is_too_large_for_one_file_becomes_equal_parts(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, curve: type[Ordering] | None
) -> None:
    """Files roll at 1.3 times the target, so that the last ones have 0.4 of it."""
    name = bench.create("id bigint, v bigint, s binary")
    _insert(bench, name, 4, "(id % 30000) * 4 + id div 30000, hash(id % 30000), "
                            "unhex(sha2(string(id), 512))", rows=30_000)  # fmt: skip
    target = sum(_sizes(bench, name)) // 3
    monkeypatch.setattr(write, "roll_bytes", lambda group, *shape: int(1.3 * target))
    monkeypatch.setattr(Group, "tasks", 1)
    keyed = {"curve": curve} if curve else {}
    columns = ("id", "v") if curve else ()
    kind = Cluster if curve else BinPack
    before = bench.rows(name)
    action = bench.action(name, kind, *columns, target_bytes=target, **keyed)
    assert bench.run(bench.request(name, action)).done
    sizes = sorted(_sizes(bench, name))
    assert len(sizes) == 3
    assert sizes[2] > 1.25 * target > sizes[1]
    assert sizes[1] == pytest.approx(sizes[0], rel=0.02)
    assert bench.rows(name) == before
    assert bench.leftovers(name) == []


@pytest.mark.spark
def test_what_is_expected_of_later_groups_follows_the_first(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, balanced: list[list[range]]
) -> None:
    name = _readings(bench, tables=4)
    total, target = sum(_sizes(bench, name)), sum(_sizes(bench, name)) // 20
    shares: list[float | None] = []
    rewrite_group = write.rewrite_group

    def noted(attempt: Any, number: int, group: Group, tasks: Any) -> Any:
        shares.append(group.expected and group.expected.share)
        return rewrite_group(attempt, number, group, tasks)

    monkeypatch.setattr(write, "rewrite_group", noted)
    action = bench.action(name, Cluster, "sensor", target_bytes=target)
    assert bench.run(bench.request(name, action)).done
    sizes = _sizes(bench, name)
    assert len(shares) == 4
    assert shares[0] is None
    assert shares[3] == pytest.approx(sum(sizes) / total, rel=0.1)
    assert balanced[0]
    assert 0.5 * target <= min(sizes) <= max(sizes) < 1.6 * target


@pytest.mark.spark
@pytest.mark.parametrize("verify", ["Full", "Counts"])
def test_a_row_lost_or_doubled_between_the_parts_is_found(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, balanced: list[list[range]], verify: str
) -> None:
    name = _readings(bench)
    before, even_parts = bench.rows(name), balance.even_parts

    def one_short(rows: list[int], parts: int) -> list[list[balance.Piece]]:
        first, *more = even_parts(rows, parts)[0]
        return [[replace(first, first=first.first + 1), *more], *even_parts(rows, parts)[1:]]

    monkeypatch.setattr(balance, "even_parts", one_short)
    target = sum(_sizes(bench, name)) // 5
    action = bench.action(name, Cluster, "sensor", target_bytes=target)
    with pytest.raises(VerificationError, match=r"\b32,000 rows\b.*\b31,99"):
        bench.run(bench.request(name, action, verify=verify))
    assert balanced[0]
    assert bench.rows(name) == before
    assert bench.leftovers(name) == []


def _loose(bench: Bench, properties: str = "") -> str:
    """16 files that are not compressed; what writes next compresses."""
    name = bench.create(
        "sensor bigint, place string, kind string, value binary",
        "'write.parquet.compression-codec' = 'uncompressed', 'write.parquet.dict-size-bytes' = '1'"
        + properties,
    )
    _insert(
        bench, name, 16,
        "hash(id), repeat(md5(string(hash(id))), 3), md5(string(pmod(hash(id % 5000), 300))), "
        "unhex(sha2(string(id), 512))", rows=5_000,
    )  # fmt: skip
    for key, value in (("compression-codec", "zstd"), ("dict-size-bytes", "2097152")):
        bench.sql(
            f"ALTER TABLE {bench.full(name)} SET TBLPROPERTIES ('write.parquet.{key}' = '{value}')"
        )
    return name


@pytest.mark.spark
def test_a_pilot_predicts_how_many_files_there_will_be(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, balanced: list[list[range]]
) -> None:
    """From a fortieth of the rows, though a dictionary takes much of what it writes."""
    monkeypatch.setattr(pilot, "ROWS", 2_000)
    name = _loose(bench)
    before, size = bench.rows(name), sum(_sizes(bench, name))
    target = size // 8
    expectations: list[Compression | None] = []
    expected = pilot.expected

    def noted(*asked: Any) -> Compression | None:
        expectations.append(expected(*asked))
        return expectations[-1]

    monkeypatch.setattr(pilot, "expected", noted)
    action = bench.action(name, Cluster, "sensor", target_bytes=target)
    assert bench.run(bench.request(name, action)).done
    sizes = _sizes(bench, name)
    (compression,) = expectations
    assert compression is not None
    assert compression.share == pytest.approx(sum(sizes) / size, rel=0.03)
    assert compression.share < 0.7
    # Of 96 letters half is left, of 32 letters and their length the byte of an index.
    assert compression.page_bytes == pytest.approx(20_000 * (48 + 35), rel=0.05)
    assert len(sizes) == round(sum(sizes) / target)
    assert 0.5 * target <= min(sizes) <= max(sizes) < 1.5 * target
    assert balanced == [[]]
    assert bench.rows(name) == before
    assert bench.leftovers(name) == []


@pytest.mark.spark
@pytest.mark.parametrize("broken", ["sizes_of", "expected"])
def test_a_pilot_that_fails_leaves_nothing_behind(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    monkeypatch.setattr(pilot, "ROWS", 2_000)

    def fails(*asked: Any) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(pilot, broken, fails)
    name = _loose(bench)
    before, size = bench.rows(name), sum(_sizes(bench, name))
    action = bench.action(name, Cluster, "sensor", target_bytes=size // 8)
    with pytest.raises(RuntimeError, match="planted"):
        bench.run(bench.request(name, action))
    assert bench.rows(name) == before
    assert bench.leftovers(name) == []


@pytest.mark.spark
def test_a_footer_that_cannot_be_read_is_done_without(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pilot, "ROWS", 2_000)
    monkeypatch.setattr(pilot, "footer_of", lambda *asked: None)
    name = _loose(bench)
    before, size = bench.rows(name), sum(_sizes(bench, name))
    action = bench.action(name, Cluster, "sensor", target_bytes=size // 8)
    assert bench.run(bench.request(name, action)).done
    assert bench.rows(name) == before
    assert bench.leftovers(name) == []


@pytest.mark.spark
def test_odd_names_partitions_and_paths_are_balanced_alike(
    bench: Bench, balanced: list[list[range]]
) -> None:
    name = bench.create(
        "`sensor.id` bigint, `pla``ce` string, value binary, `of day` bigint",
        "'write.object-storage.enabled' = 'true'", "`of day`",
    )  # fmt: skip
    rows = 20_000
    for number in range(4):  # a partition of one insert is one file
        bench.sql(
            f"INSERT INTO {bench.full(name)} SELECT pmod(hash(id), {rows}), "
            f"md5(string(pmod(hash(id), {rows}))), unhex(sha2(string(id), 512)), 7 "
            f"FROM range({number * rows}, {(number + 1) * rows})"
        )
    before, target = bench.rows(name), sum(_sizes(bench, name)) // 5
    action = bench.action(name, Cluster, "sensor.id", target_bytes=target,
                          partition=(7,))  # fmt: skip
    assert bench.run(bench.request(name, action)).done
    sizes = _sizes(bench, name)
    assert balanced[0]
    assert 0.5 * target <= min(sizes) <= max(sizes) < 1.6 * target
    assert bench.rows(name) == before
    assert bench.leftovers(name) == []


def _packed(rows: list[int], width: int, target: int) -> Group:
    inputs = tuple(InputFile(str(i), n * width, n, n * 40) for i, n in enumerate(rows))
    return Group("a01", BinPack(), inputs, target, 1, 2)


@pytest.mark.parametrize(
    ("rows", "width", "target", "files"),
    [
        ([100_000] * 30, 10, 1_000_000, 3),
        ([100_000] * 20, 10, 1_000_000, 2),
        ([1_000] * 3000, 10, 1_000_000, 50),
        ([100_000] * 8, 10, 1_000_000, 0),
        ([100_000] * 30, 10, 1_000_000_000, 0),
        ([10_000] * 20, 10, 100_000, 0),
        ([10_000] * 30, 10_000, 100_000_000, 3),
        ([0] * 30 + [100_000] * 30, 10, 1_000_000, 3),
        ([10] * 30_000, 10, 100_000, 0),
        ([0] * 3, 10, 100, 0),
    ],
    ids=["large", "a tenth is read", "small files", "few files", "one file whatever they take",
         "few rows", "few rows, but wide ones", "some without rows", "tiny files", "no rows"],
)  # fmt: skip
def test_a_pilot_is_made_where_it_pays(
    rows: list[int], width: int, target: int, files: int
) -> None:
    assert len(pilot.portions(_packed(rows, width, target))) == files


@given(rows=st.lists(st.integers(0, 200_000), min_size=1, max_size=200))
def test_a_pilot_reads_little_of_few_files_all_over_the_group(rows: list[int]) -> None:
    group = _packed(rows, 10, 1)
    chosen = pilot.portions(group)
    paths = [int(file.path) for file, _ in chosen]
    assert paths == sorted(set(paths))
    assert len(paths) <= pilot.MOST_FILES
    assert all(0 < n <= file.rows for file, n in chosen)
    assert sum(file.bytes for file, _ in chosen) <= 0.1 * group.bytes
    taken = sum(n for _, n in chosen)
    assert not chosen or pilot.ROWS // 2 <= taken <= pilot.ROWS + len(chosen)
    assert pilot.expected(group, chosen, []) is None
