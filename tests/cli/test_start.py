"""What a command imports, and what Python does with it: counts that no machine changes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bench.lake import Lake
from bench.start import HEAVY, nothing_to_do

MOST_MODULES = 1205
"""Of a run that finds nothing to do, all packages included; 1,202 on 2026-11-28. Each takes about a
millisecond of CPU. Raise the number only for what such a run needs."""
MOST_OF_OURS = 385
"""Of these, ours; 383 on 2026-11-28."""
UNUSED = {"duckdb", "pyspark", "kubernetes", "sqlglot", "boto3", "pyiceberg.catalog.rest"}
"""Packages that such a run has no use for."""
RUN = """
import atexit, gc, json, sys
atexit.register(lambda: print(json.dumps(
    [sorted(sys.modules), gc.get_stats()[2]["collections"], gc.get_freeze_count()]
)))
from reconciler.cli.main import main
main()
"""


def test_a_run_that_finds_nothing_to_do_imports_little_and_never_searches_it_for_garbage(
    tmp_path: Path,
) -> None:
    lake = Lake(tmp_path)
    done = lake.run([sys.executable, "-c", RUN, *nothing_to_do(lake)])
    modules, collections, frozen = json.loads(done.stdout.splitlines()[-1])
    ours = [name for name in modules if name.split(".")[0] == "reconciler"]
    assert len(ours) <= MOST_OF_OURS and len(modules) <= MOST_MODULES
    assert not UNUSED & set(modules) and "reconciler.advisor.decide" in modules
    assert collections == 0
    assert frozen > 100_000  # so that the end of the process searches nothing either


def test_files_of_a_store_are_opened_without_sqlalchemy() -> None:
    """Processes of Local's pool load this, and so does a run on a REST catalog."""
    script = (
        "import sys, reconciler.catalog.vended, reconciler.catalog.border_rest\n"
        "print('sqlalchemy' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "False\n"


def test_the_help_of_all_verbs_imports_nothing_heavy() -> None:
    script = (
        "import sys\nfrom reconciler.cli.main import build\nbuild()\n"
        f"print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"
