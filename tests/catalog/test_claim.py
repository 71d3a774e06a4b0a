"""The ownership claim: one winner, takeover only when asked for, release only of what is ours."""

from __future__ import annotations

import threading
import uuid
from typing import Any

import pyarrow as pa
import pytest

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog.claim import OWNER_PROPERTY, claim, owner_of
from reconciler.catalog.load import connect
from reconciler.errors import UserError
from tests.said import Said

ROWS = pa.table({"id": [1, 2, 3]})
A, B = "cluster-a/analytics", "cluster-b/analytics"


@pytest.fixture(params=["sql", pytest.param("rest", marks=pytest.mark.rest)])
def config(
    request: pytest.FixtureRequest, catalog_config: CatalogConfig, iceberg_catalog: Any
) -> CatalogConfig:
    if request.param == "sql":
        return catalog_config
    served: CatalogConfig = request.getfixturevalue("rest_catalog")
    return served


@pytest.fixture
def table(config: CatalogConfig) -> Any:
    catalog = connect(config)
    catalog.create_namespace_if_not_exists("claims")
    made = catalog.create_table(f"claims.t{uuid.uuid4().hex[:8]}", ROWS.schema)
    made.append(ROWS)
    return made


def test_a_free_table_is_claimed_and_its_rows_stay(config: CatalogConfig, table: Any) -> None:
    assert owner_of(config, table.name()) == ""
    assert claim(config, table.name(), A) == A
    assert owner_of(config, table.name()) == A
    assert table.refresh().scan().to_arrow().num_rows == 3


def test_claiming_again_commits_nothing(config: CatalogConfig, table: Any) -> None:
    claim(config, table.name(), A)
    before = table.refresh().metadata_location
    assert claim(config, table.name(), A) == A
    assert table.refresh().metadata_location == before


def test_a_foreign_owner_keeps_the_table_unless_it_is_named(
    config: CatalogConfig, table: Any
) -> None:
    claim(config, table.name(), A)
    assert claim(config, table.name(), B) == A
    assert claim(config, table.name(), B, expected="someone else") == A
    assert claim(config, table.name(), B, expected=A) == B
    assert claim(config, table.name(), A) == B


def test_of_claims_at_the_same_time_one_wins_and_all_know_it(
    config: CatalogConfig, table: Any
) -> None:
    owners = [f"operator-{number}" for number in range(4)]
    together = threading.Barrier(len(owners))
    answers: dict[str, str] = {}

    def work(owner: str) -> None:
        together.wait()
        answers[owner] = claim(config, table.name(), owner)

    threads = [threading.Thread(target=work, args=(owner,)) for owner in owners]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(answers.values()) == {table.refresh().properties[OWNER_PROPERTY]}


def test_a_claim_decided_on_an_older_reading_is_refused(config: CatalogConfig, table: Any) -> None:
    """Both read "no owner"; the second one's commit must not go through."""
    from pyiceberg.exceptions import CommitFailedException

    from reconciler.catalog.claim import _take

    first = connect(config).load_table(table.name())
    second = connect(config).load_table(table.name())
    assert _take(first, config, A, "") == A
    with pytest.raises(CommitFailedException):
        _take(second, config, B, "")
    assert owner_of(config, table.name()) == A


def test_a_claim_succeeds_among_appends(config: CatalogConfig, table: Any) -> None:
    ended = threading.Event()

    def append() -> None:
        writer = connect(config).load_table(table.name())
        while not ended.is_set():
            writer.refresh().append(ROWS)
            ended.wait(0.2)

    appender = threading.Thread(target=append)
    appender.start()
    try:
        assert claim(config, table.name(), A) == A
    finally:
        ended.set()
        appender.join()


def test_a_table_without_a_snapshot_can_be_claimed(config: CatalogConfig, table: Any) -> None:
    made = connect(config).create_table(f"claims.e{uuid.uuid4().hex[:8]}", ROWS.schema)
    assert claim(config, made.name(), A) == A
    assert made.refresh().scan().to_arrow().num_rows == 0


def test_a_missing_table_is_one_clear_message(
    config: CatalogConfig, table: Any, said: Said
) -> None:
    with pytest.raises(UserError) as refused:
        claim(config, ("claims", "missing"), A)
    said(refused.value)
