"""Candidates not done: which partition each is about, and one line for those alike."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from reconciler.plan.rejected import merged, partitions_of, parts
from reconciler.plan.sentence import Sentence, sentence
from reconciler.table.schema import Field, PartitionField, PartitionSpec, Schema
from tests.advisor.worlds import arrived

DAYS = [f"ts_day=2026-10-{day:02d}" for day in range(1, 17)]
TITLE = "recluster by device"


def entry(partition: str, percent: float, what: Sentence | str = TITLE) -> dict[str, Any]:
    title = sentence(what) if isinstance(what, str) else what
    why = sentence("saves ", f"{percent:.2f}", " % of a year's reading")
    return {
        "what": str(title), "partition": partition, "reason": "BelowFloor", "why": str(why),
        **parts(title, why),
    }  # fmt: skip


def without_parts(item: dict[str, Any], **changed: str) -> dict[str, Any]:
    return {key: value for key, value in (item | changed).items() if key != "parts"}


def why(range_of_shares: str) -> str:
    return f"saves {range_of_shares} % of a year's reading"


def lines(rejected: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    return [(line.what, line.why) for line in merged(rejected)]


def test_candidates_alike_in_many_partitions_are_one_line_with_their_range():
    items = [entry(day, 0.03 + 0.01 * (n % 3)) for n, day in enumerate(DAYS)]
    assert lines(items) == [
        (f"{TITLE} in 16 partitions",
         why("0.03 - 0.05"))
    ]  # fmt: skip


def test_a_candidate_alone_names_its_partition():
    assert lines([entry(DAYS[0], 0.03)])[0][0] == f"{TITLE}, {DAYS[0]}"
    twice = [entry(DAYS[0], 0.03), entry(DAYS[0], 0.04)]
    assert [what for what, _ in lines(twice)] == [f"{TITLE}, {DAYS[0]}"]


def test_other_titles_reasons_and_sentences_stay_apart_in_the_order_of_the_first():
    other = {**entry(DAYS[3], 0.03), "reason": "BelowCost"}
    unlike = without_parts(entry(DAYS[4], 0.03), why="another key saves more")
    items = [
        entry(DAYS[0], 0.03), entry(DAYS[1], 0.03, "recluster by c1"),
        entry(DAYS[2], 0.03, "recluster by c2"), other, unlike, entry(DAYS[5], 0.04),
    ]  # fmt: skip
    assert [what for what, _ in lines(items)] == [
        f"{TITLE} in 2 partitions", f"recluster by c1, {DAYS[1]}",
        f"recluster by c2, {DAYS[2]}", f"{TITLE}, {DAYS[3]}",
        f"{TITLE}, {DAYS[4]}",
    ]  # fmt: skip


def test_counts_of_files_become_a_range_and_numbers_compare_as_numbers(said):
    items = [
        entry(DAYS[n], 9 + n, sentence("bin-pack ", str(files), " files"))
        for n, files in enumerate([9, 1_000])
    ]
    ((what, reason),) = lines(items)
    assert re.findall(r"\d+", what) == ["9", "1000", "2"]
    assert reason == why("9.00 - 10.00")
    said(what)


def test_a_number_in_the_name_of_a_column_or_beside_the_numbers_is_text():
    items = [entry(DAYS[n], 0.03, f"recluster by c {n}") for n in range(2)]
    assert [what for what, _ in lines(items)] == [
        f"recluster by c 0, {DAYS[0]}", f"recluster by c 1, {DAYS[1]}",
    ]  # fmt: skip


def test_entries_of_plans_saved_without_parts_are_one_line_where_their_sentences_are_equal():
    items = [without_parts(entry(day, 0.03 + 0.01 * (n % 2))) for n, day in enumerate(DAYS)]
    assert lines(items) == [
        (f"{TITLE} in 8 partitions", why("0.03")),
        (f"{TITLE} in 8 partitions", why("0.04")),
    ]  # fmt: skip


def test_parts_that_somebody_made_up_are_printed():
    made_up = entry(DAYS[0], 0.03) | {"parts": {"what": None, "why": ["x", "much", "y", "3"]}}
    other = made_up | {"partition": DAYS[1], "parts": {"why": ["x", "2", "y", "4"]}}
    assert lines([made_up, other]) == [(f"{TITLE} in 2 partitions", "x2 - muchy3 - 4")]


def test_entries_without_a_partition_each_keep_their_line():
    """Of an unpartitioned table, and of plans saved before entries named a partition."""
    bare = {key: value for key, value in entry("", 0.03).items() if key != "partition"}
    assert [what for what, _ in lines([entry("", 0.03), bare])] == [
        TITLE, TITLE,
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
