"""Block ids from the policy to the routed query, as Spark reads both."""

from __future__ import annotations

import pytest

from reconciler.catalog.observe import observe_table
from reconciler.loop.route import Routed, route
from reconciler.loop.step import CONVERGED, run_until_converged
from tests.loop.test_step import (
    EVERYTHING,
    actor,
    never,
    queries_on,
    quiet,
    step_of,
)

assert actor  # a fixture
BLOCK = "layout_block"
POLICY = {"layout": {"clustering": {"mode": "QdTree", "qdTree": {"blockColumn": BLOCK}}}}


@pytest.mark.spark
def test_a_policy_leads_to_routed_queries_that_stay_right(
    spark, catalog_config, make_table, actor, iceberg_catalog, tmp_path
):
    table = make_table("routed", files=12, rows=6_000)
    actor.store.append_fragments(queries_on(table, "day", 400, 10, 400))
    actor.store.append_fragments(queries_on(table, "k", 400, 1_000, 100_000))
    actor.spark = spark
    done = run_until_converged(
        step_of(catalog_config, "routed", **POLICY), actor, EVERYTHING, quiet, never, quiet
    )
    assert done.state.state == CONVERGED
    sql = "SELECT id FROM rec.loop.routed WHERE k BETWEEN 5000 AND 6000 AND day < 30"

    def routed() -> Routed:
        seen = observe_table(catalog_config, ("loop", "routed"), tmp_path / "look")
        found = route(seen, sql)
        assert spark.sql(found.sql).count() == spark.sql(sql).count() > 0
        return found

    first = routed()
    assert first.changed and first.reads[0].files_after < len(table.refresh().inspect.files())
    batch = table.scan(limit=50).to_arrow().drop_columns([BLOCK])
    table.append(batch)
    appended = spark.sql(first.sql).count()
    assert appended == spark.sql(sql).count(), "an append without ids needs no new route"
    spark.sql("UPDATE rec.loop.routed SET day = 3, k = 5500 WHERE id % 997 = 5")
    assert routed().reads[0].notes, "ids that were copied keep all of their files"
