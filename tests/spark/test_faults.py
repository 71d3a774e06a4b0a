"""kill -9 before, in and after commits, with a concurrent appender: rows exact, nothing left."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import faults

pytestmark = pytest.mark.jvm


def test_six_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    report = faults.run([*faults.PHASES, *faults.PHASES], tmp_path)
    assert report.problems == []
    assert report.kills == {"before": 2, "in": 2, "after": 2}
    assert report.commits > 0
