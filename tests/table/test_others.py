"""Who else rewrites a table: told by properties, location and history, each alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reconciler.table.observation import Observation, SnapshotInfo
from reconciler.table.others import SEEN_MS, other_optimizer, paused_because
from reconciler.table.summary_keys import ATTEMPT_ID
from tests.cli.observations import lineitem

NOW = 1_790_000_000_000
REPLACED = {"deleted-data-files": "4", "added-data-files": "1"}


def seen(
    *history: tuple[str, int, dict[str, str]],
    location: str = "s3://lake/t",
    properties: dict[str, str] | None = None,
) -> Observation:
    """A table with these snapshots: operation, age in milliseconds, summary."""
    made = lineitem(4, 1)
    ancestry = tuple(
        SnapshotInfo(number, number, NOW - age, operation, summary)
        for number, (operation, age, summary) in enumerate(history, start=1)
    )
    metadata = replace(made.metadata, properties=properties or {})
    return replace(made, ancestry=ancestry, location=location, metadata=metadata)


@pytest.mark.parametrize(
    "table",
    [
        seen(("append", 1, {"added-data-files": "4"})),
        seen(("replace", 1, {**REPLACED, ATTEMPT_ID: "ours"})),
        seen(("replace", SEEN_MS + 1, REPLACED)),
        seen(("replace", 1, {"manifests-replaced": "9"})),
        seen(("replace", 1, {"deleted-data-files": "0"})),
        seen(("overwrite", 1, REPLACED)),
        seen(properties={"self-optimizing.enabled": "false", "self-optimizing.group": "g"}),
        seen(properties={"write.target-file-size-bytes": "1"}),
        seen(location="s3://lake/--table-s3-notes/t"),
    ],
)
def test_a_table_of_ours_alone_has_no_other(table: Observation) -> None:
    assert other_optimizer(table, NOW) == ""


@pytest.mark.parametrize(
    ("table", "evidence"),
    [
        (seen(("replace", SEEN_MS - 1, REPLACED)), "1 commit"),
        (seen(("replace", 9, {**REPLACED, "engine-name": "trino"}), ("append", 10, {}),
              ("replace", 20, REPLACED)), "2 commits"),
        (seen(("replace", 1, {"removed-delete-files": "2"})), "1 commit"),
        (seen(properties={"self-optimizing.group": "default"}), "self-optimizing.group"),
        (seen(properties={"self-optimizing.enabled": "true"}), "self-optimizing.enabled"),
        (seen(location="s3://6f2a--table-s3"), "S3 Tables"),
        (seen(location="abfss://c@a.dfs.core.windows.net/__unitystorage/catalogs/1/tables/2"),
         "Unity Catalog"),
    ],
)  # fmt: skip
def test_another_optimizer_is_told_by_one_sign(table: Observation, evidence: str) -> None:
    assert evidence in other_optimizer(table, NOW)


def test_the_last_rewrite_is_named_with_its_engine_and_every_sign_is_told() -> None:
    last = {**REPLACED, "engine-name": "spark"}
    table = seen(
        ("replace", 5, last), ("replace", 6, REPLACED), properties={"self-optimizing.group": "g"}
    )
    text = other_optimizer(table, NOW)
    assert "spark" in text and "self-optimizing.group" in text


@pytest.mark.parametrize(
    ("value", "why"),
    [(None, None), ("", None), ("false", None), ("False ", None), ("true", ""),
     ("moving", "moving"), ("x" * 999, "x" * 200),
     ("a\n  plan p-1\tapproved", "a plan p-1 approved")],
)  # fmt: skip
def test_a_table_is_paused_by_its_property_with_a_reason(value: Any, why: str | None) -> None:
    text = paused_because({} if value is None else {"layout.paused": value})
    assert bool(text) == (why is not None)
    assert text.endswith(why or "") and len(text) < 300
