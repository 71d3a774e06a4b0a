"""No action is larger than the tightest budget can admit, and slices lead to the same layout."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reconciler.advisor.advice import Advice, Settings
from reconciler.plan import reasons
from reconciler.plan.ordering import Lexicographic
from reconciler.queries.shape import Workload
from reconciler.table.schema import SortColumn
from tests.advisor.worlds import (
    DATE,
    PART,
    ROW_BYTES,
    SETTINGS,
    advise,
    arrived,
    converge,
    range_workload,
    window_read,
    workload,
)
from tests.said import Said

FILE_BYTES = ROW_BYTES * 2_000
BUDGET = 6 * FILE_BYTES + 1
"""Bytes that may be rewritten at once, of tables of 1.4 MB and more."""
DECLARED = replace(SETTINGS, mode="Declared", ordering=Lexicographic((SortColumn(PART),)))


def parts_asked(seed: int = 1) -> Workload:
    return workload(range_workload(np.random.default_rng(seed), PART, 600, 900, 100_000))


def sizes(advice: Advice) -> list[int]:
    return [item.predicted.bytes_in or 0 for item in advice.actions]


@pytest.mark.parametrize("settings", [SETTINGS, DECLARED], ids=["WorkloadAware", "Declared"])
def test_a_table_larger_than_its_budget_is_rewritten_in_slices(settings: Settings) -> None:
    table, work = arrived(np.random.default_rng(1)), parts_asked()
    whole = advise(table, work, settings)
    assert max(sizes(whole)) > BUDGET
    limited = advise(table, work, replace(settings, most_bytes=BUDGET))
    assert len(limited.actions) > 1
    assert max(sizes(limited)) <= BUDGET
    inputs = [path for item in limited.actions for path in item.action.inputs]
    assert len(inputs) == len(set(inputs))
    assert sum(sizes(limited)) >= 0.9 * sum(sizes(whole))


@pytest.mark.parametrize("settings", [SETTINGS, DECLARED], ids=["WorkloadAware", "Declared"])
def test_slices_converge_near_the_layout_of_one_rewrite(settings: Settings) -> None:
    table, work = arrived(np.random.default_rng(1), rows=50_000), parts_asked()
    at_once = converge(table, work, settings, limit=8)
    sliced = converge(table, work, replace(settings, most_bytes=BUDGET), limit=8)
    assert not sliced.advice[-1].actions
    assert all(max(sizes(advice), default=0) <= BUDGET for advice in sliced.advice)
    now, best = (window_read(run.table, work, settings) for run in (sliced, at_once))
    assert now <= 0.5 * window_read(table, work, settings)
    assert now <= 1.1 * best
    rewritten = sum(sum(sizes(advice)) for advice in sliced.advice)
    assert rewritten <= 2.5 * ROW_BYTES * len(table)


@pytest.mark.parametrize(("files", "share", "target"), [(23, 0.3, 1), (60, 0.12, 1), (16, 0.3, 4)])
def test_runs_of_slices_are_merged_range_by_range_in_a_second_pass(
    files: int, share: float, target: int, said: Said
) -> None:
    """Files arrive in the order of another column, and each holds all values of the key. target:
    size of files, in files; with 4 a slice would become a single file."""
    table = arrived(np.random.default_rng(1), rows=2_000 * files)
    size, work = ROW_BYTES * len(table), parts_asked()
    free = replace(SETTINGS, target_bytes=target * FILE_BYTES)
    settings = replace(free, most_bytes=int(share * size))
    runs = int(np.ceil(1 / share))
    sliced, whole = (converge(table, work, one) for one in (settings, free))

    rewritten = [sum(sizes(advice)) / size for advice in sliced.advice]
    assert rewritten == [1.0, 1.0, 0.0]
    first, second, _ = sliced.advice
    assert len(first.actions) == len(second.actions) == runs
    assert max(map(max, map(sizes, sliced.advice[:2]))) <= share * size
    assert {item.predicted.files_out % runs for item in first.actions} == {0}
    now, best = (window_read(run.table, work) for run in (sliced, whole))
    assert now <= 1.1 * best
    for advice in (first, second):
        said(advice.actions[0].predicted.label)


def test_slices_are_about_equally_large() -> None:
    table, work = arrived(np.random.default_rng(1), rows=60 * 2_000), parts_asked()
    most = int(0.12 * ROW_BYTES * len(table))  # 7.2 files
    found = sizes(advise(table, work, replace(SETTINGS, most_bytes=most)))
    assert sorted(size // FILE_BYTES for size in found) == [6] * 3 + [7] * 6


def test_slices_fit_a_budget_of_cpu_time_too() -> None:
    table, work = arrived(np.random.default_rng(1)), parts_asked()
    whole = advise(table, work)
    most = 0.3  # seconds, of which 0.05 are the same for every action
    limited = advise(table, work, replace(SETTINGS, most_cpu_seconds=most))
    largest = max(item.predicted.cpu_seconds for item in whole.actions)
    assert largest > most
    slices = [item.predicted.cpu_seconds for item in limited.actions]
    assert len(slices) > 1 and 0.5 * most < max(slices) <= most


def test_bin_packing_is_sliced() -> None:
    small = arrived(np.random.default_rng(2), rows=20_000, rows_per_file=200)
    most = ROW_BYTES * 5_000
    advice = advise(small, workload(), replace(SETTINGS, most_bytes=most))
    assert len(advice.actions) > 1
    assert max(sizes(advice)) <= most


def test_what_no_budget_can_admit_is_refused_with_its_reason() -> None:
    table, work = arrived(np.random.default_rng(1)), parts_asked()
    for settings in (SETTINGS, DECLARED):
        advice = advise(table, work, replace(settings, most_bytes=FILE_BYTES - 1))
        assert not advice.actions
        assert reasons.LARGER_THAN_BUDGET in {item.reason for item in advice.rejected}


def test_slices_follow_the_order_of_arrival_that_a_column_shows() -> None:
    table, work = arrived(np.random.default_rng(1)), parts_asked()
    advice = advise(table, work, replace(SETTINGS, most_bytes=BUDGET))
    files = {file.path: file.rows for file in table.files}
    spans = []
    for item in advice.actions:
        days = np.concatenate([table.values[DATE][files[path]] for path in item.action.inputs])
        spans.append((int(days.min()), int(days.max())))
    spans.sort()
    width = spans[-1][1] - spans[0][0]
    assert sum(high - low for low, high in spans) <= 4 * width
