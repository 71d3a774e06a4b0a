"""Candidates not done: which partition each is about, and one line for those alike."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from reconciler.plan.rejected import partitions_of, told_together
from reconciler.table.schema import Field, PartitionField, PartitionSpec, Schema
from tests.advisor.worlds import arrived

DAYS = [f"ts_day=2026-10-{day:02d}" for day in range(1, 17)]


def entry(partition: str, percent: float, what: str = "recluster by device") -> dict[str, object]:
    why = f"would save {percent:.2f} % of a year's reading"
    return {"what": what, "partition": partition, "reason": "BelowFloor", "why": why}


def test_candidates_alike_in_many_partitions_are_one_line_with_their_range():
    items = [entry(day, 0.03 + 0.01 * (n % 3)) for n, day in enumerate(DAYS)]
    assert told_together(items) == [
        ("recluster by device in 16 partitions",
         "would save 0.03 - 0.05 % of a year's reading")
    ]  # fmt: skip


def test_a_candidate_alone_names_its_partition():
    assert told_together([entry(DAYS[0], 0.03)])[0][0] == f"recluster by device, {DAYS[0]}"
    twice = [entry(DAYS[0], 0.03), entry(DAYS[0], 0.04)]
    assert [what for what, _ in told_together(twice)] == [f"recluster by device, {DAYS[0]}"]


def test_other_titles_reasons_and_sentences_stay_apart_in_the_order_of_the_first():
    other = {**entry(DAYS[3], 0.03), "reason": "BelowCost"}
    sentence = {**entry(DAYS[4], 0.03), "why": "another key saves more"}
    items = [
        entry(DAYS[0], 0.03), entry(DAYS[1], 0.03, "recluster by c1"),
        entry(DAYS[2], 0.03, "recluster by c2"), other, sentence, entry(DAYS[5], 0.04),
    ]  # fmt: skip
    assert [what for what, _ in told_together(items)] == [
        "recluster by device in 2 partitions", f"recluster by c1, {DAYS[1]}",
        f"recluster by c2, {DAYS[2]}", f"recluster by device, {DAYS[3]}",
        f"recluster by device, {DAYS[4]}",
    ]  # fmt: skip


def test_counts_of_files_become_a_range_and_numbers_compare_as_numbers():
    items = [entry(DAYS[n], 9 + n, f"bin-pack {files} files") for n, files in enumerate([9, 1_000])]
    assert told_together(items) == [
        ("bin-pack 9 - 1000 files in 2 partitions", "would save 9.00 - 10.00 % of a year's reading")
    ]


def test_entries_without_a_partition_each_keep_their_line():
    """Of an unpartitioned table, and of plans saved before entries named a partition."""
    bare = {key: value for key, value in entry("", 0.03).items() if key != "partition"}
    assert [what for what, _ in told_together([entry("", 0.03), bare])] == [
        "recluster by device", "recluster by device",
    ]  # fmt: skip


def test_a_candidate_s_partition_is_the_one_that_holds_all_its_inputs():
    files = arrived(np.random.default_rng(0), rows=300, rows_per_file=100).file_table()
    schema = Schema(1, (Field(2, "ts", "date"),))
    spec = PartitionSpec(0, (PartitionField(2, 1000, "day", "ts_day"),))
    files = replace(
        files, schema=schema, specs={0: spec}, partitions=((0, (20_727,)), (0, (20_728,))),
        partition=np.array([0, 0, 1], dtype=np.int32),
    )  # fmt: skip
    one, two, three = (str(path) for path in files.path)
    assert partitions_of(files, [(one, two), (three,), (two, three), ()]) == [
        "ts_day=2026-10-01", "ts_day=2026-10-02", "", "",
    ]  # fmt: skip
