"""Plans that the engine without a JVM carries out: the rows stay, by readers that share no code
with it, and every reason to do nothing is found."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.transforms import BucketTransform, IdentityTransform, MonthTransform
from pyiceberg.types import FixedType

from reconciler.api.choices import EngineType
from reconciler.engines.schedule import native
from reconciler.errors import UnsupportedError
from reconciler.format import iec
from reconciler.loop.local_actor import LocalActor
from reconciler.loop.step import CONVERGED, run_step, run_until_converged
from reconciler.plan.actions.state import Validity
from reconciler.plan.execution import Event
from reconciler.plan.ledger import charged
from reconciler.table import numbers
from reconciler.table.left_to_spark import BLOOM, LEVEL
from reconciler.table.physical import NAME_MAPPING
from tests.delete_commits import delete_equal, delete_positions
from tests.loop.conftest import rows_of
from tests.loop.killed_run import UNRECORDED, run_killed
from tests.loop.test_step import DECLARED, EVERYTHING, never, quiet, step_of

WITHOUT_JAVA = """
    import importlib.util, sys
    found = importlib.util.find_spec
    class Refused:
        def find_spec(self, name, *_):
            if name.partition(".")[0] in ("pyspark", "py4j"):
                raise ModuleNotFoundError(name)
    def find_spec(name, *more):
        return None if name in ("pyspark", "py4j") else found(name, *more)
    sys.meta_path.insert(0, Refused())
    importlib.util.find_spec = find_spec
"""


def live_rows(table: Any) -> Counter[tuple[Any, ...]]:
    """The rows that DuckDB finds in the data files that pyiceberg names, without those that delete
    files name: equality deletes by the specification's rule, on the column `id`."""
    table.refresh()
    data, keys, positions = [], [], set()
    for manifest in table.current_snapshot().manifests(table.io):
        for entry in manifest.fetch_manifest_entry(table.io):
            file = entry.data_file.file_path.removeprefix("file://")
            kind = int(entry.data_file.content)
            if kind == 0:
                data.append((int(entry.sequence_number), file))
            elif kind == 1:
                found = duckdb.sql(f"select file_path, pos from '{file}'").fetchall()
                positions |= {(path.removeprefix("file://"), pos) for path, pos in found}
            else:
                gone = {one for (one,) in duckdb.sql(f"select id from '{file}'").fetchall()}
                keys.append((int(entry.sequence_number), gone))
    rows: Counter[tuple[Any, ...]] = Counter()
    for sequence, file in data:
        found = duckdb.sql(
            f"select * exclude (file_row_number), file_row_number "
            f"from read_parquet('{file}', file_row_number = true)"
        )
        at = found.columns.index("id")
        for *row, number in found.fetchall():
            if (file, number) in positions:
                continue
            if any(row[at] in gone and sequence < later for later, gone in keys):
                continue
            rows[tuple(row)] += 1
    return rows


def data_files(table: Any) -> list[str]:
    table.refresh()
    entries = (
        entry
        for manifest in table.current_snapshot().manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io)
    )
    return [one.data_file.file_path for one in entries if int(one.data_file.content) == 0]


def sorted_by_day(table: Any) -> bool:
    days = (
        [
            day
            for (day,) in duckdb.sql(f"select day from '{path.removeprefix('file://')}'").fetchall()
        ]
        for path in data_files(table)
    )
    return all(one == sorted(one) for one in days)


def test_a_declared_key_is_reached_and_then_nothing_is_left(
    catalog_config: Any, make_table: Callable[..., Any], actor: LocalActor
) -> None:
    table = make_table("local_declared")
    before = live_rows(table)
    step = step_of(catalog_config, "local_declared", **DECLARED)
    done = run_until_converged(step, actor, EVERYTHING, quiet, never, quiet)
    assert done.state.state == CONVERGED
    assert live_rows(table) == before
    assert sorted_by_day(table)
    assert table.current_snapshot().summary.operation.value == "replace"


