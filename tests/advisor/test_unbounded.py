"""Columns without bounds in manifests: fields of structs, and metrics modes that keep no bounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reconciler.advisor.advice import AdviceInput
from reconciler.advisor.decide import decide
from reconciler.advisor.simulate.layout import as_in_manifest
from reconciler.plan.actions.rewrite import Recluster
from reconciler.queries.table_view import table_view
from reconciler.table.filetable import UNKNOWN, FileTable
from reconciler.table.footer_bounds import with_footer_bounds
from reconciler.table.metadata import TableMetadata
from reconciler.table.metrics_modes import unbounded_columns
from reconciler.table.schema import Field, Schema
from reconciler.table.values import Kind
from tests.advisor.worlds import DATE, KEY, PART, SETTINGS, arrived, range_workload, workload

FILES = 10


def _without_bounds(files: FileTable, *columns: int) -> FileTable:
    none = np.zeros(len(files), dtype=bool)
    hidden = {c: replace(files.columns[c], has_lower=none, has_upper=none) for c in columns}
    return replace(files, columns={**files.columns, **hidden})


@pytest.fixture(scope="module")
def given() -> AdviceInput:
    """Lookups by a column that manifests have no bounds of, with footers and samples."""
    table = arrived(np.random.default_rng(1), rows=20_000, rows_per_file=2_000)
    work = workload(range_workload(np.random.default_rng(2), PART, 40, 500, 100_000, weight=50.0))
    return AdviceInput(
        _without_bounds(table.file_table(), PART), work, SETTINGS,
        table.row_groups(), table.sample(range(FILES), 256),
    )  # fmt: skip


def test_a_column_whose_bounds_only_footers_have_is_judged_and_becomes_the_key(given):
    (action,) = decide(given).actions
    assert isinstance(action.action, Recluster)
    assert [column.field_id for column in action.action.ordering.key] == [PART]
    assert decide(given).read_after.mid < 0.3 * decide(given).read_now


def test_rows_needed_follow_the_bounds_of_row_groups_before_there_is_a_sample(given):
    seen = decide(replace(given, sample=None))
    assert len(seen.wanted_sketches) == FILES


def test_files_of_unknown_bounds_are_sketched_where_no_footer_was_read(given):
    seen = decide(replace(given, sample=None, row_groups=None))
    assert len(seen.wanted_sketches) == FILES


def test_a_metrics_mode_without_bounds_opens_every_file_of_the_new_layout(given):
    """What row groups save remains; what manifests would have saved does not."""
    properties = {"write.metadata.metrics.column.part": "counts"}
    hidden = replace(given.settings, metadata=TableMetadata(properties))
    bounded, unbounded = decide(given), decide(replace(given, settings=hidden))
    files = unbounded.files_after.mid
    assert unbounded.read_after.mid == pytest.approx(bounded.read_after.mid, rel=0.1)
    opened = (unbounded.cost_after.mid - unbounded.read_after.mid) / SETTINGS.open_bytes
    queries = given.workload.queries
    assert opened / queries >= files
    assert (bounded.cost_after.mid - bounded.read_after.mid) / SETTINGS.open_bytes < opened / 2


def test_a_file_of_uuids_of_both_halves_will_have_no_bounds_of_them():
    table = arrived(np.random.default_rng(3), rows=2_000, rows_per_file=500).file_table()
    ends = [("10", "7f"), ("7f", "80"), ("80", "ff"), ("", "")]
    low, high = (np.array([bytes.fromhex(e[i]) for e in ends], dtype="S16") for i in range(2))
    known = np.array([True, True, True, False])
    column = replace(
        table.columns[PART],
        kind=Kind.BYTES,
        lower=low,
        upper=high,
        has_lower=known,
        has_upper=known,
    )
    fields = tuple(
        replace(field, type="uuid") if field.field_id == PART else field
        for field in table.schema.fields
    )
    files = replace(
        table,
        schema=replace(table.schema, fields=fields),
        columns={**table.columns, PART: column},
    )
    shown = as_in_manifest(files, frozenset({DATE}))
    assert shown.columns[PART].bounded.tolist() == [True, False, True, False]
    assert not shown.columns[DATE].bounded.any()
    assert shown.columns[KEY].bounded.all()
    assert as_in_manifest(table, frozenset()) is table


def test_bounds_of_row_groups_complete_files_and_leave_the_others_as_they_are():
    table = arrived(np.random.default_rng(3), rows=2_000, rows_per_file=500)
    files, groups = table.file_table(), table.row_groups()
    view = table_view(files, groups, None, 1 << 20)
    assert view.known is files
    bare = _without_bounds(files, KEY, DATE)
    known = table_view(bare, groups, None, 1 << 20).known
    for column in (KEY, DATE):
        assert known.columns[column].bounded.all()
        assert known.columns[column].lower.tolist() == files.columns[column].lower.tolist()
        assert known.columns[column].upper.tolist() == files.columns[column].upper.tolist()


def test_a_row_group_of_unknown_bounds_leaves_its_file_without():
    table = arrived(np.random.default_rng(3), rows=2_000, rows_per_file=500)
    bare = _without_bounds(table.file_table(), KEY)
    view = table_view(bare, table.row_groups(), None, 1 << 20)
    assert view.row_groups is not None and view.group_file is not None
    some = view.row_groups.columns[KEY]
    have = some.has_lower.copy()
    have[0] = False
    nulls = np.full(len(have), UNKNOWN)
    columns = {**view.row_groups.columns, KEY: replace(some, has_lower=have, nulls=nulls)}
    known = with_footer_bounds(bare, replace(view.row_groups, columns=columns), view.group_file)
    assert known.columns[KEY].bounded.tolist() == [False, True, True, True]


@pytest.mark.parametrize(
    ("properties", "ordered", "expected"),
    [
        ({}, (), {3}),
        ({"write.metadata.metrics.max-inferred-column-defaults": "9"}, (), set()),
        ({"write.metadata.metrics.default": "counts"}, (), {1, 2, 3}),
        ({"write.metadata.metrics.default": "counts"}, (2,), {1, 3}),
        ({"write.metadata.metrics.column.a": "none"}, (1,), {1, 3}),
        ({"write.metadata.metrics.default": "full"}, (), set()),
    ],
)  # fmt: skip
def test_metrics_modes_say_which_columns_have_no_bounds(monkeypatch, properties, ordered, expected):
    """By default the first columns have bounds, those of structs after the outer ones."""
    monkeypatch.setattr("reconciler.table.metrics_modes.INFERRED_COLUMNS", 2)
    schema = Schema(1, (Field(1, "a", "long"), Field(3, "who.id", "long"), Field(2, "b", "string")))
    assert unbounded_columns(schema, properties, ordered) == expected


def test_the_columns_of_a_sort_order_are_read_from_its_terms():
    terms = ("identity(3) asc nulls-first", "bucket[16](41) desc nulls-last")
    assert TableMetadata(sort_terms=terms).sorted_columns == {3, 41}
