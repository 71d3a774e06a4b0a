"""Which inputs are checked by their footers, how often, and what a plan says of it."""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reconciler.api.catalog_config import CatalogConfig
from reconciler.api.conditions import ConditionType
from reconciler.catalog import file_forms
from reconciler.catalog.listing import changed_ms
from reconciler.engines.schedule.input_forms import foreign
from reconciler.loop import reader as reader_module
from reconciler.loop.file_checks import sizes_of
from reconciler.loop.ports import RecordedQueries, Target
from reconciler.loop.propose import PlanRequest, Proposal, propose
from reconciler.loop.reader import Reader
from reconciler.loop.recommend import Options, recommended
from reconciler.loop.recommendation_document import recommendation_document
from reconciler.loop.step import state_of
from reconciler.loop.waiting import excepted
from reconciler.plan.execution import Intent
from reconciler.plan.reasons import NOT_REWRITABLE, REFUSED_FILES
from reconciler.queries.coverage import Coverage
from reconciler.render import markdown, plan_text
from reconciler.state.state import StateStore
from reconciler.table import refusals
from reconciler.table.deletes import DeleteTable, Scope
from reconciler.table.observation import SnapshotInfo
from reconciler.table.refusals import (
    DAMAGED,
    NOT_VERIFIED,
    OF_CODE,
    OF_RUN,
    PHYSICAL_SCHEMA,
    REMEDIES,
    WRONG_ROWS,
    Refusal,
    circumstances,
)
from tests.advisor.worlds import range_workload, workload
from tests.cli.observations import lineitem
from tests.conftest import sqlite_catalog
from tests.loop.test_step import policy
from tests.operator.worlds import World

NOW = dt.datetime(2026, 11, 20, 12, 0, tzinfo=dt.UTC)
LIKE_OURS = "layout-p-0123456789abcdef0123-1-7"
TARGET = ("loop", "t")
PACK = {"layout": {"files": {"targetSize": "1Mi", "minInputFiles": 2}}}


@pytest.fixture
def config(tmp_path: Path) -> CatalogConfig:
    (tmp_path / "warehouse").mkdir()
    return sqlite_catalog(tmp_path)


