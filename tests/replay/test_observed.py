"""A table in a replay against the same table with all its rows: what it costs, and that no row and
no file of others changes. The rows of the second are exact, so that they share no error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as bounded
from hypothesis import strategies as st

from bench.replay.table import SimulatedTable, arriving, empty_table
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.rewrite import BinPack, Cluster
from reconciler.plan.ordering import ARRIVAL, Hilbert, Lexicographic, Ordering
from reconciler.queries.fragments import workload_of_fragments
from reconciler.queries.rewrite_cost import Rho
from reconciler.replay.observed import ObservedTable
from reconciler.replay.policies.ours import ours
from reconciler.replay.run import Step, reading, replay
from reconciler.table.joined import joined_files
from reconciler.table.schema import SortColumn
from tests.advisor.worlds import (
    DATE,
    DAY,
    PART,
    ROW_BYTES,
    SCHEMA,
    SETTINGS,
    VALUE,
    arrived,
    arriving_rows,
    range_workload,
    workload,
)
from tests.examples import examples

BY_PART = Lexicographic((SortColumn(PART),))
CURVE = Hilbert((SortColumn(PART), SortColumn(DATE)))
FILES, ROWS = 30, 1_000
SMALL = replace(SETTINGS, target_bytes=ROW_BYTES * ROWS, row_group_bytes=ROW_BYTES * ROWS)


def observed(table: SimulatedTable, rows_per_file: int = 200) -> ObservedTable:
    files = table.file_table()
    return ObservedTable(
        files, table.row_groups(), table.sample(np.arange(len(files)), rows_per_file)
    )


def rewrite(paths: Sequence[str], ordering: Ordering) -> Action:
    kind = Cluster if ordering.key else BinPack
    return kind(
        ordering=ordering, inputs=tuple(sorted(map(str, paths))), target_bytes=SMALL.target_bytes
    )


@pytest.mark.parametrize("ordering", [BY_PART, CURVE, ARRIVAL], ids=["column", "curve", "merge"])
@bounded(max_examples=examples(8), deadline=None)
@given(seed=st.integers(0, 10_000))
def test_what_is_read_after_rewrites_is_what_exact_rows_show(ordering: Ordering, seed: int) -> None:
    random = np.random.default_rng(seed)
    exact = arrived(random, FILES * ROWS, ROWS // 2 if ordering is ARRIVAL else ROWS)
    seen = observed(exact)
    asked = workload(
        range_workload(random, PART, 30, 3_000, 100_000),
        range_workload(random, DATE, 30, 40, 1_000, start=500),
    ).shapes
    for _ in range(2):  # the second one rewrites what the first one wrote, and others
        paths = exact.file_table().path.astype(str)
        chosen = np.sort(random.choice(len(paths), len(paths) // 2, replace=False))
        theirs = seen.files.path.astype(str)[np.isin(seen.files.path.astype(str), paths[chosen])]
        if not len(theirs):
            break
        exact = exact.after(rewrite(paths[chosen], ordering), SMALL)
        seen = seen.after(rewrite(theirs, ordering), SMALL)
        break_even = reading(exact, asked, SMALL)[1]
        assert reading(seen, asked, SMALL)[1] == pytest.approx(break_even, rel=0.12)
        assert seen.files.records.sum() == pytest.approx(exact.file_table().records.sum(), rel=1e-3)
        assert abs(len(seen) - len(exact.files)) <= 1


def test_files_that_no_action_names_stay_as_they_were() -> None:
    seen = observed(arrived(np.random.default_rng(0), FILES * ROWS, ROWS))
    paths = seen.files.path.astype(str)
    after = seen.after(rewrite(paths[::2], BY_PART), SMALL)
    kept = np.flatnonzero(np.isin(after.files.path.astype(str), paths))
    assert after.files.path[kept].tolist() == paths[1::2].tolist()
    for field, column in seen.files.columns.items():
        assert after.files.columns[field].lower[kept].tolist() == column.lower[1::2].tolist()
    assert seen.groups is not None and after.groups is not None
    groups = np.isin(after.groups.file, kept)
    mine = np.isin(seen.groups.file, np.arange(1, len(paths), 2))
    assert after.groups.records[groups].tolist() == seen.groups.records[mine].tolist()
    assert after.sample is not None
    assert set(np.unique(after.sample.file)) == set(range(len(after)))
    assert after.sample.weight.sum() == pytest.approx(FILES * ROWS, rel=1e-6)


def test_a_thin_sample_still_counts_every_file() -> None:
    exact = arrived(np.random.default_rng(0), FILES * ROWS, ROWS)
    seen = observed(exact, rows_per_file=2)
    action = rewrite(exact.file_table().path.astype(str), BY_PART)
    after = seen.after(action, SMALL)
    assert after.sample is not None
    slices = len(after.sample) // 8
    assert slices < len(after) and len(after) == pytest.approx(FILES, rel=0.1)
    assert after.files.records.sum() == pytest.approx(FILES * ROWS, rel=0.01)


def test_a_file_without_a_sample_is_merged_and_loses_no_row() -> None:
    exact = arrived(np.random.default_rng(0), 10 * ROWS, ROWS)
    seen = ObservedTable(exact.file_table(), None, None)
    for ordering in (BY_PART, CURVE, ARRIVAL):
        after = seen.after(rewrite(exact.file_table().path.astype(str), ordering), SMALL)
        assert after.files.records.sum() == 10 * ROWS


def test_every_array_of_a_table_has_a_value_for_each_file() -> None:
    """Fields that only real tables have, too: whoever adds one to the file table is told here."""
    exact = arrived(np.random.default_rng(0), 10 * ROWS, ROWS)
    files = exact.file_table()
    files = replace(files, snapshot_id=np.arange(10), file_sequence=np.arange(10))
    arrays = {
        name for name, value in vars(files).items() if isinstance(value, np.ndarray)
    }  # fmt: skip
    assert arrays == set(files.per_file)
    seen = ObservedTable(files, exact.row_groups(), None)
    for ordering in (BY_PART, ARRIVAL):
        after = seen.after(rewrite(files.path.astype(str)[:4], ordering), SMALL)
        lengths = {len(own) for own in after.files.per_file.values() if own is not None}
        assert lengths == {len(after)} and after.files.snapshot_id is not None
        assert after.files.snapshot_id[:6].tolist() == list(range(4, 10))


def test_parts_of_a_table_join_to_the_whole() -> None:
    whole = observed(arrived(np.random.default_rng(0), 8 * ROWS, ROWS))
    first, last = np.arange(3), np.arange(3, 8)
    again = whole.at(first).with_files(whole.at(last))
    assert again.files.path.tolist() == whole.files.path.tolist()
    assert again.groups is not None and whole.groups is not None
    assert again.groups.file.tolist() == whole.groups.file.tolist()
    assert again.sample is not None and whole.sample is not None
    assert again.sample.file.tolist() == whole.sample.file.tolist()
    assert np.array_equal(again.sample.values[PART], whole.sample.values[PART])
    unknown = joined_files(replace(whole.files, columns={}), whole.files)
    assert unknown.columns[PART].bounded.sum() == len(whole)


def test_decisions_in_a_replay_cost_what_they_cost_with_exact_rows() -> None:
    """Days of arrivals and queries, our own decisions: both forms of the table, one loop."""
    random, days, rows = np.random.default_rng(5), 8, 4_000
    settings = replace(
        SETTINGS, target_bytes=ROW_BYTES * 500, row_group_bytes=ROW_BYTES * 500,
        rho=Rho(1.0, "measured"),
    )  # fmt: skip
    whole, parts, steps = empty_table(SCHEMA), [], []
    for day in range(days):
        data = arriving_rows(random, rows, first=day * rows)
        asked = workload_of_fragments(
            range_workload(random, PART, 20, 900, 100_000, days=1, start=100 * day)
        ).shapes
        asked = tuple(replace(one, event_ms=one.event_ms + day * DAY) for one in asked)
        before = len(whole.files)
        whole = whole.append(data, 500, day * DAY, 500)
        parts.append(np.arange(before, len(whole.files)))
        steps.append(arriving(data, 500, asked, (day + 1) * DAY))
    seen = observed(whole)
    sampled = [
        Step(lambda now, part=seen.at(own): now.with_files(part), step.queries, step.now_ms)
        for own, step in zip(parts, steps, strict=True)
    ]
    exact = replay(empty_table(SCHEMA), steps, ours, settings)
    found = replay(seen.at(np.zeros(0, dtype=np.int64)), sampled, ours, settings)
    assert exact.actions.sum() and found.actions.sum()
    assert found.untouched.tolist() == exact.untouched.tolist()
    assert found.ratio == pytest.approx(exact.ratio, rel=0.10)


def test_columns_keep_their_bytes_however_often_a_replay_rewrites_them() -> None:
    """Writers of arrivals list random doubles in a dictionary, and the engine does not. What was
    written counted as stored like the arrivals, and sampled rows as often as a file had fewer of
    them than others, so that each rewrite took a tenth off."""
    rows = arrived(np.random.default_rng(0), FILES * ROWS, ROWS)
    whole = _listed(observed(rows), VALUE, per_value=7.5, index=1.6)
    part = len(whole) // 6
    seen = whole.at(np.arange(part))
    found = []
    for batch in range(1, 6):
        seen = seen.with_files(whole.at(np.arange(batch * part, (batch + 1) * part)))
        seen = seen.after(rewrite(seen.files.path.astype(str), BY_PART), SMALL)
        found.append(seen.files.column_sizes[VALUE].sum() / seen.files.records.sum())
    assert found == pytest.approx([7.5] * len(found), rel=0.03)


def _listed(table: ObservedTable, field: int, per_value: float, index: float) -> ObservedTable:
    """Return the table with a dictionary of all values of a column that have so many bytes each."""
    assert table.groups is not None and table.sample is not None

    def sizes(records: np.ndarray, each: float) -> np.ndarray:
        return np.rint(records * each).astype(np.int64)

    files, groups = table.files, table.groups
    random = np.random.default_rng(1).random(len(table.sample))
    sample = replace(
        table.sample,
        values={**table.sample.values, field: random},
        null={**table.sample.null, field: np.zeros(len(random), dtype=bool)},
    )
    stored = {**files.column_sizes, field: sizes(files.records, per_value + index)}
    held = {**groups.column_sizes, field: sizes(groups.records, per_value + index)}
    listed = {field: sizes(groups.records, per_value)}
    return ObservedTable(
        replace(files, column_sizes=stored),
        replace(groups, column_sizes=held, dictionary=listed),
        sample,
    )
