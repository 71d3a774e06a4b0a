"""`layoutctl undo` as a user meets it: shown, saved, carried out by `apply`, refused in words."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from reconciler.plan.plan import plan_from_document
from tests.cli.in_process import Cli
from tests.cli.test_plan_apply import cli, declared, name_of, policy_file

__all__ = ["cli"]


def test_a_plan_is_taken_back_and_files_are_as_before(
    cli: Cli, scattered: Any, tmp_path: Path
) -> None:
    name, policy = (
        name_of(scattered),
        policy_file(tmp_path / "p.yaml", scattered, **declared("day")),
    )
    assert cli("undo", name, "-f", policy)[0] == 1
    assert cli("undo", name, "p-1", "-f", policy)[0] == 1
    before = sorted(task.file.file_path for task in scattered.scan().plan_files())
    assert cli("apply", name, "-f", policy, "--yes", "--engine", "Local")[0] == 0
    (plan,) = {
        item["planId"] for item in json.loads(cli("history", name, "-o", "json")[1])["items"]
    }
    code, text, _ = cli("undo", name, "-f", policy)
    assert code == 0 and plan in text
    code, out, _ = cli("undo", name, plan, "-f", policy, "-o", "json", "--out", "undo.json")
    made = json.loads(out)
    assert code == 0 and made["evidence"]["undo"]["plan"] == plan
    assert plan_from_document(made).id == made["planId"]
    code, told, _ = cli("apply", "undo.json", "--yes", "--engine", "Local")
    assert code == 0
    assert re.search(rf"files +{len(before)} +{len(before)} +was", told), told
    after = sorted(task.file.file_path for task in scattered.refresh().scan().plan_files())
    assert after == before
    assert cli("apply", "undo.json", "--yes", "--engine", "Local")[0] == 0
    assert json.loads(cli("plan", name, "-f", policy, "-o", "json")[1])["actions"] == []
    assert cli("undo", name, plan, "-f", policy)[0] == 1
