"""Bounds by the policies of a catalog: they only ever make ours more careful."""

from __future__ import annotations

import json
from typing import Any

import pytest

from reconciler.table.catalog_policies import (
    COMPACTION,
    EXPIRY,
    METADATA,
    NO_BOUNDS,
    ORPHANS,
    bounds_of,
)
from reconciler.table.orphans import Search
from reconciler.table.retention import Retention
from reconciler.table.times import DAY_MS

KINDS = {
    "system.data-compaction": COMPACTION, "system.metadata-compaction": METADATA,
    "system.snapshot-expiry": EXPIRY, "system.orphan-file-removal": ORPHANS,
}  # fmt: skip


def one(kind: str, content: Any, name: str = "p") -> dict[str, Any]:
    return {"policy-type": kind, "name": name, "content": content}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [json.dumps, lambda content: content])
def test_what_is_disabled_is_forbidden_and_nothing_else(kind: str, shape: Any) -> None:
    found = bounds_of([one(kind, shape({"version": "2025-02-03", "enable": False}), "mine")])
    assert set(found.forbidden) == {KINDS[kind]}
    assert "mine" in found.forbids(KINDS.values())
    assert bounds_of([one(kind, shape({"enable": True}))]).forbidden == {}


@pytest.mark.parametrize(
    "content",
    [None, "", "{", "[]", "[" * 100_000, '{"enable": "false"}', '{"enable": 0}', "{}", 7],
)
def test_a_document_that_cannot_be_read_forbids_what_it_is_about(content: Any) -> None:
    assert set(bounds_of([one("system.snapshot-expiry", content)]).forbidden) == {EXPIRY}


@pytest.mark.parametrize("document", [None, 3, {}, {"policy-type": "custom.x", "content": "{"}])
def test_a_document_of_another_type_says_nothing(document: Any) -> None:
    assert bounds_of([document]) == NO_BOUNDS


@pytest.mark.parametrize("inner", [None, dict, json.dumps])
def test_settings_bound_ours(inner: Any) -> None:
    """They stand in the document, or in `config`."""

    def content(**settings: Any) -> str:
        body = {"config": inner(settings)} if inner else settings
        return json.dumps({"enable": True, **body})

    found = bounds_of([
        one("system.data-compaction", content(target_file_size_bytes=134217728)),
        one("system.snapshot-expiry", content(max_snapshot_age_days=2, min_snapshot_to_keep=5)),
        one("system.orphan-file-removal", content(max_orphan_file_age_in_days=30,
                                                  older_than=1_707_315_296)),
    ])  # fmt: skip
    assert found.target_bytes == 134217728
    assert found.orphans_before_ms == 1_707_315_296_000
    day, month = Retention(DAY_MS, 9), Retention(30 * DAY_MS, 1)
    assert found.retention(day) == Retention(2 * DAY_MS, 9)
    assert found.retention(month) == Retention(30 * DAY_MS, 5)
    assert found.search(Search(DAY_MS, "x")) == Search(30 * DAY_MS, "x")
    assert found.search(Search(90 * DAY_MS)) == Search(90 * DAY_MS)


@pytest.mark.parametrize("size", [0, -1, 1000, 1 << 60, "many", None, True, float("inf"), [1]])
def test_a_size_that_no_file_should_have_is_not_followed(size: Any) -> None:
    content = {"enable": True, "target_file_size_bytes": size}
    assert bounds_of([one("system.data-compaction", content)]) == NO_BOUNDS


@pytest.mark.parametrize(
    ("kind", "settings"),
    [("snapshot-expiry", {"max_snapshot_age_days": 365_000}),
     ("snapshot-expiry", {"max_snapshot_age_days": "P90D"}),
     ("snapshot-expiry", {"min_snapshot_to_keep": float("inf")}),
     ("snapshot-expiry", {"config": "max_snapshot_age_days=90"}),
     ("orphan-file-removal", {"config": [{"max_orphan_file_age_in_days": 90}]}),
     ("orphan-file-removal", {"max_orphan_file_age_in_days": -1}),
     ("orphan-file-removal", {"older_than": 1_707_315_296_000})],
)  # fmt: skip
def test_what_keeps_files_and_cannot_be_read_forbids_to_remove_them(
    kind: str, settings: dict[str, Any]
) -> None:
    found = bounds_of([one(f"system.{kind}", {"enable": True, **settings})])
    assert len(found.forbidden) == 1


def test_of_two_policies_of_a_type_the_more_careful_one_counts() -> None:
    found = bounds_of([
        one("system.snapshot-expiry", {"enable": True, "max_snapshot_age_days": days,
                                       "min_snapshot_to_keep": least})
        for days, least in ((30, 1), (1.5, 7))
    ] + [
        one("system.orphan-file-removal", {"enable": True, "older_than": moment,
                                           "max_orphan_file_age_in_days": days})
        for moment, days in ((50, 3), (70, 2))
    ])  # fmt: skip
    assert (found.least_age_ms, found.least_snapshots) == (30 * DAY_MS, 7)
    assert (found.orphan_age_ms, found.orphans_before_ms) == (3 * DAY_MS, 50_000)
