"""Partitions that the engine without a JVM could take for others, or for none: deleted rows stay
deleted, and every reader opens what was committed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.transforms import MonthTransform, TruncateTransform
from pyiceberg.types import DateType, DecimalType

from reconciler.loop.gating import Approvals
from reconciler.loop.local_actor import LocalActor
from reconciler.loop.step import CONVERGED, run_step, run_until_converged
from tests.delete_commits import delete_equal, delete_positions
from tests.loop.conftest import rows_of
from tests.loop.test_local_engine import data_files, live_rows
from tests.loop.test_migration import layout, spec_ids
from tests.loop.test_step import DECLARED, EVERYTHING, never, quiet, step_of

LATER = dt.datetime.now(dt.UTC) + dt.timedelta(hours=2)
PRICE = Decimal("1.00")


@pytest.mark.parametrize("truncated", [False, True])
@pytest.mark.parametrize("policy", [{"deletes": {"compaction": "Minor"}}, DECLARED])
def test_a_delete_in_a_partition_of_a_widened_decimal_still_applies(
    catalog_config: Any,
    iceberg_catalog: Any,
    actor: LocalActor,
    policy: dict[str, Any],
    truncated: bool,
) -> None:
    """Manifests hold the value in 8 bytes before, and in 9 after the column was widened."""
    iceberg_catalog.create_namespace_if_not_exists("loop")
    prices = pa.array([PRICE] * 400, pa.decimal128(18, 2))
    rows = rows_of(0, 400).append_column("price", prices)
    name = f"widened_{truncated}_{'layout' in policy}"
    table = iceberg_catalog.create_table(f"loop.{name}", schema=rows.schema)
    with table.update_spec() as update:
        if truncated:
            update.add_field("price", TruncateTransform(10), "price_part")
        else:
            update.add_identity("price")
    for number in range(4):
        table.append(rows_of(number, 400).append_column("price", prices))
    with table.update_schema() as update:
        update.update_column("price", DecimalType(20, 2))
    gone = list(range(0, 1_600, 2))
    delete_equal(table.refresh(), "id", gone, spec_id=table.spec().spec_id, partition=[PRICE])
    before = live_rows(table)
    assert sum(before.values()) == 800
    step = step_of(catalog_config, name, now=LATER, **policy)
    run_until_converged(step, actor, EVERYTHING, quiet, never, quiet)
    assert live_rows(table) == before


def test_a_delete_of_a_spec_with_void_fields_alone_applies_everywhere(
    catalog_config: Any, iceberg_catalog: Any, actor: LocalActor
) -> None:
    """Format 1 keeps a removed field as a void one."""
    iceberg_catalog.create_namespace_if_not_exists("loop")
    table = iceberg_catalog.create_table(
        "loop.voided", schema=rows_of(0, 10).schema, properties={"format-version": "1"}
    )
    with table.update_spec() as update:
        update.add_field("day", TruncateTransform(1_000), "part")
    for number in range(4):
        table.append(rows_of(number, 300))
    with table.update_spec() as update:
        update.remove_field("part")
    with table.transaction() as transaction:
        transaction.upgrade_table_version(2)
    spec = table.refresh().spec()
    assert spec.spec_id == 2 and len(spec.fields) == 1
    gone = list(range(0, 1_200, 3))
    delete_equal(table, "id", gone, spec_id=spec.spec_id, partition=[None])
    before = live_rows(table)
    assert sum(before.values()) == 800
    step = step_of(catalog_config, "voided", now=LATER, **DECLARED)
    run_until_converged(step, actor, EVERYTHING, quiet, never, quiet)
    assert live_rows(table) == before


def test_a_new_partition_field_gets_a_name_that_no_kept_field_has(
    catalog_config: Any, iceberg_catalog: Any, actor: LocalActor
) -> None:
    """The column of the old field was renamed, and another one has its name now."""
    iceberg_catalog.create_namespace_if_not_exists("loop")
    rows = rows_of(0, 100).rename_columns(["id", "day", "k", "v", "ts", "pad"])
    table = iceberg_catalog.create_table("loop.named", schema=rows.schema)
    with table.update_spec() as update:
        update.add_field("ts", MonthTransform(), "ts_month")
    table.append(rows)
    with table.update_schema() as update:
        update.rename_column("ts", "ts_old")
    with table.update_schema() as update:
        update.add_column("ts", DateType())
    declared = layout(("ts_old", "month"), ("ts", "month"))
    step = step_of(catalog_config, "named", now=LATER, layout=declared)
    done = run_until_converged(step, actor, EVERYTHING, quiet, never, quiet)
    assert done.state.state == CONVERGED
    names = [field.name for field in table.refresh().spec().fields]
    assert len(set(names)) == len(names) == 2
    assert len(table.scan().to_arrow()) == 100


def test_what_waits_on_a_branch_is_judged_with_the_deletes_that_it_leaves(
    catalog_config: Any, make_table: Callable[..., Any], actor: LocalActor
) -> None:
    """Position deletes of four files, which the waiting batch applies."""
    table = make_table("local_judged", files=4, rows=500)
    for path in data_files(table):
        delete_positions(table.refresh(), path, list(range(100)))
    before = live_rows(table)
    candidate = {"branch": "candidate", "approval": "Required"}
    step = step_of(catalog_config, "local_judged", now=LATER, safety=candidate, **DECLARED)
    held = run_step(step, actor, EVERYTHING, quiet, never)
    assert [item.action.kind for item in held.after.pending] == ["Publish"]
    done = run_step(step, actor, Approvals(held.after.plan.id), quiet, never)
    assert done.result is not None and done.result.done
    assert live_rows(table) == before


def test_files_of_a_spec_of_a_dropped_column_that_were_moved_away_are_no_hindrance(
    catalog_config: Any, make_table: Callable[..., Any], actor: LocalActor
) -> None:
    """Main's head still lists the manifest that says what was removed."""
    table = make_table("local_moved_away", files=3, rows=400)
    with table.update_spec() as update:
        update.add_field("k", TruncateTransform(100_000), "part")
    table.append(rows_of(3, 400))
    step = step_of(catalog_config, "local_moved_away", now=LATER, layout=layout(("date", "month")))
    run_until_converged(step, actor, EVERYTHING, quiet, never, quiet)
    assert set(spec_ids(table)) == {2}
    with table.update_schema() as update:
        update.delete_column("k")
    before = sum(live_rows(table).values())
    by_day = {**layout(("date", "month")), "clustering": {"mode": "Declared", "keys": ["day"]}}
    step = step_of(catalog_config, "local_moved_away", now=LATER, layout=by_day)
    done = run_until_converged(step, actor, EVERYTHING, quiet, never, quiet)
    assert done.state.state == CONVERGED
    assert sum(live_rows(table).values()) == before
