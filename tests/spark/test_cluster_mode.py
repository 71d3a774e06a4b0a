"""Executors in processes of their own: the rewrite rests on nothing that only one JVM has.

local-cluster starts Spark's standalone master and workers: tasks, broadcasts and shuffles cross
process borders as they do between pods, and a lost executor is a real one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.jvm

DRIVER = Path(__file__).parent / "cluster_mode_driver.py"


def test_a_rewrite_runs_on_executors_of_their_own_and_survives_one_that_is_killed(
    tmp_path: Path,
) -> None:
    """In a process of its own: one JVM a process."""
    done = subprocess.run(
        [sys.executable, str(DRIVER), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=850,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-5000:]
    passed = re.findall(r"^passed (\w+)$", done.stdout, re.M)
    assert passed == ["memory", "cluster", "witness", "sample", "kill"]
