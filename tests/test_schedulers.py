"""The examples for schedulers run as the docs have them, where the scheduler is installed.

`layoutctl` is a stand-in that ends with a given code: what a scheduler makes of it is tested.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs/operations/schedulers.md"
LAYOUTCTL = """#!/bin/sh
echo "$@" > "$(dirname "$0")/called"
echo '{"tables": 1}'
exit %d
"""
DAGSTER = """
result = dg.materialize([dg.AssetSpec("orders"), orders_layout], raise_on_error=False)
print("state=success" if result.success else "state=failed")
"""


def example(name: str) -> str:
    """Return the Python of a section of the page."""
    section = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)
    (body,) = [part for part in section if part.startswith(f"{name}\n")]
    (code,) = re.findall(r"```python\n(.*?)```", body, re.DOTALL)
    return str(code)


def ended(directory: Path, code: int, *command: str) -> tuple[set[str], list[str]]:
    """Run a command beside a layoutctl that ends with this code; return the states that it printed,
    and the arguments of layoutctl."""
    program = directory / "bin/layoutctl"
    program.parent.mkdir(exist_ok=True)
    program.write_text(LAYOUTCTL % code)
    program.chmod(0o755)
    env = {
        **os.environ,
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "AIRFLOW_HOME": str(directory), "DAGSTER_HOME": str(directory),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False", "AIRFLOW__CORE__DAGS_FOLDER": str(directory),
    }  # fmt: skip
    done = subprocess.run(
        command, cwd=directory, env=env, capture_output=True, text=True, check=False, timeout=300
    )
    called = program.with_name("called")
    states = set(re.findall(r"\bstate=(\w+)|new_state=(\w+)", done.stdout + done.stderr))
    return {
        one or other for one, other in states
    }, called.read_text().split() if called.exists() else []


@pytest.mark.skipif(importlib.util.find_spec("dagster") is None, reason="dagster is not installed")
@pytest.mark.parametrize(("code", "expected"), [(0, "success"), (3, "success"), (1, "failed")])
def test_the_asset_of_dagster_fails_as_layoutctl_does(
    tmp_path: Path, code: int, expected: str
) -> None:
    (tmp_path / "assets.py").write_text(example("Dagster") + DAGSTER)
    states, called = ended(tmp_path, code, sys.executable, "assets.py")
    assert states == {expected}
    assert called[:2] == ["apply", "prod.sales.orders"]


@pytest.mark.skipif(importlib.util.find_spec("airflow") is None, reason="airflow is not installed")
@pytest.mark.parametrize(("code", "expected"), [(0, "success"), (3, "skipped"), (1, "failed")])
def test_the_task_of_airflow_ends_as_layoutctl_does(
    tmp_path: Path, code: int, expected: str
) -> None:
    (tmp_path / "layout.py").write_text(example("Airflow"))
    airflow = str(Path(sys.executable).with_name("airflow"))
    ended(tmp_path, code, airflow, "db", "migrate")
    states, called = ended(tmp_path, code, airflow, "dags", "test", "layout")
    assert expected in states
    assert called == ["apply", "prod.sales.orders", "-f", "/policies", "--yes"]


@pytest.mark.skipif(importlib.util.find_spec("dbt") is None, reason="dbt is not installed")
@pytest.mark.parametrize(("code", "expected"), [(0, 0), (3, 0), (1, 1)])
def test_the_script_of_dbt_ends_as_layoutctl_does(tmp_path: Path, code: int, expected: int) -> None:
    (tmp_path / "dbt_project.yml").write_text(
        "name: shop\nversion: '1.0.0'\nprofile: shop\nmodels: {+materialized: table}\n"
    )
    (tmp_path / "profiles.yml").write_text(
        "shop: {target: dev, outputs: {dev: {type: duckdb, path: shop.db}}}\n"
    )
    (tmp_path / "models").mkdir()
    (tmp_path / "models/orders.sql").write_text("select 1 as id")
    (tmp_path / "run.py").write_text(example("dbt") + "\n")
    (tmp_path / "ended.py").write_text(
        "import subprocess, sys\n"
        "print(f'state={subprocess.run([sys.executable, \"run.py\"]).returncode}')\n"
    )
    states, called = ended(tmp_path, code, sys.executable, "ended.py")
    assert states == {str(expected)}
    assert called == ["apply", "prod.main.orders", "-f", "policies", "--yes"]
