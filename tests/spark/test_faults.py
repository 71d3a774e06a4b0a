"""kill -9 before, in and after commits, with a concurrent appender: rows exact, nothing left.

Each kill is a JVM, so the suite kills in a commit only. What a rewrite leaves that ends before or
after its commit is in test_resume, without a kill; a run of the Local engine is killed in
tests/loop/test_local_engine.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import faults

pytestmark = pytest.mark.jvm
SEED = 7
"""Of the number of commits before each kill; `bench.faults` takes other seeds and more kills."""


@pytest.mark.parametrize("phases", [("in",), pytest.param(faults.PHASES, marks=pytest.mark.soak)])
def test_a_kill_loses_and_doubles_nothing(tmp_path: Path, phases: tuple[str, ...]) -> None:
    report = faults.run(phases, tmp_path, seed=SEED)
    assert report.problems == []
    assert report.kills == dict.fromkeys(phases, 1)
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