@pytest.fixture
def table(config: CatalogConfig) -> Any:
    from pyiceberg.catalog.sql import SqlCatalog

    opened = SqlCatalog(config.name, **dict(config.properties))
    opened.create_namespace("loop")
    columns = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us"))])
    properties = {"write.target-file-size-bytes": str(1 << 20)}
    return opened.create_table("loop.t", columns, properties=properties)


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    return Reader(StateStore(tmp_path / "state"), tmp_path / "cache")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files whose footers the reader opens, in order."""
    paths: list[str] = []

    def through(io: Any, rows: Any) -> Callable[[file_forms.File], Any]:
        read = file_forms.through(io, rows)

        def counted(file: file_forms.File) -> Any:
            paths.append(file[0])
            return read(file)

        return counted

    monkeypatch.setattr(reader_module, "through", through)
    return paths


def look(config: CatalogConfig, reader: Reader) -> Proposal:
    wanted = PlanRequest(
        target=Target(config, TARGET), policy=policy("t", **PACK), policy_hash="h",
        policy_name="test", not_acted_on=(), cores=2,
    )  # fmt: skip
    return propose(wanted, reader, NOW)


def add(table: Any, files: int, **options: Any) -> None:
    for number in range(files):
        rows = {"id": [number], "at": pa.array([number], pa.timestamp("us"))}
        table.append(pa.table(rows), **options)


def register(table: Any, directory: str) -> str:
    """Add a file with times in milliseconds."""
    return put(table, directory, {"id": [1], "at": pa.array([2], pa.timestamp("ms"))})


def put(table: Any, directory: str, rows: dict[str, Any], more: int = 0) -> str:
    """Add a file with field ids by an entry of nothing but what the specification requires, as a
    writer does that does not check what it adds. more: rows that the entry has and the file not."""
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    root = Path(table.location().removeprefix("file://"))
    path = root / "data" / directory / "other.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = pa.table(rows)
    fields = [
        field.with_metadata({"PARQUET:field_id": str(number)})
        for number, field in enumerate(plain.schema, 1)
    ]
    pq.write_table(plain.cast(pa.schema(fields)), path)
    with table.transaction() as change, change.update_snapshot().fast_append() as append:
        file = DataFile.from_args(
            content=DataFileContent.DATA, file_path=f"file://{path}",
            file_format=FileFormat.PARQUET, partition=Record(), record_count=len(plain) + more,
            file_size_in_bytes=path.stat().st_size, column_sizes={}, value_counts={},
            null_value_counts={}, nan_value_counts={}, lower_bounds={}, upper_bounds={},
            split_offsets=[4], sort_order_id=None, equality_ids=None, key_metadata=None,
        )  # fmt: skip
        file.spec_id = 0
        append.append_data_file(file)
    return f"file://{path}"


def test_a_file_is_ours_by_its_snapshot_and_not_by_its_path(
    table: Any, config: CatalogConfig, reader: Reader
) -> None:
    """Any writer can choose a directory that is named like ours."""
    add(table, 1, snapshot_properties={"layout.attempt-id": "p-1"})
    path = register(table, LIKE_OURS)
    target = Target(config, TARGET)
    seen = reader.observe(target)
    assert list(sizes_of(seen)) == [path]
    found = reader.check_files(target, seen, [path])
    assert found.refusals[path].reason == PHYSICAL_SCHEMA


@pytest.mark.parametrize("elsewhere", [False, True], ids=["main", "branch"])
def test_a_delete_file_is_ours_by_its_snapshot_and_not_by_its_path(elsewhere: bool) -> None:
    ours = SnapshotInfo(1, 1, 1, "overwrite", {"layout.attempt-id": "p-1"})
    others = SnapshotInfo(2, 2, 2, "delete", {})
    paths = np.array([f"file:/t/{LIKE_OURS}/{n}.parquet" for n in range(3)], dtype=object)
    deletes = DeleteTable(
        path=paths,
        scope=np.full(3, Scope.PARTITION, dtype=np.int64),
        bytes=np.array([10, 20, 30]),
        snapshot_id=np.array([1, 2, 3]),
    )
    seen = lineitem(2, 1)
    seen = replace(
        seen,
        delete_files=deletes,
        ancestry=() if elsewhere else (ours, others),
        other_snapshots=(ours, others) if elsewhere else (),
    )
    found = {path: size for path, size in sizes_of(seen).items() if LIKE_OURS in path}
    assert found == {paths[1]: 20, paths[2]: 30}


def test_no_footer_is_opened_twice(
    table: Any, config: CatalogConfig, reader: Reader, opened: list[str]
) -> None:
    add(table, 3)
    bad = register(table, "elsewhere")
    first = look(config, reader)
    assert len(opened) == 4 and bad in opened
    assert bad not in {path for item in first.advice.actions for path in item.action.inputs}
    again = look(config, reader)
    assert len(opened) == 4
    assert again.plan.id == first.plan.id
    add(table, 1)
    look(config, reader)
    assert len(opened) == len(set(opened)) == 5


@pytest.mark.parametrize("more", [-1, 1])
def test_a_file_with_another_number_of_rows_is_refused(
    table: Any, config: CatalogConfig, reader: Reader, more: int
) -> None:
    """Iceberg commits no replacement with more rows than it replaces: each run would fail."""
    add(table, 3)
    rows = {"id": [1, 2], "at": pa.array([1, 2], pa.timestamp("us"))}
    bad = put(table, "elsewhere", rows, more)
    for _ in range(2):  # the second look takes what the first one kept
        found = look(config, reader)
        assert bad not in {path for item in found.plan.actions for path in item.action.inputs}
        assert reader.refusals(Target(config, TARGET), found.observation)[bad].reason == WRONG_ROWS


def test_a_standing_plan_that_reads_a_refused_file_stands_no_more(
    table: Any, config: CatalogConfig, reader: Reader
) -> None:
    """A run that could not verify one of its files would fail again at each approval."""
    add(table, 4)
    first = look(config, reader).plan
    reader.put_plan(first)
    assert look(config, reader).frozen
    path = first.actions[0].action.inputs[0]
    unlike = refused_by_a_run(path, NOT_VERIFIED)
    reader.store.record_refusals(first.table_uuid, [unlike])
    later = look(config, reader)
    assert not later.frozen
    assert path not in {path for item in later.plan.actions for path in item.action.inputs}


def refused_by_a_run(path: str, reason: str, memory_bytes: int = 0) -> Refusal:
    under = circumstances(reason, memory_bytes)
    return Refusal(path, reason, "", "its values cannot be read", under=under)


@pytest.mark.parametrize("reason", [*OF_CODE, *OF_RUN])
def test_what_a_run_refused_is_left_out_until_the_version_or_its_memory_changes(
    table: Any,
    config: CatalogConfig,
    reader: Reader,
    monkeypatch: pytest.MonkeyPatch,
    reason: str,
) -> None:
    add(table, 6)
    first = look(config, reader).plan
    path = first.actions[0].action.inputs[0]
    reader.store.record_refusals(first.table_uuid, [refused_by_a_run(path, reason)])
    for _ in range(2):
        found = look(config, reader)
        assert path not in {path for item in found.plan.actions for path in item.action.inputs}
        (line,) = [one for one in found.advice.rejected if one.reason == REFUSED_FILES]
        assert path in str(line.why) and REMEDIES[reason] in str(line.why)
    reader.store.record_refusals(first.table_uuid, [refused_by_a_run(path, reason, 8 << 30)])
    assert (look(config, reader).plan.id == first.id) == (reason in OF_RUN)
    reader.store.record_refusals(first.table_uuid, [refused_by_a_run(path, reason)])
    monkeypatch.setattr(refusals, "__version__", "9.9.9")
    assert look(config, reader).plan.id == first.id


def test_a_damaged_file_is_left_out_until_it_is_restored(
    table: Any, config: CatalogConfig, reader: Reader
) -> None:
    add(table, 4)
    first = look(config, reader).plan
    path = first.actions[0].action.inputs[0]
    local = Path(path.removeprefix("file://").removeprefix("file:"))
    os.utime(local, (10**9, 10**9))
    damaged = Refusal(path, DAMAGED, "at", "it cannot be decoded", changed_ms(None, path))
    assert damaged.changed_ms == 10**12
    reader.store.record_refusals(first.table_uuid, [damaged])
    for _ in range(2):
        found = look(config, reader).plan
        assert path not in {path for item in found.actions for path in item.action.inputs}
    local.touch()
    assert look(config, reader).plan.id == first.id


def test_a_plan_says_how_many_footers_it_has_not_read(
    table: Any,
    config: CatalogConfig,
    reader: Reader,
    opened: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reader_module, "MOST_FOOTERS", 3)
    add(table, 5)
    first = look(config, reader)
    assert (first.advice.files_read, first.advice.files_unchecked, len(opened)) == (5, 2, 3)
    document = first.plan.document()
    said = document["evidence"]["checked"]
    assert "3 of 5" in said
    assert said in " ".join(plan_text.render_plan(document, width=100).split())
    assert said in markdown.render_plan(document)
    second = look(config, reader)
    assert (second.advice.files_unchecked, len(opened)) == (0, 5)
    assert "checked" not in second.plan.evidence


def test_an_execution_skips_what_its_ledger_names_and_not_what_looks_like_it(
    tmp_path: Path,
) -> None:
    store, ours, fake = StateStore(tmp_path), f"file:/t/{LIKE_OURS}/a", f"file:/t/{LIKE_OURS}/b"
    attempt = Intent(
        table_uuid="u", table=TARGET, plan_id="p-1", attempt_id="p-1-1", batch=1,
        action_ids=("a01",), base_snapshot_id=1, prefix=f"file:/t/{LIKE_OURS}", inputs=(),
        outputs=(ours,),
    )  # fmt: skip
    store.record_intent(attempt)
    assert store.outputs_of("u") == {ours}
    assert store.outputs_of("other") == frozenset()
    request = SimpleNamespace(table_uuid="u")
    run: Any = SimpleNamespace(ledger=store, request=request)
    assert foreign(run, [(fake, 1), (ours, 2), ("file:/t/c", 3)]) == [(fake, 1), ("file:/t/c", 3)]
    unasked: Any = SimpleNamespace(request=request)
    assert foreign(unasked, [("file:/t/c", 3)]) == [("file:/t/c", 3)]


def test_a_partition_field_whose_column_was_dropped_is_refused_at_no_cost(
    table: Any, config: CatalogConfig, reader: Reader, opened: list[str]
) -> None:
    """In format 1 a field that is removed from the spec stays in it, as void."""
    add(table, 3)
    path = Path(table.metadata_location.removeprefix("file://"))
    body = json.loads(path.read_text())
    void = {"field-id": 1000, "source-id": 99, "name": "gone", "transform": "void"}
    body["partition-specs"] = [{"spec-id": 0, "fields": [void]}]
    path.write_text(json.dumps(body))
    for _ in range(2):
        found = look(config, reader)
        assert not found.pending and opened == []
        assert NOT_REWRITABLE in [item.reason for item in found.advice.rejected]
        assert excepted(found.advice)


def test_a_condition_names_the_refused_files(
    table: Any, config: CatalogConfig, reader: Reader
) -> None:
    paths = [register(table, "a"), register(table, "b")]
    found = look(config, reader)
    text = excepted(found.advice)
    assert not found.pending and min(paths) in text
    assert text in state_of(found, None).message
    world = World()
    name = world.table("orders")
    world.catalog.tables["sales", "orders"].waits = text
    world.turn(world.operator(), 2)
    condition = world.condition(name, ConditionType.CONVERGED)
    assert condition["status"] == "True" and min(paths) in condition["message"]


def test_a_recommendation_needs_no_column_sizes_and_says_which_it_could_not_know(
    table: Any, config: CatalogConfig, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        ids = np.arange(3_000) + 3_000 * number
        put(table, str(number), {"id": ids, "at": pa.array(ids % 50, pa.timestamp("us"))})
    random = np.random.default_rng(1)
    work = workload(
        range_workload(random, 1, 20, 10, 12_000), range_workload(random, 2, 20, 5, 50, start=100)
    )
    known = RecordedQueries(work, Coverage(1.0, "bytes"), work)
    monkeypatch.setattr(Reader, "recorded_queries", lambda self, seen: known)
    made = recommended(Target(config, TARGET), reader, Options(), NOW)
    (text,) = [one for one in recommendation_document(made)["warnings"] if "manifests" in one]
    assert '"id"' in text and '"at"' in text
