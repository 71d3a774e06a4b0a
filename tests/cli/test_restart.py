"""A process that is killed between two decisions takes nothing with it: forecast, window, credit
and the next plan are the same in a process that saw all of it and in one that starts anew."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml
from pyiceberg.catalog import load_catalog

from tests.cli.in_process import isolate, runner
from tests.conftest import sqlite_catalog

POLICY = """\
apiVersion: layout.lakehouse.dev/v1alpha1
kind: TableLayoutPolicy
metadata: {name: mine}
spec:
  catalogRef: {name: rec}
  tables: {include: ["d.*"]}
  layout: {clustering: {mode: WorkloadAware}, files: {targetSize: 128Ki}}
  approval: {mode: Automatic}
  budgets: [{name: day, per: 24h, maxRewriteBytes: 1Gi}]
  recluster: %s
"""
KILLED = """\
import os, signal, sys
from reconciler.cli.main import main
try:
    main()
except SystemExit:
    os.kill(os.getpid(), signal.SIGKILL)
"""


def _log(path: Path, column: str, count: int, start: dt.datetime) -> None:
    lines = [
        {"sql": f"select pad from d.t where {column} between {40 * n} and {40 * n + 40}",
         "timestamp": (start + dt.timedelta(hours=n / 2)).isoformat()}
        for n in range(count)
    ]  # fmt: skip
    path.write_text("\n".join(map(json.dumps, lines)))


def _table(directory: Path) -> None:
    config = sqlite_catalog(directory)
    catalog = load_catalog("rec", **config.properties)
    catalog.create_namespace("d")
    random, columns = np.random.default_rng(5), ["a", "b"]
    schema = pa.schema([(name, pa.int64()) for name in columns] + [("pad", pa.string())])
    table = catalog.create_table("d.t", schema)
    for _ in range(6):
        rows = {name: random.integers(0, 9_000, 4_000) for name in columns}
        pads = [random.bytes(8).hex() for _ in range(4_000)]
        table.append(pa.table({**rows, "pad": pads}, schema))
    (directory / ".pyiceberg.yaml").write_text(
        yaml.safe_dump({"catalog": {"rec": dict(config.properties)}})
    )


def _known(found: list[str]) -> list[Any]:
    """What the plan and the history say, but for when the plan was printed, and the free memory of
    the machine then."""
    plan, history = (json.loads(one) for one in found)
    for name in ("createdAt", "expiresAt", "digest", "engine"):
        plan.pop(name, None)
    return [plan, history]


@pytest.mark.parametrize("recluster", ["{aggressiveness: Aggressive}", "{method: Literal}"])
def test_a_killed_process_takes_nothing_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, recluster: str
) -> None:
    _table(tmp_path)
    (tmp_path / "policy.yaml").write_text(POLICY % recluster)
    now = dt.datetime.now(dt.UTC)
    _log(tmp_path / "before.jsonl", "a", 200, now - dt.timedelta(hours=101))
    _log(tmp_path / "after.jsonl", "b", 40, now + dt.timedelta(hours=1))
    isolate(monkeypatch, tmp_path, tmp_path, tmp_path / "state", tmp_path / "cache")
    cli = runner(monkeypatch, capsys)
    table, asked = ("-f", "policy.yaml", "rec.d.t"), ("plan", "history")
    assert cli("workload", "import", "before.jsonl", "--catalog", "rec")[0] == 0
    done = cli("apply", *table)
    assert done[0] == 0, done
    stays = [cli(verb, *table, "-o", "json")[1] for verb in asked]
    assert cli("workload", "import", "after.jsonl", "--catalog", "rec")[0] == 0
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, "plan", *table], capture_output=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL and b"rec.d.t" in killed.stdout
    before, after = _known(stays), _known([cli(verb, *table, "-o", "json")[1] for verb in asked])
    anew = dict(os.environ, LAYOUTCTL_CACHE=str(tmp_path / "empty"))
    fresh = [
        subprocess.run(
            [sys.executable, "-m", "reconciler.cli.main", verb, *table, "-o", "json"],
            env=anew, capture_output=True, text=True, check=True,
        ).stdout
        for verb in asked
    ]  # fmt: skip
    assert _known(fresh) == after
    (plan, history), (earlier, _) = after, before
    assert plan["evidence"]["workload"]["rates"] != earlier["evidence"]["workload"]["rates"]
    (done,) = history["items"]
    assert done["realisedQueries"] == 40 and done["costBytes"] > 0
