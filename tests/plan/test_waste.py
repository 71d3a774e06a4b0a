"""What a table wastes, against figures counted by hand and against a model of its rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reconciler.plan.waste import SmallFiles, mergeable, waste_of
from reconciler.queries.fragments import Fragment, workload_of_fragments
from reconciler.queries.predicate import TRUE, And, Comparison, Ref
from reconciler.queries.shape import Workload, workload_of
from reconciler.table.filetable import FileTable
from reconciler.table.metadata import TableMetadata
from reconciler.table.observation import Observation
from reconciler.table.times import DAY_MS
from tests.cli import observations
from tests.cli.observations import MIB, NOW_MS, bounds

NO_QUERIES = workload_of(())
FILES, ROWS = 40, 1_000
"""Of the table of the model: files, and rows in each."""


def queries(*ranges: tuple[int, int] | None, days: float = 2.0) -> Workload:
    """Queries on column 1 between two values, or of everything, spread over some days."""
    between = And((Comparison(Ref(1), ">=", 0), Comparison(Ref(1), "<=", 1)))
    step = days * DAY_MS / max(len(ranges) - 1, 1)
    return workload_of_fragments(
        Fragment(
            "log", n, "u", TRUE if one is None else between, one or (), (None,) * len(one or ()),
            (1,), 1.0, NOW_MS + round(n * step), "x",
        )
        for n, one in enumerate(ranges)
    )  # fmt: skip


def model(order: np.ndarray) -> Observation:
    """Files of 1 MiB with one column. order: its values, each once, as they are stored."""
    seen = observations.lineitem(FILES, 1)
    parts = order.reshape(FILES, ROWS)
    size = np.full(FILES, MIB, dtype=np.int64)
    columns = {1: bounds(1, parts.min(axis=1), parts.max(axis=1))}
    zeros = np.zeros(FILES, dtype=np.int64)
    files = replace(
        seen.files, columns=columns, column_sizes={1: size}, bytes=size, delete_files=zeros,
        records=np.full(FILES, ROWS, dtype=np.int64),
    )  # fmt: skip
    return replace(seen, files=files, metadata=TableMetadata())


IN_ORDER = np.arange(FILES * ROWS)
SCATTERED = np.random.default_rng(7).permutation(FILES * ROWS)


def test_small_files_of_a_partition_become_as_many_as_their_bytes_fill() -> None:
    found = mergeable(model(IN_ORDER))
    assert found == SmallFiles(FILES, FILES - 2, 32 * MIB)  # 40 MiB in files of 32 MiB


def test_without_queries_one_read_a_day_opens_what_merging_would_save() -> None:
    seen = model(IN_ORDER)
    found = waste_of(seen, NO_QUERIES, mergeable(seen), open_bytes=3 * MIB)
    assert (found.read_bytes, found.openings, found.queries) == (0.0, FILES - 2, None)
    assert found.cost == 3 * MIB * (FILES - 2)


def test_delete_files_are_read_and_opened_for_nothing_and_hide_rows() -> None:
    seen = observations.with_deletes()
    small = mergeable(seen)
    found = waste_of(seen, NO_QUERIES, small)
    hidden = 9_125 / 400_000  # 8,400 positions and 725 keys of 40 files of 10,000 rows
    stored = int(seen.files.bytes.sum())
    assert found.read_bytes == pytest.approx(
        hidden * stored + int(np.maximum(seen.files.delete_bytes, 0).sum())
    )
    assert found.openings == small.surplus + int(seen.files.delete_files.sum())
    assert int(seen.files.delete_files.sum()) > 0


def test_a_full_scan_needs_all_rows_and_wastes_openings_alone() -> None:
    seen = model(SCATTERED)
    found = waste_of(seen, queries(None, None, None, None), mergeable(seen))
    assert found.read_bytes == pytest.approx(0.0, abs=1.0)
    assert found.openings == pytest.approx(2 * (FILES - 2))  # four in two days
    assert found.queries == 2.0


@pytest.mark.parametrize("order", [IN_ORDER, SCATTERED], ids=["in order", "scattered"])
def test_a_range_wastes_the_rows_of_the_files_it_opens_that_do_not_match(order: np.ndarray) -> None:
    """The model counts rows: those of files that hold a value of the range, without the range."""
    asked = ((4_000, 13_999), (20_500, 31_499))
    parts = order.reshape(FILES, ROWS)
    beyond = opened = 0
    for low, high in asked:
        hit = ((parts >= low) & (parts <= high)).any(axis=1)
        opened += int(hit.sum())
        beyond += ROWS * int(hit.sum()) - (high - low + 1)
    seen = model(order)
    found = waste_of(seen, queries(*asked), mergeable(seen))
    assert found.read_bytes == pytest.approx(beyond / ROWS * MIB / 2, rel=0.02, abs=MIB / 20)
    assert found.openings == pytest.approx(opened * (FILES - 2) / FILES / 2)


def test_a_scattered_table_wastes_more_than_the_same_in_order() -> None:
    asked = queries(*((low, low + 500) for low in range(0, 30_000, 1_500)))
    costs = [
        waste_of(seen, asked, mergeable(seen)).cost for seen in (model(IN_ORDER), model(SCATTERED))
    ]
    assert costs[1] > 5 * costs[0]


def test_an_empty_table_wastes_nothing() -> None:
    seen = observations.empty()
    for known in (NO_QUERIES, queries(None, (1, 2))):
        found = waste_of(seen, known, mergeable(seen))
        assert (found.read_bytes, found.openings) == (0.0, 0.0)


def test_the_table_of_the_model_is_what_it_says() -> None:
    files: FileTable = model(SCATTERED).files
    assert files.total_records == FILES * ROWS and files.total_bytes == FILES * MIB