@pytest.mark.parametrize(("budget", "attempts"), [("1000Ki", 1), ("1500Ki", 2)])
def test_a_second_attempt_is_reserved_before_it_reads(
    catalog_config: Any,
    make_table: Callable[..., Any],
    actor: LocalActor,
    budget: str,
    attempts: int,
) -> None:
    """The table has 556 KiB; the second attempt leaves the changed file out. Whatever event a kill
    follows, what was read has been charged."""
    name = f"local_again_{attempts}"
    table = make_table(name, files=6)
    sizes = {
        task.file.file_path: task.file.file_size_in_bytes for task in table.scan().plan_files()
    }
    size, changed = sum(sizes.values()), data_files(table)[0]
    limits = [{"name": "d", "per": "24h", "maxRewriteBytes": budget}]
    step = step_of(catalog_config, name, budgets=limits, **DECLARED)
    uuid, begun, said = str(table.metadata.table_uuid), [0], list[str]()

    def on_event(event: Event) -> None:
        if event.phase == "start":
            begun[0] += size - sizes[changed] if begun[0] else size
        if event.phase == "commit" and not table.refresh().inspect.delete_files().num_rows:
            delete_positions(table, changed, [0])
        if event.phase == "stopped":
            said.append(event.text)
        held = charged(actor.store.ledger(uuid), actor.store.reservations(uuid))
        assert sum(one.spent.rewrite_bytes for one in held) >= begun[0]

    done = run_step(step, actor, EVERYTHING, on_event, never).result
    assert done is not None and (done.conflicts, len(done.attempts)) == (1, attempts)
    (reserved,) = actor.store.reservations(uuid)
    assert reserved.rewrite_bytes == begun[0] and reserved.settled
    assert bool(done.commits) == (attempts == 2)
    assert len(said) == 2 - attempts


COLUMN_NUMBERS = (f"{numbers.BLOOM_NDV}.column.k", f"{numbers.BLOOM_FPP}.column.k")
WRONG = dict.fromkeys({*numbers.LEAST, LEVEL, *COLUMN_NUMBERS} - {numbers.PREVIOUS_VERSIONS}, "1MB")
"""Without the one that pyiceberg, which sets the others here, refuses at a commit."""


def test_numbers_that_are_none_are_told_and_a_mapping_that_no_file_needs_is_left_alone(
    catalog_config: Any, make_table: Callable[..., Any], actor: LocalActor
) -> None:
    table = make_table("local_numbers")
    with table.transaction() as change:
        change.set_properties({**WRONG, f"{BLOOM}enabled.column.k": "true", NAME_MAPPING: "none"})
    before = live_rows(table)
    step = step_of(catalog_config, "local_numbers", **DECLARED)
    told = step.propose(actor).plan.evidence["unread"]
    assert all(name in told for name in WRONG)
    done = run_until_converged(step, actor, EVERYTHING, quiet, never, quiet)
    assert done.state.state == CONVERGED
    assert live_rows(table) == before
    assert sorted_by_day(table)
    (file, *_) = (pq.read_metadata(one.removeprefix("file://")) for one in data_files(table))
    assert file.num_row_groups == 1 and file.row_group(0).column(0).compression == "ZSTD"


SPECS = {
    "identity": lambda schema: (IdentityTransform(), "p", "p"),
    "bucket": lambda schema: (BucketTransform(4), "id", "id_bucket"),
    "month": lambda schema: (MonthTransform(), "date", "date_month"),
}


@pytest.mark.parametrize("kind", SPECS)
@pytest.mark.parametrize("version", [1, 2])
def test_partitions_keep_their_rows(
    catalog_config: Any, iceberg_catalog: Any, actor: LocalActor, kind: str, version: int
) -> None:
    name = f"local_{kind}_{version}"
    iceberg_catalog.create_namespace_if_not_exists("loop")
    first = rows_of(0, 400).append_column("p", pa.array(["a b", "ü/=", None, "c"] * 100))
    table = iceberg_catalog.create_table(
        f"loop.{name}", first.schema, properties={"format-version": str(version)}
    )
    transform, column, named = SPECS[kind](table.schema())
    with table.update_spec() as update:
        update.add_field(column, transform, named)
    for number in range(6):
        rows = rows_of(number, 400)
        table.append(rows.append_column("p", pa.array(["a b", "ü/=", None, "c"] * 100)))
    before = live_rows(table)
    partitions = table.inspect.partitions().num_rows
    step = step_of(catalog_config, name, **DECLARED)
    done = run_until_converged(step, actor, EVERYTHING, quiet, never, quiet)
    assert done.state.state == CONVERGED
    assert live_rows(table) == before
    assert table.inspect.partitions().num_rows == partitions
    scanned = Counter(map(tuple, (r.values() for r in table.scan().to_arrow().to_pylist())))
    assert sum(scanned.values()) == sum(before.values())


