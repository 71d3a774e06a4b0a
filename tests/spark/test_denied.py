"""A catalog that may be read but not changed: the first commit says so, and nothing is left."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.errors import AccessDeniedError
from reconciler.loop.driver_job import _message_of
from reconciler.plan.actions.rewrite import Cluster
from reconciler.plan.actions.set_properties import SetProperties
from reconciler.spark.commit import java_commit
from tests.gateway import DENIED, Gateway
from tests.spark.tables import Bench

pytestmark = [pytest.mark.spark, pytest.mark.rest]


def _table(bench: Bench) -> str:
    table = bench.create("id bigint")
    bench.write(table, 4, 2, "if(n = 0, file, 10 - file)")
    return table


def test_a_commit_that_the_catalog_forbids_is_reported_once_and_leaves_nothing(
    gateway_bench: Bench, gateway: Gateway
) -> None:
    bench = gateway_bench
    table = _table(bench)
    before = bench.rows(table)
    request = bench.request(table, bench.action(table, Cluster, "id"))
    gateway.closed = True
    with pytest.raises(AccessDeniedError, match=table) as caught:
        bench.run(request)
    assert gateway.refused == 1
    assert "may not" in caught.value.said[0]
    assert "may not" not in _message_of(caught.value)[0]  # what status and events repeat
    assert bench.rows(table) == before
    assert bench.leftovers(table) == []
    assert bench.ledger.open_intents(request.table_uuid) == ()
    gateway.closed = False
    assert bench.run(request).commits == 1


def test_a_refusal_after_the_commit_has_arrived_counts_as_a_commit(
    gateway_bench: Bench, gateway: Gateway
) -> None:
    """A gateway sends the request twice, with a token that has expired the second time."""
    bench = gateway_bench
    table = _table(bench)
    before = bench.rows(table)
    gateway.fails(DENIED)
    result = bench.run(bench.request(table, bench.action(table, Cluster, "id")))
    assert gateway.faults == 1
    assert (result.commits, result.done) == (1, True)
    assert bench.rows(table) == before
    assert len(bench.paths(table)) == 1
    assert bench.leftovers(table) == []


def test_a_property_that_may_not_be_set_is_reported_as_denied(
    gateway_bench: Bench, gateway: Gateway
) -> None:
    bench = gateway_bench
    table = _table(bench)
    change = SetProperties(old=(("a.b", None),), new=(("a.b", "1"),))
    gateway.closed = True
    with pytest.raises(AccessDeniedError, match=table):
        bench.run(bench.request(table, change))


@pytest.mark.parametrize(
    ("state", "denied"),
    [("42501", True), ("42000", True), ("25006", False), ("08006", False), ("40001", False)],
)
def test_a_database_that_refuses_the_statement_took_nothing(
    spark: Any, state: str, denied: bool
) -> None:
    """A lost connection says nothing about what became of the commit, and neither does a standby
    that was reached after it."""
    java = spark._jvm.java
    cause = java.sql.SQLException("for table iceberg_tables", state)
    thrown = java.lang.RuntimeException("Unknown failure", cause)
    assert java_commit.is_denied(spark, thrown) is denied
