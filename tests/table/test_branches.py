"""Which branches a rewrite of main would keep from being published."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reconciler.table.audits import AUDIT
from reconciler.table.branches import live_branch, of_observation
from reconciler.table.metadata import TableMetadata
from reconciler.table.observation import RefInfo, SnapshotInfo
from tests.cli.observations import lineitem

AUDITED = {"write.wap.enabled": "true"}
SEEN = lineitem(2, 1)


def _snapshot(number: int, **summary: str) -> SnapshotInfo:
    return SnapshotInfo(number, number, number, "append", summary)


HISTORY = (_snapshot(3), _snapshot(2, **{"published-wap-id": "q1"}), _snapshot(1))


@pytest.mark.parametrize(
    ("refs", "properties", "others", "branch"),
    [
        ((), {}, (), ""),
        ((RefInfo("archive", "branch", 3),), {}, (), ""),
        ((RefInfo("release", "tag", 9),), AUDITED, (), ""),
        ((RefInfo("audit", "branch", 9),), {}, (_snapshot(9),), "branch audit"),
        ((RefInfo("audit", "branch", 9),), {}, (_snapshot(9, **{AUDIT: "p-1-x/1"}),), ""),
        ((RefInfo("audit", "branch", 3),), AUDITED, (), "branch audit"),
        ((RefInfo("audit", "branch", 2),), AUDITED, (), ""),
        ((), AUDITED, (_snapshot(9, **{"wap.id": "q2"}),), "9 (wap.id q2)"),
        ((), AUDITED, (_snapshot(9, **{"wap.id": "q1"}),), ""),
        ((), {}, (_snapshot(9, **{"wap.id": "q2"}),), ""),
    ],
)
def test_a_branch_is_live_until_it_is_published_or_dropped(
    refs: tuple[RefInfo, ...], properties: dict[str, str], others: Any, branch: str
) -> None:
    main = RefInfo("main", "branch", 3)
    seen = replace(
        SEEN,
        snapshot_id=3,
        refs=(*refs, main),
        metadata=TableMetadata(properties),
        ancestry=HISTORY,
        other_snapshots=others,
    )
    found = live_branch(of_observation(seen))
    assert branch in found and bool(found) is bool(branch)