def test_deletes_of_both_kinds_apply_before_and_after(
    catalog_config: Any, make_table: Callable[..., Any], actor: LocalActor
) -> None:
    table = make_table("local_deletes", files=4)
    delete_equal(table, "id", list(range(100, 300)))
    delete_positions(table.refresh(), data_files(table)[0], list(range(50)))
    before = live_rows(table)
    layout = {**DECLARED["layout"], "files": {"quietPeriod": "0s"}}
    step = step_of(catalog_config, "local_deletes", layout=layout)
    run_until_converged(step, actor, EVERYTHING, quiet, never, quiet)
    assert live_rows(table) == before
    assert sorted_by_day(table)


def test_a_delete_that_arrives_while_files_are_written_still_applies(
    catalog_config: Any, make_table: Callable[..., Any], actor: LocalActor
) -> None:
    table = make_table("local_race", files=4)
    step = step_of(catalog_config, "local_race", **DECLARED)
    came: list[int] = []

    def disturb(event: Any) -> None:
        if event.phase == "commit" and not came:
            came.append(1)
            delete_equal(table.refresh(), "id", list(range(1_000)))
            table.append(rows_of(9, 100))

    run_until_converged(step, actor, EVERYTHING, disturb, never, quiet)
    rows = live_rows(table)
    assert came
    assert sum(rows.values()) == 4 * 2_000 - 1_000 + 100


def test_inputs_that_another_writer_replaced_are_a_conflict_and_planned_again(
    catalog_config: Any, make_table: Callable[..., Any], actor: LocalActor
) -> None:
    table = make_table("local_conflict", files=6)
    step = step_of(catalog_config, "local_conflict", **DECLARED)
    proposal = step.propose(actor)
    came: list[int] = []

    def disturb(event: Any) -> None:
        if event.phase == "commit" and not came:
            came.append(1)
            table.refresh().overwrite(rows_of(20, 500))

    result = run_step(step, actor, EVERYTHING, disturb, never, proposal)
    assert result.result is not None
    assert result.result.conflicts >= 1
    assert {one.state for one in result.result.actions} == {Validity.LOST}
    assert sum(live_rows(table).values()) == 500


def test_properties_an_order_for_writers_and_expiry(
    catalog_config: Any, make_table: Callable[..., Any], actor: LocalActor
) -> None:
    table = make_table("local_metadata", files=4)
    before = live_rows(table)
    layout = {
        "clustering": {"mode": "Declared", "keys": ["day"], "applyToWrites": True},
        "files": {"targetSize": "16Mi", "rowGroupSize": "4Mi"},
    }
    maintenance = {"expireSnapshots": {"olderThan": "1s", "retainLast": 1}}
    step = step_of(catalog_config, "local_metadata", layout=layout)
    run_until_converged(step, actor, EVERYTHING, quiet, never, quiet)
    table.refresh()
    assert table.properties["write.target-file-size-bytes"] == str(16 << 20)
    assert [one.source_id for one in table.sort_order().fields] == [
        table.schema().find_field("day").field_id
    ]
    time.sleep(1.1)
    now = dt.datetime.now(dt.UTC)
    later = step_of(catalog_config, "local_metadata", now, layout=layout, maintenance=maintenance)
    run_until_converged(later, actor, EVERYTHING, quiet, never, quiet)
    assert live_rows(table) == before
    assert len(table.refresh().metadata.snapshots) == 1
    written = set(Path(table.location().removeprefix("file://")).rglob("data/**/*.parquet"))
    assert {str(path) for path in written} == {
        path.removeprefix("file://") for path in data_files(table)
    }


