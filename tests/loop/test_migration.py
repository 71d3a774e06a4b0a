"""A declared partition spec, from the policy to Converged on real tables."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from reconciler.api.choices import EngineType
from reconciler.api.document_codec import to_document
from reconciler.errors import KeyNotFoundError, UserError
from reconciler.loop.gating import Approvals
from reconciler.loop.local_actor import LocalActor
from reconciler.loop.step import BLOCKED, CONVERGED, IDLE, run_step, run_until_converged
from reconciler.plan.execution import Event
from reconciler.state.state import StateStore
from tests.loop.conftest import rows_of
from tests.loop.test_step import EVERYTHING, multiset, never, quiet, step_of

LATER = dt.datetime.now(dt.UTC) + dt.timedelta(hours=2)


def layout(*fields: tuple[str, str], **more: Any) -> dict[str, Any]:
    declared = [{"column": column, "transform": transform} for column, transform in fields]
    return {
        "partitioning": {"mode": "Declared", "fields": declared, **more},
        "clustering": {"mode": "Declared", "keys": ["k"]},
    }


def spec_ids(table: Any) -> Counter[int]:
    tasks = table.refresh().scan().plan_files()
    return Counter(task.file.spec_id for task in tasks)


def test_a_table_moves_to_months_and_then_to_buckets(catalog_config, make_table, tmp_path):
    table = make_table("moving", files=3, rows=600)
    rows = multiset(table)
    actor = LocalActor(StateStore(tmp_path / "state"), tmp_path / "cache")
    actor.engine = EngineType.LOCAL
    step = step_of(catalog_config, "moving", now=LATER, layout=layout(("date", "month")))

    added: list[Event] = []

    def stop_after_the_spec(event: Event) -> None:
        added.extend([event] if event.phase == "property" else [])

    stopped = run_until_converged(
        step, actor, EVERYTHING, stop_after_the_spec, lambda: bool(added), quiet
    )
    assert [item.action.kind for item in stopped.before.pending] == [
        "AddSpec", "Migrate", "SwitchSpec",
    ]  # fmt: skip
    metadata = table.refresh().metadata
    assert (len(metadata.partition_specs), metadata.default_spec_id) == (2, 0)
    assert multiset(table) == rows and spec_ids(table) == {0: 3}

    late = rows_of(7, 600)

    def one_more_commit(event: Event) -> None:
        """A writer that has not seen the new spec."""
        if event.phase == "committed" and len(multiset(table)) == len(rows):
            table.refresh().append(late)

    steps: list[Any] = []
    done = run_until_converged(step, actor, EVERYTHING, one_more_commit, never, steps.append)
    assert done.state.state == CONVERGED, done.state
    late_rows = Counter(tuple(row.values()) for row in late.to_pylist())
    assert multiset(table) == rows + late_rows
    assert set(spec_ids(table)) == {1} and len(steps) > 1  # the late file moved in a later step
    assert table.metadata.default_spec_id == 1

    step = step_of(catalog_config, "moving", now=LATER, layout=layout(("id", "bucket[2]")))
    done = run_until_converged(step, actor, EVERYTHING, quiet, never, quiet)
    assert done.state.state == CONVERGED, done.state
    assert multiset(table) == rows + late_rows and spec_ids(table) == {2: 2}
    assert done.after.plan.empty


def test_a_trial_moves_one_partition_and_the_rest_waits_for_a_person(
    catalog_config, iceberg_catalog, tmp_path
):
    iceberg_catalog.create_namespace_if_not_exists("loop")
    some = rows_of(0, 300)
    table = iceberg_catalog.create_table("loop.tried", schema=some.schema)
    for number in range(4):  # each file has a range of ids
        field = some.schema.field("id")
        ids = pa.array(range(number * 1_000, number * 1_000 + 300), field.type)
        table.append(some.set_column(some.schema.get_field_index("id"), field, ids))
    rows = multiset(table)
    actor = LocalActor(StateStore(tmp_path / "state"), tmp_path / "cache")
    actor.engine = EngineType.LOCAL
    asked = layout(("id", "truncate[1000]"), trial=True)
    automatic = {
        "approval": {"mode": "Automatic"},
        "budgets": [{"name": "daily", "per": "24h", "maxRewriteBytes": "1Gi"}],
    }
    step = step_of(catalog_config, "tried", now=LATER, layout=asked, **automatic)
    steps: list[Any] = []
    held = run_until_converged(step, actor, Approvals(), quiet, never, steps.append)
    assert [item.action.kind for item in steps[0].before.plan.actions] == ["AddSpec", "Migrate"]
    assert multiset(table) == rows and spec_ids(table) == {0: 3, 1: 1}
    assert table.metadata.default_spec_id == 0
    assert (held.state.state, held.state.reason) == (BLOCKED, "AwaitingApproval")
    assert held.after.plan.evidence["trial"]["held"] is False  # no query shows what it brought
    done = run_until_converged(step, actor, EVERYTHING, quiet, never, quiet)
    assert done.state.state == CONVERGED, done.state
    assert multiset(table) == rows and set(spec_ids(table)) == {1}
    assert table.metadata.default_spec_id == 1


def test_a_spec_that_the_table_cannot_have_is_refused_with_its_field(
    catalog_config, make_table, tmp_path, said
):
    table = make_table("refusing", files=2, rows=500)
    actor = LocalActor(StateStore(tmp_path / "state"), tmp_path / "cache")
    before = table.metadata_location
    for fields, error in (
        ([("dat", "day")], KeyNotFoundError),
        ([("pad", "day")], UserError),
        ([("v", "identity")], UserError),
        ([("date", "day"), ("date", "month")], UserError),
    ):
        step = step_of(catalog_config, "refusing", layout=layout(*fields))
        with pytest.raises(error) as refused:
            step.propose(actor)
        said(refused.value.render())
    assert table.refresh().metadata_location == before


def test_a_table_with_a_risk_keeps_its_spec_and_is_not_converged(
    catalog_config, make_table, tmp_path
):
    table = make_table("risky", files=2, rows=500)
    table.append(rows_of(9, 10), snapshot_properties={"replace-partitions": "true"})
    actor = LocalActor(StateStore(tmp_path / "state"), tmp_path / "cache")
    declared = layout(("date", "day"))
    declared["clustering"] = {"mode": "None"}
    step = step_of(catalog_config, "risky", now=LATER, layout=declared)
    found = run_until_converged(step, actor, EVERYTHING, quiet, never, quiet)
    assert found.state.state == IDLE and "DynamicOverwrites" in found.state.message
    declared["partitioning"]["accept"] = ["DynamicOverwrites"]
    accepted = step_of(catalog_config, "risky", now=LATER, layout=declared).propose(actor)
    assert [item.action.kind for item in accepted.pending] == ["AddSpec", "Migrate", "SwitchSpec"]


def test_an_unpartitioned_table_can_be_declared() -> None:
    from reconciler.api.document_codec import from_document

    body = {
        "apiVersion": "layout.lakehouse.dev/v1alpha1",
        "kind": "TableLayoutPolicy",
        "metadata": {"name": "test"},
        "spec": {
            "catalogRef": {"name": "c"},
            "tables": {"include": ["a.b"]},
            "layout": {"partitioning": {"mode": "Declared", "fields": []}},
        },
    }
    declared = to_document(from_document(body))["spec"]["layout"]["partitioning"]
    assert declared == {"mode": "Declared", "fields": []}


def test_a_table_of_2_000_columns_gets_one_short_message(
    catalog_config, iceberg_catalog, tmp_path
) -> None:
    iceberg_catalog.create_namespace_if_not_exists("loop")
    schema = pa.schema([(f"c{number}", pa.int64()) for number in range(2_000)])
    table = iceberg_catalog.create_table("loop.broad", schema=schema)
    before = table.metadata_location
    actor = LocalActor(StateStore(tmp_path / "state"), tmp_path / "cache")
    with pytest.raises(KeyNotFoundError) as caught:
        step_of(catalog_config, "broad", layout=wide("missing")).propose(actor)
    assert sum(map(len, caught.value.details)) < 200
    proposal = step_of(catalog_config, "broad", layout=wide("c1999")).propose(actor)
    assert [item.action.kind for item in proposal.pending] == ["AddSpec", "SwitchSpec"]
    assert table.refresh().metadata_location == before


def wide(column: str) -> dict[str, Any]:
    return {**layout((column, "bucket[4]")), "clustering": {"mode": "None"}}


def test_a_migration_predicts_the_files_that_it_writes(catalog_config, iceberg_catalog, tmp_path):
    """Values of the columns hang together, so that few of their combinations occur, and a text's
    bounds do not show how many it has. Of each file 1,024 of 1,500 rows are sampled."""
    random = np.random.default_rng(3)

    def drawn(count: int) -> pa.Table:
        number, day = random.integers(0, 60, count), np.minimum(random.geometric(0.05, count), 400)
        start, noon = dt.date(2022, 12, 1), dt.datetime(2023, 1, 1, 12)
        return pa.table({
            "id": random.integers(0, 1 << 40, count),
            "n": pa.array(number, pa.int32()),
            "s": [None if v == 59 else "abcdefghij"[v // 6] + str(v % 3) for v in number],
            "c": pa.array([None if v % 7 == 0 else Decimal(int(v) % 4) for v in number],
                          pa.decimal128(9, 2)),
            "d": [start + dt.timedelta(days=int(x)) for x in day],
            "t": pa.array([noon + dt.timedelta(minutes=7 * int(x)) for x in day],
                          pa.timestamp("us")),
        })  # fmt: skip

    iceberg_catalog.create_namespace_if_not_exists("loop")
    table = iceberg_catalog.create_table("loop.pairs", drawn(1).schema)
    for _ in range(2):
        table.append(drawn(1_500))
    rows = multiset(table)
    actor = LocalActor(StateStore(tmp_path / "state"), tmp_path / "cache")
    actor.engine = EngineType.LOCAL
    for fields in (
        (("c", "identity"), ("s", "truncate[1]")),
        (("n", "bucket[4]"), ("d", "month"), ("t", "year")),
        (("t", "hour"), ("n", "truncate[10]")),
        (("s", "identity"), ("n", "bucket[3]")),
        (("d", "day"),),
    ):
        declared = {"partitioning": layout(*fields)["partitioning"]}
        step = step_of(catalog_config, "pairs", now=LATER, layout=declared)
        done = run_step(step, actor, EVERYTHING, quiet, never)
        moves = [it.predicted for it in done.before.pending if it.action.kind == "Migrate"]
        written = table.refresh().inspect.files()["file_size_in_bytes"].to_pylist()
        assert sum(move.files_out for move in moves) == len(written), fields
        assert sum(move.bytes_out for move in moves) == pytest.approx(sum(written), rel=0.3), fields
        assert sum(move.rewrite_bytes for move in moves) == sum(move.bytes_in for move in moves)
        assert done.state.state == CONVERGED and multiset(table) == rows
