"""What a policy on deletes asks of a table, by the table's format version and history."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reconciler.errors import UnsupportedError
from reconciler.loop.decision_settings import compacted_elsewhere_ms, settings_for
from reconciler.loop.history import History
from reconciler.loop.ports import RecordedQueries
from reconciler.queries.coverage import Coverage
from reconciler.queries.fragments import workload_of_fragments
from reconciler.table.observation import SnapshotInfo
from reconciler.table.summary_keys import ATTEMPT_ID
from tests.cli.observations import lineitem
from tests.loop.test_step import policy
from tests.said import Said

NOTHING = workload_of_fragments([])


def _settings(version: int, **deletes: str) -> Any:
    return _settings_of(policy("t", deletes=deletes), version)


def _settings_of(asked: Any, version: int) -> Any:
    seen = replace(lineitem(12, 3), format_version=version)
    return settings_for(
        asked, seen, History(), RecordedQueries(NOTHING, Coverage(1.0, "bytes"), NOTHING),
        target_bytes=1, now_ms=0,
    )  # fmt: skip


@pytest.mark.parametrize("mode", ["Auto", "Keep", "CopyOnWrite", "MergeOnRead"])
@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_mode_holds_where_the_format_has_delete_files(mode: str, version: int) -> None:
    if (mode, version) != ("MergeOnRead", 1):
        assert _settings(version, mode=mode).deletes.mode == mode


def test_merge_on_read_is_refused_where_the_format_has_no_delete_files(said: Said) -> None:
    with pytest.raises(UnsupportedError) as refused:
        _settings(1, mode="MergeOnRead")
    said(refused.value.render())
    upgraded = _settings(1, mode="MergeOnRead", formatVersion="Upgrade").deletes
    assert upgraded.format_version == "Upgrade"


def _snapshot(number: int, operation: str, **summary: str) -> SnapshotInfo:
    named = {name.replace("_", "-"): value for name, value in summary.items()}
    return SnapshotInfo(number, number, 1_000 * number, operation, named)


def test_only_rewrites_of_files_by_others_count_as_compaction_elsewhere() -> None:
    ours = SnapshotInfo(5, 5, 5_000, "replace", {ATTEMPT_ID: "a", "deleted-data-files": "3"})
    history = (
        ours,
        _snapshot(4, "replace", manifests_replaced="3", deleted_data_files="0"),
        _snapshot(3, "replace", removed_delete_files="2"),
        _snapshot(2, "replace", deleted_data_files="2"),
        _snapshot(1, "append", added_data_files="2"),
    )
    seen = lineitem(12, 3)
    assert compacted_elsewhere_ms(replace(seen, ancestry=history)) == 3_000
    assert compacted_elsewhere_ms(replace(seen, ancestry=history[:2])) is None


def test_a_budget_admits_as_much_again_after_its_period_or_its_window() -> None:
    """The shortest of them, in ms."""
    daily: dict[str, Any] = {"name": "daily", "per": "24h", "maxRewriteBytes": "1Gi"}
    night = {"name": "night", "schedule": "0 2 * * *", "duration": "3h", "maxCpuTime": "1h"}
    assert _settings_of(policy("t"), 2).budget_ms == 0
    assert _settings_of(policy("t", budgets=[daily]), 2).budget_ms == 24 * 3_600_000
    assert _settings_of(policy("t", budgets=[daily, night]), 2).budget_ms == 3 * 3_600_000