def test_what_only_spark_can_do_is_refused_before_anything_is_written(
    catalog_config: Any, make_table: Callable[..., Any], actor: LocalActor
) -> None:
    table = make_table("local_refused", files=4)
    table.append(rows_of(8, 10))
    step = step_of(catalog_config, "local_refused", deletes={"formatVersion": "Upgrade"})
    head = table.refresh().current_snapshot().snapshot_id
    proposal = step.propose(actor)
    assert any(item.action.needs_spark for item in proposal.pending)
    with pytest.raises(UnsupportedError):
        run_step(step, actor, EVERYTHING, quiet, never, proposal)
    assert table.refresh().current_snapshot().snapshot_id == head


def test_a_row_group_that_fits_no_task_is_refused_with_the_reason(
    catalog_config: Any,
    make_table: Callable[..., Any],
    actor: LocalActor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = make_table("local_too_large", files=4)
    head = table.current_snapshot().snapshot_id
    monkeypatch.setattr(native, "_needed", lambda *_: 1 << 50)
    planned, found = native.planned, list[Any]()

    def seen(*given: Any) -> Any:
        found.append(planned(*given))
        return found[-1]

    monkeypatch.setattr(native, "planned", seen)
    step = step_of(catalog_config, "local_too_large", **DECLARED)
    with pytest.raises(UnsupportedError) as refused:
        run_step(step, actor, EVERYTHING, quiet, never)
    assert iec(1 << 50) in refused.value.what
    assert [one.for_memory for one in found] == [True]
    assert table.refresh().current_snapshot().snapshot_id == head


def test_a_process_without_pyspark_and_java_carries_a_plan_out(
    catalog_config: Any, make_table: Callable[..., Any], tmp_path: Path
) -> None:
    table = make_table("local_bare", files=4)
    before = live_rows(table)
    program = textwrap.dedent(WITHOUT_JAVA) + textwrap.dedent(f"""
        from pathlib import Path
        from reconciler.api.catalog_config import CatalogConfig
        from reconciler.loop.local_actor import LocalActor
        from reconciler.loop.step import run_until_converged
        from reconciler.state.state import StateStore
        from tests.loop.test_step import DECLARED, EVERYTHING, never, quiet, step_of

        config = CatalogConfig(
            {catalog_config.name!r}, {catalog_config.type!r}, {dict(catalog_config.properties)!r}
        )
        actor = LocalActor(StateStore(Path({str(tmp_path / "bare")!r})), Path({str(tmp_path)!r}))
        done = run_until_converged(
            step_of(config, "local_bare", **DECLARED), actor, EVERYTHING, quiet, never, quiet
        )
        print(done.state.state)
    """)
    environment = {"PATH": "/nonexistent", "HOME": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert ran.stdout.split() == [CONVERGED], ran.stderr
    assert live_rows(table) == before
    assert sorted_by_day(table)


@pytest.mark.parametrize("phase", ["start", "verified", "commit", UNRECORDED])
def test_a_killed_run_leaves_the_table_and_the_next_one_cleans_up(
    catalog_config: Any,
    make_table: Callable[..., Any],
    actor: LocalActor,
    tmp_path: Path,
    phase: str,
) -> None:
    name = f"local_killed_{phase.partition(' ')[0]}"
    table = make_table(name, files=4)
    before = live_rows(table)
    run_killed(catalog_config, name, phase, tmp_path)
    assert live_rows(table) == before
    step = step_of(catalog_config, name, **DECLARED)
    proposal = step.propose(actor)
    assert actor.resume(step, proposal.observation, quiet) == 1
    done = run_until_converged(step, actor, EVERYTHING, quiet, never, quiet)
    assert done.state.state == CONVERGED
    assert live_rows(table) == before
    live = {path.removeprefix("file://") for path in data_files(table)}
    ours = set(Path(table.location().removeprefix("file://")).glob("data/layout-*/**/*.parquet"))
    assert {str(path) for path in ours} <= live


def test_random_tables_keep_their_rows(
    catalog_config: Any, iceberg_catalog: Any, actor: LocalActor
) -> None:
    """Appends, deletes and rewrites in a random order, each rewrite on a part of the table."""
    iceberg_catalog.create_namespace_if_not_exists("loop")
    random = np.random.default_rng(7)
    for number in range(3):
        name = f"local_random_{number}"
        table = iceberg_catalog.create_table(f"loop.{name}", rows_of(0, 10).schema)
        expected: set[int] = set()
        step = step_of(catalog_config, name, **DECLARED)
        for turn in range(5):
            batch = rows_of(turn, 400).slice(0, int(random.integers(50, 400)))
            known = batch["id"].to_pylist()
            table.refresh().append(batch)
            expected |= set(known)
            if random.random() < 0.7:
                gone = random.choice(sorted(expected), size=20, replace=False).tolist()
                delete_equal(table.refresh(), "id", gone)
                expected -= set(gone)
            if random.random() < 0.6:
                run_until_converged(step, actor, EVERYTHING, quiet, never, quiet)
            found = live_rows(table)
            assert sorted(row[0] for row in found.elements()) == sorted(expected)


def dropped_later(table: Any, column: str) -> Any:
    """Partition by the column, append, partition no more, append, and drop the column."""
    with table.update_spec() as update:
        update.add_identity(column)
    table.append(rows_of(10, 40))
    with table.update_spec() as update:
        update.remove_field(column)
    table.append(rows_of(11, 400))
    return table


def test_a_spec_of_a_dropped_column_needs_spark_while_files_have_it(
    catalog_config: Any, make_table: Callable[..., Any], actor: LocalActor
) -> None:
    table = dropped_later(make_table("local_dropped", files=2), "date")
    with table.update_schema() as update:
        update.delete_column("date")
    step = step_of(catalog_config, "local_dropped", **DECLARED)
    actor.engine = EngineType.AUTO
    proposal = step.propose(actor)
    chosen = actor.engine_of(step, proposal.observation, proposal.pending)
    assert chosen.engine is EngineType.SPARK
    assert "partition spec 1" in chosen.why


def test_rows_move_to_partitions_of_a_fixed_length_by_spark_alone(
    catalog_config: Any, make_table: Callable[..., Any], actor: LocalActor
) -> None:
    """Java has a form of its own for such values. Partitions that are there in the form of the
    specification were written by a library like ours: Java could not read them anyway."""
    table = make_table("local_fixed", files=2)
    with table.update_schema() as update:
        update.add_column("f", FixedType(4))
    actor.engine = EngineType.AUTO

    def chosen(**policy: Any) -> Any:
        step = step_of(catalog_config, "local_fixed", **policy)
        proposal = step.propose(actor)
        assert proposal.pending
        return actor.engine_of(step, proposal.observation, proposal.pending)

    fields = {"mode": "Declared", "fields": [{"column": "f", "transform": "identity"}]}
    moved = chosen(layout={"partitioning": fields})
    assert moved.engine is EngineType.SPARK and "fixed[4]" in moved.why
    with table.update_spec() as change:
        change.add_identity("f")
    for number in (10, 11):
        rows = rows_of(number, 400)
        value = pa.array([b"abcd"] * rows.num_rows, pa.binary(4))
        table.append(rows.append_column("f", value))
    assert chosen(**DECLARED).engine is EngineType.LOCAL


def test_an_old_spec_of_a_dropped_column_without_files_is_no_hindrance(
    catalog_config: Any, make_table: Callable[..., Any], actor: LocalActor
) -> None:
    table = dropped_later(make_table("local_dropped_old", files=2), "date")
    table.overwrite(rows_of(12, 3_000).slice(0, 1_500))
    for number in range(13, 16):
        table.append(rows_of(number, 300))
    with table.update_schema() as update:
        update.delete_column("date")
    before = sum(live_rows(table).values())
    step = step_of(catalog_config, "local_dropped_old", **DECLARED)
    done = run_until_converged(step, actor, EVERYTHING, quiet, never, quiet)
    assert done.state.state == CONVERGED
    assert sum(live_rows(table).values()) == before
