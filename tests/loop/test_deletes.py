"""Tables with delete files, from the observation to Converged, on real tables."""

from __future__ import annotations

import datetime as dt

import pytest

from reconciler.loop.local_actor import LocalActor
from reconciler.loop.step import CONVERGED, run_until_converged
from reconciler.state.state import StateStore
from tests.loop.test_step import EVERYTHING, multiset, never, quiet, step_of

LATER = dt.datetime.now(dt.UTC) + dt.timedelta(hours=2)
"""After the quiet period of the deletes that the test makes."""


@pytest.mark.spark
def test_a_table_with_many_deleted_rows_drops_them_and_converges(
    spark, catalog_config, make_table, tmp_path
):
    table = make_table("deleted", files=6, rows=2_000)
    full = f"{catalog_config.name}.loop.deleted"
    spark.sql(f"REFRESH TABLE {full}")
    spark.sql(
        f"ALTER TABLE {full} SET TBLPROPERTIES ('write.delete.mode'='merge-on-read', "
        "'write.delete.granularity'='partition')"
    )
    for rest in (0, 1, 2):
        spark.sql(f"DELETE FROM {full} WHERE day % 7 = {rest}")
    rows = multiset(table)
    actor = LocalActor(StateStore(tmp_path / "state"), tmp_path / "cache")
    actor.spark = spark
    step = step_of(catalog_config, "deleted", now=LATER)
    steps = []
    done = run_until_converged(step, actor, EVERYTHING, quiet, never, steps.append)
    assert done.state.state == CONVERGED, done.state
    assert multiset(table) == rows
    kinds = {item.action.kind for s in steps for item in s.before.plan.actions}
    assert "ApplyDeletes" in kinds
    assert done.after.observation.files.records.sum() == sum(rows.values())
