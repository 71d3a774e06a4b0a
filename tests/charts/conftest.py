"""The chart rendered with values."""

from __future__ import annotations

import functools
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from charts import sync

Objects = list[dict[str, Any]]
Render = Callable[..., Objects]


@pytest.fixture(scope="session")
def template(helm: Path) -> Callable[[dict[str, Any]], subprocess.CompletedProcess[str]]:
    """`helm template` of release "lake" in namespace "ops" with the values given."""

    @functools.cache
    def of_text(values: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(helm), "template", "lake", str(sync.CHART), "-n", "ops", "-f", "-"],
            input=values, capture_output=True, text=True, check=False,
        )  # fmt: skip

    return lambda values: of_text(json.dumps(values))


@pytest.fixture(scope="session")
def render(template: Callable[[dict[str, Any]], subprocess.CompletedProcess[str]]) -> Render:
    """The objects that the chart makes of values."""

    def run(values: dict[str, Any] | None = None) -> Objects:
        done = template(values or {})
        assert done.returncode == 0, done.stderr
        return [found for found in yaml.safe_load_all(done.stdout) if found]

    return run


def of_kind(objects: Objects, kind: str, name: str | None = None) -> Objects:
    return [
        found for found in objects
        if found["kind"] == kind and name in (None, found["metadata"]["name"])
    ]  # fmt: skip


def read_objects(path: Path) -> Objects:
    return [found for found in yaml.safe_load_all(path.read_text()) if found]
