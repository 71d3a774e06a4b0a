"""What is shown of a partly applied plan, and of actions that wait for others."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from tests.cli.test_plan_apply import (  # noqa: F401 (fixtures)
    Cli,
    cli,
    declared,
    name_of,
    policy_file,
    with_spark,
    write_log,
)

PARTS, FILES, ROWS = 4, 3, 1_000
UTC_TIME = r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ"


@pytest.fixture
def parted(iceberg_catalog: Any, request: pytest.FixtureRequest) -> Any:
    """cli.<test>: three appends to each of four partitions, over which `day` scatters."""
    iceberg_catalog.create_namespace_if_not_exists("cli")
    table = iceberg_catalog.create_table(
        "cli.p" + hashlib.sha256(request.node.name.encode()).hexdigest()[:8],
        Schema(
            NestedField(1, "part", LongType()),
            NestedField(2, "day", LongType()),
            NestedField(3, "pad", StringType()),
        ),
        partition_spec=PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "part")),
        properties={"write.target-file-size-bytes": str(1 << 20)},
    )
    for number in range(PARTS * FILES):
        random = np.random.default_rng(number)
        columns = {
            "part": np.full(ROWS, number % PARTS),
            "day": random.integers(0, 400, ROWS),
            "pad": [random.bytes(24).hex() for _ in range(ROWS)],
        }
        table.append(pa.table(columns, schema=table.schema().as_arrow()))
    return table


def _limited(path: Path, table: Any, share: float) -> str:
    """A policy whose budget is that share of the table's bytes."""
    size = sum(task.file.file_size_in_bytes for task in table.refresh().scan().plan_files())
    budget = {"name": "daily", "per": "24h", "maxRewriteBytes": str(int(size * share))}
    return policy_file(path, table, **declared("day", budgets=[budget]))


def test_a_plan_carried_out_in_two_parts(cli, with_spark, parted, tmp_path):  # noqa: F811
    """The budget covers two of its four actions, then all."""
    assert cli("workload", "import", write_log(tmp_path / "q.jsonl", parted))[0] == 0
    policy = _limited(tmp_path / "p.yaml", parted, 0.6)
    code, out, _ = cli("apply", name_of(parted), "-f", policy, "--yes")
    assert code == 3, out
    _assert_a_part_is_not_compared(out)
    planned = _assert_what_is_left_is_shown(cli, parted, policy)
    Path("plan.json").write_text(json.dumps(planned))
    assert cli("apply", "plan.json", "-f", policy)[0] == 3
    _assert_the_rest_is_compared(cli, parted, _limited(tmp_path / "p.yaml", parted, 9.0), planned)


def _assert_a_part_is_not_compared(out: str) -> None:
    """With the prediction of the whole plan."""
    (line,) = [line for line in out.splitlines() if line.lstrip().startswith("read by")]
    predicted, actual = re.split(r" {2,}", line.strip())[1:3]
    assert predicted == "-" and re.match(r"[\d.]+ [KM]iB", actual)
    assert "whole plan" in " ".join(out.split())


def _assert_what_is_left_is_shown(cli: Cli, parted: Any, policy: str) -> Any:  # noqa: F811
    code, out, _ = cli("plan", name_of(parted), "-f", policy)
    assert code == 0
    assert "2 of 4" in out
    assert len(re.findall(r"^  done: .*, part=\d", out, re.M)) == 2
    assert len(re.findall(r"^  ~ .*, part=\d", out, re.M)) == 2
    live = len(list(parted.refresh().scan().plan_files()))
    assert live < PARTS * FILES
    assert re.search(rf"data files +{live} ", out)
    assert f" {2 * FILES} input files" in out
    assert re.search(r"^Trust .*\b2 actions", out, re.M)
    share = float(re.search(r"rewritten \(([\d.]+) % of the table\)", out)[1])
    assert 40 < share < 60
    document = json.loads(cli("plan", name_of(parted), "-f", policy, "-o", "json")[1])
    assert len(document["actions"]) == 4
    assert sorted(document["progress"]["done"] + document["progress"]["left"]) == [
        item["id"] for item in document["actions"]
    ]
    assert document["planId"] in out
    markdown = cli("plan", name_of(parted), "-f", policy, "-o", "markdown")[1]
    assert "2 of 4" in markdown
    assert document["digest"] in markdown
    return document


def _assert_the_rest_is_compared(cli: Cli, parted: Any, policy: str, planned: Any) -> None:  # noqa: F811
    code, out, err = cli("apply", name_of(parted), "-f", policy, "--yes", "-o", "json")
    assert code == 0, out
    assert "2 of 4" in err
    (step,) = json.loads(out)["steps"]
    assert step["planId"] == planned["planId"]
    assert step["read"]["complete"] is True
    assert len(step["committedSnapshotIds"]) == step["commits"]
    assert json.loads(out)["snapshotId"] == step["committedSnapshotIds"][-1]
    code, text, _ = cli("plan", name_of(parted), "-f", policy, "--detailed-exitcode")
    assert (code, "done:" in text) == (0, False)


def test_work_that_only_the_quiet_period_holds_back_is_shown_with_its_end(cli, scattered, tmp_path):  # noqa: F811
    name = name_of(scattered)
    assert cli("plan", name, "--detailed-exitcode")[0] == 2
    scattered.delete("id < 100")
    code, out, _ = cli("plan", name, "--detailed-exitcode")
    assert code == 0
    assert re.search(rf"Waiting: 1 .* 8 files .* {UTC_TIME}", " ".join(out.splitlines()[:4]))
    document = json.loads(cli("plan", name, "-o", "json")[1])
    waiting = document["evidence"]["waiting"]
    assert (document["actions"], waiting["rewrites"], waiting["files"]) == ([], 1, 8)
    assert re.fullmatch(UTC_TIME, waiting["until"])

    code, out, _ = cli("status", name)
    assert code == 0
    assert "Converged" in out
    assert re.search(UTC_TIME, out)
    (item,) = json.loads(cli("status", name, "-o", "json")[1])["items"]
    assert (item["state"], item["waiting"]["files"]) == ("Converged", 8)

    code, out, _ = cli("apply", name, "--until-converged", "--auto-approve")
    assert code == 0
    assert re.search(UTC_TIME, " ".join(out.split()))

    eager = policy_file(tmp_path / "p.yaml", scattered, layout={"files": {"quietPeriod": "0s"}})
    code, out, _ = cli("plan", name, "-f", eager, "--detailed-exitcode")
    assert code == 2
    assert "Waiting" not in out


def test_among_many_tables_one_that_waits_is_not_counted_as_converged(cli, scattered, tmp_path):  # noqa: F811
    policy = policy_file(tmp_path / "p.yaml", scattered)
    scattered.delete("id < 100")
    out = cli("plan", "-f", policy)[1]
    assert re.search(rf"Converged, .*{UTC_TIME}", " ".join(out.split()))
    assert "is converged" not in out
