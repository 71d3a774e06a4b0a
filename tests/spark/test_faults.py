"""kill -9 before, in and after commits, with a concurrent appender: rows exact, nothing left."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import faults

pytestmark = pytest.mark.jvm
SEED = 7
"""Of the number of commits before each kill; `bench.faults` takes other seeds and more kills."""


def test_a_kill_in_each_phase_loses_and_doubles_nothing(tmp_path: Path) -> None:
    report = faults.run(faults.PHASES, tmp_path, seed=SEED)
    assert report.problems == []
    assert report.kills == dict.fromkeys(faults.PHASES, 1)
    assert report.commits > 0


@pytest.mark.soak
@pytest.mark.parametrize("work", [faults.APPLY, faults.CONVERT, faults.COMPACT])
def test_a_kill_in_each_phase_of_delete_maintenance_brings_no_row_back(
    tmp_path: Path, work: str
) -> None:
    report = faults.run(faults.PHASES, tmp_path, seed=SEED, work=work)
    assert report.problems == []
    assert report.kills == dict.fromkeys(faults.PHASES, 1)
    assert report.commits > 0


@pytest.mark.soak
@pytest.mark.parametrize("work", faults.UPKEEP)
def test_a_kill_in_each_phase_of_a_removal_or_an_expiry_loses_no_row(
    tmp_path: Path, work: str
) -> None:
    report = faults.run(faults.PHASES, tmp_path, seed=SEED, work=work)
    assert report.problems == []
    assert report.kills == dict.fromkeys(faults.PHASES, 1)
